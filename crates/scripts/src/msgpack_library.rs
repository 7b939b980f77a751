//! The table `cmsgpack`: values in MessagePack.

mod pack;
mod unpack;

use crate::lua::{LuaStack, NativeFunction};
use crate::protection::set_functions;

const FUNCTIONS: [(&str, NativeFunction); 4] = [
    ("pack", pack::pack),
    ("unpack", unpack::unpack),
    ("unpack_one", unpack::unpack_one),
    ("unpack_limit", unpack::unpack_limit),
];

/// The library whose formats and messages these are.
const TEXTS: [(&str, &str); 2] = [("_NAME", "cmsgpack"), ("_VERSION", "lua-cmsgpack 0.4.0")];

/// Pushes the table.
pub(crate) fn push_library(stack: &mut LuaStack<'_>) {
    stack.push_table(0, FUNCTIONS.len() + TEXTS.len());
    let table = stack.top();
    set_functions(stack, table, &FUNCTIONS);
    for (name, text) in TEXTS {
        stack.push_bytes(text.as_bytes());
        stack.raw_set_field(table, name);
    }
}
