//! Rows in parts, each of which is small enough to come out as a batch: the texts of many rows may be
//! more than an array can hold.

use arrow_schema::SchemaRef;

use crate::output;
use crate::site::TaskError;
use crate::vector::{Bytes, Values, Vector};

/// Rows, part by part.
#[derive(Debug, Default)]
pub(super) struct Parts {
    parts: Vec<Part>,
    /// About how many bytes the rows' values have.
    bytes: usize,
}

/// Some of the rows.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) rows: usize,
    /// Their values, of which none is constant.
    pub(super) columns: Vec<Vector>,
}

/// The place of a row: its part, and its place in the part.
pub(super) type Place = (u32, u32);

impl Parts {
    /// Adds rows after the others.
    pub(super) fn push(&mut self, part: Part) {
        let size = |column: &Vector| (0..part.rows).map(|row| size(column, row)).sum::<usize>();
        self.bytes += part.columns.iter().map(size).sum::<usize>();
        self.parts.push(part);
    }

    /// Returns all of them.
    pub(super) fn all(&self) -> &[Part] {
        &self.parts
    }

    /// Returns about how many bytes the rows' values have.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the place of each row, in the order in which they came.
    pub(super) fn places(&self) -> Vec<Place> {
        let parts = (0u32..).zip(&self.parts);
        let rows = |(at, part): (u32, &Part)| (0..part.rows as u32).map(move |row| (at, row));
        parts.flat_map(rows).collect()
    }

    /// Copies of these rows alone, in parts that may be batches of a schema.
    ///
    /// # Errors
    /// Returns an error if a single row is too large for that.
    pub(super) fn picked(&self, places: &[Place], schema: &SchemaRef) -> Result<Parts, TaskError> {
        let most = output::most_rows(schema);
        let mut picked = Parts::default();
        let mut rest = places;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(self.fitting(rest, most));
            let columns = (0..schema.fields().len()).map(|column| self.column(column, now));
            picked.push(Part {
                rows: now.len(),
                columns: columns.collect::<Result<_, _>>()?,
            });
            rest = later;
        }
        Ok(picked)
    }

    /// Returns how many of these rows form a part: at least one, and at most `most`.
    fn fitting(&self, places: &[Place], most: usize) -> usize {
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
    fn column(&self, column: usize, places: &[Place]) -> Result<Vector, TaskError> {
        let of = |part: u32| &self.parts[part as usize].columns[column];
        let rows = places
            .iter()
            .map(|&(part, row)| (&of(part).values, row as usize));
        let narrow = rows.clone().all(|(v, _)| matches!(v, Values::I64(_)));
        let values = match of(places[0].0).values {
            Values::Bool(_) => Values::Bool(rows.map(|(values, row)| bool(values, row)).collect()),
            Values::F64(_) => Values::F64(rows.map(|(v, row)| v.floats()[row]).collect()),
            Values::Bytes(_) => Values::Bytes(Bytes::new(rows.map(|(v, row)| v.bytes().get(row)))?),
            _ if narrow => Values::I64(
                rows.map(|(values, row)| integer(values, row) as i64)
                    .collect(),
            ),
            _ => Values::I128(rows.map(|(values, row)| integer(values, row)).collect()),
        };
        let valid = |&(part, row): &Place| u8::from(of(part).is_valid(row as usize));
        let valid: Vec<u8> = places.iter().map(valid).collect();
        Ok(Vector::new(values, valid.contains(&0).then_some(valid)))
    }
}

fn bool(values: &Values, row: usize) -> u8 {
    match values {
        Values::Bool(values) => values[row],
        other => unreachable!("truth values expected, not {other:?}"),
    }
}

fn integer(values: &Values, row: usize) -> i128 {
    match values {
        Values::I64(values) => values[row].into(),
        Values::I128(values) => values[row],
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
        Values::Bytes(texts) => texts.get(row).len(),
        _ => 0,
    }
}
