//! `kumiki import redis://…`: a node follows a real redis-server, and takes over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use testkit::peers::{self, Group};
use testkit::process::Redis;
use testkit::relay::Relay;
use testkit::{Client, Reply, eventually};

use crate::support::cluster::{Cluster, Keeping};
use crate::support::keys::{contents, fill};
use crate::support::process::{Background, run, start_server};

/// Starts a redis-server.
fn source(options: &[&str]) -> Option<Redis> {
    let program = peers::program(Group::Redis, "redis-server")?;
    let quick = ["--repl-diskless-sync-delay", "0"];
    Some(Redis::start(&program, &[&quick[..], options].concat()))
}

fn url(redis: &Redis) -> String {
    format!("redis://{}", redis.address)
}

/// Begins an import.
fn begin(redis: &Redis, to: SocketAddr, more: &[&str]) -> Background {
    let (url, to) = (url(redis), to.to_string());
    Background::start(&[&["import", &url, "--to", &to], more].concat())
}

/// Runs an import that ends by itself.
fn import(redis: &Redis, to: SocketAddr, more: &[&str]) -> (Option<i32>, String) {
    begin(redis, to, more).end()
}

/// Waits until a key has come to the node.
fn await_key(client: &mut Client, key: &str, import: &mut Background) {
    eventually("the key comes", || {
        assert!(!import.has_ended(), "{}", import.said());
        client.told(&format!("EXISTS {key}")) == "1"
    });
}

/// Commands that follow the copy, of all kinds that a source replicates.
fn change(client: &mut Client) {
    let mut tell = |words: &[&str]| {
        let reply = client.call(words);
        assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
    };
    for command in [
        "INCR counter",
        "INCRBYFLOAT fraction 0.5",
        "APPEND text more",
        "SET new value EX 1000",
        "SET new other KEEPTTL",
        "SETEX soon 1000 x",
        "GETEX new PERSIST",
        "GETDEL number",
        "EXPIRE list 1000",
        "EXPIREAT hash 4102444900",
        "PERSIST later",
        "LPUSH list front",
        "LMOVE list other-list LEFT RIGHT",
        "RPOP list",
        "SPOP numbers 2",
        "SADD words d",
        "ZINCRBY scores 2.25 a",
        "ZPOPMIN scores",
        "ZADD scores GT 9 d",
        "HINCRBY hash other 3",
        "HINCRBYFLOAT hash float 1.5",
        "HDEL hash name",
        "XADD stream * more entry",
        "XREADGROUP GROUP readers two COUNT 2 STREAMS stream >",
        "XACK stream readers 1-1",
        "XTRIM stream MAXLEN 3",
        "XGROUP CREATE stream third $",
        "PFADD visitors e f",
        "PFCOUNT visitors",
        "SETRANGE long 3 xyz",
        "BITFIELD bits INCRBY u8 0 5",
        "RENAME float renamed",
        "COPY text copied",
        "SUNIONSTORE union numbers words",
        "SORT list ALPHA STORE sorted",
        "DEL many:set",
        "UNLINK many:scores",
        "SELECT 3",
        "MULTI",
        "SET in-block 1",
        "INCR in-block",
        "EXEC",
        "MOVE in-block 4",
        "COPY text elsewhere DB 0",
        "SELECT 7",
        "SET to-be-flushed 1",
        "FLUSHDB",
        "SET kept 1",
        "SWAPDB 3 7",
        "SELECT 0",
        "PUBLISH channel message",
    ] {
        tell(&command.split(' ').collect::<Vec<_>>());
    }
    let script = "redis.call('INCR', KEYS[1]) redis.call('RPUSH', KEYS[2], 'x', 'y') \
                  redis.call('PEXPIRE', KEYS[2], 1000000) return 1";
    tell(&["EVAL", script, "2", "counter", "from-script"]);
    let library =
        "#!lua name=second\nredis.register_function('again', function() return 'yes' end)";
    tell(&["FUNCTION", "LOAD", library]);
    tell(&["DUMP", "scores"]);
}

/// Checks that a node has what the source has.
fn assert_same(redis: &Redis, node: SocketAddr) {
    let (mut from, mut to) = (Client::connect(redis.address), Client::connect(node));
    for database in 0..16 {
        let (expected, found) = (contents(&mut from, database), contents(&mut to, database));
        for (key, value) in &expected {
            let found = found.get(key).map(|found| without_counters(found));
            assert_eq!(
                found,
                Some(without_counters(value)),
                "{key} of database {database}"
            );
        }
        assert_eq!(found.len(), expected.len(), "database {database}");
    }
}

