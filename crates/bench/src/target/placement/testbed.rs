//! The state that the points of a run share: tables, the storage node over one of them, expected
//! answers.
//!
//! A point uses one table over one node. The next point may use the same ones; otherwise they are
//! closed to make room, as pages of large tables have large directories. Files stay until the run's
//! end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use disk::RealDisk;
use fabric::Secret;
use fabric::tcp::Transport;
use pages::remote::{RemoteNode, RemoteNodeOptions, SessionOptions};
use pages::{Layout, LoadOptions, Local, LocalOptions, Mode, PageSize, Source, Table, Tables};
use tempfile::TempDir;
use tpch::TpchTable;

use super::measured_node::{MeasuredNode, NodeSettings};
use super::query_answer::ReferenceAnswers;
use super::query_job::{OperatorPlacement, QueryJob, QueryTable, ResultTransport};
use super::striped_source::StripedSource;
use super::tpch_query::{self, QueryVariant};
use crate::error::RunError;
use crate::parameters::Effort;
use crate::run_context::RunContext;

/// The table's name.
const NAME: &str = "lineitem";
/// Threads that generate rows.
const GENERATORS: usize = 2;

/// See the [module](self). Values that refer to files are declared before them, and so are dropped
/// before them.
#[derive(Default)]
pub(super) struct Testbed {
    open: Option<OpenTable>,
    dirs: HashMap<QueryTable, Arc<TempDir>>,
    reference: Option<Arc<ReferenceAnswers>>,
}

/// A table, and the node over it.
struct OpenTable {
    node: MeasuredNode,
    shape: NodeSettings,
    data: QueryTable,
    table: Arc<Table>,
    tables: Tables,
    /// By the number of threads that read.
    locals: HashMap<Option<usize>, Local>,
    /// Connections to the node.
    nodes: HashMap<ResultTransport, RemoteNode>,
    /// The jobs that were executed since the node was started.
    warm: HashSet<(OperatorPlacement, ResultTransport, usize, usize)>,
}

/// Returns the scale factor of an effort.
pub(super) fn scale_factor(effort: Effort) -> f64 {
    match effort {
        Effort::Tiny => 0.01,
        Effort::Quick => 0.1,
        Effort::Full => 1.0,
    }
}

impl Testbed {
    /// Ensures that the table and the node of a job are there.
    pub(super) fn prepare(
        &mut self,
        job: &QueryJob,
        context: &RunContext<'_>,
    ) -> Result<(), RunError> {
        let cpus = base::cpus::usable().unwrap_or_default();
        let shape = NodeSettings {
            task_threads: job.threads,
            io_threads: job.io_threads,
            cpu: cpus.first().copied().filter(|_| job.pinned),
        };
        self.reference(context);
        let same = |set: &OpenTable| set.data == job.data && set.shape == shape;
        // Nothing runs on the node in this case.
        let asks_none =
            |set: &OpenTable| set.data == job.data && job.placement == OperatorPlacement::Local;
        if self
            .open
            .as_ref()
            .is_some_and(|set| same(set) || asks_none(set))
        {
            return Ok(());
        }
        let dir = self.dir(job.data, context)?;
        let failed = |error: &dyn std::fmt::Display| RunError::failed("opening the table")(error);
        let (table, tables, locals) = match self.open.take().filter(|set| set.data == job.data) {
            Some(set) => (set.table, set.tables, set.locals),
            None => {
                let pages = [dir.path().join("pages")];
                let tables = Tables::open_read_only(Arc::new(RealDisk), &pages);
                let tables = tables.map_err(|error| failed(&error))?;
                let table = tables.table(NAME).map_err(|error| failed(&error))?;
                (table, tables, HashMap::new())
            }
        };
        let node = MeasuredNode::start(&dir.path().join("pages"), dir.path(), shape, context)?;
        self.open = Some(OpenTable {
            node,
            shape,
            data: job.data,
            table,
            tables,
            locals,
            nodes: HashMap::new(),
            warm: HashSet::new(),
        });
        Ok(())
    }

