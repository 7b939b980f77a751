//! Registers as runs of equal ones.

use smallvec::SmallVec;

/// The longest runs.
const LONGEST_ZERO: usize = 64;
const LONGEST_VALUE: usize = 4;
/// The greatest value of a run.
const GREATEST: u8 = 32;
/// The runs that are searched for equal neighbours after a change.
const SEARCHED: usize = 5;

/// A run: so many registers with this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SparseRun {
    pub(crate) registers: usize,
    pub(crate) value: u8,
    /// The number of its bytes; of a run with the value 0, two if it is a long one.
    pub(crate) bytes: usize,
}

/// The bytes that are replaced, and where the search for equal neighbours begins.
pub(super) struct SparsePlace {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) search_from: usize,
}

/// What raising a register does.
pub(super) enum SparseChange {
    /// Nothing: it is as great already.
    None,
    /// Bytes are replaced by others.
    Replace(SparsePlace, SmallVec<[u8; 8]>),
    /// The registers must be encoded densely first.
    BecomeDense,
}

/// Reads a run; `None`: it is cut off, or there is none.
fn run(bytes: &[u8]) -> Option<SparseRun> {
    let first = *bytes.first()?;
    let (registers, value, bytes) = match first {
        0..=0x3f => (usize::from(first) + 1, 0, 1),
        0x40..=0x7f => {
            let length = usize::from(first & 0x3f) << 8 | usize::from(*bytes.get(1)?);
            (length + 1, 0, 2)
        }
        _ => (usize::from(first & 3) + 1, (first >> 2 & 0x1f) + 1, 1),
    };
    Some(SparseRun {
        registers,
        value,
        bytes,
    })
}

/// Returns all runs, up to one that is cut off.
pub(super) fn runs(mut bytes: &[u8]) -> impl Iterator<Item = SparseRun> {
    std::iter::from_fn(move || {
        let run = run(bytes)?;
        bytes = &bytes[run.bytes..];
        Some(run)
    })
}

/// Adds a run of registers with the value 0, if there are some.
pub(super) fn push_zeros(registers: usize, to: &mut impl Extend<u8>) {
    match registers {
        0 => {}
        1..=LONGEST_ZERO => to.extend([registers as u8 - 1]),
        _ => to.extend(((registers as u16 - 1) | 0x4000).to_be_bytes()),
    }
}

/// Adds a run of registers with this value, if there are some.
fn push_run(registers: usize, value: u8, to: &mut impl Extend<u8>) {
    match (registers, value) {
        (_, 0) => push_zeros(registers, to),
        (0, _) => {}
        _ => to.extend([0x80 | (value - 1) << 2 | (registers as u8 - 1)]),
    }
}

/// Returns how a register is raised to a value; all runs may have `longest` bytes. `None`: there is no run with
/// this register.
pub(super) fn raise(
    bytes: &[u8],
    register: usize,
    value: u8,
    longest: usize,
) -> Option<SparseChange> {
    if value > GREATEST {
        return Some(SparseChange::BecomeDense);
    }
    // The beginnings of the run and of the one before it, and the first register of the run.
    let (mut at, mut before, mut first) = (0, None, 0);
    let own = loop {
        let own = run(&bytes[at..])?;
        if register < first + own.registers {
            break own;
        }
        (before, first) = (Some(at), first + own.registers);
        at += own.bytes;
    };
    if own.value >= value {
        return Some(SparseChange::None);
    }
    let mut new: SmallVec<[u8; 8]> = SmallVec::new();
    push_run(register - first, own.value, &mut new);
    push_run(1, value, &mut new);
    push_run(first + own.registers - register - 1, own.value, &mut new);
    let is_longer = new.len() > own.bytes;
    if is_longer && bytes.len() - own.bytes + new.len() > longest {
        return Some(SparseChange::BecomeDense);
    }
    let place = SparsePlace {
        start: at,
        end: at + own.bytes,
        search_from: before.unwrap_or(0),
    };
    Some(SparseChange::Replace(place, new))
}

/// Merges equal neighbours among the runs from a position on, as far as Redis looks for them.
pub(super) fn merge_equal(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..SEARCHED {
        let Some(own) = run(&bytes[at..]) else {
            return;
        };
        let behind = at + own.bytes;
        let next = run(&bytes[behind..]).filter(|next| next.value == own.value && own.value > 0);
        let registers = next.map_or(0, |next| own.registers + next.registers);
        if (1..=LONGEST_VALUE).contains(&registers) {
            let mut merged: SmallVec<[u8; 1]> = SmallVec::new();
            push_run(registers, own.value, &mut merged);
            drop(bytes.splice(at..behind + 1, merged));
        } else {
            at = behind;
        }
    }
}
