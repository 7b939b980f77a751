//! PostgreSQL's protocol, seen from a client: results in both forms, errors, cancellation, limits.

mod support;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::Command;
use std::time::{Duration, Instant};

use kumiki_sql::serve::{Options, Server, Stopper};
use kumiki_sql::{Catalogue, Rights, Settings, Shared};
use pages::{Groups, PageSize};
use support::tpch;
use support::wire::Client;

/// A server over TPC-H at scale factor 0.01.
struct Served {
    address: SocketAddr,
    stopper: Stopper,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    fn start(change: impl FnOnce(&mut Options)) -> Served {
        let store = tpch::store(0.01, PageSize::default(), &Groups::OneEach);
        let settings = Settings {
            partitions: NonZeroUsize::new(2).unwrap(),
            rights: Rights::Read,
            ..Settings::default()
        };
        let shared = Shared::new(Catalogue::new(vec![store as _]), settings).unwrap();
        let mut options = options();
        change(&mut options);
        let (told, tell) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = kumiki_sql::session::runtime(None).unwrap();
            runtime.block_on(async {
                let (server, stopper) = Server::bind(&options, shared).await.unwrap();
                told.send((server.address().unwrap(), stopper)).unwrap();
                server.serve().await;
            });
            runtime.shutdown_background();
        });
        let (address, stopper) = tell.recv().unwrap();
        Served {
            address,
            stopper,
            thread: Some(thread),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

fn options() -> Options {
    Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        password: None,
        insecure: false,
        connections: NonZeroUsize::new(4).unwrap(),
        queries: NonZeroUsize::new(2).unwrap(),
    }
}

const NATIONS: &str = "select n_nationkey, n_name from nation where n_nationkey < 2 order by 1";
/// What takes long, and gives no row on the way.
const LONG: &str = "select l_orderkey from lineitem, orders where l_tax + o_totalprice < 0";

#[test]
fn the_simple_protocol_answers_several_statements() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    let answer = client.ask(&format!(
        "set kumiki.placement = 'local'; {NATIONS}; select 1 = 1, null"
    ));
    assert_eq!(
        answer.rows(),
        [
            vec!["0", "ALGERIA"],
            vec!["1", "ARGENTINA"],
            vec!["t", "NULL"]
        ]
    );
    assert_eq!(answer.tags(), ["SET", "SELECT 2", "SELECT 1"]);
    assert_eq!(
        client.ask("begin; select 1; commit").tags(),
        ["BEGIN", "SELECT 1", "COMMIT"]
    );
    assert_eq!(client.ask("show client_encoding").rows(), [["UTF8"]]);
    assert!(client.ask("select version()").rows()[0][0].contains("DataFusion"));
    let types = "select sum(l_extendedprice), avg(l_tax), min(l_shipdate), count(*) from lineitem";
    assert_eq!(client.ask(types).rows()[0].len(), 4);
    // Nothing asked is answered by nothing.
    assert_eq!(client.ask(";").0[0].0, b'I');
}

#[test]
fn the_extended_protocol_takes_parameters_and_gives_binary_values() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    let sql = "select n_nationkey, n_name from nation where n_nationkey = $1 and n_name like $2";
    let answer = client.prepared(sql, &["1", "A%"], true, 0);
    let row = answer.0.iter().find(|message| message.0 == b'D').unwrap();
    let key = 1i64.to_be_bytes().to_vec();
    assert_eq!(row.cells(), [Some(key), Some(b"ARGENTINA".to_vec())]);
    let described = answer.0.iter().find(|message| message.0 == b't').unwrap();
    // Two parameters: an int8 and a text.
    assert_eq!(described.1, [0, 2, 0, 0, 0, 20, 0, 0, 0, 25]);
    let answer = client.prepared("select n_nationkey from nation order by 1", &[], false, 3);
    assert_eq!(answer.rows(), [["0"], ["1"], ["2"]]);
    assert!(
        answer.0.iter().any(|message| message.0 == b's'),
        "there is more"
    );
    let all = client.prepared("select l_orderkey from lineitem", &[], false, 0);
    assert_eq!(all.tags(), [format!("SELECT {}", all.rows().len())]);
    let (state, _) = client.prepared(sql, &["one", "A%"], false, 0).error();
    assert_eq!(state, "22P02");
    assert_eq!(client.prepared("begin", &[], false, 0).tags(), ["BEGIN"]);
}

#[test]
fn errors_have_states_and_end_nothing() {
    let served = Served::start(|_| ());
    let mut client = Client::connect(served.address);
    for (sql, expected) in [
        ("selec 1", "42601"),
        ("select * from nowhere", "42P01"),
        ("select nothing from nation", "42703"),
        (
            "select 1 / (n_nationkey - n_nationkey) from nation",
            "22012",
        ),
        ("set kumiki.nothing = 1", "22023"),
        (
            "create external table f stored as csv location '/etc/passwd'",
            "25006",
        ),
        ("copy nation to '/tmp/stolen.csv'", "25006"),
        ("create table copied as select 1", "25006"),
    ] {
        let (state, text) = client.ask(sql).error();
        assert_eq!(state, expected, "{sql}: {text}");
        let (state, text) = client.prepared(sql, &[], false, 0).error();
        assert_eq!(state, expected, "{sql}: {text}");
    }
    assert_eq!(client.ask("select 1").rows(), [["1"]]);
}

