//! The proxy in front of a Kumiki cluster: one server, with the cluster's guarantees.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use crate::support::cluster::{Cluster, Keeping};
use crate::support::process::{kumiki, proxy};
use crate::support::replicas::{Replicas, STEADY};
use crate::support::transfers::{self, AtProxy};
use crate::support::words::told;
use testkit::SetOnDrop;
use testkit::peers::{self, Group};
use testkit::process::{Redis, Server};
use testkit::wait::go_on_until;
use testkit::workload::transfers::Options;
use testkit::workload::{Ended, Subject, Workload};
use testkit::{Client, Frame, Reply, eventually};

/// Returns a proxy of two threads with clients, which get an error if an outcome is not known, and with `more`.
fn before(file: &str, more: &[&str]) -> Server {
    let threads = ["--cluster", file, "--network-threads", "2"];
    proxy(&[&threads[..], &["--unknown-outcome", "error"], more].concat())
}

#[test]
fn a_cluster_answers_as_one_server() {
    let cluster = Cluster::start(3, Keeping::Nothing);
    let proxy = before(&cluster.file(), &[]);
    let mut client = Client::connect(proxy.address);
    for (command, reply) in [
        ("SET hello 1", "+OK\r\n"),
        ("MSET hello 1 somekey 2 foo 3", "+OK\r\n"),
        (
            "MGET hello somekey foo none",
            "*4\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$-1\r\n",
        ),
        ("MSETNX new 1 foo 2", ":0\r\n"),
        ("EXISTS new hello foo", ":2\r\n"),
        ("DBSIZE", ":3\r\n"),
        ("MULTI", "+OK\r\n"),
        ("INCR hello", "+QUEUED\r\n"),
        ("INCR foo", "+QUEUED\r\n"),
        ("GET somekey", "+QUEUED\r\n"),
        ("EXEC", "*3\r\n:2\r\n:4\r\n$1\r\n2\r\n"),
        ("MULTI", "+OK\r\n"),
        ("LOCK.GUARD lock 7", "+QUEUED\r\n"),
        ("SET foo 9", "+QUEUED\r\n"),
        ("EXEC", "*2\r\n+OK\r\n+OK\r\n"),
        ("EVAL return(redis.call('incr',KEYS[1])) 1 foo", ":10\r\n"),
        (
            "EVAL return(redis.call('mget',unpack(ARGV))) 0 hello somekey foo",
            "*3\r\n$1\r\n2\r\n$1\r\n2\r\n$2\r\n10\r\n",
        ),
        ("RENAME foo hello", "+OK\r\n"),
        ("COPY hello foo", ":1\r\n"),
        ("MULTI", "+OK\r\n"),
        (
            "EVAL return(redis.call('rename','foo',KEYS[1])) 1 somekey",
            "+QUEUED\r\n",
        ),
        ("EXISTS foo somekey", "+QUEUED\r\n"),
        ("EXEC", "*2\r\n+OK\r\n:1\r\n"),
        ("SET foo 1", "+OK\r\n"),
        ("DEL hello somekey foo", ":3\r\n"),
    ] {
        assert_eq!(told(&mut client, command), reply, "{command}");
    }
    assert_eq!(told(&mut client, "MULTI"), "+OK\r\n");
    assert_eq!(told(&mut client, "LOCK.GUARD lock 6"), "+QUEUED\r\n");
    assert_eq!(told(&mut client, "SET foo 1"), "+QUEUED\r\n");
    assert!(told(&mut client, "EXEC").starts_with("-FENCED "));
    let info = told(&mut client, "INFO");
    assert!(info.contains("proxy_before:kumiki"), "{info}");
}

