//! The keys that a transaction in several steps has read and written, as it sees them.
//!
//! | part | from |
//! |---|---|
//! | a key's version, value and deadline | the partition, before the first operation that depends on them |
//! | its later values and deadlines | the transaction's own operations, which are executed here |
//!
//! Operations answer here as they answer in a partition, so that a command has one plan for each way in
//! which it can run.
//!
//! Invariants:
//! 1. A key is read once. [`WorkingSet::commit_ops`] checks that it still has the version that was read
//!    then, for every key that was read: so the transaction takes effect as of its commit, or not at all.
//! 2. The time stands still.
//! 3. A walk over keys sees the transaction's own writes, but nothing checks that others have added no
//!    key to what it walked over.

mod flushed_databases;
mod libraries;
mod reads;

use std::collections::BTreeMap;

use base::database;
use base::eviction::KeyAccess;
use base::key_event::KeyEvent;
use base::limits::{Limits, RESERVED};
use base::number::{add_decimal, parse_int};
use base::partition::OwnedReply;
use base::transaction::{Expiry, Kind, ScanContents, ValueCall, When, byte_range};
use base::{Op, OpError, Version};
use hashbrown::HashMap;
use smallvec::SmallVec;
use values::{StoredBlock, ValueChange};

use flushed_databases::FlushedDatabases;
pub(crate) use libraries::WorkingLibraries;
use reads::Operations;
pub(crate) use reads::{Need, ReadAnswers, WorkingValue};

/// A set that is used again keeps room for so many keys.
const KEPT: usize = 1024;
/// The memory of a key besides its bytes and those of its value.
const KEY_BYTES: usize = 128;

/// See the module's description.
pub(crate) struct WorkingSet {
    keys: HashMap<Box<[u8]>, WorkingKey>,
    /// The databases of which the transaction has deleted all keys.
    flushed: FlushedDatabases,
    /// Milliseconds since the Unix epoch.
    time_ms: u64,
    /// The longest value, in bytes.
    longest: usize,
    /// The number of databases.
    databases: u16,
    bytes: usize,
    /// The answer of the partition to an operation on no single key, for the next such operation.
    answer: Option<OwnedReply>,
    /// `true` if the events of keys are noted.
    notes_events: bool,
    events: Vec<(Box<[u8]>, KeyEvent)>,
    /// How keys were used that were restored.
    accesses: Vec<(Box<[u8]>, KeyAccess)>,
    /// The number of times that a key was set or deleted.
    changes: u64,
    pub(crate) libraries: WorkingLibraries,
}

/// A key, as the transaction sees it.
#[derive(Default)]
struct WorkingKey {
    /// The version that was read; `None`: it was written without being read.
    seen: Option<Version>,
    /// `true` if the partition had it.
    was_present: bool,
    value: Option<WorkingValue>,
    changed: bool,
}

/// A precondition of an operation is not met.
pub(crate) struct Unmet;

impl WorkingKey {
    /// Deletes it because its database is flushed.
    fn flush(&mut self) {
        self.value = None;
        self.changed = true;
    }
}

impl WorkingSet {
    /// Creates the set of a transaction that begins at `time_ms` since the Unix epoch; values have at most
    /// `longest` bytes, and there are so many databases.
    pub(crate) fn new(longest: usize, databases: u16, time_ms: u64) -> WorkingSet {
        WorkingSet {
            keys: HashMap::new(),
            flushed: FlushedDatabases::default(),
            time_ms,
            longest,
            databases,
            bytes: 0,
            answer: None,
            notes_events: false,
            events: Vec::new(),
            accesses: Vec::new(),
            changes: 0,
            libraries: WorkingLibraries::default(),
        }
    }

    /// Empties it, for a run that begins at `time_ms` since the Unix epoch.
    pub(crate) fn begin(&mut self, time_ms: u64) {
        self.keys.clear();
        self.keys.shrink_to(KEPT);
        self.flushed = FlushedDatabases::default();
        self.time_ms = time_ms;
        self.bytes = 0;
        self.answer = None;
        self.libraries.begin();
        self.events.clear();
        self.accesses.clear();
    }

