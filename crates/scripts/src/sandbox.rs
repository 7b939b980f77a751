//! The global variables of scripts.

use crate::failure::FunctionFailure;
use crate::lua::{LuaStack, NativeFunction};
use crate::protection::{RegistryItem, protect, set_functions};
use crate::{
    base_library, bit_library, json_library, math_library, msgpack_library, redis_library,
    string_library, struct_library,
};

/// Makes the sandbox: scripts that are loaded later see it. Leaves the real table of global variables
/// on the stack, for `KEYS` and `ARGV`.
pub(crate) fn open(stack: &mut LuaStack<'_>) {
    for item in [
        RegistryItem::RealTables,
        RegistryItem::VisibleMetatables,
        RegistryItem::Functions,
        RegistryItem::CachedFunctions,
    ] {
        stack.push_table(0, 0);
        stack.register(item);
    }
    stack.push_table(0, 0);
    stack.push_table(0, 1);
    stack.push_bytes(b"k");
    stack.raw_set_field(-2, "__mode");
    stack.set_metatable(-2);
    stack.register(RegistryItem::Threads);

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
    type PushLibrary = fn(&mut LuaStack<'_>);
    let libraries: [(&str, PushLibrary); 5] = [
        ("redis", redis_library::push_for_scripts),
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
    open_functions(stack, globals);
    protect_globals(stack, globals);
    stack.register(RegistryItem::ScriptEnvironment);
    stack.remove(lua);
}

fn fill_string(stack: &mut LuaStack<'_>, lua: i32) {
    stack.raw_get_field(lua, "string");
    let string = stack.top();
    set_functions(stack, string, &string_library::FUNCTIONS);
    stack.pop(1);
    let source = b"local table, key = ... return table[key]";
    assert!(stack.load(source, c"=gsub"), "a chunk that compiles");
    stack.register(RegistryItem::Index);
}

fn push_functions(stack: &mut LuaStack<'_>, functions: &[(&str, NativeFunction)]) {
    stack.push_table(0, functions.len());
    let table = stack.top();
    set_functions(stack, table, functions);
}

fn fill_math(stack: &mut LuaStack<'_>, lua: i32) {
    stack.raw_get_field(lua, "math");
    let math = stack.top();
    set_functions(stack, math, &math_library::FUNCTIONS);
    stack.pop(1);
}

/// Lets the methods of strings be those of the protected table.
fn protect_strings(stack: &mut LuaStack<'_>, globals: i32) {
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

/// Pushes a protected table of global variables, which scripts see in place of the real one.
fn protect_globals(stack: &mut LuaStack<'_>, globals: i32) {
    push_unknown_metatable(stack);
    stack.push_value(-1);
    stack.set_metatable(globals);
    protect(stack);
    let metatable = stack.top();
    stack.push_value(globals);
    protect(stack);
    stack.push_registered(RegistryItem::VisibleMetatables);
    stack.push_value(-2);
    stack.push_value(metatable);
    stack.raw_set(-3);
    stack.pop(1);
    stack.remove(metatable);
    stack.push_value(-1);
    stack.raw_set_field(globals, "_G");
}

/// Pushes a metatable that refuses reads of what there is not.
fn push_unknown_metatable(stack: &mut LuaStack<'_>) {
    stack.push_table(0, 1);
    stack.push_function(refuse_unknown);
    stack.raw_set_field(-2, "__index");
}

/// Makes the global variables of functions of libraries, from those of scripts.
fn open_functions(stack: &mut LuaStack<'_>, scripts: i32) {
    stack.push_table(0, 64);
    let globals = stack.top();
    stack.push_nil();
    while stack.next(scripts) {
        stack.push_value(-2);
        stack.insert(-2);
        stack.raw_set(globals);
    }
    redis_library::push_for_functions(stack);
    protect(stack);
    stack.raw_set_field(globals, "redis");
    protect_globals(stack, globals);
    stack.push_metatable(-1);
    stack.register(RegistryItem::FunctionMetatable);
    stack.register(RegistryItem::FunctionEnvironment);
    stack.register(RegistryItem::FunctionGlobals);

    push_unknown_metatable(stack);
    let unknown = stack.top();
    stack.push_table(0, 1);
    redis_library::push_for_loading(stack);
    stack.push_value(unknown);
    stack.set_metatable(-2);
    protect(stack);
    stack.raw_set_field(-2, "redis");
    stack.push_value(unknown);
    stack.set_metatable(-2);
    stack.register(RegistryItem::LoadGlobals);
    stack.pop(1);
}

fn refuse_unknown(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    stack.coerce_to_string(2);
    let name = stack.bytes(2).unwrap_or(b"(null)");
    let text = b"Script attempted to access nonexistent global variable '";
    Err(FunctionFailure::message([text, name, b"'"].concat()))
}
