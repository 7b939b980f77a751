//! Commands, each answered as one server would answer it.

use crate::redis::support::{Proxy, connect, machines, redis_server};
use testkit::Reply;
use testkit::process::Redis;

/// Sent to a single Redis server, and through the proxy to two: the replies are the same.
const SCRIPT: &[&str] = &[
    "SET a 1",
    "GET a",
    "GET none",
    "INCR a",
    "APPEND b hello",
    "STRLEN b",
    "MSET a 1 b 2 c 3 d 4 e 5 f 6",
    "MGET a b c none d e f a",
    "EXISTS a b none a",
    "DEL a b none",
    "UNLINK c none",
    "TOUCH d e",
    "DBSIZE",
    "LPUSH l 1 2 3",
    "LRANGE l 0 -1",
    "HSET h x 1 y 2",
    "HGETALL h",
    "INCR h",
    "ZADD z 1 a 2 b",
    "ZRANGE z 0 -1 WITHSCORES",
    "OBJECT ENCODING d",
    "TYPE l",
    "EVAL return{KEYS[1],ARGV[1]} 1 d x",
    "PING",
    "PING text",
    "ECHO text",
    "SELECT 0",
    "GET",
    "GET a b",
    "NOSUCH a b",
    "MULTI",
    "EXEC",
    "MULTI",
    "SET d 7",
    "INCR d",
    "GET d",
    "EXEC",
    "MULTI",
    "SET d",
    "GET d",
    "EXEC",
    "MULTI",
    "GET d",
    "DISCARD",
    "EXEC",
    "DISCARD",
    "MULTI",
    "MULTI",
    "WATCH d",
    "EXEC",
    "WATCH d",
    "MULTI",
    "INCR d",
    "EXEC",
    "UNWATCH",
    "CLIENT GETNAME",
    "CLIENT SETNAME me",
    "CLIENT GETNAME",
    "CLIENT NOSUCH x",
    "SCRIPT NOSUCH",
    "CONFIG NOSUCH",
    "CONFIG",
    "CONFIG GET appendonly",
    "CONFIG GET save",
    "RESET",
    "FLUSHALL",
    "DBSIZE",
];

#[test]
fn two_servers_answer_as_one() {
    let Some(program) = redis_server() else {
        return;
    };
    let servers = [Redis::start(&program, &[]), Redis::start(&program, &[])];
    let alone = Redis::start(&program, &[]);
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    for runtime in machines() {
        let proxy = Proxy::start(runtime, &addresses);
        assert_eq!(proxy.running().kind(), kumiki_proxy::NodeKind::RedisServers);
        for protocol in ["2", "3"] {
            let mut one = connect(alone.address);
            let mut two = connect(proxy.address);
            one.call(&["HELLO", protocol]);
            two.call(&["HELLO", protocol]);
            for command in SCRIPT {
                assert_eq!(two.told(command), one.told(command), "{command}");
            }
            // The same without waiting for replies.
            for client in [&mut one, &mut two] {
                client.call(&["HELLO", protocol]);
                for command in SCRIPT {
                    client.send(&command.split(' ').collect::<Vec<_>>());
                }
            }
            for command in SCRIPT {
                assert_eq!(
                    two.reply().shown(),
                    one.reply().shown(),
                    "{command}, pipelined"
                );
            }
        }
    }
}

#[test]
fn keys_of_all_servers_are_listed() {
    let Some(program) = redis_server() else {
        return;
    };
    let servers: Vec<Redis> = (0..3).map(|_| Redis::start(&program, &[])).collect();
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let proxy = Proxy::start(|_| {}, &addresses);
    let mut client = connect(proxy.address);
    let mut expected = Vec::new();
    for number in 0..500 {
        let key = format!("key{number:03}");
        assert_eq!(client.told(&format!("SET {key} {number}")), "+OK");
        expected.push(key);
    }
    let mut on_each = Vec::new();
    for server in &servers {
        let size = connect(server.address).told("DBSIZE");
        on_each.push(size.parse::<usize>().expect("a number"));
    }
    assert!(on_each.iter().all(|&size| size > 100), "{on_each:?}");
    let sorted = |value: Reply| match value {
        Reply::Array(values) => {
            let mut keys: Vec<String> = values.iter().map(Reply::shown).collect();
            keys.sort();
            keys
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(sorted(client.call(&["KEYS", "key*"])), expected);
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let Reply::Array(reply) = client.call(&["SCAN", &cursor, "COUNT", "50"]) else {
            panic!("no list");
        };
        cursor = reply[0].shown();
        found.extend(sorted(reply[1].clone()));
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found, expected);
}

#[test]
fn large_values_pass_whole() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    for runtime in machines() {
        let proxy = Proxy::start(runtime, &[server.address]);
        let mut client = connect(proxy.address);
        for len in [1, 4095, 4096, 100_000, 10_000_000] {
            let value = "x".repeat(len);
            assert_eq!(client.call(&["SET", "large", &value]).shown(), "+OK");
            assert_eq!(client.call(&["GET", "large"]).shown(), value);
        }
    }
}

