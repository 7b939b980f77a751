//! Loading rows into a table of a storage node.
//!
//! A definition, in bytes: the mode (1: 0 there must be no such table, 1 its rows are replaced, 2 rows are
//! appended); the source of the names (1: 0 the node chooses the new version's, 1 they are the id and the
//! version of the table at the end, and the segment's id (16) comes here); widths of texts in the layout of
//! rows (a count, and for each a name and `u16`); forms of columns there (a count, and for each a number and
//! a width as `u16`; none if they follow from the columns' types); the table without segments, as
//! [`Table::encode`] gives it.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use base::codec::{Malformed, MalformedKind, Reader, put_bytes, put_count};

use super::session::{Session, SessionError};
use crate::row::Form;
use crate::segment::Groups;
use crate::table::{SegmentId, Table, TableId, Version};
use crate::tables::{Identity, LoadOptions, Mode};

/// The most blocks that are on their way and not answered.
const UNANSWERED: usize = 4;
/// Bytes of a block, unless it has a single row: the blocks that are not answered fit into a link's queue.
const BLOCK: usize = 2 << 20;

/// The description of a load, which a node gets before the rows.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) schema: SchemaRef,
    pub(crate) options: LoadOptions,
    pub(crate) mode: Mode,
    /// The new version's names; `None` if the node chooses them.
    pub(crate) identity: Option<Identity>,
}

impl Definition {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        self.encode_as(TableId::new())
    }

    /// Returns the definition as bytes, for a table of this id, which the node ignores if it chooses the
    /// names.
    pub(crate) fn encode_as(&self, id: TableId) -> Result<Vec<u8>, String> {
        let mut out = vec![match self.mode {
            Mode::Create => 0,
            Mode::Replace => 1,
            Mode::Append => 2,
        }];
        out.push(u8::from(self.identity.is_some()));
        if let Some(identity) = self.identity {
            out.extend(identity.segment.0.to_le_bytes());
        }
        put_count(&mut out, self.options.text_widths.len() as u64);
        for (column, width) in &self.options.text_widths {
            put_bytes(&mut out, column.as_bytes());
            out.extend(width.to_le_bytes());
        }
        let forms = self.options.forms.as_deref().unwrap_or_default();
        put_count(&mut out, forms.len() as u64);
        out.extend(forms.iter().flat_map(|form| form.encode()));
        let table = Table {
            id: self.identity.map_or(id, |identity| identity.table),
            name: self.name.clone(),
            version: self
                .identity
                .map_or(Version(1), |identity| identity.version),
            schema: Arc::clone(&self.schema),
            page_size: self.options.page_size,
            layout: self.options.layout,
            groups: self.options.resolved_groups(&self.schema)?,
            segments: Vec::new(),
        };
        out.extend(table.encode());
        Ok(out)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Definition, String> {
        let says = |error: Malformed| error.to_string();
        let mut reader = Reader::new(bytes);
        let mode = match reader.u8().map_err(says)? {
            0 => Mode::Create,
            1 => Mode::Replace,
            2 => Mode::Append,
            other => return Err(says(reader.malformed(MalformedKind::Kind(other, "load")))),
        };
        let segment = match reader.u8().map_err(says)? {
            0 => None,
            1 => Some(SegmentId(u128::from_le_bytes(
                reader.array().map_err(says)?,
            ))),
            other => return Err(says(reader.malformed(MalformedKind::Kind(other, "names")))),
        };
        let mut text_widths = HashMap::new();
        for _ in 0..reader.count().map_err(says)? {
            let column = reader.text().map_err(says)?.to_owned();
            text_widths.insert(column, reader.u16().map_err(says)?);
        }
        let mut forms = Vec::new();
        for _ in 0..reader.count().map_err(says)? {
            let form = Form::decode(reader.array().map_err(says)?);
            forms.push(form.ok_or("a form that is none")?);
        }
        let table = Table::decode(reader.rest()).map_err(|error| error.to_string())?;
        let name_of = |&column: &usize| table.schema.field(column).name().clone();
        let groups = table.groups.iter();
        let groups = groups.map(|group| group.iter().map(name_of).collect());
        Ok(Definition {
            options: LoadOptions {
                page_size: table.page_size,
                layout: table.layout,
                groups: Groups::Given(groups.collect()),
                text_widths,
                forms: (!forms.is_empty()).then_some(forms),
            },
            identity: segment.map(|segment| Identity {
                table: table.id,
                version: table.version,
                segment,
            }),
            name: table.name,
            schema: table.schema,
            mode,
        })
    }
}

