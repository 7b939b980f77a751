//! Making checkpoints: the thread that does it, its helpers, and their pace.
//!
//! The thread waits until the scheduler (module `checkpoint_scheduler`) has a request. It makes one
//! checkpoint at a time and reports to the scheduler how each of them ended.
//!
//! A checkpoint that fails changes nothing that a recovery uses: the logs stay, and so does the
//! checkpoint before it.

mod copy;
mod throttle;
mod writer;

pub(crate) use writer::{CheckpointWriter, start};
