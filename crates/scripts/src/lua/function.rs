//! Functions in Rust that scripts call.
//!
//! Safety contract:
//! 1. A Lua error is a jump to the call that catches it. Functions that raise one own nothing at
//!    that moment: all values of Rust are dropped before, in [`enter`].
//! 2. The first upvalue of a function that is pushed here is the address of a [`NativeFunction`]. The
//!    second upvalue of a guarded function is the address of a C function without upvalues.
//! 3. A panic does not unwind through Lua: it ends the process.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::NonNull;

use mlua_sys as ffi;
use mlua_sys::lua_State;

use super::stack::{Kind, LuaStack};
use super::state::context_of;
use crate::failure::FunctionFailure;

/// A function that scripts call: its arguments are the stack, and it returns how many of the
/// uppermost values are its results.
pub(crate) type NativeFunction = fn(&mut LuaStack<'_>) -> Result<i32, FunctionFailure>;

/// The message of Lua.
const OUT_OF_MEMORY: &[u8] = b"not enough memory";

/// The values that a function can push above its arguments, however many these are.
const FREE_SLOTS: i32 = 20;

/// Pushes the value that scripts get of a failure.
fn push_failure(stack: &mut LuaStack<'_>, failure: FunctionFailure) {
    match failure {
        FunctionFailure::Value => {}
        FunctionFailure::Message(text) => push_positioned(stack, &text),
        FunctionFailure::Argument(index, text) => {
            let text = argument_message(stack, index, &text);
            push_positioned(stack, &text);
        }
        FunctionFailure::OutOfMemory => stack.push_bytes(OUT_OF_MEMORY),
        FunctionFailure::Killed => {
            let text = stack.context().killed.borrow().clone().unwrap_or_default();
            stack.push_bytes(&text);
        }
    }
}

fn push_positioned(stack: &mut LuaStack<'_>, text: &[u8]) {
    let position = stack.frame(1).map(|frame| frame.position);
    let mut message = position.unwrap_or_default();
    message.extend_from_slice(text);
    stack.push_bytes(&message);
}

fn argument_message(stack: &mut LuaStack<'_>, index: i32, text: &[u8]) -> Vec<u8> {
    let (name, is_method) = stack
        .frame(0)
        .and_then(|frame| frame.name)
        .unwrap_or_else(|| (b"?".to_vec(), false));
    let name = name.as_slice();
    let index = index - i32::from(is_method);
    if is_method && index == 0 {
        return [b"calling '", name, b"' on bad self (", text, b")"].concat();
    }
    let start = format!("bad argument #{index} to '");
    [start.as_bytes(), name, b"' (", text, b")"].concat()
}

impl LuaStack<'_> {
    /// Returns the failure of a function that found another type at `index`.
    pub(crate) fn wrong_type(&self, index: i32, expected: &str) -> FunctionFailure {
        let found = self.kind(index).name();
        FunctionFailure::Argument(index, format!("{expected} expected, got {found}").into())
    }

    /// Returns the number at `index`.
    pub(crate) fn check_number(&self, index: i32) -> Result<f64, FunctionFailure> {
        self.number(index)
            .ok_or_else(|| self.wrong_type(index, "number"))
    }

    /// Makes the argument at `index` a string.
    pub(crate) fn check_string(&mut self, index: i32) -> Result<(), FunctionFailure> {
        if self.coerce_to_string(index) {
            Ok(())
        } else {
            Err(self.wrong_type(index, "string"))
        }
    }

    /// Checks that the argument at `index` is a table.
    pub(crate) fn check_table(&self, index: i32) -> Result<(), FunctionFailure> {
        if self.kind(index) == Kind::Table {
            Ok(())
        } else {
            Err(self.wrong_type(index, "table"))
        }
    }

    /// Pushes a function.
    pub(crate) fn push_function(&mut self, function: NativeFunction) {
        assert!(self.reserve(2), "room for a function");
        // SAFETY: there is room, and the upvalue is what contract 2 says.
        unsafe {
            ffi::lua_pushlightuserdata(self.raw(), function as *mut c_void);
            ffi::lua_pushcclosure(self.raw(), call_function, 1);
        }
    }

    /// Replaces the value on the top by a function that can push it: [`LuaStack::push_upvalue`].
    pub(crate) fn push_closure(&mut self, function: NativeFunction) {
        assert!(self.top() > 0 && self.reserve(1), "an upvalue and room");
        // SAFETY: there is room, and the first upvalue is what contract 2 says.
        unsafe {
            ffi::lua_pushlightuserdata(self.raw(), function as *mut c_void);
            ffi::lua_insert(self.raw(), -2);
            ffi::lua_pushcclosure(self.raw(), call_function, 2);
        }
    }

    /// Pushes the value that the running function was created with.
    pub(crate) fn push_upvalue(&mut self) {
        assert!(self.reserve(1), "room for an upvalue");
        // SAFETY: there is room, and a missing upvalue reads as `nil`.
        unsafe { ffi::lua_pushvalue(self.raw(), ffi::lua_upvalueindex(2)) }
    }

    /// Replaces a function of Lua's libraries on the top, which has no upvalues, by one that calls
    /// `check` before.
    pub(crate) fn guard(&mut self, check: NativeFunction) {
        assert!(self.is_native(-1) && self.reserve(2), "a native function");
        // SAFETY: it is a C function; there is room, and the upvalues are what contract 2 says.
        unsafe {
            let original = ffi::lua_tocfunction(self.raw(), -1).expect("a native function");
            ffi::lua_pushlightuserdata(self.raw(), check as *mut c_void);
            ffi::lua_pushlightuserdata(self.raw(), original as *mut c_void);
            ffi::lua_pushcclosure(self.raw(), call_guarded, 2);
            ffi::lua_replace(self.raw(), -2);
        }
    }

    /// Replaces the thread on the top by a function that resumes it, as `coroutine.wrap` does.
    /// `wrapper` is the index of a function that `coroutine.wrap` returned.
    pub(crate) fn wrap_thread(&mut self, wrapper: i32) {
        assert!(
            self.kind(-1) == Kind::Thread && self.is_native(wrapper),
            "a thread"
        );
        // SAFETY: the function's one upvalue is the thread that it resumes.
        unsafe {
            let resume = ffi::lua_tocfunction(self.raw(), wrapper).expect("a native function");
            ffi::lua_pushcclosure(self.raw(), resume, 1);
        }
    }
}

