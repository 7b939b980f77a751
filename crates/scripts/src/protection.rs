//! Tables that scripts cannot change.
//!
//! A protected table is an empty one in the place of the real one: its metatable leads reads to the
//! real table, and refuses writes. The functions of Lua's libraries that ignore metatables are
//! replaced or guarded, so that a script never gets a real table and never writes to an empty one.

use crate::failure::FunctionFailure;
use crate::lua::stack::REGISTRY;
use crate::lua::{Kind, LuaStack, NativeFunction};

/// Items of the registry.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum RegistryItem {
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
    /// The global variables of scripts, protected.
    ScriptEnvironment,
    /// The global variables of functions, protected.
    FunctionEnvironment,
    /// The metatable of the former, which says which global variables there are.
    FunctionMetatable,
    /// The real table of the global variables of functions.
    FunctionGlobals,
    /// The same, while the code of a library runs.
    LoadGlobals,
    /// The function of a library that will be called.
    Callback,
    /// Functions of libraries that are called again.
    CachedFunctions,
    /// A function of Lua that resumes a thread.
    Wrapper,
    /// A function that returns the value of a key of a table.
    Index,
}

impl LuaStack<'_> {
    /// Pushes an item of the registry.
    pub(crate) fn push_registered(&mut self, item: RegistryItem) {
        self.raw_get_item(REGISTRY, item as i32);
    }

    /// Makes the value on the top an item of the registry, and drops it.
    pub(crate) fn register(&mut self, item: RegistryItem) {
        self.raw_set_item(REGISTRY, item as i32);
    }
}

/// Sets functions of a table.
pub(crate) fn set_functions(
    stack: &mut LuaStack<'_>,
    table: i32,
    functions: &[(&str, NativeFunction)],
) {
    for &(name, function) in functions {
        stack.push_function(function);
        stack.raw_set_field(table, name);
    }
}

/// Replaces the table on the top by one that scripts can only read.
pub(crate) fn protect(stack: &mut LuaStack<'_>) {
    let real = stack.top();
    stack.push_table(0, 0);
    stack.push_table(0, 2);
    stack.push_value(real);
    stack.raw_set_field(-2, "__index");
    stack.push_function(refuse_write);
    stack.raw_set_field(-2, "__newindex");
    stack.set_metatable(-2);
    stack.push_registered(RegistryItem::RealTables);
    stack.push_value(-2);
    stack.push_value(real);
    stack.raw_set(-3);
    stack.pop(1);
    stack.remove(real);
}

/// Pushes the real table of a protected one. Returns `false`, and pushes nothing, for other values.
pub(crate) fn push_real(stack: &mut LuaStack<'_>, index: i32) -> bool {
    if stack.kind(index) != Kind::Table || !stack.push_metatable(index) {
        return false;
    }
    stack.push_registered(RegistryItem::RealTables);
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
pub(crate) fn read_real(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if push_real(stack, 1) {
        stack.replace(1);
    }
    Ok(0)
}

/// Refuses a function of Lua that would change its first argument, as `changes` says.
pub(crate) fn refuse_if(
    stack: &mut LuaStack<'_>,
    changes: fn(&LuaStack<'_>) -> bool,
) -> Result<i32, FunctionFailure> {
    if changes(stack) && push_real(stack, 1) {
        stack.push_bytes(b"Attempt to modify a readonly table");
        return Err(FunctionFailure::Value);
    }
    Ok(0)
}

fn refuse_write(_: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    Err(FunctionFailure::message(
        "Attempt to modify a readonly table",
    ))
}
