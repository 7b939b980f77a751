//! Every interleaving of short protocols, under loom.

#![allow(dead_code, unreachable_pub, unused_imports)]

// The sources are private to their crates: the models compile the very files.
#[path = "../../../cluster/src/ramp/slots/gate.rs"]
mod gate;
#[path = "../../../cluster/src/ramp/slots/state.rs"]
mod state;
#[path = "../../../engine/src"]
mod engine {
    pub(crate) mod word;
}
#[path = "../../../fabric/src"]
mod fabric {
    pub(crate) mod ring;
    pub(crate) mod send_receive;
}
#[path = "../../../journal/src"]
mod log {
    pub(crate) mod buffer;
    pub(crate) mod format;
    pub(crate) mod handover;
}

// Where the sources look for each other.
use fabric::ring;
use log::{buffer, format};
mod error {
    pub(crate) use journal::JournalFailure;
}
mod memory;
mod sync;

mod log_buffers;
mod record_word;
mod ring_links;
mod slot;