/// Calls the [`NativeFunction`] in the first upvalue. Returns the number of results, or -1 with the
/// error on the top.
fn enter(state: *mut lua_State) -> c_int {
    struct AbortOnPanic;
    impl Drop for AbortOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                std::process::abort();
            }
        }
    }
    let _abort = AbortOnPanic;
    // SAFETY: Lua calls functions with their own state, and the upvalue is what contract 2 says.
    let (mut stack, function) = unsafe {
        let state = NonNull::new_unchecked(state);
        let stack = LuaStack::new(state, context_of(state.as_ptr()));
        let function = ffi::lua_touserdata(state.as_ptr(), ffi::lua_upvalueindex(1));
        (stack, transmute::<*mut c_void, NativeFunction>(function))
    };
    let heap = &stack.context().heap;
    let _exemption = heap.exemption(true);
    if !stack.reserve(FREE_SLOTS) {
        stack.set_top(0);
        stack.push_bytes(b"stack overflow");
        return -1;
    }
    let mut results = match function(&mut stack) {
        Ok(results) => results,
        Err(failure) => {
            push_failure(&mut stack, failure);
            -1
        }
    };
    if heap.is_exceeded() {
        stack.set_top(0);
        stack.push_bytes(OUT_OF_MEMORY);
        results = -1;
    }
    results
}

/// A function that is pushed by [`LuaStack::push_function`].
///
/// # Safety
/// Lua calls it.
unsafe extern "C-unwind" fn call_function(state: *mut lua_State) -> c_int {
    let results = enter(state);
    if results < 0 {
        // SAFETY: the error is on the top, and nothing is owned here.
        unsafe { ffi::lua_error(state) }
    }
    results
}

/// A function that is pushed by [`LuaStack::guard`].
///
/// # Safety
/// Lua calls it.
unsafe extern "C-unwind" fn call_guarded(state: *mut lua_State) -> c_int {
    if enter(state) < 0 {
        // SAFETY: the error is on the top, and nothing is owned here.
        unsafe { ffi::lua_error(state) }
    }
    // SAFETY: the second upvalue is a C function (contract 2), which gets the arguments as they
    // came. It may raise errors, as nothing is owned here.
    unsafe {
        let original = ffi::lua_touserdata(state, ffi::lua_upvalueindex(2));
        transmute::<*mut c_void, ffi::lua_CFunction>(original)(state)
    }
}
