//! The table `bit`: operations on integers of 32 bits.

use crate::failure::FunctionFailure;
use crate::lua::{Kind, LuaStack, NativeFunction};

/// The functions of the table.
pub(crate) const FUNCTIONS: [(&str, NativeFunction); 12] = [
    ("tobit", |stack| unary(stack, |bits| bits)),
    ("bnot", |stack| unary(stack, |bits| !bits)),
    ("bswap", |stack| unary(stack, u32::swap_bytes)),
    ("band", |stack| fold(stack, |left, right| left & right)),
    ("bor", |stack| fold(stack, |left, right| left | right)),
    ("bxor", |stack| fold(stack, |left, right| left ^ right)),
    ("lshift", |stack| shift(stack, |bits, by| bits << by)),
    ("rshift", |stack| shift(stack, |bits, by| bits >> by)),
    ("arshift", |stack| {
        shift(stack, |bits, by| (bits as i32 >> by) as u32)
    }),
    ("rol", |stack| shift(stack, u32::rotate_left)),
    ("ror", |stack| shift(stack, u32::rotate_right)),
    ("tohex", to_hex),
];

/// Returns the 32 bits of an argument. The sum has its integer part, rounded, as its lowest bits.
fn bits(stack: &LuaStack<'_>, index: i32) -> Result<u32, FunctionFailure> {
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    Ok((stack.check_number(index)? + SHIFT).to_bits() as u32)
}

fn push_bits(stack: &mut LuaStack<'_>, bits: u32) -> Result<i32, FunctionFailure> {
    stack.push_number(f64::from(bits as i32));
    Ok(1)
}

fn unary(stack: &mut LuaStack<'_>, operation: fn(u32) -> u32) -> Result<i32, FunctionFailure> {
    let bits = bits(stack, 1)?;
    push_bits(stack, operation(bits))
}

fn fold(stack: &mut LuaStack<'_>, operation: fn(u32, u32) -> u32) -> Result<i32, FunctionFailure> {
    let mut result = bits(stack, 1)?;
    for index in (2..=stack.top()).rev() {
        result = operation(result, bits(stack, index)?);
    }
    push_bits(stack, result)
}

fn shift(stack: &mut LuaStack<'_>, operation: fn(u32, u32) -> u32) -> Result<i32, FunctionFailure> {
    let (value, by) = (bits(stack, 1)?, bits(stack, 2)?);
    push_bits(stack, operation(value, by & 31))
}

/// `bit.tohex`: a negative number of digits stands for digits in upper case.
fn to_hex(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    let value = bits(stack, 1)?;
    let digits = match stack.kind(2) {
        Kind::None => 8,
        _ => bits(stack, 2)? as i32,
    };
    let text = if digits < 0 {
        format!("{value:08X}")
    } else {
        format!("{value:08x}")
    };
    let count = digits.unsigned_abs().min(8) as usize;
    stack.push_bytes(&text.as_bytes()[8 - count..]);
    Ok(1)
}
