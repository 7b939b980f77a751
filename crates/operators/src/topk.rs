//! The first rows by an order.
//!
//! Rows that may be among the first are kept, with their keys as bytes whose order is the rows'. From
//! time to time all but the first rows are dropped, and the last of these is the *threshold*: rows
//! after it are not kept, and if its first key lies before a chunk's bounds, the chunk is skipped.

mod row_batches;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::rc::Rc;

use crate::compute::compare::order;
use crate::evaluate::EvalFrame;
use crate::expr::ExprError;
use crate::fragment::SortKey;
use crate::output;
use crate::program::{ExprId, ExprProgram};
use crate::prune::ColumnBounds;
use crate::types::Class;
use crate::vector::{Vector, VectorValues};
use pages::Range;
use pages::task::TaskError;
use row_batches::{RowBatch, RowBatches, RowPosition};

/// The least number of bytes of unneeded rows at which they are dropped.
const SPARE_BYTES: usize = 64 << 20;

/// The first of the rows that were added so far.
#[derive(Debug)]
pub(crate) struct TopK {
    keys: Vec<OrderKey>,
    project: Vec<ExprId>,
    limit: usize,
    /// The keys of the rows that are kept, in the order in which they came.
    row_keys: Vec<Vec<u8>>,
    /// Their values.
    rows: RowBatches,
    /// The number of bytes of these from which on unneeded rows are dropped.
    most_bytes: usize,
    threshold: Option<Vec<u8>>,
    schema: SchemaRef,
}

#[derive(Debug)]
struct OrderKey {
    node: ExprId,
    /// The column, if the key is nothing but a column.
    column: Option<usize>,
    descending: bool,
    nulls_first: bool,
}

impl TopK {
    /// Makes an empty set.
    ///
    /// # Errors
    /// Returns the errors of [`Expr::data_type`](crate::Expr::data_type).
    pub(crate) fn new(
        order: &[SortKey],
        project: Vec<ExprId>,
        limit: usize,
        schema: SchemaRef,
        program: &mut ExprProgram,
    ) -> Result<TopK, ExprError> {
        let mut keys = Vec::new();
        for key in order {
            let node = program.add(&key.expr)?;
            let column = match program.nodes[node].op {
                crate::program::ExprOp::Column(column) => Some(column),
                _ => None,
            };
            let (descending, nulls_first) = (key.descending, key.nulls_first);
            keys.push(OrderKey {
                node,
                column,
                descending,
                nulls_first,
            });
        }
        Ok(TopK {
            keys,
            project,
            limit,
            row_keys: Vec::new(),
            rows: RowBatches::default(),
            most_bytes: SPARE_BYTES,
            threshold: None,
            schema,
        })
    }

