//! Models of short concurrent protocols. The tests compile the very sources of other crates, with the atomics and
//! locks of loom, which executes every interleaving of a few threads.
//!
//! | test | protocol | source |
//! |---|---|---|
//! | `record_word` | the word of a record: locks, holds, publication | `engine/src/word.rs` |
//! | `slot` | writers, publishers and readers of a published slot | `cluster/src/ramp/slots/gate.rs`, `state.rs` |
//! | `ring_links` | the two sides of a ring, and of Send and Receive | `fabric/src/ring.rs`, `send_receive.rs` |
//! | `log_buffers` | workers that hand log buffers over to a logger | `journal/src/handover.rs` |
//!
//! The crate itself is empty. What its sources have under `cfg(loom)` is compiled here alone.

#![forbid(unsafe_code)]
