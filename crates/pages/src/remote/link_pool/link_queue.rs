//! The requests of a link's threads.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use reactor::{SocketWaker, Wake};

use super::reader_inbox::ReaderInbox;
use crate::error::Error;
use crate::table::{TableId, Version};

/// Requests of a link's threads for the link's own thread.
#[derive(Debug)]
pub(super) struct LinkQueue {
    state: Mutex<QueueState>,
    waker: SocketWaker,
}

#[derive(Debug, Default)]
struct QueueState {
    commands: Vec<LinkCommand>,
    lost: Option<String>,
    ends: bool,
}

/// A request of one of the threads.
#[derive(Debug)]
pub(super) enum LinkCommand {
    Read(WantedPage),
    Open(Arc<ReaderInbox>, OpenKey),
    /// A thread has ended, and no longer uses these.
    Release(Vec<OpenKey>),
}

/// A page that a thread wants.
#[derive(Debug)]
pub(super) struct WantedPage {
    pub(super) reader: Arc<ReaderInbox>,
    pub(super) handle: u32,
    pub(super) unit: usize,
    pub(super) segment: u16,
    pub(super) page: u32,
    pub(super) token: u64,
}

/// What threads open, and share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum OpenKey {
    /// A version of a table, and the table's name.
    Table(TableId, Version, String),
    /// A file, as pages of so many bytes.
    File(String, usize),
}

impl LinkQueue {
    /// Returns an empty queue of the link whose thread this wakes.
    pub(super) fn new(waker: SocketWaker) -> LinkQueue {
        LinkQueue {
            state: Mutex::default(),
            waker,
        }
    }

    /// Returns `true` if the link is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.state.lock().lost.is_some()
    }

    /// Lets the link's thread end.
    pub(super) fn end(&self) {
        self.state.lock().ends = true;
        Wake::wake(&self.waker);
    }

    /// Adds requests. The link's thread is woken for the first ones that it has not taken: it takes all
    /// of them together.
    pub(super) fn push(&self, commands: &mut Vec<LinkCommand>) -> Result<(), Error> {
        let mut state = self.state.lock();
        if let Some(why) = &state.lost {
            commands.clear();
            return Err(Error::Lost(why.clone()));
        }
        let was_empty = state.commands.is_empty();
        state.commands.append(commands);
        drop(state);
        if was_empty {
            Wake::wake(&self.waker);
        }
        Ok(())
    }

    /// Takes all requests. Returns `false` if the link is to end.
    pub(super) fn take(&self, into: &mut VecDeque<LinkCommand>) -> bool {
        let mut state = self.state.lock();
        into.extend(state.commands.drain(..));
        !state.ends
    }

    /// Accepts no request any more; returns those that were not taken.
    pub(super) fn lose(&self, why: &str) -> Vec<LinkCommand> {
        let mut state = self.state.lock();
        state.lost = Some(why.to_owned());
        std::mem::take(&mut state.commands)
    }
}
