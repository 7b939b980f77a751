//! Client-side caching through the proxy: before one Redis server, before several, before a cluster, and before
//! nodes that fail.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::slot;
use testkit::process::Redis;
use testkit::{CachedReader, Client, Reply, SetOnDrop, eventually};

use crate::redis::clusters::{cluster, move_slot};
use crate::redis::scripted::{NO_CLUSTER, commands};
use crate::redis::support::{PATIENCE, Proxy, connect, machines, redis_server, scripted};

/// For how long a client must get nothing to count as waiting.
const WHILE: Duration = Duration::from_millis(100);

/// Returns a client of RESP3 with client-side caching.
fn caching(address: SocketAddr, options: &str) -> Client {
    let mut client = connect(address);
    client.call(&["HELLO", "3"]);
    let begun = client.told(format!("CLIENT TRACKING ON {options}").trim_end());
    assert_eq!(begun, "+OK");
    client
}

/// Returns the next news for a client: the keys.
#[track_caller]
fn news(client: &mut Client) -> String {
    match client.reply() {
        Reply::Push(parts) if parts[0].shown() == "invalidate" => parts[1].shown(),
        other => panic!("{other:?} is no news"),
    }
}

/// The replies are those of the server, in both versions of the protocol.
#[test]
fn replies_are_those_of_a_server() {
    let Some(program) = redis_server() else {
        return;
    };
    let (alone, server) = (Redis::start(&program, &[]), Redis::start(&program, &[]));
    let script = [
        "CLIENT TRACKINGINFO",
        "CLIENT GETREDIR",
        "CLIENT CACHING YES",
        "CLIENT TRACKING MAYBE",
        "CLIENT TRACKING ON NOSUCH",
        "CLIENT TRACKING ON REDIRECT",
        "CLIENT TRACKING ON REDIRECT x",
        "CLIENT TRACKING ON REDIRECT 0",
        "CLIENT TRACKING ON REDIRECT 9999999",
        "CLIENT TRACKING ON PREFIX a",
        "CLIENT TRACKING ON BCAST OPTIN",
        "CLIENT TRACKING ON OPTIN OPTOUT",
        "CLIENT TRACKING ON BCAST PREFIX a PREFIX ab",
        "CLIENT TRACKING OFF",
        "CLIENT TRACKING ON",
        "CLIENT TRACKINGINFO",
        "CLIENT GETREDIR",
        "CLIENT CACHING YES",
        "CLIENT TRACKING ON BCAST",
        "CLIENT TRACKING ON NOLOOP",
        "CLIENT TRACKINGINFO",
        "CLIENT TRACKING OFF",
        "CLIENT TRACKING ON OPTIN",
        "CLIENT TRACKING ON OPTOUT",
        "CLIENT CACHING NO",
        "CLIENT CACHING MAYBE",
        "CLIENT CACHING YES",
        "CLIENT TRACKINGINFO",
        "GET nothing",
        "CLIENT TRACKINGINFO",
        "CLIENT TRACKING OFF",
        "CLIENT TRACKING ON BCAST PREFIX a PREFIX b",
        "CLIENT TRACKING ON BCAST PREFIX c",
        "CLIENT TRACKING ON BCAST PREFIX cd",
        "CLIENT TRACKINGINFO",
        "RESET",
        "CLIENT TRACKINGINFO",
    ];
    for runtime in machines() {
        let proxy = Proxy::start(runtime, &[server.address]);
        for hello in ["HELLO 2", "HELLO 3"] {
            let mut clients = [alone.address, proxy.address].map(connect);
            clients
                .iter_mut()
                .for_each(|client| drop(client.told(hello)));
            for command in script {
                let [expected, told] = &mut clients;
                assert_eq!(told.told(command), expected.told(command), "{command}");
            }
        }
    }
}

