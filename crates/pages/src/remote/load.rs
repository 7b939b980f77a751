//! Loading rows into a table of a storage node.
//!
//! A definition, in bytes: how (1: 0 there must be no such table, 1 its rows are replaced, 2 rows are
//! appended); widths of texts in the layout of rows (a count, and for each a name and `u16`); forms of
//! columns there (a count, and for each a number and a width as `u16`; none if they follow from the
//! columns' types); the table without segments, as [`Table::encode`] gives it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use base::codec::{Malformed, MalformedKind, Reader, put_bytes, put_count};

use super::session::{Session, SessionError};
use crate::row::Form;
use crate::segment::Groups;
use crate::table::{Table, TableId, Version};
use crate::tables::{LoadOptions, Mode};

/// Blocks that are on their way and not answered.
const UNANSWERED: usize = 4;

/// What a node is told before rows are.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) schema: SchemaRef,
    pub(crate) options: LoadOptions,
    pub(crate) mode: Mode,
}

impl Definition {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        self.encode_as(TableId::new())
    }

    /// As bytes, for a table of this id, which the node does not look at.
    pub(crate) fn encode_as(&self, id: TableId) -> Result<Vec<u8>, String> {
        let mut out = vec![match self.mode {
            Mode::Create => 0,
            Mode::Replace => 1,
            Mode::Append => 2,
        }];
        put_count(&mut out, self.options.text_widths.len() as u64);
        for (column, width) in &self.options.text_widths {
            put_bytes(&mut out, column.as_bytes());
            out.extend(width.to_le_bytes());
        }
        let forms = self.options.forms.as_deref().unwrap_or_default();
        put_count(&mut out, forms.len() as u64);
        out.extend(forms.iter().flat_map(|form| form.encode()));
        let table = Table {
            id,
            name: self.name.clone(),
            version: Version(1),
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
            name: table.name,
            schema: table.schema,
            mode,
        })
    }
}

/// Rows on their way into a table of a storage node. Dropped without [`FarLoad::commit`] it leaves the
/// table as it was.
#[derive(Debug)]
pub struct FarLoad {
    session: Session,
    load: u32,
    unanswered: VecDeque<u32>,
    rows: u64,
    block: Vec<u8>,
}

impl FarLoad {
    /// Begins to load rows, on a session that does nothing else until then.
    ///
    /// # Errors
    /// The node refuses; see [`SessionError`].
    pub fn begin(
        mut session: Session,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
    ) -> Result<FarLoad, SessionError> {
        let definition = Definition {
            name: name.to_owned(),
            schema: Arc::clone(schema),
            options: options.clone(),
            mode,
        };
        let definition = definition.encode().map_err(SessionError::Refused)?;
        let load = session.begin_load(&definition)?;
        session.answer_to(load)?;
        Ok(FarLoad {
            session,
            load,
            unanswered: VecDeque::new(),
            rows: 0,
            block: Vec::new(),
        })
    }

    /// Rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds rows.
    ///
    /// # Errors
    /// Rows do not become pages, or the node is gone: nothing of the load will be there.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<(), SessionError> {
        while self.unanswered.len() >= UNANSWERED {
            self.hear_one()?;
        }
        self.block.clear();
        let encoded = crate::block::encode(batch, &mut self.block);
        encoded.map_err(|error| SessionError::Refused(error.to_string()))?;
        let request = self.session.send_part(self.load, &self.block)?;
        self.unanswered.push_back(request);
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn hear_one(&mut self) -> Result<(), SessionError> {
        if let Some(request) = self.unanswered.pop_front() {
            self.session.answer_to(request)?;
        }
        Ok(())
    }

    /// Makes the rows part of the table, durably and all at once; returns the table's new version.
    ///
    /// # Errors
    /// As [`FarLoad::push`]; if the node is lost on the way, nobody knows whether the rows are there,
    /// but all of them are or none.
    pub fn commit(mut self) -> Result<Arc<Table>, SessionError> {
        while !self.unanswered.is_empty() {
            self.hear_one()?;
        }
        let request = self.session.commit_load(self.load)?;
        let answer = self.session.answer_to(request)?;
        let table = Table::decode(&answer);
        let table = table.map_err(|error| SessionError::Lost(error.to_string()))?;
        Ok(Arc::new(table))
    }
}
