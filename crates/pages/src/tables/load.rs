//! Loads: new segments of a table.

use std::io::IoSlice;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::files::SegmentFiles;
use super::load_options::{Identity, LoadOptions, Mode};
use super::state::{OpenVersion, TableDirectories, TableState};
use crate::error::{At, Error};
use crate::page::Page;
use crate::row::{Form, RowSchema};
use crate::segment::{SegmentBuilder, Shape};
use crate::segment_directory;
use crate::table::{
    Layout, PageNo, SEGMENT_LIMIT, Segment, SegmentId, Table, TableId, Version, is_name,
};

/// Rows on their way into a table. If it is dropped without [`Load::commit`], the table stays as it was.
pub struct Load {
    directories: Arc<TableDirectories>,
    name: String,
    mode: Mode,
    identity: Option<Identity>,
    shape: Shape,
    builder: Option<SegmentBuilder>,
    /// The new segment, after all of it is durable.
    ready: Option<Arc<Segment>>,
    /// The new segment's files, which are removed unless the segment is published.
    files: Arc<SegmentFiles>,
    bytes: u64,
    /// Bytes that were written since the last sync, and the number at which the files are synced again.
    unsynced: u64,
    sync_after: u64,
    /// The number of segments at which appends are refused.
    segment_limit: usize,
}

/// The most pages that are written at once.
const PAGES_AT_ONCE: usize = 256;
/// Bytes after which the files are synced during a load: the commit waits only for the rest, and the
/// system does not gather more than its disks write in a moment.
const SYNC_AFTER: u64 = 256 << 20;

/// Returns how the pages of an existing table are made.
fn shape_of(opened: &OpenVersion, schema: &SchemaRef) -> Result<Shape, Error> {
    let table = &*opened.table;
    if table.schema.fields() != schema.fields() {
        let name = &table.name;
        return Err(Error::Options(format!(
            "table {name} has other columns than the rows that are to be appended: cast and rename \
             these, or replace the table"
        )));
    }
    let rows = match table.layout {
        Layout::Columns => None,
        Layout::Rows => Some(row_schema(opened)?),
    };
    let groups = table.groups.clone();
    Ok(Shape::new(
        table.schema.clone(),
        table.page_size,
        groups,
        rows,
    )?)
}

/// Checks that a table may have one more segment.
fn check_segments(table: &Table, limit: usize) -> Result<(), Error> {
    match table.segments.len() < limit {
        true => Ok(()),
        false => Err(Error::Options(format!(
            "table {} has {limit} segments, one of each load, and no table has more: load all rows anew \
             and replace it, and append more of them at once",
            table.name
        ))),
    }
}

/// Returns the layout of a table's records, which its pages contain.
fn row_schema(opened: &OpenVersion) -> Result<RowSchema, Error> {
    let OpenVersion { table, files } = opened;
    let first = files.first().ok_or_else(|| {
        let name = &table.name;
        Error::Options(format!(
            "table {name} has no rows that tell their layout: replace it"
        ))
    })?;
    let mut bytes = vec![0; table.page_size.bytes()];
    first
        .read(PageNo(0), &mut bytes)
        .at("read", &first.paths()[0])?;
    let page = Page::new(bytes.into(), first.address(PageNo(0)), table.layout);
    let damaged = |what: String| Error::Damaged {
        name: table.name.clone(),
        what,
    };
    let page = page.map_err(|error| damaged(error.to_string()))?;
    let records = page
        .records()
        .ok_or_else(|| damaged("no records".to_owned()))?;
    let columns = 0..page.columns();
    let forms: Vec<Form> = columns
        .map(|column| records.attribute(column).form)
        .collect();
    if forms.len() != table.schema.fields().len() {
        return Err(damaged("a page has other columns".to_owned()));
    }
    Ok(RowSchema::new(&table.schema, &forms)?)
}

