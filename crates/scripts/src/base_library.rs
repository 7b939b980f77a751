//! The global functions of Lua, and those of `coroutine` and `table`, as scripts get them.

use crate::failure::{CallStatus, FunctionFailure};
use crate::lua::{Kind, LuaStack, NativeFunction};
use crate::number::truncate;
use crate::protection::{RegistryItem, push_real, read_real, refuse_if, set_functions};

/// Values that scripts get as Lua has them.
const UNCHANGED: [&str; 17] = [
    "_VERSION",
    "assert",
    "error",
    "gcinfo",
    "ipairs",
    "load",
    "loadstring",
    "next",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "tonumber",
    "tostring",
    "type",
    "unpack",
];

const FUNCTIONS: [(&str, NativeFunction); 5] = [
    ("collectgarbage", collect_garbage),
    ("getmetatable", get_metatable),
    ("pairs", pairs),
    ("pcall", protected_call),
    ("xpcall", handled_call),
];

/// Fills the table of global variables from that of Lua, and adapts the libraries there.
pub(crate) fn fill(stack: &mut LuaStack<'_>, lua: i32, globals: i32) {
    for (name, check) in [
        ("next", read_real as NativeFunction),
        ("rawget", read_real),
        ("rawset", refuse_set),
        ("setmetatable", refuse_metatable),
        ("load", read_texts),
        ("loadstring", read_text),
        ("unpack", refuse_range),
    ] {
        guard_field(stack, lua, name, check);
    }
    for name in UNCHANGED {
        stack.raw_get_field(lua, name);
        stack.raw_set_field(globals, name);
    }
    set_functions(stack, globals, &FUNCTIONS);
    stack.raw_get_field(lua, "next");
    stack.register(RegistryItem::Next);

    stack.raw_get_field(lua, "table");
    let table = stack.top();
    guard_field(stack, table, "insert", refuse_insert);
    guard_field(stack, table, "remove", refuse_remove);
    guard_field(stack, table, "foreach", read_real);
    stack.pop(1);
    fill_coroutine(stack, lua);
}

fn guard_field(stack: &mut LuaStack<'_>, table: i32, name: &str, check: NativeFunction) {
    stack.raw_get_field(table, name);
    stack.guard(check);
    stack.raw_set_field(table, name);
}

/// Guards `rawset`. Lua reports wrong arguments first.
fn refuse_set(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    refuse_if(stack, |stack| stack.top() >= 3)
}

/// Guards `setmetatable`.
fn refuse_metatable(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    refuse_if(stack, |stack| {
        matches!(stack.kind(2), Kind::Nil | Kind::Table)
    })
}

/// Guards `table.insert`.
fn refuse_insert(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    refuse_holes(stack)?;
    refuse_if(stack, |stack| match stack.top() {
        3 => stack.number(2).is_some(),
        count => count == 2,
    })
}

/// Guards `table.remove`.
fn refuse_remove(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    refuse_holes(stack)?;
    Ok(0)
}

/// Guards `unpack`: Lua computes the number of results in 32 bits, and would write past the end of its stack.
fn refuse_range(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.kind(1) != Kind::Table {
        return Ok(0);
    }
    let mut bounds = [1, i32::try_from(stack.raw_len(1)).unwrap_or(i32::MAX)];
    for (bound, index) in bounds.iter_mut().zip(2..) {
        if let Some(number) = stack.number(index) {
            *bound = truncate(number) as i32;
            stack.push_number(f64::from(*bound));
            stack.replace(index);
        }
    }
    let [first, last] = bounds.map(i64::from);
    if last - first >= i64::from(i32::MAX) {
        return Err(FunctionFailure::message("too many results to unpack"));
    }
    Ok(0)
}

/// Refuses a table with fewer items than its length says: thirty items can have a length of 2^29, and
/// shifting so many would take minutes.
fn refuse_holes(stack: &LuaStack<'_>) -> Result<(), FunctionFailure> {
    const ITEM_BYTES: usize = 16;
    let used = stack.context().heap.used();
    if stack.kind(1) == Kind::Table && stack.raw_len(1).saturating_mul(ITEM_BYTES) > used {
        return Err(FunctionFailure::message("too many holes in the table"));
    }
    Ok(())
}

fn fill_coroutine(stack: &mut LuaStack<'_>, lua: i32) {
    stack.raw_get_field(lua, "coroutine");
    let coroutine = stack.top();
    stack.raw_get_field(coroutine, "wrap");
    assert!(stack.load(b"", c"wrapped"), "an empty chunk");
    assert_eq!(stack.protected_call(1, Some(1), 0), CallStatus::Returned);
    stack.register(RegistryItem::Wrapper);
    let functions: [(&str, NativeFunction); 2] = [("create", create_thread), ("wrap", wrap_thread)];
    set_functions(stack, coroutine, &functions);
    stack.pop(1);
}

/// `coroutine.create`: threads are registered, so that a killed script stops in all of them.
fn create_thread(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.kind(1) != Kind::Function || stack.is_native(1) {
        return Err(FunctionFailure::Argument(1, "Lua function expected".into()));
    }
    stack.set_top(1);
    stack.push_thread();
    stack.push_registered(RegistryItem::Threads);
    stack.push_value(1);
    stack.push_boolean(true);
    stack.raw_set(-3);
    stack.pop(1);
    Ok(1)
}

