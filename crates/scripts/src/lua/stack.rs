//! The stack of a Lua thread: values by index, from 1 at the bottom, or from -1 at the top.
//!
//! Safety contract:
//! 1. Indices are checked against the stack, and each push reserves its slot, so that safe code
//!    cannot reach memory outside of it.
//! 2. Bytes are borrowed from the stack: no method that could drop or move them can be called
//!    meanwhile, as such methods take `&mut self`. They stay where they are while the script is
//!    suspended, since the host only adds to the stack, and takes away what it added.
//! 3. No method calls a metamethod or a script, but for [`LuaStack::protected_call`], and none raises a
//!    Lua error: the callers hold an exemption from the memory limit (see [`super::heap`]).

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::ptr::{NonNull, null_mut};

use mlua_sys as ffi;
use mlua_sys::lua_State;

use crate::failure::CallStatus;
use crate::script_context::ScriptContext;

/// The index of the table that scripts cannot see.
pub(crate) const REGISTRY: i32 = ffi::LUA_REGISTRYINDEX;

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The index is beyond the top.
    None,
    Nil,
    Boolean,
    LightUserdata,
    Number,
    String,
    Table,
    Function,
    Userdata,
    Thread,
}

impl Kind {
    /// Returns the name that Lua's messages use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::None => "no value",
            Kind::Nil => "nil",
            Kind::Boolean => "boolean",
            Kind::LightUserdata | Kind::Userdata => "userdata",
            Kind::Number => "number",
            Kind::String => "string",
            Kind::Table => "table",
            Kind::Function => "function",
            Kind::Thread => "thread",
        }
    }
}

/// The place of an active function.
pub(crate) struct Frame {
    /// The name of the chunk, as it was given to `load`.
    pub(crate) source: Vec<u8>,
    /// The current line; -1 if it is not known.
    pub(crate) line: i32,
    /// The text that messages begin with, such as `user_script:1: `; empty if it is not known.
    pub(crate) position: Vec<u8>,
    /// `true` for a function that is not written in Lua.
    pub(crate) is_native: bool,
    /// The name under which it was called, and whether that was as a method.
    pub(crate) name: Option<(Vec<u8>, bool)>,
}

/// The stack of a thread.
pub(crate) struct LuaStack<'a> {
    state: NonNull<lua_State>,
    context: &'a ScriptContext,
}

