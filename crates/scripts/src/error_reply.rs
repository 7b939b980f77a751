//! Errors as values of Lua, and errors of Lua as replies.

use crate::failure::FunctionFailure;
use crate::lua::{Kind, LuaStack};
use crate::number::write_general;
use crate::script_context::ErrorPlace;

/// Pushes a table that is an error reply.
pub(crate) fn push_error(stack: &mut LuaStack<'_>, text: &[u8]) {
    stack.push_table(0, 1);
    stack.push_bytes(text);
    stack.raw_set_field(-2, "err");
}

/// Returns a failure with an error reply.
pub(crate) fn fail(stack: &mut LuaStack<'_>, text: &str) -> FunctionFailure {
    push_error(stack, text.as_bytes());
    FunctionFailure::Value
}

/// Keeps the place where an error is raised, and makes the error a reply.
pub(crate) fn handle_error(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let mut frame = stack.frame(1);
    if frame.as_ref().is_some_and(|frame| frame.is_native) {
        frame = stack.frame(2);
    }
    let place = frame.map(|frame| ErrorPlace {
        source: frame.source,
        line: frame.line,
    });
    stack.context().error_place.replace(place);
    stack.set_top(1);
    if stack.kind(1) != Kind::Table {
        let text = error_text(stack);
        push_error(stack, &text);
    }
    Ok(1)
}

/// Returns the text of the error on the top.
pub(crate) fn error_text(stack: &mut LuaStack<'_>) -> Vec<u8> {
    let kind = stack.kind(-1);
    let mut text = b"ERR ".to_vec();
    match kind {
        Kind::Table => {
            stack.raw_get_field(-1, "err");
            if !stack.coerce_to_string(-1) {
                return b"ERR unknown error".to_vec();
            }
            return stack.bytes(-1).unwrap_or_default().to_vec();
        }
        Kind::String => text.extend_from_slice(stack.bytes(-1).unwrap_or_default()),
        Kind::Number => write_general(&mut text, stack.number(-1).unwrap_or_default(), 14),
        Kind::Boolean => text.extend_from_slice(stack.boolean(-1).to_string().as_bytes()),
        Kind::Nil => text.extend_from_slice(b"nil"),
        _ => {
            let value = match stack.address(-1) {
                0 => format!("{}: (nil)", kind.name()),
                address => format!("{}: {address:#x}", kind.name()),
            };
            text.extend_from_slice(value.as_bytes());
        }
    }
    text
}
