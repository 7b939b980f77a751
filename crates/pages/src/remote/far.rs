//! A storage node that many threads use: each thread that reads, or has a task run, takes a session for
//! that time.

mod pace;
mod task;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

pub use task::TaskStream;

use self::pace::{Pace, Reader};
use super::condition::{Condition, Listed};
use super::session::{Open, Session, SessionError, SessionOptions};
use crate::ahead::Ahead;
use crate::cache::Cache;
use crate::page::{Page, PageError};
use crate::source::{PageStream, Source, Tally};
use crate::table::{Address, PageSize, SegmentId, Table, TableId, Version};

/// The most idle sessions that are kept.
const KEPT: usize = 16;
/// The most tables that a session has open before it closes those that it used longest ago.
const OPEN: usize = 64;
/// How long one turn of a waiting reader sleeps.
const TURN: Duration = Duration::from_millis(100);

/// How a storage node is used.
#[derive(Clone, Debug)]
pub struct FarOptions {
    /// How sessions are made.
    pub session: SessionOptions,
    /// Bytes of pages that a reader has requested and not taken.
    pub ahead_bytes: usize,
    /// The cache in which pages are looked up first, and kept.
    pub cache: Option<Arc<Cache>>,
}

impl FarOptions {
    /// Returns options with 4 MiB ahead and no cache.
    #[must_use]
    pub fn new(session: SessionOptions) -> FarOptions {
        FarOptions {
            session,
            ahead_bytes: 4 << 20,
            cache: None,
        }
    }
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Far {
    inner: Arc<Inner>,
    tally: Option<Arc<Tally>>,
}

#[derive(Debug)]
struct Inner {
    options: FarOptions,
    idle: Mutex<Vec<Held>>,
    pace: Pace,
}

/// A session, and what is open on it.
#[derive(Debug)]
struct Held {
    session: Session,
    open: HashMap<(TableId, Version), Opened>,
    /// The number of its users so far, which distinguishes tokens of earlier users.
    users: u32,
}

/// A table that is open on a session.
#[derive(Clone, Debug)]
struct Opened {
    open: Open,
    /// The places of its segments.
    places: Arc<HashMap<SegmentId, u16>>,
    user: u32,
}

impl Far {
    /// Returns a node that is not connected to yet.
    #[must_use]
    pub fn new(options: FarOptions) -> Far {
        Far {
            inner: Arc::new(Inner {
                options,
                idle: Mutex::default(),
                pace: Pace::default(),
            }),
            tally: None,
        }
    }

    /// Returns the seconds that a page of this size takes to come, with as many under way as readers had;
    /// `None` before enough have come.
    #[must_use]
    pub fn page_s(&self, size: PageSize) -> Option<f64> {
        self.inner.pace.page_s(size)
    }

    /// Returns the seconds for a byte of pages; `None` before enough have come.
    #[must_use]
    pub fn byte_s(&self) -> Option<f64> {
        self.inner.pace.byte_s()
    }

    /// Returns the same node, with the same sessions and the same cache, and counts its pages in `tally`.
    #[must_use]
    pub fn tallied(&self, tally: &Arc<Tally>) -> Far {
        Far {
            inner: Arc::clone(&self.inner),
            tally: Some(Arc::clone(tally)),
        }
    }

    /// Returns how it is used.
    #[must_use]
    pub fn options(&self) -> &FarOptions {
        &self.inner.options
    }

    /// Returns the node's tables.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn tables(&self) -> Result<Vec<Listed>, SessionError> {
        self.with_session(Session::tables)
    }

    /// Returns how busy the node is.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn condition(&self) -> Result<Condition, SessionError> {
        self.with_session(Session::condition)
    }

    /// Returns the newest version of a table.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn open(&self, name: &str) -> Result<Arc<Table>, SessionError> {
        let mut held = self.inner.take()?;
        let opened = held.open_version(name, Version(0))?;
        self.inner.give_back(held);
        Ok(opened.open.table.expect("it is no file"))
    }

    /// Has the node run a task over a version of a table.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn run(&self, table: &Arc<Table>, task: &[u8]) -> Result<TaskStream, SessionError> {
        let mut held = self.inner.take()?;
        let opened = held.open_table(table)?;
        TaskStream::new(Arc::clone(&self.inner), held, &opened.open, task)
    }

    fn with_session<T>(
        &self,
        ask: impl Fn(&mut Session) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        let mut held = self.inner.take()?;
        let answer = ask(&mut held.session)?;
        self.inner.give_back(held);
        Ok(answer)
    }
}

impl Inner {
    /// Returns an idle session that works, or a new one.
    fn take(&self) -> Result<Held, SessionError> {
        loop {
            let idle = self.idle.lock().pop();
            let Some(mut held) = idle else {
                break;
            };
            // The session may have gone down while it was idle.
            if held.session.turn(Duration::ZERO).is_ok() {
                held.users += 1;
                return Ok(held);
            }
        }
        Ok(Held {
            session: Session::connect(self.options.session.clone())?,
            open: HashMap::new(),
            users: 0,
        })
    }

    fn give_back(&self, held: Held) {
        let mut idle = self.idle.lock();
        if idle.len() < KEPT {
            idle.push(held);
        }
    }
}

impl Held {
    /// Opens a version of a table that the caller has.
    fn open_table(&mut self, table: &Table) -> Result<Opened, SessionError> {
        if let Some(opened) = self.open.get_mut(&(table.id, table.version)) {
            opened.user = self.users;
            return Ok(opened.clone());
        }
        let opened = self.open_version(&table.name, table.version)?;
        let found = opened.open.table.as_ref();
        if found.is_none_or(|found| found.id != table.id) {
            let text = format!(
                "storage node {}: table {} is another one by now; ask again",
                self.session.address(),
                table.name
            );
            return Err(SessionError::Refused(text));
        }
        Ok(opened)
    }

