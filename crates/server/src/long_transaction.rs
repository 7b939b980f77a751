//! A transaction whose commands read before they write, in several steps.
//!
//! A command whose operations do not depend on what it reads is one transaction of the partition. Others
//! (`RENAME`, scripts), and blocks with one of them, run as a long transaction: outside any epoch, so
//! that it stops no commit of others for as long as it takes, also while it waits for other nodes.
//!
//! | step | happens |
//! |---|---|
//! | run | the commands execute one after the other on a [`WorkingSet`]; when they need keys that it does not have, the transaction stops |
//! | read | a transaction of the partitions reads these keys with their versions; the run goes on |
//! | commit | one transaction checks that all keys still have these versions, and writes what the run has changed |
//!
//! It runs *in place* first: within one transaction of this node's partition, without copies of the values. Most
//! end there. For those that take longer than a slice or need more than the partition's operations, that was a
//! vain try.
//!
//! Invariants:
//! 1. Nothing of a run is seen by others, neither its writes, nor its messages, nor its replies, before
//!    its commit. If a version is another one then, everything of the run is dropped, and it runs again.
//! 2. After some conflicts the keys of this node's partition that the last run has read are held while the
//!    transaction runs: no other writes them. The holds end right before the commit, whose operations would
//!    meet them, and when the transaction waits for others, which may wait for it.
//! 3. The run of a transaction is one point in the order of transactions: that of its commit, or, if it
//!    has read once and written nothing, that of its read.

mod call;
mod conflict;
mod in_place;
mod libraries;
mod script;
mod script_code;

use std::collections::BTreeMap;

use base::{Epoch, Op, TransactionId, Version};
use resp::Writer;
use scripts::ScriptLogLevel;
use store::{TransactionError, Txn};

pub(crate) use call::CallContext;
use call::{Call, Results, RunPause};
pub(crate) use conflict::Continuation;
use script::{ActiveScript, ScriptEnd};

use crate::command::{CommandKind, KeyTurns, Ops, WaitFinding};
use crate::command_call::CommandCall;
use crate::limits::POOLED_CAPACITY;
use crate::partition::Partition;
use crate::session::PublishedMessage;
use crate::working_set::{Need, ReadAnswers, WorkingSet};

/// A transaction that is kept for its memory keeps room for so many commands.
const KEPT_CALLS: usize = 64;
/// The number of runs that meet conflicts before keys are held.
const OPTIMISTIC: u32 = 3;
/// See the module's description. One that is cleared can begin as another.
pub(crate) struct LongTransaction {
    calls: Vec<CommandCall>,
    /// `true` if they are a `MULTI` block, whose replies are a list.
    is_block: bool,
    watches: BTreeMap<Vec<u8>, Version>,
    /// The number of runs that have met a conflict.
    conflicts: u32,
    /// The bytes of the commands' arguments.
    call_bytes: usize,
    /// Milliseconds since the Unix epoch.
    began_ms: u64,
    /// The database that is selected when a run begins.
    database: u16,
    held: Option<HeldKeys>,
    /// The keys at which a command that waits may look.
    turns: KeyTurns,
    run: Run,
}

/// Keys that are held until this is dropped.
pub(crate) struct HeldKeys {
    partition: Partition,
    id: TransactionId,
}

impl HeldKeys {
    /// Takes responsibility for what a worker of the partition holds under this id.
    pub(crate) fn new(partition: &Partition, id: TransactionId) -> HeldKeys {
        HeldKeys {
            partition: partition.clone(),
            id,
        }
    }
}

impl Drop for HeldKeys {
    fn drop(&mut self) {
        self.partition.end_hold(self.id);
    }
}

