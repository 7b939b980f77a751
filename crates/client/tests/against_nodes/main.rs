//! The client against nodes that misbehave.

mod calls;
mod nodes;
mod numbered;
mod steps;
