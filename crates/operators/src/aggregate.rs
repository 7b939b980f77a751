//! Partial aggregates of groups.
//!
//! | module | concept |
//! |---|---|
//! | `groups` | which group a row belongs to |
//! | `key` | the values of groups' keys as words |
//! | `interner` | numbers for texts |
//! | `assignment` | rows by their groups |
//! | `result` | from states to batches |
//! | `state` | sums, and the least and greatest values |
//!
//! Aggregates with the same filter are a *lane*; those of the same value share what they have in
//! common, such as an average's sum. What is counted are rows, and apart from these nulls, of
//! which there are mostly none.

mod assignment;
mod groups;
mod interner;
mod key;
mod result;
mod state;

use arrow_schema::SchemaRef;

use crate::compute::Frame;
use crate::expr::{Expr, ExprError};
use crate::fragment::{Aggregate, Function};
use crate::program::{NodeId, Program};
use crate::site::TaskError;
use crate::types;
use crate::vector::Vector;
use assignment::Assignment;
use groups::Groups;
use state::{Extremes, Sum};

/// With so many groups, or so many bytes of keys, what there is comes out.
#[derive(Clone, Copy, Debug)]
pub struct GroupLimits {
    /// Groups.
    pub groups: usize,
    /// Bytes of their keys.
    pub bytes: usize,
}

impl Default for GroupLimits {
    fn default() -> GroupLimits {
        GroupLimits {
            groups: 1 << 20,
            bytes: 64 << 20,
        }
    }
}

/// Partial aggregates, as far as rows were added.
#[derive(Debug)]
pub(crate) struct Aggregation {
    by: Vec<NodeId>,
    lanes: Vec<Lane>,
    outputs: Vec<Output>,
    groups: Groups,
    limits: GroupLimits,
    schema: SchemaRef,
}

/// Aggregates over the same rows.
#[derive(Debug)]
struct Lane {
    filter: Option<NodeId>,
    /// How many rows there are, of each group.
    rows: Vec<i64>,
    inputs: Vec<Input>,
}

/// Aggregates of the same value.
#[derive(Debug)]
struct Input {
    of: NodeId,
    nulls: Vec<i64>,
    sum: Option<Sum>,
    least: Option<Extremes>,
    greatest: Option<Extremes>,
}

/// Where an aggregate's state is found.
#[derive(Debug)]
struct Output {
    function: Function,
    lane: usize,
    input: Option<usize>,
}

impl Aggregation {
    /// No rows yet.
    ///
    /// # Errors
    /// Those of [`Expr::data_type`].
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
        let mut aggregation = Aggregation {
            by,
            lanes,
            outputs,
            groups,
            limits,
            schema,
        };
        aggregation.resize();
        Ok(aggregation)
    }

    /// Adds rows. True if there are so many groups that they should come out now.
    ///
    /// # Errors
    /// If an expression has no value for a row.
    pub(crate) fn add(&mut self, frame: &mut Frame<'_, '_>) -> Result<bool, TaskError> {
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
            let groups = self.groups.len();
            self.resize();
            Assignment::new(of, groups)
        };
        for lane in &mut self.lanes {
            lane.add(frame, &assignment)?;
        }
        Ok(self.groups.len() >= self.limits.groups || self.groups.size() >= self.limits.bytes)
    }

    /// How many groups there are: without keys it is one, even of no rows.
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

impl Lane {
    fn add(&mut self, frame: &mut Frame<'_, '_>, assignment: &Assignment) -> Result<(), TaskError> {
        let Some(filter) = self.filter else {
            return self.add_rows(frame, None, assignment);
        };
        let holds = frame.evaluate(filter)?.is_true(frame.len());
        let rows = (0u32..).zip(&holds);
        let places: Vec<u32> = rows
            .filter(|&(_, &holds)| holds == 1)
            .map(|(row, _)| row)
            .collect();
        if places.is_empty() {
            return Ok(());
        }
        self.add_rows(frame, Some(&places), &assignment.at(&places))
    }

    fn add_rows(
        &mut self,
        frame: &mut Frame<'_, '_>,
        places: Option<&[u32]>,
        assignment: &Assignment,
    ) -> Result<(), TaskError> {
        count(&mut self.rows, assignment, None);
        for input in &mut self.inputs {
            let vector = match places {
                None => frame.evaluate(input.of)?,
                Some(places) => frame.evaluate_at(input.of, places)?,
            };
            let facts = &frame.context().facts[input.of];
            if vector.constant {
                input.add(&vector.expanded(assignment.len()), facts, assignment);
            } else {
                input.add(&vector, facts, assignment);
            }
        }
        Ok(())
    }
}

impl Input {
    fn add(
        &mut self,
        vector: &Vector,
        facts: &crate::compute::intervals::Facts,
        assignment: &Assignment,
    ) {
        if let Some(valid) = &vector.valid {
            count(&mut self.nulls, assignment, Some(valid));
        }
        self.sum
            .iter_mut()
            .for_each(|sum| sum.add(vector, facts, assignment));
        self.least
            .iter_mut()
            .for_each(|least| least.add(vector, assignment));
        self.greatest
            .iter_mut()
            .for_each(|greatest| greatest.add(vector, assignment));
    }

    fn reset(&mut self, program: &Program) {
        let class = program.class(self.of);
        let wraps = program.data_type(self.of).is_integer();
        self.nulls.clear();
        self.sum = self.sum.as_ref().map(|_| Sum::new(class, wraps));
        self.least = self.least.as_ref().map(|_| Extremes::new(class, false));
        self.greatest = self.greatest.as_ref().map(|_| Extremes::new(class, true));
    }
}

/// Counts rows, or those that are null.
fn count(counts: &mut [i64], assignment: &Assignment, valid: Option<&[u8]>) {
    match (assignment, valid) {
        (Assignment::One(rows), None) => counts[0] += *rows as i64,
        (Assignment::Few { ends, .. }, None) => {
            let mut from = 0;
            for (count, &end) in counts.iter_mut().zip(ends) {
                *count += (end - from) as i64;
                from = end;
            }
        }
        (Assignment::Many(of), None) => of.iter().for_each(|&group| counts[group as usize] += 1),
        (assignment, Some(valid)) => {
            let step = |count, &valid: &u8| count + i64::from(valid == 0);
            assignment.fold(
                valid,
                counts,
                |count| *count,
                step,
                |count, sum| *count = sum,
            );
        }
    }
}

/// The types of an aggregate's state.
///
/// # Errors
/// If it has none.
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
