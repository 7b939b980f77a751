//! Tests of disks: conformance, mapped files, ways of reading, throttling.

mod conformance;
mod mapped;
mod reads;
mod support;
mod throttled;
