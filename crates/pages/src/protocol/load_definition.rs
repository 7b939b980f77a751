//! The description of a load.
//!
//! A definition, in bytes: the mode (1: 0 there must be no such table, 1 its rows are replaced, 2 rows are
//! appended); the source of the names (1: 0 the node chooses the new version's, 1 they are the id and the
//! version of the table at the end, and the segment's id (16) comes here); widths of texts in the layout of
//! rows (a count, and for each a name and `u16`); forms of columns there (a count, and for each a number and
//! a width as `u16`; none if they follow from the columns' types); the table without segments, as
//! [`Table::encode`] gives it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use base::codec::{MalformedKind, Reader, put_bytes, put_count};

use crate::error::Error;
use crate::row::Form;
use crate::segment::Groups;
use crate::table::{SegmentId, Table, TableId, Version};
use crate::tables::{Identity, LoadOptions, Mode};

/// The description of a load, which a node gets before the rows.
#[derive(Clone, Debug)]
pub(crate) struct LoadDefinition {
    pub(crate) name: String,
    pub(crate) schema: SchemaRef,
    pub(crate) options: LoadOptions,
    pub(crate) mode: Mode,
    /// The new version's names; `None` if the node chooses them.
    pub(crate) identity: Option<Identity>,
}

impl LoadDefinition {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Error> {
        self.encode_as(TableId::new())
    }

    /// Returns the definition as bytes, for a table of this id, which the node ignores if it chooses the
    /// names.
    pub(crate) fn encode_as(&self, id: TableId) -> Result<Vec<u8>, Error> {
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

    pub(crate) fn decode(bytes: &[u8]) -> Result<LoadDefinition, Error> {
        let mut reader = Reader::new(bytes);
        let mode = match reader.u8()? {
            0 => Mode::Create,
            1 => Mode::Replace,
            2 => Mode::Append,
            other => return Err(reader.malformed(MalformedKind::Kind(other, "load")).into()),
        };
        let segment = match reader.u8()? {
            0 => None,
            1 => Some(SegmentId(u128::from_le_bytes(reader.array()?))),
            other => return Err(reader.malformed(MalformedKind::Kind(other, "names")).into()),
        };
        let mut text_widths = HashMap::new();
        for _ in 0..reader.count()? {
            let column = reader.text()?.to_owned();
            text_widths.insert(column, reader.u16()?);
        }
        let mut forms = Vec::new();
        for _ in 0..reader.count()? {
            let form = Form::decode(reader.array()?);
            forms.push(form.ok_or_else(|| Error::refused("a form that is none"))?);
        }
        let table = Table::decode(reader.rest()).map_err(Error::refused)?;
        let name_of = |&column: &usize| table.schema.field(column).name().clone();
        let groups = table.groups.iter();
        let groups = groups.map(|group| group.iter().map(name_of).collect());
        Ok(LoadDefinition {
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
