//! The 22 queries of TPC-H give DuckDB's answers: over pages of several sizes and with columns apart and
//! together, in one partition and in several, with push-down and without.

use std::sync::Arc;

use pages::{Groups, PageSize};
use testkit::amount;

use crate::support::{answers, ask, session, tpch};

/// Runs all queries in several ways over the same tables.
async fn check(scale: f64, size: usize, groups: Groups, ways: &[(usize, bool)]) {
    let store = tpch::store(scale, PageSize::new(size).unwrap(), &groups);
    let mut wrong = Vec::new();
    for (partitions, push_down) in ways {
        let session = session(vec![Arc::clone(&store) as _], *partitions, *push_down);
        for query in 1..=22 {
            let compared = match ask(&session, &answers::query(query)).await {
                Ok(rows) => answers::answer(query, scale).compare(&rows),
                Err(error) => Err(error),
            };
            if let Err(what) = compared {
                wrong.push(format!(
                    "Q{query}, {partitions} partitions, push-down {push_down}: {what}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_apart_in_large_pages() {
    check(
        amount(0.01, 0.1),
        128 << 10,
        Groups::OneEach,
        &[(2, true), (1, true), (2, false)],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_together_in_small_pages() {
    let scale = amount(0.01, 0.1);
    check(scale, 4 << 10, Groups::Together, &[(3, true)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_apart_in_pages_of_16_kib() {
    check(0.1, 16 << 10, Groups::OneEach, &[(2, true)]).await;
}
