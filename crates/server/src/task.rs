//! Long commands: the connection that has sent one waits for it, and no other connection does.

use std::sync::Arc;
use std::time::Duration;

use base::Epoch;
use parking_lot::Mutex;

use crate::block::Call;
use crate::execution::Execution;
use crate::keys::KeysTask;
use crate::parking::Parked;
use crate::pause::Postponed;
use crate::shared::{Context, Shared};

/// A long command that is under way.
pub(crate) enum Task {
    /// Runs in slices, one in each turn.
    Keys(Box<KeysTask>),
    /// Entries of the connection's snapshot, this many at most, in the next turn.
    Snapshot { most: usize },
    /// Runs on another thread, which wakes the runtime.
    Job(Job),
    /// Runs again once another transaction has given back the keys that it needs.
    Parked(Parked),
    /// Runs on several nodes; the runtime learns its outcome.
    Coordinated(Coordinated),
    /// Waits until it has gone through consensus.
    Proposed(Proposed),
    /// A password was wrong; the answer comes at this time, since the server's start.
    Refused { until: Duration },
    /// Waits until a pause is over.
    Postponed(Postponed),
}

/// The progress of a task that runs in slices.
pub(crate) enum Step {
    /// Not done.
    Waits,
    /// Done: its reply can be written.
    Done,
    /// Given up: its reply exceeds the limit of replies.
    TooLong,
}

/// When a task needs work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// In the next turn.
    Now,
    /// When the runtime is woken, or at this time, if there is one.
    Woken(Option<Duration>),
    /// When its outcome comes.
    Told,
}

impl Task {
    /// Returns when it needs work.
    pub(crate) fn next(&self, context: &Context) -> Next {
        let (partition, now) = (&context.shared.partition, context.now);
        match self {
            Task::Keys(_) | Task::Snapshot { .. } => Next::Now,
            Task::Job(task) if task.is_done() => Next::Now,
            Task::Job(_) => Next::Woken(None),
            Task::Parked(parked) if parked.is_due(partition.releases(), now) => Next::Now,
            Task::Parked(parked) => Next::Woken(Some(parked.until)),
            Task::Coordinated(_) => Next::Told,
            Task::Proposed(proposed) if proposed.is_over(context) => Next::Now,
            Task::Proposed(_) => Next::Woken(None),
            Task::Refused { until } if *until <= now => Next::Now,
            Task::Refused { until } => Next::Woken(Some(*until)),
            Task::Postponed(postponed) => match postponed.until(context) {
                None => Next::Now,
                until => Next::Woken(until),
            },
        }
    }
}

/// A transaction of a connection, kept until it can execute or has.
pub(crate) enum Work {
    /// A command alone.
    Call(Call),
    /// An `EXEC`.
    Block(Box<Execution>),
}

/// A transaction that runs on several nodes.
pub(crate) struct Coordinated {
    pub(crate) work: Work,
    /// Distinguishes its outcome from those of others.
    pub(crate) number: u64,
}

/// A transaction that is executed after consensus.
pub(crate) struct Proposed {
    pub(crate) work: Work,
    /// The number under which the partition keeps its outcome.
    pub(crate) number: u64,
    /// The epoch at which the outcome is known.
    pub(crate) epoch: Epoch,
    /// The transaction's time.
    pub(crate) time_ms: u64,
}

impl Proposed {
    fn is_over(&self, context: &Context) -> bool {
        context.durable >= self.epoch || context.shared.partition.is_lost(self.epoch)
    }
}

/// Work that a client waits for and that another thread does: a checkpoint, a change of members.
pub(crate) struct Job {
    outcome: Arc<Mutex<Option<Outcome>>>,
    pub(crate) what: &'static str,
    pub(crate) then: Then,
}

/// Success, or the reason of the failure.
type Outcome = Result<(), String>;

/// The action after a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Its client is answered.
    Reply,
    /// The server stops if the job succeeded.
    Stop,
    /// The server stops in any case.
    StopAnyway,
}

impl Job {
    /// Starts a checkpoint; `runtime` is woken when it has ended.
    pub(crate) fn checkpoint(
        shared: &Arc<Shared>,
        runtime: usize,
        then: Then,
    ) -> std::io::Result<Job> {
        // The store's own thread makes the checkpoint; this one waits on behalf of the runtime. It
        // does nothing but sleep, so that it may share the runtime's processor.
        Job::begin(shared, runtime, then, "a checkpoint", |shared| {
            let made = shared.partition.checkpoint();
            made.map(|_| ()).map_err(|error| error.to_string())
        })
    }

    /// Starts `work` on a thread of its own; `runtime` is woken when it has ended.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        runtime: usize,
        then: Then,
        what: &'static str,
        work: impl FnOnce(&Shared) -> Outcome + Send + 'static,
    ) -> std::io::Result<Job> {
        let outcome = Arc::new(Mutex::new(None));
        let (slot, shared) = (Arc::clone(&outcome), Arc::clone(shared));
        let wait = move || {
            let done = work(&shared);
            *slot.lock() = Some(done);
            shared.signals[runtime].wake();
        };
        let name = "job".to_owned();
        std::thread::Builder::new().name(name).spawn(wait)?;
        Ok(Job {
            outcome,
            what,
            then,
        })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.outcome.lock().is_some()
    }

    /// Returns its outcome.
    pub(crate) fn outcome(&self) -> Outcome {
        let outcome = self.outcome.lock().clone();
        outcome.unwrap_or_else(|| Err("it has not ended".to_owned()))
    }
}