/// Leaves out what a source does not send: how many entries a group of a stream has read. Its own replicas do not know it.
fn without_counters(text: &str) -> String {
    let mut parts = text.split(" entries-read ");
    let first = parts.next().unwrap_or_default();
    // The counters are the last words about a group, which end with a bracket.
    let rest = parts.map(|part| part.find(']').map_or(part, |end| &part[end..]));
    [first].into_iter().chain(rest).collect()
}

#[test]
fn a_node_takes_over_what_a_running_server_has_and_does() {
    for diskless in ["yes", "no"] {
        let Some(redis) = source(&["--repl-diskless-sync", diskless]) else {
            return;
        };
        let node = start_server(&["--ephemeral"]);
        let mut at_source = Client::connect(redis.address);
        let mut at_node = Client::connect(node.address);
        fill(&mut at_source);
        let mut following = begin(&redis, node.address, &[]);
        await_key(&mut at_node, "many:stream", &mut following);
        change(&mut at_source);
        assert_eq!(at_source.told("SET first-part done"), "+OK");
        await_key(&mut at_node, "first-part", &mut following);
        // What is imported does not expire before the cut-over.
        assert!(at_node.told("PTTL soon").len() > 12);
        following.signal(Signal::INT);
        let (code, said) = following.end();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("stopped at offset"), "{said}");
        // Another one goes on, at the same command.
        for _ in 0..10 {
            at_source.told("INCR counter");
        }
        let (code, said) = import(&redis, node.address, &["--cut-over"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("the import is complete"), "{said}");
        assert!(!said.contains("copied"), "{said}");
        assert_same(&redis, node.address);
        assert_eq!(at_node.told("FCALL again 0"), "yes");
        assert_eq!(at_node.told("EXISTS kumiki:import"), "0");
        // The source's writers wait, and go on when the pause is over.
        assert!(at_source.is_silent(Duration::from_millis(1)));
        at_source.send(&["SET", "late", "1"]);
        assert!(at_source.is_silent(Duration::from_millis(200)));
        let mut other = Client::connect(redis.address);
        assert_eq!(other.told("CLIENT UNPAUSE"), "+OK");
        assert_eq!(at_source.reply().shown(), "+OK");
    }
}

#[test]
fn a_cluster_takes_over() {
    let Some(redis) = source(&[]) else {
        return;
    };
    let cluster = Cluster::start(3, Keeping::Nothing);
    let mut at_source = Client::connect(redis.address);
    fill(&mut at_source);
    let mut at_node = Client::connect(cluster.address(0));
    let mut following = begin(&redis, cluster.address(0), &[]);
    // A connection that watches keys gets those of all nodes.
    assert_eq!(at_node.told("WATCH kumiki:import"), "+OK");
    eventually("the position is there", || {
        assert!(!following.has_ended(), "{}", following.said());
        at_node.told("GET kumiki:import").contains("following")
    });
    for number in 0..50 {
        at_source.told(&format!("INCR key-of-counter:{number}"));
        at_source.told(&format!("EXPIRE key:{number} 5000"));
    }
    at_source.told("MSET one:1 x two:2 y three:3 z");
    following.signal(Signal::INT);
    let (_, said) = following.end();
    assert!(said.contains("stopped at offset"), "{said}");
    let (code, said) = import(&redis, cluster.address(1), &["--until-caught-up"]);
    assert_eq!(code, Some(0), "{said}");
    let expected = contents(&mut at_source, 0);
    let mut found = std::collections::BTreeMap::new();
    for node in 0..3 {
        found.extend(contents(&mut Client::connect(cluster.address(node)), 0));
    }
    for (key, value) in &expected {
        assert_eq!(found.get(key), Some(value), "{key}");
    }
    assert_eq!(found.len(), expected.len());
}