/// The proxy sends changes of libraries to all nodes, as nodes of Redis need it.
#[test]
fn functions_work_as_on_one_server() {
    let cluster = Cluster::start(3, Keeping::Nothing);
    let proxy = before(&cluster.file(), &[]);
    let mut client = Client::connect(proxy.address);
    let source = |name: &str, step: &str| {
        let body = format!("for _, key in ipairs(keys) do redis.call('incrby', key, {step}) end");
        format!(
            "#!lua name={name}\nredis.register_function('f', function(keys) {body} return {step} end)"
        )
    };
    let mut call = |args: &[&str]| client.call(args);
    for step in ["1", "5"] {
        let loaded = call(&["FUNCTION", "LOAD", "REPLACE", &source("lib", step)]);
        assert_eq!(loaded, Reply::bulk("lib"));
        let called = call(&["FCALL", "f", "3", "hello", "somekey", "foo"]);
        assert_eq!(called.shown(), step);
    }
    assert_eq!(
        call(&["MGET", "hello", "somekey", "foo"]).shown(),
        "[6 6 6]"
    );
    assert_eq!(
        call(&["FUNCTION", "LOAD", &source("lib", "5")]),
        Reply::bulk("lib")
    );
    assert_eq!(call(&["FUNCTION", "DELETE", "lib"]).shown(), "+OK");
    assert_eq!(
        call(&["FCALL", "f", "1", "foo"]).shown(),
        "-ERR Function not found"
    );
    assert_eq!(call(&["FUNCTION", "LIST"]).shown(), "[]");
}

#[test]
fn what_was_watched_on_any_node_is_a_precondition() {
    let cluster = Cluster::start(3, Keeping::Nothing);
    let proxy = before(&cluster.file(), &["--aggregation-threads", "1"]);
    let mut one = Client::connect(proxy.address);
    let mut two = Client::connect(proxy.address);
    for (disturbed, reply) in [(true, "*-1\r\n"), (false, "*1\r\n+OK\r\n")] {
        assert_eq!(told(&mut one, "WATCH hello somekey none"), "+OK\r\n");
        assert_eq!(told(&mut one, "WATCH foo"), "+OK\r\n");
        if disturbed {
            assert_eq!(told(&mut two, "SET none 1"), "+OK\r\n");
            assert_eq!(told(&mut two, "DEL none"), ":1\r\n");
        }
        assert_eq!(told(&mut one, "MULTI"), "+OK\r\n");
        assert_eq!(told(&mut one, "SET hello 5"), "+QUEUED\r\n");
        assert_eq!(told(&mut one, "EXEC"), reply);
    }
}

/// Reads all accounts by one command until it is stopped, checks their sum, and counts the reads.
fn add_up(address: SocketAddr, keys: &[String], over: &AtomicBool, reads: &AtomicU64) {
    let mut client = Client::connect(address);
    let command = [&["MGET".to_owned()][..], keys].concat();
    let sum = Options::default().balance * keys.len() as i64;
    while !over.load(Ordering::SeqCst) {
        let frame = client.frame(&command);
        if frame.is_error() {
            // A node is away.
            continue;
        }
        let values = frame.frames().expect("a list");
        let number = |value: &Frame| {
            let bytes = value.bytes().expect("a value");
            String::from_utf8_lossy(bytes)
                .parse::<i64>()
                .expect("a number")
        };
        assert_eq!(values.iter().map(number).sum::<i64>(), sum);
        reads.fetch_add(1, Ordering::SeqCst);
    }
}

