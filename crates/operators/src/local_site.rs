//! The site that runs tasks on the thread that takes their batches.

use std::cell::OnceCell;
use std::iter;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use pages::{Bounds, Cancellation, Page, PageError, PageStream, Range, Source, Table};

use crate::estimate::estimate;
use crate::executor::FragmentExecutor;
use crate::scan::{self, NeededGroups, PageChanges, RowPiece, RowPieces};
use crate::site::{ResultBatches, Site};
use crate::task::{FragmentTask, check_wanted, refused};
use crate::work_costs::{TaskTimer, WorkCosts, thread_time};
use pages::task::TaskError;

/// Runs tasks on the caller's thread, over pages from any source.
#[derive(Clone)]
pub struct LocalSite {
    source: Arc<dyn Source>,
    costs: Option<Arc<WorkCosts>>,
}

impl LocalSite {
    /// Makes a site over pages from this source.
    #[must_use]
    pub fn new(source: Arc<dyn Source>) -> LocalSite {
        LocalSite {
            source,
            costs: None,
        }
    }

    /// Measures the costs of tasks, and adds them to `costs`.
    #[must_use]
    pub fn measured(self, costs: &Arc<WorkCosts>) -> LocalSite {
        LocalSite {
            costs: Some(Arc::clone(costs)),
            ..self
        }
    }
}

impl Site for LocalSite {
    fn run(&self, task: &FragmentTask) -> ResultBatches {
        match RunningTask::new(self.source.as_ref(), task, self.costs.is_some()) {
            Ok(running) => match &self.costs {
                None => Box::new(running),
                Some(costs) => Box::new(MeasuredTask {
                    operations: estimate(&task.table, &task.fragment, &task.rows)
                        .map_or(0.0, |estimate| estimate.all_operations()),
                    running,
                    costs: Arc::clone(costs),
                }),
            },
            Err(error) => Box::new(iter::once(Err(error))),
        }
    }
}

/// A task whose time is measured.
struct MeasuredTask {
    running: RunningTask,
    operations: f64,
    costs: Arc<WorkCosts>,
}

impl Iterator for MeasuredTask {
    type Item = Result<RecordBatch, TaskError>;

    fn next(&mut self) -> Option<Result<RecordBatch, TaskError>> {
        let begun = thread_time();
        let next = self.running.next();
        self.running.watch.busy_since(begun);
        if next.is_none() && self.running.through {
            self.running.through = false;
            self.running.watch.end(self.operations, &self.costs);
        }
        next
    }
}

/// A task that runs.
struct RunningTask {
    table: Arc<Table>,
    needed: NeededGroups,
    executor: FragmentExecutor,
    pieces: RowPieces<Arc<Table>>,
    changes: PageChanges,
    /// The pages to come; none is requested if the fragment has no columns.
    stream: PageStream,
    /// The page of each group.
    open: Vec<Option<OpenPage>>,
    finished: bool,
    /// `true` after all rows were worked on.
    through: bool,
    watch: TaskTimer,
    wanted: Cancellation,
}

/// The bounds of records, of which nothing is known.
const UNKNOWN: Bounds = Bounds {
    nulls: 0,
    range: Range::Unknown,
};

/// A page, and those of its columns that were decoded; the last one holds its records.
struct OpenPage {
    page: Arc<Page>,
    columns: Vec<OnceCell<ArrayRef>>,
}

impl RunningTask {
    fn new(
        source: &dyn Source,
        task: &FragmentTask,
        timed: bool,
    ) -> Result<RunningTask, TaskError> {
        let (table, fragment) = (Arc::clone(&task.table), &task.fragment);
        let rows = scan::prune(&table, fragment, &task.rows)?;
        let types = fragment.column_types(&table.schema).map_err(refused)?;
        let executor = FragmentExecutor::new(fragment, &types).map_err(refused)?;
        let executor = executor.while_wanted(&task.wanted);
        let needed = NeededGroups::of(&table, fragment, |_| true);
        let addresses = scan::pages(&table, fragment, &rows)?;
        let stream: PageStream = if addresses.is_empty() {
            Box::new(iter::empty())
        } else {
            source.read(&table, addresses)
        };
        Ok(RunningTask {
            pieces: RowPieces::new(Arc::clone(&table), &needed, &rows)?,
            changes: PageChanges::new(needed.groups.len()),
            open: needed.groups.iter().map(|_| None).collect(),
            stream,
            executor,
            needed,
            table,
            finished: false,
            through: false,
            watch: TaskTimer::running(timed),
            wanted: task.wanted.clone(),
        })
    }

