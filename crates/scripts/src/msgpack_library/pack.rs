//! `cmsgpack.pack`.

use crate::failure::FunctionFailure;
use crate::lua::{Kind, LuaStack};
use crate::protection::push_real;
use crate::script_context::Pace;

/// The deepest nesting of tables; those that lie deeper become `nil`.
const MAX_DEPTH: usize = 16;

/// `cmsgpack.pack`
pub(super) fn pack(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let count = stack.top();
    if count == 0 {
        let text = "MessagePack pack needs input.".into();
        return Err(FunctionFailure::Argument(0, text));
    }
    let mut packer = Packer {
        out: Vec::new(),
        pace: Pace::default(),
    };
    for index in 1..=count {
        stack.push_value(index);
        packer.value(stack, 0)?;
    }
    stack.push_bytes(&packer.out);
    Ok(1)
}

struct Packer {
    out: Vec<u8>,
    pace: Pace,
}

impl Packer {
    /// Packs the value on the top, and drops it.
    fn value(&mut self, stack: &mut LuaStack<'_>, depth: usize) -> Result<(), FunctionFailure> {
        self.pace.step(stack.context(), self.out.len())?;
        match stack.kind(-1) {
            Kind::Number => self.number(stack.number(-1).unwrap_or_default()),
            Kind::String => {
                let text = stack.bytes(-1).unwrap_or_default();
                self.string_head(text.len());
                self.out.extend_from_slice(text);
            }
            Kind::Boolean => self.out.push(if stack.boolean(-1) { 0xc3 } else { 0xc2 }),
            Kind::Table if depth < MAX_DEPTH => self.table(stack, depth)?,
            _ => self.out.push(0xc0),
        }
        stack.pop(1);
        Ok(())
    }

    fn table(&mut self, stack: &mut LuaStack<'_>, depth: usize) -> Result<(), FunctionFailure> {
        if !stack.reserve(8) {
            return Err(FunctionFailure::message(
                "stack overflow (in function mp_encode_lua_table)",
            ));
        }
        let table = stack.top();
        if push_real(stack, table) {
            stack.replace(table);
        }
        let (len, is_list) = self.count(stack, table)?;
        if is_list {
            self.head(len, 0x90, 0xdc);
            for item in 1..=len {
                stack.raw_get_item(table, item as i32);
                self.value(stack, depth + 1)?;
            }
            return Ok(());
        }
        self.head(len, 0x80, 0xde);
        stack.push_nil();
        while stack.next(table) {
            stack.push_value(-2);
            self.value(stack, depth + 1)?;
            self.value(stack, depth + 1)?;
        }
        Ok(())
    }

    /// Returns the number of pairs, and whether their keys are those of a list.
    fn count(
        &mut self,
        stack: &mut LuaStack<'_>,
        table: i32,
    ) -> Result<(usize, bool), FunctionFailure> {
        let (mut len, mut largest, mut is_list) = (0, 0, true);
        stack.push_nil();
        while stack.next(table) {
            stack.pop(1);
            self.pace.step(stack.context(), self.out.len())?;
            len += 1;
            let index = match stack.kind(-1) {
                Kind::Number => stack.number(-1).unwrap_or_default(),
                _ => 0.0,
            };
            is_list &= index >= 1.0 && index.fract() == 0.0;
            largest = largest.max(index as usize);
        }
        Ok((len, is_list && largest == len))
    }

    /// Writes the head of a collection: a byte with a small length, or one of two larger heads.
    fn head(&mut self, len: usize, small: u8, large: u8) {
        if len < 16 {
            self.out.push(small | len as u8);
        } else if let Ok(len) = u16::try_from(len) {
            self.out.push(large);
            self.out.extend_from_slice(&len.to_be_bytes());
        } else {
            self.out.push(large + 1);
            self.out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }

    fn string_head(&mut self, len: usize) {
        match len {
            0..32 => self.out.push(0xa0 | len as u8),
            32..0x100 => self.out.extend_from_slice(&[0xd9, len as u8]),
            0x100..0x1_0000 => self.tagged(0xda, &(len as u16).to_be_bytes()),
            _ => self.tagged(0xdb, &(len as u32).to_be_bytes()),
        }
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.out.push(tag);
        self.out.extend_from_slice(bytes);
    }

    fn number(&mut self, number: f64) {
        const BOUND: f64 = 9_223_372_036_854_775_808.0;
        if number.fract() == 0.0 && (-BOUND..BOUND).contains(&number) {
            self.integer(number as i64);
        } else if f64::from(number as f32) == number {
            self.tagged(0xca, &(number as f32).to_be_bytes());
        } else {
            self.tagged(0xcb, &number.to_be_bytes());
        }
    }

    fn integer(&mut self, number: i64) {
        match number {
            -32..0x80 => self.out.push(number as u8),
            0x80..0x100 => self.tagged(0xcc, &[number as u8]),
            0x100..0x1_0000 => self.tagged(0xcd, &(number as u16).to_be_bytes()),
            0x1_0000..0x1_0000_0000 => self.tagged(0xce, &(number as u32).to_be_bytes()),
            0x1_0000_0000.. => self.tagged(0xcf, &number.to_be_bytes()),
            -0x80..-32 => self.tagged(0xd0, &[number as u8]),
            -0x8000..-0x80 => self.tagged(0xd1, &(number as i16).to_be_bytes()),
            -0x8000_0000..-0x8000 => self.tagged(0xd2, &(number as i32).to_be_bytes()),
            _ => self.tagged(0xd3, &number.to_be_bytes()),
        }
    }
}
