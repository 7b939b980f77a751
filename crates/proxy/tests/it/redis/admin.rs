//! Figures and health of a proxy, as monitoring sees them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::partition::OwnedReply;
use base::transaction::{Abort, Transaction};
use kumiki_proxy::Config;
use kumiki_proxy::locks::{Execute, LockStorage, Options};

use crate::redis::locks::in_memory;
use crate::redis::support::{PATIENCE, Proxy, connect, redis_server};
use testkit::Client;
use testkit::exposition::{Families, parse};
use testkit::http::get;
use testkit::process::Redis;

fn metrics(address: SocketAddr) -> Families {
    let answer = get(address, "/metrics");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let kind = answer.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    parse(&answer.body).unwrap_or_else(|what| panic!("{what}\n{}", answer.body))
}

/// Returns the sum of a family's samples, or of those with this label.
fn sum(families: &Families, family: &str, label: &str) -> f64 {
    let family = &families[family];
    let samples = family.samples.iter();
    samples
        .filter(|(name, _)| name.contains(label))
        .map(|(_, value)| value)
        .sum()
}

fn with_admin(nodes: &[&Redis], threads: usize, aggregation: usize) -> (Proxy, SocketAddr) {
    let nodes: Vec<SocketAddr> = nodes.iter().map(|node| node.address).collect();
    with_admin_and(&nodes, |config| {
        config.network_threads = threads;
        config.aggregation_threads = aggregation;
        config.limits.clients = 3;
    })
}

fn with_admin_and(nodes: &[SocketAddr], change: impl FnOnce(&mut Config)) -> (Proxy, SocketAddr) {
    let proxy = Proxy::start(
        |config| {
            config.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
            change(config);
        },
        nodes,
    );
    let admin = proxy.running().admin_address().expect("an endpoint");
    (proxy, admin)
}

