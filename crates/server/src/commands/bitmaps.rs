//! Commands that write bits of strings. `SETBIT` and `BITFIELD` write nothing if no bit changes and the value does
//! not become longer.

use base::OpError;
use base::key_event::KeyEvent;
use resp::{Args, Writer};

use super::arguments::{int, is};
use super::bit_fields::{FieldAction, FieldStep, bit_offset, field_steps};
use crate::command::CommandKind::Compound;
use crate::command::{CommandDefinition, CompoundStop, commands};
use crate::refusal::{Refusal, write_op_error};
use crate::working_set::{WorkingSet, WorkingValue};

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "bitmap";
    "setbit" 4 "write denyoom" ONE("RW access update") "bitmap" ""
        "2.2.0" "O(N) where N is the length of the value.",
        Compound(setbit), "Sets a bit of a value; answers the bit that was there.";
    "bitfield" -2 "write denyoom" ONE("RW access update variable_flags") "bitmap" ""
        "3.2.0" "O(N) where N is the length of the value.",
        Compound(bitfield), "Reads, sets and changes numbers among the bits of a value.";
    "bitop" -4 "write denyoom" FROM_SECOND("OW update; RO access") "bitmap" ""
        "2.6.0" "O(N) where N is the length of all values.",
        Compound(bitop), "Combines the bits of values; answers the length of the result.";
};

/// A value that may have become longer.
struct GrownValue {
    value: WorkingValue,
    /// `true` if it is longer, or new.
    grew: bool,
}

/// Returns the value of a key with zeros behind it, so that it has at least so many bytes.
fn grown(set: &WorkingSet, key: &[u8], bytes: usize) -> Result<GrownValue, Refusal> {
    if bytes > set.longest_value() {
        return Err(Refusal::TooLong);
    }
    let old = set.value(key);
    let before = set.string(key).map_err(Refusal::Failed)?;
    let mut value = Vec::with_capacity(bytes.max(before.len()));
    value.extend_from_slice(before);
    value.resize(bytes.max(before.len()), 0);
    Ok(GrownValue {
        grew: old.is_none() || bytes > before.len(),
        value: WorkingValue::string(value, old.and_then(|value| value.deadline)),
    })
}

/// Sets a key to a value of which bits have changed.
fn set_bits(set: &mut WorkingSet, key: &[u8], value: WorkingValue) -> Result<(), OpError> {
    set.set(key, Some(value))?;
    set.note(key, KeyEvent::SetBit);
    Ok(())
}

fn setbit(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    const BAD_BIT: Refusal = Refusal::Text("ERR bit is not an integer or out of range");
    let key = args.at(1);
    let offset = bit_offset(args.at(2))?;
    let bit = match int(args.at(3)) {
        Ok(0) => false,
        Ok(1) => true,
        _ => return Err(BAD_BIT.into()),
    };
    let at = (offset / 8) as usize;
    let mask = 0x80 >> (offset % 8);
    let mut new = grown(set, key, at + 1)?;
    let byte = &mut new.value.bytes[at];
    let before = *byte & mask != 0;
    *byte = if bit { *byte | mask } else { *byte & !mask };
    let done = match new.grew || before != bit {
        true => set_bits(set, key, new.value),
        false => Ok(()),
    };
    match done {
        Ok(()) => writer.int(before.into()),
        Err(error) => write_op_error(error, "setbit", writer),
    }
    Ok(())
}

fn bitfield(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let key = args.at(1);
    let steps = field_steps(args)?;
    let written = steps.iter().filter(|step| step.action != FieldAction::Get);
    let Some(last) = written.map(|step| step.field.bytes().1).max() else {
        let value = set.string(key).map_err(Refusal::Failed)?;
        writer.array(steps.len());
        for step in &steps {
            writer.int(step.field.read(value));
        }
        return Ok(());
    };
    let mut new = grown(set, key, last + 1)?;
    let mut changes = new.grew;
    let replies: Vec<Option<i64>> = steps
        .iter()
        .map(|step| execute_step(step, &mut new.value.bytes, &mut changes))
        .collect();
    if changes && let Err(error) = set_bits(set, key, new.value) {
        write_op_error(error, "bitfield", writer);
        return Ok(());
    }
    writer.array(replies.len());
    for reply in replies {
        match reply {
            Some(number) => writer.int(number),
            None => writer.null(),
        }
    }
    Ok(())
}

/// Executes a part of `BITFIELD` on a value that is long enough. Returns its reply: `None` if a number does not fit
/// and is refused.
fn execute_step(step: &FieldStep, value: &mut [u8], changes: &mut bool) -> Option<i64> {
    let field = step.field;
    let old = field.read(value);
    let number = match step.action {
        FieldAction::Get => return Some(old),
        FieldAction::Set(number) => field.wide(number),
        FieldAction::Add(number) => i128::from(old) + i128::from(number),
    };
    let new = field.fitted(number, step.overflow)?;
    field.write(value, new);
    *changes |= new != old;
    Some(match step.action {
        FieldAction::Add(_) => new,
        _ => old,
    })
}

/// How `BITOP` combines values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BitOperation {
    And,
    Or,
    Xor,
    Not,
}

impl BitOperation {
    fn parse(arg: &[u8]) -> Option<BitOperation> {
        let all = [
            ("and", BitOperation::And),
            ("or", BitOperation::Or),
            ("xor", BitOperation::Xor),
            ("not", BitOperation::Not),
        ];
        let own = all.into_iter().find(|(word, _)| is(arg, word));
        own.map(|(_, operation)| operation)
    }

    /// Combines a result so far with one more value, which is at most as long and has zeros behind it.
    fn combine(self, result: &mut [u8], value: &[u8]) {
        let (both, rest) = result.split_at_mut(value.len());
        let bytes = both.iter_mut().zip(value);
        match self {
            BitOperation::And => {
                bytes.for_each(|(byte, other)| *byte &= other);
                rest.fill(0);
            }
            BitOperation::Or => bytes.for_each(|(byte, other)| *byte |= other),
            BitOperation::Xor => bytes.for_each(|(byte, other)| *byte ^= other),
            BitOperation::Not => bytes.for_each(|(byte, other)| *byte = !other),
        }
    }
}

fn bitop(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let operation = BitOperation::parse(args.at(1)).ok_or(Refusal::Syntax)?;
    let (to, sources) = (args.at(2), args.from(3));
    if operation == BitOperation::Not && sources.len() != 1 {
        return Err(Refusal::Text("ERR BITOP NOT must be called with a single source key.").into());
    }
    let values = sources.iter().map(|key| set.string(key));
    let values: Vec<&[u8]> = values.collect::<Result<_, _>>().map_err(Refusal::Failed)?;
    let length = values.iter().map(|value| value.len()).max();
    let mut result = values.first().copied().unwrap_or_default().to_vec();
    result.resize(length.unwrap_or(0), 0);
    // The first value is combined with itself only by NOT.
    let others = values
        .iter()
        .skip(usize::from(operation != BitOperation::Not));
    others.for_each(|value| operation.combine(&mut result, value));
    let length = result.len();
    let new = (length > 0).then(|| WorkingValue::string(result, None));
    let event = match new {
        Some(_) => KeyEvent::Set,
        None => KeyEvent::Del,
    };
    let done = match new.is_some() || set.value(to).is_some() {
        true => set.set(to, new).map(|()| set.note(to, event)),
        false => Ok(()),
    };
    match done {
        Ok(()) => writer.int(length as i64),
        Err(error) => write_op_error(error, "bitop", writer),
    }
    Ok(())
}
