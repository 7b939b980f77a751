//! Fills pages of one group with rows, in their order, as many as fit.

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::Schema;

use base::codec::put_at;

use crate::bounds::Bounds;
use crate::cell::ValueMisfit;
use crate::column_size::ColumnSize;
use crate::encode::Column;
use crate::entry::{ALIGN, ENTRY};
use crate::kind::Kind;
use crate::page::{HEADER, PageHeader};
use crate::row::RowSchema;
use crate::table::{Layout, PageAddress, PageNo, PageSize, SegmentId};

/// A page that has no address yet.
pub(crate) struct BuiltPage {
    bytes: Vec<u8>,
    header: PageHeader,
    /// The bounds of its columns.
    pub(crate) bounds: Vec<Bounds>,
}

impl BuiltPage {
    pub(crate) fn first_row(&self) -> u64 {
        self.header.first_row
    }

    pub(crate) fn rows(&self) -> u32 {
        self.header.rows
    }

    /// Returns its bytes with this address.
    pub(crate) fn seal(mut self, address: PageAddress) -> Vec<u8> {
        self.header.address = address;
        self.header.seal(&mut self.bytes);
        self.bytes
    }
}

/// A row that fits into no page, or a value that does not fit into its record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Misfit {
    /// The row, counted from the first one that was ever pushed.
    pub(crate) row: u64,
    /// The column, as its place in the schema.
    pub(crate) column: usize,
    pub(crate) what: String,
}

/// Fills the pages of a group.
pub(crate) struct PageBuilder {
    group: u16,
    size: usize,
    /// The group's columns, as places in the schema.
    columns: Vec<usize>,
    form: Form,
    /// The arrays of the page that is being filled: for each column, one after the other.
    pieces: Vec<Vec<ArrayRef>>,
    rows: usize,
    first_row: u64,
    /// The number of rows that are tried at once.
    step: usize,
}

enum Form {
    Columns(Vec<ColumnSize>, Vec<Kind>),
    Rows(RowSchema),
}

/// The number of rows that are tried at once before the first page shows how many it holds.
const STEP: usize = 1024;

impl PageBuilder {
    /// Makes a fill for a group of a table whose columns all have a [`Kind`].
    pub(crate) fn new(
        group: u16,
        size: PageSize,
        schema: &Schema,
        columns: &[usize],
        rows: Option<&RowSchema>,
    ) -> PageBuilder {
        let kinds = columns.iter().map(|&column| {
            let kind = Kind::of(schema.field(column).data_type());
            kind.expect("types were looked at")
        });
        let kinds: Vec<Kind> = kinds.collect();
        let form = match rows {
            Some(rows) => Form::Rows(rows.clone()),
            None => Form::Columns(
                kinds.iter().map(|&kind| ColumnSize::new(kind)).collect(),
                kinds,
            ),
        };
        PageBuilder {
            group,
            size: size.bytes(),
            columns: columns.to_vec(),
            form,
            pieces: vec![Vec::new(); columns.len()],
            rows: 0,
            first_row: 0,
            step: STEP,
        }
    }

    /// Adds rows; full pages are appended to `to`.
    pub(crate) fn push(
        &mut self,
        batch: &RecordBatch,
        to: &mut Vec<BuiltPage>,
    ) -> Result<(), Misfit> {
        let mut from = 0;
        while from < batch.num_rows() {
            let rows = self.take(batch, from)?;
            for (pieces, &column) in self.pieces.iter_mut().zip(&self.columns) {
                if rows > 0 {
                    pieces.push(batch.column(column).slice(from, rows));
                }
            }
            self.rows += rows;
            from += rows;
            if from < batch.num_rows() {
                to.push(self.finish_page()?);
            }
        }
        Ok(())
    }

    /// Returns the last page, if rows are left for it.
    pub(crate) fn finish(&mut self) -> Result<Option<BuiltPage>, Misfit> {
        (self.rows > 0).then(|| self.finish_page()).transpose()
    }

