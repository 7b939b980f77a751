//! Replies of commands as values of Lua.
//!
//! | RESP | Lua |
//! |---|---|
//! | `$` | a string |
//! | `:` | a number |
//! | `*` | a table of items |
//! | `$-1`, `*-1` | `false` |
//! | `+` | `{ok = …}` |
//! | `-` | `{err = …, ignore_error_stats_update = true}` |
//! | `_` | `nil` |
//! | `#` | a boolean |
//! | `,` | `{double = …}` |
//! | `(` | `{big_number = …}` |
//! | `=` | `{verbatim_string = {string = …, format = …}}` |
//! | `%` | `{map = …}` |
//! | `~` | `{set = {… = true}}` |
//!
//! The host encodes replies correctly: anything else is a bug, and panics.

use base::number::parse_int;

use crate::lua::LuaStack;

/// The deepest nesting of replies.
const MAX_DEPTH: usize = 128;

/// Pushes a reply. Returns `true` if it is an error.
pub(crate) fn push_reply(stack: &mut LuaStack<'_>, reply: &[u8]) -> bool {
    let mut reader = ReplyReader { reply, at: 0 };
    reader.push(stack, 0);
    assert_eq!(reader.at, reply.len(), "bytes behind a reply");
    reply[0] == b'-'
}

struct ReplyReader<'a> {
    reply: &'a [u8],
    at: usize,
}

impl<'a> ReplyReader<'a> {
    fn line(&mut self) -> &'a [u8] {
        let rest = &self.reply[self.at..];
        let end = rest.iter().position(|&byte| byte == b'\r');
        let end = end.expect("the end of a reply's line");
        self.at += end + 2;
        &rest[..end]
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let bytes = &self.reply[self.at..self.at + len];
        self.at += len + 2;
        bytes
    }

    fn push(&mut self, stack: &mut LuaStack<'_>, depth: usize) {
        assert!(
            depth < MAX_DEPTH && stack.reserve(4),
            "the nesting of a reply"
        );
        let line = self.line();
        let (&mark, text) = line.split_first().expect("the type of a reply");
        match mark {
            b'+' => push_field(stack, "ok", |stack| stack.push_bytes(text)),
            b'-' => {
                push_field(stack, "err", |stack| stack.push_bytes(text));
                stack.push_boolean(true);
                stack.raw_set_field(-2, "ignore_error_stats_update");
            }
            b':' => stack.push_number(parse_int(text).expect("an integer") as f64),
            b'_' => stack.push_nil(),
            b'#' => stack.push_boolean(text == b"t"),
            b',' => {
                let number = std::str::from_utf8(text)
                    .ok()
                    .and_then(|text| text.parse().ok());
                let number: f64 = number.expect("a double");
                push_field(stack, "double", |stack| stack.push_number(number));
            }
            b'(' => push_field(stack, "big_number", |stack| stack.push_bytes(text)),
            _ => self.push_sized(stack, mark, text, depth),
        }
    }

    fn push_sized(&mut self, stack: &mut LuaStack<'_>, mark: u8, text: &[u8], depth: usize) {
        let Ok(len) = usize::try_from(parse_int(text).expect("a length")) else {
            return stack.push_boolean(false);
        };
        match mark {
            b'$' => stack.push_bytes(self.bytes(len)),
            b'=' => {
                let (format, text) = self.bytes(len).split_at(4);
                push_field(stack, "verbatim_string", |stack| {
                    push_field(stack, "string", |stack| stack.push_bytes(text));
                    stack.push_bytes(&format[..3]);
                    stack.raw_set_field(-2, "format");
                });
            }
            b'*' | b'>' => {
                stack.push_table(len, 0);
                for item in 1..=len {
                    self.push(stack, depth + 1);
                    stack.raw_set_item(-2, item as i32);
                }
            }
            b'%' => push_field(stack, "map", |stack| {
                stack.push_table(0, len);
                for _ in 0..len {
                    self.push(stack, depth + 1);
                    self.push(stack, depth + 1);
                    stack.raw_set(-3);
                }
            }),
            b'~' => push_field(stack, "set", |stack| {
                stack.push_table(0, len);
                for _ in 0..len {
                    self.push(stack, depth + 1);
                    stack.push_boolean(true);
                    stack.raw_set(-3);
                }
            }),
            b'|' => {
                for _ in 0..2 * len {
                    self.push(stack, depth + 1);
                    stack.pop(1);
                }
                self.push(stack, depth + 1);
            }
            _ => panic!("a reply of the unknown type {mark}"),
        }
    }
}

/// Pushes a table with one field, whose value `push` pushes.
fn push_field(stack: &mut LuaStack<'_>, name: &str, push: impl FnOnce(&mut LuaStack<'_>)) {
    stack.push_table(0, 1);
    push(stack);
    stack.raw_set_field(-2, name);
}
