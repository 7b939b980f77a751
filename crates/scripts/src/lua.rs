//! Lua 5.1 for the rest of this crate: its C API behind checked indices.
//!
//! | module | has |
//! |---|---|
//! | [`state`] | states and their memory |
//! | [`stack`], [`tables`] | values on the stack of a thread |
//! | [`function`] | functions in Rust that scripts call, and their errors |
//! | [`hook`] | slices: the function that Lua calls every few thousand instructions |

pub(crate) mod function;
pub(crate) mod hook;
pub(crate) mod stack;
pub(crate) mod state;
pub(crate) mod tables;

pub(crate) use function::NativeFunction;
pub(crate) use stack::{Kind, LuaStack};
pub(crate) use state::LuaState;