    /// Takes the rows after `from` that go into this page, and returns their number.
    fn take(&mut self, batch: &RecordBatch, from: usize) -> Result<usize, Misfit> {
        let left = batch.num_rows() - from;
        let taken = match &mut self.form {
            Form::Rows(rows) => {
                let room = self.size.saturating_sub(records_at(self.columns.len()));
                left.min((room / rows.record()).saturating_sub(self.rows))
            }
            Form::Columns(gauges, _) => {
                let columns = self.columns.iter().map(|&column| batch.column(column));
                let columns: Vec<&ArrayRef> = columns.collect();
                let room = self.size.saturating_sub(arrays_at(self.columns.len()));
                fit(gauges, &columns, from, room, self.step)
            }
        };
        if taken == 0 && self.rows == 0 {
            return Err(self.misfit(batch, from));
        }
        Ok(taken)
    }

    /// Returns the error for a row that does not fit into an empty page.
    fn misfit(&self, batch: &RecordBatch, from: usize) -> Misfit {
        let size_of = |place: &usize| {
            let array = batch.column(self.columns[*place]).slice(from, 1);
            match &self.form {
                Form::Rows(rows) => rows.attributes()[*place].form.width(),
                Form::Columns(_, kinds) => {
                    let mut gauge = ColumnSize::new(kinds[*place]);
                    gauge.add(&array);
                    gauge.size()
                }
            }
        };
        let widest = (0..self.columns.len()).max_by_key(size_of).unwrap_or(0);
        let sizes: usize = (0..self.columns.len()).map(|place| size_of(&place)).sum();
        let others = match self.columns.len() {
            1 => String::new(),
            many => format!(", and with the group's {many} columns {sizes}"),
        };
        Misfit {
            row: self.first_row + self.rows as u64,
            column: self.columns[widest],
            what: format!(
                "takes {} bytes{others}, which do not fit into a page of {}: choose larger pages, \
                 groups of fewer columns, or shorten the value",
                size_of(&widest),
                self.size
            ),
        }
    }

    fn finish_page(&mut self) -> Result<BuiltPage, Misfit> {
        let mut bytes = Vec::with_capacity(self.size);
        let mut header = PageHeader {
            layout: Layout::Columns,
            address: PageAddress {
                segment: SegmentId(0),
                page: PageNo(0),
            },
            group: self.group,
            columns: self.columns.len() as u16,
            first_row: self.first_row,
            rows: self.rows as u32,
            record: 0,
            records: 0,
        };
        match &self.form {
            Form::Columns(gauges, kinds) => {
                bytes.resize(arrays_at(self.columns.len()).min(self.size), 0);
                for (i, (pieces, gauge)) in self.pieces.iter().zip(gauges).enumerate() {
                    let distinct = gauge.dictionary();
                    let column = Column {
                        pieces,
                        kind: gauge.stored(),
                        distinct,
                    };
                    let entry = column.write(&mut bytes, 0).encode();
                    put_at(&mut bytes, HEADER + i * ENTRY, &entry);
                }
                self.form = Form::Columns(
                    kinds.iter().map(|&kind| ColumnSize::new(kind)).collect(),
                    kinds.clone(),
                );
            }
            Form::Rows(rows) => {
                let at = records_at(self.columns.len());
                (header.layout, header.record) = (Layout::Rows, rows.record() as u32);
                header.records = at as u32;
                bytes.resize(at + self.rows * rows.record(), 0);
                for (i, attribute) in rows.attributes().iter().enumerate() {
                    put_at(&mut bytes, HEADER + i * ENTRY, &attribute.encode());
                }
                self.write_records(rows, &mut bytes[at..])?;
            }
        }
        assert!(bytes.len() <= self.size, "a page of {} bytes", bytes.len());
        bytes.resize(self.size, 0);
        let bounds = self.pieces.iter().map(|pieces| Bounds::of(pieces));
        let bounds = bounds.collect();
        self.pieces.iter_mut().for_each(Vec::clear);
        self.first_row += self.rows as u64;
        self.step = (self.rows / 4).max(16);
        self.rows = 0;
        Ok(BuiltPage {
            bytes,
            header,
            bounds,
        })
    }

