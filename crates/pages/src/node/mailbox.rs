//! Messages of other threads to a reader loop.

use std::sync::Arc;

use parking_lot::Mutex;
use reactor::{SocketWaker, Wake};

use super::load_thread::LoadHandle;
use super::reply_address::ReplyAddress;
use super::storage::OpenTable;
use crate::error::Error;

/// A message of a task, a load or the blocking worker.
#[derive(Debug)]
pub(super) enum Notification {
    Batch(Vec<u8>),
    Finished,
    Failed(Error),
    /// An answer, of a load or of the blocking worker.
    Answer(Vec<u8>),
    /// A version that was opened.
    OpenTable(Arc<OpenTable>),
    /// A load that has begun.
    Begun(LoadHandle),
}

/// Messages to a reader loop.
#[derive(Debug)]
pub(super) struct Mailbox {
    notifications: Mutex<Vec<(ReplyAddress, Notification)>>,
    waker: Arc<SocketWaker>,
}

impl Mailbox {
    pub(super) fn new(waker: Arc<SocketWaker>) -> Mailbox {
        let notifications = Mutex::default();
        Mailbox {
            notifications,
            waker,
        }
    }

    /// Takes all messages.
    pub(super) fn take(&self, into: &mut Vec<(ReplyAddress, Notification)>) {
        into.append(&mut self.notifications.lock());
    }

    pub(super) fn put(&self, to: ReplyAddress, notifications: Notification) {
        let was_empty = {
            let mut all = self.notifications.lock();
            all.push((to, notifications));
            all.len() == 1
        };
        if was_empty {
            Wake::wake(&*self.waker);
        }
    }
}
