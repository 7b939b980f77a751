//! `kumiki import` while everything happens: writers of all types at the source, connections that are cut, imports that
//! are stopped, nodes that are killed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::peers::{self, Group};
use testkit::process::{Redis, Server};
use testkit::wait::SetOnDrop;
use testkit::{Client, eventually};

use crate::support::keys::contents;
use crate::support::process::{Background, serve};

/// The writers at the source.
const WRITERS: usize = 3;
/// The rounds of a run, each with a fault.
const ROUNDS: usize = 6;

/// Starts a node that keeps its data in a directory.
fn durable_node(address: SocketAddr, data: &Path) -> Server {
    let start = |address: SocketAddr, _: &Path| {
        let mut command = serve(address);
        command.arg("--data").arg(data);
        command
    };
    Server::insist_at(address, start).expect("it starts")
}

/// Returns a command on the writer's keys.
fn command_of(writer: usize, random: &mut fastrand::Rng) -> Vec<String> {
    let n = random.u32(..8);
    let (v, m) = (random.u32(..1000), random.u32(..20));
    let k = |kind: &str, n: u32| format!("{kind}:{writer}:{n}");
    let (s, c, l, set, z, h, x) = (
        k("string", n),
        k("counter", n),
        k("list", n),
        k("set", n),
        k("scores", n),
        k("hash", n),
        k("stream", n % 3),
    );
    let text = match random.u32(..44) {
        0 => format!("SET {s} value-{v}"),
        1 => format!("SET {s} value-{v} PX {}", 1 + v),
        2 => format!("SET {s} value-{v} EX 5000"),
        3 => format!("APPEND {s} {v}"),
        4 => format!("GETEX {s} PX {}", 1 + v),
        5 => format!("GETDEL {s}"),
        6..=9 => format!("INCR {c}"),
        10 => format!("INCRBY {c} {v}"),
        11 | 12 => format!("LPUSH {l} {v}"),
        13 => format!("RPUSH {l} {v} {m}"),
        14 => format!("LPOP {l}"),
        15 => format!("LMOVE {l} {} LEFT RIGHT", k("list", m % 8)),
        16 => format!("LTRIM {l} 0 30"),
        17 | 18 => format!("SADD {set} {m} member-{v}"),
        19 => format!("SPOP {set}"),
        20 => format!("SMOVE {set} {} {m}", k("set", m % 8)),
        21 | 22 => format!("ZADD {z} {v} member-{m}"),
        23 => format!("ZINCRBY {z} {v} member-{m}"),
        24 => format!("ZPOPMAX {z}"),
        25 => format!("HSET {h} field-{m} {v}"),
        26 => format!("HINCRBY {h} counter {v}"),
        27 => format!("HDEL {h} field-{m}"),
        28 => format!("XADD {x} * number {v}"),
        29 => format!("XADD {x} MAXLEN ~ 50 * number {v}"),
        30 => format!("XTRIM {x} MAXLEN {}", 10 + m),
        31 => format!("EXPIRE {l} {}", 100 + v),
        32 => format!("PEXPIRE {c} {}", 1 + v),
        33 => format!("PERSIST {c}"),
        34 => format!("PERSIST {s}"),
        35 => format!("DEL {h}"),
        36 => format!("RENAME {s} {}", k("string", m % 8)),
        37 => format!("COPY {z} {} REPLACE", k("scores", m % 8)),
        38 => format!("PFADD {} {v} {m}", k("visitors", n)),
        39 => format!("SETBIT {} {v} 1", k("bits", n)),
        40 => format!("SINTERSTORE {} {set} {}", k("set", m % 8), k("set", v % 8)),
        41 => format!("COPY {c} {c} DB 1 REPLACE"),
        42 => format!("PEXPIRE {set} {}", 1 + v),
        _ => format!("HINCRBYFLOAT {h} fraction {m}.25"),
    };
    text.split(' ').map(str::to_owned).collect()
}

/// Writes until the flag is set. Some commands are in blocks and scripts.
fn write(address: SocketAddr, writer: usize, stop: &AtomicBool) -> u64 {
    let mut client = Client::connect(address);
    // The source makes its writers wait.
    let patience = client.set_patience(Duration::from_secs(100));
    patience.expect("a limit");
    let mut random = fastrand::Rng::with_seed(writer as u64);
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        match random.u32(..20) {
            0 => {
                client.call(&["MULTI"]);
                for _ in 0..random.u32(1..5) {
                    client.call(&command_of(writer, &mut random));
                }
                client.call(&["EXEC"]);
            }
            1 => {
                let script = "redis.call('INCR', KEYS[1]) redis.call('LPUSH', KEYS[2], KEYS[1]) \
                              redis.call('PEXPIRE', KEYS[1], ARGV[1])";
                let (counter, list) = (format!("counter:{writer}:1"), format!("list:{writer}:1"));
                let time = random.u32(1..2000).to_string();
                client.call(&["EVAL", script, "2", &counter, &list, &time]);
            }
            _ => {
                client.call(&command_of(writer, &mut random));
            }
        }
        written += 1;
        // The target has to keep up, on any machine.
        sleep(Duration::from_millis(2));
    }
    written
}