#[test]
fn a_query_can_be_cancelled() {
    let served = Served::start(|_| ());
    for extended in [false, true] {
        let mut client = Client::connect(served.address);
        let (address, pid, key) = (served.address, client.pid, client.key);
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            Client::cancel(address, pid, key);
        });
        let begun = Instant::now();
        let answer = match extended {
            true => client.prepared(LONG, &[], false, 0),
            false => client.ask(LONG),
        };
        assert_eq!(answer.error().0, "57014");
        // Its operators do not give way for much longer than this.
        assert!(begun.elapsed() < Duration::from_secs(10));
        canceller.join().unwrap();
        assert_eq!(client.ask("select 1").rows(), [["1"]]);
    }
}

#[test]
fn a_long_query_holds_up_nobody() {
    let served = Served::start(|_| ());
    let mut busy = Client::connect(served.address);
    let (address, pid, key) = (served.address, busy.pid, busy.key);
    let asked = std::thread::spawn(move || busy.ask(LONG).error().0.clone());
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    for _ in 0..3 {
        let mut client = Client::connect(served.address);
        assert_eq!(client.ask("select count(*) from region").rows(), [["5"]]);
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(!asked.is_finished(), "the long query is over already");
    Client::cancel(address, pid, key);
    assert_eq!(asked.join().unwrap(), "57014");
}

#[test]
fn a_password_is_asked_for_and_public_addresses_need_one() {
    let served = Served::start(|options| options.password = Some("secret".to_owned()));
    let mut client = Client::greet(served.address);
    let asked = client.receive().unwrap();
    assert_eq!(asked.0, b'R');
    assert_eq!(asked.1[..4], 10u32.to_be_bytes(), "by SASL");
    assert!(asked.1[4..].starts_with(b"SCRAM-SHA-256\0"));
    // A query before that is answered by nothing but the end.
    client.wait_for(Duration::from_secs(2));
    client.send(b'Q', b"select 1\0");
    let rest = client.until_ready();
    assert!(
        rest.0.iter().all(|message| message.0 != b'D'),
        "{:?}",
        rest.0
    );

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shared = Shared::new(Catalogue::default(), Settings::default()).unwrap();
    let public = Options {
        listen: "0.0.0.0:0".parse().unwrap(),
        ..options()
    };
    let refused = runtime.block_on(Server::bind(&public, shared.clone()));
    assert!(refused.is_err_and(|text| text.contains("--password-file")));
    let insecure = Options {
        insecure: true,
        ..public
    };
    assert!(runtime.block_on(Server::bind(&insecure, shared)).is_ok());
}

#[test]
fn more_connections_than_allowed_are_closed() {
    let served = Served::start(|options| options.connections = NonZeroUsize::MIN);
    let mut first = Client::connect(served.address);
    let mut second = Client::greet(served.address);
    assert_eq!(second.receive(), None);
    assert_eq!(first.ask("select 1").rows(), [["1"]]);
}

#[test]
fn nonsense_closes_its_own_connection_alone() {
    let served = Served::start(|_| ());
    let mut good = Client::connect(served.address);
    for body in [&[0xff; 64][..], b"", &[0; 8]] {
        let mut client = Client::connect(served.address);
        client.send(b'B', body);
        client.send(b'S', b"");
        while client.receive().is_some_and(|message| message.0 != b'Z') {}
    }
    let deep = format!("select {}1{}", "(".repeat(5_000), ")".repeat(5_000));
    assert!(!good.ask(&deep).error().1.is_empty());
    let long = format!("select 1{}", " + 1".repeat(900));
    assert_eq!(good.ask(&long).rows(), [["901"]]);
    let too_long = format!("select 1{}", " + 1".repeat(100_000));
    assert_eq!(good.ask(&too_long).error().0, "54001");
    assert_eq!(good.ask("select 1").rows(), [["1"]]);
}

#[test]
fn psql_asks() {
    let Ok(version) = Command::new("psql").arg("--version").output() else {
        eprintln!("there is no psql on this machine: what it does is not tried");
        return;
    };
    assert!(version.status.success());
    let served = Served::start(|options| options.password = Some("secret".to_owned()));
    let psql = |password: &str, sql: &str| {
        let port = served.address.port();
        let place = format!("host=127.0.0.1 port={port} user=tester dbname=kumiki sslmode=disable");
        let mut psql = Command::new("psql");
        psql.args([place.as_str(), "-X", "-A", "-t", "-c", sql]);
        psql.env("PGPASSWORD", password).output().unwrap()
    };
    let given = psql("secret", NATIONS);
    let told = String::from_utf8_lossy(&given.stderr).into_owned();
    assert!(given.status.success(), "{told}");
    assert_eq!(
        String::from_utf8_lossy(&given.stdout),
        "0|ALGERIA\n1|ARGENTINA\n"
    );
    let refused = psql("wrong", NATIONS);
    assert!(!refused.status.success());
}
