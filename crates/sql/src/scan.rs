//! A scan of a table of pages, with all that it does to rows beside the data.
//!
//! DataFusion plans a scan that yields whole columns. The operators above it move in while the plan is
//! optimised:
//!
//! | what | through |
//! |---|---|
//! | filters | [`ExecutionPlan::handle_child_pushdown_result`] |
//! | projections | [`ExecutionPlan::try_swapping_with_projection`] |
//! | limits | [`ExecutionPlan::with_fetch`] |
//! | partial aggregates, the first rows of an order | the rules of [`crate::pushdown`] |
//!
//! Invariant: at each step the scan yields the rows that the plan that it replaces would have yielded, in
//! some order. Only expressions that [`crate::translate`] translates move in.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr, conjunction};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Metric, MetricBuilder, MetricValue, MetricsSet,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use operators::{
    Cancellation, Expr, Fragment, FragmentTask, FragmentWork, Operator, Placement, RowRange,
    SortKey,
};
use pages::Table;

use crate::catalogue::ReplicatedTable;
use crate::display;
use crate::fetch::{TaskMetrics, fetch};
use crate::fragment::fragment;
use crate::meter::{PageFigures, pages_of};
use crate::query_resources::QueryResources;
use crate::scan_placement::ScanPlacement;
use crate::statistics;
use crate::strips::strips;
use crate::translate::Translator;

/// A scan of a table of pages.
#[derive(Clone, Debug)]
pub struct PagesScan {
    replicated: Arc<ReplicatedTable>,
    /// The filter over the table's columns, as all expressions here.
    filter: Option<Expr>,
    work: FragmentWork,
    partitions: Arc<Vec<Vec<RowRange>>>,
    /// `true` if more than the choice of columns moves in.
    push_down: bool,
    /// Where it runs, after that is decided.
    placement: Option<ScanPlacement>,
    statistics: Arc<Statistics>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl PagesScan {
    /// Makes a scan that yields columns of a table, in at most so many partitions. Operators above it move in
    /// if `push_down` is set.
    ///
    /// # Errors
    /// Returns an error if there is no such column.
    pub fn new(
        replicated: Arc<ReplicatedTable>,
        columns: &[usize],
        partitions: usize,
        push_down: bool,
    ) -> Result<PagesScan> {
        let table = &replicated.table;
        let output = Arc::new(table.schema.project(columns)?);
        let strips = strips(table, columns.first().copied(), partitions);
        let statistics = statistics::of_table(table).project(Some(&columns));
        let properties = properties(EquivalenceProperties::new(output), strips.len());
        Ok(PagesScan {
            filter: None,
            work: FragmentWork::Rows {
                project: columns.iter().copied().map(Expr::Column).collect(),
                order: Vec::new(),
                limit: None,
            },
            partitions: Arc::new(strips),
            push_down,
            placement: None,
            statistics: Arc::new(statistics),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            replicated,
        })
    }

    /// Returns the table.
    #[must_use]
    pub fn table(&self) -> &Arc<Table> {
        &self.replicated.table
    }

    /// Returns the table, and the stores that have it.
    #[must_use]
    pub fn replicated(&self) -> &Arc<ReplicatedTable> {
        &self.replicated
    }

    /// Returns the condition that rows must meet, over the table's columns.
    #[must_use]
    pub fn filter(&self) -> Option<&Expr> {
        self.filter.as_ref()
    }

    /// Returns the work on the rows that pass, over the table's columns.
    #[must_use]
    pub fn work(&self) -> &FragmentWork {
        &self.work
    }

    /// Returns the rows of each partition.
    #[must_use]
    pub fn partitions(&self) -> &[Vec<RowRange>] {
        &self.partitions
    }

    /// Returns where it runs, after that is decided.
    #[must_use]
    pub fn placement(&self) -> Option<&ScanPlacement> {
        self.placement.as_ref()
    }

    /// Returns the number of pages that it reads if it skips none.
    #[must_use]
    pub fn pages(&self) -> u64 {
        let fragment = self.fragment();
        let parts = self.partitions.iter();
        parts
            .map(|rows| pages_of(self.table(), &fragment, rows))
            .sum()
    }

    /// Returns the counts of its pages so far; `None` if it was not placed, or if its operators run
    /// elsewhere.
    #[must_use]
    pub fn figures(&self) -> Option<PageFigures> {
        let placement = self.placement.as_ref()?;
        let counted = placement.placement != Placement::RemoteRemote;
        counted.then(|| placement.meter().figures(self.pages()))
    }

    /// Returns the fragment that runs beside the data.
    #[must_use]
    pub fn fragment(&self) -> Fragment {
        fragment(self.filter.as_ref(), &self.work, self.schema())
    }

    /// Returns `true` if the executor supports the fragment.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.fragment().check(&self.table().schema).is_ok()
    }

