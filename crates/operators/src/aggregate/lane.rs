//! Aggregates of the same rows.

use super::assignment::Assignment;
use super::limits::Room;
use super::state::{Extremes, Sum};
use crate::compute::Frame;
use crate::compute::intervals::Facts;
use crate::program::{NodeId, Program};
use crate::site::TaskError;
use crate::vector::Vector;

/// Aggregates over the same rows.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) filter: Option<NodeId>,
    /// The number of rows of each group.
    pub(super) rows: Vec<i64>,
    pub(super) inputs: Vec<Input>,
}

/// Aggregates of the same value.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) of: NodeId,
    pub(super) nulls: Vec<i64>,
    pub(super) sum: Option<Sum>,
    pub(super) least: Option<Extremes>,
    pub(super) greatest: Option<Extremes>,
}

impl Lane {
    /// Returns the number of bytes of a group's states, without texts.
    pub(super) fn state_bytes(&self) -> usize {
        let inputs: usize = self.inputs.iter().map(Input::state_bytes).sum();
        size_of::<i64>() + inputs
    }

    /// Returns the number of bytes of all groups' texts.
    pub(super) fn text_bytes(&self) -> usize {
        self.inputs.iter().map(Input::text_bytes).sum()
    }

    /// Adds rows, if there is room for what is kept of them.
    ///
    /// # Errors
    /// Returns an error if there is no room, or an expression has no value for a row.
    pub(super) fn add(
        &mut self,
        frame: &mut Frame<'_, '_>,
        assignment: &Assignment,
        room: &mut Room,
    ) -> Result<(), TaskError> {
        let Some(filter) = self.filter else {
            return self.add_rows(frame, None, assignment, room);
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
        self.add_rows(frame, Some(&places), &assignment.at(&places), room)
    }

    fn add_rows(
        &mut self,
        frame: &mut Frame<'_, '_>,
        places: Option<&[u32]>,
        assignment: &Assignment,
        room: &mut Room,
    ) -> Result<(), TaskError> {
        count(&mut self.rows, assignment, None);
        for input in &mut self.inputs {
            let vector = match places {
                None => frame.evaluate(input.of)?,
                Some(places) => frame.evaluate_at(input.of, places)?,
            };
            let facts = &frame.context().facts[input.of];
            let before = input.text_bytes();
            if vector.constant {
                input.add(&vector.expanded(assignment.len()), facts, assignment);
            } else {
                input.add(&vector, facts, assignment);
            }
            room.take(input.text_bytes().saturating_sub(before))?;
        }
        Ok(())
    }
}

impl Input {
    /// Returns the number of bytes of a group's states, without texts.
    pub(super) fn state_bytes(&self) -> usize {
        let sum = self.sum.as_ref().map_or(0, Sum::state_bytes);
        let extremes = self.least.iter().chain(&self.greatest);
        size_of::<i64>() + sum + extremes.map(Extremes::state_bytes).sum::<usize>()
    }

    /// Returns the number of bytes of all groups' texts.
    pub(super) fn text_bytes(&self) -> usize {
        let extremes = self.least.iter().chain(&self.greatest);
        extremes.map(Extremes::all_text_bytes).sum()
    }

    fn add(&mut self, vector: &Vector, facts: &Facts, assignment: &Assignment) {
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

    pub(super) fn reset(&mut self, program: &Program) {
        let class = program.class(self.of);
        let wraps = program.data_type(self.of).is_integer();
        self.nulls.clear();
        self.sum = self.sum.as_ref().map(|_| Sum::new(class, wraps));
        self.least = self.least.as_ref().map(|_| Extremes::new(class, false));
        self.greatest = self.greatest.as_ref().map(|_| Extremes::new(class, true));
    }
}

/// Counts rows, or the rows that are null.
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
