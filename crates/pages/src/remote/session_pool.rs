//! Sessions with a storage node, which threads take in turn.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::link_pool::LinkPool;
use super::page_rate::PageRate;
use super::session::{Session, SessionOptions, TableHandle};
use crate::cache::Cache;
use crate::error::Error;
use crate::table::{SegmentId, Table, TableId, Version};

/// The most idle sessions that are kept.
const KEPT: usize = 16;
/// The most tables that a session has open before it closes those that it used longest ago.
const OPEN: usize = 64;

/// How a storage node is used.
#[derive(Clone, Debug)]
pub struct RemoteNodeOptions {
    /// How sessions are made.
    pub session: SessionOptions,
    /// Bytes of pages that a reader has requested and not taken.
    pub ahead_bytes: usize,
    /// The cache in which pages are looked up first, and kept.
    pub cache: Option<Arc<Cache>>,
}

impl RemoteNodeOptions {
    /// Returns options with 4 MiB ahead and no cache.
    #[must_use]
    pub fn new(session: SessionOptions) -> RemoteNodeOptions {
        RemoteNodeOptions {
            session,
            ahead_bytes: 4 << 20,
            cache: None,
        }
    }
}

/// Sessions with a node.
#[derive(Debug)]
pub(super) struct SessionPool {
    pub(super) options: RemoteNodeOptions,
    /// The links that readers of pages share, if they do. All else has sessions of its own.
    pub(super) links: Option<LinkPool>,
    idle: Mutex<Vec<PooledSession>>,
    pub(super) page_rate: PageRate,
}

/// A session, and what is open on it.
#[derive(Debug)]
pub(super) struct PooledSession {
    pub(super) session: Session,
    open: HashMap<(TableId, Version), CachedHandle>,
    /// The number of its users so far, which distinguishes tokens of earlier users.
    users: u32,
}

/// A table that is open on a session.
#[derive(Clone, Debug)]
pub(super) struct CachedHandle {
    pub(super) handle: TableHandle,
    /// The places of its segments.
    pub(super) places: Arc<HashMap<SegmentId, u16>>,
    user: u32,
}

impl CachedHandle {
    /// Makes it of an open table.
    pub(super) fn new(handle: TableHandle, user: u32) -> CachedHandle {
        let table = handle.table.as_ref().expect("a table, not a file");
        let places = table.segments.iter().zip(0..).map(|(s, at)| (s.id, at));
        CachedHandle {
            places: Arc::new(places.collect()),
            handle,
            user,
        }
    }
}

impl SessionPool {
    pub(super) fn new(options: RemoteNodeOptions, links: Option<LinkPool>) -> SessionPool {
        SessionPool {
            options,
            links,
            idle: Mutex::default(),
            page_rate: PageRate::default(),
        }
    }

    /// Returns an idle session that works, or a new one.
    pub(super) fn take(&self) -> Result<PooledSession, Error> {
        loop {
            let idle = self.idle.lock().pop();
            let Some(mut pooled) = idle else {
                break;
            };
            // The session may have gone down while it was idle.
            if pooled.session.turn(Duration::ZERO).is_ok() {
                pooled.users += 1;
                return Ok(pooled);
            }
        }
        Ok(PooledSession {
            session: Session::connect(self.options.session.clone())?,
            open: HashMap::new(),
            users: 0,
        })
    }

    pub(super) fn give_back(&self, pooled: PooledSession) {
        let mut idle = self.idle.lock();
        if idle.len() < KEPT {
            idle.push(pooled);
        }
    }
}

impl PooledSession {
    /// Opens a version of a table that the caller has.
    pub(super) fn open_table(&mut self, table: &Table) -> Result<CachedHandle, Error> {
        if let Some(opened) = self.open.get_mut(&(table.id, table.version)) {
            opened.user = self.users;
            return Ok(opened.clone());
        }
        let opened = self.open_version(&table.name, table.version)?;
        opened.handle.check(table, self.session.address())?;
        Ok(opened)
    }

    pub(super) fn open_version(
        &mut self,
        name: &str,
        version: Version,
    ) -> Result<CachedHandle, Error> {
        let open = self.session.open(name, version)?;
        let table = open.table.as_ref().expect("a table, not a file");
        let key = (table.id, table.version);
        let opened = CachedHandle::new(open, self.users);
        if self.open.len() >= OPEN
            && let Some(oldest) = self.open.iter().min_by_key(|(_, opened)| opened.user)
        {
            let key = *oldest.0;
            if let Some(closed) = self.open.remove(&key) {
                self.session.close(&closed.handle)?;
            }
        }
        let replaced = self.open.insert(key, opened.clone());
        if let Some(replaced) = replaced {
            self.session.close(&replaced.handle)?;
        }
        Ok(opened)
    }

    /// Returns a token for a page that this user has requested.
    pub(super) fn token(&self, place: usize) -> u64 {
        u64::from(self.users) << 32 | place as u64
    }
}
