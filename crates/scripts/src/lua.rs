//! Lua 5.1 for the rest of this crate: its C API behind checked indices.
//!
//! | module | has |
//! |---|---|
//! | [`state`] | states and their memory |
//! | [`heap`] | the size of a heap and its limit |
//! | [`stack`] | values on the stack of a thread |
//! | [`function`] | functions in Rust that scripts call, and their errors |
//! | [`hook`] | slices: the function that Lua calls every few thousand instructions |

pub(crate) mod function;
pub(crate) mod heap;
pub(crate) mod hook;
pub(crate) mod stack;
pub(crate) mod state;

pub(crate) use function::{Failure, Function};
pub(crate) use heap::Heap;
pub(crate) use stack::{CallStatus, Kind, Stack};
pub(crate) use state::State;