    /// Works until a batch is ready, or there is nothing left to do.
    fn advance(&mut self) -> Result<Option<RecordBatch>, TaskError> {
        loop {
            if let Some(batch) = self.executor.take() {
                return Ok(Some(batch));
            }
            if self.finished {
                return Ok(None);
            }
            let piece = if self.executor.done() {
                None
            } else {
                self.pieces.next()
            };
            match piece {
                Some(piece) => self.work(&piece?)?,
                None => {
                    self.through = !self.executor.done();
                    self.executor.finish()?;
                    self.finished = true;
                    // The source may stop reading ahead.
                    self.stream = Box::new(iter::empty());
                }
            }
        }
    }

    fn work(&mut self, piece: &RowPiece) -> Result<(), TaskError> {
        // This is checked before the task waits for pages, and for rows that bounds exclude, too.
        check_wanted(&self.wanted)?;
        for group in self.changes.of(piece) {
            self.open[group] = Some(self.open_page(piece, group)?);
        }
        let columns = &self.needed.columns;
        let bounds: Vec<&Bounds> = (0..columns.len())
            .map(|column| {
                let bounds = self.needed.bounds(&self.table, piece, column);
                bounds.unwrap_or(&UNKNOWN)
            })
            .collect();
        let rows = (piece.rows.to - piece.rows.from) as usize;
        let open = &self.open;
        let load = |column: usize| {
            let found =
                columns[column].and_then(|(group, place)| Some((open[group].as_ref()?, place)));
            let Some((open, place)) = found else {
                return Err(TaskError::Refused(format!("column {column} is not read")));
            };
            let from = (piece.rows.from - open.page.first_row()) as usize;
            Ok(open.column(place)?.slice(from, rows))
        };
        self.executor.feed_parts(rows, &bounds, &load)
    }

    /// Returns the next page of the stream, which is the one that a piece needs of a group.
    fn open_page(&mut self, piece: &RowPiece, group: usize) -> Result<OpenPage, TaskError> {
        let address = self.needed.address(&self.table, piece, group);
        let entry = self.needed.entry(&self.table, piece, group);
        let page = self.watch.page(|| self.stream.next()).unwrap_or_else(|| {
            let what = "it did not come".to_owned();
            Err(PageError::Unreadable { address, what })
        })?;
        let columns = self.table.groups[self.needed.groups[group]].len();
        let expected = page.address() == address
            && page.first_row() == entry.first_row
            && page.rows() == entry.rows as usize
            && page.columns() == columns;
        if !expected {
            let what = "it is not the page of which the table knows".to_owned();
            return Err(PageError::Corrupt { address, what }.into());
        }
        // The last column is that of the records.
        let columns = iter::repeat_with(OnceCell::new).take(columns + 1);
        let columns = columns.collect();
        Ok(OpenPage { page, columns })
    }
}

impl OpenPage {
    fn column(&self, place: usize) -> Result<&ArrayRef, PageError> {
        match self.columns[place].get() {
            Some(array) => Ok(array),
            None => {
                let array = match place == self.page.columns() {
                    true => self.records()?,
                    false => self.page.column(place)?,
                };
                Ok(self.columns[place].get_or_init(|| array))
            }
        }
    }
}

impl OpenPage {
    fn records(&self) -> Result<ArrayRef, PageError> {
        self.page.record_array().ok_or_else(|| PageError::Corrupt {
            address: self.page.address(),
            what: "it has no records".to_owned(),
        })
    }
}

impl Iterator for RunningTask {
    type Item = Result<RecordBatch, TaskError>;

    fn next(&mut self) -> Option<Result<RecordBatch, TaskError>> {
        let found = self.advance();
        if found.is_err() {
            self.finished = true;
            self.stream = Box::new(iter::empty());
            // Batches that are ready are of no use after an error.
            while self.executor.take().is_some() {}
        }
        found.transpose()
    }
}
