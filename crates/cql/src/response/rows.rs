//! Rows and the description of their columns.
//!
//! A description: `[int]` flags, `[int]` number of columns, and then
//!
//! | if the flag | there is |
//! |---|---|
//! | 0x02 is set | `[bytes]` paging state: there are more pages |
//! | 0x08 is set | `[short bytes]` new id of the description (version 5) |
//! | 0x04 is not set | the columns |
//!
//! The columns: with flag 0x01 `[string]` keyspace and `[string]` table of all; then for each
//! column, without that flag, its own keyspace and table; `[string]` name; type.
//!
//! Rows: a description, `[int]` number of rows, and for each row a `[bytes]` for each column.
//!
//! Invariant: [`Rows`] have been read through once, so that reading them again cannot fail.

use std::sync::Arc;

use crate::envelope::Version;
use crate::notation::{
    Malformed, NotationReader, put_bytes, put_int, put_int_len, put_short_bytes, put_string,
};
use crate::types::DataType;
use crate::value::CqlValue;

const GLOBAL_TABLE: i32 = 0x01;
const MORE_PAGES: i32 = 0x02;
const NO_METADATA: i32 = 0x04;
const METADATA_CHANGED: i32 = 0x08;

/// A column, or a marker of a prepared statement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ColumnSpec {
    /// The keyspace of its table.
    pub keyspace: Arc<str>,
    /// Its table.
    pub table: Arc<str>,
    /// Its name; for a marker, the marker's or that of its column.
    pub name: String,
    /// The type of its values.
    pub data_type: DataType,
}

/// Columns in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Columns(pub Vec<ColumnSpec>);

impl Columns {
    /// Returns the columns of one table.
    #[must_use]
    pub fn of_table(keyspace: &str, table: &str, columns: &[(&str, DataType)]) -> Columns {
        let (keyspace, table): (Arc<str>, Arc<str>) = (keyspace.into(), table.into());
        let spec = |(name, data_type): &(&str, DataType)| ColumnSpec {
            keyspace: Arc::clone(&keyspace),
            table: Arc::clone(&table),
            name: (*name).to_owned(),
            data_type: data_type.clone(),
        };
        Columns(columns.iter().map(spec).collect())
    }

    /// Returns the index of the column with this name.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|column| column.name == name)
    }

    /// Returns the flag that says that all columns are of one table.
    pub(super) fn flag(&self) -> i32 {
        let of_first = |column: &ColumnSpec| {
            column.keyspace == self.0[0].keyspace && column.table == self.0[0].table
        };
        if !self.0.is_empty() && self.0.iter().all(of_first) {
            GLOBAL_TABLE
        } else {
            0
        }
    }

    pub(super) fn read(
        reader: &mut NotationReader<'_>,
        flags: i32,
        count: usize,
    ) -> Result<Columns, Malformed> {
        let mut columns = Vec::new();
        let names = |reader: &mut NotationReader<'_>| -> Result<(Arc<str>, Arc<str>), Malformed> {
            Ok((reader.string()?.into(), reader.string()?.into()))
        };
        // Shared by all columns: names may be long, and a column of theirs takes few bytes.
        let global = if flags & GLOBAL_TABLE != 0 {
            Some(names(reader)?)
        } else {
            None
        };
        for _ in 0..count {
            let (keyspace, table) = match &global {
                Some(names) => names.clone(),
                None => names(reader)?,
            };
            columns.push(ColumnSpec {
                keyspace,
                table,
                name: reader.string()?.to_owned(),
                data_type: DataType::read(reader)?,
            });
        }
        Ok(Columns(columns))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let names = |out: &mut Vec<u8>, column: &ColumnSpec| {
            put_string(out, &column.keyspace);
            put_string(out, &column.table);
        };
        let global = self.flag() == GLOBAL_TABLE;
        if global {
            names(out, &self.0[0]);
        }
        for column in &self.0 {
            if !global {
                names(out, column);
            }
            put_string(out, &column.name);
            column.data_type.write(out);
        }
    }
}

/// A description of rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowsMetadata {
    /// The number of columns.
    pub column_count: usize,
    /// The columns; `None` if the client asked to leave them out.
    pub columns: Option<Columns>,
    /// The end of this page, if there are more.
    pub paging_state: Option<Vec<u8>>,
    /// The id of this description, if it is not the one that the client named (version 5).
    pub new_metadata_id: Option<Vec<u8>>,
}

impl RowsMetadata {
    /// Creates a description of the only page.
    #[must_use]
    pub fn new(columns: Columns) -> RowsMetadata {
        RowsMetadata {
            column_count: columns.0.len(),
            columns: Some(columns),
            paging_state: None,
            new_metadata_id: None,
        }
    }

    /// Returns the description of a prepared statement that returns no rows.
    #[must_use]
    pub fn none() -> RowsMetadata {
        RowsMetadata {
            column_count: 0,
            columns: None,
            paging_state: None,
            new_metadata_id: None,
        }
    }