/// Blocks over several nodes, of many clients over shared connections, are transactions, while nodes
/// are killed and come back.
#[test]
fn transactions_of_many_clients_are_whole_while_nodes_die() {
    let mut cluster = Cluster::start(3, Keeping::Data);
    let proxy = before(&cluster.file(), &["--timeout", "1s", "--patience", "1s"]);
    let workload = transfers::accounts(10);
    let mut subject = AtProxy(Client::connect(proxy.address));
    let set_up = subject.run(&workload.setup());
    assert!(matches!(set_up, Ended::Committed(_)), "{set_up:?}");
    let (over, keys) = (AtomicBool::new(false), workload.keys());
    let (reads, committed) = (AtomicU64::new(0), AtomicU64::new(0));
    let clients = std::thread::scope(|scope| {
        let _ended = SetOnDrop(&over);
        let start = |seed| {
            let mut client = workload.start(fastrand::Rng::with_seed(seed));
            let (over, committed, address) = (&over, &committed, proxy.address);
            scope.spawn(move || {
                let mut subject = AtProxy(Client::connect(address));
                transfers::until_stopped(&mut client, &mut subject, over, committed);
                client
            })
        };
        let clients: Vec<_> = (0..6).map(start).collect();
        for _ in 0..2 {
            scope.spawn(|| add_up(proxy.address, &keys, &over, &reads));
        }
        let enough = |figure: &AtomicU64| {
            let before = figure.load(Ordering::SeqCst);
            go_on_until(|| figure.load(Ordering::SeqCst) > before + 50);
            assert!(figure.load(Ordering::SeqCst) > before + 50, "it goes on");
        };
        for node in 0..3 {
            enough(&committed);
            cluster.kill_node(node);
            std::thread::sleep(Duration::from_millis(200));
            cluster.start_node(node).expect("it starts again");
            enough(&committed);
            enough(&reads);
        }
        over.store(true, Ordering::SeqCst);
        let join = |client: ScopedJoinHandle<'_, _>| client.join().expect("what it sees is right");
        clients.into_iter().map(join).collect()
    });
    transfers::check(workload, clients, &mut subject);
}

/// The proxy finds the next leader, and clients see at most a pause.
#[test]
fn leaders_are_followed() {
    let mut replicas = Replicas::start(1, 3);
    let proxy = before(&replicas.file(), &["--timeout", "2s", "--patience", "20s"]);
    let mut client = Client::connect(proxy.address);
    let mut kept = 0;
    for round in 0..3 {
        for _ in 0..20 {
            let reply = told(&mut client, "INCR counter");
            // The outcome of the request that was at the leader when it died is unknown.
            let known = reply.starts_with(':');
            assert!(known || reply.starts_with("-UNKNOWN "), "{reply}");
            kept += i64::from(known);
        }
        if round < 2 {
            let leader = replicas.leader(1);
            replicas.kill_node(leader);
            assert!(told(&mut client, "SET other 1").starts_with(['+', '-']));
            replicas.start_node(leader);
        }
    }
    let mut last = 0;
    eventually("it is read", || {
        let frame = client.frame(&["GET", "counter"]);
        let bytes = frame
            .bytes()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        last = bytes.and_then(|text| text.parse().ok()).unwrap_or(0);
        last > 0
    });
    assert!(
        (kept..=60).contains(&last),
        "{last} of {kept} that were told"
    );
}

/// A leader is paused, and its connections stay open: another one leads soon, and requests under
/// way to the first are then given up, long before the timeout.
#[test]
fn a_silent_leader_is_not_waited_for() {
    let replicas = Replicas::start_with(1, 3, &STEADY);
    let never = ["--timeout", "3600s", "--patience", "3600s"];
    let proxy = before(&replicas.file(), &never);
    let [mut reader, mut writer] = [(); 2].map(|()| Client::connect(proxy.address));
    assert_eq!(told(&mut writer, "SET foo 1"), "+OK\r\n");
    let leader = replicas.leader(1);
    replicas.pause_node(leader);
    reader.send(&["GET", "foo"]);
    writer.send(&["SET", "foo", "2"]);
    // A read has no outcome that could be unknown.
    let read = reader.reply().shown();
    let outcome = writer.reply().shown();
    assert!(outcome.starts_with("-UNKNOWN "), "{outcome}");
    assert!(["1", "2"].contains(&&*read), "{read}");
    assert_eq!(told(&mut writer, "SET foo 3"), "+OK\r\n");
    replicas.resume_node(leader);
    for _ in 0..200 {
        // Never where another node must be asked.
        assert_eq!(told(&mut writer, "SET foo 4"), "+OK\r\n");
        assert_eq!(told(&mut reader, "GET foo"), "$1\r\n4\r\n");
    }
}

