//! One thread's part of a link that it shares with others.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabric::tcp::Transport;

use super::link_place::LinkPlace;
use super::link_queue::{LinkCommand, OpenKey, WantedPage};
use super::reader_inbox::ReaderInbox;
use super::shared_link::SharedLink;
use crate::error::Error;
use crate::remote::page_link::PageLink;
use crate::remote::session::{PageReply, TableHandle};
use crate::table::Table;

/// A thread's place on a link of a [pool](super::LinkPool). The thread sleeps while it waits for pages.
/// If it is dropped, pages that are under way are dropped when they come, and the place is free.
#[derive(Debug)]
pub struct SharedReader {
    link: Arc<SharedLink>,
    inbox: Arc<ReaderInbox>,
    depth: usize,
    /// Requests that go out with the next turn.
    outgoing: Vec<LinkCommand>,
    /// Pages that were requested and have not come.
    under_way: usize,
    arrived: VecDeque<PageReply>,
    open: Vec<OpenKey>,
    _place: LinkPlace,
}

impl SharedReader {
    pub(super) fn new(link: Arc<SharedLink>, place: LinkPlace, depth: usize) -> SharedReader {
        SharedReader {
            link,
            inbox: Arc::default(),
            depth,
            outgoing: Vec::new(),
            under_way: 0,
            arrived: VecDeque::new(),
            open: Vec::new(),
            _place: place,
        }
    }

    /// Returns the node's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.link.address
    }

    /// Returns the transport of the link's messages.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        self.link.transport
    }

    /// Opens a version of a table that the caller has, for all threads of the link at once.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(&mut self, table: &Table) -> Result<TableHandle, Error> {
        let (name, version) = (table.name.clone(), table.version);
        let opened = self.open_shared(OpenKey::Table(table.id, version, name))?;
        opened.check(table, self.address())?;
        Ok(opened)
    }

    /// Opens a file that the node shows, as pages of so many bytes, for all threads of the link at once.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open_file(&mut self, name: &str, unit: usize) -> Result<TableHandle, Error> {
        self.open_shared(OpenKey::File(name.to_owned(), unit))
    }

    fn open_shared(&mut self, key: OpenKey) -> Result<TableHandle, Error> {
        let command = LinkCommand::Open(Arc::clone(&self.inbox), key.clone());
        self.outgoing.push(command);
        self.send()?;
        let opened = self.inbox.take_opened()?;
        self.open.push(key);
        Ok(opened)
    }

    /// Hands the outgoing requests to the link. If the link is lost, the inbox has the error from now on,
    /// because the link's thread tells only those that wait for something.
    fn send(&mut self) -> Result<(), Error> {
        let sent = self.link.queue.push(&mut self.outgoing);
        sent.inspect_err(|error| self.inbox.lose(&error.to_string()))
    }
}

impl PageLink for SharedReader {
    fn room(&self, _: &TableHandle) -> usize {
        self.depth - self.under_way
    }

    fn under_way(&self) -> usize {
        self.under_way
    }

    fn read(&mut self, open: &TableHandle, segment: u16, page: u32, token: u64) {
        assert!(self.under_way < self.depth, "there is no room");
        self.under_way += 1;
        let (handle, unit) = open.place();
        self.outgoing.push(LinkCommand::Read(WantedPage {
            reader: Arc::clone(&self.inbox),
            handle,
            unit,
            segment,
            page,
            token,
        }));
    }

    fn turn(&mut self, at_most: Duration) -> Result<(), Error> {
        if !self.outgoing.is_empty() {
            self.send()?;
        }
        let nothing_to_wait_for = self.under_way == 0 || !self.arrived.is_empty();
        let at_most = if nothing_to_wait_for {
            Duration::ZERO
        } else {
            at_most
        };
        self.under_way -= self.inbox.take_pages(&mut self.arrived, at_most)?;
        Ok(())
    }

    fn next_page(&mut self) -> Option<PageReply> {
        self.arrived.pop_front()
    }
}

impl Drop for SharedReader {
    fn drop(&mut self) {
        self.inbox.end();
        let mut release = vec![LinkCommand::Release(std::mem::take(&mut self.open))];
        // A link that is lost has nothing open.
        drop(self.link.queue.push(&mut release));
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::remote::link_pool::link_place::LinkPlaces;
    use crate::remote::link_pool::link_queue::LinkQueue;

    #[test]
    fn a_thread_that_finds_its_link_lost_never_finds_it_whole_again() {
        let poll = mio::Poll::new().unwrap();
        let queue = LinkQueue::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
        assert!(queue.lose("the node is gone").is_empty());
        let link = SharedLink::without_thread(queue);
        let links = vec![LinkPlaces {
            link: None,
            threads: 1,
        }];
        let place = LinkPlace {
            links: Arc::new(Mutex::new(links)),
            link: 0,
        };
        let mut reader = SharedReader::new(Arc::new(link), place, 1);
        // The link's thread has not come to this reader's inbox, and has no reason to: nothing waits in it.
        let first = reader.open_file("file", 512).map(drop);
        let second = reader.turn(Duration::ZERO);
        for result in [first, second] {
            let error = result.expect_err("the link is lost");
            assert!(matches!(error, Error::Lost(_)), "{error}");
            assert_eq!(error.to_string(), "the node is gone");
        }
    }
}
