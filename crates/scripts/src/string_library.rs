//! The functions of `string` that Lua's library lets run without a bound: those with patterns, and
//! `rep`.

use crate::failure::{CallStatus, FunctionFailure};
use crate::lua::{Kind, LuaStack, NativeFunction};
use crate::number::truncate;
use crate::pattern::{Capture, Captures, Matcher};
use crate::protection::RegistryItem;
use crate::script_context::Pace;

/// The functions of the table.
pub(crate) const FUNCTIONS: [(&str, NativeFunction); 6] = [
    ("find", find),
    ("match", find_match),
    ("gmatch", global_match),
    ("gfind", global_match),
    ("gsub", substitute),
    ("rep", repeat),
];

/// `string.rep`
fn repeat(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    stack.check_string(1)?;
    let count = usize::try_from(truncate(stack.check_number(2)?) as i32).unwrap_or(0);
    let text = stack.bytes(1).unwrap_or_default();
    let len = text.len().saturating_mul(count);
    // Once here, and once as a string of Lua.
    stack.context().check_memory(len)?;
    let text = text.repeat(count);
    stack.push_bytes(&text);
    Ok(1)
}

/// `string.find`
fn find(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    search(stack, true)
}

/// `string.match`
fn find_match(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    search(stack, false)
}

/// Returns an optional argument as an integer.
fn optional_integer(
    stack: &LuaStack<'_>,
    index: i32,
    default: i64,
) -> Result<i64, FunctionFailure> {
    match stack.kind(index) {
        Kind::None | Kind::Nil => Ok(default),
        _ => Ok(truncate(stack.check_number(index)?)),
    }
}

/// Searches for a pattern, and pushes the place of a match (`with_place`) and its captures.
fn search(stack: &mut LuaStack<'_>, with_place: bool) -> Result<i32, FunctionFailure> {
    stack.check_string(1)?;
    stack.check_string(2)?;
    let start = optional_integer(stack, 3, 1)?;
    let is_plain = stack.kind(4) != Kind::None && stack.boolean(4);
    stack.set_top(2);
    let context = stack.context();
    let text = stack.bytes(1).unwrap_or_default();
    let pattern = stack.bytes(2).unwrap_or_default();
    let start = start_index(start, text.len());
    if with_place && (is_plain || !has_specials(pattern)) {
        let found = memchr::memmem::find(&text[start..], pattern);
        let place = found.map(|at| (start + at, start + at + pattern.len()));
        return Ok(push_place(stack, place));
    }
    let mut captures = Captures::default();
    let mut pace = Pace::default();
    let anchor = usize::from(pattern.first() == Some(&b'^'));
    let last = if anchor == 1 { start } else { text.len() };
    let mut matcher = Matcher::new(text, pattern, &mut captures, context, &mut pace);
    let mut found = None;
    for at in start..=last {
        if let Some(end) = matcher.matches(at, anchor)? {
            found = Some((at, end));
            break;
        }
    }
    let Some(place) = found else {
        stack.push_nil();
        return Ok(1);
    };
    if with_place {
        let pushed = push_place(stack, found);
        return Ok(pushed + push_captures(stack, &captures, place, false)?);
    }
    push_captures(stack, &captures, place, true)
}

/// Pushes the first and the last index of a place, or `nil`. Returns the number of values.
fn push_place(stack: &mut LuaStack<'_>, place: Option<(usize, usize)>) -> i32 {
    let Some((start, end)) = place else {
        stack.push_nil();
        return 1;
    };
    stack.push_number((start + 1) as f64);
    stack.push_number(end as f64);
    2
}

/// Returns the place of an index, which is counted from the end if it is negative.
fn start_index(index: i64, len: usize) -> usize {
    let from_start = if index < 0 {
        index.saturating_add(len as i64)
    } else {
        index - 1
    };
    usize::try_from(from_start).unwrap_or(0).min(len)
}

fn has_specials(pattern: &[u8]) -> bool {
    pattern
        .iter()
        .take_while(|&&byte| byte != 0)
        .any(|byte| b"^$*+?.([%-".contains(byte))
}

/// Pushes the captures of a match of the first argument; the match itself if there are none and
/// `or_whole`. Returns their number.
fn push_captures(
    stack: &mut LuaStack<'_>,
    captures: &Captures,
    place: (usize, usize),
    or_whole: bool,
) -> Result<i32, FunctionFailure> {
    let count = match captures.len() {
        0 => usize::from(or_whole),
        count => count,
    };
    for index in 0..count {
        push_capture(stack, captures.get(index, place)?);
    }
    Ok(count as i32)
}

fn push_capture(stack: &mut LuaStack<'_>, capture: Capture) {
    match capture {
        Capture::Text(start, end) => push_part(stack, start, end),
        Capture::Position(at) | Capture::Open(at) => stack.push_number((at + 1) as f64),
    }
}

/// Pushes a part of the first argument.
fn push_part(stack: &mut LuaStack<'_>, start: usize, end: usize) {
    let part = stack.bytes(1).unwrap_or_default()[start..end].to_vec();
    stack.push_bytes(&part);
}

/// `string.gmatch`: the text, the pattern and the place of the search are items of a table.
fn global_match(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    stack.check_string(1)?;
    stack.check_string(2)?;
    stack.push_table(3, 0);
    for item in 1..=2 {
        stack.push_value(item);
        stack.raw_set_item(-2, item);
    }
    stack.push_number(0.0);
    stack.raw_set_item(-2, 3);
    stack.push_closure(next_match);
    Ok(1)
}

