//! Tests of experiments: their results, and their messages when they cannot measure.

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