/// Reads the figures until `seen`, because threads update them at intervals.
fn until(admin: SocketAddr, seen: impl Fn(&Families) -> bool) -> Families {
    let begin = Instant::now();
    loop {
        let families = metrics(admin);
        if seen(&families) {
            return families;
        }
        assert!(begin.elapsed() < PATIENCE, "{families:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn figures_tell_what_clients_and_nodes_do() {
    let Some(program) = redis_server() else {
        return;
    };
    for (threads, aggregation) in [(2, 0), (1, 1)] {
        let (a, b) = (Redis::start(&program, &[]), Redis::start(&program, &[]));
        let (proxy, admin) = with_admin(&[&a, &b], threads, aggregation);
        let mut client = connect(proxy.address);
        for number in 0..100 {
            assert_eq!(client.told(&format!("SET key{number} value")), "+OK");
        }
        let families = until(admin, |all| {
            sum(all, "kumiki_proxy_node_queries_total", "") >= 100.0
                && sum(all, "kumiki_proxy_node_under_way", "") == 0.0
        });
        let of = |family: &str| sum(&families, family, "");
        for (family, expected) in [
            ("kumiki_proxy_thread_queries_total", 100.0),
            ("kumiki_proxy_thread_replies_total", 100.0),
            ("kumiki_proxy_thread_failures_total", 0.0),
            ("kumiki_proxy_node_queries_total", 100.0),
            ("kumiki_proxy_node_waiting", 0.0),
            ("kumiki_proxy_clients", 1.0),
            ("kumiki_proxy_thread_clients", 1.0),
            ("kumiki_proxy_clients_accepted_total", 1.0),
            ("kumiki_proxy_clients_refused_total", 0.0),
            ("kumiki_proxy_clients_turned_out_total", 0.0),
            ("kumiki_proxy_node_slots", 16_384.0),
            ("kumiki_proxy_node_failures_total", 0.0),
        ] {
            assert_eq!(of(family), expected, "{family}");
        }
        let replies = "+OK\r\n".len() as f64 * 100.0;
        assert_eq!(of("kumiki_proxy_thread_sent_bytes_total"), replies);
        for node in [&a, &b] {
            let label = format!("node=\"{}\"", node.address);
            let of = |family: &str| sum(&families, family, &label);
            assert!(of("kumiki_proxy_node_queries_total") > 10.0, "{label}");
            assert!(of("kumiki_proxy_node_connects_total") >= 1.0, "{label}");
            let packets = of("kumiki_proxy_node_packets_total");
            let each = of("kumiki_proxy_node_queries_total") / packets;
            assert_eq!(of("kumiki_proxy_node_queries_per_packet"), each, "{label}");
            assert!(of("kumiki_proxy_node_sent_bytes_total") > 300.0, "{label}");
        }
        let counted = families["kumiki_proxy_query_seconds"].samples.iter();
        let counted = counted.filter(|(name, _)| name.contains("_count"));
        assert_eq!(counted.map(|(_, value)| value).sum::<f64>(), 100.0);
        if aggregation > 0 {
            assert!(of("kumiki_proxy_thread_wakeups_total") >= 1.0);
        }
    }
}

#[test]
fn figures_of_locks_are_those_of_info() {
    let Some(program) = redis_server() else {
        return;
    };
    let node = Redis::start(&program, &[]);
    let directory = tempfile::tempdir().expect("a directory");
    let (proxy, admin) = with_admin_and(&[node.address], |config| {
        in_memory(config, directory.path());
    });
    let mut client = connect(proxy.address);
    for (command, reply) in [
        ("LOCK.ACQUIRE a ann PX 50000", "[1 "),
        ("LOCK.ACQUIRE a bob PX 50000", "[0 ann "),
        ("LOCK.RENEW a ann PX 60000", "[1 "),
        ("LOCK.ACQUIRE b bob PX 60000", "[1 "),
        ("LOCK.RELEASE b ann", "0"),
        ("LOCK.RELEASE b bob", "1"),
        ("LOCK.INFO a", "[owner ann "),
        ("LOCK.ACQUIRE c ann PX 60001", "-LOCKLIMIT "),
    ] {
        let told = client.told(command);
        assert!(told.starts_with(reply), "{command}: {told}");
    }
    let mut gone = connect(proxy.address);
    gone.send(&["LOCK.ACQUIRE", "a", "bob", "PX", "60000", "WAIT", "60000"]);
    let of = |families: &Families, name: &str, label: &str| {
        sum(families, &format!("kumiki_proxy_locks_{name}"), label)
    };
    // Figures are read one after another, while one of them may still change.
    let families = until(admin, |all| {
        of(all, "waiting", "") == 1.0 && of(all, "requests_total", "") == 9.0
    });
    for (name, label, expected) in [
        ("info", "keeping=\"memory\"", 1.0),
        ("longest_lease_seconds", "", 60.0),
        ("held", "", 1.0),
        ("requests_total", "", 9.0),
        ("answers_total", "acquired", 2.0),
        ("answers_total", "renewed", 1.0),
        ("answers_total", "released", 1.0),
        ("answers_total", "refused", 2.0),
        ("answers_total", "failed", 1.0),
        ("cancelled_total", "", 0.0),
        ("expired_total", "", 0.0),
    ] {
        assert_eq!(of(&families, name, label), expected, "{name} {label}");
    }
    // A ledger was written before the first lock was granted.
    assert!(of(&families, "kept_seconds", "_count") >= 1.0);
    assert!(of(&families, "kept_seconds", "_sum") > 0.0);
    assert!(!families.contains_key("kumiki_proxy_locks_transactions_total"));
    let info = client.told("INFO locks");
    for (line, name, label) in [
        ("held", "held", ""),
        ("waiting", "waiting", ""),
        ("requests", "requests_total", ""),
        ("acquired", "answers_total", "acquired"),
        ("renewed", "answers_total", "renewed"),
        ("released", "answers_total", "released"),
        ("refused", "answers_total", "refused"),
        ("failed", "answers_total", "failed"),
        ("not_at_once", "deferred_total", ""),
    ] {
        let line = format!("lock_{line}:{}\r\n", of(&families, name, label));
        assert!(info.contains(&line), "{line}{info}");
    }
    drop(gone);
    until(admin, |all| of(all, "cancelled_total", "") == 1.0);
}

#[test]
fn clients_beyond_the_limit_are_counted() {
    let Some(program) = redis_server() else {
        return;
    };
    let node = Redis::start(&program, &[]);
    let (proxy, admin) = with_admin(&[&node], 1, 0);
    let mut clients: Vec<Client> = (0..3).map(|_| connect(proxy.address)).collect();
    for client in &mut clients {
        assert_eq!(client.told("PING"), "+PONG");
    }
    let told = connect(proxy.address).reply();
    assert_eq!(told.shown(), "-ERR max number of clients reached");
    let families = metrics(admin);
    assert_eq!(
        sum(&families, "kumiki_proxy_clients_refused_total", ""),
        1.0
    );
    assert_eq!(sum(&families, "kumiki_proxy_clients", ""), 3.0);
}

#[test]
fn health_follows_the_nodes() {
    let Some(program) = redis_server() else {
        return;
    };
    let (a, mut b) = (Redis::start(&program, &[]), Redis::start(&program, &[]));
    let (proxy, admin) = with_admin(&[&a, &b], 1, 0);
    // No client has asked for anything: there may be no connection, but there could be.
    assert_eq!(get(admin, "/health").body, "ok\n");
    let mut client = connect(proxy.address);
    assert_eq!(client.told("DBSIZE"), "0");
    assert_eq!(get(admin, "/health").status, 200);
    b.kill();
    let begin = Instant::now();
    let told = loop {
        let answer = get(admin, "/health/ready");
        if answer.status == 503 {
            break answer.body;
        }
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(
        told,
        format!("cannot be reached: {} (8192 slots)\n", b.address)
    );
    assert_eq!(get(admin, "/health/live").status, 200);
    // No client asks for its keys.
    b.restart();
    assert_eq!(get(admin, "/health").body, "ok\n");
}

/// A node that stops is noticed even if no client asks for its keys, and its figures are correct soon
/// after.
#[test]
fn a_node_that_falls_silent_is_not_told_to_be_connected() {
    let Some(program) = redis_server() else {
        return;
    };
    for (threads, aggregation) in [(2, 0), (1, 1)] {
        let node = Redis::start(&program, &[]);
        let proxy = Proxy::start(
            |config| {
                config.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
                config.network_threads = threads;
                config.aggregation_threads = aggregation;
                config.health = Duration::from_millis(300);
                config.timeout = Duration::from_millis(700);
            },
            &[node.address],
        );
        let admin = proxy.running().admin_address().expect("an endpoint");
        let connected = |all: &Families| sum(all, "kumiki_proxy_node_connections", "") > 0.0;
        let mut client = connect(proxy.address);
        assert_eq!(client.told("SET a 1"), "+OK");
        until(admin, connected);
        // It answers the proxy's requests that show if it lives, and so it stays connected.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            assert!(connected(&metrics(admin)));
            std::thread::sleep(Duration::from_millis(50));
        }
        node.signal(rustix::process::Signal::STOP);
        let begin = Instant::now();
        until(admin, |all| !connected(all));
        // The two limits, and twice the half second in which an idle thread checks its connections.
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(4), "{took:?}");
        node.signal(rustix::process::Signal::CONT);
        assert_eq!(client.told("GET a"), "1");
        until(admin, connected);
    }
}

#[test]
fn an_endpoint_that_strangers_reach_is_refused() {
    let nodes = kumiki_proxy::Nodes::Redis(vec![SocketAddr::from(([127, 0, 0, 1], 1)).into()]);
    let mut config = kumiki_proxy::Config::new(nodes);
    config.admin = Some(SocketAddr::from(([0, 0, 0, 0], 0)));
    config.password = Some("secret".to_owned());
    let error = kumiki_proxy::check(&config).expect_err("refused");
    assert!(error.to_string().contains("--admin"), "{error}");
    config.insecure = true;
    assert!(kumiki_proxy::check(&config).is_ok());
}

/// Returns the names and kinds of the metrics in the page's tables. The proxy's table has one column
/// less than the server's, and its cells begin alike.
fn documented(text: &str) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let kinds = ["counter", "gauge", "histogram"];
        if cells.len() >= 5 && kinds.contains(&cells[2]) {
            assert!(!cells[cells.len() - 2].is_empty(), "{line}");
            let name = cells[1].trim_matches('`').split('{').next();
            rows.push((name.unwrap_or_default().to_owned(), cells[2].to_owned()));
        }
    }
    rows
}