    /// Has the events of keys noted from now on, or not.
    pub(crate) fn note_events(&mut self, notes: bool) {
        self.notes_events = notes;
    }

    /// Notes an event of a key, if events are noted.
    pub(crate) fn note(&mut self, key: &[u8], event: KeyEvent) {
        if self.notes_events {
            self.bytes += key.len() + KEY_BYTES;
            self.events.push((key.into(), event));
        }
    }

    /// Notes how a key was used that was restored.
    pub(crate) fn note_access(&mut self, key: &[u8], access: Option<KeyAccess>) {
        if let Some(access) = access {
            self.bytes += key.len() + KEY_BYTES;
            self.accesses.push((key.into(), access));
        }
    }

    /// Returns the memory that it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the transaction's time in milliseconds since the Unix epoch.
    pub(crate) fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Returns the length of the longest value that a key may have, in bytes.
    pub(crate) fn longest_value(&self) -> usize {
        self.longest
    }

    /// Returns the number of databases.
    pub(crate) fn databases(&self) -> u16 {
        self.databases
    }

    /// Returns the reads that these operations still need, or `None` if they can be executed.
    pub(crate) fn need(&self, ops: &[Op<'_>]) -> Option<Need> {
        let mut missing: SmallVec<[Box<[u8]>; 2]> = SmallVec::new();
        for op in ops {
            match *op {
                Op::Count { database } if !self.flushed.has(database) && self.answer.is_none() => {
                    let unread = self.unread(database);
                    return Some(unread.map_or(Need::Count { database }, Need::Keys));
                }
                Op::Scan {
                    from,
                    to,
                    limit,
                    contents,
                } if !self.flushed.has(database::number(from)) && self.answer.is_none() => {
                    // As many more as the transaction has deleted.
                    let deleted = self.keys_of(database::number(from));
                    let deleted = deleted.filter(|(_, key)| key.value.is_none());
                    return Some(Need::Scan {
                        from: from.into(),
                        to: to.map(Into::into),
                        limit: limit.saturating_add(deleted.count()),
                        contents,
                    });
                }
                _ => {}
            }
            if let Some(key) = op.key()
                && !is_blind(op)
                && !self.knows(key)
            {
                missing.push(key.into());
            }
        }
        (!missing.is_empty()).then_some(Need::Keys(missing))
    }

    /// Checks that these keys can be used.
    ///
    /// # Errors
    /// Returns the reads that are needed first.
    pub(crate) fn require<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Result<(), Need> {
        let ops: Operations<'_> = keys.map(|key| Op::Get { key }).collect();
        self.need(&ops).map_or(Ok(()), Err)
    }

    /// Adds the answers to what was needed.
    pub(crate) fn add(&mut self, need: Need, answers: ReadAnswers) {
        let (keys, answers) = match (need, answers) {
            (Need::Keys(keys), ReadAnswers::Keys(answers)) => (keys, answers),
            (need, ReadAnswers::Other(answer)) => {
                self.answer = Some(need.answer(answer));
                return;
            }
            (need, ReadAnswers::Keys(_)) => unreachable!("answers of another kind to {need:?}"),
        };
        for (key, (version, value)) in keys.into_iter().zip(answers) {
            let length = value.as_ref().map_or(0, |value| value.bytes.len());
            self.bytes += key.len() + KEY_BYTES + length;
            // One that is needed twice has the same answers twice.
            let own = self.keys.entry(key).or_default();
            own.seen = Some(version);
            own.was_present = value.is_some();
            if !own.changed {
                own.value = value;
            }
        }
    }

    /// Removes the answer to [`Need::Libraries`], if it has come.
    pub(crate) fn take_answer(&mut self) -> Option<OwnedReply> {
        self.answer.take()
    }

    /// Returns the value of a key that was read or written.
    pub(crate) fn value(&self, key: &[u8]) -> Option<&WorkingValue> {
        self.keys.get(key)?.value.as_ref()
    }

    /// Returns the value of a key that was read or written, as commands on collections get it.
    pub(crate) fn stored(&self, key: &[u8]) -> Option<StoredBlock<'_>> {
        let own = self.value(key)?;
        Some(StoredBlock {
            kind: own.kind,
            bytes: &own.bytes,
        })
    }

