//! The result of a query, and the expected one: computed once from the generated rows, in a plain
//! loop.
//!
//! An answer is numbers by group:
//!
//! | query | groups | numbers |
//! |---|---|---|
//! | condition alone | one | records; the sum of their order keys |
//! | Q1 | return flag and line status | rows; the sums of quantities, discounted prices and charges |
//! | Q6 | one | the revenue |
//! | Q15 | suppliers | the revenue |
//!
//! Decimals are unscaled.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int64Type};
use tpch::TpchTable;

use super::tpch_query::{self, QueryVariant, TpchQuery};
use crate::error::RunError;

/// Numbers by group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueryAnswer(BTreeMap<Vec<u8>, Vec<i128>>);

impl QueryAnswer {
    fn add(&mut self, key: &[u8], numbers: &[i128]) {
        match self.0.get_mut(key) {
            Some(sums) => sums.iter_mut().zip(numbers).for_each(|(sum, n)| *sum += n),
            None => drop(self.0.insert(key.to_vec(), numbers.to_vec())),
        }
    }

    /// Adds another part of the same answer.
    pub(super) fn merge(&mut self, other: &QueryAnswer) {
        for (key, numbers) in &other.0 {
            self.add(key, numbers);
        }
    }

    /// Adds the contents of a fragment's batch.
    pub(super) fn add_batch(
        &mut self,
        query: TpchQuery,
        variant: QueryVariant,
        batch: &RecordBatch,
    ) {
        let decimal = |column: usize, row: usize| {
            batch
                .column(column)
                .as_primitive::<Decimal128Type>()
                .value(row)
        };
        let int = |column: usize, row: usize| {
            let column = batch.column(column).as_primitive::<Int64Type>();
            column.value(row)
        };
        if variant == QueryVariant::Where {
            let records = batch.column(0).as_binary::<i32>().iter().flatten();
            let key = |record: &[u8]| {
                record
                    .first_chunk()
                    .map_or(0, |key| u32::from_le_bytes(*key))
            };
            let keys: i128 = records.map(|record| i128::from(key(record))).sum();
            return self.add(b"", &[batch.num_rows() as i128, keys]);
        }
        for row in 0..batch.num_rows() {
            match query {
                TpchQuery::Q1 => {
                    let text = |column| batch.column(column).as_string::<i32>().value(row);
                    let key = [text(0), text(1)].concat();
                    let sums = [2, 4, 5].map(|column| decimal(column, row));
                    let count = i128::from(int(12, row));
                    self.add(key.as_bytes(), &[count, sums[0], sums[1], sums[2]]);
                }
                TpchQuery::Q6 => self.add(b"", &[decimal(0, row)]),
                TpchQuery::Q15 => self.add(&int(0, row).to_le_bytes(), &[decimal(1, row)]),
            }
        }
    }

    /// Returns the number of records that the condition alone has selected.
    pub(super) fn records(&self) -> i128 {
        self.0.values().filter_map(|numbers| numbers.first()).sum()
    }

    /// Makes the answer wrong.
    pub(super) fn spoil(&mut self) {
        self.add(b"", &[1]);
    }

    /// Checks that it is the expected one.
    ///
    /// # Errors
    /// The text says where it differs.
    pub(super) fn same(&self, expected: &QueryAnswer) -> Result<(), RunError> {
        let keys = expected.0.keys().chain(self.0.keys());
        for key in keys {
            let (found, expected) = (self.0.get(key), expected.0.get(key));
            if found != expected {
                let key = key.escape_ascii();
                return Err(RunError::Failed(format!(
                    "group '{key}': {found:?} instead of {expected:?}"
                )));
            }
        }
        Ok(())
    }
}

/// The expected answers.
#[derive(Clone, Debug, Default)]
pub(super) struct ReferenceAnswers {
    /// Rows of the table.
    pub(super) rows: u64,
    matching: [QueryAnswer; 3],
    full: [QueryAnswer; 3],
}