/// With the default times a request may be given up, and is then sent again: it is served while the
/// first leader is still silent, and clients never learn which node leads.
#[test]
fn a_silent_leader_is_replaced_with_the_default_times() {
    let replicas = Replicas::start_with(1, 3, &STEADY);
    let proxy = before(&replicas.file(), &[]);
    let [mut reader, mut writer] = [(); 2].map(|()| Client::connect(proxy.address));
    assert_eq!(told(&mut writer, "SET foo 1"), "+OK\r\n");
    let leader = replicas.leader(1);
    replicas.pause_node(leader);
    reader.send(&["GET", "foo"]);
    writer.send(&["SET", "foo", "2"]);
    let mut read = reader.reply().shown();
    assert!(!read.starts_with("-UNKNOWN "), "{read}");
    let mut written = writer.reply().shown();
    eventually("both are served", || {
        for said in [&read, &written] {
            assert!(!said.starts_with("-MOVED "), "{said}");
        }
        if read.starts_with('-') {
            read = reader.told("GET foo");
        }
        if written.starts_with('-') {
            written = writer.told("SET foo 2");
        }
        !read.starts_with('-') && !written.starts_with('-')
    });
    assert!(["1", "2"].contains(&&*read), "{read}");
    assert_eq!((&*written, &*reader.told("GET foo")), ("+OK", "2"));
    replicas.resume_node(leader);
    for _ in 0..200 {
        assert_eq!(told(&mut writer, "SET foo 3"), "+OK\r\n");
        assert_eq!(told(&mut reader, "GET foo"), "$1\r\n3\r\n");
    }
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let said = |args: &[&str]| {
        let (code, out, said) = crate::support::process::run(args);
        assert_ne!(code, Some(0), "{out}{said}");
        said
    };
    let none = said(&["proxy"]);
    assert!(
        none.contains("--cluster <FILE>") && none.contains("--redis"),
        "{none}"
    );
    let away = said(&["proxy", "--redis", "127.0.0.1:1"]);
    assert!(away.contains("127.0.0.1:1 cannot be reached"), "{away}");
    assert!(
        away.contains("start the nodes, or correct their addresses"),
        "{away}"
    );
    let name = said(&["proxy", "--redis", "nonsense"]);
    assert!(name.contains("give host:port"), "{name}");
    let file = said(&["proxy", "--cluster", "/nowhere/cluster.toml"]);
    assert!(file.contains("cannot use /nowhere/cluster.toml"), "{file}");
    let open = said(&["proxy", "--redis", "127.0.0.1:1", "--listen", "0.0.0.0:0"]);
    assert!(
        open.contains("--requirepass") && open.contains("--insecure"),
        "{open}"
    );
    let affinity = said(&[
        "proxy",
        "--redis",
        "127.0.0.1:1",
        "--network-threads",
        "2",
        "--affinity",
        "0",
    ]);
    assert!(affinity.contains("there are 2 threads"), "{affinity}");
    let time = said(&["proxy", "--redis", "127.0.0.1:1", "--timeout", "5"]);
    assert!(time.contains("5s or 500ms"), "{time}");
    let outcome = ["proxy", "--redis", "127.0.0.1:1", "--unknown-outcome", "no"];
    let outcome = said(&outcome);
    assert!(outcome.contains("neither close nor error"), "{outcome}");
}

