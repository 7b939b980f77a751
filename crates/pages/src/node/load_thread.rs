//! Loads that readers have begun: each has a thread of its own, as it encodes, writes and syncs.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;

use super::reply_address::ReplyAddress;
use super::storage::NodeLoad;
use crate::error::Error;
use crate::owned_bytes::to_owned_bytes;

/// Blocks that may wait for a load's thread.
const WAITING: usize = 8;

/// A load, as the reader loop sees it. If it [ends](LoadHandle::end) without a commit, its rows are gone.
#[derive(Debug)]
pub(super) struct LoadHandle {
    steps: SyncSender<(ReplyAddress, Step)>,
    thread: JoinHandle<()>,
}

/// A step of a load.
enum Step {
    Push(Bytes),
    Prepare,
    Commit,
}

impl LoadHandle {
    /// Starts a thread for a load, which gives the answer to each step to `reply`.
    pub(super) fn start(
        load: Box<dyn NodeLoad>,
        reply: impl Fn(ReplyAddress, Result<Vec<u8>, Error>) + Send + 'static,
    ) -> io::Result<LoadHandle> {
        let (sender, steps) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("pages-load".to_owned());
        let thread = thread.spawn(move || work(load, &steps, &reply))?;
        Ok(LoadHandle {
            steps: sender,
            thread,
        })
    }

    /// Adds a block.
    ///
    /// # Errors
    /// Returns an error if too many steps wait.
    pub(super) fn push(&self, to: ReplyAddress, block: &[u8]) -> Result<(), Error> {
        self.put(to, Step::Push(to_owned_bytes(block)))
    }

    /// Makes it prepare the commit.
    ///
    /// # Errors
    /// Returns an error if too many steps wait.
    pub(super) fn prepare(&self, to: ReplyAddress) -> Result<(), Error> {
        self.put(to, Step::Prepare)
    }

    /// Makes it commit.
    ///
    /// # Errors
    /// Returns an error if too many steps wait.
    pub(super) fn commit(&self, to: ReplyAddress) -> Result<(), Error> {
        self.put(to, Step::Commit)
    }

    /// Ends the steps; the thread ends when it has done those that it has.
    pub(super) fn end(self) -> JoinHandle<()> {
        self.thread
    }

    fn put(&self, to: ReplyAddress, step: Step) -> Result<(), Error> {
        match self.steps.try_send((to, step)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(Error::Refused(format!(
                "more than {WAITING} blocks of a load wait to be answered"
            ))),
            Err(TrySendError::Disconnected(_)) => Err(Error::refused("the load is over")),
        }
    }
}

fn work(
    load: Box<dyn NodeLoad>,
    steps: &Receiver<(ReplyAddress, Step)>,
    reply: &impl Fn(ReplyAddress, Result<Vec<u8>, Error>),
) {
    let mut load = Some(load);
    while let Ok((to, step)) = steps.recv() {
        // Each step must be answered: otherwise the reader waits for ever.
        let commits = matches!(step, Step::Commit);
        let done = catch_unwind(AssertUnwindSafe(|| take(&mut load, step)));
        let done = done.unwrap_or_else(|_| {
            let text = "the load made the storage node panic; its log says where".to_owned();
            Err(match commits {
                true => Error::Doubtful(text),
                false => Error::Refused(text),
            })
        });
        reply(to, done);
    }
}

/// Takes a step. A failed step ends the load.
fn take(load: &mut Option<Box<dyn NodeLoad>>, step: Step) -> Result<Vec<u8>, Error> {
    let Some(mut going) = load.take() else {
        let text = "the load has failed before, or is over".to_owned();
        return Err(Error::Refused(text));
    };
    let done = match step {
        Step::Push(block) => going.push(block),
        Step::Prepare => going.prepare(),
        Step::Commit => return going.commit(),
    };
    done?;
    *load = Some(going);
    Ok(Vec::new())
}
