//! Commands on HyperLogLogs.

use base::key_event::KeyEvent;
use base::nested::{NestedItem, NestedReply};
use base::transaction::{CallError, Kind, OpError, Reply};
use smallvec::smallvec;

use crate::call::{
    CallArguments, CallOutcome, StoredBlock, StoredValue, ValueChange, W, bytes_of, calls,
};
pub use crate::hyper_log_log::LONGEST_SPARSE;
use crate::hyper_log_log::{self, HyperLogLogEditor, HyperLogLogView, Registers};

calls! {
    PFADD = 1536 | W => pfadd;
    PFCOUNT = 1537 | W => pfcount;
    PFDEBUG_GETREG = 1538 | W => pfdebug_getreg;
    PFDEBUG_DECODE = 1539 => pfdebug_decode;
    PFDEBUG_ENCODING = 1540 => pfdebug_encoding;
    PFDEBUG_TODENSE = 1541 | W => pfdebug_todense;
}

/// The number of elements of the self test.
const SELF_TEST: u64 = 1 << 16;

/// Returns the HyperLogLog of a key; `None`: the key is absent.
fn view_of(value: Option<StoredValue<'_>>) -> Result<Option<HyperLogLogView<'_>>, OpError> {
    let is_there = value.is_some();
    let bytes = bytes_of(value, Kind::String)?;
    is_there.then(|| HyperLogLogView::new(bytes)).transpose()
}

/// Returns the outcome after which the key has this HyperLogLog.
fn changed<'v>(
    reply: Reply<'v>,
    event: KeyEvent,
    editor: HyperLogLogEditor<'_>,
) -> CallOutcome<'v> {
    CallOutcome {
        reply,
        change: ValueChange::Set(Kind::String, editor.into_bytes()),
        events: smallvec![event],
    }
}

/// `PFADD key [element …]`.
fn pfadd<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let view = view_of(value)?;
    let mut editor = HyperLogLogEditor::of(view);
    let mut is_changed = view.is_none();
    for element in call.args {
        is_changed |= editor.add(element)?;
    }
    if !is_changed {
        return Ok(CallOutcome::unchanged(Reply::Int(0)));
    }
    editor.invalidate();
    Ok(changed(Reply::Int(1), KeyEvent::PfAdd, editor))
}

/// `PFCOUNT key`: keeps the estimate in the value.
fn pfcount<'v>(
    _: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let Some(view) = view_of(value)? else {
        return Ok(CallOutcome::unchanged(Reply::Int(0)));
    };
    if let Some(estimate) = view.estimate() {
        return Ok(CallOutcome::unchanged(Reply::Int(estimate as i64)));
    }
    let estimate = hyper_log_log::estimate(view.registers()?.as_ref());
    let mut editor = HyperLogLogEditor::of(Some(view));
    editor.set_estimate(estimate);
    Ok(changed(
        Reply::Int(estimate as i64),
        KeyEvent::Unannounced,
        editor,
    ))
}

/// Returns the HyperLogLog of a key that must be there.
fn debugged(value: Option<StoredValue<'_>>) -> Result<HyperLogLogView<'_>, OpError> {
    view_of(value)?.ok_or(OpError::Call(CallError::AbsentKey))
}

/// `PFDEBUG GETREG key`.
fn pfdebug_getreg<'v>(
    _: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let view = debugged(value)?;
    let registers = view.registers()?;
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(registers.len()));
    let numbers = registers
        .iter()
        .map(|value| NestedItem::Int((*value).into()));
    numbers.for_each(|number| reply.push(number));
    let reply = Reply::Nested(reply);
    if view.is_dense() {
        return Ok(CallOutcome::unchanged(reply));
    }
    let mut editor = HyperLogLogEditor::of(Some(view));
    editor.become_dense()?;
    Ok(changed(reply, KeyEvent::Unannounced, editor))
}

