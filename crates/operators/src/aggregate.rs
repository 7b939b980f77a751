//! Partial aggregates of groups.
//!
//! | module | concept |
//! |---|---|
//! | `memory_limits` | how much memory groups may take |
//! | `text_interner` | numbers for texts |
//! | `group_key` | the values of groups' keys as words |
//! | `group_table` | which group a row belongs to |
//! | `group_assignment` | rows by their groups |
//! | `state` | sums, and the least and greatest values |
//! | `aggregate_set` | aggregates of the same rows |
//! | `result` | from states to batches |
//!
//! Aggregates with the same filter form a *set*. Aggregates of the same value share what they have
//! in common, such as an average's sum. Rows are counted, and apart from them nulls, of which there
//! are mostly none.

mod aggregate_set;
mod group_assignment;
mod group_key;
mod group_table;
mod memory_limits;
mod result;
mod state;
mod text_interner;

use arrow_schema::SchemaRef;

use crate::evaluate::EvalFrame;
use crate::expr::{Expr, ExprError};
use crate::fragment::{Aggregate, Function};
use crate::program::{ExprId, ExprProgram};
use aggregate_set::{AggregateInput, AggregateSet};
use group_assignment::GroupAssignment;
use group_table::GroupTable;
pub use memory_limits::GroupLimits;
use memory_limits::MemoryAllowance;
use pages::task::TaskError;
use state::{GroupExtremes, GroupSums};

/// Partial aggregates of the rows that were added so far.
#[derive(Debug)]
pub(crate) struct Aggregation {
    by: Vec<ExprId>,
    sets: Vec<AggregateSet>,
    outputs: Vec<AggregateOutput>,
    groups: GroupTable,
    limits: GroupLimits,
    /// Bytes of a group's states, without texts.
    state_bytes: usize,
    schema: SchemaRef,
}

/// The place at which an aggregate's state is found.
#[derive(Debug)]
struct AggregateOutput {
    function: Function,
    set: usize,
    input: Option<usize>,
}

impl Aggregation {
    /// Makes an aggregation without rows.
    ///
    /// # Errors
    /// Returns the errors of [`Expr::data_type`].
    pub(crate) fn new(
        by: &[Expr],
        aggregates: &[Aggregate],
        schema: SchemaRef,
        program: &mut ExprProgram,
        limits: GroupLimits,
    ) -> Result<Aggregation, ExprError> {
        let by = by
            .iter()
            .map(|expr| program.add(expr))
            .collect::<Result<Vec<_>, _>>()?;
        let mut sets = Vec::new();
        let mut outputs = Vec::new();
        for aggregate in aggregates {
            outputs.push(find_or_add(aggregate, &mut sets, program)?);
        }
        let keys: Vec<_> = by
            .iter()
            .map(|&node| (program.data_type(node).clone(), program.class(node)))
            .collect();
        let groups = GroupTable::new(&keys);
        let state_bytes = sets.iter().map(AggregateSet::state_bytes).sum();
        let mut aggregation = Aggregation {
            by,
            sets,
            outputs,
            groups,
            limits,
            state_bytes,
            schema,
        };
        aggregation.resize();
        Ok(aggregation)
    }

    /// Adds rows. `waiting` is the number of bytes of earlier results that have not been taken yet.
    /// Returns `true` if there are so many groups that they should come out now.
    ///
    /// # Errors
    /// Returns an error if an expression has no value for a row, or groups take more memory than they
    /// may.
    pub(crate) fn add(
        &mut self,
        frame: &mut EvalFrame<'_, '_>,
        waiting: usize,
    ) -> Result<bool, TaskError> {
        let rows = frame.len();
        let intervals = frame.context().intervals;
        let assignment = if self.by.is_empty() {
            GroupAssignment::One(rows)
        } else {
            let keys: Vec<_> = self
                .by
                .iter()
                .map(|&node| frame.evaluate(node))
                .collect::<Result<_, _>>()?;
            let intervals: Vec<_> = self.by.iter().map(|&node| intervals[node]).collect();
            let of = self.groups.assign(&keys, &intervals, rows);
            GroupAssignment::new(of, self.groups.len())
        };
        // Memory is taken only when it is known that there is room.
        let mut allowance = MemoryAllowance::new(self.limits.bytes);
        allowance.take(self.size().saturating_add(waiting))?;
        self.resize();
        for set in &mut self.sets {
            set.add(frame, &assignment, &mut allowance)?;
        }
        // One group is kept: another one would begin as large.
        Ok(self.groups.len() > 1 && self.is_full())
    }