impl<'a> LuaStack<'a> {
    /// Wraps a thread.
    ///
    /// # Safety
    /// `state` is a thread of the state that has `host`, which lives as long as the result.
    pub(super) unsafe fn new(
        state: NonNull<lua_State>,
        context: &'a ScriptContext,
    ) -> LuaStack<'a> {
        LuaStack { state, context }
    }

    /// Returns what this state shares with its host.
    pub(crate) fn context(&self) -> &'a ScriptContext {
        self.context
    }

    pub(super) fn raw(&self) -> *mut lua_State {
        self.state.as_ptr()
    }

    /// Returns the number of values.
    pub(crate) fn top(&self) -> i32 {
        // SAFETY: the state lives.
        unsafe { ffi::lua_gettop(self.raw()) }
    }

    /// Checks that there is a value at `index`, and returns the index.
    pub(super) fn checked(&self, index: i32) -> c_int {
        let top = self.top();
        let is_valid = (1..=top).contains(&index) || (-top..0).contains(&index);
        assert!(is_valid || index == REGISTRY, "index {index} of {top}");
        index
    }

    /// Returns `index` counted from the bottom.
    pub(crate) fn absolute(&self, index: i32) -> i32 {
        let index = self.checked(index);
        if index > 0 || index == REGISTRY {
            index
        } else {
            self.top() + 1 + index
        }
    }

    /// Makes room for `slots` more values. Returns `false` if a stack may not be so large.
    pub(crate) fn reserve(&mut self, slots: i32) -> bool {
        // SAFETY: the number of slots is small, and memory is not limited (contract 3).
        unsafe { ffi::lua_checkstack(self.raw(), slots) != 0 }
    }

    /// Makes room for one more value.
    pub(super) fn slot(&mut self) {
        assert!(self.reserve(1), "room on Lua's stack");
    }

    /// Returns the type of the value at `index`, which may be beyond the top.
    pub(crate) fn kind(&self, index: i32) -> Kind {
        if index > self.top() {
            return Kind::None;
        }
        // SAFETY: the index is valid.
        match unsafe { ffi::lua_type(self.raw(), self.checked(index)) } {
            ffi::LUA_TNIL => Kind::Nil,
            ffi::LUA_TBOOLEAN => Kind::Boolean,
            ffi::LUA_TLIGHTUSERDATA => Kind::LightUserdata,
            ffi::LUA_TNUMBER => Kind::Number,
            ffi::LUA_TSTRING => Kind::String,
            ffi::LUA_TTABLE => Kind::Table,
            ffi::LUA_TFUNCTION => Kind::Function,
            ffi::LUA_TUSERDATA => Kind::Userdata,
            ffi::LUA_TTHREAD => Kind::Thread,
            _ => Kind::None,
        }
    }

    /// Returns `false` for `nil` and `false`.
    pub(crate) fn boolean(&self, index: i32) -> bool {
        // SAFETY: the index is valid.
        unsafe { ffi::lua_toboolean(self.raw(), self.checked(index)) != 0 }
    }

    /// Returns a number, or a string that is one, as a number.
    pub(crate) fn number(&self, index: i32) -> Option<f64> {
        if index > self.top() {
            return None;
        }
        // SAFETY: the index is valid.
        unsafe {
            let index = self.checked(index);
            (ffi::lua_isnumber(self.raw(), index) != 0)
                .then(|| ffi::lua_tonumber(self.raw(), index))
        }
    }

    /// Returns the bytes of a string.
    pub(crate) fn bytes(&self, index: i32) -> Option<&[u8]> {
        if self.kind(index) != Kind::String {
            return None;
        }
        let mut len = 0;
        // SAFETY: it is a string, whose bytes stay in place while it is on the stack (contract 2).
        unsafe {
            let start = ffi::lua_tolstring(self.raw(), index, &raw mut len);
            Some(std::slice::from_raw_parts(start.cast(), len))
        }
    }

    /// Makes a number at `index` a string. Returns `true` if there is a string now.
    pub(crate) fn coerce_to_string(&mut self, index: i32) -> bool {
        if self.kind(index) == Kind::None {
            return false;
        }
        // SAFETY: the index is valid.
        unsafe { !ffi::lua_tolstring(self.raw(), index, null_mut()).is_null() }
    }

    /// Returns the address that identifies a table, function, thread or userdata.
    pub(crate) fn address(&self, index: i32) -> usize {
        // SAFETY: the index is valid.
        unsafe { ffi::lua_topointer(self.raw(), self.checked(index)) as usize }
    }

    /// Returns the length of a string, or that of a table as `#` does.
    pub(crate) fn raw_len(&self, index: i32) -> usize {
        // SAFETY: the index is valid.
        unsafe { ffi::lua_objlen(self.raw(), self.checked(index)) }
    }

    /// Returns `true` for a function that is not written in Lua.
    pub(crate) fn is_native(&self, index: i32) -> bool {
        // SAFETY: the index is valid.
        unsafe { ffi::lua_iscfunction(self.raw(), self.checked(index)) != 0 }
    }

    /// Returns `true` if two values are the same; metamethods are not called.
    pub(crate) fn raw_equal(&self, one: i32, other: i32) -> bool {
        // SAFETY: the indices are valid.
        unsafe { ffi::lua_rawequal(self.raw(), self.checked(one), self.checked(other)) != 0 }
    }

    /// Pushes an upvalue of a function, by its number from 1 on. Returns `false`, and pushes nothing, if it has not so
    /// many.
    pub(crate) fn push_upvalue_of(&mut self, function: i32, number: i32) -> bool {
        let function = self.absolute(function);
        assert!(
            self.kind(function) == Kind::Function,
            "upvalues of a function"
        );
        self.slot();
        // SAFETY: it is a function, and there is room.
        unsafe { !ffi::lua_getupvalue(self.raw(), function, number).is_null() }
    }

    /// Sets the number of values: drops some, or adds `nil`.
    pub(crate) fn set_top(&mut self, top: i32) {
        let more = top - self.top();
        assert!(top >= 0 && (more <= 0 || self.reserve(more)), "top {top}");
        // SAFETY: there is room.
        unsafe { ffi::lua_settop(self.raw(), top) }
    }

    /// Drops the uppermost values.
    pub(crate) fn pop(&mut self, count: i32) {
        self.set_top(self.top() - count);
    }

    /// Moves the top value to `index`, shifting those above.
    pub(crate) fn insert(&mut self, index: i32) {
        // SAFETY: the index is valid.
        unsafe { ffi::lua_insert(self.raw(), self.checked(index)) }
    }

    /// Drops the value at `index`, shifting those above.
    pub(crate) fn remove(&mut self, index: i32) {
        // SAFETY: the index is valid.
        unsafe { ffi::lua_remove(self.raw(), self.checked(index)) }
    }

    /// Moves the top value to `index`, in the place of the one there.
    pub(crate) fn replace(&mut self, index: i32) {
        // SAFETY: the index is valid.
        unsafe { ffi::lua_replace(self.raw(), self.checked(index)) }
    }

    /// Pushes a copy of the value at `index`.
    pub(crate) fn push_value(&mut self, index: i32) {
        let index = self.checked(index);
        self.slot();
        // SAFETY: the index is valid, and there is room.
        unsafe { ffi::lua_pushvalue(self.raw(), index) }
    }

    /// Pushes `nil`.
    pub(crate) fn push_nil(&mut self) {
        self.slot();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnil(self.raw()) }
    }

    /// Pushes a boolean.
    pub(crate) fn push_boolean(&mut self, value: bool) {
        self.slot();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushboolean(self.raw(), c_int::from(value)) }
    }

    /// Pushes a number.
    pub(crate) fn push_number(&mut self, value: f64) {
        self.slot();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnumber(self.raw(), value) }
    }

    /// Pushes a string.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.slot();
        // SAFETY: there is room, and the bytes are copied.
        unsafe { ffi::lua_pushlstring_(self.raw(), bytes.as_ptr().cast(), bytes.len()) }
    }

    /// Pushes the null pointer, which `cjson.null` is.
    pub(crate) fn push_null(&mut self) {
        self.slot();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushlightuserdata(self.raw(), null_mut()) }
    }

    /// Returns `true` for the null pointer.
    pub(crate) fn is_null(&self, index: i32) -> bool {
        // SAFETY: the index is that of a value.
        self.kind(index) == Kind::LightUserdata
            && unsafe { ffi::lua_touserdata(self.raw(), index).is_null() }
    }

    /// Replaces the function on the top by a new thread that will call it.
    pub(crate) fn push_thread(&mut self) {
        assert!(self.kind(-1) == Kind::Function, "a function for a thread");
        self.slot();
        // SAFETY: there is room on this stack, and on the new one.
        unsafe {
            let thread = ffi::lua_newthread(self.raw());
            ffi::lua_insert(self.raw(), -2);
            ffi::lua_xmove(self.raw(), thread, 1);
        }
    }

    /// Returns the stack of the thread at `index`.
    pub(crate) fn thread(&self, index: i32) -> Option<LuaStack<'_>> {
        // SAFETY: the index is valid; the thread lives while its value is on this stack.
        unsafe {
            let state = ffi::lua_tothread(self.raw(), self.checked(index));
            NonNull::new(state).map(|state| LuaStack::new(state, self.context))
        }
    }

    /// Calls the function below `arguments` values, which are dropped, with the memory limit.
    /// `results` are pushed, `None` for all, or the error. `handler` is the index of a function that
    /// gets the error where it is raised, or 0.
    pub(crate) fn protected_call(
        &mut self,
        arguments: i32,
        results: Option<i32>,
        handler: i32,
    ) -> CallStatus {
        assert!(
            arguments >= 0 && arguments < self.top(),
            "a function and its arguments"
        );
        if handler != 0 {
            self.checked(handler);
        }
        let count = results.unwrap_or(ffi::LUA_MULTRET);
        assert!(self.reserve(count.max(1)), "room for results");
        let _exemption = self.context.heap.exemption(false);
        // SAFETY: the function and its arguments are on the stack; errors are caught by the call.
        let status = unsafe { ffi::lua_pcall(self.raw(), arguments, count, handler) };
        match status {
            ffi::LUA_OK => CallStatus::Returned,
            ffi::LUA_ERRMEM => CallStatus::OutOfMemory,
            ffi::LUA_ERRERR => CallStatus::HandlerFailed,
            _ => CallStatus::Failed,
        }
    }

    /// Compiles a text, and pushes its function, or a message. Returns `true` if it was compiled.
    /// Compiled code is taken for text, so that it does not compile.
    pub(crate) fn load(&mut self, source: &[u8], name: &CStr) -> bool {
        self.slot();
        let spaced;
        let text = if source.first() == Some(&ffi::LUA_SIGNATURE[0]) {
            spaced = [b" ", source].concat();
            &spaced
        } else {
            source
        };
        // SAFETY: there is room; the text is read during the call; syntax errors are caught by it.
        unsafe {
            let text_start = text.as_ptr().cast();
            ffi::luaL_loadbuffer(self.raw(), text_start, text.len(), name.as_ptr()) == ffi::LUA_OK
        }
    }

    /// Returns the active function at `level`: 0 is the running one, 1 the one that called it.
    pub(crate) fn frame(&mut self, level: i32) -> Option<Frame> {
        // SAFETY: a zeroed record is valid, as its pointers may be null. The API fills it for a
        // level that exists, with strings that live as long as the function is active.
        unsafe {
            let mut record: ffi::lua_Debug = std::mem::zeroed();
            if ffi::lua_getstack(self.raw(), level, &raw mut record) == 0 {
                return None;
            }
            ffi::lua_getinfo(self.raw(), c"nSl".as_ptr(), &raw mut record);
            let text = |start| CStr::from_ptr(start).to_bytes().to_vec();
            let line = record.currentline;
            let mut position = Vec::new();
            if line > 0 {
                position = text(record.short_src.as_ptr());
                position.extend_from_slice(format!(":{line}: ").as_bytes());
            }
            let is_method = CStr::from_ptr(record.namewhat) == c"method";
            Some(Frame {
                source: text(record.source),
                line,
                position,
                is_native: CStr::from_ptr(record.what) == c"C",
                name: (!record.name.is_null()).then(|| (text(record.name), is_method)),
            })
        }
    }
}
