//! Parsing of the arguments of commands on bits.

use resp::Args;

use super::arguments::{int, is};
use crate::bit_field::{BitField, OverflowMode};
use crate::refusal::Refusal;

/// The bits that a value may have.
const MOST_BITS: u64 = 1 << 32;
const BAD_OFFSET: Refusal = Refusal::Text("ERR bit offset is not an integer or out of range");

/// A part of `BITFIELD`: what it does with a number.
pub(super) struct FieldStep {
    pub(super) field: BitField,
    pub(super) action: FieldAction,
    /// The mode for a result that does not fit.
    pub(super) overflow: OverflowMode,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldAction {
    Get,
    Set(i64),
    Add(i64),
}

/// Parses the place of a bit.
pub(super) fn bit_offset(arg: &[u8]) -> Result<u64, Refusal> {
    let offset = int(arg).ok().and_then(|offset| u64::try_from(offset).ok());
    offset
        .filter(|&offset| offset < MOST_BITS)
        .ok_or(BAD_OFFSET)
}

/// Parses the parts of `BITFIELD`, which follow the key.
pub(super) fn field_steps(args: Args<'_>) -> Result<Vec<FieldStep>, Refusal> {
    let (mut steps, mut overflow, mut at) = (Vec::new(), OverflowMode::Wrap, 2);
    while let Some(word) = args.get(at) {
        let rest = args.len() - at - 1;
        if is(word, "overflow") && rest >= 1 {
            overflow = overflow_mode(args.at(at + 1))?;
            at += 2;
            continue;
        }
        let (is_get, is_set) = (is(word, "get"), is(word, "set"));
        let words = if is_get { 2 } else { 3 };
        if !(is_get || is_set || is(word, "incrby")) || rest < words {
            return Err(Refusal::Syntax);
        }
        let field = bit_field(args.at(at + 1), args.at(at + 2))?;
        let action = match (is_get, is_set) {
            (true, _) => FieldAction::Get,
            (_, true) => FieldAction::Set(int(args.at(at + 3))?),
            _ => FieldAction::Add(int(args.at(at + 3))?),
        };
        steps.push(FieldStep {
            field,
            action,
            overflow,
        });
        at += words + 1;
    }
    Ok(steps)
}

fn overflow_mode(arg: &[u8]) -> Result<OverflowMode, Refusal> {
    if is(arg, "wrap") {
        Ok(OverflowMode::Wrap)
    } else if is(arg, "sat") {
        Ok(OverflowMode::Saturate)
    } else if is(arg, "fail") {
        Ok(OverflowMode::Fail)
    } else {
        Err(Refusal::Text("ERR Invalid OVERFLOW type specified"))
    }
}

/// Parses the type of a number, such as `u8`, and its place: that of its first bit, or behind `#` its number
/// among numbers of its type.
fn bit_field(kind: &[u8], offset: &[u8]) -> Result<BitField, Refusal> {
    let length = kind.get(1..).and_then(|length| int(length).ok());
    let (signed, bits) = match (kind.first(), length) {
        (Some(b'i'), Some(bits @ 1..=64)) => (true, bits as u32),
        (Some(b'u'), Some(bits @ 1..=63)) => (false, bits as u32),
        _ => {
            return Err(Refusal::Text(
                "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 \
                 is.",
            ));
        }
    };
    let offset = match offset.strip_prefix(b"#") {
        None => bit_offset(offset)?,
        Some(number) => {
            let offset = bit_offset(number)? * u64::from(bits);
            Some(offset)
                .filter(|&offset| offset < MOST_BITS)
                .ok_or(BAD_OFFSET)?
        }
    };
    Ok(BitField {
        signed,
        bits,
        offset,
    })
}
