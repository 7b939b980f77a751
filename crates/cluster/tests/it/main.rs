//! Tests of the cluster: transaction protocol, slots, topology, messages.

mod codec;
mod documents;
mod protocol;
mod simulation;
mod slots;
mod support;
mod topology;