#[test]
fn clients_are_told_of_what_they_have_read() {
    let Some(program) = redis_server() else {
        return;
    };
    let servers = [(); 2].map(|()| Redis::start(&program, &[]));
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    for runtime in machines() {
        let proxy = Proxy::start(runtime, &addresses);
        let mut writer = connect(proxy.address);
        let mut reader = caching(proxy.address, "");
        // `bar` is at the first server, `foo` at the second one.
        assert_eq!(reader.call(&["MGET", "foo", "bar"]).shown(), "[nil nil]");
        for key in ["foo", "bar"] {
            for _ in 0..2 {
                assert_eq!(writer.told(&format!("SET {key} 1")), "+OK");
            }
            assert_eq!(news(&mut reader), format!("[{key}]"));
        }
        // Also of changes that do not come through the proxy, and of blocks.
        for command in ["MULTI", "GET foo", "STRLEN foo", "EXEC"] {
            reader.told(command);
        }
        connect(servers[1].address).told("APPEND foo x");
        assert_eq!(news(&mut reader), "[foo]");
        assert_eq!(reader.told("GET foo"), "1x");
        writer.told("FLUSHALL");
        // Each server tells of it.
        assert_eq!([news(&mut reader), news(&mut reader)], ["nil", "nil"]);
        // The client's own changes.
        reader.told("GET foo");
        assert_eq!(reader.told("SET foo 2"), "+OK");
        assert_eq!(news(&mut reader), "[foo]");
        assert!(reader.is_silent(WHILE));

        let mut all = caching(proxy.address, "BCAST PREFIX user: PREFIX f");
        let mut chosen = caching(proxy.address, "OPTIN");
        chosen.told("GET foo");
        chosen.told("CLIENT CACHING YES");
        chosen.told("GET bar");
        for key in ["user:1", "foo", "bar"] {
            writer.told(&format!("SET {key} 3"));
        }
        let mut told = [news(&mut all), news(&mut all)];
        told.sort();
        assert_eq!(told, ["[foo]", "[user:1]"]);
        assert_eq!(news(&mut chosen), "[bar]");

        let mut target = connect(proxy.address);
        let id = target.told("CLIENT ID");
        target.told("SUBSCRIBE __redis__:invalidate");
        let mut reader = connect(proxy.address);
        assert_eq!(
            reader.told(&format!("CLIENT TRACKING ON REDIRECT {id}")),
            "+OK"
        );
        assert_eq!(reader.told("CLIENT GETREDIR"), id);
        reader.told("GET foo");
        writer.told("SET foo 4");
        let message = "[message __redis__:invalidate [foo]]";
        assert_eq!(target.reply().shown(), message);
        reader.told("GET foo");
        drop(target);
        let mut is_broken = |reader: &mut Client| {
            reader.told("GET foo");
            writer.told("SET foo 5");
            reader
                .told("CLIENT TRACKINGINFO")
                .contains("broken_redirect")
        };
        eventually("the target is gone", || is_broken(&mut reader));
        writer.told("FLUSHALL");
    }
}

/// The values that clients keep are those of the server soon after the last change, and never older than
/// what they have seen.
#[test]
fn no_client_keeps_an_old_value() {
    const KEYS: usize = 20;
    const ROUNDS: usize = 60;
    let Some(program) = redis_server() else {
        return;
    };
    let servers = [(); 2].map(|()| Redis::start(&program, &[]));
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    for runtime in machines() {
        let proxy = Proxy::start(
            |config| {
                runtime(config);
                config.limits.tracked_keys = KEYS / 2;
            },
            &addresses,
        );
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = SetOnDrop(&is_over);
            let options = ["", "BCAST", "BCAST PREFIX key:", "NOLOOP", "OPTOUT"];
            let readers: Vec<_> = options
                .into_iter()
                .map(|options| {
                    let (address, is_over) = (proxy.address, &is_over);
                    scope.spawn(move || {
                        let mut reader = CachedReader::connect(address, options);
                        let mut seen = [0; KEYS];
                        let mut read = |reader: &mut CachedReader, key: usize| {
                            let value = reader.read(&format!("key:{key}")).expect("a value");
                            let value: usize = value.parse().unwrap_or(0);
                            assert!(value >= seen[key], "key:{key} {options}");
                            seen[key] = value;
                            value
                        };
                        while !is_over.load(Ordering::SeqCst) {
                            for key in 0..KEYS {
                                read(&mut reader, key);
                            }
                            reader.take_news(Duration::from_millis(1)).expect("news");
                        }
                        eventually("every value is the last one", || {
                            reader.take_news(Duration::from_millis(1)).expect("news");
                            (0..KEYS).all(|key| read(&mut reader, key) == ROUNDS)
                        });
                    })
                })
                .collect();
            let mut writers = [proxy.address, addresses[0], addresses[1]].map(connect);
            for round in 1..=ROUNDS {
                for key in 0..KEYS {
                    let (key, value) = (format!("key:{key}"), round.to_string());
                    let words = ["SET", &key, &value];
                    // Half of the changes do not come through the proxy.
                    let server = usize::from(slot::of(words[1].as_bytes()) >= 8192);
                    let writer = (round % 2) * (1 + server);
                    assert_eq!(writers[writer].call(&words).shown(), "+OK");
                }
            }
            is_over.store(true, Ordering::SeqCst);
            readers
                .into_iter()
                .for_each(|reader| reader.join().expect("it sees the last values"));
        });
        connect(proxy.address).told("FLUSHALL");
    }
}

