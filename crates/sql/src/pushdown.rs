//! Rules that move aggregates and the first rows of an order into scans.
//!
//! | rule | finds | makes of it | when |
//! |---|---|---|---|
//! | [`PushAggregates`] | `AggregateExec` in mode `Partial` over a scan | the scan, with partial aggregates | after filters have moved, before rows are distributed to partitions |
//! | [`PushTopK`] | `SortExec` with a limit over a scan | the same over a scan that yields each partition's first rows | after limits have moved into sorts, before dynamic filters are tied to nodes |
//!
//! DataFusion plans each aggregate as a `Partial` and a `Final` one, and only later merges them
//! if there is a single partition; at the first rule's place there are always two. Projections between
//! aggregate and scan, those of common sub-expressions above all, are replaced by what they compute.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use operators::{Aggregate, FragmentWork, Function, SortKey};

use crate::group_estimate;
use crate::options::KumikiOptions;
use crate::place_scans::PlaceScans;
use crate::scan::PagesScan;
use crate::translate::Translator;

/// The most rows of an order that a scan keeps for each partition.
const MOST_FIRST_ROWS: usize = 65_536;

/// Returns DataFusion's rules with ours among them.
///
/// # Panics
/// Panics if DataFusion's rules are not those for which ours are made, which its version pins.
#[must_use]
pub fn rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    let place = |rules: &[Arc<dyn PhysicalOptimizerRule + Send + Sync>], name: &str| {
        let found = rules.iter().position(|rule| rule.name() == name);
        found.unwrap_or_else(|| panic!("DataFusion has no rule {name}"))
    };
    let filters = place(&rules, "FilterPushdown");
    rules.insert(filters + 1, Arc::new(PushAggregates));
    let cooperative = place(&rules, "EnsureCooperative");
    rules.insert(cooperative, Arc::new(PushTopK));
    let check = place(&rules, "SanityCheckPlan");
    rules.insert(check, Arc::new(PlaceScans));
    rules
}

/// Moves partial aggregates into scans.
#[derive(Debug)]
pub struct PushAggregates;

impl PhysicalOptimizerRule for PushAggregates {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = KumikiOptions::of(config);
        if !options.push_down {
            return Ok(plan);
        }
        plan.transform_up(|plan| {
            let aggregate = plan.downcast_ref::<AggregateExec>();
            let pushed = aggregate.and_then(|aggregate| push_aggregate(aggregate, &options));
            Ok(match pushed {
                Some(scan) => Transformed::yes(Arc::new(scan) as _),
                None => Transformed::no(plan),
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "PushAggregates"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn push_aggregate(plan: &AggregateExec, options: &KumikiOptions) -> Option<PagesScan> {
    let groups = plan.group_expr();
    if *plan.mode() != AggregateMode::Partial || groups.has_grouping_set() {
        return None;
    }
    let (scan, translator) = below(plan.input())?;
    let by = translator.translate_all(groups.expr().iter().map(|(expr, _)| expr))?;
    let functions = plan.aggr_expr().iter().zip(plan.filter_expr());
    let aggregates = functions.map(|(of, filter)| aggregate(of, filter.as_ref(), &translator));
    let aggregates = aggregates.collect::<Option<Vec<_>>>()?;
    if !group_estimate::are_few(scan.table(), &by, options.rows_for_each_group) {
        return None;
    }
    let pushed = scan.aggregating(FragmentWork::Aggregate { by, aggregates }, plan.schema());
    // Work that the executor would refuse, for a type or a size, stays with DataFusion.
    pushed.is_possible().then_some(pushed)
}

/// Returns the scan below projections, and a translator of expressions over them.
fn below(plan: &Arc<dyn ExecutionPlan>) -> Option<(&PagesScan, Translator)> {
    if let Some(scan) = plan.downcast_ref::<PagesScan>() {
        return Some((scan, scan.translator()?));
    }
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let (scan, translator) = below(projection.input())?;
    let exprs = projection.expr().iter().map(|one| &one.expr);
    let columns = translator.translate_all(exprs)?;
    let translator = Translator::new(&scan.table().schema, projection.schema(), columns);
    Some((scan, translator))
}

/// Returns our aggregate that has the same states; `None` if there is none.
fn aggregate(
    aggregate: &AggregateFunctionExpr,
    filter: Option<&Arc<dyn PhysicalExpr>>,
    translator: &Translator,
) -> Option<Aggregate> {
    if aggregate.is_distinct() || aggregate.ignore_nulls() || !aggregate.order_bys().is_empty() {
        return None;
    }
    let function = match aggregate.fun().name() {
        "count" => Function::Count,
        "sum" => Function::Sum,
        "min" => Function::Min,
        "max" => Function::Max,
        "avg" => Function::Avg,
        _ => return None,
    };
    let [of] = &aggregate.expressions()[..] else {
        return None;
    };
    let of = match function {
        Function::Count if is_constant(of) => None,
        _ => Some(translator.translate(of)?),
    };
    let filter = match filter {
        Some(filter) => Some(translator.translate(filter)?),
        None => None,
    };
    Some(Aggregate {
        function,
        of,
        filter,
    })
}

/// Returns `true` if each row counts: `count(*)` is `count(1)`.
fn is_constant(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let literal = expr.downcast_ref::<Literal>();
    literal.is_some_and(|literal| !literal.value().is_null())
}

/// Makes scans yield only the first rows if a sort above needs no more.
#[derive(Debug)]
pub struct PushTopK;

impl PhysicalOptimizerRule for PushTopK {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !KumikiOptions::of(config).push_down {
            return Ok(plan);
        }
        plan.transform_up(|plan| {
            let scan = plan.downcast_ref::<SortExec>().and_then(first_rows);
            Ok(match scan {
                Some(scan) => {
                    let sorted = replace_children_if_necessary(plan, vec![Arc::new(scan)])?;
                    Transformed::yes(sorted)
                }
                None => Transformed::no(plan),
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "PushTopK"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn first_rows(sort: &SortExec) -> Option<PagesScan> {
    let limit = sort.fetch().filter(|limit| *limit <= MOST_FIRST_ROWS)?;
    let scan = sort.input().downcast_ref::<PagesScan>()?;
    let translator = scan.translator()?;
    let keys = sort.expr().iter().map(|key| {
        Some(SortKey {
            expr: translator.compared(&key.expr)?,
            descending: key.options.descending,
            nulls_first: key.options.nulls_first,
        })
    });
    let pushed = scan.first_by(keys.collect::<Option<_>>()?, limit as u64)?;
    pushed.is_possible().then_some(pushed)
}
