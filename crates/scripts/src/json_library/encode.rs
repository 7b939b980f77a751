//! `cjson.encode`: values as JSON.
//!
//! Tables are encoded in a loop, so that their nesting needs no stack of the thread.

use crate::failure::FunctionFailure;
use crate::json_settings::{InvalidNumbers, JsonSettings};
use crate::lua::{Kind, LuaStack};
use crate::number::write_general;
use crate::protection::push_real;
use crate::script_context::Pace;

/// A table whose beginning is encoded, at the index `table` of the stack.
enum OpenTable {
    /// The items from `next` to `len` are missing.
    List { table: i32, next: i64, len: i64 },
    /// The pairs behind the key above the table are missing.
    Object { table: i32, is_first: bool },
}

struct Encoder {
    out: Vec<u8>,
    open: Vec<OpenTable>,
    settings: JsonSettings,
    pace: Pace,
}

/// `cjson.encode`
pub(crate) fn encode(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.top() != 1 {
        return Err(FunctionFailure::Argument(1, "expected 1 argument".into()));
    }
    let mut encoder = Encoder {
        out: Vec::new(),
        open: Vec::new(),
        settings: stack.context().json.get(),
        pace: Pace::default(),
    };
    encoder.value(stack)?;
    while let Some(open) = encoder.open.pop() {
        encoder.pace.step(stack.context(), encoder.out.len())?;
        encoder.proceed(stack, open)?;
    }
    stack.push_bytes(&encoder.out);
    Ok(1)
}

fn refuse(kind: Kind, reason: &str) -> FunctionFailure {
    FunctionFailure::message(format!("Cannot serialise {}: {reason}", kind.name()))
}

impl Encoder {
    /// Encodes the next part of a table.
    fn proceed(
        &mut self,
        stack: &mut LuaStack<'_>,
        open: OpenTable,
    ) -> Result<(), FunctionFailure> {
        match open {
            OpenTable::List { table, next, len } => {
                if next > len {
                    self.out.push(b']');
                    stack.set_top(table - 1);
                    return Ok(());
                }
                if next > 1 {
                    self.out.push(b',');
                }
                stack.raw_get_item(table, next as i32);
                let next = next + 1;
                self.open.push(OpenTable::List { table, next, len });
                self.value(stack)
            }
            OpenTable::Object { table, is_first } => {
                if !stack.next(table) {
                    self.out.push(b'}');
                    stack.set_top(table - 1);
                    return Ok(());
                }
                if !is_first {
                    self.out.push(b',');
                }
                self.key(stack, table + 1)?;
                let is_first = false;
                self.open.push(OpenTable::Object { table, is_first });
                self.value(stack)
            }
        }
    }

    fn key(&mut self, stack: &LuaStack<'_>, index: i32) -> Result<(), FunctionFailure> {
        match stack.kind(index) {
            Kind::Number => {
                self.out.push(b'"');
                self.number(stack.number(index).unwrap_or_default())?;
                self.out.push(b'"');
            }
            Kind::String => self.string(stack.bytes(index).unwrap_or_default()),
            kind => return Err(refuse(kind, "table key must be a number or string")),
        }
        self.out.push(b':');
        Ok(())
    }

    /// Encodes the value on the top, and drops it unless it is a table, which is opened.
    fn value(&mut self, stack: &mut LuaStack<'_>) -> Result<(), FunctionFailure> {
        match stack.kind(-1) {
            Kind::Nil => self.out.extend_from_slice(b"null"),
            Kind::LightUserdata if stack.is_null(-1) => self.out.extend_from_slice(b"null"),
            Kind::Boolean if stack.boolean(-1) => self.out.extend_from_slice(b"true"),
            Kind::Boolean => self.out.extend_from_slice(b"false"),
            Kind::Number => self.number(stack.number(-1).unwrap_or_default())?,
            Kind::String => self.string(stack.bytes(-1).unwrap_or_default()),
            Kind::Table => return self.table(stack),
            kind => return Err(refuse(kind, "type not supported")),
        }
        stack.pop(1);
        Ok(())
    }

    fn table(&mut self, stack: &mut LuaStack<'_>) -> Result<(), FunctionFailure> {
        let depth = self.open.len() + 1;
        if depth > self.settings.encode_max_depth as usize || !stack.reserve(8) {
            let text = format!("Cannot serialise, excessive nesting ({depth})");
            return Err(FunctionFailure::message(text));
        }
        let table = stack.top();
        if push_real(stack, table) {
            stack.replace(table);
        }
        match self.list_len(stack, table)? {
            Some(len) => {
                self.out.push(b'[');
                let next = 1;
                self.open.push(OpenTable::List { table, next, len });
            }
            None => {
                self.out.push(b'{');
                stack.push_nil();
                let is_first = true;
                self.open.push(OpenTable::Object { table, is_first });
            }
        }
        Ok(())
    }

    /// Returns the largest index of a table that is a list; `None` for an object.
    fn list_len(
        &mut self,
        stack: &mut LuaStack<'_>,
        table: i32,
    ) -> Result<Option<i64>, FunctionFailure> {
        let (mut largest, mut items) = (0, 0);
        stack.push_nil();
        while stack.next(table) {
            stack.pop(1);
            self.pace.step(stack.context(), self.out.len())?;
            let index = match stack.kind(-1) {
                Kind::Number => stack.number(-1).filter(|&index| is_index(index)),
                _ => None,
            };
            let Some(index) = index else {
                stack.pop(1);
                return Ok(None);
            };
            largest = largest.max(index as i64);
            items += 1;
        }
        let JsonSettings {
            sparse_as_object,
            sparse_ratio,
            sparse_safe,
            ..
        } = self.settings;
        let is_sparse = sparse_ratio > 0
            && largest > items * i64::from(sparse_ratio)
            && largest > i64::from(sparse_safe);
        if is_sparse && !sparse_as_object {
            return Err(refuse(Kind::Table, "excessively sparse array"));
        }
        Ok((largest > 0 && !is_sparse).then_some(largest))
    }

    fn number(&mut self, number: f64) -> Result<(), FunctionFailure> {
        if number.is_finite() {
            write_general(&mut self.out, number, self.settings.precision as usize);
            return Ok(());
        }
        match self.settings.encode_invalid {
            InvalidNumbers::Refused => {
                return Err(refuse(Kind::Number, "must not be NaN or Inf"));
            }
            InvalidNumbers::Null => self.out.extend_from_slice(b"null"),
            InvalidNumbers::Accepted if number.is_nan() => self.out.extend_from_slice(b"nan"),
            InvalidNumbers::Accepted => write_general(&mut self.out, number, 14),
        }
        Ok(())
    }

    fn string(&mut self, text: &[u8]) {
        self.out.reserve(text.len() + 2);
        self.out.push(b'"');
        for &byte in text {
            let escaped = match byte {
                b'"' | b'\\' | b'/' => byte,
                8 => b'b',
                9 => b't',
                10 => b'n',
                12 => b'f',
                13 => b'r',
                0..32 | 127 => {
                    let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                    self.out.extend_from_slice(b"\\u00");
                    self.out
                        .extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
                    continue;
                }
                _ => {
                    self.out.push(byte);
                    continue;
                }
            };
            self.out.extend_from_slice(&[b'\\', escaped]);
        }
        self.out.push(b'"');
    }
}

/// Returns `true` for the index of a list's item.
fn is_index(number: f64) -> bool {
    number >= 1.0 && number.fract() == 0.0 && number <= f64::from(i32::MAX)
}