#[test]
fn a_lost_node_ends_what_clients_keep() {
    let Some(program) = redis_server() else {
        return;
    };
    let mut server = Redis::start(&program, &["--requirepass", "inner"]);
    let proxy = Proxy::start(
        |config| config.node_password = Some("inner".to_owned()),
        &[server.address],
    );
    let mut reader = caching(proxy.address, "");
    reader.told("GET foo");
    server.restart();
    assert_eq!(news(&mut reader), "nil");
    let mut writer = connect(proxy.address);
    let mut number = 0;
    eventually("the proxy gets news again", || {
        number += 1;
        assert_eq!(writer.told(&format!("SET foo {number}")), "+OK");
        reader.send(&["GET", "foo"]);
        let value = loop {
            match reader.reply() {
                Reply::Push(_) => {}
                value => break value.shown(),
            }
        };
        assert_eq!(value, number.to_string());
        // Without news, an invalidation behind the reply says that the client cannot keep the value.
        let is_told = reader.has_reply(WHILE).expect("it is connected");
        reader.set_patience(PATIENCE).expect("a limit");
        !is_told
    });
    writer.told("SET foo last");
    assert_eq!(news(&mut reader), "[foo]");
    // With a node that cannot be reached, client-side caching begins all the same.
    server.kill();
    assert_eq!(news(&mut reader), "nil");
    drop(reader);
    assert_eq!(caching(proxy.address, "").told("CLIENT GETREDIR"), "0");
}

#[test]
fn the_news_follow_a_slot() {
    let Some(program) = redis_server() else {
        return;
    };
    let nodes = cluster(&program);
    let proxy = Proxy::start(|config| config.network_threads = 2, &[nodes[1].address]);
    let mut reader = CachedReader::connect(proxy.address, "");
    let mut writer = connect(proxy.address);
    for key in ["foo", "bar", "hello"] {
        assert_eq!(reader.read(key).expect("a value"), "nil");
        assert_eq!(writer.told(&format!("SET {key} 1")), "+OK");
        eventually("the client gets the news", || {
            reader.take_news(Duration::from_millis(1)).expect("news");
            reader.read(key).expect("a value") == "1"
        });
    }
    // A slot without keys moves, and what was read there changes.
    assert_eq!(reader.read("key7").expect("a value"), "nil");
    move_slot(&nodes, slot::of(b"key7"));
    assert_eq!(writer.told("SET key7 1"), "+OK");
    eventually("the client gets the news", || {
        reader.take_news(Duration::from_millis(1)).expect("news");
        reader.read("key7").expect("a value") == "1"
    });
}

#[test]
fn a_node_that_sends_no_news_is_reported() {
    let node = scripted(
        |words| {
            let (first, second) = (&words[0].to_ascii_uppercase()[..], words.get(1));
            Some(match first {
                b"COMMAND" => commands(),
                b"CLUSTER" => NO_CLUSTER.to_owned(),
                b"HELLO" => "%1\r\n+proto\r\n:3\r\n".to_owned(),
                b"CLIENT" if second.is_some() => "-NOPERM no\r\n".to_owned(),
                _ => "+OK\r\n".to_owned(),
            })
        },
        || {},
    );
    let proxy = Proxy::start(|_| {}, &[node]);
    let mut client = connect(proxy.address);
    assert_eq!(client.told("CLIENT TRACKING ON"), "-NOPERM no");
    assert!(client.told("CLIENT TRACKINGINFO").contains("off"));
    assert_eq!(client.told("CLIENT TRACKING OFF"), "+OK");
}
