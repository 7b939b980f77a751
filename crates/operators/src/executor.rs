//! A running fragment: chunks go in, batches come out.

use std::cell::OnceCell;
use std::collections::VecDeque;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use pages::{Bounds, Cancellation, Range};

use crate::aggregate::{Aggregation, GroupLimits};
use crate::chunk::{Chunk, ChunkColumn};
use crate::evaluate::{EvalContext, EvalFrame};
use crate::filter::{Filter, FilterPlan, SelectedRows};
use crate::fragment::{Fragment, FragmentError, FragmentWork};
use crate::program::{ExprId, ExprProgram, interval_analysis};
use crate::projection::Projection;
use crate::prune::ColumnBounds;
use crate::stored_column::{ChunkColumns, RowSelection};
use crate::task::check_wanted;
use crate::topk::TopK;
use crate::types;
use crate::vector::VECTOR;
use pages::task::TaskError;

/// A running fragment.
#[derive(Debug)]
pub struct FragmentExecutor {
    program: ExprProgram,
    filter: Option<Filter>,
    work: SinkOperator,
    ready: VecDeque<RecordBatch>,
    finished: bool,
    wanted: Cancellation,
}

#[derive(Debug)]
enum SinkOperator {
    Projection(Projection),
    TopK(TopK),
    Aggregate(Aggregation),
}

impl FragmentExecutor {
    /// Prepares a fragment for chunks whose columns have these types, or are stored in narrower
    /// ones.
    ///
    /// # Errors
    /// Returns an error if the fragment cannot be executed over such columns, see
    /// [`Fragment::check_types`].
    pub fn new(
        fragment: &Fragment,
        columns: &[DataType],
    ) -> Result<FragmentExecutor, FragmentError> {
        FragmentExecutor::with_limits(fragment, columns, GroupLimits::default())
    }

    /// Prepares a fragment as [`FragmentExecutor::new`], with other limits on groups.
    ///
    /// # Errors
    /// Returns the errors of [`FragmentExecutor::new`].
    pub fn with_limits(
        fragment: &Fragment,
        columns: &[DataType],
        limits: GroupLimits,
    ) -> Result<FragmentExecutor, FragmentError> {
        fragment.check_types(columns)?;
        let mut program = ExprProgram::new(columns.to_vec());
        let filter = fragment.filter.as_ref();
        let filter = filter
            .map(|filter| Filter::new(filter, &mut program))
            .transpose()?;
        let schema = SchemaRef::clone(&fragment.output);
        let work = match &fragment.work {
            FragmentWork::Rows {
                project,
                order,
                limit,
            } => {
                let project: Vec<ExprId> = project
                    .iter()
                    .map(|expr| program.add(expr))
                    .collect::<Result<_, _>>()?;
                match limit {
                    Some(limit) if !order.is_empty() => {
                        let limit = *limit as usize;
                        SinkOperator::TopK(TopK::new(order, project, limit, schema, &mut program)?)
                    }
                    _ => SinkOperator::Projection(Projection::new(project, *limit, schema)),
                }
            }
            FragmentWork::Aggregate { by, aggregates } => SinkOperator::Aggregate(
                Aggregation::new(by, aggregates, schema, &mut program, limits)?,
            ),
        };
        Ok(FragmentExecutor {
            program,
            filter,
            work,
            ready: VecDeque::new(),
            finished: false,
            wanted: Cancellation::default(),
        })
    }

    /// Makes it end with [`TaskError::Unwanted`] when its result is no longer wanted, which is
    /// checked for every vector.
    #[must_use]
    pub fn while_wanted(self, wanted: &Cancellation) -> FragmentExecutor {
        let wanted = wanted.clone();
        FragmentExecutor { wanted, ..self }
    }

    /// Works on a chunk.
    ///
    /// # Errors
    /// Returns an error if a value cannot be computed, or the chunk's columns are not what they
    /// should be.
    pub fn feed(&mut self, chunk: &Chunk) -> Result<(), TaskError> {
        let bounds: Vec<Bounds> = chunk.columns.iter().map(bounds).collect();
        let load = |column: usize| Ok(ArrayRef::clone(&chunk.columns[column].array));
        self.feed_parts(chunk.rows, &bounds.iter().collect::<Vec<_>>(), &load)
    }