    /// Returns `true` if no row within these bounds is among the first.
    pub(crate) fn excludes(&self, columns: &[ColumnBounds<'_>], program: &ExprProgram) -> bool {
        let (Some(threshold), Some(key)) = (&self.threshold, self.keys.first()) else {
            return self.limit == 0;
        };
        let Some(known) = key.column.map(|column| &columns[column]) else {
            return false;
        };
        let mut best = Vec::new();
        match (known.range, program.class(key.node)) {
            // Nulls that come first may lie before the threshold.
            _ if known.nulls && key.nulls_first => return false,
            (&Range::Int { min, max }, Class::Int) => {
                key.encode(
                    &mut best,
                    Some(&integer(if key.descending { max } else { min })),
                );
            }
            _ => return false,
        }
        // Rows with the same first key may still lie before the threshold by another key.
        threshold
            .get(..best.len())
            .is_some_and(|threshold| best.as_slice() > threshold)
    }

    /// Adds rows.
    ///
    /// # Errors
    /// Returns an error if an expression has no value for a row.
    pub(crate) fn add(&mut self, frame: &mut EvalFrame<'_, '_>) -> Result<(), TaskError> {
        let rows = frame.len();
        let vectors = self.keys.iter().map(|key| frame.evaluate(key.node));
        let vectors: Vec<Rc<Vector>> = vectors.collect::<Result<_, _>>()?;
        let mut places = Vec::new();
        for row in 0..rows {
            let mut bytes = Vec::new();
            for (key, vector) in self.keys.iter().zip(&vectors) {
                key.append(&mut bytes, vector, row);
            }
            if self
                .threshold
                .as_ref()
                .is_none_or(|threshold| bytes < *threshold)
            {
                self.row_keys.push(bytes);
                places.push(row as u32);
            }
        }
        if places.is_empty() {
            return Ok(());
        }
        let rows = places.len();
        let column = |&node: &ExprId| Ok(frame.evaluate_at(node, &places)?.expanded(rows));
        let columns: Result<_, TaskError> = self.project.iter().map(column).collect();
        let columns = columns?;
        self.rows.push(RowBatch { rows, columns });
        let many = self.row_keys.len() >= 2 * self.limit + output::BATCH;
        if many || self.rows.bytes() >= self.most_bytes {
            self.shrink()?;
        }
        Ok(())
    }

    /// Drops all rows but the first, and leaves these in order. The rows that are left use no memory
    /// of the pages that they came from.
    fn shrink(&mut self) -> Result<(), TaskError> {
        let mut order: Vec<u32> = (0..self.row_keys.len() as u32).collect();
        order.sort_by(|&a, &b| self.row_keys[a as usize].cmp(&self.row_keys[b as usize]));
        order.truncate(self.limit);
        let places = self.rows.places();
        let places: Vec<RowPosition> = order.iter().map(|&at| places[at as usize]).collect();
        self.rows = self.rows.picked(&places, &self.schema)?;
        // As many bytes again may come before the next time.
        self.most_bytes = 2 * self.rows.bytes() + SPARE_BYTES;
        let mut row_keys = std::mem::take(&mut self.row_keys);
        self.row_keys = order
            .iter()
            .map(|&at| std::mem::take(&mut row_keys[at as usize]))
            .collect();
        if self.row_keys.len() == self.limit {
            self.threshold = self.row_keys.last().cloned();
        }
        Ok(())
    }

    /// Returns the first rows, in order.
    ///
    /// # Errors
    /// Returns an error if they do not fit the schema.
    pub(crate) fn take(&mut self) -> Result<Vec<RecordBatch>, TaskError> {
        self.shrink()?;
        self.row_keys.clear();
        let rows = std::mem::take(&mut self.rows);
        let batch = |part: &RowBatch| output::batch(&self.schema, part.rows, &part.columns);
        rows.all().iter().map(batch).collect()
    }
}

impl OrderKey {
    /// Appends a row's value as bytes that have the order of values.
    fn append(&self, bytes: &mut Vec<u8>, vector: &Vector, row: usize) {
        if !vector.is_valid(row) {
            return self.encode(bytes, None);
        }
        let at = if vector.constant { 0 } else { row };
        match &vector.values {
            VectorValues::Bool(values) => self.encode(bytes, Some(&[values[at]])),
            VectorValues::I64(values) => self.encode(bytes, Some(&integer(values[at].into()))),
            VectorValues::I128(values) => self.encode(bytes, Some(&integer(values[at]))),
            VectorValues::F64(values) => {
                self.encode(bytes, Some(&integer(order(values[at]).into())))
            }
            VectorValues::Bytes(texts) => {
                // Zeros are marked, so that a text's end lies before everything that may follow.
                let mut text = Vec::with_capacity(texts.get(at).len() + 2);
                for &byte in texts.get(at) {
                    text.push(byte);
                    if byte == 0 {
                        text.push(0xFF);
                    }
                }
                text.extend([0, 0]);
                self.encode(bytes, Some(&text));
            }
        }
    }

    fn encode(&self, bytes: &mut Vec<u8>, value: Option<&[u8]>) {
        let Some(value) = value else {
            bytes.push(if self.nulls_first { 0 } else { 2 });
            return;
        };
        bytes.push(1);
        let turn = if self.descending { 0xFF } else { 0 };
        bytes.extend(value.iter().map(|byte| byte ^ turn));
    }
}

/// Returns an integer as bytes that have the order of integers.
fn integer(value: i128) -> [u8; 16] {
    (value as u128 ^ 1 << 127).to_be_bytes()
}
