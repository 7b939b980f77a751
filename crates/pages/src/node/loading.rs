//! Loads that readers have begun: each has a thread of its own, as it encodes, writes and syncs.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;

use super::shelf::Loading;
use super::tasks::{Asker, Mailbox, News, Outcome};
use crate::own::copied;

/// Blocks that may wait for a load's thread.
const WAITING: usize = 8;

/// A load, as the reader loop sees it. If it [ends](LoadHandle::end) without a commit, its rows are gone.
#[derive(Debug)]
pub(super) struct LoadHandle {
    steps: SyncSender<(Asker, Step)>,
    thread: JoinHandle<()>,
}

/// A step of a load.
enum Step {
    Push(Bytes),
    Prepare,
    Commit,
}

impl LoadHandle {
    /// Starts a thread for a load.
    pub(super) fn start(load: Box<dyn Loading>, mailbox: Arc<Mailbox>) -> io::Result<LoadHandle> {
        let (sender, steps) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("pages-load".to_owned());
        let thread = thread.spawn(move || work(load, &steps, &mailbox))?;
        Ok(LoadHandle {
            steps: sender,
            thread,
        })
    }

    /// Adds a block.
    ///
    /// # Errors
    /// Returns an error if too many steps wait.
    pub(super) fn push(&self, asker: Asker, block: &[u8]) -> Result<(), String> {
        self.put(asker, Step::Push(copied(block)))
    }

    /// Makes it prepare the commit.
    ///
    /// # Errors
    /// Returns an error if too many steps wait.
    pub(super) fn prepare(&self, asker: Asker) -> Result<(), String> {
        self.put(asker, Step::Prepare)
    }

    /// Makes it commit.
    ///
    /// # Errors
    /// Returns an error if too many steps wait.
    pub(super) fn commit(&self, asker: Asker) -> Result<(), String> {
        self.put(asker, Step::Commit)
    }

    /// Ends the steps; the thread ends when it has done those that it has.
    pub(super) fn end(self) -> JoinHandle<()> {
        self.thread
    }

    fn put(&self, asker: Asker, step: Step) -> Result<(), String> {
        match self.steps.try_send((asker, step)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(format!(
                "more than {WAITING} blocks of a load wait to be answered"
            )),
            Err(TrySendError::Disconnected(_)) => Err("the load is over".to_owned()),
        }
    }
}

fn work(load: Box<dyn Loading>, steps: &Receiver<(Asker, Step)>, mailbox: &Mailbox) {
    let mut load = Some(load);
    while let Ok((asker, step)) = steps.recv() {
        // Each step must be answered: otherwise the reader waits for ever.
        let commits = matches!(step, Step::Commit);
        let done = catch_unwind(AssertUnwindSafe(|| take(&mut load, step)));
        let done = done.unwrap_or_else(|_| {
            let text = "the load made the storage node panic; its log says where".to_owned();
            Err(match commits {
                true => Outcome::Doubtful(text),
                false => Outcome::Refused(text),
            })
        });
        mailbox.put(asker, done.map_or_else(News::Failed, News::Told));
    }
}

/// Takes a step. A failed step ends the load.
fn take(load: &mut Option<Box<dyn Loading>>, step: Step) -> Result<Vec<u8>, Outcome> {
    let Some(mut going) = load.take() else {
        let text = "the load has failed before, or is over".to_owned();
        return Err(Outcome::Refused(text));
    };
    let done = match step {
        Step::Push(block) => going.push(block),
        Step::Prepare => going.prepare(),
        Step::Commit => return going.commit(),
    };
    done.map_err(Outcome::Refused)?;
    *load = Some(going);
    Ok(Vec::new())
}
