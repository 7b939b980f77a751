//! Long commands: a connection that has given one waits for it, and nobody else does.

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
    /// Is done by others, who wake the runtime.
    Job(Job),
    /// Runs again once another transaction has given back what it needs.
    Parked(Parked),
    /// Runs on several nodes; the runtime is told how it ends.
    Coordinated(Coordinated),
    /// Is executed once it has gone through consensus.
    Proposed(Proposed),
    /// A password was wrong; the answer comes at this time, since the server's start.
    Refused { until: Duration },
    /// Is executed when a pause is over.
    Postponed(Postponed),
}

/// How far a task that runs in slices is.
pub(crate) enum Step {
    /// Not done.
    Waits,
    /// Done: its reply can be written.
    Done,
    /// Given up: its reply is longer than replies may be.
    TooLong,
}

/// When there is something to do for a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// In the next turn.
    Now,
    /// When the runtime is woken, or at this time, if there is one.
    Woken(Option<Duration>),
    /// When its outcome is told.
    Told,
}

impl Task {
    /// When there is something to do.
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
    /// Tells its outcome from those of others.
    pub(crate) number: u64,
}

/// A transaction that is executed after consensus.
pub(crate) struct Proposed {
    pub(crate) work: Work,
    /// Under which the partition keeps its outcome.
    pub(crate) number: u64,
    /// When that is known.
    pub(crate) epoch: Epoch,
    /// The transaction's time.
    pub(crate) time_ms: u64,
}

impl Proposed {
    fn is_over(&self, context: &Context) -> bool {
        context.durable >= self.epoch || context.shared.partition.is_lost(self.epoch)
    }
}

/// What a client waits for while it is done on another thread: a checkpoint, a change of members.
pub(crate) struct Job {
    outcome: Arc<Mutex<Option<Outcome>>>,
    pub(crate) what: &'static str,
    pub(crate) then: Then,
}

/// Why it was not done, if it was not.
type Outcome = Result<(), String>;

/// What is to be done after a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Its client is told.
    Reply,
    /// The server stops if it was done.
    Stop,
    /// The server stops in any case.
    StopAnyway,
}

impl Job {
    /// Has a checkpoint made, and `runtime` woken when that has ended.
    pub(crate) fn checkpoint(
        shared: &Arc<Shared>,
        runtime: usize,
        then: Then,
    ) -> std::io::Result<Job> {
        // The store's own thread makes the checkpoint; this one waits in the runtime's stead. It
        // does nothing but sleep, so that it may share the runtime's processor.
        Job::begin(shared, runtime, then, "a checkpoint", |shared| {
            let made = shared.partition.checkpoint();
            made.map(|_| ()).map_err(|error| error.to_string())
        })
    }

    /// Has `work` done on a thread of its own, and `runtime` woken when that has ended.
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

    /// How it ended.
    pub(crate) fn outcome(&self) -> Outcome {
        let outcome = self.outcome.lock().clone();
        outcome.unwrap_or_else(|| Err("it has not ended".to_owned()))
    }
}
