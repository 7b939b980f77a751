//! Reads pages of a storage node, some before the caller takes them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::page_rate::ReaderRate;
use super::reader_link::ReaderLink;
use super::session_pool::SessionPool;
use crate::error::{Error, ErrorClass};
use crate::page::{Page, PageError};
use crate::read_ahead::ReadAhead;
use crate::source::Tally;
use crate::table::{PageAddress, Table};

/// How long one turn of a waiting reader sleeps.
const TURN: Duration = Duration::from_millis(100);

/// See the [module](self).
pub(super) struct PageReader {
    pool: Arc<SessionPool>,
    table: Arc<Table>,
    ahead: ReadAhead,
    /// A link on which the table is open, after a page was needed that the cache does not have.
    link: Option<ReaderLink>,
    /// A page that is to be requested next, and was not yet: there was no room, or no session.
    due: Option<(usize, PageAddress)>,
    /// Why nothing is requested any more. Pages that have come before are still taken.
    failed: Option<Error>,
    /// Measures the rate of the pages.
    rate: ReaderRate,
}

impl Iterator for PageReader {
    type Item = Result<Arc<Page>, PageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let deadline = Instant::now() + self.pool.options.session.patience;
        while !self.ahead.is_over() {
            if self.failed.is_none() {
                self.failed = self.go_ahead(deadline).err();
            }
            if let Some(page) = self.ahead.take() {
                self.rate.go_on(&self.pool.page_rate, Instant::now());
                return Some(page);
            }
            self.rate.wait(&self.pool.page_rate, Instant::now());
            let turned = match self.failed.take() {
                Some(error) => Err(error),
                None => self.turn(TURN, deadline),
            };
            if let Err(error) = turned {
                return self.fail(&error);
            }
        }
        None
    }
}

impl PageReader {
    pub(super) fn new(
        pool: &Arc<SessionPool>,
        table: &Arc<Table>,
        pages: Vec<PageAddress>,
        tally: Option<Arc<Tally>>,
    ) -> PageReader {
        let limit = pool.options.ahead_bytes / table.page_size.bytes();
        let cache = pool.options.cache.clone();
        PageReader {
            pool: Arc::clone(pool),
            table: Arc::clone(table),
            ahead: ReadAhead::new(table, pages, limit, cache).tallied(tally),
            link: None,
            due: None,
            failed: None,
            rate: ReaderRate::new(table.page_size),
        }
    }

    /// Asks for pages, and sends the requests to the node if that is due.
    fn go_ahead(&mut self, deadline: Instant) -> Result<(), Error> {
        self.request_pages()?;
        if self.ahead.is_due() {
            self.turn(Duration::ZERO, deadline)?;
        }
        Ok(())
    }

    /// Asks for pages, as far as there is room.
    fn request_pages(&mut self) -> Result<(), Error> {
        loop {
            self.due = self.due.take().or_else(|| self.ahead.next_request());
            let Some((place, address)) = self.due else {
                return Ok(());
            };
            if self.link.is_none() {
                self.link = Some(ReaderLink::open(&self.pool, &self.table)?);
            }
            let Some(link) = &mut self.link else {
                unreachable!("it was opened");
            };
            if link.room() == 0 {
                return Ok(());
            }
            self.due = None;
            if !link.read(address, place) {
                let what = "its segment is not in the table's version".to_owned();
                self.ahead
                    .deliver(place, Err(PageError::Unreadable { address, what }));
            }
        }
    }

    /// Asks for pages, and takes those that have come; waits for them, but at most `at_most`.
    fn turn(&mut self, at_most: Duration, deadline: Instant) -> Result<(), Error> {
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        link.turn(at_most)?;
        let mut something = false;
        while let Some(arrived) = link.next_page() {
            something = true;
            let place = (arrived.token & u64::from(u32::MAX)) as usize;
            if link.token(place) != arrived.token {
                continue;
            }
            let bytes = arrived.page.map(Bytes::from);
            let bytes = bytes.map_err(|error| PageError::Unreadable {
                address: self.ahead.at(place),
                what: error.to_string(),
            });
            self.ahead.deliver(place, bytes);
            self.rate.arrived(&self.pool.page_rate, Instant::now());
        }
        if !something && Instant::now() > deadline {
            let patience = self.pool.options.session.patience;
            let text = format!(
                "storage node {}: no page has come in {patience:?}",
                link.address()
            );
            return Err(Error::Lost(text));
        }
        Ok(())
    }

    fn fail(&mut self, error: &Error) -> Option<Result<Arc<Page>, PageError>> {
        let address = self.ahead.first()?;
        // Requests that are under way on it are of no use any more.
        self.link = None;
        self.ahead.end();
        let what = error.to_string();
        Some(Err(match error.class() {
            ErrorClass::OtherNode | ErrorClass::Retry => PageError::Lost { address, what },
            _ => PageError::Unreadable { address, what },
        }))
    }
}

impl Drop for PageReader {
    fn drop(&mut self) {
        self.rate.end(&self.pool.page_rate, Instant::now());
        if let Some(link) = self.link.take() {
            link.give_back(&self.pool);
        }
    }
}