    fn write_records(&self, rows: &RowSchema, records: &mut [u8]) -> Result<(), Misfit> {
        for (column, pieces) in self.pieces.iter().enumerate() {
            let mut done = 0;
            for piece in pieces {
                let to = &mut records[done * rows.record()..][..piece.len() * rows.record()];
                rows.write(to, column, piece)
                    .map_err(|(row, ValueMisfit(what))| Misfit {
                        row: self.first_row + (done + row) as u64,
                        column: self.columns[column],
                        what,
                    })?;
                done += piece.len();
            }
        }
        Ok(())
    }
}

/// Adds as many rows as fit into the room, and returns their number.
fn fit(
    gauges: &mut [ColumnSize],
    columns: &[&ArrayRef],
    from: usize,
    room: usize,
    mut step: usize,
) -> usize {
    let left = columns[0].len() - from;
    let (mut taken, mut full) = (0, false);
    while taken < left {
        let rows = step.min(left - taken);
        for (gauge, column) in gauges.iter_mut().zip(columns) {
            gauge.add(&column.slice(from + taken, rows));
        }
        if gauges.iter().map(ColumnSize::size).sum::<usize>() <= room {
            gauges.iter_mut().for_each(ColumnSize::keep);
            taken += rows;
        } else {
            gauges.iter_mut().for_each(ColumnSize::take_back);
            full = true;
            step = rows;
        }
        // After a step did not fit, twice the next step does not fit either.
        step = if full { step / 2 } else { step };
        if step == 0 {
            break;
        }
    }
    taken
}

/// Returns the place where arrays begin.
fn arrays_at(columns: usize) -> usize {
    (HEADER + columns * ENTRY).next_multiple_of(ALIGN)
}

impl PageSize {
    /// Returns the number of bytes of the longest text that fits into a page, if its column is a group
    /// by itself in the layout of columns.
    #[must_use]
    pub fn longest_value(self) -> usize {
        let offsets = (2 * size_of::<i32>()).next_multiple_of(ALIGN);
        let room = self.bytes() - arrays_at(1) - offsets;
        room - room % ALIGN
    }
}

/// Returns the place where records begin.
fn records_at(columns: usize) -> usize {
    arrays_at(columns)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BinaryArray, StringArray};
    use arrow_schema::Field;

    use super::*;

    /// Returns `true` if a page takes this value, after one that leaves no room for another.
    fn takes(size: PageSize, value: ArrayRef) -> bool {
        for nullable in [false, true] {
            let field = Field::new("value", value.data_type().clone(), nullable);
            let schema = Arc::new(Schema::new(vec![field]));
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![value.clone()]);
            let batch = batch.expect("one column");
            let mut fill = PageBuilder::new(0, size, &schema, &[0], None);
            let mut pages = Vec::new();
            if fill.push(&batch, &mut pages).is_err() {
                return false;
            }
            pages.extend(fill.finish().expect("it fits"));
            assert_eq!(pages.len(), value.len());
        }
        true
    }

    #[test]
    fn the_longest_value_fits_and_no_longer_one_does() {
        for size in PageSize::ALL {
            let text = |more: usize| "x".repeat(size.longest_value() + more);
            let texts = |more| -> ArrayRef {
                let array: StringArray = [text(0), text(more)].into_iter().map(Some).collect();
                Arc::new(array)
            };
            let bytes = |more| -> ArrayRef {
                let array: BinaryArray = [text(0), text(more)].into_iter().map(Some).collect();
                Arc::new(array)
            };
            assert!(takes(size, texts(0)) && takes(size, bytes(0)), "{size:?}");
            assert!(!takes(size, texts(1)) && !takes(size, bytes(1)), "{size:?}");
        }
    }
}
