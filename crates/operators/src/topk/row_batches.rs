//! Rows in parts, each of which is small enough to come out as a batch: the texts of many rows may be
//! more than an array can hold.

use arrow_schema::SchemaRef;

use crate::output;
use crate::vector::{IndexedTexts, Vector, VectorValues};
use pages::task::TaskError;

/// Rows, part by part.
#[derive(Debug, Default)]
pub(super) struct RowBatches {
    parts: Vec<RowBatch>,
    /// About how many bytes the rows' values have.
    bytes: usize,
}

/// Some of the rows.
#[derive(Debug)]
pub(super) struct RowBatch {
    pub(super) rows: usize,
    /// Their values, of which none is constant.
    pub(super) columns: Vec<Vector>,
}

/// The place of a row: its part, and its place in the part.
pub(super) type RowPosition = (u32, u32);

impl RowBatches {
    /// Adds rows after the others.
    pub(super) fn push(&mut self, part: RowBatch) {
        let size = |column: &Vector| (0..part.rows).map(|row| size(column, row)).sum::<usize>();
        self.bytes += part.columns.iter().map(size).sum::<usize>();
        self.parts.push(part);
    }

    /// Returns all of them.
    pub(super) fn all(&self) -> &[RowBatch] {
        &self.parts
    }

    /// Returns about how many bytes the rows' values have.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the place of each row, in the order in which they came.
    pub(super) fn places(&self) -> Vec<RowPosition> {
        let parts = (0u32..).zip(&self.parts);
        let rows = |(at, part): (u32, &RowBatch)| (0..part.rows as u32).map(move |row| (at, row));
        parts.flat_map(rows).collect()
    }

    /// Copies of these rows alone, in parts that may be batches of a schema.
    ///
    /// # Errors
    /// Returns an error if a single row is too large for that.
    pub(super) fn picked(
        &self,
        places: &[RowPosition],
        schema: &SchemaRef,
    ) -> Result<RowBatches, TaskError> {
        let most = output::most_rows(schema);
        let mut picked = RowBatches::default();
        let mut rest = places;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.fitting(rest, most));
            let columns = (0..schema.fields().len()).map(|column| self.column(column, now));
            picked.push(RowBatch {
                rows: now.len(),
                columns: columns.collect::<Result<_, _>>()?,
            });
            rest = later;
        }
        Ok(picked)
    }

    /// Returns how many of these rows form a part: at least one, and at most `most`.
    fn fitting(&self, places: &[RowPosition], most: usize) -> usize {
        let mut bytes = 0;
        for (count, &(part, row)) in (1..=most).zip(places) {
            let columns = self.parts[part as usize].columns.iter();
            bytes += columns.map(|of| texts(of, row as usize)).sum::<usize>();
            if bytes >= output::BATCH_BYTES {
                return count;
            }
        }
        most.min(places.len())
    }

    /// Returns a column's values of these rows.
    fn column(&self, column: usize, places: &[RowPosition]) -> Result<Vector, TaskError> {
        let of = |part: u32| &self.parts[part as usize].columns[column];
        let rows = places
            .iter()
            .map(|&(part, row)| (&of(part).values, row as usize));
        let narrow = rows.clone().all(|(v, _)| matches!(v, VectorValues::I64(_)));
        let values = match of(places[0].0).values {
            VectorValues::Bool(_) => {
                VectorValues::Bool(rows.map(|(values, row)| bool(values, row)).collect())
            }
            VectorValues::F64(_) => {
                VectorValues::F64(rows.map(|(v, row)| v.floats()[row]).collect())
            }
            VectorValues::Bytes(_) => {
                VectorValues::Bytes(IndexedTexts::new(rows.map(|(v, row)| v.bytes().get(row)))?)
            }
            _ if narrow => VectorValues::I64(
                rows.map(|(values, row)| integer(values, row) as i64)
                    .collect(),
            ),
            _ => VectorValues::I128(rows.map(|(values, row)| integer(values, row)).collect()),
        };
        let valid = |&(part, row): &RowPosition| u8::from(of(part).is_valid(row as usize));
        let valid: Vec<u8> = places.iter().map(valid).collect();
        Ok(Vector::new(values, valid.contains(&0).then_some(valid)))
    }
}

fn bool(values: &VectorValues, row: usize) -> u8 {
    match values {
        VectorValues::Bool(values) => values[row],
        other => unreachable!("truth values expected, not {other:?}"),
    }
}

fn integer(values: &VectorValues, row: usize) -> i128 {
    match values {
        VectorValues::I64(values) => values[row].into(),
        VectorValues::I128(values) => values[row],
        other => unreachable!("integers expected, not {other:?}"),
    }
}

/// Returns about how many bytes a value has.
fn size(column: &Vector, row: usize) -> usize {
    size_of::<i128>() + texts(column, row)
}

/// Returns how many bytes of text a value has.
fn texts(column: &Vector, row: usize) -> usize {
    match &column.values {
        VectorValues::Bytes(texts) => texts.get(row).len(),
        _ => 0,
    }
}