/// `PFDEBUG DECODE key`.
fn pfdebug_decode<'v>(
    _: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let view = debugged(value)?;
    if view.is_dense() {
        return Err(OpError::Call(CallError::NotSparse));
    }
    let runs = view.runs().map(|run| match (run.value, run.bytes) {
        (0, 1) => format!("z:{}", run.registers),
        (0, _) => format!("Z:{}", run.registers),
        (value, _) => format!("v:{value},{}", run.registers),
    });
    let text = runs.collect::<Vec<_>>().join(" ");
    let mut reply = NestedReply::default();
    reply.bytes(text.as_bytes());
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// `PFDEBUG ENCODING key`.
fn pfdebug_encoding<'v>(
    _: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let is_dense = debugged(value)?.is_dense();
    Ok(CallOutcome::unchanged(Reply::Int(is_dense.into())))
}

/// `PFDEBUG TODENSE key`.
fn pfdebug_todense<'v>(
    _: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let view = debugged(value)?;
    if view.is_dense() {
        return Ok(CallOutcome::unchanged(Reply::Int(0)));
    }
    let mut editor = HyperLogLogEditor::of(Some(view));
    editor.become_dense()?;
    Ok(changed(Reply::Int(1), KeyEvent::Unannounced, editor))
}

/// Returns the estimate of the number of different elements in all of these values.
///
/// # Errors
/// One of them is no HyperLogLog, or is damaged.
pub fn count_all<'v>(
    values: impl Iterator<Item = Option<StoredBlock<'v>>>,
) -> Result<u64, OpError> {
    let (registers, _) = merged(values)?;
    Ok(hyper_log_log::estimate(&registers))
}

/// Returns the HyperLogLog of the elements of all of these values, of which the first one is raised to the others.
///
/// # Errors
/// As [`count_all`].
pub fn merge(values: &[Option<StoredBlock<'_>>]) -> Result<Vec<u8>, OpError> {
    let (registers, is_dense) = merged(values.iter().copied())?;
    let first = values.first().copied().flatten();
    let mut editor = HyperLogLogEditor::of(view_of(first.map(Into::into))?);
    if is_dense {
        editor.become_dense()?;
    }
    for (register, value) in registers
        .iter()
        .enumerate()
        .filter(|(_, value)| **value > 0)
    {
        editor.raise(register, *value)?;
    }
    editor.invalidate();
    Ok(editor.into_bytes())
}

/// Checks HyperLogLogs: both encodings estimate numbers of elements, and the same ones.
///
/// # Errors
/// Returns a description of the fault.
pub fn self_test() -> Result<(), String> {
    let mut sparse = HyperLogLogEditor::of(None);
    let mut dense = HyperLogLogEditor::of(None);
    let failed = |error: OpError| error.to_string();
    dense.become_dense().map_err(failed)?;
    let mut next_check = 1u64;
    for element in 1..=SELF_TEST {
        let bytes = element.to_le_bytes();
        let added = (sparse.add(&bytes), dense.add(&bytes));
        if added.0 != added.1 {
            return Err(format!("element {element} was added: {added:?}"));
        }
        if element < next_check {
            continue;
        }
        next_check *= 2;
        let registers = sparse.view().registers().map_err(failed)?;
        if registers != dense.view().registers().map_err(failed)? {
            return Err(format!("the encodings differ after {element} elements"));
        }
        let estimate = hyper_log_log::estimate(&registers);
        // Four times the standard error of so many registers, and some for small numbers.
        let most = element / 30 + 2;
        if estimate.abs_diff(element) > most {
            return Err(format!("{estimate} is estimated for {element} elements"));
        }
    }
    Ok(())
}

/// Returns the greatest registers of all of these values, and `true` if one is dense.
fn merged<'v>(
    values: impl Iterator<Item = Option<StoredBlock<'v>>>,
) -> Result<(Box<Registers>, bool), OpError> {
    let mut registers = Box::new([0; hyper_log_log::REGISTERS]);
    let mut is_dense = false;
    for value in values {
        if let Some(view) = view_of(value.map(Into::into))? {
            is_dense |= view.is_dense();
            view.merge_into(&mut registers)?;
        }
    }
    Ok((registers, is_dense))
}
