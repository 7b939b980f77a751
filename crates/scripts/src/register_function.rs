//! `redis.register_function`, which the code of a library calls.

use crate::error_reply::fail;
use crate::failure::FunctionFailure;
use crate::lua::{Kind, LuaStack};
use crate::protection::RegistryItem;
use crate::script::ScriptFlags;

/// The arguments of `redis.register_function`.
#[derive(Default)]
struct Arguments {
    name: Option<Vec<u8>>,
    description: Option<Vec<u8>>,
    flags: ScriptFlags,
    /// The index of the function.
    callback: Option<i32>,
}

/// `redis.register_function`
pub(crate) fn register_function(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let context = stack.context();
    if context.registration.borrow().is_none() {
        let text = "ERR redis.register_function can only be called on FUNCTION LOAD command";
        return Err(fail(stack, text));
    }
    let result = match stack.top() {
        1 => named_arguments(stack),
        2 => two_arguments(stack),
        _ => Err("wrong number of arguments to redis.register_function"),
    };
    let arguments = result.map_err(|text| fail(stack, &format!("ERR {text}")))?;
    let added = {
        let mut registration = context.registration.borrow_mut();
        let registration = registration.as_mut().expect("a library that is loaded");
        let name = arguments.name.unwrap_or_default();
        registration.add(&name, arguments.description, arguments.flags)
    };
    if added.map_err(|text| fail(stack, text))? {
        stack.push_value(arguments.callback.expect("a checked callback"));
        stack.register(RegistryItem::Callback);
    }
    context.check_memory(0)?;
    Ok(0)
}

fn two_arguments(stack: &mut LuaStack<'_>) -> Result<Arguments, &'static str> {
    if !stack.coerce_to_string(1) {
        return Err("first argument to redis.register_function must be a string");
    }
    if stack.kind(2) != Kind::Function {
        return Err("second argument to redis.register_function must be a function");
    }
    Ok(Arguments {
        name: stack.bytes(1).map(<[u8]>::to_vec),
        callback: Some(2),
        ..Arguments::default()
    })
}

fn named_arguments(stack: &mut LuaStack<'_>) -> Result<Arguments, &'static str> {
    if stack.kind(1) != Kind::Table {
        return Err(
            "calling redis.register_function with a single argument is only applicable to Lua \
             table (representing named arguments).",
        );
    }
    let mut arguments = Arguments::default();
    // The function stays below the pairs.
    stack.push_nil();
    stack.push_nil();
    while stack.next(1) {
        named_argument(stack, &mut arguments)?;
        stack.pop(1);
    }
    if arguments.name.is_none() {
        return Err("redis.register_function must get a function name argument");
    }
    if arguments.callback.is_none() {
        return Err("redis.register_function must get a callback argument");
    }
    Ok(arguments)
}

/// Takes the argument whose key and value are on the top.
fn named_argument(stack: &mut LuaStack<'_>, arguments: &mut Arguments) -> Result<(), &'static str> {
    let key = stack.bytes(-2).unwrap_or_default().to_vec();
    match key.as_slice() {
        b"function_name" => {
            arguments.name = Some(text(stack).ok_or(
                "function_name argument given to redis.register_function must be a string",
            )?);
        }
        b"description" => {
            arguments.description =
                Some(text(stack).ok_or(
                    "description argument given to redis.register_function must be a string",
                )?);
        }
        b"callback" => {
            if stack.kind(-1) != Kind::Function {
                return Err(
                    "callback argument given to redis.register_function must be a function",
                );
            }
            stack.push_value(-1);
            stack.replace(2);
            arguments.callback = Some(2);
        }
        b"flags" => {
            if stack.kind(-1) != Kind::Table {
                return Err(
                    "flags argument to redis.register_function must be a table representing \
                     function flags",
                );
            }
            arguments.flags = flags(stack)?;
        }
        _ => return Err("unknown argument given to redis.register_function"),
    }
    Ok(())
}

/// Returns the string or number on the top.
fn text(stack: &mut LuaStack<'_>) -> Option<Vec<u8>> {
    stack
        .coerce_to_string(-1)
        .then(|| stack.bytes(-1).unwrap_or_default().to_vec())
}

/// Returns the flags whose names are the items of the table on the top.
fn flags(stack: &mut LuaStack<'_>) -> Result<ScriptFlags, &'static str> {
    let mut flags = ScriptFlags::default();
    for item in 1.. {
        let kind = stack.raw_get_item(-1, item);
        let is_known = flags.set(stack.bytes(-1).unwrap_or_default());
        stack.pop(1);
        match kind {
            Kind::Nil => break,
            _ if !is_known => return Err("unknown flag given"),
            _ => {}
        }
    }
    Ok(flags)
}
