//! The table `struct`: numbers and strings in the layout of C.
//!
//! | option | packs |
//! |---|---|
//! | `b` `B` | an integer of one byte; capital letters are unsigned |
//! | `h` `H` | of two bytes |
//! | `l` `L` `T` | of eight bytes |
//! | `i`*n* `I`*n* | of *n* bytes, four without *n* |
//! | `f` `d` | a float, a double |
//! | `x` | a zero |
//! | `s` | a string and a zero |
//! | `c`*n* | *n* bytes of a string; with 0, all of them, or as many as the number before says |
//! | `<` `>` | the next ones in little or big endian |
//! | `!`*n* | the next ones at multiples of their size, of *n* at most |

use crate::failure::FunctionFailure;
use crate::lua::{Kind, LuaStack, NativeFunction};
use crate::number::truncate;

/// The functions of the table.
pub(crate) const FUNCTIONS: [(&str, NativeFunction); 3] =
    [("pack", pack), ("unpack", unpack), ("size", size)];

/// The largest size of an integer.
const MAX_INTEGER: usize = 32;
/// The alignment after `!` without a number.
const DEFAULT_ALIGNMENT: usize = 8;

/// A format that is read option by option.
struct Layout {
    format: Vec<u8>,
    at: usize,
    big_endian: bool,
    alignment: usize,
}

impl Layout {
    /// Reads the format in the first argument.
    fn new(stack: &mut LuaStack<'_>) -> Result<Layout, FunctionFailure> {
        stack.check_string(1)?;
        Ok(Layout {
            format: stack.bytes(1).unwrap_or_default().to_vec(),
            at: 0,
            big_endian: false,
            alignment: 1,
        })
    }

    /// Returns the next option and its size.
    fn next(&mut self) -> Result<Option<(u8, usize)>, FunctionFailure> {
        let Some(&option) = self.format.get(self.at) else {
            return Ok(None);
        };
        self.at += 1;
        let size = match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > MAX_INTEGER {
                    let text =
                        format!("integral size {size} is larger than limit of {MAX_INTEGER}");
                    return Err(FunctionFailure::message(text));
                }
                size
            }
            _ => 0,
        };
        Ok(Some((option, size)))
    }

    /// Reads a decimal number.
    fn number(&mut self, default: usize) -> Result<usize, FunctionFailure> {
        let digits = self.format[self.at..].iter();
        let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let text = &self.format[self.at..self.at + digits];
        self.at += digits;
        std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|&number: &usize| i32::try_from(number).is_ok())
            .ok_or(FunctionFailure::message("integral size overflow"))
    }

    /// Returns the number of bytes between `position` and the place of an option.
    fn padding(&self, position: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.alignment);
        size.wrapping_sub(position & (size - 1)) & (size - 1)
    }

    /// Executes an option that packs nothing.
    fn control(&mut self, option: u8) -> Result<(), FunctionFailure> {
        match option {
            b' ' => {}
            b'<' => self.big_endian = false,
            b'>' => self.big_endian = true,
            b'!' => {
                let alignment = self.number(DEFAULT_ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    let text = format!("alignment {alignment} is not a power of 2");
                    return Err(FunctionFailure::message(text));
                }
                self.alignment = alignment;
            }
            _ => {
                let text = [b"invalid format option '", &[option][..], b"'"].concat();
                return Err(FunctionFailure::Argument(1, text));
            }
        }
        Ok(())
    }
}

/// `struct.pack`
fn pack(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let mut layout = Layout::new(stack)?;
    // A missing argument is reported as `nil`.
    stack.push_nil();
    let mut out = Vec::new();
    let mut argument = 2;
    while let Some((option, size)) = layout.next()? {
        let padding = layout.padding(out.len(), option, size);
        out.resize(out.len() + padding, 0);
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = stack.check_number(argument)?;
                push_integer(&mut out, number, size, layout.big_endian);
                argument += 1;
            }
            b'f' | b'd' => {
                let number = stack.check_number(argument)?;
                let start = out.len();
                if option == b'f' {
                    out.extend_from_slice(&(number as f32).to_le_bytes());
                } else {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                if layout.big_endian {
                    out[start..].reverse();
                }
                argument += 1;
            }
            b'x' => out.push(0),
            b'c' | b's' => {
                stack.check_string(argument)?;
                let text = stack.bytes(argument).unwrap_or_default();
                argument += 1;
                let size = if size == 0 { text.len() } else { size };
                let Some(text) = text.get(..size) else {
                    return Err(FunctionFailure::Argument(
                        argument,
                        "string too short".into(),
                    ));
                };
                out.extend_from_slice(text);
                if option == b's' {
                    out.push(0);
                }
            }
            _ => layout.control(option)?,
        }
        stack.context().check_memory(out.len())?;
    }
    stack.push_bytes(&out);
    Ok(1)
}

