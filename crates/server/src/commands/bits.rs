//! Commands that read bits of strings, and what strings have in common.

use base::Op;
use resp::Args;

use super::arguments::{int, is};
use super::bit_fields::{FieldAction, bit_offset, field_steps};
use crate::command::CommandKind::Store;
use crate::command::{CommandDefinition, Ops, Planned, commands};
use crate::refusal::Refusal;
use crate::render::{BitRange, Computation, Render};

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "bitmap";
    "getbit" 3 "readonly fast" ONE("RO access") "bitmap" ""
        "2.2.0" "O(1)",
        Store(getbit), "A bit of a value.";
    "bitcount" -2 "readonly whole_value" ONE("RO access") "bitmap" ""
        "2.6.0" "O(N)",
        Store(bitcount), "How many bits of a value are ones.";
    "bitpos" -3 "readonly whole_value" ONE("RO access") "bitmap" ""
        "2.8.7" "O(N)",
        Store(bitpos), "Where the first one or zero of a value is.";
    "bitfield_ro" -2 "readonly fast" ONE("RO access") "bitmap" ""
        "6.0.0" "O(1) for each subcommand specified",
        Store(bitfield_ro), "Numbers among the bits of a value.";
};

fn getbit<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let offset = bit_offset(args.at(2))?;
    let byte = (offset / 8) as i64;
    ops.push(Op::GetRange {
        key: args.at(1),
        start: byte,
        end: byte,
    });
    let number = (offset % 8) as u8;
    Ok(Render::computed(Computation::Bit { number }))
}

/// Parses the unit of a range. Returns `true` if it is the bit.
fn in_bits(arg: Option<&[u8]>) -> Result<bool, Refusal> {
    match arg {
        None => Ok(false),
        Some(unit) if is(unit, "byte") => Ok(false),
        Some(unit) if is(unit, "bit") => Ok(true),
        Some(_) => Err(Refusal::Syntax),
    }
}

fn bitcount<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.push(Op::Get { key: args.at(1) });
    let range = match args.len() {
        2 => Ok(None),
        4 | 5 => counted_range(args.from(2)).map(Some),
        _ => Err(Refusal::Syntax),
    };
    Ok(Render::computed(Computation::BitCount(range)))
}

/// Parses a start, an end, and perhaps a unit. As in Redis it may be a wrong one if the range is reversed.
fn counted_range(args: Args<'_>) -> Result<BitRange, Refusal> {
    let ends = BitRange {
        start: int(args.at(0))?,
        end: Some(int(args.at(1))?),
        in_bits: false,
    };
    match ends.is_reversed() {
        true => Ok(ends),
        false => range(args),
    }
}

/// Parses a start, an end and a unit, which is judged before the end; only the first must be there.
fn range(args: Args<'_>) -> Result<BitRange, Refusal> {
    let start = int(args.at(0))?;
    let in_bits = in_bits(args.get(2))?;
    Ok(BitRange {
        start,
        end: args.get(1).map(int).transpose()?,
        in_bits,
    })
}

fn bitpos<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let bit = match int(args.at(2))? {
        0 => false,
        1 => true,
        _ => return Err(Refusal::Text("ERR The bit argument must be 1 or 0.")),
    };
    ops.push(Op::Get { key: args.at(1) });
    let range = match args.len() {
        3 => Ok(BitRange::WHOLE),
        4..=6 => range(args.from(3)),
        _ => Err(Refusal::Syntax),
    };
    Ok(Render::computed(Computation::BitPosition { bit, range }))
}

fn bitfield_ro<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let steps = field_steps(args)?;
    if steps.iter().any(|step| step.action != FieldAction::Get) {
        let text = "ERR BITFIELD_RO only supports the GET subcommand";
        return Err(Refusal::Text(text));
    }
    let key = args.at(1);
    if steps.is_empty() {
        // It must still be a string.
        ops.push(Op::Len { key });
    }
    let fields: Vec<_> = steps.iter().map(|step| step.field).collect();
    ops.extend(fields.iter().map(|field| {
        let (start, end) = field.bytes();
        Op::GetRange {
            key,
            start: start as i64,
            end: end as i64,
        }
    }));
    Ok(Render::computed(Computation::BitFields(fields)))
}