/// The stream comes late: when it does, deadlines have passed that the source had already changed, or not.
#[test]
fn only_the_source_decides_when_a_key_expires() {
    let Some(redis) = source(&[]) else {
        return;
    };
    let node = start_server(&["--ephemeral"]);
    let (mut at_source, mut at_node) = (
        Client::connect(redis.address),
        Client::connect(node.address),
    );
    for key in ["kept", "prolonged", "expired", "counted", "late"] {
        at_source.told(&format!("SET {key} 5"));
    }
    let mut following = begin(&redis, node.address, &[]);
    eventually("the copy is there", || {
        assert!(!following.has_ended(), "{}", following.said());
        at_node.told("GET kumiki:import").contains("following")
    });
    following.signal(Signal::STOP);
    // Nothing expires within a block.
    for command in [
        "MULTI",
        "PEXPIRE kept 200",
        "PEXPIRE prolonged 200",
        "PEXPIRE expired 200",
        "PEXPIRE counted 200",
        "PEXPIRE late 200",
        "PERSIST kept",
        "EXPIRE prolonged 1000",
        "INCR counted",
        "PERSIST counted",
        "INCR late",
        "PEXPIRE late 500000",
    ] {
        at_source.told(command);
    }
    let done = at_source.told("EXEC");
    assert!(!done.contains('-') && !done.contains('0'), "{done}");
    sleep(Duration::from_millis(400));
    assert_eq!(at_source.told("GET expired"), "nil");
    following.signal(Signal::CONT);
    eventually("the stream is applied", || {
        at_node.told("EXISTS expired") == "0"
    });
    following.signal(Signal::INT);
    let (_, said) = following.end();
    assert!(said.contains("stopped at offset"), "{said}");
    assert_eq!(
        at_node.told("MGET kept prolonged counted late"),
        "[5 5 6 6]"
    );
    let (code, said) = import(&redis, node.address, &["--until-caught-up"]);
    assert_eq!(code, Some(0), "{said}");
    assert_same(&redis, node.address);
}