    /// Returns the expression of each column of the output, as long as rows come out without order and limit.
    #[must_use]
    pub fn plain_columns(&self) -> Option<&[Expr]> {
        match &self.work {
            FragmentWork::Rows {
                project,
                order,
                limit: None,
            } if order.is_empty() => Some(project),
            _ => None,
        }
    }

    /// Returns a translator of expressions over the output; `None` if nothing can be added to the work.
    #[must_use]
    pub fn translator(&self) -> Option<Translator> {
        if !self.push_down {
            return None;
        }
        let columns = self.plain_columns()?.to_vec();
        Some(Translator::new(
            &self.table().schema,
            self.schema(),
            columns,
        ))
    }

    /// Returns the scan with its placement.
    #[must_use]
    pub fn with_placement(&self, placement: ScanPlacement) -> PagesScan {
        PagesScan {
            placement: Some(placement),
            ..self.renewed()
        }
    }

    /// Returns a scan that yields partial aggregates instead of rows, with the state's names and types.
    #[must_use]
    pub fn aggregating(&self, work: FragmentWork, output: SchemaRef) -> PagesScan {
        let statistics = Statistics::new_unknown(&output);
        let mut properties = properties(EquivalenceProperties::new(output), self.partitions.len());
        properties.emission_type = EmissionType::Final;
        PagesScan {
            work,
            statistics: Arc::new(statistics),
            properties: Arc::new(properties),
            ..self.renewed()
        }
    }

    /// Returns a scan that yields only the first rows by an order in each partition; `None` if there is an
    /// order or a limit already.
    #[must_use]
    pub fn first_by(&self, order: Vec<SortKey>, limit: u64) -> Option<PagesScan> {
        let project = self.plain_columns()?.to_vec();
        Some(PagesScan {
            work: FragmentWork::Rows {
                project,
                order,
                limit: Some(limit),
            },
            ..self.renewed()
        })
    }

    /// Returns the scan with metrics of its own.
    fn renewed(&self) -> PagesScan {
        PagesScan {
            metrics: ExecutionPlanMetricsSet::new(),
            ..self.clone()
        }
    }

    /// Returns the scan with one more condition; `None` if all conditions together are more than the executor
    /// takes.
    fn and(&self, condition: Expr) -> Option<PagesScan> {
        let before = self.filter.as_ref().map(display::conditions);
        let before = before.unwrap_or_default().into_iter().cloned();
        let all = before.chain([condition]).collect();
        let more = PagesScan {
            filter: all_of(all),
            ..self.clone()
        };
        more.is_possible().then_some(more)
    }

    /// Takes the estimates and properties of a plan above that is to be replaced.
    fn standing_for(&self, plan: &dyn ExecutionPlan) -> Result<PagesScan> {
        let mut statistics = StatisticsContext::new().compute(plan, &StatisticsArgs::new())?;
        if plan.is::<FilterExec>() {
            statistics = Arc::new(statistics.as_ref().clone().to_inexact());
        }
        let equivalences = plan.equivalence_properties().clone();
        Ok(PagesScan {
            statistics,
            properties: Arc::new(properties(equivalences, self.partitions.len())),
            ..self.renewed()
        })
    }
}

/// Returns a metric for `EXPLAIN ANALYZE`.
fn figure(name: &'static str, value: u64) -> Arc<Metric> {
    let count = Count::new();
    count.add(usize::try_from(value).unwrap_or(usize::MAX));
    let value = MetricValue::Count {
        name: name.into(),
        count,
    };
    Arc::new(Metric::new(value, None))
}

fn properties(equivalences: EquivalenceProperties, partitions: usize) -> PlanProperties {
    let partitioning = Partitioning::UnknownPartitioning(partitions);
    // Receiving from a channel takes part in the runtime's scheduling.
    PlanProperties::new(
        equivalences,
        partitioning,
        EmissionType::Incremental,
        Boundedness::Bounded,
    )
    .with_scheduling_type(SchedulingType::Cooperative)
}

