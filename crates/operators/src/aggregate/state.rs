//! The states of aggregates of all groups.
//!
//! Sums of decimals wrap in 128 bits and those of integers in 64, as DataFusion's do. Where the bounds
//! of values prove that a vector's sum fits into 64 bits, it is added up in 64 bits.

use std::cell::Cell;
use std::ops::Range;

use super::group_assignment::GroupAssignment;
use crate::compute::compare::total;
use crate::compute::value_interval::ValueInterval;
use crate::types::Class;
use crate::vector::{IndexedTexts, Vector, VectorValues};
use pages::task::TaskError;

/// Sums of groups.
#[derive(Debug)]
pub(crate) enum GroupSums {
    /// Of 64-bit integers.
    Wrapping(Vec<i64>),
    /// Of decimals.
    Decimal {
        /// The part that was added since `small` was last added to `large`.
        small: Vec<i64>,
        /// The greatest absolute value that an element of `small` may have.
        reach: u128,
        /// The rest.
        large: Vec<i128>,
    },
    /// Of floating-point numbers.
    Float(Vec<f64>),
}

impl GroupSums {
    /// Makes sums without groups.
    pub(crate) fn new(class: Class, wraps: bool) -> GroupSums {
        match class {
            Class::Float => GroupSums::Float(Vec::new()),
            _ if wraps => GroupSums::Wrapping(Vec::new()),
            _ => GroupSums::Decimal {
                small: Vec::new(),
                reach: 0,
                large: Vec::new(),
            },
        }
    }

    /// Makes room for so many groups.
    pub(crate) fn resize(&mut self, groups: usize) {
        match self {
            GroupSums::Wrapping(sums) => sums.resize(groups, 0),
            GroupSums::Decimal { small, large, .. } => {
                small.resize(groups, 0);
                large.resize(groups, 0);
            }
            GroupSums::Float(sums) => sums.resize(groups, 0.0),
        }
    }

    /// Adds values, of which none is constant.
    pub(crate) fn add(
        &mut self,
        vector: &Vector,
        interval: &ValueInterval,
        assignment: &GroupAssignment,
    ) {
        let valid = vector.valid.as_deref();
        match (self, &vector.values) {
            (GroupSums::Wrapping(sums), VectorValues::I64(values)) => {
                wrapping(sums, &or_zero(values, valid), assignment);
            }
            (GroupSums::Wrapping(sums), values) => {
                let values: Vec<i64> = values.wide().iter().map(|&value| value as i64).collect();
                wrapping(sums, &or_zero(&values, valid), assignment);
            }
            (GroupSums::Float(sums), VectorValues::F64(values)) => {
                let values = or_zero(values, valid);
                assignment.fold(&values, sums, |sum| *sum, |sum, value| sum + value, put);
            }
            (sum, VectorValues::I64(values)) => {
                sum.add_narrow(&or_zero(values, valid), interval, assignment);
            }
            (GroupSums::Decimal { large, .. }, values) => {
                let values = or_zero(&values.wide(), valid).into_owned();
                assignment.fold(
                    &values,
                    large,
                    |l| *l,
                    |sum, value| sum.wrapping_add(*value),
                    put,
                );
            }
            (sum, values) => unreachable!("{values:?} cannot be added to {sum:?}"),
        }
    }

    fn add_narrow(
        &mut self,
        values: &[i64],
        interval: &ValueInterval,
        assignment: &GroupAssignment,
    ) {
        let GroupSums::Decimal {
            small,
            reach,
            large,
        } = self
        else {
            unreachable!("others were added elsewhere");
        };
        let most = interval.magnitude().saturating_mul(values.len() as u128);
        let limit = i64::MAX as u128;
        if most > limit {
            let step = |sum: i128, &value: &i64| sum.wrapping_add(i128::from(value));
            assignment.fold(values, large, |large| *large, step, put);
            return;
        }
        if let GroupAssignment::Many(_) = assignment {
            if *reach + most > limit {
                for (small, large) in small.iter_mut().zip(large.iter_mut()) {
                    *large = large.wrapping_add(i128::from(std::mem::take(small)));
                }
                *reach = 0;
            }
            *reach += most;
            wrapping(small, values, assignment);
        } else {
            let step = |sum: i64, &value: &i64| sum.wrapping_add(value);
            let end = |large: &mut i128, sum: i64| *large = large.wrapping_add(sum.into());
            assignment.fold(values, large, |_| 0, step, end);
        }
    }