    fn is_full(&self) -> bool {
        self.groups.len() >= self.limits.groups
            || self.groups.size() >= self.limits.key_bytes
            || self.size() >= self.limits.bytes / 4
    }

    /// Returns about how many bytes are kept for groups, or will be kept when there is room for all
    /// of them.
    fn size(&self) -> usize {
        let states = self.count() * self.state_bytes;
        let texts: usize = self.sets.iter().map(AggregateSet::text_bytes).sum();
        self.groups.size() + states + texts
    }

    /// Returns the number of groups: without keys it is one, even of no rows.
    fn count(&self) -> usize {
        match self.by.is_empty() {
            true => 1,
            false => self.groups.len(),
        }
    }

    fn resize(&mut self) {
        let groups = self.count();
        for set in &mut self.sets {
            set.rows.resize(groups, 0);
            for input in &mut set.inputs {
                input.nulls.resize(groups, 0);
                input.sum.iter_mut().for_each(|sum| sum.resize(groups));
                input
                    .least
                    .iter_mut()
                    .for_each(|least| least.resize(groups));
                input
                    .greatest
                    .iter_mut()
                    .for_each(|greatest| greatest.resize(groups));
            }
        }
    }

    fn reset(&mut self, program: &ExprProgram) {
        let keys: Vec<_> = self
            .by
            .iter()
            .map(|&node| (program.data_type(node).clone(), program.class(node)))
            .collect();
        self.groups = GroupTable::new(&keys);
        for set in &mut self.sets {
            set.rows.clear();
            for input in &mut set.inputs {
                input.reset(program);
            }
        }
        self.resize();
    }
}

/// Finds a place for an aggregate's state among those that there are, or makes one.
fn find_or_add(
    aggregate: &Aggregate,
    sets: &mut Vec<AggregateSet>,
    program: &mut ExprProgram,
) -> Result<AggregateOutput, ExprError> {
    let filter = aggregate
        .filter
        .as_ref()
        .map(|filter| program.add(filter))
        .transpose()?;
    let set = sets
        .iter()
        .position(|set| set.filter == filter)
        .unwrap_or_else(|| {
            sets.push(AggregateSet {
                filter,
                rows: Vec::new(),
                inputs: Vec::new(),
            });
            sets.len() - 1
        });
    let Some(of) = &aggregate.of else {
        return match aggregate.function {
            Function::Count => Ok(AggregateOutput {
                function: Function::Count,
                set,
                input: None,
            }),
            _ => Err(ExprError::Argument("only a count is of no value")),
        };
    };
    let of = program.add(of)?;
    let inputs = &mut sets[set].inputs;
    let at = inputs
        .iter()
        .position(|input| input.of == of)
        .unwrap_or_else(|| {
            inputs.push(AggregateInput {
                of,
                nulls: Vec::new(),
                sum: None,
                least: None,
                greatest: None,
            });
            inputs.len() - 1
        });
    let (input, class) = (&mut inputs[at], program.class(of));
    match aggregate.function {
        Function::Count => {}
        Function::Sum | Function::Avg => {
            let wraps = program.data_type(of).is_integer();
            input
                .sum
                .get_or_insert_with(|| GroupSums::new(class, wraps));
        }
        Function::Min => {
            _ = input
                .least
                .get_or_insert_with(|| GroupExtremes::new(class, false))
        }
        Function::Max => {
            _ = input
                .greatest
                .get_or_insert_with(|| GroupExtremes::new(class, true))
        }
    }
    Ok(AggregateOutput {
        function: aggregate.function,
        set,
        input: Some(at),
    })
}