impl DisplayAs for PagesScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table();
        let names = display::ColumnNames(&table.schema);
        write!(f, "PagesScan: table={} v{}", table.name, table.version.0)?;
        if let Some(filter) = &self.filter {
            write!(f, ", filter={}", names.expr(filter))?;
        }
        write!(f, ", {}", names.work(&self.work))?;
        write!(f, ", partitions={}", self.partitions.len())?;
        match &self.placement {
            Some(placement) => write!(f, ", {placement}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for PagesScan {
    fn name(&self) -> &'static str {
        "PagesScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    #[allow(deprecated)]
    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(rows) = self.partitions.get(partition) else {
            return internal_err!(
                "a scan of {} has no partition {partition}",
                self.table().name
            );
        };
        let Some(placement) = &self.placement else {
            return internal_err!("a scan of {} was not placed", self.table().name);
        };
        let task = FragmentTask {
            table: Arc::clone(self.table()),
            fragment: Arc::new(self.fragment()),
            rows: rows.clone(),
            wanted: Cancellation::default(),
        };
        let metrics = TaskMetrics {
            baseline: BaselineMetrics::new(&self.metrics, partition),
            lost: MetricBuilder::new(&self.metrics).counter("replicas_lost", partition),
        };
        let resources = context.session_config().get_extension::<QueryResources>();
        let stream = fetch(placement.candidates(partition), task, metrics, resources);
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }

    /// Adds the pages that were read, those that were in the cache, and the others of all that could have
    /// been needed. If operators run elsewhere, their pages are not counted here.
    fn metrics(&self) -> Option<MetricsSet> {
        let mut metrics = self.metrics.clone_inner();
        if let Some(figures) = self.figures() {
            metrics.push(figure("pages_read", figures.read));
            metrics.push(figure("pages_cached", figures.cached));
            metrics.push(figure("pages_skipped", figures.skipped));
        }
        Some(metrics)
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        if args.partition().is_none() || self.partitions.len() == 1 {
            return Ok(Arc::clone(&self.statistics));
        }
        Ok(Arc::new(Statistics::new_unknown(&self.schema())))
    }

    fn fetch(&self) -> Option<usize> {
        match &self.work {
            FragmentWork::Rows {
                limit: Some(limit), ..
            } => usize::try_from(*limit).ok(),
            _ => None,
        }
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let FragmentWork::Rows { project, order, .. } = &self.work else {
            return None;
        };
        if !order.is_empty() || !self.push_down {
            return None;
        }
        Some(Arc::new(PagesScan {
            work: FragmentWork::Rows {
                project: project.clone(),
                order: Vec::new(),
                limit: limit.map(|limit| limit as u64),
            },
            statistics: Arc::new(statistics::limited(&self.statistics, limit)),
            ..self.renewed()
        }))
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let FragmentWork::Rows {
            project,
            order,
            limit,
        } = &self.work
        else {
            return Ok(None);
        };
        let translator = Translator::new(&self.table().schema, self.schema(), project.clone());
        let exprs = projection.expr().iter().map(|one| &one.expr);
        let Some(project) = translator.translate_all(exprs) else {
            return Ok(None);
        };
        let is_column = |expr: &Expr| matches!(expr, Expr::Column(_));
        if !self.push_down && !project.iter().all(is_column) {
            return Ok(None);
        }
        Ok(Some(Arc::new(PagesScan {
            work: FragmentWork::Rows {
                project,
                order: order.clone(),
                limit: *limit,
            },
            ..self.standing_for(projection)?
        })))
    }

    /// Moves static filters in. Dynamic ones, which change while the query runs, do not move.
    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let Some(translator) = self.translator() else {
            return Ok(FilterPushdownPropagation::all_unsupported(result));
        };
        let mut answers = Vec::new();
        let mut originals = Vec::new();
        let mut filtered = self.clone();
        for asked in result.parent_filters {
            let condition = translator.translate(&asked.filter);
            match condition.and_then(|condition| filtered.and(condition)) {
                Some(more) => {
                    filtered = more;
                    originals.push(asked.filter);
                    answers.push(PushedDown::Yes);
                }
                None => answers.push(PushedDown::No),
            }
        }
        let answer = FilterPushdownPropagation::with_parent_pushdown_result(answers);
        if originals.is_empty() {
            return Ok(answer);
        }
        let stood = FilterExec::try_new(conjunction(originals), Arc::new(self.clone()))?;
        let scan = filtered.standing_for(&stood)?;
        Ok(answer.with_updated_node(Arc::new(scan)))
    }
}

/// Returns an expression that joins conditions by AND, in their order. It is no deeper than necessary.
fn all_of(mut conditions: Vec<Expr>) -> Option<Expr> {
    if conditions.len() < 2 {
        return conditions.pop();
    }
    let rest = conditions.split_off(conditions.len().div_ceil(2));
    let (a, b) = (all_of(conditions)?, all_of(rest)?);
    Some(Expr::Binary(Box::new(a), Operator::And, Box::new(b)))
}
