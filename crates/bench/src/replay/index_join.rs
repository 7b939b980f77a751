//! TPC-H's third query by index-nested-loop joins.

use super::shipping_priority::{DATE, OrderRevenues};
use super::stored_tables::{StoredTable, StoredTables};
use crate::error::RunError;

/// Executes the query, and records the pages that it requests.
pub(super) fn execute(tables: &mut StoredTables) -> Result<OrderRevenues, RunError> {
    let StoredTables {
        customer,
        index,
        orders,
        lineitem,
        accesses,
        ..
    } = tables;
    let mut answer = OrderRevenues::new();
    for page in 0..customer.pages() {
        let rows = customer.page(page, accesses)?;
        for row in 0..rows.len() {
            let [customer, is_of_segment] = rows.row(row);
            if is_of_segment == 0 {
                continue;
            }
            for order in orders_of(customer, index, accesses)? {
                let [order, date, priority] = orders.row(order, accesses)?;
                if date >= DATE {
                    continue;
                }
                if let Some(revenue) = revenue(order, lineitem, accesses)? {
                    answer.insert(order, (revenue, date, priority));
                }
            }
        }
    }
    Ok(answer)
}

/// Returns the rows of a customer's orders.
fn orders_of(
    customer: i64,
    index: &mut StoredTable,
    accesses: &mut Vec<u32>,
) -> Result<Vec<u64>, RunError> {
    let mut found = Vec::new();
    for page in index.pages_with(customer) {
        let rows = index.page(page, accesses)?;
        for row in 0..rows.len() {
            let [key, order] = rows.row(row);
            if key == customer {
                found.push(order as u64);
            }
        }
    }
    Ok(found)
}

/// Returns the sum over an order's lineitems that were shipped late enough, if there are any.
fn revenue(
    order: i64,
    lineitem: &mut StoredTable,
    accesses: &mut Vec<u32>,
) -> Result<Option<i64>, RunError> {
    let mut sum = None;
    for page in lineitem.pages_with(order) {
        let rows = lineitem.page(page, accesses)?;
        for row in 0..rows.len() {
            let [key, price, discount, shipped] = rows.row(row);
            if key == order && shipped > DATE {
                *sum.get_or_insert(0) += price * (100 - discount);
            }
        }
    }
    Ok(sum)
}
