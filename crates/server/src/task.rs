//! Long commands: a connection that has given one waits for it, and nobody else does.

use std::sync::Arc;

use parking_lot::Mutex;
use store::Worker;

use crate::keys::KeysTask;
use crate::shared::Shared;

/// A long command that is under way.
pub(crate) enum Task {
    /// Runs in slices, one in each turn.
    Keys(Box<KeysTask>),
    /// Is done by others, who wake the runtime.
    Save(SaveTask),
}

/// How far a task is.
pub(crate) enum Step {
    /// Not done.
    Waits,
    /// Done: its reply can be written.
    Done,
    /// Given up: its reply is longer than replies may be.
    TooLong,
}

impl Task {
    /// Does the next slice.
    pub(crate) fn step(&mut self, worker: &mut Worker, output_limit: usize) -> Step {
        match self {
            Task::Keys(task) => {
                let done = task.step(worker);
                match done {
                    _ if task.size() > output_limit => Step::TooLong,
                    true => Step::Done,
                    false => Step::Waits,
                }
            }
            Task::Save(task) => match task.is_done() {
                true => Step::Done,
                false => Step::Waits,
            },
        }
    }

    /// Whether there is something to do in the next turn.
    pub(crate) fn can_go_on(&self) -> bool {
        match self {
            Task::Keys(_) => true,
            Task::Save(task) => task.is_done(),
        }
    }
}

/// A checkpoint that a client waits for: `SAVE`, or `SHUTDOWN SAVE`.
pub(crate) struct SaveTask {
    outcome: Arc<Mutex<Option<Outcome>>>,
    pub(crate) then: Then,
}

/// Why there is no checkpoint, if there is none.
type Outcome = Result<(), String>;

/// What is to be done after a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Its client is told.
    Reply,
    /// The server stops if there is one.
    Stop,
    /// The server stops in any case.
    StopAnyway,
}

impl SaveTask {
    /// Has a checkpoint made, and `runtime` woken when that has ended.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        runtime: usize,
        then: Then,
    ) -> std::io::Result<SaveTask> {
        let outcome = Arc::new(Mutex::new(None));
        let (slot, shared) = (Arc::clone(&outcome), Arc::clone(shared));
        // The store's own thread makes the checkpoint; this one waits in the runtime's stead. It
        // does nothing but sleep, so that it may share the runtime's processor.
        let wait = move || {
            let made = shared.db.checkpoint();
            *slot.lock() = Some(made.map(|_| ()).map_err(|error| error.to_string()));
            shared.signals[runtime].wake();
        };
        let name = "save".to_owned();
        std::thread::Builder::new().name(name).spawn(wait)?;
        Ok(SaveTask { outcome, then })
    }

    fn is_done(&self) -> bool {
        self.outcome.lock().is_some()
    }

    /// How it ended.
    pub(crate) fn outcome(&self) -> Outcome {
        let outcome = self.outcome.lock().clone();
        outcome.unwrap_or_else(|| Err("it has not ended".to_owned()))
    }
}
