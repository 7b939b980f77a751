//! TPC-H's third query, the shipping priority of orders: its parameters and its answer.

use std::collections::BTreeMap;

/// The segment of customers: the one of the validation run.
pub(super) const SEGMENT: &str = "BUILDING";
/// The date, in days since 1970: 1995-03-15.
pub(super) const DATE: i64 = 9204;

/// The answer: revenue in units of 0.0001, date and priority by order. Not cut off at ten rows, so
/// that all of it is compared.
pub(super) type OrderRevenues = BTreeMap<i64, (i64, i64, i64)>;
