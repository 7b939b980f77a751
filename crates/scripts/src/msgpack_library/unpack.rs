//! `cmsgpack.unpack`, `unpack_one` and `unpack_limit`.
//!
//! Collections are unpacked in a loop, so that their nesting needs no stack of the thread.

use crate::failure::FunctionFailure;
use crate::lua::{Kind, LuaStack};
use crate::number::truncate;
use crate::script_context::Pace;

/// A collection whose table is on the stack.
enum OpenCollection {
    /// `len` items; `done` of them are in the table.
    List { done: u32, len: u32 },
    /// So many pairs are missing. The next value on the stack is a key.
    Key(u32),
    /// So many pairs are missing. The key is on the stack, and the next value is its value.
    Value(u32),
}

/// `cmsgpack.unpack`
pub(super) fn unpack(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    unpack_from(stack, 0, 0)
}

/// `cmsgpack.unpack_one`
pub(super) fn unpack_one(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let offset = offset(stack, 2)?;
    unpack_from(stack, 1, offset)
}

/// `cmsgpack.unpack_limit`
pub(super) fn unpack_limit(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let limit = truncate(stack.check_number(2)?);
    let offset = offset(stack, 3)?;
    unpack_from(stack, limit, offset)
}

fn offset(stack: &LuaStack<'_>, index: i32) -> Result<i64, FunctionFailure> {
    match stack.kind(index) {
        Kind::None | Kind::Nil => Ok(0),
        _ => Ok(truncate(stack.check_number(index)?)),
    }
}

/// Unpacks at most `limit` values from `offset` on, and pushes the place behind them and the values;
/// only the values, and all of them, if both are 0.
fn unpack_from(stack: &mut LuaStack<'_>, limit: i64, offset: i64) -> Result<i32, FunctionFailure> {
    stack.check_string(1)?;
    let input = stack.bytes(1).unwrap_or_default().to_vec();
    let len = input.len();
    let (Ok(most), Ok(at)) = (usize::try_from(limit), usize::try_from(offset)) else {
        // The message has 32 bits of it.
        let offset = offset as i32;
        let text = format!("Invalid request to unpack with offset of {offset} and limit of {len}.");
        return Err(FunctionFailure::message(text));
    };
    if at > len {
        let text = format!(
            "Start offset {} greater than input length {len}.",
            at as i32
        );
        return Err(FunctionFailure::message(text));
    }
    let is_whole = limit == 0 && offset == 0;
    let most = if is_whole { usize::MAX } else { most };
    let mut unpacker = Unpacker {
        input,
        at,
        open: Vec::new(),
        pace: Pace::default(),
    };
    stack.set_top(1);
    let mut count = 0;
    while unpacker.at < len && count < most {
        unpacker.value(stack)?;
        count += 1;
    }
    if !is_whole {
        let is_end = unpacker.at == len;
        stack.push_number(if is_end { -1.0 } else { unpacker.at as f64 });
        stack.insert(2);
    }
    Ok(stack.top() - 1)
}

struct Unpacker {
    input: Vec<u8>,
    at: usize,
    open: Vec<OpenCollection>,
    pace: Pace,
}

