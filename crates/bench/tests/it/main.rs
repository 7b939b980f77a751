//! Tests of experiments: their results, and their messages when they cannot measure.

mod checks;
mod command;
mod command_paper;
mod command_ramp;
mod experiments;
mod paper_proxy;
mod placement;
mod ramp;
mod storage;
mod support;