/// Appends an integer of `size` bytes.
fn push_integer(out: &mut Vec<u8>, number: f64, size: usize, big_endian: bool) {
    const BOUND: f64 = 18_446_744_073_709_551_616.0;
    let value = if (0.0..BOUND).contains(&number) {
        number as u64
    } else {
        truncate(number) as u64
    };
    let start = out.len();
    let mut bytes = [0; MAX_INTEGER];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    out.extend_from_slice(&bytes[..size]);
    if big_endian {
        out[start..].reverse();
    }
}

/// `struct.unpack`
fn unpack(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let mut layout = Layout::new(stack)?;
    stack.check_string(2)?;
    let data = stack.bytes(2).unwrap_or_default().to_vec();
    let mut position = match stack.kind(3) {
        Kind::None | Kind::Nil => 1,
        _ => truncate(stack.check_number(3)?) as usize,
    };
    if position == 0 {
        return Err(FunctionFailure::Argument(
            3,
            "offset must be 1 or greater".into(),
        ));
    }
    position -= 1;
    let too_short = || FunctionFailure::Argument(2, "data string too short".into());
    let bottom = stack.top();
    while let Some((option, mut size)) = layout.next()? {
        position = position.saturating_add(layout.padding(position, option, size));
        let slice = |size: usize| data.get(position..position.saturating_add(size));
        let bytes = slice(size).ok_or_else(too_short)?;
        if !stack.reserve(4) {
            return Err(FunctionFailure::message(
                "stack overflow (too many results)",
            ));
        }
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let is_signed = option.is_ascii_lowercase();
                stack.push_number(integer(bytes, is_signed, layout.big_endian));
            }
            b'f' => {
                let bytes = ordered(bytes, layout.big_endian);
                stack.push_number(f64::from(f32::from_le_bytes(bytes)));
            }
            b'd' => stack.push_number(f64::from_le_bytes(ordered(bytes, layout.big_endian))),
            b'x' => {}
            b'c' => {
                if size == 0 {
                    let len = (stack.top() > bottom).then(|| stack.number(-1)).flatten();
                    let text = "format 'c0' needs a previous size";
                    size = truncate(len.ok_or(FunctionFailure::message(text))?) as usize;
                    stack.pop(1);
                }
                stack.push_bytes(slice(size).ok_or_else(too_short)?);
            }
            b's' => {
                let rest = &data[position..];
                let len = rest.iter().position(|&byte| byte == 0);
                let len = len.ok_or(FunctionFailure::message("unfinished string in data"))?;
                stack.push_bytes(&rest[..len]);
                size = len + 1;
            }
            _ => layout.control(option)?,
        }
        position += size;
    }
    stack.push_number((position + 1) as f64);
    Ok(stack.top() - bottom)
}

/// Returns the bytes in little endian.
fn ordered<const N: usize>(bytes: &[u8], big_endian: bool) -> [u8; N] {
    let mut ordered: [u8; N] = bytes.try_into().expect("the size of the option");
    if big_endian {
        ordered.reverse();
    }
    ordered
}

/// Returns the integer in at most 32 bytes, of which the lowest eight count.
fn integer(bytes: &[u8], is_signed: bool, big_endian: bool) -> f64 {
    let mut little = [0; MAX_INTEGER];
    little[..bytes.len()].copy_from_slice(bytes);
    if big_endian {
        little[..bytes.len()].reverse();
    }
    let [a, b, c, d, e, f, g, h, ..] = little;
    let value = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    if !is_signed {
        return value as f64;
    }
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    ((value << unused) as i64 >> unused) as f64
}

/// `struct.size`
fn size(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let mut layout = Layout::new(stack)?;
    let mut position = 0;
    while let Some((option, size)) = layout.next()? {
        position += layout.padding(position, option, size);
        if option == b's' || (option == b'c' && size == 0) {
            let name = if option == b's' { "s" } else { "c0" };
            let text = format!("option '{name}' has no fixed size");
            return Err(FunctionFailure::Argument(1, text.into()));
        }
        if !option.is_ascii_alphanumeric() {
            layout.control(option)?;
        }
        position += size;
    }
    stack.push_number(position as f64);
    Ok(1)
}
