//! The 22 queries of TPC-H over a storage node give DuckDB's answers: over TCP and through shared
//! memory, with the operators here and there; and the loss of a node is reported.

use std::path::Path;
use std::sync::Arc;

use disk::RealDisk;
use fabric::tcp::Transport;
use kumiki_sql::{Session, StorageNode};
use pages::node::Node;
use pages::{Cache, LoadOptions, Mode, PageSize, Tables};
use testkit::amount;

use crate::support::node::{far, far_options, serve};
use crate::support::{answers, ask, plain, session, tpch};

const TABLES: [&str; 8] = [
    "customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier",
];

/// Returns a node that has the tables of TPC-H.
fn node(dir: &Path, scale: f64, size: usize) -> Node {
    let tables = Tables::open(Arc::new(RealDisk), &[dir.to_owned()]).unwrap();
    for name in TABLES {
        let batches: Vec<_> = tpch::rows(name, scale).iter().map(plain).collect();
        let options = LoadOptions {
            page_size: PageSize::new(size).unwrap(),
            ..LoadOptions::default()
        };
        let schema = batches[0].schema();
        let mut load = tables.load(name, &schema, &options, Mode::Create).unwrap();
        for batch in &batches {
            load.push(batch).unwrap();
        }
        load.commit().unwrap();
    }
    drop(tables);
    serve(dir)
}

/// Returns a session with the node's tables.
fn reader(node: &Node, transport: Transport, cache: Option<u64>) -> Session {
    let mut options = far_options(node);
    options.session.transport = transport;
    options.cache = cache.map(|bytes| Arc::new(Cache::new(bytes)));
    session(vec![Arc::new(StorageNode::new(options))], 2, true)
}

async fn check(session: &Session, scale: f64, queries: &[usize], what: &str) {
    let mut wrong = Vec::new();
    for &query in queries {
        let compared = match ask(session, &answers::query(query)).await {
            Ok(rows) => answers::answer(query, scale).compare(&rows),
            Err(error) => Err(error),
        };
        if let Err(error) = compared {
            wrong.push(format!("Q{query}, {what}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_the_same_wherever_operators_run() {
    let dir = tempfile::tempdir().unwrap();
    let scale = amount(0.01, 0.1);
    let node = node(dir.path(), scale, 64 << 10);
    let ways = [
        (Transport::Tcp, "remote-local", None),
        (Transport::Shm, "remote-local", Some(8 << 20)),
        (Transport::Tcp, "remote-remote", None),
        (Transport::Shm, "auto", Some(64 << 20)),
    ];
    // Each query in one way, or in all.
    let mut queries: Vec<usize> = (1..=22).collect();
    fastrand::shuffle(&mut queries);
    let parts: Vec<&[usize]> = queries.chunks(queries.len().div_ceil(ways.len())).collect();
    for (way, (transport, placement, cache)) in ways.into_iter().enumerate() {
        let session = reader(&node, transport, cache);
        let set = format!("set kumiki.placement = '{placement}'");
        ask(&session, &set).await.unwrap();
        let what = format!("{transport:?}, {placement}");
        check(&session, scale, amount(parts[way], &queries), &what).await;
        let plan = ask(
            &session,
            "explain select count(*) from orders where o_orderkey < 9",
        )
        .await;
        let plan = format!("{:?}", plan.unwrap());
        assert!(placement == "auto" || plan.contains(placement), "{plan}");
        assert!(plan.contains(&node.address().to_string()), "{plan}");
    }
    // A placement that does not exist is reported.
    let session = reader(&node, Transport::Tcp, None);
    ask(&session, "set kumiki.placement = 'local'")
        .await
        .unwrap();
    let error = ask(&session, "select sum(o_custkey) from orders").await;
    let error = error.expect_err("no pages are here");
    assert!(error.contains("placement"), "{error}");
    node.stop().unwrap();
    let error = ask(&session, "select sum(o_custkey) from orders").await;
    assert!(error.is_err(), "the node is gone");
}

/// Returns the metrics of a scan by their names, as `EXPLAIN ANALYZE` writes them.
async fn figures(session: &Session, sql: &str) -> [u64; 3] {
    let rows = ask(session, &format!("explain analyze {sql}")).await;
    let text = rows.unwrap()[0][1].clone().unwrap();
    ["pages_read=", "pages_cached=", "pages_skipped="].map(|name| {
        let (_, behind) = text.split_once(name).expect(&text);
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_time_all_pages_are_from_the_cache_and_costs_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), 0.1, 16 << 10);
    let table = far(&node).open("lineitem").unwrap();
    let pages_of = |column: &str| {
        let (group, _) = table.group_of(table.schema.index_of(column).unwrap());
        let pages = table.segments.iter().map(|s| s.groups[group].len() as u64);
        pages.sum::<u64>()
    };
    let session = reader(&node, Transport::Tcp, Some(256 << 20));
    let sql = "select sum(l_extendedprice * l_discount) from lineitem";
    let explain = format!("explain {sql}");
    let plan = |rows: Result<crate::support::Rows, String>| format!("{:?}", rows.unwrap());
    let first = plan(ask(&session, &explain).await);
    assert!(
        first.contains("measured: nothing; supposed: work here, work there, pages there, link"),
        "{first}"
    );
    ask(&session, "set kumiki.placement = 'remote-local'")
        .await
        .unwrap();
    let all = pages_of("l_extendedprice") + pages_of("l_discount");
    assert_eq!(figures(&session, sql).await, [all, 0, 0]);
    assert_eq!(figures(&session, sql).await, [0, all, 0]);
    // Pages that another query has read are in the cache for this one.
    let three = "select sum(l_discount), sum(l_quantity) from lineitem";
    let (known, new) = (pages_of("l_discount"), pages_of("l_quantity"));
    assert_eq!(figures(&session, three).await, [new, known, 0]);
    let few = figures(
        &session,
        "select l_partkey from lineitem where l_orderkey < 10",
    )
    .await;
    let most = pages_of("l_partkey") + pages_of("l_orderkey");
    assert!(few[0] >= 2 && few[2] > 0, "{few:?}");
    assert_eq!(few.iter().sum::<u64>(), most);
    // Now the costs of work here and of the link are known, and the contents of the cache.
    let warm = plan(ask(&session, &explain).await);
    assert!(
        warm.contains("measured: work here, link; supposed: work there, pages there"),
        "{warm}"
    );
    assert!(
        warm.contains(&format!("{all} pages in the cache, 0 pages read there")),
        "{warm}"
    );
    // And after work there the node reports its costs.
    ask(&session, "set kumiki.placement = 'remote-remote'")
        .await
        .unwrap();
    ask(&session, sql).await.unwrap();
    // A node's report is used for a while.
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    let known = plan(ask(&session, &explain).await);
    assert!(
        known.contains("measured: work here, work there, pages there, link; supposed: nothing"),
        "{known}"
    );
}