/// One proxy uses the directory of the locks: users without locks need not know.
#[test]
fn a_second_proxy_in_a_folder_serves_without_locks() {
    let Some(program) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    let redis = Redis::start(&program, &[]);
    let dir = tempfile::tempdir().expect("a directory");
    let start = || {
        Server::start(|address, _| {
            let mut command = kumiki();
            command.args(["proxy", "--listen", &address.to_string()]);
            command.args(["--redis", &redis.address.to_string()]);
            command.current_dir(dir.path());
            command
        })
    };
    let (one, two) = (start(), start());
    let mut client = Client::connect(one.address);
    let granted = client.told("LOCK.ACQUIRE a me PX 1000");
    assert!(granted.starts_with("[1 "), "{granted}");
    let mut client = Client::connect(two.address);
    assert_eq!(client.told("SET a 1"), "+OK");
    let refused = client.told("LOCK.ACQUIRE a me PX 1000");
    assert!(refused.contains("keeps no locks"), "{refused}");
    eventually("it says which option is missing", || {
        two.errors().contains("--lock-cluster")
    });
}

/// An operator relies on an option: one without effect is refused, also from a file.
#[test]
fn options_without_effect_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("proxy.toml");
    let options = "cassandra = \"127.0.0.1:1\"\nrequirepass = \"secret\"\n";
    testkit::files::write_private(&file, options);
    let file = file.display().to_string();
    let cassandra = ["--cassandra", "127.0.0.1:1"];
    let redis = ["--redis", "127.0.0.1:1"];
    let table = ["--cassandra", "127.0.0.1:1", "--lock-table", "app.locks"];
    let in_cluster = ["--lock-cluster", "c.toml", "--data", "d"];
    let alone = ["--aggregation-threads", "1", "--threads-for-each-node", "2"];
    let placed = ["--network-threads", "1", "--affinity", "1023"];
    let of_cassandra = "without --cassandra";
    for (before, more, told) in [
        (
            &cassandra[..],
            &["--requirepass", "secret"][..],
            "the nodes judge",
        ),
        (&["--config", &file], &[], "the nodes judge"),
        (
            &cassandra,
            &["--node-password", "secret"],
            "give --node-user",
        ),
        (
            &cassandra,
            &["--unknown-outcome", "error"],
            "drivers get WriteTimeout",
        ),
        (&cassandra, &["--locks", "memory"], "leave out --locks"),
        (
            &cassandra,
            &["--lock-cluster", "c.toml"],
            "leave out --lock-cluster",
        ),
        (&cassandra, &["--data", "d"], "by --lock-table"),
        (&cassandra, &["--max-lease", "5s"], "by --lock-table"),
        (&table, &in_cluster, "cannot be used with"),
        (&redis, &in_cluster, "cannot be used with"),
        (
            &redis,
            &["--threads-for-each-node", "2"],
            "give --aggregation-threads 2",
        ),
        (&redis, &alone, "give --aggregation-threads 2"),
        (&redis, &["--pack-bytes", "0"], "give a size"),
        (&redis, &placed, "no processor 1023"),
        (&redis, &["--read-atomic", "app.posts"], of_cassandra),
        (&redis, &["--lock-table", "app.locks"], of_cassandra),
        (&redis, &["--merge-writes"], of_cassandra),
        (&redis, &["--advertise", "127.0.0.1:1"], of_cassandra),
        (&redis, &["--proxies", "127.0.0.1:1"], of_cassandra),
    ] {
        let args = [&["proxy"], before, more].concat();
        let (code, out, said) = crate::support::process::run(&args);
        assert_ne!(code, Some(0), "{args:?}: {out}{said}");
        assert!(said.contains(told), "{args:?}: {said}");
    }
    // Options that have an effect lead to an attempt to reach the nodes, of which there are none.
    let sharing = ["--aggregation-threads", "2", "--threads-for-each-node", "2"];
    let data = dir.path().join("locks").display().to_string();
    for (before, more) in [
        (&table[..], &["--locks", "memory", "--data", &data][..]),
        (&redis, &["--requirepass", "secret", "--data", &data]),
        (&redis, &[&sharing[..], &["--data", &data]].concat()),
    ] {
        let args = [&["proxy"], before, more].concat();
        let (_, out, said) = crate::support::process::run(&args);
        assert!(
            said.contains("no node answers as it should"),
            "{args:?}: {out}{said}"
        );
    }
}