impl Load {
    /// Begins a load; see [`Tables::load_as`](super::Tables::load_as).
    pub(super) fn begin(
        directories: &Arc<TableDirectories>,
        name: &str,
        schema: &SchemaRef,
        options: &LoadOptions,
        mode: Mode,
        identity: Option<Identity>,
    ) -> Result<Load, Error> {
        if !is_name(name) {
            return Err(Error::BadName(name.to_owned()));
        }
        drop(directories.writable()?);
        if let Some(identity) = identity.filter(|identity| !identity.version.may_be_chosen()) {
            return Err(Error::Options(format!(
                "table {name} gets no version {}: if no other number is left, remove it and load it anew",
                identity.version.0
            )));
        }
        let shape = match mode {
            Mode::Create if directories.exists(name) => return Err(Error::Exists(name.to_owned())),
            Mode::Append => {
                let opened = directories.opened(name)?;
                // This is checked here, too, before all rows are written for nothing.
                check_segments(&opened.table, SEGMENT_LIMIT)?;
                shape_of(&opened, schema)?
            }
            Mode::Create | Mode::Replace => options.shape(schema)?,
        };
        let id = identity.map_or_else(SegmentId::new, |identity| identity.segment);
        let files = Arc::new(directories.create(id, shape.page_size)?);
        Ok(Load {
            directories: Arc::clone(directories),
            name: name.to_owned(),
            mode,
            identity,
            ready: None,
            builder: Some(SegmentBuilder::new(shape.clone(), id)),
            shape,
            files,
            bytes: 0,
            unsynced: 0,
            sync_after: SYNC_AFTER,
            segment_limit: SEGMENT_LIMIT,
        })
    }

