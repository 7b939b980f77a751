//! Scripts, where `redis_compare` of the program does not reach: other clients meanwhile, kills, conflicts,
//! keys of other nodes, durability, and limits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kumiki_server::{Config, Durability};
use testkit::{Client, Reply, eventually};

use crate::support::nodes::nodes;
use crate::support::{bulk, config, durable, ephemeral, error, int, ok, replica, status};

/// A server with one thread, which serves all clients.
fn one_thread() -> Config {
    Config {
        threads: 1,
        ..config()
    }
}

/// Sends a script without keys and arguments.
fn send(client: &mut Client, script: &str) {
    client.send(&["EVAL", script, "0"]);
}

fn eval(client: &mut Client, script: &str) -> Reply {
    send(client, script);
    client.reply()
}

/// Ends the scripts that run.
fn kill(client: &mut Client) {
    eventually("there is a script to end", || {
        client.call(&["SCRIPT", "KILL"]) == ok()
    });
}

#[test]
fn other_clients_are_served_while_scripts_run_and_can_end_them() {
    let server = ephemeral(one_thread());
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(other.call(&["SET", "a", "1", "PX", "20"]), ok());
    let endless = [
        "redis.call('set', 'w', 1) while true do end",
        "local f = function() redis.call('incr', 'w') end while true do pcall(f) end",
        "local f = function() while true do pcall(error, 'x') end end while true do pcall(f) end",
        "while true do coroutine.wrap(function() redis.call('incr', 'w') end)() end",
        "redis.call('publish', 'c', 'm') while true do redis.pcall('nosuch') end",
        "local i = 0 while true do i = i + 1 redis.call('get', 'absent' .. i) end",
    ];
    for script in endless {
        send(&mut client, script);
        for number in 0..50 {
            assert_eq!(other.call(&["SET", "b", &number.to_string()]), ok());
        }
        kill(&mut other);
        let killed = client.reply();
        let text = error(&killed);
        assert!(
            text.starts_with("ERR Script killed by user with SCRIPT KILL."),
            "{script}: {text}"
        );
        assert_eq!(
            other.call(&["MGET", "w", "b"]),
            Reply::Array(vec![Reply::Null, bulk("49")])
        );
        let idle = other.call(&["SCRIPT", "KILL"]);
        assert!(error(&idle).starts_with("NOTBUSY"), "{idle:?}");
    }
    assert_eq!(
        other.call(&["GET", "a"]),
        Reply::Null,
        "it has expired meanwhile"
    );
    // The interpreter is as good as new.
    assert_eq!(eval(&mut client, "return redis.call('incr', 'w')"), int(1));
}

#[test]
fn a_block_whose_script_is_killed_does_not_take_effect() {
    let server = ephemeral(one_thread());
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(client.call(&["MULTI"]), ok());
    assert_eq!(client.call(&["SET", "a", "1"]), status("QUEUED"));
    assert_eq!(eval(&mut client, "while true do end"), status("QUEUED"));
    client.send(&["EXEC"]);
    kill(&mut other);
    let discarded = client.reply();
    let text = "EXECABORT Transaction discarded because of: ERR Script killed by user";
    assert!(error(&discarded).starts_with(text), "{discarded:?}");
    assert_eq!(other.call(&["GET", "a"]), Reply::Null);
}

#[test]
fn a_script_ends_with_its_connection() {
    let server = ephemeral(one_thread());
    let (mut client, mut other) = (server.client(), server.client());
    let Reply::Int(id) = client.call(&["CLIENT", "ID"]) else {
        panic!("it has a number");
    };
    send(&mut client, "while true do end");
    eventually("it runs", || {
        let list = other.call(&["CLIENT", "LIST", "ID", &id.to_string()]);
        matches!(list, Reply::Bulk(text) if String::from_utf8_lossy(&text).contains("cmd=eval "))
    });
    assert_eq!(
        other.call(&["CLIENT", "KILL", "ID", &id.to_string()]),
        int(1)
    );
    assert!(client.is_closed());
    let idle = other.call(&["SCRIPT", "KILL"]);
    assert!(error(&idle).starts_with("NOTBUSY"), "{idle:?}");
}

#[test]
fn concurrent_scripts_lose_no_increment() {
    const ROUNDS: i64 = 200;
    let server = ephemeral(config());
    // Between the read and the write other threads have time to interfere.
    let script = "local n = tonumber(redis.call('get', KEYS[1]) or '0') \
        for i = 1, tonumber(ARGV[1]) do end \
        redis.call('set', KEYS[1], n + 1) return n + 1";
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.client();
                for round in 0..ROUNDS {
                    let pause = if round % 20 == 0 { "300000" } else { "100" };
                    let sum = client.call(&["EVAL", script, "1", "n", pause]);
                    assert!(matches!(sum, Reply::Int(1..)), "{sum:?}");
                }
            });
        }
    });
    assert_eq!(
        server.client().call(&["GET", "n"]),
        bulk(&(4 * ROUNDS).to_string())
    );
}

