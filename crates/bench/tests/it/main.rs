//! Tests of experiments: what each measures, and what it says of what it cannot.

extern crate proxy as kumiki_proxy;

mod checks;
mod command;
mod command_ramp;
mod experiments;
mod older_proxy;
mod placement;
mod ramp;
mod storage;
mod support;
