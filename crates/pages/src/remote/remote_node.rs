//! A storage node that many threads use: each thread that reads, or has a task run, takes a session for
//! that time.

use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::link_pool::{LinkPool, LinkPoolOptions};
use super::load::RemoteLoad;
use super::page_reader::PageReader;
use super::session::Session;
pub use super::session_pool::RemoteNodeOptions;
use super::session_pool::SessionPool;
use super::task_stream::TaskStream;
use crate::error::Error;
use crate::protocol::{ListedTable, NodeStatus};
use crate::source::{PageStream, Source, Tally};
use crate::table::{PageAddress, PageSize, Table, Version};
use crate::table_store::{Sink, TableStore};
use crate::tables::{LoadOptions, Mode};

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct RemoteNode {
    pool: Arc<SessionPool>,
    tally: Option<Arc<Tally>>,
}

impl RemoteNode {
    /// Returns a node that is not connected to yet.
    #[must_use]
    pub fn new(options: RemoteNodeOptions) -> RemoteNode {
        RemoteNode::over(options, None)
    }

    /// Returns a node as [`RemoteNode::new`], whose readers of pages share so many connections, so many
    /// threads each; see [`link_pool`](super::link_pool). Tasks, loads and questions have sessions of
    /// their own. The options' depth and window are of a connection.
    ///
    /// # Errors
    /// Returns the errors of [`LinkPool::new`].
    pub fn sharing(
        options: RemoteNodeOptions,
        connections: usize,
        threads_per_connection: usize,
    ) -> Result<RemoteNode, Error> {
        let links = LinkPool::new(LinkPoolOptions {
            session: options.session.clone(),
            connections,
            threads_per_connection,
            // Their threads run in any case.
            stack_bytes: 0,
        })?;
        Ok(RemoteNode::over(options, Some(links)))
    }

    fn over(options: RemoteNodeOptions, links: Option<LinkPool>) -> RemoteNode {
        RemoteNode {
            pool: Arc::new(SessionPool::new(options, links)),
            tally: None,
        }
    }

    /// Returns the seconds that a page of this size takes to come, with as many under way as readers had;
    /// `None` before enough have come.
    #[must_use]
    pub fn page_s(&self, size: PageSize) -> Option<f64> {
        self.pool.page_rate.page_s(size)
    }

    /// Returns the seconds for a byte of pages; `None` before enough have come.
    #[must_use]
    pub fn byte_s(&self) -> Option<f64> {
        self.pool.page_rate.byte_s()
    }

    /// Returns the same node, with the same sessions and the same cache, and counts its pages in `tally`.
    #[must_use]
    pub fn tallied(&self, tally: &Arc<Tally>) -> RemoteNode {
        RemoteNode {
            pool: Arc::clone(&self.pool),
            tally: Some(Arc::clone(tally)),
        }
    }

    /// Returns how it is used.
    #[must_use]
    pub fn options(&self) -> &RemoteNodeOptions {
        &self.pool.options
    }

    /// Returns the node's tables.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn tables(&self) -> Result<Vec<ListedTable>, Error> {
        self.with_session(Session::tables)
    }

    /// Returns how busy the node is.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn status(&self) -> Result<NodeStatus, Error> {
        self.with_session(Session::status)
    }

    /// Returns the newest version of a table.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(&self, name: &str) -> Result<Arc<Table>, Error> {
        let mut pooled = self.pool.take()?;
        let opened = pooled.open_version(name, Version(0))?;
        self.pool.give_back(pooled);
        Ok(opened.handle.table.expect("it is no file"))
    }

    /// Has the node run a task over a version of a table.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn run(&self, table: &Arc<Table>, task: &[u8]) -> Result<TaskStream, Error> {
        let mut pooled = self.pool.take()?;
        let opened = pooled.open_table(table)?;
        TaskStream::new(Arc::clone(&self.pool), pooled, &opened.handle, task)
    }

    fn with_session<T>(&self, ask: impl Fn(&mut Session) -> Result<T, Error>) -> Result<T, Error> {
        let mut pooled = self.pool.take()?;
        let answer = ask(&mut pooled.session)?;
        self.pool.give_back(pooled);
        Ok(answer)
    }
}

impl Source for RemoteNode {
    fn read(&self, table: &Arc<Table>, pages: Vec<PageAddress>) -> PageStream {
        Box::new(PageReader::new(
            &self.pool,
            table,
            pages,
            self.tally.clone(),
        ))
    }
}

impl TableStore for RemoteNode {
    fn list(&self) -> Result<Vec<Arc<Table>>, Error> {
        let listed = self.tables()?;
        let sound = listed.iter().filter(|listed| listed.found.is_ok());
        sound.map(|listed| self.open(&listed.name)).collect()
    }

    fn damaged(&self) -> Result<Vec<(String, String)>, Error> {
        let listed = self.tables()?.into_iter();
        let damaged = listed.filter_map(|listed| Some((listed.name, listed.found.err()?.0)));
        Ok(damaged.collect())
    }

    fn table(&self, name: &str) -> Result<Option<Arc<Table>>, Error> {
        let exists = self.tables()?.iter().any(|listed| listed.name == name);
        exists.then(|| self.open(name)).transpose()
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let mut session = Session::connect(self.options().session.clone())?;
        session.remove(name)
    }

    fn load(
        &self,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<Box<dyn Sink>, Error> {
        options.check(schema, mode)?;
        let session = Session::connect(self.options().session.clone())?;
        let load = RemoteLoad::begin(session, name, schema, options, mode)?;
        Ok(Box::new(load))
    }
}