    /// Returns the value of a key that was read or written, which must be a string; an empty one for an absent
    /// key.
    ///
    /// # Errors
    /// [`OpError::WrongType`]: it has another type.
    pub(crate) fn string(&self, key: &[u8]) -> Result<&[u8], OpError> {
        match self.value(key) {
            Some(value) if value.kind != Kind::String => Err(OpError::WrongType),
            value => Ok(value.map_or(&[], |value| &value.bytes)),
        }
    }

    /// Sets or deletes a key. The caller notes its event.
    ///
    /// # Errors
    /// [`OpError::TooLong`]: the key or the value is longer than the limits allow.
    /// [`OpError::Reserved`]: the key is one of the store's own.
    pub(crate) fn set(&mut self, key: &[u8], value: Option<WorkingValue>) -> Result<(), OpError> {
        let length = value.as_ref().map_or(0, |value| value.bytes.len());
        let own_key = database::client_key(key);
        if value.is_some() && (own_key.len() > Limits::MAX_KEY || length > self.longest) {
            return Err(OpError::TooLong);
        }
        if value.is_some() && key.starts_with(&RESERVED) && database::number(key) == 0 {
            return Err(OpError::Reserved);
        }
        let now = self.time_ms();
        let value = value.filter(|value| value.deadline.is_none_or(|at| at > now));
        if !self.keys.contains_key(key) {
            self.bytes += key.len() + KEY_BYTES;
            self.keys.insert(key.into(), WorkingKey::default());
        }
        let own = self.keys.get_mut(key).expect("it was just added");
        let before = own.value.as_ref().map_or(0, |value| value.bytes.len());
        self.bytes = (self.bytes + length).saturating_sub(before);
        own.value = value;
        own.changed = true;
        self.changes += 1;
        Ok(())
    }

    /// Executes an operation, for which [`WorkingSet::need`] needs nothing more.
    ///
    /// # Errors
    /// Its precondition is not met; nothing has changed.
    pub(crate) fn execute(&mut self, op: &Op<'_>) -> Result<OwnedReply, Unmet> {
        if let Op::Require { key, present } = *op {
            let is_met = self.value(key).is_some() == present;
            return is_met.then_some(OwnedReply::Ok).ok_or(Unmet);
        }
        Ok(match op.key() {
            Some(key) => {
                let changes = self.changes;
                let reply = self.execute_on(key, op);
                if self.notes_events && self.changes != changes {
                    let events = op.events(self.value(key).is_none());
                    let events = events.into_iter().flatten();
                    events.for_each(|event| self.note(key, event));
                }
                reply.unwrap_or_else(OwnedReply::Error)
            }
            None => self.execute_keyless(op),
        })
    }

