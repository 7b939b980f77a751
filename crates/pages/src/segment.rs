//! Makes a segment's pages from rows.
//!
//! Each group of columns fills pages of its own. They are numbered in *runs*: some pages of one
//! group, then some of another, so that a reader of one group reads long pieces of a file.
//!
//! The memory in use is a run for each group, and the rows of its page that is not full yet.

use arrow_array::{Array, RecordBatch};
use arrow_schema::{Schema, SchemaRef};

use crate::kind::Kind;
use crate::page_builder::{BuiltPage, Misfit, PageBuilder};
use crate::row::{self, BadForm, RowSchema};
use crate::table::{Layout, PageAddress, PageEntry, PageNo, PageSize, Segment, SegmentId};

/// Bytes of a run.
const RUN: usize = 1 << 20;

/// How a table's columns are divided into groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Groups {
    /// Each column has its own: a query reads the columns that it needs.
    #[default]
    OneEach,
    /// All columns are in one group.
    Together,
    /// The columns of these names are together; each other column has its own group.
    Given(Vec<Vec<String>>),
}

/// Why columns cannot be grouped so, and what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct GroupsError(pub String);

impl Groups {
    /// Returns the columns of each group, as places in the schema.
    ///
    /// # Errors
    /// Returns an error if a name is not that of a column, or comes twice.
    pub fn resolve(&self, schema: &Schema) -> Result<Vec<Vec<usize>>, GroupsError> {
        let all = 0..schema.fields().len();
        let given = match self {
            Groups::OneEach => return Ok(all.map(|column| vec![column]).collect()),
            Groups::Together => return Ok(vec![all.collect()]),
            Groups::Given(given) => given,
        };
        let mut taken = vec![false; all.len()];
        let mut groups = Vec::new();
        for names in given.iter().filter(|names| !names.is_empty()) {
            let mut group = Vec::new();
            for name in names {
                let column = schema.index_of(name).map_err(|_| {
                    let columns = schema.fields().iter().map(|field| field.name().as_str());
                    let columns: Vec<&str> = columns.collect();
                    GroupsError(format!(
                        "there is no column {name:?}; there are: {}",
                        columns.join(", ")
                    ))
                })?;
                if std::mem::replace(&mut taken[column], true) {
                    return Err(GroupsError(format!(
                        "column {name:?} is in two groups: name it once"
                    )));
                }
                group.push(column);
            }
            groups.push(group);
        }
        groups.extend(
            all.filter(|&column| !taken[column])
                .map(|column| vec![column]),
        );
        Ok(groups)
    }
}

/// How a table's pages are made.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The table's columns.
    pub schema: SchemaRef,
    /// Bytes of a page.
    pub page_size: PageSize,
    /// The columns of each group, as places in the schema; each column is in one.
    pub groups: Vec<Vec<usize>>,
    /// The layout of records, in the layout of rows, which has a single group of all columns in
    /// order.
    pub rows: Option<RowSchema>,
}

impl Shape {
    /// Makes a shape.
    ///
    /// # Errors
    /// Returns the column whose type pages do not support, and the type to which it can be cast.
    ///
    /// # Panics
    /// Panics if the groups are not valid.
    pub fn new(
        schema: SchemaRef,
        page_size: PageSize,
        groups: Vec<Vec<usize>>,
        rows: Option<RowSchema>,
    ) -> Result<Shape, BadForm> {
        for field in schema.fields() {
            let kind = Kind::of(field.data_type());
            if kind.is_none_or(|kind| matches!(kind, Kind::Decimal32(..) | Kind::Decimal64(..))) {
                return Err(BadForm {
                    column: field.name().clone(),
                    what: row::unsupported(field.data_type()),
                });
            }
        }
        let mut columns = groups.concat();
        let in_order = columns.is_sorted();
        columns.sort_unstable();
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        assert!(columns == all, "groups {groups:?} of {} columns", all.len());
        assert!(
            rows.is_none() || groups.len() == 1 && in_order,
            "records have all columns"
        );
        Ok(Shape {
            schema,
            page_size,
            groups,
            rows,
        })
    }

    /// Returns the layout of rows in pages.
    #[must_use]
    pub fn layout(&self) -> Layout {
        if self.rows.is_some() {
            Layout::Rows
        } else {
            Layout::Columns
        }
    }
}

/// Why a batch cannot be stored in pages.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RowsError {
    /// The batch has other columns than the table.
    #[error("the rows are of other columns: {0}")]
    Schema(String),
    /// A row does not fit.
    #[error("row {row}: the value of column {column:?} {what}")]
    Misfit {
        /// The row, counted from the first one of the load, from 0.
        row: u64,
        /// The column.
        column: String,
        /// Why, and what to do.
        what: String,
    },
}