    /// Returns the number of bytes of a group's state.
    pub(crate) fn state_bytes(&self) -> usize {
        match self {
            GroupSums::Wrapping(_) | GroupSums::Float(_) => size_of::<i64>(),
            GroupSums::Decimal { .. } => size_of::<i64>() + size_of::<i128>(),
        }
    }

    /// Returns the sums of some groups.
    pub(crate) fn values(&self, groups: Range<usize>) -> VectorValues {
        match self {
            GroupSums::Wrapping(sums) => VectorValues::I64(sums[groups].to_vec()),
            GroupSums::Decimal { small, large, .. } => {
                let sum = |(small, large): (&i64, &i128)| large.wrapping_add(i128::from(*small));
                let both = small[groups.clone()].iter().zip(&large[groups]);
                VectorValues::I128(both.map(sum).collect())
            }
            GroupSums::Float(sums) => VectorValues::F64(sums[groups].to_vec()),
        }
    }
}

fn wrapping(sums: &mut [i64], values: &[i64], assignment: &GroupAssignment) {
    assignment.fold(
        values,
        sums,
        |sum| *sum,
        |sum, value| sum.wrapping_add(*value),
        put,
    );
}

fn put<T>(state: &mut T, result: T) {
    *state = result;
}

/// Returns the values, with zeros where they are null.
fn or_zero<'a, T: Copy + Default>(
    values: &'a [T],
    valid: Option<&[u8]>,
) -> std::borrow::Cow<'a, [T]> {
    match valid {
        None => values.into(),
        Some(valid) => {
            let one = |(&value, &valid)| if valid == 1 { value } else { T::default() };
            values.iter().zip(valid).map(one).collect()
        }
    }
}

/// The least or the greatest values of groups.
#[derive(Debug)]
pub(crate) struct GroupExtremes {
    greatest: bool,
    best: Best,
    /// Bytes of the texts among them.
    text_bytes: usize,
}