    /// Adds the operations that check what was read and write what was changed.
    pub(crate) fn add_commit_ops<'s>(&'s self, ops: &mut Operations<'s>) {
        for (key, own) in &self.keys {
            if let Some(version) = own.seen {
                ops.push(Op::Check { key, version });
            }
        }
        ops.extend(self.flushed.ops());
        for (key, own) in self.keys.iter().filter(|(_, own)| own.changed) {
            match &own.value {
                Some(value) => ops.push(Op::PutAny {
                    key,
                    kind: value.kind,
                    value: &value.bytes,
                    expiry: value.deadline.map_or(Expiry::Never, |at| {
                        Expiry::AtMs(i64::try_from(at).unwrap_or(i64::MAX))
                    }),
                }),
                None if self.flushed.has(database::number(key)) => {}
                None => {
                    // A key that came and went has changed, for those who watch it.
                    let came = (!own.was_present).then(|| Op::put(key, b""));
                    ops.extend(came);
                    ops.push(Op::Delete { key });
                }
            }
        }
    }

    /// Adds the operations that announce the events of keys, and that say how keys were used.
    pub(crate) fn add_events<'s>(&'s self, ops: &mut Operations<'s>) {
        let events = self.events.iter();
        ops.extend(events.map(|&(ref key, event)| Op::Announce { key, event }));
        let accesses = self.accesses.iter();
        ops.extend(accesses.map(|&(ref key, access)| Op::Access { key, access }));
    }

    /// Returns operations that read the keys that were read.
    pub(crate) fn read_ops(&self) -> Operations<'_> {
        let read = self.keys.iter().filter(|(_, own)| own.seen.is_some());
        read.map(|(key, _)| Op::Watch { key }).collect()
    }

    /// Returns `true` if it has changed nothing.
    pub(crate) fn only_reads(&self) -> bool {
        self.flushed.is_empty()
            && !self.libraries.are_changed()
            && self.keys.values().all(|own| !own.changed)
    }

    /// Returns `true` if the value of a key is known: it was read, or cannot be there.
    fn knows(&self, key: &[u8]) -> bool {
        let own = self.keys.get(key);
        self.flushed.has(database::number(key))
            || own.is_some_and(|own| own.seen.is_some() || own.changed)
    }

    /// Returns the keys of a database.
    fn keys_of(&self, database: u16) -> impl Iterator<Item = (&Box<[u8]>, &WorkingKey)> {
        let keys = self.keys.iter();
        keys.filter(move |(key, _)| database::number(key) == database)
    }

    /// Returns the keys of a database that were written without being read, if there are some.
    fn unread(&self, database: u16) -> Option<SmallVec<[Box<[u8]>; 2]>> {
        let unread = self.keys_of(database).filter(|(_, own)| own.seen.is_none());
        let keys: SmallVec<[Box<[u8]>; 2]> = unread.map(|(key, _)| key.clone()).collect();
        (!keys.is_empty()).then_some(keys)
    }

    fn execute_on(&mut self, key: &[u8], op: &Op<'_>) -> Result<OwnedReply, OpError> {
        let now = self.time_ms();
        let own = self.value(key);
        let deadline = own.and_then(|value| value.deadline);
        if let Op::Call { call, .. } = op {
            return self.call(key, call);
        }
        let bytes = match needs_string(op) {
            true => self.string(key)?,
            false => &[],
        };
        let int = |number: usize| Ok(OwnedReply::Int(number as i64));
        let shown = |own: Option<&WorkingValue>| {
            own.map_or(OwnedReply::Nil, |value| {
                OwnedReply::Bytes(value.bytes.clone())
            })
        };
        match *op {
            Op::Get { .. } => Ok(shown(own)),
            Op::GetIfString { .. } => Ok(shown(own.filter(|value| value.kind == Kind::String))),
            Op::GetAny { .. } | Op::Inspect { .. } => Ok(own.map_or(OwnedReply::Nil, |value| {
                OwnedReply::Value(value.kind, value.bytes.clone())
            })),
            Op::GetRange { start, end, .. } => {
                Ok(OwnedReply::Bytes(byte_range(bytes, start, end).to_vec()))
            }
            Op::Len { .. } => int(bytes.len()),
            Op::Exists { .. } => int(usize::from(own.is_some())),
            Op::KindOf { .. } => {
                Ok(own.map_or(OwnedReply::Nil, |value| OwnedReply::Kind(value.kind)))
            }
            Op::Access { access, .. } => Ok(access_reply(own.is_some(), access)),
            Op::ExpiryOf { .. } => Ok(own.map_or(OwnedReply::Nil, |value| {
                OwnedReply::Deadline(value.deadline)
            })),
            Op::Put {
                value,
                when,
                expiry,
                get,
                ..
            } => {
                let holds = match when {
                    When::Always => true,
                    When::Absent => own.is_none(),
                    When::Present => own.is_some(),
                };
                let reply = match (get, holds) {
                    (true, _) => shown(own),
                    (false, true) => OwnedReply::Ok,
                    (false, false) => OwnedReply::Nil,
                };
                if holds {
                    let deadline = expiry.deadline(now, deadline)?;
                    self.put(key, value.to_vec(), deadline)?;
                }
                Ok(reply)
            }
            Op::Delete { .. } | Op::GetDelete { .. } => {
                let (old, there) = (shown(own), own.is_some());
                if there {
                    self.set(key, None)?;
                }
                match op {
                    Op::GetDelete { .. } => Ok(old),
                    _ => int(usize::from(there)),
                }
            }
            Op::GetExpire { expiry, .. } => {
                let reply = shown(own);
                if own.is_some() && expiry != Expiry::Keep {
                    let new = expiry.deadline(now, None)?;
                    self.set_deadline(key, new)?;
                }
                Ok(reply)
            }
            Op::Expire { expiry, when, .. } => {
                if own.is_none() {
                    return int(0);
                }
                let new = expiry.deadline(now, deadline)?;
                let holds = when.allows(deadline, new);
                if holds {
                    self.set_deadline(key, new)?;
                }
                int(usize::from(holds))
            }
            Op::Persist { .. } => {
                if deadline.is_some() {
                    self.set_deadline(key, None)?;
                }
                int(usize::from(deadline.is_some()))
            }
            Op::Append { value, .. } => {
                let new = [bytes, value].concat();
                let length = new.len();
                self.put(key, new, deadline)?;
                int(length)
            }
            Op::SetRange { offset, value, .. } => {
                let end = offset.checked_add(value.len()).ok_or(OpError::TooLong)?;
                if value.is_empty() {
                    return int(bytes.len());
                }
                if end > self.longest {
                    return Err(OpError::TooLong);
                }
                let mut new = bytes.to_vec();
                new.resize(end.max(new.len()), 0);
                new[offset..end].copy_from_slice(value);
                let length = new.len();
                self.put(key, new, deadline)?;
                int(length)
            }
            Op::Add { delta, .. } => {
                let old = match own {
                    Some(_) => parse_int(bytes).ok_or(OpError::NotInteger)?,
                    None => 0,
                };
                let sum = old.checked_add(delta).ok_or(OpError::Overflow)?;
                self.put(key, sum.to_string().into_bytes(), deadline)?;
                Ok(OwnedReply::Int(sum))
            }
            Op::AddDecimal { delta, .. } => {
                let old = own.map_or(&b"0"[..], |_| bytes);
                let sum = add_decimal(old, delta)?.to_vec();
                self.put(key, sum.clone(), deadline)?;
                Ok(OwnedReply::Bytes(sum))
            }
            _ => unreachable!("no command plans {op:?} here"),
        }
    }

    fn execute_keyless(&mut self, op: &Op<'_>) -> OwnedReply {
        let answer = self.answer.take();
        match *op {
            Op::Flush => {
                self.flushed.add_all();
                self.keys.values_mut().for_each(WorkingKey::flush);
                OwnedReply::Ok
            }
            Op::FlushDatabase { database } => {
                self.flushed.add(database);
                let keys = self.keys.iter_mut();
                keys.filter(|(key, _)| database::number(key) == database)
                    .for_each(|(_, own)| own.flush());
                OwnedReply::Ok
            }
            Op::Count { database } => {
                let before = match answer {
                    Some(OwnedReply::Int(count)) => count,
                    _ => 0,
                };
                let is_flushed = self.flushed.has(database);
                let change = self.keys_of(database).map(|(_, own)| {
                    let was = own.was_present && !is_flushed;
                    i64::from(own.value.is_some()) - i64::from(was)
                });
                OwnedReply::Int(before + change.sum::<i64>())
            }
            Op::Scan {
                from,
                to,
                limit,
                contents,
            } => {
                let others = match answer {
                    Some(OwnedReply::Pairs(pairs)) => pairs,
                    _ => Vec::new(),
                };
                OwnedReply::Pairs(self.walk((from, to), limit, contents, others))
            }
            Op::Now => OwnedReply::Int(self.time_ms() as i64),
            // The commit has it among its operations.
            _ => OwnedReply::Ok,
        }
    }

    /// Returns the keys of a walk: those of the partition, `others`, as the transaction has changed them.
    fn walk(
        &self,
        (from, to): (&[u8], Option<&[u8]>),
        limit: usize,
        contents: ScanContents,
        others: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut keys: BTreeMap<Vec<u8>, Vec<u8>> = others.into_iter().collect();
        let end = database::end_of(from);
        let to = to.unwrap_or(&end);
        let is_inside = |key: &[u8]| from <= key && key < to;
        for (key, own) in self.keys.iter().filter(|(key, _)| is_inside(key)) {
            match &own.value {
                Some(own) => {
                    let content = match contents {
                        ScanContents::Keys => b"",
                        ScanContents::Values => &own.bytes[..],
                        ScanContents::Kinds => own.kind.number_bytes(),
                    };
                    keys.insert(key.to_vec(), content.to_vec())
                }
                None => keys.remove(&key[..]),
            };
        }
        keys.into_iter().take(limit).collect()
    }

    fn put(&mut self, key: &[u8], bytes: Vec<u8>, deadline: Option<u64>) -> Result<(), OpError> {
        self.set(key, Some(WorkingValue::string(bytes, deadline)))
    }

    /// Executes a command on a collection, of a key that was read or written.
    ///
    /// # Errors
    /// Returns the reason why it failed; nothing has changed.
    pub(crate) fn call(&mut self, key: &[u8], call: &ValueCall<'_>) -> Result<OwnedReply, OpError> {
        let deadline = self.value(key).and_then(|value| value.deadline);
        let time_ms = self.time_ms();
        let outcome = values::execute(call, self.stored(key).map(Into::into), time_ms)?;
        let (reply, events) = (OwnedReply::from(&outcome.reply), outcome.events);
        let new = match outcome.change {
            ValueChange::None => return Ok(reply),
            ValueChange::Set(kind, bytes) => Some(WorkingValue {
                kind,
                bytes,
                deadline,
            }),
            ValueChange::Delete => None,
            ValueChange::Edited => unreachable!("the values here are bytes"),
        };
        self.set(key, new)?;
        events.iter().for_each(|event| self.note(key, *event));
        Ok(reply)
    }

    fn set_deadline(&mut self, key: &[u8], deadline: Option<u64>) -> Result<(), OpError> {
        let value = self.value(key).cloned();
        let value = value.map(|value| WorkingValue { deadline, ..value });
        self.set(key, value)
    }
}