    fn open_version(&mut self, name: &str, version: Version) -> Result<Opened, SessionError> {
        let open = self.session.open(name, version)?;
        let table = open.table.clone().expect("a table, not a file");
        let places = table.segments.iter().zip(0..).map(|(s, at)| (s.id, at));
        let opened = Opened {
            places: Arc::new(places.collect()),
            open,
            user: self.users,
        };
        if self.open.len() >= OPEN
            && let Some(oldest) = self.open.iter().min_by_key(|(_, opened)| opened.user)
        {
            let key = *oldest.0;
            if let Some(closed) = self.open.remove(&key) {
                self.session.close(&closed.open)?;
            }
        }
        let replaced = self.open.insert((table.id, table.version), opened.clone());
        if let Some(replaced) = replaced {
            self.session.close(&replaced.open)?;
        }
        Ok(opened)
    }

    /// Returns a token for a page that this user has requested.
    fn token(&self, place: usize) -> u64 {
        u64::from(self.users) << 32 | place as u64
    }
}

impl Source for Far {
    fn read(&self, table: &Arc<Table>, pages: Vec<Address>) -> PageStream {
        let limit = self.inner.options.ahead_bytes / table.page_size.bytes();
        let cache = self.inner.options.cache.clone();
        Box::new(Stream {
            inner: Arc::clone(&self.inner),
            table: Arc::clone(table),
            ahead: Ahead::new(table, pages, limit, cache).tallied(self.tally.clone()),
            held: None,
            due: None,
            failed: None,
            reader: Reader::new(table.page_size),
        })
    }
}

/// A stream of pages.
struct Stream {
    inner: Arc<Inner>,
    table: Arc<Table>,
    ahead: Ahead,
    /// A session, after a page was needed that the cache does not have, and the table that is open on it.
    held: Option<(Held, Opened)>,
    /// A page that is to be requested next, and was not yet: there was no room, or no session.
    due: Option<(usize, Address)>,
    /// Why nothing is requested any more. Pages that have come before are still taken.
    failed: Option<SessionError>,
    /// Measures the pace of the pages.
    reader: Reader,
}

impl Iterator for Stream {
    type Item = Result<Arc<Page>, PageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let deadline = Instant::now() + self.inner.options.session.patience;
        while !self.ahead.is_over() {
            if self.failed.is_none() {
                self.failed = self.go_ahead(deadline).err();
            }
            if let Some(page) = self.ahead.take() {
                self.reader.go_on(&self.inner.pace, Instant::now());
                return Some(page);
            }
            self.reader.wait(&self.inner.pace, Instant::now());
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

impl Stream {
    /// Asks for pages, and sends the requests to the node if that is due.
    fn go_ahead(&mut self, deadline: Instant) -> Result<(), SessionError> {
        self.ask()?;
        if self.ahead.is_due() {
            self.turn(Duration::ZERO, deadline)?;
        }
        Ok(())
    }

    /// Asks for pages, as far as there is room.
    fn ask(&mut self) -> Result<(), SessionError> {
        loop {
            self.due = self.due.take().or_else(|| self.ahead.ask());
            let Some((place, address)) = self.due else {
                return Ok(());
            };
            if self.held.is_none() {
                let mut held = self.inner.take()?;
                let opened = held.open_table(&self.table)?;
                self.held = Some((held, opened));
            }
            let Some((held, opened)) = &mut self.held else {
                unreachable!("it was taken");
            };
            if held.session.room(&opened.open) == 0 {
                return Ok(());
            }
            self.due = None;
            let segment = opened.places.get(&address.segment).copied();
            let Some(segment) = segment else {
                let what = "its segment is not in the table's version".to_owned();
                self.ahead
                    .bring(place, Err(PageError::Unreadable { address, what }));
                continue;
            };
            let token = held.token(place);
            held.session
                .read(&opened.open, segment, address.page.0, token);
        }
    }

    /// Asks for pages, and takes those that have come; waits for them, but at most `at_most`.
    fn turn(&mut self, at_most: Duration, deadline: Instant) -> Result<(), SessionError> {
        let Some((held, _)) = &mut self.held else {
            return Ok(());
        };
        held.session.turn(at_most)?;
        let mut something = false;
        while let Some(arrived) = held.session.arrived() {
            something = true;
            let place = (arrived.token & u64::from(u32::MAX)) as usize;
            if held.token(place) != arrived.token {
                continue;
            }
            let bytes = arrived.page.map(Bytes::from);
            let bytes = bytes.map_err(|what| PageError::Unreadable {
                address: self.ahead.at(place),
                what: format!("storage node {}: {what}", held.session.address()),
            });
            self.ahead.bring(place, bytes);
            self.reader.came(&self.inner.pace, Instant::now());
        }
        if !something && Instant::now() > deadline {
            let patience = self.inner.options.session.patience;
            let text = format!(
                "storage node {}: no page has come in {patience:?}",
                held.session.address()
            );
            return Err(SessionError::Lost(text));
        }
        Ok(())
    }

    fn fail(&mut self, error: &SessionError) -> Option<Result<Arc<Page>, PageError>> {
        let address = self.ahead.first()?;
        // Requests that are under way on it are of no use any more.
        self.held = None;
        self.ahead.end();
        let what = error.to_string();
        Some(Err(match error {
            SessionError::Lost(_) | SessionError::Busy(_) => PageError::Lost { address, what },
            _ => PageError::Unreadable { address, what },
        }))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.end(&self.inner.pace, Instant::now());
        if let Some((held, _)) = self.held.take() {
            self.inner.give_back(held);
        }
    }
}