impl Unpacker {
    fn take(&mut self, len: usize) -> Result<&[u8], FunctionFailure> {
        let start = self.at;
        let bytes = self.input.get(start..start.saturating_add(len));
        let bytes = bytes.ok_or(FunctionFailure::message("Missing bytes in input."))?;
        self.at += len;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FunctionFailure> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("so many bytes"))
    }

    /// Returns a length of `bytes` bytes.
    fn len(&mut self, bytes: usize) -> Result<u32, FunctionFailure> {
        let bytes = self.take(bytes)?.iter();
        Ok(bytes.fold(0, |len, &byte| len << 8 | u32::from(byte)))
    }

    /// Pushes the next value.
    fn value(&mut self, stack: &mut LuaStack<'_>) -> Result<(), FunctionFailure> {
        loop {
            let mut is_whole = self.begin(stack)?;
            while is_whole {
                let Some(open) = self.open.pop() else {
                    return Ok(());
                };
                is_whole = self.end_item(stack, open)?;
            }
        }
    }

    /// Pushes the next value. Returns `false` if it is a collection, whose first value comes next.
    fn begin(&mut self, stack: &mut LuaStack<'_>) -> Result<bool, FunctionFailure> {
        self.pace.step(stack.context(), 0)?;
        if !stack.reserve(4) {
            let text = "too many return values at once; use unpack_one or unpack_limit instead.";
            return Err(FunctionFailure::message(format!("stack overflow ({text})")));
        }
        let [tag] = self.array()?;
        let number = match tag {
            0xc0 => {
                stack.push_nil();
                return Ok(true);
            }
            0xc2 | 0xc3 => {
                stack.push_boolean(tag == 0xc3);
                return Ok(true);
            }
            0x00..=0x7f | 0xe0..=0xff => f64::from(tag as i8),
            0xca => f64::from(f32::from_be_bytes(self.array()?)),
            0xcb => f64::from_be_bytes(self.array()?),
            0xcc => f64::from(u8::from_be_bytes(self.array()?)),
            0xcd => f64::from(u16::from_be_bytes(self.array()?)),
            0xce => f64::from(u32::from_be_bytes(self.array()?)),
            0xd0 => f64::from(i8::from_be_bytes(self.array()?)),
            0xd1 => f64::from(i16::from_be_bytes(self.array()?)),
            0xd2 => f64::from(i32::from_be_bytes(self.array()?)),
            0xcf | 0xd3 => i64::from_be_bytes(self.array()?) as f64,
            _ => return self.sized(stack, tag),
        };
        stack.push_number(number);
        Ok(true)
    }

    /// Pushes a string, or opens a collection. Returns `true` if it is whole.
    fn sized(&mut self, stack: &mut LuaStack<'_>, tag: u8) -> Result<bool, FunctionFailure> {
        let len = match tag {
            0x80..=0x9f => u32::from(tag & 0x0f),
            0xa0..=0xbf => u32::from(tag & 0x1f),
            0xd9 => self.len(1)?,
            0xda | 0xdc | 0xde => self.len(2)?,
            0xdb | 0xdd | 0xdf => self.len(4)?,
            _ => return Err(FunctionFailure::message("Bad data format in input.")),
        };
        match tag {
            0xa0..=0xbf | 0xd9..=0xdb => {
                let text = self.take(len as usize)?;
                stack.push_bytes(text);
                Ok(true)
            }
            0x90..=0x9f | 0xdc | 0xdd => {
                if !stack.reserve(5) {
                    let text = "stack overflow (in function mp_decode_to_lua_array)";
                    return Err(FunctionFailure::message(text));
                }
                stack.push_table(len as usize, 0);
                Ok(self.next_item(0, len))
            }
            _ => {
                stack.push_table(0, len as usize);
                Ok(self.next_key(len))
            }
        }
    }

    /// Opens a list, of which `done` items are in the table. Returns `true` if it is whole.
    fn next_item(&mut self, done: u32, len: u32) -> bool {
        if done < len {
            self.open.push(OpenCollection::List { done, len });
        }
        done == len
    }

    /// Opens a map, of which so many pairs are missing. Returns `true` if it is whole.
    fn next_key(&mut self, missing: u32) -> bool {
        if missing > 0 {
            self.open.push(OpenCollection::Key(missing));
        }
        missing == 0
    }

    /// Moves the value on the top into its collection. Returns `true` if that is whole now.
    fn end_item(
        &mut self,
        stack: &mut LuaStack<'_>,
        open: OpenCollection,
    ) -> Result<bool, FunctionFailure> {
        match open {
            OpenCollection::List { done, len } => {
                stack.raw_set_item(-2, done as i32 + 1);
                Ok(self.next_item(done + 1, len))
            }
            OpenCollection::Key(missing) => {
                self.open.push(OpenCollection::Value(missing));
                Ok(false)
            }
            OpenCollection::Value(missing) => {
                let is_nil = stack.kind(-2) == Kind::Nil;
                if !stack.raw_set(-3) {
                    let name = if is_nil { "nil" } else { "NaN" };
                    stack.push_bytes(format!("table index is {name}").as_bytes());
                    return Err(FunctionFailure::Value);
                }
                Ok(self.next_key(missing - 1))
            }
        }
    }
}
