//! The 22 queries of TPC-H over a storage node give DuckDB's answers: over TCP and through shared
//! memory, with the operators here and there; and a node that is gone is told.

mod support;

use std::path::Path;
use std::sync::Arc;

use disk::RealDisk;
use disk::reads::{PageCache, Way};
use fabric::Secret;
use fabric::shm::Shm;
use fabric::tcp::Transport;
use kumiki_sql::{Session, StorageNode};
use operators::Operators;
use pages::node::{Limits, Node, NodeOptions, ShownFiles, Stock};
use pages::remote::{FarOptions, SessionOptions};
use pages::{Cache, LoadOptions, Local, LocalOptions, Mode, PageSize, Tables};
use support::{answers, ask, plain, session, tpch};

const TABLES: [&str; 8] = [
    "customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier",
];

fn secret() -> Secret {
    Secret::new("what nodes and readers know")
}

/// A node that has the tables of TPC-H.
fn node(dir: &Path, size: usize) -> Node {
    let tables = Tables::open(Arc::new(RealDisk), &[dir.to_owned()]).unwrap();
    for name in TABLES {
        let batches: Vec<_> = tpch::rows(name, 0.1).iter().map(plain).collect();
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
    let worker = Operators::new(Arc::new(Local::new(
        tables.clone(),
        LocalOptions::default(),
    )));
    let stock = Stock::new(tables, ShownFiles::default(), PageCache::Past);
    let options = NodeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        secret: secret(),
        threads: 1,
        task_threads: 2,
        way: Way::Ring,
        depth: 128,
        transport: Transport::Auto,
        shm: Shm::default(),
        verbs: None,
        limits: Limits::default(),
    };
    Node::start(options, Arc::new(stock), Arc::new(worker)).unwrap()
}

/// A session with the node's tables.
fn reader(node: &Node, transport: Transport, cache: Option<u64>) -> Session {
    let mut options = SessionOptions::new(node.address(), secret());
    options.transport = transport;
    let mut options = FarOptions::new(options);
    options.cache = cache.map(|bytes| Arc::new(Cache::new(bytes)));
    session(vec![Arc::new(StorageNode::new(options))], 2, true)
}

async fn check(session: &Session, what: &str) {
    let mut wrong = Vec::new();
    for query in 1..=22 {
        let compared = match ask(session, &answers::query(query)).await {
            Ok(rows) => answers::answer(query).compare(&rows),
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
    let node = node(dir.path(), 64 << 10);
    for (transport, placement, cache) in [
        (Transport::Tcp, "remote-local", None),
        (Transport::Shm, "remote-local", Some(8 << 20)),
        (Transport::Tcp, "remote-remote", None),
        (Transport::Shm, "auto", Some(64 << 20)),
    ] {
        let session = reader(&node, transport, cache);
        let set = format!("set kumiki.placement = '{placement}'");
        ask(&session, &set).await.unwrap();
        let what = format!("{transport:?}, {placement}");
        check(&session, &what).await;
        let plan = ask(
            &session,
            "explain select count(*) from orders where o_orderkey < 9",
        )
        .await;
        let plan = format!("{:?}", plan.unwrap());
        assert!(placement == "auto" || plan.contains(placement), "{plan}");
        assert!(plan.contains(&node.address().to_string()), "{plan}");
    }
    // What is not there is told.
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
