//! What has come for one thread that shares a link. The thread sleeps until something has.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::Error;
use crate::remote::session::{PageReply, TableHandle};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct ReaderInbox {
    received: Mutex<Received>,
    arrived: Condvar,
    /// `true` if the thread wants no replies any more.
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct Received {
    pages: VecDeque<PageReply>,
    opened: Option<Result<TableHandle, Error>>,
    /// Why the link is lost.
    lost: Option<String>,
    /// `true` if the thread sleeps.
    sleeps: bool,
}

impl ReaderInbox {
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn deliver(&self, page: PageReply) {
        self.change(|received| received.pages.push_back(page));
    }

    pub(super) fn opened(&self, opened: Result<TableHandle, Error>) {
        self.change(|received| received.opened = Some(opened));
    }

    pub(super) fn lose(&self, why: &str) {
        self.change(|received| {
            received.lost.get_or_insert_with(|| why.to_owned());
        });
    }

    fn change(&self, change: impl FnOnce(&mut Received)) {
        let mut received = self.received.lock();
        change(&mut received);
        let sleeps = std::mem::take(&mut received.sleeps);
        drop(received);
        if sleeps {
            self.arrived.notify_one();
        }
    }

    /// Moves the pages that have come to the end of `pages`; if there are none, waits for one, but at
    /// most `at_most`. Returns how many they were.
    pub(super) fn take_pages(
        &self,
        pages: &mut VecDeque<PageReply>,
        at_most: Duration,
    ) -> Result<usize, Error> {
        let mut received = self.received.lock();
        let deadline = (!at_most.is_zero()).then(|| Instant::now() + at_most);
        while received.pages.is_empty() && received.lost.is_none() {
            let Some(deadline) = deadline else {
                break;
            };
            received.sleeps = true;
            if self.arrived.wait_until(&mut received, deadline).timed_out() {
                received.sleeps = false;
                break;
            }
        }
        if let Some(why) = &received.lost {
            return Err(Error::Lost(why.clone()));
        }
        let count = received.pages.len();
        pages.append(&mut received.pages);
        Ok(count)
    }

    /// Waits for the answer to a request to open a table or file. The link's thread gives one, or loses
    /// the link.
    pub(super) fn take_opened(&self) -> Result<TableHandle, Error> {
        let mut received = self.received.lock();
        loop {
            if let Some(opened) = received.opened.take() {
                return opened;
            }
            if let Some(why) = &received.lost {
                return Err(Error::Lost(why.clone()));
            }
            received.sleeps = true;
            self.arrived.wait(&mut received);
        }
    }
}