#[test]
fn nothing_is_lost_or_applied_twice_under_faults() {
    let Some(program) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    let options = [
        "--repl-diskless-sync-delay",
        "0",
        "--repl-backlog-size",
        "100mb",
    ];
    let redis = Redis::start(&program, &options);
    let data = tempfile::tempdir().expect("a directory");
    let address = testkit::free_address().expect("a free port");
    let mut node = Some(durable_node(address, data.path()));
    let mut control = Client::connect(redis.address);
    let script = "for i = 1, 3000 do redis.call('SET', 'filled:' .. i, i, 'EX', 100000) end";
    control.call(&["EVAL", script, "0"]);
    let (url, to) = (format!("redis://{}", redis.address), address.to_string());
    let begin = |more: &[&str]| Background::start(&[&["import", &url, "--to", &to], more].concat());
    let stop = AtomicBool::new(false);
    scope(|threads| {
        let on_drop = SetOnDrop(&stop);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                threads.spawn({
                    let stop = &stop;
                    let address = redis.address;
                    move || write(address, writer, stop)
                })
            })
            .collect();
        let mut following = begin(&[]);
        let position = |following: &mut Background| {
            assert!(!following.has_ended(), "{}", following.said());
            let mut client = Client::try_connect(address).ok()?;
            let position = client.try_call(&["GET", "kumiki:import"]).ok()?.shown();
            let words: Vec<&str> = position.split(' ').collect();
            match words[..] {
                ["1", "following", _, offset, ..] => offset.parse::<u64>().ok(),
                _ => None,
            }
        };
        let advance = |following: &mut Background| {
            let mut first = None;
            eventually("the position goes on", || {
                match (position(following), first) {
                    (Some(now), None) => {
                        first = Some(now);
                        false
                    }
                    (Some(now), Some(before)) => now > before,
                    (None, _) => false,
                }
            });
        };
        for round in 0..ROUNDS {
            advance(&mut following);
            match round % 3 {
                // The connection to the source is cut.
                0 => {
                    control.told("CLIENT KILL TYPE replica");
                }
                // The import is killed, or stopped, and goes on.
                1 => {
                    let signal = if round == 1 {
                        Signal::KILL
                    } else {
                        Signal::INT
                    };
                    following.signal(signal);
                    drop(following.end());
                    following = begin(&[]);
                }
                // The node is killed.
                _ => {
                    node.take().expect("it runs").kill();
                    sleep(Duration::from_millis(100));
                    node = Some(durable_node(address, data.path()));
                }
            }
        }
        advance(&mut following);
        following.signal(Signal::INT);
        drop(following.end());
        let begun = Instant::now();
        let (code, said) = begin(&["--cut-over"]).end();
        assert_eq!(code, Some(0), "{said}");
        eprintln!("cut over in {:?}: {said}", begun.elapsed());
        // Short deadlines of the last moments.
        sleep(Duration::from_millis(2500));
        let mut at_node = Client::connect(address);
        for database in [0, 1] {
            let expected = contents(&mut control, database);
            let found = contents(&mut at_node, database);
            assert!(database == 1 || expected.len() > 3000, "{}", expected.len());
            for (key, value) in &expected {
                assert_eq!(found.get(key), Some(value), "{key} of database {database}");
            }
            assert_eq!(found.len(), expected.len(), "database {database}");
        }
        drop(on_drop);
        assert_eq!(control.told("CLIENT UNPAUSE"), "+OK");
        for writer in writers {
            assert!(writer.join().expect("a writer") > 100);
        }
    });
}

#[test]
fn a_file_comes_whole_although_the_node_is_killed() {
    let Some(program) = peers::program(Group::Redis, "redis-server") else {
        return;
    };
    let redis = Redis::start(&program, &[]);
    let mut at_source = Client::connect(redis.address);
    let script = "for i = 1, 60000 do redis.call('SET', 'key:' .. i, i) end \
                  for i = 1, 3000 do redis.call('RPUSH', 'list:' .. i, 'a', i) end";
    at_source.call(&["EVAL", script, "0"]);
    assert_eq!(at_source.told("SAVE"), "+OK");
    let directory = match at_source.call(&["CONFIG", "GET", "dir"]) {
        testkit::Reply::Array(items) => items[1].shown(),
        other => panic!("{other:?}"),
    };
    let file = Path::new(&directory).join("dump.rdb");
    let data = tempfile::tempdir().expect("a directory");
    let address = testkit::free_address().expect("a free port");
    let mut node = durable_node(address, data.path());
    let (file, to) = (file.to_str().expect("a path"), address.to_string());
    let mut importing = Background::start(&["import", file, "--to", &to]);
    let keys = |client: &mut Client| client.told("DBSIZE").parse::<u64>().unwrap_or(0);
    for kill in 1..=2 {
        let mut client = Client::connect(address);
        eventually("some keys are there", || keys(&mut client) > kill * 500);
        if importing.has_ended() {
            break;
        }
        node.kill();
        node = durable_node(address, data.path());
    }
    let (code, said) = importing.end();
    assert_eq!(code, Some(0), "{said}");
    let mut at_node = Client::connect(address);
    assert_eq!(keys(&mut at_node), 63_000);
    for key in [1, 999, 30_000, 60_000] {
        assert_eq!(at_node.told(&format!("GET key:{key}")), key.to_string());
    }
    for key in 1..=3000 {
        let found = at_node.told(&format!("LRANGE list:{key} 0 -1"));
        assert_eq!(found, format!("[a {key}]"));
    }
    drop(node);
}
