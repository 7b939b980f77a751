//! Partial aggregates of groups.
//!
//! | module | concept |
//! |---|---|
//! | `groups` | which group a row belongs to |
//! | `key` | the values of groups' keys as words |
//! | `interner` | numbers for texts |
//! | `assignment` | rows by their groups |
//! | `lane` | aggregates of the same rows |
//! | `limits` | how much memory they may take |
//! | `result` | from states to batches |
//! | `state` | sums, and the least and greatest values |
//!
//! Aggregates with the same filter form a *lane*. Aggregates of the same value share what they have
//! in common, such as an average's sum. Rows are counted, and apart from them nulls, of which there
//! are mostly none.

mod assignment;
mod groups;
mod interner;
mod key;
mod lane;
mod limits;
mod result;
mod state;

use arrow_schema::SchemaRef;

use crate::compute::Frame;
use crate::expr::{Expr, ExprError};
use crate::fragment::{Aggregate, Function};
use crate::program::{NodeId, Program};
use crate::site::TaskError;
use crate::types;
use assignment::Assignment;
use groups::Groups;
use lane::{Input, Lane};
pub use limits::GroupLimits;
use limits::Room;
use state::{Extremes, Sum};

/// Partial aggregates of the rows that were added so far.
#[derive(Debug)]
pub(crate) struct Aggregation {
    by: Vec<NodeId>,
    lanes: Vec<Lane>,
    outputs: Vec<Output>,
    groups: Groups,
    limits: GroupLimits,
    /// Bytes of a group's states, without texts.
    state_bytes: usize,
    schema: SchemaRef,
}

/// The place at which an aggregate's state is found.
#[derive(Debug)]
struct Output {
    function: Function,
    lane: usize,
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
        program: &mut Program,
        limits: GroupLimits,
    ) -> Result<Aggregation, ExprError> {
        let by = by
            .iter()
            .map(|expr| program.add(expr))
            .collect::<Result<Vec<_>, _>>()?;
        let mut lanes = Vec::new();
        let mut outputs = Vec::new();
        for aggregate in aggregates {
            outputs.push(place(aggregate, &mut lanes, program)?);
        }
        let keys: Vec<_> = by
            .iter()
            .map(|&node| (program.data_type(node).clone(), program.class(node)))
            .collect();
        let groups = Groups::new(&keys);
        let state_bytes = lanes.iter().map(Lane::state_bytes).sum();
        let mut aggregation = Aggregation {
            by,
            lanes,
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
        frame: &mut Frame<'_, '_>,
        waiting: usize,
    ) -> Result<bool, TaskError> {
        let rows = frame.len();
        let facts = frame.context().facts;
        let assignment = if self.by.is_empty() {
            Assignment::One(rows)
        } else {
            let keys: Vec<_> = self
                .by
                .iter()
                .map(|&node| frame.evaluate(node))
                .collect::<Result<_, _>>()?;
            let facts: Vec<_> = self.by.iter().map(|&node| facts[node]).collect();
            let of = self.groups.assign(&keys, &facts, rows);
            Assignment::new(of, self.groups.len())
        };
        // Memory is taken only when it is known that there is room.
        let mut room = Room::new(self.limits.bytes);
        room.take(self.size().saturating_add(waiting))?;
        self.resize();
        for lane in &mut self.lanes {
            lane.add(frame, &assignment, &mut room)?;
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
        let texts: usize = self.lanes.iter().map(Lane::text_bytes).sum();
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
        for lane in &mut self.lanes {
            lane.rows.resize(groups, 0);
            for input in &mut lane.inputs {
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

    fn reset(&mut self, program: &Program) {
        let keys: Vec<_> = self
            .by
            .iter()
            .map(|&node| (program.data_type(node).clone(), program.class(node)))
            .collect();
        self.groups = Groups::new(&keys);
        for lane in &mut self.lanes {
            lane.rows.clear();
            for input in &mut lane.inputs {
                input.reset(program);
            }
        }
        self.resize();
    }
}

/// Finds a place for an aggregate's state among those that there are, or makes one.
fn place(
    aggregate: &Aggregate,
    lanes: &mut Vec<Lane>,
    program: &mut Program,
) -> Result<Output, ExprError> {
    let filter = aggregate
        .filter
        .as_ref()
        .map(|filter| program.add(filter))
        .transpose()?;
    let lane = lanes
        .iter()
        .position(|lane| lane.filter == filter)
        .unwrap_or_else(|| {
            lanes.push(Lane {
                filter,
                rows: Vec::new(),
                inputs: Vec::new(),
            });
            lanes.len() - 1
        });
    let Some(of) = &aggregate.of else {
        return match aggregate.function {
            Function::Count => Ok(Output {
                function: Function::Count,
                lane,
                input: None,
            }),
            _ => Err(ExprError::Argument("only a count is of no value")),
        };
    };
    let of = program.add(of)?;
    let inputs = &mut lanes[lane].inputs;
    let at = inputs
        .iter()
        .position(|input| input.of == of)
        .unwrap_or_else(|| {
            inputs.push(Input {
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
            input.sum.get_or_insert_with(|| Sum::new(class, wraps));
        }
        Function::Min => {
            _ = input
                .least
                .get_or_insert_with(|| Extremes::new(class, false))
        }
        Function::Max => {
            _ = input
                .greatest
                .get_or_insert_with(|| Extremes::new(class, true))
        }
    }
    Ok(Output {
        function: aggregate.function,
        lane,
        input: Some(at),
    })
}

/// Returns the types of an aggregate's state.
///
/// # Errors
/// Returns an error if it has none.
pub(crate) fn state_types(
    aggregate: &Aggregate,
    columns: &[arrow_schema::DataType],
) -> Result<Vec<arrow_schema::DataType>, ExprError> {
    use arrow_schema::DataType;
    if let Some(filter) = &aggregate.filter
        && filter.data_type(columns)? != DataType::Boolean
    {
        return Err(ExprError::Argument("an aggregate's filter is a condition"));
    }
    let of = aggregate
        .of
        .as_ref()
        .map(|of| of.data_type(columns))
        .transpose()?;
    let of = match (aggregate.function, of) {
        (Function::Count, _) => return Ok(vec![DataType::Int64]),
        (_, None) => return Err(ExprError::Argument("only a count is of no value")),
        (_, Some(of)) => of,
    };
    let known = |found: Option<DataType>| found.ok_or_else(|| ExprError::Type(of.clone()));
    Ok(match aggregate.function {
        Function::Sum => vec![known(types::sum_type(&of))?],
        Function::Avg => vec![DataType::UInt64, known(types::average_sum_type(&of))?],
        _ => vec![of],
    })
}
