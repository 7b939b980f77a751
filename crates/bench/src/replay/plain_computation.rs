//! The same query over rows as they are generated, with hash tables: no pages, no index.

use std::collections::{HashMap, HashSet};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int32Type, Int64Type};
use tpch::TpchTable;

use super::shipping_priority::{DATE, OrderRevenues, SEGMENT};

/// Threads that generate rows.
const THREADS: usize = 2;

fn keys<'b>(batch: &'b RecordBatch, name: &str) -> &'b [i64] {
    let column = batch.column_by_name(name).expect("a column of the table");
    column.as_primitive::<Int64Type>().values()
}

fn dates<'b>(batch: &'b RecordBatch, name: &str) -> &'b [i32] {
    let column = batch.column_by_name(name).expect("a column of the table");
    column.as_primitive::<Date32Type>().values()
}

fn money<'b>(batch: &'b RecordBatch, name: &str) -> &'b [i128] {
    let column = batch.column_by_name(name).expect("a column of the table");
    column.as_primitive::<Decimal128Type>().values()
}

/// Returns the answer at a scale factor.
pub(super) fn answer(factor: f64) -> OrderRevenues {
    let mut customers = HashSet::new();
    for batch in TpchTable::Customer.batches(factor, THREADS) {
        let segments = batch.column_by_name("c_mktsegment");
        let segments = segments.expect("a column of the table").as_string::<i32>();
        for (&key, segment) in keys(&batch, "c_custkey").iter().zip(segments) {
            if segment == Some(SEGMENT) {
                customers.insert(key);
            }
        }
    }
    let mut orders = HashMap::new();
    for batch in TpchTable::Orders.batches(factor, THREADS) {
        let priorities = batch.column_by_name("o_shippriority");
        let priorities = priorities.expect("a column of the table");
        let priorities = priorities.as_primitive::<Int32Type>().values();
        let owners = keys(&batch, "o_custkey").iter();
        let order = keys(&batch, "o_orderkey").iter();
        let days = dates(&batch, "o_orderdate").iter();
        for (((owner, &order), &day), &priority) in owners.zip(order).zip(days).zip(priorities) {
            if customers.contains(owner) && i64::from(day) < DATE {
                orders.insert(order, (i64::from(day), i64::from(priority)));
            }
        }
    }
    let mut answer = OrderRevenues::new();
    for batch in TpchTable::Lineitem.batches(factor, THREADS) {
        let prices = money(&batch, "l_extendedprice").iter();
        let discounts = money(&batch, "l_discount").iter();
        let shipped = dates(&batch, "l_shipdate").iter();
        let all = keys(&batch, "l_orderkey").iter().zip(shipped);
        for ((order, &shipped), (price, discount)) in all.zip(prices.zip(discounts)) {
            let Some(&(day, priority)) = orders.get(order) else {
                continue;
            };
            if i64::from(shipped) > DATE {
                let revenue = (price * (100 - discount)) as i64;
                answer.entry(*order).or_insert((0, day, priority)).0 += revenue;
            }
        }
    }
    answer
}