impl ReferenceAnswers {
    /// Computes them for `lineitem` at a scale factor.
    pub(super) fn of_scale(scale_factor: f64, threads: usize) -> ReferenceAnswers {
        let mut reference = ReferenceAnswers::default();
        for batch in TpchTable::Lineitem.batches(scale_factor, threads) {
            reference.add(&batch);
        }
        reference
    }

    /// Returns the answer of a query.
    pub(super) fn of(&self, query: TpchQuery, variant: QueryVariant) -> QueryAnswer {
        let answers = match variant {
            QueryVariant::Where => &self.matching,
            QueryVariant::Full => &self.full,
        };
        answers[query as usize].clone()
    }

    fn add(&mut self, batch: &RecordBatch) {
        let decimals = |column: usize| batch.column(column).as_primitive::<Decimal128Type>();
        let ints = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        let texts = |column: usize| batch.column(column).as_string::<i32>();
        let shipped = batch
            .column(tpch_query::SHIPDATE)
            .as_primitive::<Date32Type>();
        let (orders, suppliers) = (ints(tpch_query::ORDERKEY), ints(tpch_query::SUPPKEY));
        let (quantities, prices) = (
            decimals(tpch_query::QUANTITY),
            decimals(tpch_query::EXTENDEDPRICE),
        );
        let (discounts, taxes) = (decimals(tpch_query::DISCOUNT), decimals(tpch_query::TAX));
        let (flags, states) = (texts(tpch_query::RETURNFLAG), texts(tpch_query::LINESTATUS));
        let within = |day: i32, [from, to]: [i32; 2]| from <= day && day < to;
        self.rows += batch.num_rows() as u64;
        for row in 0..batch.num_rows() {
            let day = shipped.value(row);
            let record = [1, i128::from(orders.value(row))];
            let (quantity, price) = (quantities.value(row), prices.value(row));
            let discount = discounts.value(row);
            let discounted = price * (100 - discount);
            if day <= tpch_query::Q1_LAST {
                let key = [flags.value(row), states.value(row)].concat();
                let charge = discounted * (100 + taxes.value(row));
                self.matching[0].add(b"", &record);
                self.full[0].add(key.as_bytes(), &[1, quantity, discounted, charge]);
            }
            let [least, most] = tpch_query::Q6_DISCOUNT;
            let cheap = least <= discount && discount <= most && quantity < tpch_query::Q6_QUANTITY;
            if within(day, tpch_query::Q6_TIME) && cheap {
                self.matching[1].add(b"", &record);
                self.full[1].add(b"", &[price * discount]);
            }
            if within(day, tpch_query::Q15_TIME) {
                self.matching[2].add(b"", &record);
                let supplier = suppliers.value(row).to_le_bytes();
                self.full[2].add(&supplier, &[discounted]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_answer_is_told_from_a_right_one() {
        let reference = ReferenceAnswers::of_scale(0.001, 1);
        assert!(reference.rows > 5_000);
        for query in TpchQuery::ALL {
            for variant in [QueryVariant::Where, QueryVariant::Full] {
                let right = reference.of(query, variant);
                assert_eq!(right.same(&right), Ok(()));
                let mut wrong = right.clone();
                wrong.spoil();
                assert!(wrong.same(&right).is_err() && right.same(&wrong).is_err());
                let mut twice = right.clone();
                twice.merge(&right);
                assert!(twice.same(&right).is_err());
            }
        }
        let shares = TpchQuery::ALL.map(|query| {
            let matching = reference.of(query, QueryVariant::Where).records();
            matching as f64 / reference.rows as f64
        });
        assert!((0.95..0.99).contains(&shares[0]), "{shares:?}");
        assert!((0.01..0.03).contains(&shares[1]), "{shares:?}");
        assert!((0.02..0.06).contains(&shares[2]), "{shares:?}");
    }
}