/// One run of the commands.
struct Run {
    /// The command that executes next.
    next: usize,
    /// The selected database.
    database: u16,
    set: WorkingSet,
    /// The reads that the transaction waits for.
    need: Option<Need>,
    /// The number of transactions that have read for it.
    reads: u32,
    /// The newest epoch of what was read.
    observed: Epoch,
    /// The replies.
    output: Vec<u8>,
    /// The reply to the command that a script has called.
    reply: Vec<u8>,
    messages: Vec<PublishedMessage>,
    /// Lines that scripts have logged.
    log: Vec<(ScriptLogLevel, Vec<u8>)>,
    /// The script that runs.
    script: Option<ActiveScript>,
    /// The error of a script that was killed, as RESP.
    error: Option<Vec<u8>>,
    /// What a command that waits has found.
    finding: WaitFinding,
}

/// The next step of a long transaction.
pub(crate) enum NextStep {
    /// [`LongTransaction::take_need`] is to be read.
    Read,
    /// [`LongTransaction::commit_ops`] are to be executed.
    Commit,
    /// It continues after other connections have had their turn.
    Slice,
    /// It ends with [`LongTransaction::take_error`], and does not take effect.
    GiveUp,
    /// Its replies are longer than the client may leave untaken. It does not take effect.
    TooLong,
    /// The transaction in which it runs in place ends with this error.
    End(TransactionError),
}

impl Run {
    /// Begins a run in a database, at `time_ms` since the Unix epoch.
    fn begin(&mut self, database: u16, time_ms: u64) {
        self.next = 0;
        self.database = database;
        self.set.begin(time_ms);
        self.need = None;
        self.reads = 0;
        self.observed = Epoch::ZERO;
        for buffer in [&mut self.output, &mut self.reply] {
            buffer.clear();
            buffer.shrink_to(POOLED_CAPACITY);
        }
        self.messages.clear();
        self.log.clear();
        self.script = None;
        self.error = None;
        self.finding = WaitFinding::Found;
    }
}

impl LongTransaction {
    /// Creates a transaction without commands. Values have at most `longest_value` bytes, and there are
    /// so many databases.
    pub(crate) fn new(longest_value: usize, databases: u16) -> LongTransaction {
        LongTransaction {
            calls: Vec::new(),
            is_block: false,
            watches: BTreeMap::new(),
            conflicts: 0,
            call_bytes: 0,
            began_ms: 0,
            database: 0,
            held: None,
            turns: KeyTurns::ALL,
            run: Run {
                next: 0,
                database: 0,
                set: WorkingSet::new(longest_value, databases, 0),
                need: None,
                reads: 0,
                observed: Epoch::ZERO,
                output: Vec::new(),
                reply: Vec::new(),
                messages: Vec::new(),
                log: Vec::new(),
                script: None,
                error: None,
                finding: WaitFinding::Found,
            },
        }
    }

    /// Begins with one command, in a database, at `time_ms` since the Unix epoch.
    pub(crate) fn begin(&mut self, call: CommandCall, (database, time_ms): (u16, u64)) {
        self.call_bytes = call.args().total_bytes();
        self.calls.push(call);
        self.is_block = false;
        self.conflicts = 0;
        self.began_ms = time_ms;
        self.database = database;
        self.run.begin(database, time_ms);
    }

    /// Has its command look only at some of the keys that it waits for.
    pub(crate) fn set_turns(&mut self, turns: KeyTurns) {
        self.turns = turns;
    }

    /// Returns the keys at which its command has looked; `None`: all.
    pub(crate) fn turns(&self) -> Option<&[Box<[u8]>]> {
        self.turns.keys.as_deref()
    }

    /// Returns `true` if it is a command that waits, alone, and has found nothing.
    pub(crate) fn found_nothing(&self) -> bool {
        self.run.finding != WaitFinding::Found && !self.is_block
    }

    /// Returns the arguments of its command that are others when it executes again, by their places.
    pub(crate) fn replaced(&self) -> &[(usize, Vec<u8>)] {
        match &self.run.finding {
            WaitFinding::NothingYet(replaced) => replaced,
            WaitFinding::Found | WaitFinding::Nothing => &[],
        }
    }