/// Makes a segment's pages.
pub struct SegmentBuilder {
    shape: Shape,
    id: SegmentId,
    fills: Vec<PageBuilder>,
    /// For each group, pages that have no number yet.
    runs: Vec<Vec<BuiltPage>>,
    groups: Vec<Vec<PageEntry>>,
    rows: u64,
    pages: u32,
}

impl SegmentBuilder {
    /// Makes a segment without rows.
    #[must_use]
    pub fn new(shape: Shape, id: SegmentId) -> SegmentBuilder {
        let fills = shape.groups.iter().enumerate().map(|(group, columns)| {
            let rows = shape.rows.as_ref();
            PageBuilder::new(group as u16, shape.page_size, &shape.schema, columns, rows)
        });
        SegmentBuilder {
            fills: fills.collect(),
            runs: shape.groups.iter().map(|_| Vec::new()).collect(),
            groups: vec![Vec::new(); shape.groups.len()],
            shape,
            id,
            rows: 0,
            pages: 0,
        }
    }

    /// Returns the columns that rows must have.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.shape.schema
    }

    /// Returns the number of rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds rows. Pages that got their number are appended to `to`, in the order of their numbers
    /// and without gaps.
    ///
    /// # Errors
    /// See [`RowsError`]; the segment is of no use any more.
    pub fn push(
        &mut self,
        batch: &RecordBatch,
        to: &mut Vec<(PageNo, Vec<u8>)>,
    ) -> Result<(), RowsError> {
        self.same_columns(batch)?;
        let run = RUN / self.shape.page_size.bytes();
        for group in 0..self.fills.len() {
            let filled = self.fills[group].push(batch, &mut self.runs[group]);
            filled.map_err(|misfit| self.misfit(misfit))?;
            while self.runs[group].len() >= run {
                self.number(group, run, to);
            }
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Returns the segment, in one stripe, and appends its last pages to `to`.
    ///
    /// # Errors
    /// See [`RowsError`].
    pub fn finish(mut self, to: &mut Vec<(PageNo, Vec<u8>)>) -> Result<Segment, RowsError> {
        for group in 0..self.fills.len() {
            let last = self.fills[group].finish();
            let last = last.map_err(|misfit| self.misfit(misfit))?;
            self.runs[group].extend(last);
            self.number(group, usize::MAX, to);
        }
        Ok(Segment {
            id: self.id,
            rows: self.rows,
            pages: self.pages,
            stripes: 1,
            groups: self.groups,
        })
    }

    /// Gives the first pages of a group's run their numbers.
    fn number(&mut self, group: usize, most: usize, to: &mut Vec<(PageNo, Vec<u8>)>) {
        let count = self.runs[group].len().min(most);
        for mut filled in self.runs[group].drain(..count) {
            let page = PageNo(self.pages);
            self.pages += 1;
            self.groups[group].push(PageEntry {
                page,
                first_row: filled.first_row(),
                rows: filled.rows(),
                bounds: std::mem::take(&mut filled.bounds),
            });
            let address = PageAddress {
                segment: self.id,
                page,
            };
            to.push((page, filled.seal(address)));
        }
    }

    fn same_columns(&self, batch: &RecordBatch) -> Result<(), RowsError> {
        let (wanted, given) = (self.shape.schema.fields(), batch.schema());
        let given = given.fields();
        if wanted.len() != given.len() {
            let (wanted, given) = (wanted.len(), given.len());
            return Err(RowsError::Schema(format!(
                "{given} columns and not {wanted}"
            )));
        }
        for ((wanted, given), array) in wanted.iter().zip(given).zip(batch.columns()) {
            if wanted.data_type() != given.data_type() {
                let (name, wanted) = (wanted.name(), wanted.data_type());
                let given = given.data_type();
                return Err(RowsError::Schema(format!(
                    "column {name:?} is of type {given} and not {wanted}: cast it"
                )));
            }
            if !wanted.is_nullable() && array.null_count() > 0 {
                let nulls = array.nulls().expect("there are nulls");
                let row = (0..array.len()).find(|&row| nulls.is_null(row));
                return Err(RowsError::Misfit {
                    row: self.rows + row.unwrap_or_default() as u64,
                    column: wanted.name().clone(),
                    what: "is null, and the column has no nulls".to_owned(),
                });
            }
        }
        Ok(())
    }

    fn misfit(&self, misfit: Misfit) -> RowsError {
        RowsError::Misfit {
            row: misfit.row,
            column: self.shape.schema.field(misfit.column).name().clone(),
            what: misfit.what,
        }
    }
}