/// Rows on their way into a table of a storage node. If it is dropped without [`FarLoad::commit`], the table
/// stays as it was.
#[derive(Debug)]
pub struct FarLoad {
    session: Session,
    load: u32,
    unanswered: VecDeque<u32>,
    /// The request to prepare, until it is answered.
    prepared: Option<u32>,
    rows: u64,
}

impl FarLoad {
    /// Begins to load rows, on a session that does nothing else until the load ends.
    ///
    /// # Errors
    /// Returns an error if the node refuses; see [`SessionError`].
    pub fn begin(
        session: Session,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<FarLoad, SessionError> {
        FarLoad::begin_as(session, name, schema, options, mode, None)
    }

    /// Begins a load as [`FarLoad::begin`], with names for the new version that the caller has chosen.
    ///
    /// # Errors
    /// Returns the errors of [`FarLoad::begin`].
    pub fn begin_as(
        mut session: Session,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
        identity: Option<Identity>,
    ) -> Result<FarLoad, SessionError> {
        let definition = Definition {
            name: name.to_owned(),
            schema: Arc::clone(schema),
            options: options.clone(),
            mode,
            identity,
        };
        let definition = definition.encode().map_err(SessionError::Refused)?;
        let load = session.begin_load(&definition)?;
        session.answer_to(load)?;
        Ok(FarLoad {
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
    pub fn push(&mut self, batch: &RecordBatch) -> Result<(), SessionError> {
        for block in blocks(batch)? {
            self.push_block(&block)?;
        }
        Ok(())
    }

    /// Adds rows that are encoded already.
    pub(crate) fn push_block(&mut self, block: &Block) -> Result<(), SessionError> {
        while self.unanswered.len() >= UNANSWERED {
            self.hear_one()?;
        }
        let request = self.session.send_part(self.load, &block.bytes)?;
        self.unanswered.push_back(request);
        self.rows += block.rows;
        Ok(())
    }

    fn hear_one(&mut self) -> Result<(), SessionError> {
        if let Some(request) = self.unanswered.pop_front() {
            self.session.answer_to(request)?;
        }
        Ok(())
    }

    /// Asks the node to make the rows durable, but not yet part of the table.
    ///
    /// # Errors
    /// Returns the errors of [`FarLoad::push`].
    pub fn begin_to_prepare(&mut self) -> Result<(), SessionError> {
        while !self.unanswered.is_empty() {
            self.hear_one()?;
        }
        self.prepared = Some(self.session.prepare_load(self.load)?);
        // The request is sent now: a load into several nodes does not wait for this one first.
        self.session.turn(Duration::ZERO)
    }

    /// Waits until the rows are durable.
    ///
    /// # Errors
    /// Returns the errors of [`FarLoad::push`].
    pub fn prepare(&mut self) -> Result<(), SessionError> {
        if self.prepared.is_none() {
            self.begin_to_prepare()?;
        }
        match self.prepared.take() {
            Some(request) => self.session.answer_to(request).map(drop),
            None => Ok(()),
        }
    }

    /// Makes the rows part of the table, durably and all at once; returns the table's new version.
    ///
    /// # Errors
    /// Returns the errors of [`FarLoad::push`]. With [`SessionError::Doubtful`] it is unknown whether the
    /// rows are there, but all of them are or none; with any other error they are not.
    pub fn commit(mut self) -> Result<Arc<Table>, SessionError> {
        while !self.unanswered.is_empty() {
            self.hear_one()?;
        }
        let request = self.session.commit_load(self.load)?;
        let answer = self.session.answer_of_change(request)?;
        let table = Table::decode(&answer);
        let table = table.map_err(|error| SessionError::Doubtful(error.to_string()))?;
        Ok(Arc::new(table))
    }
}

/// Encoded rows.
pub(crate) struct Block {
    bytes: Vec<u8>,
    rows: u64,
}

/// Returns a batch as blocks that are short enough to be messages.
pub(crate) fn blocks(batch: &RecordBatch) -> Result<Vec<Block>, SessionError> {
    let mut blocks = Vec::new();
    // The batches that are not encoded yet, the first rows at the end.
    let mut rest = vec![batch.clone()];
    while let Some(batch) = rest.pop() {
        let mut bytes = Vec::new();
        let encoded = crate::block::encode(&batch, &mut bytes);
        encoded.map_err(|error| SessionError::Refused(error.to_string()))?;
        let rows = batch.num_rows();
        if bytes.len() > BLOCK && rows > 1 {
            rest.push(batch.slice(rows / 2, rows - rows / 2));
            rest.push(batch.slice(0, rows / 2));
            continue;
        }
        let rows = rows as u64;
        blocks.push(Block { bytes, rows });
    }
    Ok(blocks)
}
