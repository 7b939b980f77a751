//! Tables on the stack of a Lua thread, without metamethods.
//!
//! Safety contract: that of [`super::stack`]. Each method checks that the value is a table.

#![allow(unsafe_code)]

use std::ffi::c_int;

use mlua_sys as ffi;

use super::stack::{Kind, LuaStack, REGISTRY};

impl LuaStack<'_> {
    fn table(&self, index: i32) -> c_int {
        let index = self.checked(index);
        assert!(
            index == REGISTRY || self.kind(index) == Kind::Table,
            "a table"
        );
        index
    }

    /// Pushes a table with room for `items` and `fields`.
    pub(crate) fn push_table(&mut self, items: usize, fields: usize) {
        self.slot();
        // Rooms are hints: a longer table grows.
        let bounded = |count: usize| count.min(1 << 16) as c_int;
        // SAFETY: there is room, and the sizes are small.
        unsafe { ffi::lua_createtable(self.raw(), bounded(items), bounded(fields)) }
    }

    /// Replaces the key on the top by its value in the table at `index`.
    pub(crate) fn raw_get(&mut self, index: i32) -> Kind {
        // SAFETY: it is a table, and there is a key.
        unsafe { ffi::lua_rawget_(self.raw(), self.table(index)) };
        self.kind(-1)
    }

    /// Pushes the value of an item.
    pub(crate) fn raw_get_item(&mut self, index: i32, item: i32) -> Kind {
        let index = self.table(index);
        self.slot();
        // SAFETY: it is a table, and there is room.
        unsafe { ffi::lua_rawgeti_(self.raw(), index, item) };
        self.kind(-1)
    }

    /// Pushes the value of a field.
    pub(crate) fn raw_get_field(&mut self, index: i32, field: &str) -> Kind {
        let index = self.absolute(index);
        self.push_bytes(field.as_bytes());
        self.raw_get(index)
    }

    /// Sets the value of the key below the top to the value on the top, and drops both. Returns
    /// `false`, and drops both as well, if the key can be none: `nil` or NaN.
    pub(crate) fn raw_set(&mut self, index: i32) -> bool {
        let index = self.table(index);
        let is_key = match self.kind(-2) {
            Kind::Nil => false,
            Kind::Number => self.number(-2).is_some_and(|key| !key.is_nan()),
            _ => true,
        };
        if is_key {
            // SAFETY: it is a table, and the key is valid, so that no error is raised.
            unsafe { ffi::lua_rawset(self.raw(), index) }
        } else {
            self.pop(2);
        }
        is_key
    }

    /// Sets an item to the value on the top, and drops that.
    pub(crate) fn raw_set_item(&mut self, index: i32, item: i32) {
        // SAFETY: it is a table, and there is a value.
        unsafe { ffi::lua_rawseti_(self.raw(), self.table(index), item) }
    }

    /// Sets a field to the value on the top, and drops that.
    pub(crate) fn raw_set_field(&mut self, index: i32, field: &str) {
        let index = self.absolute(index);
        self.push_bytes(field.as_bytes());
        self.insert(-2);
        self.raw_set(index);
    }

    /// Replaces the key on the top by the next one and its value. Returns `false`, and drops the
    /// key, if it was the last one. The key is `nil` at first, and then the one of the last call.
    pub(crate) fn next(&mut self, index: i32) -> bool {
        let index = self.table(index);
        self.slot();
        // SAFETY: it is a table that has the key, as the caller lets the keys as they are.
        unsafe { ffi::lua_next(self.raw(), index) != 0 }
    }

    /// Pushes the metatable of a value. Returns `false`, and pushes nothing, if there is none.
    pub(crate) fn push_metatable(&mut self, index: i32) -> bool {
        let index = self.checked(index);
        self.slot();
        // SAFETY: the index is valid, and there is room.
        unsafe { ffi::lua_getmetatable(self.raw(), index) != 0 }
    }

    /// Makes the table, or `nil`, on the top the metatable of a value, and drops it.
    pub(crate) fn set_metatable(&mut self, index: i32) {
        assert!(
            matches!(self.kind(-1), Kind::Table | Kind::Nil),
            "a metatable"
        );
        // SAFETY: the index is valid.
        unsafe { ffi::lua_setmetatable(self.raw(), self.checked(index)) };
    }

    /// Pushes the table of global variables.
    pub(crate) fn push_globals(&mut self) {
        self.slot();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushvalue(self.raw(), ffi::LUA_GLOBALSINDEX) }
    }

    /// Makes the table on the top that of global variables, for functions that are loaded later.
    pub(crate) fn set_globals(&mut self) {
        assert!(self.kind(-1) == Kind::Table, "globals are a table");
        // SAFETY: there is a value.
        unsafe { ffi::lua_replace(self.raw(), ffi::LUA_GLOBALSINDEX) }
    }

    /// Makes the table on the top that of the global variables of a function, and drops it.
    pub(crate) fn set_environment(&mut self, function: i32) {
        assert!(self.kind(-1) == Kind::Table, "globals are a table");
        // SAFETY: the index is valid, and there is a table.
        unsafe { ffi::lua_setfenv(self.raw(), self.checked(function)) };
    }
}
