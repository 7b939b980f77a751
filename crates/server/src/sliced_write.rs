//! A write of very many keys: a command (`MSET`, `MSETNX`, `DEL`, `UNLINK`), or a `MULTI` block of very many commands.
//! It runs as a transaction in slices, between which other connections get their turns.
//!
//! The transaction holds the keys that it has come to. If it meets a key that another one holds, the older of the two
//! goes first: a younger one gives everything back, and begins again when the other has ended.

mod block;
mod command;

use std::time::Duration;

use base::transaction::Holder;
use base::{Abort, Epoch};
use resp::{Span, Writer};
use store::SlicedTransaction;

use crate::command_call::CommandCall;
use crate::limits::SLICE_KEYS;
use crate::partition::Worker;
use crate::runtime_context::RuntimeContext;

pub(crate) use self::block::BlockWrite;
pub(crate) use self::command::CommandWrite;

/// The writes that one slice of a commit prepares or publishes: each takes a fraction of an operation's time.
const SLICE_WRITES: usize = 4 * SLICE_KEYS;
/// The number of runs that find keys expired since they were read, before the write is refused.
const RUNS: u32 = 100;

/// See the module's description.
pub(crate) struct SlicedWrite {
    operations: WriteOperations,
    holder: Holder,
    /// `None` before it has begun, or begins again.
    sliced: Option<SlicedTransaction>,
    /// The reason why it gives everything back.
    abort: Option<Abort>,
    /// `true` if it does not begin again after that.
    is_over: bool,
    /// `true` if it is done and answered: nothing is left but its memory.
    is_answered: bool,
    runs: u32,
    /// How often holds had been given back before the last slice that was executed, and how often of those since are
    /// its own.
    releases: (u64, u64),
    /// When its time to wait is over, since the server's start; `None`: it has not waited yet.
    until: Option<Duration>,
}

/// Where the operations of a write come from.
pub(crate) enum WriteOperations {
    Command(CommandWrite),
    Block(BlockWrite),
}

/// What has become of a write after a slice.
pub(crate) enum SliceOutcome {
    /// There are more slices.
    Unfinished,
    /// It is done, and may be answered when this epoch is durable.
    Done(Epoch),
    /// Nothing has happened, for this reason, which shows data of this epoch.
    Refused(Abort, Epoch),
    /// It continues when this transaction has ended.
    Waits(Holder),
}

impl SlicedWrite {
    pub(crate) fn new(operations: WriteOperations, holder: Holder) -> SlicedWrite {
        SlicedWrite {
            operations,
            holder,
            sliced: None,
            abort: None,
            is_over: false,
            is_answered: false,
            runs: 0,
            releases: (0, 0),
            until: None,
        }
    }

    /// Returns `true` if it must get its request before it can begin.
    pub(crate) fn awaits_request(&self) -> bool {
        match &self.operations {
            WriteOperations::Command(command) => command.awaits_request(),
            WriteOperations::Block(_) => false,
        }
    }

    /// Takes the request of a command: bytes, and the places of the arguments among them.
    pub(crate) fn take_request(&mut self, bytes: Vec<u8>, spans: Vec<Span>) {
        if let WriteOperations::Command(command) = &mut self.operations {
            command.take_request(bytes, spans);
        }
    }

