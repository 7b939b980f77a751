//! Decoding of entries.

use base::change::{Origin, SYSTEM_GENERATION, siblings};
use base::database;
use base::transaction::Kind;
use base::{Change, Epoch, Tid, Timestamp, TransactionId};

use super::{DELETE, EDIT, ELEMENTS, Entry, FLUSH, NEVER, OLD_ORIGIN, ORIGIN, PUT, PUT_DEADLINE};
use crate::checkpoint::CheckpointView;

/// Passes every entry of a payload to `apply`, and returns their number.
///
/// # Errors
/// Returns the offset of the malformed entry within the payload, and a description of the error.
pub(crate) fn decode(
    payload: &[u8],
    epoch: Epoch,
    stamp_ms: u64,
    mut apply: impl FnMut(Entry<'_>),
) -> Result<u64, (usize, &'static str)> {
    let mut rest = RemainingPayload { bytes: payload };
    let mut total = 0;
    while !rest.bytes.is_empty() {
        let at = payload.len() - rest.bytes.len();
        let mut transaction = || -> Result<u64, &'static str> {
            let tid = Tid::from_bits(rest.u64()?);
            if tid.epoch() != epoch {
                return Err("a transaction of another epoch than its block's");
            }
            let entries = rest.u32()?;
            if entries == 0 {
                return Err("a transaction without entries");
            }
            let mut origin = None;
            for _ in 0..entries {
                let change = rest.change(&mut origin)?;
                apply(Entry {
                    tid,
                    stamp_ms,
                    change,
                });
            }
            Ok(u64::from(entries))
        };
        total += transaction().map_err(|what| (at, what))?;
    }
    Ok(total)
}

/// Passes every key of a checkpoint's block to `apply`, and returns their number. All are of
/// `view`, or system records, or keys of databases that have generations of their own.
///
/// # Errors
/// Returns the offset of the malformed entry within the payload, and a description of the error.
pub(crate) fn decode_keys(
    payload: &[u8],
    view: &CheckpointView,
    mut apply: impl FnMut(Entry<'_>),
) -> Result<u64, (usize, &'static str)> {
    let mut rest = RemainingPayload { bytes: payload };
    let mut total = 0;
    while !rest.bytes.is_empty() {
        let at = payload.len() - rest.bytes.len();
        let mut key = || -> Result<(), &'static str> {
            let tid = Tid::from_bits(rest.u64()?);
            let change = rest.change(&mut None)?;
            match change {
                _ if tid.epoch() > view.epoch => Err("a key of a later epoch than the checkpoint"),
                Change::Put {
                    key, generation, ..
                } if generation == view.generation
                    || generation == SYSTEM_GENERATION
                    || database::split(key).is_some() =>
                {
                    let stamp_ms = view.stamp_ms;
                    apply(Entry {
                        tid,
                        stamp_ms,
                        change,
                    });
                    Ok(())
                }
                _ => Err("an entry that is no visible key"),
            }
        };
        key().map_err(|what| (at, what))?;
        total += 1;
    }
    Ok(total)
}

/// Reads entries of [`write_changes`](super::write_changes). It ends behind the last one, or with the
/// first that is malformed.
#[derive(Clone, Debug)]
pub struct ChangeReader<'a> {
    rest: RemainingPayload<'a>,
    len: usize,
    origin: Option<Origin<'a>>,
}

impl<'a> ChangeReader<'a> {
    /// Returns a reader at the first entry.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> ChangeReader<'a> {
        ChangeReader {
            rest: RemainingPayload { bytes },
            len: bytes.len(),
            origin: None,
        }
    }

    /// Returns the bytes that have not been read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest.bytes
    }
}

impl<'a> Iterator for ChangeReader<'a> {
    /// A change, or the offset of a malformed entry and a description of the error.
    type Item = Result<Change<'a>, (usize, &'static str)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.bytes.is_empty() {
            return None;
        }
        let at = self.len - self.rest.bytes.len();
        let change = self.rest.change(&mut self.origin);
        if change.is_err() {
            self.rest.bytes = &[];
        }
        let change = match change {
            Ok(Change::Edit { .. }) => Err("an edit, which only a journal's logs have"),
            other => other,
        };
        Some(change.map_err(|what| (at, what)))
    }
}

/// The rest of a payload.
#[derive(Clone, Debug)]
struct RemainingPayload<'a> {
    bytes: &'a [u8],
}

impl<'a> RemainingPayload<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(n)
            .ok_or("an entry ends too early")?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (taken, rest) = self
            .bytes
            .split_first_chunk()
            .ok_or("an entry ends too early")?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, &'static str> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, &'static str> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads the next change, which has the origin before it, or else `origin`.
    fn change(&mut self, origin: &mut Option<Origin<'a>>) -> Result<Change<'a>, &'static str> {
        let [mut tag] = self.array()?;
        if [ORIGIN, OLD_ORIGIN].contains(&tag) {
            *origin = self.origin(tag)?;
            [tag] = self.array()?;
        }
        let origin = *origin;
        match tag {
            PUT | PUT_DEADLINE => {
                let [kind] = self.array()?;
                let kind = Kind::from_u8(kind).ok_or("a value of unknown type")?;
                let generation = self.u16()?;
                let (key, value) = (self.u32()? as usize, self.u32()? as usize);
                let deadline = if tag == PUT_DEADLINE {
                    Some(self.u64()?)
                } else {
                    None
                };
                let (key, value) = (self.take(key)?, self.take(value)?);
                Ok(Change::Put {
                    key,
                    value,
                    kind,
                    generation,
                    deadline,
                    origin,
                })
            }
            EDIT if origin.is_some() => Err("an edit with an origin"),
            EDIT => {
                let key = self.u32()? as usize;
                let base = Tid::from_bits(self.u64()?);
                let (offset, length) = (self.u32()? as usize, self.u32()? as usize);
                Ok(Change::Edit {
                    key: self.take(key)?,
                    base,
                    offset,
                    bytes: self.take(length)?,
                })
            }
            ELEMENTS if origin.is_some() => Err("elements with an origin"),
            ELEMENTS => {
                let key = self.u32()? as usize;
                let (base, deadline) = (Tid::from_bits(self.u64()?), self.u64()?);
                let length = self.u32()? as usize;
                Ok(Change::Elements {
                    key: self.take(key)?,
                    base,
                    deadline: (deadline != NEVER).then_some(deadline),
                    changes: self.take(length)?,
                })
            }
            DELETE => {
                let key = self.u32()? as usize;
                Ok(Change::Delete {
                    key: self.take(key)?,
                    origin,
                })
            }
            FLUSH => Ok(Change::Flush {
                generation: self.u16()?,
            }),
            ORIGIN | OLD_ORIGIN => Err("an origin behind an origin"),
            _ => Err("an entry of unknown kind"),
        }
    }

    fn origin(&mut self, tag: u8) -> Result<Option<Origin<'a>>, &'static str> {
        let id = TransactionId {
            timestamp: Timestamp(self.u64()?),
            unique: if tag == ORIGIN { self.u64()? } else { 0 },
        };
        let length = self.u32()? as usize;
        let siblings = self.take(length)?;
        if id == TransactionId::ZERO {
            let none = siblings.is_empty().then_some(None);
            return none.ok_or("siblings without an id");
        }
        if siblings::read(siblings).is_none() {
            return Err("the siblings are malformed");
        }
        Ok(Some(Origin { id, siblings }))
    }
}