    /// Works on a chunk of so many rows, whose columns have these bounds. A column is loaded when it
    /// is needed, which may be never.
    ///
    /// # Errors
    /// Returns an error if a value cannot be computed, a column cannot be loaded or is not of its
    /// type, or the result is no longer [wanted](FragmentExecutor::while_wanted).
    pub fn feed_parts(
        &mut self,
        rows: usize,
        bounds: &[&Bounds],
        load: &dyn Fn(usize) -> Result<ArrayRef, TaskError>,
    ) -> Result<(), TaskError> {
        let types = &self.program.columns;
        if bounds.len() != types.len() {
            let what = format!(
                "a chunk has {} columns, and not {}",
                bounds.len(),
                types.len()
            );
            return Err(TaskError::Refused(what));
        }
        let known: Vec<ColumnBounds<'_>> = bounds
            .iter()
            .map(|bounds| ColumnBounds::of(bounds))
            .collect();
        if self.done() {
            return Ok(());
        }
        let Some(open) = self.open(&known) else {
            return Ok(());
        };
        let intervals = known.iter().zip(types);
        let intervals: Vec<_> = intervals.map(|(known, t)| known.interval(t)).collect();
        let intervals = interval_analysis::intervals(&self.program, &intervals);
        let arrays: Vec<_> = types.iter().map(|_| OnceCell::new()).collect();
        let columns = ChunkColumns::new(rows, types, load, &arrays);
        let context = EvalContext {
            program: &self.program,
            columns: &columns,
            intervals: &intervals,
        };
        for from in (0..rows).step_by(VECTOR) {
            check_wanted(&self.wanted)?;
            let len = VECTOR.min(rows - from);
            let passing = match &self.filter {
                Some(filter) => filter.select(context, &open, from, len)?,
                None => SelectedRows::All,
            };
            let rows = match &passing {
                SelectedRows::All => RowSelection::Slice(from, len),
                SelectedRows::Some(rows) if rows.is_empty() => continue,
                SelectedRows::Some(rows) => RowSelection::Picked(rows),
            };
            let mut frame = EvalFrame::new(context, rows);
            match &mut self.work {
                SinkOperator::Projection(rows) => rows.add(&mut frame, &mut self.ready)?,
                SinkOperator::TopK(first) => first.add(&mut frame)?,
                SinkOperator::Aggregate(aggregation) => {
                    if aggregation.add(&mut frame, bytes(&self.ready))? {
                        self.ready.extend(aggregation.take(&self.program)?);
                    }
                }
            }
            if matches!(&self.work, SinkOperator::Projection(rows) if rows.is_full()) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the conjuncts that must be evaluated for a chunk of these bounds; `None` if none of
    /// its rows contributes to the result.
    fn open(&self, known: &[ColumnBounds<'_>]) -> Option<Vec<usize>> {
        if let SinkOperator::TopK(first) = &self.work
            && first.excludes(known, &self.program)
        {
            return None;
        }
        match &self.filter {
            None => Some(Vec::new()),
            Some(filter) => match filter.plan(&self.program, known) {
                FilterPlan::NoRow => None,
                FilterPlan::Conjuncts(open) => Some(open),
            },
        }
    }

    /// Returns `true` if no further chunk would change the result.
    #[must_use]
    pub fn done(&self) -> bool {
        self.finished || matches!(&self.work, SinkOperator::Projection(rows) if rows.is_full())
    }

    /// Takes a batch that is ready.
    pub fn take(&mut self) -> Option<RecordBatch> {
        self.ready.pop_front()
    }

    /// Ends the input: makes the last batches ready.
    ///
    /// # Errors
    /// Returns an error if a result does not fit its schema.
    pub fn finish(&mut self) -> Result<(), TaskError> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        match &mut self.work {
            SinkOperator::Projection(rows) => rows.flush(&mut self.ready)?,
            SinkOperator::TopK(first) => self.ready.extend(first.take()?),
            SinkOperator::Aggregate(aggregation) => {
                self.ready.extend(aggregation.take(&self.program)?)
            }
        }
        Ok(())
    }
}

/// Returns about how many bytes the batches have that wait to be taken.
fn bytes(ready: &VecDeque<RecordBatch>) -> usize {
    ready.iter().map(RecordBatch::get_array_memory_size).sum()
}

/// Returns what is known of a column's values: at least what its array's type says.
fn bounds(column: &ChunkColumn) -> Bounds {
    let limits = types::limits(column.array.data_type());
    let range = match (&column.range, limits) {
        (Range::Unknown, Some((min, max))) => Range::Int { min, max },
        (range, _) => range.clone(),
    };
    Bounds {
        nulls: column.array.logical_null_count() as u32,
        range,
    }
}
