//! Aggregates of the same rows.

use super::group_assignment::GroupAssignment;
use super::memory_limits::MemoryAllowance;
use super::state::{GroupExtremes, GroupSums};
use crate::compute::value_interval::ValueInterval;
use crate::evaluate::EvalFrame;
use crate::program::{ExprId, ExprProgram};
use crate::vector::Vector;
use pages::task::TaskError;

/// Aggregates over the same rows.
#[derive(Debug)]
pub(super) struct AggregateSet {
    pub(super) filter: Option<ExprId>,
    /// The number of rows of each group.
    pub(super) rows: Vec<i64>,
    pub(super) inputs: Vec<AggregateInput>,
}

/// Aggregates of the same value.
#[derive(Debug)]
pub(super) struct AggregateInput {
    pub(super) of: ExprId,
    pub(super) nulls: Vec<i64>,
    pub(super) sum: Option<GroupSums>,
    pub(super) least: Option<GroupExtremes>,
    pub(super) greatest: Option<GroupExtremes>,
}

impl AggregateSet {
    /// Returns the number of bytes of a group's states, without texts.
    pub(super) fn state_bytes(&self) -> usize {
        let inputs: usize = self.inputs.iter().map(AggregateInput::state_bytes).sum();
        size_of::<i64>() + inputs
    }

    /// Returns the number of bytes of all groups' texts.
    pub(super) fn text_bytes(&self) -> usize {
        self.inputs.iter().map(AggregateInput::text_bytes).sum()
    }

    /// Adds rows, if there is room for what is kept of them.
    ///
    /// # Errors
    /// Returns an error if there is no room, or an expression has no value for a row.
    pub(super) fn add(
        &mut self,
        frame: &mut EvalFrame<'_, '_>,
        assignment: &GroupAssignment,
        allowance: &mut MemoryAllowance,
    ) -> Result<(), TaskError> {
        let Some(filter) = self.filter else {
            return self.add_rows(frame, None, assignment, allowance);
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
        self.add_rows(frame, Some(&places), &assignment.at(&places), allowance)
    }

    fn add_rows(
        &mut self,
        frame: &mut EvalFrame<'_, '_>,
        places: Option<&[u32]>,
        assignment: &GroupAssignment,
        allowance: &mut MemoryAllowance,
    ) -> Result<(), TaskError> {
        count(&mut self.rows, assignment, None);
        for input in &mut self.inputs {
            let vector = match places {
                None => frame.evaluate(input.of)?,
                Some(places) => frame.evaluate_at(input.of, places)?,
            };
            let interval = &frame.context().intervals[input.of];
            let before = input.text_bytes();
            if vector.constant {
                input.add(&vector.expanded(assignment.len()), interval, assignment);
            } else {
                input.add(&vector, interval, assignment);
            }
            allowance.take(input.text_bytes().saturating_sub(before))?;
        }
        Ok(())
    }
}

impl AggregateInput {
    /// Returns the number of bytes of a group's states, without texts.
    pub(super) fn state_bytes(&self) -> usize {
        let sum = self.sum.as_ref().map_or(0, GroupSums::state_bytes);
        let extremes = self.least.iter().chain(&self.greatest);
        size_of::<i64>() + sum + extremes.map(GroupExtremes::state_bytes).sum::<usize>()
    }

    /// Returns the number of bytes of all groups' texts.
    pub(super) fn text_bytes(&self) -> usize {
        let extremes = self.least.iter().chain(&self.greatest);
        extremes.map(GroupExtremes::all_text_bytes).sum()
    }

    fn add(&mut self, vector: &Vector, interval: &ValueInterval, assignment: &GroupAssignment) {
        if let Some(valid) = &vector.valid {
            count(&mut self.nulls, assignment, Some(valid));
        }
        self.sum
            .iter_mut()
            .for_each(|sum| sum.add(vector, interval, assignment));
        self.least
            .iter_mut()
            .for_each(|least| least.add(vector, assignment));
        self.greatest
            .iter_mut()
            .for_each(|greatest| greatest.add(vector, assignment));
    }

    pub(super) fn reset(&mut self, program: &ExprProgram) {
        let class = program.class(self.of);
        let wraps = program.data_type(self.of).is_integer();
        self.nulls.clear();
        self.sum = self.sum.as_ref().map(|_| GroupSums::new(class, wraps));
        self.least = self
            .least
            .as_ref()
            .map(|_| GroupExtremes::new(class, false));
        self.greatest = self
            .greatest
            .as_ref()
            .map(|_| GroupExtremes::new(class, true));
    }
}

/// Counts rows, or the rows that are null.
fn count(counts: &mut [i64], assignment: &GroupAssignment, valid: Option<&[u8]>) {
    match (assignment, valid) {
        (GroupAssignment::One(rows), None) => counts[0] += *rows as i64,
        (GroupAssignment::Few { ends, .. }, None) => {
            let mut from = 0;
            for (count, &end) in counts.iter_mut().zip(ends) {
                *count += (end - from) as i64;
                from = end;
            }
        }
        (GroupAssignment::Many(of), None) => {
            of.iter().for_each(|&group| counts[group as usize] += 1)
        }
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
