//! The table `cjson`.

pub(crate) mod decode;
pub(crate) mod encode;
mod token;

use crate::lua::{Failure, Function, Kind, Stack};
use crate::sandbox::set_functions;

const FUNCTIONS: [(&str, Function); 10] = [
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

/// What becomes of numbers that JSON has no text for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InvalidNumbers {
    Refused,
    Accepted,
    Null,
}

const INVALID_NUMBERS: [(&str, InvalidNumbers); 3] = [
    ("off", InvalidNumbers::Refused),
    ("on", InvalidNumbers::Accepted),
    ("null", InvalidNumbers::Null),
];

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonSettings {
    /// A sparse list becomes an object, and not an error.
    sparse_as_object: bool,
    /// A list is sparse if its largest index exceeds its length times this. 0: no list is.
    sparse_ratio: i32,
    /// A list whose largest index is not larger than this is never sparse.
    sparse_safe: i32,
    encode_max_depth: i32,
    decode_max_depth: i32,
    /// The significant digits of numbers.
    precision: i32,
    keep_buffer: bool,
    encode_invalid: InvalidNumbers,
    decode_invalid: InvalidNumbers,
}

impl Default for JsonSettings {
    fn default() -> JsonSettings {
        JsonSettings {
            sparse_as_object: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_max_depth: 1000,
            decode_max_depth: 1000,
            precision: 14,
            keep_buffer: true,
            encode_invalid: InvalidNumbers::Refused,
            decode_invalid: InvalidNumbers::Accepted,
        }
    }
}

/// Pushes the table.
pub(crate) fn push_library(stack: &mut Stack<'_>) {
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
fn new(stack: &mut Stack<'_>) -> Result<i32, Failure> {
    push_library(stack);
    Ok(1)
}

/// Checks the number of arguments, of which all may be missing.
fn check_arguments(stack: &Stack<'_>, most: i32) -> Result<(), Failure> {
    if stack.top() > most {
        let text = "found too many arguments".into();
        return Err(Failure::Argument(most + 1, text));
    }
    Ok(())
}

fn is_missing(stack: &Stack<'_>, index: i32) -> bool {
    matches!(stack.kind(index), Kind::None | Kind::Nil)
}

/// Sets a setting to an argument, if there is one.
fn set_integer(
    stack: &Stack<'_>,
    index: i32,
    setting: &mut i32,
    (least, most): (i32, i32),
) -> Result<(), Failure> {
    if is_missing(stack, index) {
        return Ok(());
    }
    let value = stack.check_number(index)? as i64 as i32;
    if (least..=most).contains(&value) {
        *setting = value;
        Ok(())
    } else {
        let text = format!("expected integer between {least} and {most}");
        Err(Failure::Argument(1, text.into()))
    }
}

/// Sets a setting to the option that an argument names, if there is one.
fn set_option<T: Copy>(
    stack: &mut Stack<'_>,
    index: i32,
    setting: &mut T,
    options: &[(&str, T)],
) -> Result<(), Failure> {
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
            let text = format!("invalid option '{}'", String::from_utf8_lossy(name));
            return Err(Failure::Argument(index, text.into()));
        }
    }
    Ok(())
}

/// Changes the settings of the run, unless the arguments are wrong.
fn change<T>(
    stack: &mut Stack<'_>,
    change: impl FnOnce(&mut Stack<'_>, &mut JsonSettings) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut settings = stack.host().json.get();
    let result = change(stack, &mut settings)?;
    stack.host().json.set(settings);
    Ok(result)
}

const SWITCH: [(&str, bool); 2] = [("off", false), ("on", true)];

fn encode_sparse_array(stack: &mut Stack<'_>) -> Result<i32, Failure> {
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
    stack: &mut Stack<'_>,
    setting: fn(&mut JsonSettings) -> &mut i32,
    most: i32,
) -> Result<i32, Failure> {
    check_arguments(stack, 1)?;
    let value = change(stack, |stack, settings| {
        set_integer(stack, 1, setting(settings), (1, most))?;
        Ok(*setting(settings))
    })?;
    stack.push_number(f64::from(value));
    Ok(1)
}

fn encode_max_depth(stack: &mut Stack<'_>) -> Result<i32, Failure> {
    integer_setting(stack, |settings| &mut settings.encode_max_depth, i32::MAX)
}

fn decode_max_depth(stack: &mut Stack<'_>) -> Result<i32, Failure> {
    integer_setting(stack, |settings| &mut settings.decode_max_depth, i32::MAX)
}

fn encode_number_precision(stack: &mut Stack<'_>) -> Result<i32, Failure> {
    integer_setting(stack, |settings| &mut settings.precision, 14)
}

/// `cjson.encode_keep_buffer`, which has no effect.
fn encode_keep_buffer(stack: &mut Stack<'_>) -> Result<i32, Failure> {
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
    stack: &mut Stack<'_>,
    setting: fn(&mut JsonSettings) -> &mut InvalidNumbers,
    options: usize,
) -> Result<i32, Failure> {
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

fn encode_invalid_numbers(stack: &mut Stack<'_>) -> Result<i32, Failure> {
    invalid_numbers(stack, |settings| &mut settings.encode_invalid, 3)
}

fn decode_invalid_numbers(stack: &mut Stack<'_>) -> Result<i32, Failure> {
    invalid_numbers(stack, |settings| &mut settings.decode_invalid, 2)
}