    /// Returns the directory with a table, which is loaded on the first call.
    fn dir(
        &mut self,
        data: QueryTable,
        context: &RunContext<'_>,
    ) -> Result<Arc<TempDir>, RunError> {
        if let Some(dir) = self.dirs.get(&data) {
            return Ok(Arc::clone(dir));
        }
        let dir = Arc::new(context.directory(data.place)?);
        let failed = |error: &dyn std::fmt::Display| RunError::failed("loading the table")(error);
        let tables = Tables::open(Arc::new(RealDisk), &[dir.path().join("pages")]);
        let tables = tables.map_err(|error| failed(&error))?;
        let options = LoadOptions {
            page_size: PageSize::new(data.page_kib * 1024).expect("a size that pages have"),
            layout: match data.variant {
                QueryVariant::Where => Layout::Rows,
                QueryVariant::Full => Layout::Columns,
            },
            forms: TpchTable::Lineitem.forms(),
            ..LoadOptions::default()
        };
        let schema = TpchTable::Lineitem.schema();
        let load = tables.load(NAME, &schema, &options, Mode::Create);
        let mut load = load.map_err(|error| failed(&error))?;
        let factor = scale_factor(context.scale.effort);
        for batch in TpchTable::Lineitem.batches(factor, GENERATORS) {
            if context.stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(RunError::Interrupted);
            }
            load.push(&batch).map_err(|error| failed(&error))?;
        }
        load.commit().map_err(|error| failed(&error))?;
        self.dirs.insert(data, Arc::clone(&dir));
        Ok(dir)
    }

    /// Returns the expected answers.
    pub(super) fn reference(&mut self, context: &RunContext<'_>) -> Arc<ReferenceAnswers> {
        let factor = scale_factor(context.scale.effort);
        let reference = self
            .reference
            .get_or_insert_with(|| Arc::new(ReferenceAnswers::of_scale(factor, GENERATORS)));
        Arc::clone(reference)
    }

    /// Returns `true` if no job of this kind was executed since the node was started, and marks it as
    /// executed.
    pub(super) fn is_cold(&mut self, job: &QueryJob) -> bool {
        let kind = (job.placement, job.transport, job.connections, job.threads);
        self.open_mut().warm.insert(kind)
    }

    /// Returns a remark on the figures, if there is one.
    pub(super) fn note(&self) -> Option<String> {
        let is_here = matches!(self.open().node, MeasuredNode::InProcess(..));
        is_here.then(|| "the storage node runs in this process".to_owned())
    }

    pub(super) fn table(&self) -> &Arc<Table> {
        &self.open().table
    }

    /// Returns the processor time of the node, in seconds, if that is known.
    pub(super) fn node_cpu(&self) -> Option<f64> {
        self.open().node.cpu()
    }

    /// Returns the pages that a job reads.
    pub(super) fn pages_of(&self, job: &QueryJob) -> u64 {
        let fragment = tpch_query::fragment(job.query, job.data.variant);
        let table = self.table();
        let rows = operators::scan::prune(table, &fragment, &operators::scan::all(table));
        let pages = rows.and_then(|rows| operators::scan::pages(table, &fragment, &rows));
        pages.map_or(0, |pages| pages.len() as u64)
    }

    /// Returns this machine's own pages, read by so many threads, or in the way that suits the
    /// device.
    pub(super) fn local(&mut self, io_threads: Option<usize>) -> Arc<dyn Source> {
        let set = self.open_mut();
        let local = set.locals.entry(io_threads).or_insert_with(|| {
            let way = io_threads.map(|threads| disk::reads::ReadMethod::ThreadPool { threads });
            let options = LocalOptions {
                way,
                ..LocalOptions::default()
            };
            Local::new(set.tables.clone(), options)
        });
        Arc::new(local.clone())
    }

    /// Returns the pages of the node, over so many connections for each reader.
    pub(super) fn remote_pages(
        &mut self,
        transport: ResultTransport,
        connections: usize,
    ) -> Arc<dyn Source> {
        let node = self.node(transport);
        Arc::new(StripedSource { node, connections })
    }

    /// Returns the node.
    pub(super) fn node(&mut self, transport: ResultTransport) -> RemoteNode {
        let set = self.open_mut();
        let address = set.node.address();
        let far = set.nodes.entry(transport).or_insert_with(|| {
            let mut session = SessionOptions::new(address, Secret::new(""));
            session.transport = match transport {
                ResultTransport::Tcp => Transport::Tcp,
                ResultTransport::None | ResultTransport::Shm => Transport::Shm,
            };
            RemoteNode::new(RemoteNodeOptions::new(session))
        });
        far.clone()
    }

    fn open(&self) -> &OpenTable {
        self.open.as_ref().expect("it was prepared")
    }

    fn open_mut(&mut self) -> &mut OpenTable {
        self.open.as_mut().expect("it was prepared")
    }
}
