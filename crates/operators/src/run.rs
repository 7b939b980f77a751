//! A running fragment: chunks go in, batches come out.

use std::cell::OnceCell;
use std::collections::VecDeque;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use pages::{Bounds, Cancellation, Range};

use crate::aggregate::{Aggregation, GroupLimits};
use crate::chunk::{Chunk, Column};
use crate::compute::{Context, Frame, intervals};
use crate::filter::{Filter, Passing, Plan};
use crate::fragment::{Fragment, FragmentError, Work};
use crate::output::{self, Gathered};
use crate::program::{NodeId, Program};
use crate::prune::Known;
use crate::site::{TaskError, check_wanted};
use crate::stored::{Columns, Rows};
use crate::topk::TopK;
use crate::types;
use crate::vector::VECTOR;

/// A running fragment.
#[derive(Debug)]
pub struct Executor {
    program: Program,
    filter: Option<Filter>,
    work: Worker,
    ready: VecDeque<RecordBatch>,
    finished: bool,
    wanted: Cancellation,
}

#[derive(Debug)]
enum Worker {
    Rows(Projection),
    First(TopK),
    Aggregate(Aggregation),
}

impl Executor {
    /// Prepares a fragment for chunks whose columns have these types, or are stored in narrower
    /// ones.
    ///
    /// # Errors
    /// Returns an error if the fragment cannot be executed over such columns, see
    /// [`Fragment::check_types`].
    pub fn new(fragment: &Fragment, columns: &[DataType]) -> Result<Executor, FragmentError> {
        Executor::with_limits(fragment, columns, GroupLimits::default())
    }

    /// Prepares a fragment as [`Executor::new`], with other limits on groups.
    ///
    /// # Errors
    /// Returns the errors of [`Executor::new`].
    pub fn with_limits(
        fragment: &Fragment,
        columns: &[DataType],
        limits: GroupLimits,
    ) -> Result<Executor, FragmentError> {
        fragment.check_types(columns)?;
        let mut program = Program::new(columns.to_vec());
        let filter = fragment.filter.as_ref();
        let filter = filter
            .map(|filter| Filter::new(filter, &mut program))
            .transpose()?;
        let schema = SchemaRef::clone(&fragment.output);
        let work = match &fragment.work {
            Work::Rows {
                project,
                order,
                limit,
            } => {
                let project: Vec<NodeId> = project
                    .iter()
                    .map(|expr| program.add(expr))
                    .collect::<Result<_, _>>()?;
                match limit {
                    Some(limit) if !order.is_empty() => {
                        let limit = *limit as usize;
                        Worker::First(TopK::new(order, project, limit, schema, &mut program)?)
                    }
                    _ => Worker::Rows(Projection::new(project, *limit, schema)),
                }
            }
            Work::Aggregate { by, aggregates } => Worker::Aggregate(Aggregation::new(
                by,
                aggregates,
                schema,
                &mut program,
                limits,
            )?),
        };
        Ok(Executor {
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
    pub fn while_wanted(self, wanted: &Cancellation) -> Executor {
        let wanted = wanted.clone();
        Executor { wanted, ..self }
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
    /// type, or the result is no longer [wanted](Executor::while_wanted).
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
        let known: Vec<Known<'_>> = bounds.iter().map(|bounds| Known::of(bounds)).collect();
        if self.done() {
            return Ok(());
        }
        let Some(open) = self.open(&known) else {
            return Ok(());
        };
        let intervals = known.iter().zip(types);
        let intervals: Vec<_> = intervals.map(|(known, t)| known.interval(t)).collect();
        let facts = intervals::facts(&self.program, &intervals);
        let arrays: Vec<_> = types.iter().map(|_| OnceCell::new()).collect();
        let columns = Columns::new(rows, types, load, &arrays);
        let context = Context {
            program: &self.program,
            columns: &columns,
            facts: &facts,
        };
        for from in (0..rows).step_by(VECTOR) {
            check_wanted(&self.wanted)?;
            let len = VECTOR.min(rows - from);
            let passing = match &self.filter {
                Some(filter) => filter.select(context, &open, from, len)?,
                None => Passing::All,
            };
            let rows = match &passing {
                Passing::All => Rows::Slice(from, len),
                Passing::Some(rows) if rows.is_empty() => continue,
                Passing::Some(rows) => Rows::Picked(rows),
            };
            let mut frame = Frame::new(context, rows);
            match &mut self.work {
                Worker::Rows(rows) => rows.add(&mut frame, &mut self.ready)?,
                Worker::First(first) => first.add(&mut frame)?,
                Worker::Aggregate(aggregation) => {
                    if aggregation.add(&mut frame, bytes(&self.ready))? {
                        self.ready.extend(aggregation.take(&self.program)?);
                    }
                }
            }
            if matches!(&self.work, Worker::Rows(rows) if rows.left == Some(0)) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the conjuncts that must be evaluated for a chunk of these bounds; `None` if none of
    /// its rows contributes to the result.
    fn open(&self, known: &[Known<'_>]) -> Option<Vec<usize>> {
        if let Worker::First(first) = &self.work
            && first.excludes(known, &self.program)
        {
            return None;
        }
        match &self.filter {
            None => Some(Vec::new()),
            Some(filter) => match filter.plan(&self.program, known) {
                Plan::Nothing => None,
                Plan::Conjuncts(open) => Some(open),
            },
        }
    }

    /// Returns `true` if no further chunk would change the result.
    #[must_use]
    pub fn done(&self) -> bool {
        self.finished || matches!(&self.work, Worker::Rows(rows) if rows.left == Some(0))
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
            Worker::Rows(rows) => rows.flush(&mut self.ready)?,
            Worker::First(first) => self.ready.extend(first.take()?),
            Worker::Aggregate(aggregation) => self.ready.extend(aggregation.take(&self.program)?),
        }
        Ok(())
    }
}

/// Rows that come out as they are found.
#[derive(Debug)]
struct Projection {
    project: Vec<NodeId>,
    /// The number of rows that may still come out, if there is a limit.
    left: Option<u64>,
    gathered: Vec<Gathered>,
    rows: usize,
    /// Bytes of texts among the gathered values.
    bytes: usize,
    /// The number of rows at which they come out.
    most_rows: usize,
    schema: SchemaRef,
}

impl Projection {
    fn new(project: Vec<NodeId>, left: Option<u64>, schema: SchemaRef) -> Projection {
        let gathered = project.iter().map(|_| Gathered::new()).collect();
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

    fn add(
        &mut self,
        frame: &mut Frame<'_, '_>,
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
        if enough || self.left == Some(0) {
            self.flush(ready)?;
        }
        Ok(())
    }

    fn flush(&mut self, ready: &mut VecDeque<RecordBatch>) -> Result<(), TaskError> {
        if self.rows == 0 {
            return Ok(());
        }
        let gathered = self
            .gathered
            .iter_mut()
            .map(|g| std::mem::replace(g, Gathered::new()));
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        ready.push_back(output::gathered(&self.schema, rows, gathered)?);
        Ok(())
    }
}

/// Returns about how many bytes the batches have that wait to be taken.
fn bytes(ready: &VecDeque<RecordBatch>) -> usize {
    ready.iter().map(RecordBatch::get_array_memory_size).sum()
}

/// Returns what is known of a column's values: at least what its array's type says.
fn bounds(column: &Column) -> Bounds {
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
