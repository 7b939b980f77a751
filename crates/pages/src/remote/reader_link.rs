//! The link of a reader of a table's pages: a session of its own for that time, or a shared link.

use std::net::SocketAddr;
use std::time::Duration;

use super::link_pool::SharedReader;
use super::page_link::PageLink;
use super::session::PageReply;
use super::session_pool::{CachedHandle, PooledSession, SessionPool};
use crate::error::Error;
use crate::table::{PageAddress, Table};

/// See the [module](self).
pub(super) struct ReaderLink {
    link: LinkKind,
    opened: CachedHandle,
}

enum LinkKind {
    Own(Box<PooledSession>),
    Shared(SharedReader),
}

impl ReaderLink {
    /// Takes a link of a node, and opens a table's version on it.
    pub(super) fn open(pool: &SessionPool, table: &Table) -> Result<ReaderLink, Error> {
        let Some(links) = &pool.links else {
            let mut pooled = pool.take()?;
            let opened = pooled.open_table(table)?;
            let link = LinkKind::Own(Box::new(pooled));
            return Ok(ReaderLink { link, opened });
        };
        let mut reader = links.reader()?;
        let opened = CachedHandle::new(reader.open(table)?, 0);
        let link = LinkKind::Shared(reader);
        Ok(ReaderLink { link, opened })
    }

    pub(super) fn give_back(self, pool: &SessionPool) {
        match self.link {
            LinkKind::Own(pooled) => pool.give_back(*pooled),
            // Its place is free, and pages that are under way are dropped when they come.
            LinkKind::Shared(_) => {}
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        match &self.link {
            LinkKind::Own(pooled) => pooled.session.address(),
            LinkKind::Shared(reader) => reader.address(),
        }
    }

    /// Returns how many more pages may be requested at present.
    pub(super) fn room(&self) -> usize {
        match &self.link {
            LinkKind::Own(pooled) => pooled.session.room(&self.opened.handle),
            LinkKind::Shared(reader) => reader.room(&self.opened.handle),
        }
    }

    /// Returns the token of a page that this user of the link has requested.
    pub(super) fn token(&self, place: usize) -> u64 {
        match &self.link {
            LinkKind::Own(pooled) => pooled.token(place),
            LinkKind::Shared(_) => place as u64,
        }
    }

    /// Requests a page. Returns `false` if the version does not have the page's segment.
    pub(super) fn read(&mut self, address: PageAddress, place: usize) -> bool {
        let Some(&segment) = self.opened.places.get(&address.segment) else {
            return false;
        };
        let token = self.token(place);
        let open = &self.opened.handle;
        match &mut self.link {
            LinkKind::Own(pooled) => pooled.session.read(open, segment, address.page.0, token),
            LinkKind::Shared(reader) => reader.read(open, segment, address.page.0, token),
        }
        true
    }

    /// Sends requests, and waits for pages, but at most `at_most`.
    pub(super) fn turn(&mut self, at_most: Duration) -> Result<(), Error> {
        match &mut self.link {
            LinkKind::Own(pooled) => pooled.session.turn(at_most),
            LinkKind::Shared(reader) => reader.turn(at_most),
        }
    }

    pub(super) fn next_page(&mut self) -> Option<PageReply> {
        match &mut self.link {
            LinkKind::Own(pooled) => pooled.session.next_page(),
            LinkKind::Shared(reader) => reader.next_page(),
        }
    }
}
