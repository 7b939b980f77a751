//! The first rows by an order.
//!
//! Rows that may be among them are kept, with their keys as bytes whose order is the rows'. From time
//! to time all but the first are dropped, and the last of these is the *threshold*: rows behind it are
//! not kept, and where its first key's place is known to lie before a chunk's bounds, the chunk is
//! not looked at.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::rc::Rc;

use crate::compute::Frame;
use crate::compute::compare::total;
use crate::expr::ExprError;
use crate::fragment::SortKey;
use crate::output::{self, Gathered};
use crate::program::{NodeId, Program};
use crate::prune::Known;
use crate::site::TaskError;
use crate::types::Class;
use crate::vector::{Values, Vector};
use pages::Range;

/// The most rows that are ordered.
pub const ORDERED: u64 = 1 << 20;

/// The first rows, as far as rows were added.
#[derive(Debug)]
pub(crate) struct TopK {
    keys: Vec<Key>,
    project: Vec<NodeId>,
    limit: usize,
    /// The rows that are kept: their keys, in the order in which they came.
    kept: Vec<Vec<u8>>,
    /// Their values.
    columns: Vec<Vec<Vector>>,
    threshold: Option<Vec<u8>>,
    schema: SchemaRef,
}

#[derive(Debug)]
struct Key {
    node: NodeId,
    /// The column, if it is nothing else.
    column: Option<usize>,
    descending: bool,
    nulls_first: bool,
}

impl TopK {
    /// No rows yet.
    ///
    /// # Errors
    /// Those of [`Expr::data_type`](crate::Expr::data_type).
    pub(crate) fn new(
        order: &[SortKey],
        project: Vec<NodeId>,
        limit: usize,
        schema: SchemaRef,
        program: &mut Program,
    ) -> Result<TopK, ExprError> {
        let mut keys = Vec::new();
        for key in order {
            let node = program.add(&key.expr)?;
            let column = match program.nodes[node].op {
                crate::program::Op::Column(column) => Some(column),
                _ => None,
            };
            let (descending, nulls_first) = (key.descending, key.nulls_first);
            keys.push(Key {
                node,
                column,
                descending,
                nulls_first,
            });
        }
        let columns = project.iter().map(|_| Vec::new()).collect();
        let (kept, threshold) = (Vec::new(), None);
        Ok(TopK {
            keys,
            project,
            limit,
            kept,
            columns,
            threshold,
            schema,
        })
    }

    /// Whether no row within these bounds is among the first.
    pub(crate) fn excludes(&self, columns: &[Known<'_>], program: &Program) -> bool {
        let (Some(threshold), Some(key)) = (&self.threshold, self.keys.first()) else {
            return self.limit == 0;
        };
        let Some(known) = key.column.map(|column| &columns[column]) else {
            return false;
        };
        let mut best = Vec::new();
        match (known.range, program.class(key.node)) {
            // Nulls that come first may be before the threshold.
            _ if known.nulls && key.nulls_first => return false,
            (&Range::Int { min, max }, Class::Int) => {
                key.encode(
                    &mut best,
                    Some(&integer(if key.descending { max } else { min })),
                );
            }
            _ => return false,
        }
        // Rows with the same first key may still be before the threshold by another one.
        threshold
            .get(..best.len())
            .is_some_and(|threshold| best.as_slice() > threshold)
    }

    /// Adds rows.
    ///
    /// # Errors
    /// If an expression has no value for a row.
    pub(crate) fn add(&mut self, frame: &mut Frame<'_, '_>) -> Result<(), TaskError> {
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
                self.kept.push(bytes);
                places.push(row as u32);
            }
        }
        if places.is_empty() {
            return Ok(());
        }
        for (column, &node) in self.columns.iter_mut().zip(&self.project) {
            column.push(frame.evaluate_at(node, &places)?.expanded(places.len()));
        }
        if self.kept.len() >= 2 * self.limit + output::BATCH {
            self.shrink();
        }
        Ok(())
    }

    /// Drops all rows but the first, and leaves these in order.
    fn shrink(&mut self) {
        let mut order: Vec<u32> = (0..self.kept.len() as u32).collect();
        order.sort_by(|&a, &b| self.kept[a as usize].cmp(&self.kept[b as usize]));
        order.truncate(self.limit);
        for column in &mut self.columns {
            let mut all = Gathered::new();
            for part in column.drain(..) {
                all.push(&part, part.len());
            }
            column.extend(all.join().map(|all| compacted(&all.taken(&order))));
        }
        let mut kept = std::mem::take(&mut self.kept);
        self.kept = order
            .iter()
            .map(|&at| std::mem::take(&mut kept[at as usize]))
            .collect();
        if self.kept.len() == self.limit {
            self.threshold = self.kept.last().cloned();
        }
    }

    /// The first rows, in order.
    ///
    /// # Errors
    /// If they do not fit the schema.
    pub(crate) fn take(&mut self) -> Result<Vec<RecordBatch>, TaskError> {
        self.shrink();
        let rows = self.kept.len();
        let mut batches = Vec::new();
        for from in (0..rows).step_by(output::BATCH) {
            let places: Vec<u32> = (from..rows.min(from + output::BATCH))
                .map(|r| r as u32)
                .collect();
            let part: Vec<Vector> = self
                .columns
                .iter()
                .map(|parts| parts[0].taken(&places))
                .collect();
            batches.push(output::batch(&self.schema, places.len(), &part)?);
        }
        self.kept.clear();
        self.columns.iter_mut().for_each(Vec::clear);
        Ok(batches)
    }
}

/// The same, without the texts of rows that were dropped.
fn compacted(vector: &Vector) -> Vector {
    let Values::Bytes(texts) = &vector.values else {
        return vector.clone();
    };
    let all: Vec<&[u8]> = (0..texts.index.len()).map(|row| texts.get(row)).collect();
    Vector {
        values: Values::texts(&all),
        ..vector.clone()
    }
}

impl Key {
    /// Appends a row's value as bytes that are ordered as values are.
    fn append(&self, bytes: &mut Vec<u8>, vector: &Vector, row: usize) {
        if !vector.is_valid(row) {
            return self.encode(bytes, None);
        }
        let at = if vector.constant { 0 } else { row };
        match &vector.values {
            Values::Bool(values) => self.encode(bytes, Some(&[values[at]])),
            Values::I64(values) => self.encode(bytes, Some(&integer(values[at].into()))),
            Values::I128(values) => self.encode(bytes, Some(&integer(values[at]))),
            Values::F64(values) => self.encode(bytes, Some(&integer(total(values[at]).into()))),
            Values::Bytes(texts) => {
                // Zeros are marked, so that a text's end is before everything that may follow.
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

/// An integer as bytes whose order is that of integers.
fn integer(value: i128) -> [u8; 16] {
    (value as u128 ^ 1 << 127).to_be_bytes()
}