/// Returns the reply of an operation on the use of a key, which is not known here.
fn access_reply(is_present: bool, access: KeyAccess) -> OwnedReply {
    match access {
        KeyAccess::Touch => OwnedReply::Int(i64::from(is_present)),
        _ if !is_present => OwnedReply::Nil,
        KeyAccess::IdleSeconds => OwnedReply::Int(KeyAccess::NO_LRU[1]),
        KeyAccess::Frequency => OwnedReply::Int(KeyAccess::NO_LFU),
        KeyAccess::SetIdleSeconds(_) | KeyAccess::SetFrequency(_) => OwnedReply::Ok,
    }
}

/// Returns `true` if an operation fails on a value that is no string.
fn needs_string(op: &Op<'_>) -> bool {
    match op {
        Op::Get { .. }
        | Op::GetRange { .. }
        | Op::Len { .. }
        | Op::GetDelete { .. }
        | Op::GetExpire { .. }
        | Op::Append { .. }
        | Op::SetRange { .. }
        | Op::Add { .. }
        | Op::AddDecimal { .. } => true,
        Op::Put { get, .. } => *get,
        _ => false,
    }
}

/// Returns `true` if an operation writes a key and depends on nothing that the key had before.
fn is_blind(op: &Op<'_>) -> bool {
    let depends = |when, expiry, get| when != When::Always || expiry == Expiry::Keep || get;
    matches!(op, Op::Put { when, expiry, get, .. } if !depends(*when, *expiry, *get))
}

#[cfg(test)]
mod tests;
