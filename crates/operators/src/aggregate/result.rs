//! From states to batches. A batch has so few groups that it is small, and so are its texts.

use std::ops::Range;

use arrow_array::RecordBatch;

use super::aggregate_set::AggregateInput;
use super::state::{GroupExtremes, GroupSums};
use super::{AggregateOutput, Aggregation};
use crate::fragment::Function;
use crate::output;
use crate::program::ExprProgram;
use crate::vector::{Vector, VectorValues};
use pages::task::TaskError;

impl Aggregation {
    /// Returns all states, and begins anew.
    ///
    /// # Errors
    /// Returns an error if they do not fit the schema.
    pub(crate) fn take(&mut self, program: &ExprProgram) -> Result<Vec<RecordBatch>, TaskError> {
        let groups = self.count();
        let mut batches = Vec::new();
        let mut from = 0;
        while from < groups {
            let to = self.cut(from, groups);
            batches.push(self.batch(from..to)?);
            from = to;
        }
        self.reset(program);
        Ok(batches)
    }

    /// Returns the place at which a batch that begins with group `from` ends.
    fn cut(&self, from: usize, groups: usize) -> usize {
        let to = groups.min(from + output::most_rows(&self.schema));
        let states = self.outputs.iter().filter_map(|of| self.extremes(of));
        let texts: Vec<&GroupExtremes> = states.filter(|states| states.are_texts()).collect();
        if texts.is_empty() && !self.groups.have_texts() {
            return to;
        }
        let mut bytes = 0;
        for group in from..to {
            bytes += self.groups.text_bytes(group);
            bytes += texts.iter().map(|of| of.text_bytes(group)).sum::<usize>();
            if bytes >= output::BATCH_BYTES {
                return group + 1;
            }
        }
        to
    }

    /// Returns the least or greatest values that are an aggregate's state.
    fn extremes(&self, output: &AggregateOutput) -> Option<&GroupExtremes> {
        let input = &self.sets[output.set].inputs[output.input?];
        match output.function {
            Function::Min => input.least.as_ref(),
            Function::Max => input.greatest.as_ref(),
            _ => None,
        }
    }

    fn batch(&self, groups: Range<usize>) -> Result<RecordBatch, TaskError> {
        let mut columns = match self.by.is_empty() {
            true => Vec::new(),
            false => self.groups.values(groups.clone())?,
        };
        for output in &self.outputs {
            self.state(output, groups.clone(), &mut columns)?;
        }
        output::batch(&self.schema, groups.len(), &columns)
    }

    /// Appends the columns of an aggregate's state to `columns`.
    fn state(
        &self,
        output: &AggregateOutput,
        groups: Range<usize>,
        columns: &mut Vec<Vector>,
    ) -> Result<(), TaskError> {
        let set = &self.sets[output.set];
        let input = output.input.map(|input| &set.inputs[input]);
        let rows = &set.rows[groups.clone()];
        let counts: Vec<i64> = match input {
            None => rows.to_vec(),
            Some(input) => {
                let both = rows.iter().zip(&input.nulls[groups.clone()]);
                both.map(|(rows, nulls)| rows - nulls).collect()
            }
        };
        let valid: Vec<u8> = counts.iter().map(|&count| u8::from(count > 0)).collect();
        let valid = valid.contains(&0).then_some(valid);
        let sums = |input: &AggregateInput| {
            input
                .sum
                .as_ref()
                .map(|sum: &GroupSums| sum.values(groups.clone()))
        };
        let sums = || {
            input
                .and_then(sums)
                .expect("it was made for this aggregate")
        };
        let values: VectorValues = match output.function {
            Function::Count => {
                columns.push(Vector::all_valid(VectorValues::I64(counts)));
                return Ok(());
            }
            Function::Sum => sums(),
            Function::Avg => {
                columns.push(Vector::new(VectorValues::I64(counts), valid.clone()));
                sums()
            }
            Function::Min | Function::Max => {
                let extremes = self.extremes(output);
                extremes
                    .expect("they were made for this aggregate")
                    .values(groups.clone())?
            }
        };
        columns.push(Vector::new(values, valid));
        Ok(())
    }
}