    /// Returns the memory that it takes besides that of its keys and values in the store, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let sliced = self.sliced.as_ref().map_or(0, SlicedTransaction::bytes);
        let operations = match &self.operations {
            WriteOperations::Command(command) => command.bytes(),
            WriteOperations::Block(block) => block.bytes(),
        };
        operations + sliced
    }

    /// Returns `true` if it has committed.
    pub(crate) fn has_committed(&self) -> bool {
        let sliced = self.sliced.as_ref();
        sliced.is_some_and(SlicedTransaction::has_committed)
    }

    /// Ends it for this reason, unless it has committed; [`SlicedWrite::step`] gives back what it holds.
    pub(crate) fn give_up(&mut self, abort: Abort) {
        if !self.has_committed() {
            self.is_over = true;
            self.begin_undo(abort);
        }
    }

    fn begin_undo(&mut self, abort: Abort) {
        self.abort = Some(abort);
        if let Some(sliced) = &mut self.sliced {
            sliced.begin_undo();
        }
    }

    /// Returns the count of releases with which it waits, and the end of its wait, which begins now or has begun
    /// before. With another count its holder may have ended already.
    pub(crate) fn wait(&mut self, now: Duration, longest: Duration) -> (u64, Duration) {
        let until = *self.until.get_or_insert(now + longest);
        (self.releases.0 + self.releases.1, until)
    }

    /// Runs the next slice.
    pub(crate) fn step(&mut self, worker: &mut Worker, context: &RuntimeContext) -> SliceOutcome {
        if self.is_answered {
            return self.drop_some();
        }
        if self.abort.is_some() {
            return self.undo();
        }
        self.releases = (context.shared.partition.releases(), 0);
        let is_executed = self.is_executed();
        let outcome = match &mut self.sliced {
            None => self.begin(worker).map(|()| false),
            Some(sliced) if is_executed => worker.commit_slice(sliced, SLICE_WRITES),
            Some(sliced) => {
                let executed = match &mut self.operations {
                    WriteOperations::Command(command) => command.execute_slice(sliced, worker),
                    WriteOperations::Block(block) => block.execute_slice(sliced, worker, context),
                };
                executed.map(|()| false)
            }
        };
        match outcome {
            Ok(true) => SliceOutcome::Done(self.observed()),
            Ok(false) => SliceOutcome::Unfinished,
            Err(Abort::Held { by }) if self.may_wait(by) => SliceOutcome::Waits(by),
            Err(abort) => {
                self.begin_undo(abort);
                SliceOutcome::Unfinished
            }
        }
    }

    fn is_executed(&self) -> bool {
        match &self.operations {
            WriteOperations::Command(command) => command.is_executed(),
            WriteOperations::Block(block) => block.is_executed(),
        }
    }

    /// Returns `true` if it keeps what it holds while it waits for another transaction. One that commits holds keys
    /// that readers wait for.
    fn may_wait(&self, by: Holder) -> bool {
        let own = self.holder;
        !self.is_executed() && (own.age, own.id) < (by.age, by.id)
    }

    fn observed(&self) -> Epoch {
        let sliced = self.sliced.as_ref();
        sliced.map_or(Epoch::ZERO, |sliced| sliced.observed().epoch)
    }

    fn begin(&mut self, worker: &mut Worker) -> Result<(), Abort> {
        let (brings, writes) = match &mut self.operations {
            WriteOperations::Command(command) => command.begin(),
            WriteOperations::Block(block) => block.begin(),
        };
        let mut sliced = worker.begin_sliced(self.holder, brings)?;
        sliced.reserve(writes);
        self.sliced = Some(sliced);
        Ok(())
    }

    /// Gives some more back. Then it begins again, or has ended.
    fn undo(&mut self) -> SliceOutcome {
        if let Some(sliced) = &mut self.sliced
            && !sliced.undo(SLICE_WRITES)
        {
            return SliceOutcome::Unfinished;
        }
        let observed = self.observed();
        self.releases.1 = u64::from(self.sliced.take().is_some());
        match self.abort.take() {
            Some(Abort::Held { by }) if !self.is_over => SliceOutcome::Waits(by),
            Some(Abort::Conflict { .. }) if !self.is_over && self.runs < RUNS => {
                self.runs += 1;
                SliceOutcome::Unfinished
            }
            Some(abort) => SliceOutcome::Refused(abort, observed),
            None => unreachable!("there was a reason"),
        }
    }

    /// Writes the reply after it is done.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        match &self.operations {
            WriteOperations::Command(command) => command.write(writer),
            WriteOperations::Block(block) => block.write(writer),
        }
    }

    /// Returns the commands of a block.
    pub(crate) fn block(&self) -> Option<&[CommandCall]> {
        match &self.operations {
            WriteOperations::Command(_) => None,
            WriteOperations::Block(block) => Some(block.calls()),
        }
    }

    /// Notes that it is answered. Its memory is freed in slices.
    pub(crate) fn end(&mut self) {
        self.is_answered = true;
    }

    fn drop_some(&mut self) -> SliceOutcome {
        let is_free = match &mut self.operations {
            _ if self.sliced.take().is_some() => false,
            WriteOperations::Command(command) => command.drop_some(),
            WriteOperations::Block(block) => block.drop_some(SLICE_WRITES),
        };
        match is_free {
            true => SliceOutcome::Done(Epoch::ZERO),
            false => SliceOutcome::Unfinished,
        }
    }

    /// Returns the length of the reply so far, in bytes.
    pub(crate) fn reply_bytes(&self) -> usize {
        match &self.operations {
            WriteOperations::Command(_) => 0,
            WriteOperations::Block(block) => block.reply_bytes(),
        }
    }
}
