//! Lua states: their creation, their end, their memory.
//!
//! Safety contract:
//! 1. A state lives no longer than the [`ScriptContext`] whose address it has: [`LuaState`] owns both.
//! 2. Lua passes the size of each block with which it was allocated. Blocks come from the global
//!    allocator with [`ALIGNMENT`], and are freed with the same size and alignment.
//! 3. The spare thread stays at the bottom of the main stack as long as the state lives.
//! 4. A state is used by one thread: [`LuaState`] is neither `Send` nor `Sync`.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

use mlua_sys as ffi;
use mlua_sys::{
    lua_State, lua_close, lua_getallocf, lua_newstate, luaopen_base, luaopen_math, luaopen_string,
    luaopen_table,
};

use super::stack::LuaStack;
use crate::script_context::ScriptContext;

/// The alignment of all blocks: that of C's `malloc`.
const ALIGNMENT: usize = 16;

/// A Lua state with the libraries `base`, `coroutine`, `string`, `table` and `math`.
pub(crate) struct LuaState {
    state: NonNull<lua_State>,
    /// A thread that runs no script.
    spare: NonNull<lua_State>,
    context: Rc<ScriptContext>,
}

impl LuaState {
    /// Creates a state. Its functions can reach `host`.
    pub(crate) fn new(context: Rc<ScriptContext>) -> LuaState {
        // SAFETY: the host lives as long as the state (contract 1). The libraries are opened by calls
        // from outside of all functions, as the API allows; memory is not limited meanwhile.
        let (state, spare) = unsafe {
            let state = lua_newstate(allocate, Rc::as_ptr(&context).cast_mut().cast());
            let state = NonNull::new(state).expect("memory for a Lua state");
            for open in [luaopen_base, luaopen_string, luaopen_table, luaopen_math] {
                open(state.as_ptr());
            }
            ffi::lua_settop(state.as_ptr(), 0);
            let spare = NonNull::new(ffi::lua_newthread(state.as_ptr()));
            (state, spare.expect("a thread"))
        };
        LuaState {
            state,
            spare,
            context,
        }
    }

    /// Returns the stack of a thread that runs no script, so that it has room also while a script
    /// has filled its own stack.
    pub(crate) fn spare_stack(&self) -> LuaStack<'_> {
        // SAFETY: the thread lives as long as the state (contract 3), and so as the result.
        unsafe { LuaStack::new(self.spare, &self.context) }
    }

    /// Returns the stack of the main thread, whose lowest value is the spare thread.
    pub(crate) fn stack(&self) -> LuaStack<'_> {
        // SAFETY: the state lives as long as the result.
        unsafe { LuaStack::new(self.state, &self.context) }
    }
}

impl Drop for LuaState {
    fn drop(&mut self) {
        // SAFETY: no function of the state runs: the interpreter ends scripts before it is dropped.
        unsafe { lua_close(self.state.as_ptr()) }
    }
}

impl LuaStack<'_> {
    /// Collects garbage completely.
    pub(crate) fn collect_garbage(&mut self) {
        // SAFETY: the state lives.
        unsafe { ffi::lua_gc(self.raw(), ffi::LUA_GCCOLLECT, 0) };
    }

    /// Lets the collector begin anew when the heap has doubled: fast, for small heaps.
    pub(crate) fn collect_lazily(&mut self) {
        // SAFETY: the state lives.
        unsafe { ffi::lua_gc(self.raw(), ffi::LUA_GCSETPAUSE, 200) };
    }

    /// Lets the collector begin anew soon, so that garbage does not fill the heap up to its limit.
    pub(crate) fn collect_eagerly(&mut self) {
        // SAFETY: the state lives.
        unsafe { ffi::lua_gc(self.raw(), ffi::LUA_GCSETPAUSE, 110) };
    }
}

/// Returns the host of a state.
///
/// # Safety
/// `state` is a thread of a [`LuaState`] that lives as long as the result.
pub(super) unsafe fn context_of<'a>(state: *mut lua_State) -> &'a ScriptContext {
    let mut context: *mut c_void = null_mut();
    // SAFETY: the address is that of `LuaState::new`, and the host outlives the state.
    unsafe {
        lua_getallocf(state, &raw mut context);
        &*context.cast::<ScriptContext>()
    }
}

/// Allocates, resizes (`old` to `new` bytes) or frees (`new` is 0) a block of a Lua heap.
///
/// # Safety
/// `context` points to the state's [`ScriptContext`]. `block` is null, or a block of `old` bytes from here.
unsafe extern "C" fn allocate(
    context: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: the host outlives the state, and is only used by shared references.
    let heap = unsafe { &(*context.cast::<ScriptContext>()).heap };
    let old = if block.is_null() { 0 } else { old };
    let Ok(layout) = Layout::from_size_align(old.max(new), ALIGNMENT) else {
        return null_mut();
    };
    if !heap.count(old, new) {
        return null_mut();
    }
    // SAFETY: no size is zero where the allocator forbids it, and `old` is the size of the block.
    let result = unsafe {
        let old_layout = Layout::from_size_align_unchecked(old, ALIGNMENT);
        match (old, new) {
            (0, 0) => return null_mut(),
            (0, _) => alloc(layout),
            (_, 0) => {
                dealloc(block.cast(), old_layout);
                return null_mut();
            }
            _ => realloc(block.cast(), old_layout, new),
        }
    };
    if result.is_null() {
        handle_alloc_error(layout);
    }
    result.cast()
}
