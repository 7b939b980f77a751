//! A command that reads very many keys by their names (`MGET`, `EXISTS`, `TOUCH`): it reads them from a
//! snapshot, in slices between which other connections get their turns.
//!
//! The snapshot shows everything that had committed when the command began, so that the command takes
//! effect at that moment, as one transaction that reads would.

use base::transaction::Kind;
use resp::{Protocol, Writer};
use store::Snapshot;

use crate::command_call::CommandCall;
use crate::limits::{SLICE_BYTES, SLICE_KEYS};
use crate::partition::{Partition, Worker};
use crate::runtime_context::Lookups;

/// A command with fewer arguments is executed as one transaction of the partition: that is faster.
pub(crate) const MANY_ARGUMENTS: usize = 10_000;

/// See the module's description.
pub(crate) struct KeyLookup {
    call: CommandCall,
    snapshot: Snapshot,
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

    /// Begins to look up the arguments of a command.
    pub(crate) fn new(partition: &Partition, call: CommandCall) -> KeyLookup {
        KeyLookup {
            call,
            snapshot: partition.snapshot(),
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
        CommandCall::size_of(self.call.args()) + self.values.capacity()
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