    /// Begins with a block, which takes effect only if the watched keys have these versions, in a database,
    /// at `time_ms` since the Unix epoch.
    pub(crate) fn begin_block(
        &mut self,
        calls: Vec<CommandCall>,
        watches: BTreeMap<Vec<u8>, Version>,
        (database, time_ms): (u16, u64),
    ) {
        let bytes = calls.iter().map(|call| call.args().total_bytes());
        self.call_bytes = bytes.sum();
        self.calls = calls;
        self.is_block = true;
        self.watches = watches;
        self.conflicts = 0;
        self.began_ms = time_ms;
        self.database = database;
        self.run.begin(database, time_ms);
    }

    /// Gives back the memory of its keys and values, once it has ended.
    pub(crate) fn clear(&mut self) {
        self.calls.clear();
        self.calls.shrink_to(KEPT_CALLS);
        self.watches.clear();
        self.held = None;
        self.turns = KeyTurns::ALL;
        self.run.begin(0, 0);
    }

    /// Returns the only command; `None`: it is a block.
    pub(crate) fn command(&self) -> Option<&CommandCall> {
        self.calls.first().filter(|_| !self.is_block)
    }

    /// Returns `true` if it has read nothing yet.
    pub(crate) fn is_new(&self) -> bool {
        self.run.reads == 0 && self.conflicts == 0
    }

    /// Returns `true` if it has read nothing, and waits for no reads.
    pub(crate) fn waits_to_begin(&self) -> bool {
        self.is_new() && self.run.need.is_none()
    }

