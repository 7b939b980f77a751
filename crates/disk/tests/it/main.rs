//! Tests of disks: conformance, ways of reading, throttling.

mod conformance;
mod reads;
mod support;
mod throttled;