    /// Returns the columns that rows must have.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.shape.schema
    }

    /// Returns the number of rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.builder.as_ref().map_or(0, SegmentBuilder::rows)
    }

    /// Returns the number of bytes that were written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds rows.
    ///
    /// # Errors
    /// Returns an error if rows cannot be stored in pages, or if the system fails. The load is of no use
    /// any more.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let mut pages = Vec::new();
        // After an error the load has no builder, and later calls fail.
        let mut builder = self.builder.take().ok_or_else(over)?;
        builder.push(batch, &mut pages)?;
        self.write(&pages)?;
        self.builder = Some(builder);
        Ok(())
    }

    /// Does the part of a commit that takes long or may fail for want of room: afterwards the rows are
    /// durable, but not yet part of the table. No more rows can be added.
    ///
    /// # Errors
    /// Returns the errors of [`Load::push`], and an error if the table has changed so that the load does
    /// not fit it any more.
    pub fn prepare(&mut self) -> Result<(), Error> {
        if self.ready.is_some() {
            return Ok(());
        }
        let mut pages = Vec::new();
        let builder = self.builder.take().ok_or_else(over)?;
        let mut segment = builder.finish(&mut pages)?;
        self.write(&pages)?;
        segment.stripes = self.files.paths().len() as u16;
        if segment.rows > 0 {
            self.sync(&segment)?;
        }
        let state = self.directories.writable()?;
        self.next(&state)?;
        drop(state);
        self.ready = Some(Arc::new(segment));
        Ok(())
    }

    /// Makes the rows part of the table, durably and all at once.
    ///
    /// # Errors
    /// Returns the errors of [`Load::prepare`]. The table is as it was, except for
    /// [`Error::Doubtful`]: then the outcome is unknown before the tables are opened again, and
    /// the table is as it was or has all rows.
    pub fn commit(mut self) -> Result<Arc<Table>, Error> {
        self.prepare()?;
        let segment = self.ready.take().ok_or_else(over)?;
        self.publish(segment)
    }

    /// Writes pages of consecutive numbers.
    fn write(&mut self, pages: &[(PageNo, Vec<u8>)]) -> Result<(), Error> {
        let stripes = self.files.paths().len();
        for stripe in 0..stripes {
            let own = pages
                .iter()
                .filter(|(page, _)| page.0 as usize % stripes == stripe);
            let own: Vec<&(PageNo, Vec<u8>)> = own.collect();
            for some in own.chunks(PAGES_AT_ONCE) {
                let offset = self.files.location(some[0].0).offset;
                let parts = some.iter().map(|(_, bytes)| IoSlice::new(bytes));
                let parts: Vec<IoSlice<'_>> = parts.collect();
                let written = self.files.file(stripe).write_all_at(&parts, offset);
                written.at("write", &self.files.paths()[stripe])?;
            }
        }
        let lengths = pages.iter().map(|(_, bytes)| bytes.len() as u64);
        let written = lengths.sum::<u64>();
        self.bytes += written;
        self.unsynced += written;
        if self.unsynced >= self.sync_after {
            self.sync_pages()?;
        }
        Ok(())
    }

    /// Makes the written pages durable. If that fails it is unknown which of them are: the load is over
    /// then, so that no later sync is trusted.
    fn sync_pages(&mut self) -> Result<(), Error> {
        for (stripe, path) in self.files.paths().iter().enumerate() {
            self.files.file(stripe).sync_data().at("sync", path)?;
        }
        self.unsynced = 0;
        Ok(())
    }

    /// Makes the segment durable, with its directory and all names.
    fn sync(&mut self, segment: &Segment) -> Result<(), Error> {
        self.sync_pages()?;
        let TableDirectories { disk, dirs, .. } = &*self.directories;
        let path = self.files.directory();
        let file = disk.create_new(path).at("create", path)?;
        let bytes = segment_directory::encode(segment);
        file.write_and_sync(&[IoSlice::new(&bytes)], 0)
            .at("write", path)?;
        for dir in dirs {
            self.directories
                .sync_dir(dir, &mut self.directories.state.lock())?;
        }
        Ok(())
    }

    fn publish(&self, segment: Arc<Segment>) -> Result<Arc<Table>, Error> {
        let mut state = self.directories.writable()?;
        let mut next = self.next(&state)?;
        if segment.rows > 0 {
            let table = Arc::make_mut(&mut next.table);
            table.segments.push(segment);
            next.files.push(self.files.clone());
        } else {
            self.files.doom();
        }
        let table = next.table.clone();
        self.directories.publish(&mut state, next)?;
        Ok(table)
    }

    /// Returns the version that this load makes, without its own segment.
    fn next(&self, state: &TableState) -> Result<OpenVersion, Error> {
        let before = state.tables.get(&self.name).cloned();
        self.check_identity(before.as_ref().map(|before| &*before.table))?;
        Ok(match (self.mode, before) {
            (Mode::Append, Some(before)) => {
                check_segments(&before.table, self.segment_limit)?;
                // Another load may have ended in between.
                if before.table.groups != self.shape.groups
                    || before.table.schema != self.shape.schema
                    || before.table.page_size != self.shape.page_size
                    || before.table.layout != self.shape.layout()
                {
                    return Err(Error::Options(format!(
                        "table {} was replaced by another one meanwhile: append again",
                        self.name
                    )));
                }
                OpenVersion {
                    table: Arc::new(Table {
                        version: state.next_version(&self.name)?,
                        ..(*before.table).clone()
                    }),
                    files: before.files,
                }
            }
            (Mode::Append, None) => {
                return Err(Error::Unknown {
                    name: self.name.clone(),
                    tables: Vec::new(),
                });
            }
            (Mode::Create, Some(_)) => return Err(Error::Exists(self.name.clone())),
            (_, before) => self.first(before.map(|before| before.table), state)?,
        })
    }

    /// Checks that the names that the client has chosen are those of a version that may come next.
    fn check_identity(&self, before: Option<&Table>) -> Result<(), Error> {
        let (Some(identity), Some(before)) = (self.identity, before) else {
            return Ok(());
        };
        let follows = match self.mode {
            Mode::Append => {
                before.id == identity.table && before.version.next() == Some(identity.version)
            }
            Mode::Create | Mode::Replace => before.version < identity.version,
        };
        match follows {
            true => Ok(()),
            false => Err(Error::Options(format!(
                "table {} was changed meanwhile, and has version {}: load again",
                self.name, before.version.0
            ))),
        }
    }

    /// Returns a version without earlier segments.
    fn first(&self, before: Option<Arc<Table>>, state: &TableState) -> Result<OpenVersion, Error> {
        let (id, version) = match (self.identity, &before) {
            (Some(identity), _) => (identity.table, identity.version),
            (None, Some(before)) => (before.id, state.next_version(&self.name)?),
            (None, None) => (TableId::new(), Version::FIRST),
        };
        Ok(OpenVersion {
            table: Arc::new(Table {
                id,
                name: self.name.clone(),
                version,
                schema: self.shape.schema.clone(),
                page_size: self.shape.page_size,
                layout: self.shape.layout(),
                groups: self.shape.groups.clone(),
                segments: Vec::new(),
            }),
            files: Vec::new(),
        })
    }
}

fn over() -> Error {
    Error::Options("the load has failed before: begin it again".to_owned())
}

impl Drop for Load {
    /// Removes the files of a segment that is in no table. If it is unknown whether it is, they stay.
    fn drop(&mut self) {
        let state = self.directories.state.lock();
        let published = state.segments.contains_key(&self.files.id());
        if !published && state.failed.is_none() {
            self.files.doom();
        }
    }
}

#[cfg(test)]
mod tests;