/// The replies to every other transaction of the import are damaged on their way: it cannot know what has become of them.
#[test]
fn a_block_whose_reply_is_lost_is_not_applied_again() {
    let Some(redis) = source(&[]) else {
        return;
    };
    let node = start_server(&["--ephemeral"]);
    let (blocks, lost) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&lost);
    let relay = Relay::start(node.address, move |passing| {
        let is_block = !passing.to_listener && passing.bytes.starts_with(b"+OK\r\n+QUEUED");
        if is_block && blocks.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            passing.bytes.fill(b'\n');
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let relay = relay.expect("a relay");
    let (mut at_source, mut at_node) = (
        Client::connect(redis.address),
        Client::connect(node.address),
    );
    let mut following = begin(&redis, relay.address(), &[]);
    for number in 1..=20_u64 {
        at_source.told("INCR counter");
        at_source.told("RPUSH list x");
        eventually("the command is applied", || {
            assert!(!following.has_ended(), "{}", following.said());
            at_node.told("LLEN list").parse().unwrap_or(0) >= number
        });
        assert_eq!(at_node.told("MGET counter"), format!("[{number}]"));
    }
    assert!(lost.load(Ordering::Relaxed) > 3);
    following.signal(Signal::INT);
    drop(following.end());
    let (code, said) = import(&redis, node.address, &["--cut-over"]);
    assert_eq!(code, Some(0), "{said}");
    assert_same(&redis, node.address);
}

#[test]
fn what_cannot_go_on_is_explained_and_begun_again_on_request() {
    let Some(mut redis) = source(&["--repl-backlog-size", "16384"]) else {
        return;
    };
    let node = start_server(&["--ephemeral"]);
    let mut at_node = Client::connect(node.address);
    at_node.told("CONFIG SET maxmemory-policy allkeys-lru");
    let (code, said) = import(&redis, node.address, &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("noeviction"), "{said}");
    at_node.told("CONFIG SET maxmemory-policy noeviction");
    at_node.told("SET own 1");
    let (code, said) = import(&redis, node.address, &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("--replace"), "{said}");
    at_node.told("DEL own");
    let mut at_source = Client::connect(redis.address);
    at_source.told("SET a 1");
    at_source.told("SET doomed 1");
    let mut following = begin(&redis, node.address, &[]);
    await_key(&mut at_node, "doomed", &mut following);
    // The source deletes everything, and the position stays.
    at_source.told("FLUSHALL");
    at_source.told("SET again 1");
    await_key(&mut at_node, "again", &mut following);
    assert_eq!(at_node.told("EXISTS a doomed kumiki:import"), "1");
    at_source.told("SET doomed 1");
    await_key(&mut at_node, "doomed", &mut following);
    following.signal(Signal::INT);
    drop(following.end());
    // More is written than the source's backlog has.
    at_source.told("DEL doomed");
    let long = "x".repeat(10_000);
    for _ in 0..20 {
        at_source.call(&["SET", "long", &long]);
    }
    let (code, said) = import(&redis, node.address, &[]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("repl-backlog-size") && said.contains("--restart"),
        "{said}"
    );
    let more = ["--restart", "--until-caught-up"];
    let (code, said) = import(&redis, node.address, &more);
    assert_eq!(code, Some(0), "{said}");
    assert_same(&redis, node.address);
    // The source is gone for good: what has come is kept.
    at_node.told("FLUSHALL");
    at_source.told("SET b 1 PX 500000");
    let mut following = begin(&redis, node.address, &["--patience", "1s"]);
    await_key(&mut at_node, "b", &mut following);
    redis.kill();
    let (code, said) = following.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("could not be reached for 1 s"), "{said}");
    assert!(at_node.told("PTTL b").len() > 12);
    let (code, said) = import(&redis, node.address, &["--finish"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(at_node.told("PTTL b").len() <= 6);
    let (code, said) = import(&redis, node.address, &["--finish"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("no position"), "{said}");
}

#[test]
fn a_command_that_the_target_refuses_ends_the_import_for_good() {
    let Some(redis) = source(&[]) else {
        return;
    };
    let node = start_server(&["--ephemeral", "--max-value", "64kb", "--databases", "4"]);
    let mut at_source = Client::connect(redis.address);
    at_source.told("SET a 1");
    let mut at_node = Client::connect(node.address);
    let mut following = begin(&redis, node.address, &[]);
    await_key(&mut at_node, "a", &mut following);
    // A client that must not do so has written to the target.
    at_node.told("SET list 1");
    at_source.told("RPUSH list x");
    let (code, said) = following.end();
    assert_eq!(code, Some(1));
    assert!(
        said.contains("refuses RPUSH 'list': WRONGTYPE") && said.contains("--restart"),
        "{said}"
    );
    let (code, said) = import(&redis, node.address, &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("an earlier import failed"), "{said}");
    let mut following = begin(&redis, node.address, &["--restart"]);
    await_key(&mut at_node, "a", &mut following);
    eventually("the stream is followed", || {
        at_node.told("GET kumiki:import").contains("following")
    });
    at_source.call(&["SET", "long", &"x".repeat(100_000)]);
    let (code, said) = following.end();
    assert_eq!(code, Some(1));
    assert!(
        said.contains("'SET long'") && said.contains("--max-value"),
        "{said}"
    );
    // Nothing of it was applied, so that another import goes on once the target takes it.
    let (code, said) = import(&redis, node.address, &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("--max-value"), "{said}");
    at_source.told("DEL long");
    let mut following = begin(&redis, node.address, &["--restart"]);
    await_key(&mut at_node, "a", &mut following);
    eventually("the stream is followed", || {
        at_node.told("GET kumiki:import").contains("following")
    });
    at_source.told("SELECT 9");
    at_source.told("SET a 1");
    let (code, said) = following.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("a greater --databases"), "{said}");
}

#[test]
fn sources_that_refuse_are_explained() {
    let Some(redis) = source(&["--requirepass", "secret"]) else {
        return;
    };
    let node = start_server(&["--ephemeral"]);
    let to = node.address.to_string();
    let told = |url: &str, more: &[&str]| {
        let (code, out, errors) = run(&[&["import", url, "--to", &to], more].concat());
        assert_eq!(code, Some(1), "{out}");
        errors
    };
    let address = redis.address;
    assert!(told(&format!("redis://{address}"), &[]).contains("redis://user:password@host"));
    assert!(told(&format!("redis://:no@{address}"), &[]).contains("WRONGPASS"));
    assert!(told("redis://127.0.0.1:1", &["--patience", "1s"]).contains("cannot be reached"));
    assert!(told(&format!("redis://{address}/3"), &[]).contains("--by-scan"));
    let mut client = Client::connect(address);
    client.told("AUTH secret");
    client.told("ACL SETUSER reader on >pass ~* +@read +ping");
    let refused = told(&format!("redis://reader:pass@{address}"), &[]);
    assert!(refused.contains("+psync"), "{refused}");
    client.told("ACL SETUSER copier on >pass ~* +psync +replconf +info +client");
    client.told("SET a 1");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("password");
    testkit::files::write_private(&file, "pass\n");
    let file = file.to_str().expect("a path");
    let copier = format!("redis://copier@{address}");
    let args = [
        "import",
        &copier,
        "--to",
        &to,
        "--source-password-file",
        file,
        "--cut-over",
    ];
    let (code, out, errors) = run(&args);
    assert_eq!(code, Some(0), "{out}{errors}");
    assert_eq!(Client::connect(node.address).told("GET a"), "1");
    let Some(cluster) = source(&["--cluster-enabled", "yes"]) else {
        return;
    };
    let refused = told(&url(&cluster), &["--replace"]);
    assert!(refused.contains("a node of a Redis Cluster"), "{refused}");
}
