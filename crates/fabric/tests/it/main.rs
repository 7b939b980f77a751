//! Tests of links, rings and remote memory: one suite over all transports, one-sided access, verbs.

mod conformance;
mod one_sided;
mod ring;
mod sim;
mod verbs;
