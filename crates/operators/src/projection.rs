//! Projection: the values of expressions for the rows that pass, in batches.

use std::collections::VecDeque;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use pages::task::TaskError;

use crate::evaluate::EvalFrame;
use crate::output::{self, ColumnBuilder};
use crate::program::ExprId;

/// Rows that come out as they are found.
#[derive(Debug)]
pub(crate) struct Projection {
    project: Vec<ExprId>,
    /// The number of rows that may still come out, if there is a limit.
    left: Option<u64>,
    gathered: Vec<ColumnBuilder>,
    rows: usize,
    /// Bytes of texts among the gathered values.
    bytes: usize,
    /// The number of rows at which they come out.
    most_rows: usize,
    schema: SchemaRef,
}

impl Projection {
    /// Makes a projection of which at most `left` rows come out.
    pub(crate) fn new(project: Vec<ExprId>, left: Option<u64>, schema: SchemaRef) -> Projection {
        let gathered = project.iter().map(|_| ColumnBuilder::new()).collect();
        Projection {
            project,
            left,
            gathered,
            rows: 0,
            bytes: 0,
            most_rows: output::most_rows(&schema),
            schema,
        }
    }

    /// Adds rows, and makes batches ready when there are enough of them.
    ///
    /// # Errors
    /// Returns an error if an expression has no value for a row.
    pub(crate) fn add(
        &mut self,
        frame: &mut EvalFrame<'_, '_>,
        ready: &mut VecDeque<RecordBatch>,
    ) -> Result<(), TaskError> {
        let rows = frame
            .len()
            .min(self.left.map_or(usize::MAX, |left| left as usize));
        // Values of rows beyond the limit are not computed: they might be errors.
        let places: Vec<u32> = (0..rows as u32).collect();
        for (gathered, &node) in self.gathered.iter_mut().zip(&self.project) {
            self.bytes += gathered.push(&*frame.evaluate_at(node, &places)?, rows);
        }
        self.rows += rows;
        if let Some(left) = &mut self.left {
            *left -= rows as u64;
        }
        let enough = self.rows >= self.most_rows || self.bytes >= output::BATCH_BYTES;
        if enough || self.is_full() {
            self.flush(ready)?;
        }
        Ok(())
    }

    /// Makes a batch of the rows that are left ready.
    ///
    /// # Errors
    /// Returns an error if they do not fit the schema.
    pub(crate) fn flush(&mut self, ready: &mut VecDeque<RecordBatch>) -> Result<(), TaskError> {
        if self.rows == 0 {
            return Ok(());
        }
        let gathered = self
            .gathered
            .iter_mut()
            .map(|g| std::mem::replace(g, ColumnBuilder::new()));
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        ready.push_back(output::gathered(&self.schema, rows, gathered)?);
        Ok(())
    }

    /// Returns `true` if no more rows may come out.
    pub(crate) fn is_full(&self) -> bool {
        self.left == Some(0)
    }
}