    /// Returns the memory that it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.call_bytes + self.run.set.bytes() + self.run.output.len()
    }

    /// Executes commands until it needs reads, or all have been executed.
    pub(crate) fn run(&mut self, context: CallContext<'_>) -> NextStep {
        self.execute(context, None)
    }

    /// Executes commands, in place within a transaction if there is one, until it needs something, or all have
    /// been executed.
    fn execute(&mut self, mut context: CallContext<'_>, mut txn: Option<&mut Txn<'_>>) -> NextStep {
        let (protocol, room) = (context.session.protocol, context.room());
        let run = &mut self.run;
        let wants_events = context.context.shared.key_events.wants_any();
        // The partition notes its own.
        run.set.note_events(wants_events && txn.is_none());
        if run.next == 0 && self.is_block && run.output.is_empty() {
            Writer::new(&mut run.output, protocol).array(self.calls.len());
        }
        while run.need.is_none()
            && let Some(call) = self.calls.get(run.next)
        {
            let call = Call {
                command: call.command,
                args: call.args(),
                protocol,
            };
            let mut results = Results {
                database: &mut run.database,
                set: &mut run.set,
                in_place: txn.as_deref_mut(),
                output: &mut run.output,
                messages: &mut run.messages,
                reply: &mut run.reply,
                log: &mut run.log,
                conflicts: self.conflicts,
                turns: &self.turns,
                finding: &mut run.finding,
            };
            let done = match call.command.kind {
                CommandKind::Script(_) => context.run_script(&call, &mut results, &mut run.script),
                _ => context
                    .execute(&call, &mut results)
                    .map(|()| ScriptEnd::Ended),
            };
            match done {
                Ok(ScriptEnd::Ended) if run.output.len() > room => return NextStep::TooLong,
                Ok(ScriptEnd::Ended) => {
                    run.next += 1;
                    // One that is alone is counted where it begins.
                    if self.is_block && txn.is_none() {
                        context.context.recorder.count(call.command.number);
                    }
                }
                Ok(ScriptEnd::Killed(error)) => {
                    run.error = Some(error);
                    return NextStep::GiveUp;
                }
                Err(RunPause::Read(need)) => run.need = Some(need),
                Err(RunPause::Slice) => return NextStep::Slice,
                Err(RunPause::End(error)) => return NextStep::End(error),
            }
        }
        match run.need {
            Some(_) => NextStep::Read,
            None => NextStep::Commit,
        }
    }

    /// Removes the error, as RESP, with which it ends.
    pub(crate) fn take_error(&mut self) -> Vec<u8> {
        self.run.error.take().unwrap_or_default()
    }

    /// Removes the reads that it waits for.
    pub(crate) fn take_need(&mut self) -> Option<Need> {
        self.run.need.take()
    }

    /// Has it wait for reads.
    pub(crate) fn wait_for(&mut self, need: Need) {
        self.run.need = Some(need);
    }

    /// Returns the operations of reads, and of the check that the libraries which it uses are the newest ones.
    pub(crate) fn read_ops<'n>(&self, need: &'n Need) -> Ops<'n> {
        let mut ops = need.ops();
        ops.extend(self.run.set.libraries.check());
        ops
    }

    /// Adds the answers to reads, which show data of `epoch`.
    pub(crate) fn add(&mut self, need: Need, answers: ReadAnswers, epoch: Epoch) {
        let run = &mut self.run;
        run.reads += 1;
        run.observed = run.observed.max(epoch);
        run.set.add(need, answers);
    }

    /// Returns the operations of its commit; none if the reads of the run are all that it has done, and
    /// are those of one moment. `places` are keys of all partitions, none without a cluster.
    pub(crate) fn commit_ops<'s>(&'s self, places: &'s [Vec<u8>]) -> Ops<'s> {
        let set = &self.run.set;
        let mut ops: Ops<'_> = Ops::new();
        for (key, &version) in &self.watches {
            ops.push(Op::Check { key, version });
        }
        ops.extend(set.libraries.commit());
        let libraries = ops.len() - self.watches.len();
        for call in &self.calls {
            if let CommandKind::Guard(plan) = call.command.kind {
                // It was planned before, from the same arguments.
                let _ = plan(call.args(), &mut ops);
            }
        }
        if ops.len() == libraries && self.run.reads == 1 && set.only_reads() {
            return Ops::new();
        }
        set.add_commit_ops(&mut ops);
        set.add_events(&mut ops);
        if set.libraries.are_changed() {
            ops.extend(places.iter().map(|key| Op::Exists { key }));
        } else if ops.iter().all(Op::goes_along) && !ops.is_empty() {
            ops.extend(places.first().map(|key| Op::Exists { key }));
        }
        ops
    }

    /// Returns the newest epoch of what the run has read.
    pub(crate) fn observed(&self) -> Epoch {
        self.run.observed
    }

    /// Returns the operations that read the keys that are to be held in the next run, and when the transaction
    /// began, in milliseconds since the Unix epoch; `None`: none are to be held.
    pub(crate) fn wants_held(&self) -> Option<(Ops<'_>, u64)> {
        let ops = self.run.set.read_ops();
        (self.conflicts >= OPTIMISTIC && !ops.is_empty()).then_some((ops, self.began_ms))
    }

    /// Begins the next run, at `time_ms` since the Unix epoch, while keys are held or not.
    pub(crate) fn run_again(&mut self, held: Option<HeldKeys>, time_ms: u64) {
        self.held = held;
        self.run.begin(self.database, time_ms);
    }

    /// Gives the keys back that are held for the run.
    pub(crate) fn end_holds(&mut self) {
        self.held = None;
    }

    /// Returns the database that is selected after the run.
    pub(crate) fn selected(&self) -> u16 {
        self.run.database
    }

    /// Returns the replies of the run, and removes its messages. The lines that its scripts have logged are
    /// written to the server's log.
    pub(crate) fn take_results(&mut self) -> (&[u8], Vec<PublishedMessage>) {
        let run = &mut self.run;
        script::write_log(std::mem::take(&mut run.log));
        (&run.output, std::mem::take(&mut run.messages))
    }
}