#[test]
fn a_long_script_on_a_popular_key_comes_to_its_end() {
    let server = ephemeral(config());
    let mut client = server.client();
    let done = AtomicBool::new(false);
    let script = "local n = redis.call('get', 'n') \
        local other = redis.call('get', 'absent') \
        for i = 1, 1000000 do end \
        redis.call('set', 'absent', 'now') redis.call('set', 'n', n + 1) return other";
    assert_eq!(client.call(&["SET", "n", "0"]), ok());
    let others: i64 = std::thread::scope(|scope| {
        let increments = |key: &'static str| {
            let (server, done) = (&server, &done);
            move || {
                let (mut client, mut count) = (server.client(), 0);
                while !done.load(Ordering::Relaxed) {
                    assert!(matches!(client.call(&["INCR", key]), Reply::Int(_)));
                    count += 1;
                }
                count
            }
        };
        let others = ["n", "n", "m"].map(|key| scope.spawn(increments(key)));
        assert_eq!(eval(&mut client, script), Reply::Null);
        done.store(true, Ordering::Relaxed);
        let counts = others.map(|thread| thread.join().expect("it has counted"));
        counts[0] + counts[1]
    });
    assert_eq!(client.call(&["GET", "n"]), bulk(&(others + 1).to_string()));
    assert_eq!(client.call(&["GET", "absent"]), bulk("now"));
}

#[test]
fn scripts_see_and_change_keys_of_all_nodes_at_one_moment() {
    let nodes = nodes(3);
    let keys: Vec<String> = (1..=3).map(|node| nodes.key_of(node, "key")).collect();
    let mut client = nodes.client(1);
    let script = "for i, key in ipairs(ARGV) do redis.call('set', key, i) end \
        return redis.call('mget', unpack(ARGV))";
    let call = |client: &mut Client, script: &str| {
        let args: Vec<&str> = keys.iter().map(String::as_str).collect();
        client.call(&[&["EVAL", script, "0"], &args[..]].concat())
    };
    let values = Reply::Array(["1", "2", "3"].map(bulk).to_vec());
    assert_eq!(call(&mut client, script), values);
    for key in &keys {
        assert_ne!(nodes.get(key), Reply::Null);
    }
    let moves = "redis.call('decr', ARGV[2]) redis.call('incr', ARGV[3]) return redis.call('mget', unpack(ARGV))";
    let sums = "local sum = 0 for _, key in ipairs(ARGV) do sum = sum + redis.call('get', key) end return sum";
    std::thread::scope(|scope| {
        for node in 1..=3 {
            let (nodes, call) = (&nodes, &call);
            scope.spawn(move || {
                let mut client = nodes.client(node);
                for _ in 0..20 {
                    assert!(matches!(call(&mut client, moves), Reply::Array(_)));
                    assert_eq!(call(&mut client, sums), int(6));
                }
            });
        }
    });
    assert_eq!(nodes.get(&keys[1]), bulk("-58"));
    // A client that names keys of another node is sent there.
    let moved = nodes.client(1).call(&["EVAL", "return 1", "1", &keys[1]]);
    assert!(error(&moved).starts_with("MOVED "), "{moved:?}");
}

#[test]
fn scripts_run_on_a_replicated_partition() {
    let replica = replica::alone();
    let mut client = replica.client();
    for sum in 1..=3 {
        assert_eq!(
            eval(&mut client, "return redis.call('incr', 'a')"),
            int(sum)
        );
    }
    assert_eq!(
        eval(&mut client, "return redis.call('get', 'a')"),
        bulk("3")
    );
    replica.end_member();
    let refused = eval(&mut client, "return redis.call('incr', 'a')");
    assert!(error(&refused).starts_with("CLUSTERDOWN "), "{refused:?}");
}

#[test]
fn replies_and_messages_wait_until_the_script_is_durable() {
    let served = durable(Durability::Group);
    let (mut client, mut subscriber) = (served.client(), served.client());
    subscriber.call(&["SUBSCRIBE", "c"]);
    served.gate.close();
    let script = "redis.call('set', 'a', 1) redis.call('publish', 'c', 'm') return 'done'";
    send(&mut client, script);
    let mut other = served.client();
    assert_eq!(other.call(&["PUBLISH", "c", "other"]), int(1));
    let message = |text| Reply::Array(["message", "c", text].map(bulk).to_vec());
    assert_eq!(subscriber.reply(), message("other"));
    for waiting in [&mut client, &mut subscriber] {
        assert!(waiting.is_silent(Duration::from_millis(50)));
    }
    served.gate.open();
    assert_eq!(client.reply(), bulk("done"));
    assert_eq!(subscriber.reply(), message("m"));
}

#[test]
fn a_script_that_takes_too_much_memory_ends_with_an_error() {
    let mut config = one_thread();
    config.limits.script_memory = 4 << 20;
    let server = ephemeral(config);
    let mut client = server.client();
    for script in [
        "local t = {} while true do t[#t + 1] = #t end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 100000000)",
    ] {
        let refused = eval(&mut client, script);
        assert!(error(&refused).contains("not enough memory"), "{refused:?}");
        assert_eq!(eval(&mut client, "return 'as before'"), bulk("as before"));
    }
}

#[test]
fn scripts_are_refused_when_there_is_no_memory_left() {
    let server = ephemeral(Config {
        maxmemory: 1,
        ..one_thread()
    });
    let mut client = server.client();
    // The use of memory is looked at every few milliseconds.
    eventually("it is full", || {
        let refused = eval(&mut client, "return redis.call('set', 'a', 1)");
        matches!(refused, Reply::Error(text) if text.starts_with("OOM command not allowed"))
    });
    let refused = eval(&mut client, "#!lua\nreturn 1");
    assert!(
        error(&refused).starts_with("OOM allow-oom flag is not set"),
        "{refused:?}"
    );
    assert_eq!(
        eval(
            &mut client,
            "#!lua flags=no-writes\nreturn redis.call('get', 'other')"
        ),
        Reply::Null
    );
}
