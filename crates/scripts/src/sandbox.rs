//! The global variables of scripts, and tables that scripts cannot change.
//!
//! A protected table is an empty one in the place of the real one: its metatable leads reads to the
//! real table, and refuses writes. The functions of Lua's libraries that ignore metatables are
//! replaced or guarded, so that a script never gets a real table and never writes to an empty one.

use crate::lua::stack::REGISTRY;
use crate::lua::{Failure, Function, Kind, Stack};
use crate::{
    base_library, bit_library, json_library, msgpack_library, random, redis_library,
    string_library, struct_library,
};

/// Items of the registry.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum Registered {
    /// From a protected table to the real one.
    RealTables = 1,
    /// From a protected table to the metatable that scripts see.
    VisibleMetatables,
    /// The threads that scripts have created, as weak keys.
    Threads,
    /// Compiled scripts.
    Functions,
    /// The function `next` of scripts.
    Next,
    /// A function of Lua that resumes a thread.
    Wrapper,
    /// A function that returns the value of a key of a table.
    Index,
}

impl Stack<'_> {
    /// Pushes an item of the registry.
    pub(crate) fn push_registered(&mut self, item: Registered) {
        self.raw_get_item(REGISTRY, item as i32);
    }

    /// Makes the value on the top an item of the registry, and drops it.
    pub(crate) fn register(&mut self, item: Registered) {
        self.raw_set_item(REGISTRY, item as i32);
    }
}