/// `coroutine.wrap`
fn wrap_thread(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    create_thread(stack)?;
    stack.push_registered(RegistryItem::Wrapper);
    stack.insert(1);
    stack.wrap_thread(1);
    Ok(1)
}

/// `collectgarbage`: settings of the collector would outlive the script, and are not changed.
fn collect_garbage(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let is_missing =
        |stack: &LuaStack<'_>, index| matches!(stack.kind(index), Kind::None | Kind::Nil);
    if !is_missing(stack, 1) {
        stack.check_string(1)?;
    }
    let option = stack.bytes(1).unwrap_or(b"collect");
    let number = match option {
        b"count" => stack.context().heap.used() as f64 / 1024.0,
        b"collect" | b"step" | b"stop" | b"restart" => 0.0,
        b"setpause" | b"setstepmul" => 200.0,
        _ => {
            let text = [b"invalid option '", option, b"'"].concat();
            return Err(FunctionFailure::Argument(1, text));
        }
    };
    let (is_collect, is_step) = (option == b"collect", option == b"step");
    if !is_missing(stack, 2) {
        stack.check_number(2)?;
    }
    if is_collect {
        stack.collect_garbage();
    }
    if is_step {
        stack.push_boolean(false);
    } else {
        stack.push_number(number);
    }
    Ok(1)
}

/// `getmetatable`
fn get_metatable(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.kind(1) == Kind::None {
        return Err(FunctionFailure::Argument(1, "value expected".into()));
    }
    if push_real(stack, 1) {
        stack.push_registered(RegistryItem::VisibleMetatables);
        stack.push_value(1);
        stack.raw_get(-2);
    } else if !stack.push_metatable(1) {
        stack.push_nil();
    } else if stack.raw_get_field(-1, "__metatable") == Kind::Nil {
        stack.pop(1);
    }
    Ok(1)
}

/// `pairs`
fn pairs(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    stack.check_table(1)?;
    stack.push_registered(RegistryItem::Next);
    stack.push_value(1);
    stack.push_nil();
    Ok(3)
}

/// `pcall`: an error reply is caught as its text.
fn protected_call(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.top() == 0 {
        // Redis calls this value, which the message says.
        stack.push_boolean(true);
    }
    let mut status = stack.protected_call(stack.top() - 1, None, 0);
    if !has_room(stack) {
        status = CallStatus::Failed;
    }
    let is_caught = status != CallStatus::Returned;
    if is_caught && stack.kind(-1) == Kind::Table {
        if matches!(stack.raw_get_field(-1, "err"), Kind::String | Kind::Number) {
            stack.replace(-2);
        } else {
            stack.pop(1);
        }
    }
    stack.push_boolean(!is_caught);
    stack.insert(1);
    Ok(stack.top())
}

/// `xpcall`
fn handled_call(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.kind(2) == Kind::None {
        return Err(FunctionFailure::Argument(2, "value expected".into()));
    }
    stack.set_top(2);
    stack.push_closure(handle);
    stack.insert(1);
    let status = stack.protected_call(0, None, 1);
    stack.remove(1);
    let is_returned = has_room(stack) && status == CallStatus::Returned;
    stack.push_boolean(is_returned);
    stack.insert(1);
    Ok(stack.top())
}

/// Returns `true` if there is room above the results of a call, which are replaced by a message
/// otherwise.
fn has_room(stack: &mut LuaStack<'_>) -> bool {
    let has_room = stack.reserve(4);
    if !has_room {
        stack.set_top(0);
        stack.push_bytes(b"stack overflow");
    }
    has_room
}

/// Calls the handler of `xpcall`, but for the error that ends a killed script: Lua does not interrupt
/// the handler of an error that is raised by an interruption.
fn handle(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.context().is_killed() {
        return Ok(1);
    }
    stack.push_upvalue();
    stack.insert(1);
    if stack.protected_call(1, Some(1), 0) != CallStatus::Returned {
        stack.push_bytes(b"error in error handling");
    }
    Ok(1)
}

/// Lets `loadstring` take compiled code for text, which does not compile.
fn read_text(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.kind(1) == Kind::String && is_code(stack, 1) {
        if matches!(stack.kind(2), Kind::None | Kind::Nil) {
            // The text is also the name of the chunk.
            stack.set_top(1);
            stack.push_value(1);
        }
        push_spaced(stack, 1);
        stack.replace(1);
    }
    Ok(0)
}

/// Lets `load` take compiled code for text: replaces the function that returns it.
fn read_texts(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.kind(1) == Kind::Function {
        stack.push_value(1);
        stack.push_closure(next_text);
        stack.replace(1);
    }
    Ok(0)
}

/// Returns the next part of a text.
fn next_text(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    stack.set_top(0);
    stack.push_upvalue();
    if stack.protected_call(0, Some(1), 0) != CallStatus::Returned {
        return Err(FunctionFailure::Value);
    }
    if stack.kind(1) == Kind::String && is_code(stack, 1) {
        push_spaced(stack, 1);
    }
    Ok(1)
}

/// Returns `true` if a string begins as compiled code does.
fn is_code(stack: &LuaStack<'_>, index: i32) -> bool {
    stack.bytes(index).unwrap_or_default().first() == Some(&0x1b)
}

/// Pushes a string behind a blank.
fn push_spaced(stack: &mut LuaStack<'_>, index: i32) {
    let text = [b" ", stack.bytes(index).unwrap_or_default()].concat();
    stack.push_bytes(&text);
}