/// Returns the captures of the next match.
fn next_match(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    stack.set_top(0);
    stack.push_upvalue();
    for item in 1..=3 {
        stack.raw_get_item(1, item);
    }
    let search = stack.number(4).unwrap_or_default() as usize;
    // The text becomes the first value, and the table the last one.
    stack.pop(1);
    stack.push_value(1);
    stack.remove(1);
    let context = stack.context();
    let text = stack.bytes(1).unwrap_or_default();
    let pattern = stack.bytes(2).unwrap_or_default();
    let mut captures = Captures::default();
    let mut pace = Pace::default();
    let mut matcher = Matcher::new(text, pattern, &mut captures, context, &mut pace);
    for at in search..=text.len() {
        let Some(end) = matcher.matches(at, 0)? else {
            continue;
        };
        let next = end + usize::from(end == at);
        stack.push_number(next as f64);
        stack.raw_set_item(3, 3);
        return push_captures(stack, &captures, (at, end), true);
    }
    stack.push_number((text.len() + 1) as f64);
    stack.raw_set_item(3, 3);
    Ok(0)
}

/// `string.gsub`
fn substitute(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    stack.check_string(1)?;
    stack.check_string(2)?;
    if !matches!(
        stack.kind(3),
        Kind::Number | Kind::String | Kind::Table | Kind::Function
    ) {
        let text = "string/function/table expected".into();
        return Err(FunctionFailure::Argument(3, text));
    }
    let len = stack.raw_len(1);
    let most = optional_integer(stack, 4, len as i64 + 1)?;
    stack.set_top(3);
    let context = stack.context();
    let anchor = usize::from(stack.bytes(2).unwrap_or_default().first() == Some(&b'^'));
    let mut out = Vec::new();
    let mut captures = Captures::default();
    let mut pace = Pace::default();
    let (mut at, mut count) = (0, 0);
    while count < most {
        pace.step(context, out.len())?;
        let text = stack.bytes(1).unwrap_or_default();
        let pattern = stack.bytes(2).unwrap_or_default();
        let mut matcher = Matcher::new(text, pattern, &mut captures, context, &mut pace);
        let found = matcher.matches(at, anchor)?;
        if let Some(end) = found {
            count += 1;
            push_replacement(stack, &captures, (at, end))?;
            out.extend_from_slice(stack.bytes(-1).unwrap_or_default());
            stack.pop(1);
        }
        match found {
            Some(end) if end > at => at = end,
            _ if at < len => {
                out.push(stack.bytes(1).unwrap_or_default()[at]);
                at += 1;
            }
            _ => break,
        }
        if anchor == 1 {
            break;
        }
    }
    out.extend_from_slice(&stack.bytes(1).unwrap_or_default()[at..]);
    context.check_memory(out.len())?;
    stack.push_bytes(&out);
    stack.push_number(count as f64);
    Ok(2)
}

/// Pushes the string that replaces a match.
fn push_replacement(
    stack: &mut LuaStack<'_>,
    captures: &Captures,
    place: (usize, usize),
) -> Result<(), FunctionFailure> {
    match stack.kind(3) {
        Kind::Function => {
            stack.push_value(3);
            let arguments = push_captures(stack, captures, place, true)?;
            call(stack, arguments)?;
        }
        Kind::Table if stack.push_metatable(3) => {
            stack.pop(1);
            stack.push_registered(RegistryItem::Index);
            stack.push_value(3);
            push_capture(stack, captures.get(0, place)?);
            call(stack, 2)?;
        }
        Kind::Table => {
            push_capture(stack, captures.get(0, place)?);
            stack.raw_get(3);
        }
        _ => return push_template(stack, captures, place),
    }
    if !stack.boolean(-1) {
        stack.pop(1);
        push_part(stack, place.0, place.1);
    } else if !stack.coerce_to_string(-1) {
        let kind = stack.kind(-1).name();
        let text = format!("invalid replacement value (a {kind})");
        return Err(FunctionFailure::message(text));
    }
    Ok(())
}

fn call(stack: &mut LuaStack<'_>, arguments: i32) -> Result<(), FunctionFailure> {
    match stack.protected_call(arguments, Some(1), 0) {
        CallStatus::Returned => Ok(()),
        CallStatus::OutOfMemory => Err(FunctionFailure::OutOfMemory),
        _ => Err(FunctionFailure::Value),
    }
}

/// Pushes the third argument with captures in the place of `%0` to `%9`.
fn push_template(
    stack: &mut LuaStack<'_>,
    captures: &Captures,
    place: (usize, usize),
) -> Result<(), FunctionFailure> {
    stack.coerce_to_string(3);
    let template = stack.bytes(3).unwrap_or_default();
    let text = stack.bytes(1).unwrap_or_default();
    let mut out = Vec::with_capacity(template.len());
    let mut symbols = template.iter();
    while let Some(&symbol) = symbols.next() {
        if symbol != b'%' {
            out.push(symbol);
            continue;
        }
        let capture = match symbols.next() {
            Some(b'0') => Capture::Text(place.0, place.1),
            Some(digit @ b'1'..=b'9') => captures.get(usize::from(digit - b'1'), place)?,
            other => {
                out.push(other.copied().unwrap_or(0));
                continue;
            }
        };
        match capture {
            Capture::Text(start, end) => out.extend_from_slice(&text[start..end]),
            Capture::Position(at) | Capture::Open(at) => {
                out.extend_from_slice((at + 1).to_string().as_bytes());
            }
        }
    }
    stack.push_bytes(&out);
    Ok(())
}
