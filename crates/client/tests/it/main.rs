//! The client against nodes that misbehave.

mod bulk;
mod calls;
mod nodes;
mod numbered;
mod ramp;
mod steps;
