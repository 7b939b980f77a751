//! Connections of PostgreSQL's protocol: how statements and connections end, who has a place, who may connect.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use kumiki_sql::serve::{Options, SqlServer};
use kumiki_sql::{Catalogue, Settings, Shared};
use testkit::amount;

use crate::serve::{LONG, Served, bind, execute, options, parse, psql_by, text};
use crate::support::wire::Client;

#[test]
fn a_query_can_be_cancelled() {
    // Those that are cancelled have their places until their operators give way.
    let served = Served::start(|options| options.queries = NonZeroUsize::new(4).unwrap());
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
fn a_statement_ends_when_its_time_is_over() {
    // A statement that has ended keeps its place until its operators give way.
    let served = Served::start(|options| options.queries = NonZeroUsize::new(4).unwrap());
    let mut client = Client::connect(served.address);
    client.ask("set statement_timeout = '3s'").tags();
    assert_eq!(client.ask("show statement_timeout").rows(), [["3s"]]);
    // It is a part of the rows that has this time, not the client between parts.
    client.ask("begin");
    parse(&mut client, "select l_orderkey from lineitem");
    bind(&mut client, "slow");
    for pause in [Duration::from_millis(3200), Duration::ZERO] {
        execute(&mut client, "slow", 2);
        client.send(b'S', b"");
        assert_eq!(client.until_ready().rows().len(), 2);
        std::thread::sleep(pause);
    }
    client.ask("commit");
    for extended in [false, true] {
        let begun = Instant::now();
        let answer = match extended {
            true => client.prepared(LONG, &[], false, 0),
            false => client.ask(LONG),
        };
        let (state, text) = answer.error();
        assert_eq!(state, "57014");
        assert!(text.contains("statement timeout"), "{text}");
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    // Others have as long as they want.
    let mut other = Client::connect(served.address);
    assert_eq!(other.ask("show statement_timeout").rows(), [["0"]]);
    client.ask("reset statement_timeout").tags();
    assert_eq!(client.ask("show statement_timeout").rows(), [["0"]]);
    assert_eq!(client.ask("select 1").rows(), [["1"]]);
}

#[test]
fn a_long_query_does_not_delay_other_clients() {
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
fn statements_of_one_message_do_not_wait_for_each_other_s_places() {
    let served = Served::start(|options| options.queries = NonZeroUsize::MIN);
    let mut client = Client::connect(served.address);
    let begun = Instant::now();
    let all = client.ask("select l_tax from lineitem; select count(*) from region; select 1");
    assert_eq!(all.tags()[1..], ["SELECT 1", "SELECT 1"]);
    assert!(begun.elapsed() < Duration::from_secs(20));
    // The second of them can be cancelled, too.
    let (address, pid, key) = (served.address, client.pid, client.key);
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        Client::cancel(address, pid, key);
    });
    let (state, _) = client.ask(&format!("select 1; {LONG}; select 1")).error();
    assert_eq!(state, "57014");
    canceller.join().unwrap();
}

#[test]
fn a_query_whose_rows_are_not_taken_gives_its_place_to_others() {
    let served = Served::start(|options| {
        options.queries = NonZeroUsize::MIN;
        options.patience = Some(Duration::from_millis(300));
    });
    let mut slow = Client::connect(served.address);
    let sql = "select l_orderkey from lineitem, nation";
    parse(&mut slow, sql);
    bind(&mut slow, "");
    execute(&mut slow, "", 3);
    slow.send(b'H', b"");
    // Three rows, and word that there are more.
    while slow.receive().expect("it answers").0 != b's' {}
    let begun = Instant::now();
    let mut other = Client::connect(served.address);
    assert_eq!(other.ask("select count(*) from region").rows(), [["5"]]);
    assert!(begun.elapsed() < Duration::from_secs(20));
    // What had come before is there still, and then there is an error, no end.
    execute(&mut slow, "", 0);
    slow.send(b'S', b"");
    let answer = slow.until_ready();
    assert!(answer.tags().is_empty(), "{:?}", answer.tags());
    let (_, what) = answer.error();
    assert!(what.contains("has not taken"), "{what}");
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
    let refused = runtime.block_on(SqlServer::bind(&public, shared.clone()));
    assert!(refused.is_err_and(|error| error.to_string().contains("--password-file")));
    let insecure = Options {
        insecure: true,
        ..public
    };
    assert!(runtime.block_on(SqlServer::bind(&insecure, shared)).is_ok());
}

/// Sends the messages of SCRAM with a proof that fits no password.
fn send_wrong_proof(client: &mut Client) {
    assert_eq!(client.receive().unwrap().0, b'R');
    let first = b"n,,n=,r=nonce";
    let length = (first.len() as u32).to_be_bytes();
    client.send(b'p', &[&b"SCRAM-SHA-256\0"[..], &length, first].concat());
    let challenge = client.receive().unwrap().1[4..].to_vec();
    let challenge = String::from_utf8(challenge).unwrap();
    let nonce = challenge.split(',').next().unwrap();
    let proof = "A".repeat(43) + "=";
    client.send(b'p', format!("c=biws,{nonce},p={proof}").as_bytes());
}

/// The server answers a wrong password after a delay, and gives the client's place to others meanwhile.
#[test]
fn a_wrong_password_is_answered_later() {
    let served = Served::start(|options| {
        options.password = Some("secret".to_owned());
        options.connections = NonZeroUsize::MIN;
    });
    let begun = Instant::now();
    let mut clients: Vec<Client> = (0..8).map(|_| Client::greet(served.address)).collect();
    for client in &mut clients {
        send_wrong_proof(client);
    }
    for client in &mut clients {
        assert_eq!(client.until_ready().error().0, "28P01");
        assert_eq!(client.receive(), None);
    }
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[test]
fn more_connections_than_allowed_are_closed() {
    let served = Served::start(|options| options.connections = NonZeroUsize::MIN);
    let mut first = Client::connect(served.address);
    let mut second = Client::greet(served.address);
    let (state, what) = second.until_ready().error();
    assert!(state == "53300" && what.contains("--connections"), "{what}");
    assert_eq!(second.receive(), None);
    assert_eq!(first.ask("select 1").rows(), [["1"]]);
}

/// Connections that say nothing take no place from clients, and the oldest of them give way.
#[test]
fn clients_that_have_not_authenticated_have_places_of_their_own() {
    let served = Served::start(|options| {
        options.connections = NonZeroUsize::MIN;
        options.password = Some("right".to_owned());
    });
    let mut silent: Vec<Client> = (0..70).map(|_| Client::open(served.address)).collect();
    assert_eq!(silent[0].receive(), None, "the oldest is closed");
    let psql = psql_by(&served, "sslmode=disable", "right", &["select 1"]);
    if let Some(psql) = psql {
        assert!(psql.status.success(), "{}", text(&psql.stderr));
    }
    silent[69].wait_for(Duration::from_millis(100));
    let begun = Instant::now();
    assert_eq!(silent[69].receive(), None);
    assert!(
        begun.elapsed() >= Duration::from_millis(100),
        "the newest stays"
    );
}

#[test]
fn clients_see_and_end_what_others_do() {
    let served = Served::start(|options| options.queries = NonZeroUsize::new(4).unwrap());
    let mut admin = Client::connect(served.address);
    let own = admin.ask("select pg_backend_pid()").rows();
    assert_eq!(own, [[admin.pid.to_string()]]);
    let shown = "select pid, datname, usename, client_addr, state, query from pg_stat_activity \
                 where pid = pg_backend_pid() and backend_start <= query_start";
    let row = [
        &*admin.pid.to_string(),
        "kumiki",
        "tester",
        "127.0.0.1",
        "active",
        shown,
    ];
    assert_eq!(admin.ask(shown).rows(), [row]);
    assert_eq!(
        admin
            .ask("select count(*) from pg_catalog.pg_stat_activity")
            .rows(),
        [["1"]]
    );
    for function in ["pg_cancel_backend", "pg_terminate_backend"] {
        let mut other = Client::connect(served.address);
        let pid = other.pid;
        other.ask("begin");
        let idle = format!("select state, query from pg_stat_activity where pid = {pid}");
        // The answer leaves before the state changes.
        testkit::eventually("it waits for its client", || {
            admin.ask(&idle).rows() == [["idle in transaction", "begin"]]
        });
        let asked = std::thread::spawn(move || {
            let answer = other.ask(LONG);
            (answer.error().0, other)
        });
        testkit::eventually("the query is shown", || {
            admin.ask(&idle).rows() == [["active", LONG]]
        });
        // Rows of the view are arguments as well.
        let end = format!(
            "select {function}(pid) from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()"
        );
        assert_eq!(admin.ask(&end).rows(), [["t"]]);
        let (state, mut other) = asked.join().unwrap();
        if function == "pg_cancel_backend" {
            assert_eq!(state, "57014");
            assert_eq!(other.ask("rollback").tags(), ["ROLLBACK"]);
        } else {
            assert_eq!(state, "57P01");
            assert_eq!(other.receive(), None, "its connection is closed");
        }
        let gone = format!("select {function}(2147483647)");
        assert_eq!(admin.ask(&gone).rows(), [["f"]]);
    }
    testkit::eventually("clients that have gone are not shown", || {
        admin.ask("select count(*) from pg_stat_activity").rows() == [["1"]]
    });
    // An idle client receives the error as well.
    let mut idle = Client::connect(served.address);
    let end = format!("select pg_terminate_backend({}, 100)", idle.pid);
    assert_eq!(admin.ask(&end).rows(), [["t"]]);
    assert_eq!(
        idle.receive().map(|message| message.field(b'C')),
        Some("57P01".to_owned())
    );
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
    let many = amount(300, 900);
    let long = format!("select 1{}", " + 1".repeat(many));
    assert_eq!(good.ask(&long).rows(), [[(many + 1).to_string()]]);
    let too_long = format!("select 1{}", " + 1".repeat(100_000));
    assert_eq!(good.ask(&too_long).error().0, "54001");
    // So it is where something stands before that hides the end of a text.
    for hidden in [
        "select e'\\'', 1{}",
        "select $$'$$, 1{}",
        "copy (select 1{}) to stdout",
    ] {
        let hidden = hidden.replace("{}", &" + 1".repeat(100_000));
        assert_eq!(good.ask(&hidden).error().0, "54001");
    }
    let unions = format!("select 1{}", " except select 1".repeat(100_000));
    assert_eq!(good.ask(&unions).error().0, "54001");
    assert_eq!(good.ask("select 1").rows(), [["1"]]);
}
