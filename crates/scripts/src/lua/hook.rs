//! The function that Lua calls every few thousand instructions of a script.
//!
//! It suspends a script whose slice is over. In a killed script Lua calls it before every
//! instruction, and it raises an error each time, so that the script cannot catch it for long.
//!
//! Safety contract: as in [`super::function`], a function that raises an error owns nothing.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use mlua_sys as ffi;
use mlua_sys::{lua_Debug, lua_State};

use super::stack::LuaStack;
use super::state::context_of;

/// The number of instructions between two looks at the clock: some ten microseconds.
const INSTRUCTIONS: i32 = 2000;

impl LuaStack<'_> {
    /// Lets the thread, and those that it creates later, look at the clock.
    pub(crate) fn set_slices(&mut self) {
        // SAFETY: the thread lives, and so does the function.
        unsafe { ffi::lua_sethook(self.raw(), Some(hook), ffi::LUA_MASKCOUNT, INSTRUCTIONS) };
    }

    /// Lets the thread, and those that it creates later, execute no instruction of a killed script.
    pub(crate) fn stop_at_every_instruction(&mut self) {
        // SAFETY: as above.
        unsafe { ffi::lua_sethook(self.raw(), Some(hook), ffi::LUA_MASKCOUNT, 1) };
    }
}

/// Returns `true` if an error must be raised, which is on the top then.
fn must_fail(state: *mut lua_State) -> bool {
    // SAFETY: Lua calls the hook with a thread of a state that lives.
    let mut stack = unsafe {
        let context = context_of(state);
        LuaStack::new(NonNull::new_unchecked(state), context)
    };
    let context = stack.context();
    if context.tick().is_ok() {
        if context.heap.used() > context.heap.limit() / 4 {
            stack.collect_eagerly();
        }
        return false;
    }
    let _exemption = context.heap.exemption(true);
    let killed = context.killed.borrow();
    let text = killed.as_deref().unwrap_or_default();
    // SAFETY: Lua leaves room for some values above the stack of an interrupted function, also where
    // that has as many values as there may be.
    unsafe { ffi::lua_pushlstring_(stack.raw(), text.as_ptr().cast(), text.len()) };
    true
}

/// The hook.
///
/// # Safety
/// Lua calls it.
unsafe extern "C-unwind" fn hook(state: *mut lua_State, _: *mut lua_Debug) {
    if must_fail(state) {
        // SAFETY: the error is on the top, and nothing is owned here.
        unsafe { ffi::lua_error(state) };
    }
}
