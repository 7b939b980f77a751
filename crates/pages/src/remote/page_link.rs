//! How one thread requests pages of a node, whether its link is its own or shared.

use std::time::Duration;

use super::session::{PageReply, Session, TableHandle};
use crate::error::Error;

/// A thread's way to a node's pages: a [`Session`], which is a link of its own, or a
/// [`SharedReader`](super::SharedReader), which shares a link with other threads.
///
/// A turn consists of calls of [`PageLink::read`] as long as there is [room](PageLink::room), then
/// [`PageLink::turn`], then [`PageLink::next_page`] for each page that has come.
pub trait PageLink {
    /// Returns how many more pages of this table or file may be requested at present.
    fn room(&self, open: &TableHandle) -> usize;

    /// Returns the number of pages that were requested and have not come.
    fn under_way(&self) -> usize;

    /// Requests a page, with the next turn; the token identifies it.
    ///
    /// # Panics
    /// Panics without [room](PageLink::room).
    fn read(&mut self, open: &TableHandle, segment: u16, page: u32, token: u64);

    /// Sends requests, and waits for pages, but at most `at_most`.
    ///
    /// # Errors
    /// Returns [`Error::Lost`] if the link is down: no requested page comes any more.
    fn turn(&mut self, at_most: Duration) -> Result<(), Error>;

    /// Returns the next page that has come, or failed to come.
    fn next_page(&mut self) -> Option<PageReply>;
}

impl PageLink for Session {
    fn room(&self, open: &TableHandle) -> usize {
        Session::room(self, open)
    }

    fn under_way(&self) -> usize {
        Session::under_way(self)
    }

    fn read(&mut self, open: &TableHandle, segment: u16, page: u32, token: u64) {
        Session::read(self, open, segment, page, token);
    }

    fn turn(&mut self, at_most: Duration) -> Result<(), Error> {
        Session::turn(self, at_most)
    }

    fn next_page(&mut self) -> Option<PageReply> {
        Session::next_page(self)
    }
}
