//! A command that reads very many keys by their names (`MGET`, `EXISTS`, `TOUCH`): it reads them from a
//! snapshot, in slices between which other connections get their turns.
//!
//! The snapshot shows everything that had committed when the command began, so that the command takes
//! effect at that moment, as one transaction that reads would. In a cluster another node may know that a transaction
//! has committed which is only prepared in the snapshot: if it writes one of the keys, the command waits for its end,
//! and begins again.

use std::collections::HashMap;

use base::transaction::{Holder, Kind};
use resp::{Args, Protocol, Writer};
use store::Snapshot;

use crate::command::CommandDefinition;
use crate::command_call::CommandCall;
use crate::limits::{SLICE_BYTES, SLICE_KEYS};
use crate::partition::{Partition, Worker};
use crate::runtime_context::Lookups;

/// A command with fewer arguments is executed as one transaction of the partition: that is faster.
pub(crate) const MANY_ARGUMENTS: usize = 10_000;

/// See the module's description.
pub(crate) struct KeyLookup {
    /// The command; its keys are as they are stored.
    call: CommandCall,
    snapshot: Snapshot,
    prepared: PreparedWrites,
    /// The argument that is looked up next.
    next: usize,
    found: u64,
    /// The values, as RESP; empty if only their number is asked for.
    values: Vec<u8>,
}

impl KeyLookup {
    /// Returns `true` if a command of this name can run as a lookup.
    pub(crate) fn serves(command: &str) -> bool {
        matches!(command, "mget" | "exists" | "touch")
    }

    /// Begins to look up the arguments of a command, in a database.
    pub(crate) fn new(
        partition: &Partition,
        worker: &mut Worker,
        (command, args): (&'static CommandDefinition, Args<'_>),
        database: u16,
    ) -> KeyLookup {
        let (snapshot, namespace) = partition.snapshot_of(database);
        let call = CommandCall::qualified(command, args, namespace);
        KeyLookup {
            call: call.unwrap_or_else(|| CommandCall::new(command, args)),
            prepared: PreparedWrites::of(worker.prepared_in(&snapshot)),
            snapshot,
            next: 1,
            found: 0,
            values: Vec::new(),
        }
    }

    /// Returns the newest epoch in the view.
    pub(crate) fn epoch(&self) -> base::Epoch {
        self.snapshot.epoch()
    }

    /// Returns the memory that it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.call.size() + self.values.capacity()
    }

    /// Returns a transaction that is prepared in the snapshot and writes one of the keys of the next slice.
    pub(crate) fn waits_for(&self) -> Option<Holder> {
        let keys = self.call.args().range(self.next..self.next + SLICE_KEYS);
        self.prepared.writer_of(keys)
    }

    /// Returns the command as its client has given it.
    pub(crate) fn call_of_client(&self) -> CommandCall {
        self.call.for_client()
    }

    /// Looks up the next slice of keys. Returns `true` if that was the last one.
    pub(crate) fn step(
        &mut self,
        worker: &mut Worker,
        protocol: Protocol,
        lookups: &Lookups,
    ) -> bool {
        let args = self.call.args();
        let (end, room) = (self.next + SLICE_KEYS, self.values.len() + SLICE_BYTES);
        let (takes_values, values) = (self.takes_values(), &mut self.values);
        while self.next < args.len().min(end) && values.len() < room {
            let found = worker.read_snapshot(&self.snapshot, args.at(self.next), &mut |entry| {
                let mut writer = Writer::new(values, protocol);
                match entry.kind {
                    _ if !takes_values => {}
                    Kind::String => writer.bulk(&entry.value.bytes()),
                    _ => writer.null(),
                }
            });
            if takes_values && !found {
                Writer::new(values, protocol).null();
            }
            lookups.count(found);
            self.found += u64::from(found);
            self.next += 1;
        }
        self.next == args.len()
    }

    fn takes_values(&self) -> bool {
        self.call.command.name == "mget"
    }

    /// Returns the length of the reply so far, in bytes.
    pub(crate) fn reply_bytes(&self) -> usize {
        self.values.len()
    }

    /// Writes the reply.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        if self.takes_values() {
            writer.array(self.call.args().len() - 1);
            writer.raw(&self.values);
        } else {
            writer.int(self.found as i64);
        }
    }
}

/// The keys that transactions write which are prepared in a snapshot.
#[derive(Default)]
struct PreparedWrites {
    keys: HashMap<Vec<u8>, Holder>,
    /// A transaction that flushes all keys.
    all: Option<Holder>,
}

impl PreparedWrites {
    fn of(prepared: Vec<(Holder, Option<Vec<Vec<u8>>>)>) -> PreparedWrites {
        let mut writes = PreparedWrites::default();
        for (holder, keys) in prepared {
            match keys {
                Some(keys) => writes
                    .keys
                    .extend(keys.into_iter().map(|key| (key, holder))),
                None => writes.all = Some(holder),
            }
        }
        writes
    }

    fn writer_of(&self, keys: Args<'_>) -> Option<Holder> {
        match self.keys.is_empty() {
            true => self.all,
            false => self
                .all
                .or_else(|| keys.iter().find_map(|key| self.keys.get(key).copied())),
        }
    }
}