/// Makes the sandbox: scripts that are loaded later see it. Leaves the real table of global variables
/// on the stack, for `KEYS` and `ARGV`.
pub(crate) fn open(stack: &mut Stack<'_>) {
    for item in [
        Registered::RealTables,
        Registered::VisibleMetatables,
        Registered::Functions,
    ] {
        stack.push_table(0, 0);
        stack.register(item);
    }
    stack.push_table(0, 0);
    stack.push_table(0, 1);
    stack.push_bytes(b"k");
    stack.raw_set_field(-2, "__mode");
    stack.set_metatable(-2);
    stack.register(Registered::Threads);

    stack.push_globals();
    let lua = stack.top();
    stack.push_table(0, 64);
    let globals = stack.top();
    base_library::fill(stack, lua, globals);
    fill_math(stack, lua);
    fill_string(stack, lua);
    for name in ["coroutine", "string", "table", "math"] {
        stack.raw_get_field(lua, name);
        protect(stack);
        stack.raw_set_field(globals, name);
    }
    type PushLibrary = fn(&mut Stack<'_>);
    let libraries: [(&str, PushLibrary); 5] = [
        ("redis", redis_library::push_library),
        ("cjson", json_library::push_library),
        ("cmsgpack", msgpack_library::push_library),
        ("bit", |stack| {
            push_functions(stack, &bit_library::FUNCTIONS)
        }),
        ("struct", |stack| {
            push_functions(stack, &struct_library::FUNCTIONS)
        }),
    ];
    for (name, push) in libraries {
        push(stack);
        protect(stack);
        stack.raw_set_field(globals, name);
    }
    protect_strings(stack, globals);
    protect_globals(stack, globals);
    stack.remove(lua);
}

/// Sets functions of a table.
pub(crate) fn set_functions(stack: &mut Stack<'_>, table: i32, functions: &[(&str, Function)]) {
    for &(name, function) in functions {
        stack.push_function(function);
        stack.raw_set_field(table, name);
    }
}

fn fill_string(stack: &mut Stack<'_>, lua: i32) {
    stack.raw_get_field(lua, "string");
    let string = stack.top();
    set_functions(stack, string, &string_library::FUNCTIONS);
    stack.pop(1);
    let source = b"local table, key = ... return table[key]";
    assert!(stack.load(source, c"=gsub"), "a chunk that compiles");
    stack.register(Registered::Index);
}

fn push_functions(stack: &mut Stack<'_>, functions: &[(&str, Function)]) {
    stack.push_table(0, functions.len());
    let table = stack.top();
    set_functions(stack, table, functions);
}

fn fill_math(stack: &mut Stack<'_>, lua: i32) {
    stack.raw_get_field(lua, "math");
    let math = stack.top();
    let functions: [(&str, Function); 2] = [
        ("random", random::random),
        ("randomseed", random::random_seed),
    ];
    set_functions(stack, math, &functions);
    stack.pop(1);
}

/// Replaces the table on the top by one that scripts can only read.
pub(crate) fn protect(stack: &mut Stack<'_>) {
    let real = stack.top();
    stack.push_table(0, 0);
    stack.push_table(0, 2);
    stack.push_value(real);
    stack.raw_set_field(-2, "__index");
    stack.push_function(refuse_write);
    stack.raw_set_field(-2, "__newindex");
    stack.set_metatable(-2);
    stack.push_registered(Registered::RealTables);
    stack.push_value(-2);
    stack.push_value(real);
    stack.raw_set(-3);
    stack.pop(1);
    stack.remove(real);
}

/// Lets the methods of strings be those of the protected table.
fn protect_strings(stack: &mut Stack<'_>, globals: i32) {
    stack.push_bytes(b"");
    stack.push_metatable(-1);
    let metatable = stack.top();
    stack.raw_get_field(globals, "string");
    stack.raw_set_field(metatable, "__index");
    stack.push_table(0, 1);
    stack.raw_get_field(globals, "string");
    stack.raw_set_field(-2, "__index");
    protect(stack);
    stack.raw_set_field(metatable, "__metatable");
    stack.pop(2);
}

/// Makes a table that of global variables, protected.
fn protect_globals(stack: &mut Stack<'_>, globals: i32) {
    stack.push_table(0, 1);
    stack.push_function(refuse_unknown);
    stack.raw_set_field(-2, "__index");
    stack.push_value(-1);
    stack.set_metatable(globals);
    protect(stack);
    let metatable = stack.top();
    stack.push_value(globals);
    protect(stack);
    stack.push_registered(Registered::VisibleMetatables);
    stack.push_value(-2);
    stack.push_value(metatable);
    stack.raw_set(-3);
    stack.pop(1);
    stack.push_value(-1);
    stack.raw_set_field(globals, "_G");
    stack.set_globals();
    stack.pop(1);
}

/// Pushes the real table of a protected one. Returns `false`, and pushes nothing, for other values.
pub(crate) fn push_real(stack: &mut Stack<'_>, index: i32) -> bool {
    if stack.kind(index) != Kind::Table || !stack.push_metatable(index) {
        return false;
    }
    stack.push_registered(Registered::RealTables);
    stack.replace(-2);
    stack.push_value(index);
    let is_protected = stack.raw_get(-2) == Kind::Table;
    if is_protected {
        stack.remove(-2);
    } else {
        stack.pop(2);
    }
    is_protected
}

/// Lets a function of Lua read the real table of its first argument.
pub(crate) fn read_real(stack: &mut Stack<'_>) -> Result<i32, Failure> {
    if push_real(stack, 1) {
        stack.replace(1);
    }
    Ok(0)
}

/// Refuses a function of Lua that changes its first argument.
pub(crate) fn refuse_protected(stack: &mut Stack<'_>) -> Result<i32, Failure> {
    if push_real(stack, 1) {
        stack.push_bytes(b"Attempt to modify a readonly table");
        return Err(Failure::Value);
    }
    Ok(0)
}

fn refuse_write(_: &mut Stack<'_>) -> Result<i32, Failure> {
    Err(Failure::message("Attempt to modify a readonly table"))
}

fn refuse_unknown(stack: &mut Stack<'_>) -> Result<i32, Failure> {
    stack.coerce_to_string(2);
    let name = stack.bytes(2).unwrap_or(b"(null)");
    let name = String::from_utf8_lossy(name);
    let text = format!("Script attempted to access nonexistent global variable '{name}'");
    Err(Failure::message(text))
}