    pub(super) fn read(
        reader: &mut NotationReader<'_>,
        version: Version,
    ) -> Result<RowsMetadata, Malformed> {
        let flags = reader.int()?;
        let column_count = reader.count("a negative number of columns")?;
        let mut paging_state = None;
        if flags & MORE_PAGES != 0 {
            paging_state = reader.bytes()?.map(<[u8]>::to_vec);
        }
        let mut new_metadata_id = None;
        if version >= Version::V5 && flags & METADATA_CHANGED != 0 {
            new_metadata_id = Some(reader.short_bytes()?.to_vec());
        }
        let mut columns = None;
        if flags & NO_METADATA == 0 {
            columns = Some(Columns::read(reader, flags, column_count)?);
        }
        Ok(RowsMetadata {
            column_count,
            columns,
            paging_state,
            new_metadata_id,
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, version: Version) {
        let old = version < Version::V5 && self.new_metadata_id.is_some();
        assert!(!old, "a changed description before version 5");
        let set = |condition: bool, flag: i32| if condition { flag } else { 0 };
        // Cassandra leaves the flag of one table set when it leaves the columns out.
        let undescribed = NO_METADATA | set(self.column_count > 0, GLOBAL_TABLE);
        let flags = self.columns.as_ref().map_or(undescribed, Columns::flag)
            | set(self.paging_state.is_some(), MORE_PAGES)
            | set(self.new_metadata_id.is_some(), METADATA_CHANGED);
        put_int(out, flags);
        put_int_len(out, self.column_count);
        if let Some(state) = &self.paging_state {
            put_bytes(out, Some(state));
        }
        if let Some(id) = &self.new_metadata_id {
            put_short_bytes(out, id);
        }
        if let Some(columns) = &self.columns {
            assert_eq!(columns.0.len(), self.column_count, "as many as described");
            columns.write(out);
        }
    }
}

/// Rows, in place in the body of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows<'a> {
    /// The description of their columns.
    pub metadata: RowsMetadata,
    row_count: usize,
    content: &'a [u8],
}

/// The values of a row in the order of the columns; `None` is null.
pub type Row<'a> = Vec<Option<&'a [u8]>>;

impl<'a> Rows<'a> {
    pub(super) fn read(
        reader: &mut NotationReader<'a>,
        version: Version,
    ) -> Result<Rows<'a>, Malformed> {
        let metadata = RowsMetadata::read(reader, version)?;
        let row_count = reader.count("a negative number of rows")?;
        // Rows without columns would take no bytes: any number of them could be announced.
        if metadata.column_count == 0 && row_count > 0 {
            return Err(reader.malformed("rows without columns"));
        }
        let start = reader.position();
        for _ in 0..row_count {
            for _ in 0..metadata.column_count {
                reader.bytes()?;
            }
        }
        Ok(Rows {
            metadata,
            row_count,
            content: reader.since(start),
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, version: Version) {
        self.metadata.write(out, version);
        put_int_len(out, self.row_count);
        out.extend_from_slice(self.content);
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.row_count
    }

    /// Returns `true` if there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.row_count == 0
    }

    /// Returns the rows in order.
    pub fn iter(&self) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let mut reader = NotationReader::new(self.content);
        let columns = self.metadata.column_count;
        (0..self.row_count).map_while(move |_| {
            let row: Result<Row<'a>, _> = (0..columns).map(|_| reader.bytes()).collect();
            row.ok()
        })
    }

    /// Returns the decoded values of the column with this name; `None` if there is no such column,
    /// or no description.
    ///
    /// # Errors
    /// A value is not of the column's type.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<Result<Vec<CqlValue>, Malformed>> {
        let columns = self.metadata.columns.as_ref()?;
        let index = columns.position(name)?;
        let data_type = &columns.0[index].data_type;
        let values = self
            .iter()
            .map(|row| CqlValue::decode(data_type, row[index]));
        Some(values.collect())
    }
}

/// Rows that a program builds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowsBuilder {
    metadata: RowsMetadata,
    row_count: usize,
    content: Vec<u8>,
}

impl RowsBuilder {
    /// Creates an empty list of rows with these columns.
    #[must_use]
    pub fn new(columns: Columns) -> RowsBuilder {
        RowsBuilder {
            metadata: RowsMetadata::new(columns),
            row_count: 0,
            content: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Panics if the number of values is not that of the columns, or a value is not of its column's
    /// type.
    pub fn push(&mut self, values: &[CqlValue]) {
        let columns = self.metadata.columns.iter().flat_map(|columns| &columns.0);
        assert_eq!(values.len(), self.metadata.column_count, "a value a column");
        for (value, column) in values.iter().zip(columns) {
            let name = &column.name;
            assert!(value.is_of(&column.data_type), "{value:?} in column {name}");
            value.write(&mut self.content);
        }
        self.row_count += 1;
    }

    /// Returns the rows. With `skip_metadata`, the description of the columns is left out.
    #[must_use]
    pub fn rows(&self, skip_metadata: bool) -> Rows<'_> {
        let mut metadata = self.metadata.clone();
        if skip_metadata {
            metadata.columns = None;
        }
        Rows {
            metadata,
            row_count: self.row_count,
            content: &self.content,
        }
    }
}
