//! The client against nodes that misbehave.

mod bulk;
mod calls;
mod direct_writes;
mod nodes;
mod numbered;
mod ramp;
mod steps;