/// The best values so far. Where there is none yet, numbers are worse than all others.
#[derive(Debug)]
enum Best {
    Int(Vec<i128>),
    /// As integers in the floats' total order.
    Float(Vec<i64>),
    Bool(Vec<u8>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl GroupExtremes {
    /// Makes extremes without groups.
    pub(crate) fn new(class: Class, greatest: bool) -> GroupExtremes {
        let best = match class {
            Class::Int => Best::Int(Vec::new()),
            Class::Float => Best::Float(Vec::new()),
            Class::Bool => Best::Bool(Vec::new()),
            Class::Bytes => Best::Bytes(Vec::new()),
        };
        GroupExtremes {
            greatest,
            best,
            text_bytes: 0,
        }
    }

    /// Makes room for so many groups.
    pub(crate) fn resize(&mut self, groups: usize) {
        let greatest = self.greatest;
        match &mut self.best {
            Best::Int(best) => best.resize(groups, if greatest { i128::MIN } else { i128::MAX }),
            Best::Float(best) => best.resize(groups, if greatest { i64::MIN } else { i64::MAX }),
            Best::Bool(best) => best.resize(groups, u8::from(!greatest)),
            Best::Bytes(best) => best.resize(groups, None),
        }
    }

    /// Considers values, of which none is constant.
    pub(crate) fn add(&mut self, vector: &Vector, assignment: &GroupAssignment) {
        let greatest = self.greatest;
        let valid = vector.valid.as_deref();
        match (&mut self.best, &vector.values) {
            // The worst value of 64 bits is better than many of 128 bits, so it may not stand for a
            // null.
            (Best::Int(best), VectorValues::I64(values)) if valid.is_none() => {
                let worst = if greatest { i64::MIN } else { i64::MAX };
                let step = |best, &value: &i64| better(best, value, greatest);
                let end =
                    |best: &mut i128, found: i64| *best = better(*best, found.into(), greatest);
                assignment.fold(values, best, |_| worst, step, end);
            }
            (Best::Int(best), values) => {
                let worst = if greatest { i128::MIN } else { i128::MAX };
                let values = or_worst(values.wide().iter().copied(), valid, worst);
                fold(best, &values, greatest, assignment);
            }
            (Best::Float(best), VectorValues::F64(values)) => {
                let worst = if greatest { i64::MIN } else { i64::MAX };
                let values = or_worst(values.iter().map(|&value| total(value)), valid, worst);
                fold(best, &values, greatest, assignment);
            }
            (Best::Bool(best), VectorValues::Bool(values)) => {
                let values = or_worst(values.iter().copied(), valid, u8::from(!greatest));
                fold(best, &values, greatest, assignment);
            }
            (Best::Bytes(best), VectorValues::Bytes(texts)) => {
                let rows: Vec<usize> = (0..texts.index.len()).collect();
                let improves = |text: &[u8], best: &[u8]| {
                    if greatest { text > best } else { text < best }
                };
                let step = |best: Option<usize>, &row: &usize| {
                    let better = |&best: &usize| !improves(texts.get(row), texts.get(best));
                    if vector.is_valid(row) {
                        best.filter(better).or(Some(row))
                    } else {
                        best
                    }
                };
                let bytes = Cell::new(self.text_bytes);
                let end = |best: &mut Option<Vec<u8>>, row: Option<usize>| {
                    if let Some(text) = row.map(|row| texts.get(row))
                        && best.as_deref().is_none_or(|best| improves(text, best))
                    {
                        let dropped = best.as_ref().map_or(0, Vec::len);
                        bytes.set(bytes.get() - dropped + text.len());
                        *best = Some(text.to_vec());
                    }
                };
                assignment.fold(&rows, best, |_| None, step, end);
                self.text_bytes = bytes.get();
            }
            (best, values) => unreachable!("{values:?} cannot be compared with {best:?}"),
        }
    }

    /// Returns the number of bytes of a group's state, without texts.
    pub(crate) fn state_bytes(&self) -> usize {
        match self.best {
            Best::Int(_) => size_of::<i128>(),
            Best::Float(_) => size_of::<i64>(),
            Best::Bool(_) => size_of::<u8>(),
            Best::Bytes(_) => size_of::<Option<Vec<u8>>>(),
        }
    }

    /// Returns the number of bytes of all groups' texts.
    pub(crate) fn all_text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Returns `true` if these are texts.
    pub(crate) fn are_texts(&self) -> bool {
        matches!(self.best, Best::Bytes(_))
    }

    /// Returns the number of bytes of a group's text.
    pub(crate) fn text_bytes(&self, group: usize) -> usize {
        match &self.best {
            Best::Bytes(best) => best[group].as_ref().map_or(0, Vec::len),
            _ => 0,
        }
    }

    /// Returns the values of some groups.
    ///
    /// # Errors
    /// Returns an error if their texts have two gigabytes.
    pub(crate) fn values(&self, groups: Range<usize>) -> Result<VectorValues, TaskError> {
        Ok(match &self.best {
            Best::Int(best) => VectorValues::I128(best[groups].to_vec()),
            Best::Float(best) => {
                // The function to the total order is its own inverse.
                let float = |&best: &i64| f64::from_bits(total(f64::from_bits(best as u64)) as u64);
                VectorValues::F64(best[groups].iter().map(float).collect())
            }
            Best::Bool(best) => VectorValues::Bool(best[groups].to_vec()),
            Best::Bytes(best) => {
                let texts = best[groups].iter().map(|b| b.as_deref().unwrap_or(&[]));
                VectorValues::Bytes(IndexedTexts::new(texts)?)
            }
        })
    }
}

fn better<T: Ord>(a: T, b: T, greatest: bool) -> T {
    if greatest { a.max(b) } else { a.min(b) }
}

fn fold<T: Ord + Copy>(best: &mut [T], values: &[T], greatest: bool, assignment: &GroupAssignment) {
    let step = |best, &value: &T| better(best, value, greatest);
    assignment.fold(values, best, |best| *best, step, put);
}

fn or_worst<T: Copy>(values: impl Iterator<Item = T>, valid: Option<&[u8]>, worst: T) -> Vec<T> {
    match valid {
        None => values.collect(),
        Some(valid) => values
            .zip(valid)
            .map(|(v, &valid)| if valid == 1 { v } else { worst })
            .collect(),
    }
}
