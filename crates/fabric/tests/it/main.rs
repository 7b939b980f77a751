//! Tests of links, rings, Send and Receive, and remote memory: one suite over all transports, one-sided access, verbs.

mod conformance;
mod one_sided;
mod ring;
mod send_receive;
mod sim;
mod verbs;