#[test]
fn clients_select_databases() {
    let Some(program) = redis_server() else {
        return;
    };
    let servers = [0, 1].map(|_| Redis::start(&program, &[]));
    let addresses = servers.each_ref().map(|server| server.address);
    for runtime in machines() {
        let proxy = Proxy::start(runtime, &addresses);
        let mut zero = connect(proxy.address);
        let mut one = connect(proxy.address);
        let keys = ["a", "b", "c", "d"];
        for key in keys {
            assert_eq!(zero.told(&format!("SET {key} zero")), "+OK");
        }
        // In one packet: each command is executed in the database that was selected before it.
        for command in ["SELECT 1", "SET a one", "SELECT 2", "SET a two", "SELECT 1"] {
            one.send(&command.split(' ').collect::<Vec<_>>());
        }
        for _ in 0..5 {
            assert_eq!(one.reply().shown(), "+OK");
        }
        for (command, reply) in [
            ("MGET a b c d", "[one nil nil nil]"),
            ("DBSIZE", "1"),
            ("KEYS *", "[a]"),
            ("SCAN 0 COUNT 100", "[0 [a]]"),
            ("MULTI", "+OK"),
            ("SET b 1", "+QUEUED"),
            ("GET b", "+QUEUED"),
            ("EXEC", "[+OK 1]"),
            ("WATCH a", "+OK"),
            (
                "SELECT 2",
                "-ERR the proxy selects no other database while keys are watched",
            ),
            ("SELECT 1", "+OK"),
            ("UNWATCH", "+OK"),
            ("SELECT 16", "-ERR DB index is out of range"),
            ("SELECT x", "-ERR value is not an integer or out of range"),
            ("SELECT 2", "+OK"),
            ("GET a", "two"),
            ("SELECT 1", "+OK"),
            ("FLUSHDB", "+OK"),
            ("DBSIZE", "0"),
        ] {
            let told = one.told(command);
            // The cursor names a node.
            assert!(
                told == reply || command.starts_with("SCAN"),
                "{command}: {told}"
            );
        }
        assert_eq!(zero.told("DBSIZE"), "4");
        assert!(one.told("CLIENT INFO").contains(" db=1 "));
        assert_eq!(one.told("RESET"), "+RESET");
        assert_eq!(one.told("MGET a b c d"), "[zero zero zero zero]");
        assert_eq!(one.told("FLUSHALL"), "+OK");
    }
}

#[test]
fn what_is_about_one_node_is_refused() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    let proxy = Proxy::start(|_| {}, &[server.address]);
    let mut client = connect(proxy.address);
    for command in ["MONITOR", "SHUTDOWN", "CONFIG SET save x", "DEBUG SLEEP 0"] {
        let told = client.told(command);
        assert!(
            told.starts_with("-ERR it is about one node") || told.contains("proxy"),
            "{told}"
        );
    }
    let info = client.told("INFO");
    assert!(
        info.contains("proxy_before:redis-servers") && info.contains("node0:addr="),
        "{info}"
    );
}

#[test]
fn passwords_are_asked_for_and_given() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &["--requirepass", "inner"]);
    let mut config =
        kumiki_proxy::Config::new(kumiki_proxy::Nodes::Redis(vec![server.address.into()]));
    config.listen = "127.0.0.1:0".parse().expect("an address");
    let Err(refused) = kumiki_proxy::start(&config) else {
        panic!("it does not know the password");
    };
    assert!(refused.to_string().contains("NOAUTH"), "{refused}");
    let proxy = Proxy::start(
        |config| {
            config.node_password = Some("inner".to_owned());
            config.password = Some("outer".to_owned());
        },
        &[server.address],
    );
    let mut client = connect(proxy.address);
    assert_eq!(client.told("GET a"), "-NOAUTH Authentication required.");
    assert!(client.told("AUTH inner").starts_with("-WRONGPASS"));
    assert!(
        client
            .told("HELLO 3 AUTH default x")
            .starts_with("-WRONGPASS")
    );
    assert_eq!(client.told("AUTH outer"), "+OK");
    assert!(
        client
            .told("INFO clients")
            .contains("acl_access_denied_auth:2")
    );
    assert_eq!(client.told("SET a 1"), "+OK");
    let mut client = connect(proxy.address);
    let greeted = client.call(&["HELLO", "3", "AUTH", "default", "outer"]);
    assert!(matches!(greeted, Reply::Map(_)), "{greeted:?}");
    assert_eq!(client.told("GET a"), "1");
}

#[test]
fn what_is_no_request_is_answered_and_ends_the_connection() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    let proxy = Proxy::start(|_| {}, &[server.address]);
    for nonsense in ["*1\r\n:1\r\n", "*1\r\n$-5\r\n", "*99999999999\r\n"] {
        let mut client = connect(proxy.address);
        client.send_raw(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
        client.send_raw(nonsense.as_bytes());
        client.reply();
        let told = client.reply().shown();
        assert!(told.starts_with("-ERR Protocol error"), "{told}");
        assert!(client.try_reply().is_err());
    }
    // Lines of words are understood as well.
    let mut client = connect(proxy.address);
    client.send_raw(b"SET inline \"two words\"\r\nGET inline\r\n");
    assert_eq!(client.reply().shown(), "+OK");
    assert_eq!(client.reply().shown(), "two words");
}