/// An executor that refuses: the table keeps no locks.
struct Refuses;

impl Execute for Refuses {
    fn execute(&self, _: &Transaction<'_>) -> Result<Vec<OwnedReply>, Abort> {
        Err(Abort::Cancelled)
    }
}

#[test]
fn the_documentation_lists_every_metric() {
    let Some(program) = redis_server() else {
        return;
    };
    let node = Redis::start(&program, &[]);
    let (proxy, admin) = with_admin_and(&[node.address], |config| {
        config.locks = Some(Options {
            keeping: LockStorage::Partition {
                name: "durable",
                executor: Arc::new(Refuses),
                prefix: b"locks/".to_vec(),
            },
            longest_lease: Duration::from_secs(60),
        });
    });
    assert_eq!(connect(proxy.address).told("SET a b"), "+OK");
    let families = until(admin, |all| {
        sum(all, "kumiki_proxy_node_packets_total", "") > 0.0
    });
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = documented(&std::fs::read_to_string(path).expect("the page"));
    let own: Vec<_> = page
        .iter()
        .filter(|(name, _)| name.starts_with("kumiki_proxy_"))
        .collect();
    let names: BTreeSet<_> = own.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), own.len(), "a row for each");
    for (name, kind) in own {
        let family = families
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not exported"));
        assert_eq!(family.kind, *kind, "{name}");
    }
    for name in families.keys() {
        assert!(
            page.iter().any(|(row, _)| row == name),
            "{name} is not documented"
        );
    }
}
