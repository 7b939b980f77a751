//! Loads that readers have begun: each on a thread of its own, as it encodes, writes and syncs.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use bytes::Bytes;
use disk::reads::OwnBuf;

use super::shelf::Loading;
use super::tasks::{Asker, Mailbox, News, Outcome};

/// Blocks that may wait for a load's thread.
const WAITING: usize = 8;

/// A load, as the desk has it. Dropping it ends the load; what was not committed is gone.
#[derive(Debug)]
pub(super) struct LoadHandle(SyncSender<(Asker, Step)>);

/// What a load is to do.
enum Step {
    Push(Bytes),
    Commit,
}

impl LoadHandle {
    /// Gives a load a thread.
    pub(super) fn start(load: Box<dyn Loading>, mailbox: Arc<Mailbox>) -> io::Result<LoadHandle> {
        let (sender, steps) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("pages-load".to_owned());
        thread.spawn(move || work(load, &steps, &mailbox))?;
        Ok(LoadHandle(sender))
    }

    /// Adds a block.
    ///
    /// # Errors
    /// Too many wait.
    pub(super) fn push(&self, asker: Asker, block: &[u8]) -> Result<(), String> {
        let mut memory = OwnBuf::new(block.len());
        memory.as_mut()[..block.len()].copy_from_slice(block);
        let mut block_ = Bytes::from_owner(memory);
        block_.truncate(block.len());
        self.put(asker, Step::Push(block_))
    }

    /// Has it commit.
    ///
    /// # Errors
    /// Too much waits.
    pub(super) fn commit(&self, asker: Asker) -> Result<(), String> {
        self.put(asker, Step::Commit)
    }

    fn put(&self, asker: Asker, step: Step) -> Result<(), String> {
        match self.0.try_send((asker, step)) {
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
        let done = match (step, load.take()) {
            (Step::Push(block), Some(mut going)) => {
                let pushed = going.push(block);
                load = pushed.is_ok().then_some(going);
                pushed.map(|()| Vec::new())
            }
            (Step::Commit, Some(going)) => going.commit(),
            (_, None) => Err("the load has failed before, or is over".to_owned()),
        };
        let news = match done {
            Ok(answer) => News::Told(answer),
            Err(text) => News::Failed(Outcome::Refused(text)),
        };
        mailbox.put(asker, news);
    }
}
