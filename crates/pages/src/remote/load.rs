//! Loading rows into a table of a storage node.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::session::Session;
use crate::error::Error;
use crate::protocol::LoadDefinition;
use crate::table::Table;
use crate::table_store::Sink;
use crate::tables::{Identity, LoadOptions, Mode};

/// The most blocks that are on their way and not answered.
const UNANSWERED: usize = 4;
/// Bytes of a block, unless it has a single row: the blocks that are not answered fit into a link's queue.
const BLOCK: usize = 2 << 20;

/// Rows on their way into a table of a storage node. If it is dropped without [`RemoteLoad::commit`], the table
/// stays as it was.
#[derive(Debug)]
pub struct RemoteLoad {
    session: Session,
    load: u32,
    unanswered: VecDeque<u32>,
    /// The request to prepare, until it is answered.
    prepared: Option<u32>,
    rows: u64,
}

impl RemoteLoad {
    /// Begins to load rows, on a session that does nothing else until the load ends.
    ///
    /// # Errors
    /// Returns an error if the node refuses; see [`Error`].
    pub fn begin(
        session: Session,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<RemoteLoad, Error> {
        RemoteLoad::begin_as(session, name, schema, options, mode, None)
    }

    /// Begins a load as [`RemoteLoad::begin`], with names for the new version that the caller has chosen.
    ///
    /// # Errors
    /// Returns the errors of [`RemoteLoad::begin`].
    pub fn begin_as(
        mut session: Session,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
        identity: Option<Identity>,
    ) -> Result<RemoteLoad, Error> {
        let definition = LoadDefinition {
            name: name.to_owned(),
            schema: Arc::clone(schema),
            options: options.clone(),
            mode,
            identity,
        };
        let definition = definition.encode()?;
        let load = session.begin_load(&definition)?;
        session.answer_to(load)?;
        Ok(RemoteLoad {
            session,
            load,
            unanswered: VecDeque::new(),
            prepared: None,
            rows: 0,
        })
    }

    /// Returns the node's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.session.address()
    }

    /// Returns the number of rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds rows.
    ///
    /// # Errors
    /// Returns an error if rows cannot be stored in pages, or the node is lost: none of the load's rows will
    /// be there.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        for block in blocks(batch)? {
            self.push_block(&block)?;
        }
        Ok(())
    }

    /// Adds rows that are encoded already.
    pub(crate) fn push_block(&mut self, block: &LoadBlock) -> Result<(), Error> {
        while self.unanswered.len() >= UNANSWERED {
            self.await_answer()?;
        }
        let request = self.session.send_block(self.load, &block.bytes)?;
        self.unanswered.push_back(request);
        self.rows += block.rows;
        Ok(())
    }

    fn await_answer(&mut self) -> Result<(), Error> {
        if let Some(request) = self.unanswered.pop_front() {
            self.session.answer_to(request)?;
        }
        Ok(())
    }

    /// Asks the node to make the rows durable, but not yet part of the table.
    ///
    /// # Errors
    /// Returns the errors of [`RemoteLoad::push`].
    pub fn begin_prepare(&mut self) -> Result<(), Error> {
        while !self.unanswered.is_empty() {
            self.await_answer()?;
        }
        self.prepared = Some(self.session.prepare_load(self.load)?);
        // The request is sent now: a load into several nodes does not wait for this one first.
        self.session.turn(Duration::ZERO)
    }

    /// Waits until the rows are durable.
    ///
    /// # Errors
    /// Returns the errors of [`RemoteLoad::push`].
    pub fn prepare(&mut self) -> Result<(), Error> {
        if self.prepared.is_none() {
            self.begin_prepare()?;
        }
        match self.prepared.take() {
            Some(request) => self.session.answer_to(request).map(drop),
            None => Ok(()),
        }
    }

    /// Makes the rows part of the table, durably and all at once; returns the table's new version.
    ///
    /// # Errors
    /// Returns the errors of [`RemoteLoad::push`]. With [`Error::Doubtful`] it is unknown whether the
    /// rows are there, but all of them are or none; with any other error they are not.
    pub fn commit(mut self) -> Result<Arc<Table>, Error> {
        while !self.unanswered.is_empty() {
            self.await_answer()?;
        }
        let request = self.session.commit_load(self.load)?;
        let answer = self.session.answer_of_change(request)?;
        let table = Table::decode(&answer);
        let table = table.map_err(|error| Error::Doubtful(error.to_string()))?;
        Ok(Arc::new(table))
    }
}

/// Encoded rows.
pub(crate) struct LoadBlock {
    bytes: Vec<u8>,
    rows: u64,
}

/// Returns a batch as blocks that are short enough to be messages.
pub(crate) fn blocks(batch: &RecordBatch) -> Result<Vec<LoadBlock>, Error> {
    let mut blocks = Vec::new();
    // The batches that are not encoded yet, the first rows at the end.
    let mut rest = vec![batch.clone()];
    while let Some(batch) = rest.pop() {
        let mut bytes = Vec::new();
        let encoded = crate::block::encode(&batch, &mut bytes);
        encoded.map_err(Error::refused)?;
        let rows = batch.num_rows();
        if bytes.len() > BLOCK && rows > 1 {
            rest.push(batch.slice(rows / 2, rows - rows / 2));
            rest.push(batch.slice(0, rows / 2));
            continue;
        }
        let rows = rows as u64;
        blocks.push(LoadBlock { bytes, rows });
    }
    Ok(blocks)
}

impl Sink for RemoteLoad {
    fn push(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        RemoteLoad::push(self, batch)
    }

    fn rows(&self) -> u64 {
        RemoteLoad::rows(self)
    }

    fn commit(self: Box<Self>) -> Result<Arc<Table>, Error> {
        RemoteLoad::commit(*self)
    }
}
