//! The table `cjson`.

pub(crate) mod decode;
pub(crate) mod encode;
mod token;

use crate::failure::FunctionFailure;
use crate::json_settings::{InvalidNumbers, JsonSettings};
use crate::lua::{Kind, LuaStack, NativeFunction};
use crate::number::truncate;
use crate::protection::set_functions;

const FUNCTIONS: [(&str, NativeFunction); 10] = [
    ("encode", encode::encode),
    ("decode", decode::decode),
    ("encode_sparse_array", encode_sparse_array),
    ("encode_max_depth", encode_max_depth),
    ("decode_max_depth", decode_max_depth),
    ("encode_number_precision", encode_number_precision),
    ("encode_keep_buffer", encode_keep_buffer),
    ("encode_invalid_numbers", encode_invalid_numbers),
    ("decode_invalid_numbers", decode_invalid_numbers),
    ("new", new),
];

const INVALID_NUMBERS: [(&str, InvalidNumbers); 3] = [
    ("off", InvalidNumbers::Refused),
    ("on", InvalidNumbers::Accepted),
    ("null", InvalidNumbers::Null),
];

/// Pushes the table.
pub(crate) fn push_library(stack: &mut LuaStack<'_>) {
    stack.push_table(0, FUNCTIONS.len() + 3);
    let table = stack.top();
    set_functions(stack, table, &FUNCTIONS);
    stack.push_null();
    stack.raw_set_field(table, "null");
    for (name, value) in [("_NAME", "cjson"), ("_VERSION", "2.1.0")] {
        stack.push_bytes(value.as_bytes());
        stack.raw_set_field(table, name);
    }
}

/// `cjson.new`: the new table has the settings of the run, too.
fn new(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    push_library(stack);
    Ok(1)
}

/// Checks the number of arguments, of which all may be missing.
fn check_arguments(stack: &LuaStack<'_>, most: i32) -> Result<(), FunctionFailure> {
    if stack.top() > most {
        let text = "found too many arguments".into();
        return Err(FunctionFailure::Argument(most + 1, text));
    }
    Ok(())
}

fn is_missing(stack: &LuaStack<'_>, index: i32) -> bool {
    matches!(stack.kind(index), Kind::None | Kind::Nil)
}

/// Sets a setting to an argument, if there is one.
fn set_integer(
    stack: &LuaStack<'_>,
    index: i32,
    setting: &mut i32,
    (least, most): (i32, i32),
) -> Result<(), FunctionFailure> {
    if is_missing(stack, index) {
        return Ok(());
    }
    let value = truncate(stack.check_number(index)?) as i32;
    if (least..=most).contains(&value) {
        *setting = value;
        Ok(())
    } else {
        let text = format!("expected integer between {least} and {most}");
        Err(FunctionFailure::Argument(1, text.into()))
    }
}

/// Sets a setting to the option that an argument names, if there is one.
fn set_option<T: Copy>(
    stack: &mut LuaStack<'_>,
    index: i32,
    setting: &mut T,
    options: &[(&str, T)],
) -> Result<(), FunctionFailure> {
    if is_missing(stack, index) {
        return Ok(());
    }
    if stack.kind(index) == Kind::Boolean {
        *setting = options[usize::from(stack.boolean(index))].1;
        return Ok(());
    }
    stack.check_string(index)?;
    let name = stack.bytes(index).unwrap_or_default();
    match options.iter().find(|(option, _)| option.as_bytes() == name) {
        Some(&(_, value)) => *setting = value,
        None => {
            let text = [b"invalid option '", name, b"'"].concat();
            return Err(FunctionFailure::Argument(index, text));
        }
    }
    Ok(())
}

/// Changes the settings of the run, unless the arguments are wrong.
fn change<T>(
    stack: &mut LuaStack<'_>,
    change: impl FnOnce(&mut LuaStack<'_>, &mut JsonSettings) -> Result<T, FunctionFailure>,
) -> Result<T, FunctionFailure> {
    let mut settings = stack.context().json.get();
    let result = change(stack, &mut settings)?;
    stack.context().json.set(settings);
    Ok(result)
}

const SWITCH: [(&str, bool); 2] = [("off", false), ("on", true)];

fn encode_sparse_array(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    check_arguments(stack, 3)?;
    let settings = change(stack, |stack, settings| {
        set_option(stack, 1, &mut settings.sparse_as_object, &SWITCH)?;
        set_integer(stack, 2, &mut settings.sparse_ratio, (0, i32::MAX))?;
        set_integer(stack, 3, &mut settings.sparse_safe, (0, i32::MAX))?;
        Ok(*settings)
    })?;
    stack.push_boolean(settings.sparse_as_object);
    stack.push_number(f64::from(settings.sparse_ratio));
    stack.push_number(f64::from(settings.sparse_safe));
    Ok(3)
}

/// Sets and returns a setting that is a number.
fn integer_setting(
    stack: &mut LuaStack<'_>,
    setting: fn(&mut JsonSettings) -> &mut i32,
    most: i32,
) -> Result<i32, FunctionFailure> {
    check_arguments(stack, 1)?;
    let value = change(stack, |stack, settings| {
        set_integer(stack, 1, setting(settings), (1, most))?;
        Ok(*setting(settings))
    })?;
    stack.push_number(f64::from(value));
    Ok(1)
}

fn encode_max_depth(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    integer_setting(stack, |settings| &mut settings.encode_max_depth, i32::MAX)
}

fn decode_max_depth(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    integer_setting(stack, |settings| &mut settings.decode_max_depth, i32::MAX)
}

fn encode_number_precision(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    integer_setting(stack, |settings| &mut settings.precision, 14)
}

/// `cjson.encode_keep_buffer`, which has no effect.
fn encode_keep_buffer(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    check_arguments(stack, 1)?;
    let value = change(stack, |stack, settings| {
        set_option(stack, 1, &mut settings.keep_buffer, &SWITCH)?;
        Ok(settings.keep_buffer)
    })?;
    stack.push_boolean(value);
    Ok(1)
}

/// Sets and returns a setting for invalid numbers.
fn invalid_numbers(
    stack: &mut LuaStack<'_>,
    setting: fn(&mut JsonSettings) -> &mut InvalidNumbers,
    options: usize,
) -> Result<i32, FunctionFailure> {
    check_arguments(stack, 1)?;
    let value = change(stack, |stack, settings| {
        let setting = setting(settings);
        set_option(stack, 1, setting, &INVALID_NUMBERS[..options])?;
        Ok(*setting)
    })?;
    match value {
        InvalidNumbers::Null => stack.push_bytes(b"null"),
        _ => stack.push_boolean(value == InvalidNumbers::Accepted),
    }
    Ok(1)
}

fn encode_invalid_numbers(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    invalid_numbers(stack, |settings| &mut settings.encode_invalid, 3)
}

fn decode_invalid_numbers(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    invalid_numbers(stack, |settings| &mut settings.decode_invalid, 2)
}
