//! Locks in the memory of a proxy before Redis: many threads, clients that go, and stopping.

use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use disk::RealDisk;
use kumiki_proxy::Config;
use kumiki_proxy::locks::{LockStorage, Options};

use crate::redis::support::{Proxy, connect, machines, redis_server};
use testkit::process::Redis;
use testkit::{Reply, eventually};

pub(crate) fn in_memory(config: &mut Config, directory: &Path) {
    config.locks = Some(Options {
        keeping: LockStorage::Memory {
            disk: Arc::new(RealDisk),
            directory: directory.to_owned(),
        },
        longest_lease: Duration::from_secs(60),
    });
}

/// Returns the token of a grant, if the reply is one.
fn token(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Array(fields) => match fields[..] {
            [Reply::Int(1), Reply::Int(token), _] => Some(token),
            [Reply::Int(0), ..] => None,
            _ => panic!("{}", reply.shown()),
        },
        _ => panic!("{}", reply.shown()),
    }
}

#[test]
fn threads_and_connections_pass_locks_on() {
    const CLIENTS: i64 = 12;
    const KEYS: usize = 2;
    const ROUNDS: u64 = 60;
    let Some(program) = redis_server() else {
        return;
    };
    let redis = Redis::start(&program, &[]);
    for runtime in machines() {
        let directory = tempfile::tempdir().expect("a directory");
        let proxy = Proxy::start(
            |config| {
                runtime(config);
                in_memory(config, directory.path());
            },
            &[redis.address],
        );
        let holders: [AtomicI64; KEYS] = Default::default();
        let newest: [AtomicI64; KEYS] = Default::default();
        let grants = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 1..=CLIENTS {
                let (holders, newest, grants, address) =
                    (&holders, &newest, &grants, proxy.address);
                scope.spawn(move || {
                    let mut client = connect(address);
                    let mut random = fastrand::Rng::with_seed(number as u64);
                    for _ in 0..ROUNDS {
                        let at = random.usize(..KEYS);
                        let acquire = format!("LOCK.ACQUIRE k{at} c{number} PX 60000 WAIT 30000");
                        let words: Vec<&str> = acquire.split(' ').collect();
                        let token = token(&client.call(&words)).expect("its turn comes");
                        assert_eq!(holders[at].swap(number, Ordering::SeqCst), 0);
                        assert!(newest[at].swap(token, Ordering::SeqCst) < token);
                        // A value is written under the lock, and read, by the node.
                        let set = format!("SET v{at} {token}");
                        assert_eq!(client.told(&set), "+OK");
                        assert_eq!(client.told(&format!("GET v{at}")), token.to_string());
                        assert_eq!(holders[at].swap(0, Ordering::SeqCst), number);
                        grants.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(client.told(&format!("LOCK.RELEASE k{at} c{number}")), "1");
                    }
                });
            }
        });
        assert_eq!(grants.into_inner(), CLIENTS as u64 * ROUNDS);
        let mut client = connect(proxy.address);
        let info = client.told("INFO locks");
        let granted = format!("lock_acquired:{}", CLIENTS as u64 * ROUNDS);
        assert!(
            info.contains(&granted) && info.contains("lock_held:0"),
            "{info}"
        );
    }
}

#[test]
fn guards_are_refused_where_no_node_compares_tokens() {
    let Some(program) = redis_server() else {
        return;
    };
    let redis = Redis::start(&program, &[]);
    let directory = tempfile::tempdir().expect("a directory");
    let proxy = Proxy::start(
        |config| in_memory(config, directory.path()),
        &[redis.address],
    );
    let mut client = connect(proxy.address);
    assert_eq!(client.told("MULTI"), "+OK");
    let told = client.told("LOCK.GUARD k 7");
    assert!(told.contains("advisory"), "{told}");
    assert!(client.told("EXEC").starts_with("-EXECABORT"));
    let told = client.told("LOCK.GUARD k 7");
    assert!(
        told.starts_with("-ERR") && told.contains("advisory"),
        "{told}"
    );
    // Locks in the nodes' data are separate.
    assert_eq!(client.told("SET k me NX PX 60000"), "+OK");
    assert_eq!(client.told("SET k you NX PX 60000"), "nil");
    assert_eq!(client.told("LOCK.INFO k"), "nil");
    // In the other version of the protocol a lock is returned as a map.
    client.call(&["HELLO", "3"]);
    assert!(token(&client.call(&["LOCK.ACQUIRE", "k", "me", "PX", "60000"])).is_some());
    let info = client.call(&["LOCK.INFO", "k"]);
    assert!(
        matches!(&info, Reply::Map(pairs) if pairs.len() == 4),
        "{info:?}"
    );
    // Without locks the commands say so.
    let without = Proxy::start(|_| {}, &[redis.address]);
    let told = connect(without.address).told("LOCK.INFO k");
    assert!(told.contains("keeps no locks"), "{told}");
}

#[test]
fn who_has_ended_does_not_wait() {
    let Some(program) = redis_server() else {
        return;
    };
    let redis = Redis::start(&program, &[]);
    for runtime in machines() {
        let directory = tempfile::tempdir().expect("a directory");
        let proxy = Proxy::start(
            |config| {
                runtime(config);
                in_memory(config, directory.path());
            },
            &[redis.address],
        );
        let mut holder = connect(proxy.address);
        assert!(token(&holder.call(&["LOCK.ACQUIRE", "k", "me", "PX", "60000"])).is_some());
        // Some clients close only their sending half: they get the error. Their later commands are
        // executed.
        for _ in 0..20 {
            let mut half = TcpStream::connect(proxy.address).expect("a connection");
            let words = b"LOCK.ACQUIRE k half PX 60000 WAIT 30000\r\nPING\r\n";
            std::io::Write::write_all(&mut half, words).expect("it takes it");
            half.shutdown(Shutdown::Write).expect("it ends");
            half.set_read_timeout(Some(Duration::from_secs(20)))
                .expect("a limit");
            let mut said = String::new();
            std::io::Read::read_to_string(&mut half, &mut said).expect("a reply");
            assert!(said.starts_with("-LOCKCANCELLED "), "{said}");
            assert!(said.ends_with("\r\n+PONG\r\n"), "{said}");
        }
        // Others go without a word, before and after the answer that they wait for.
        for _ in 0..20 {
            let mut gone = connect(proxy.address);
            // It is served before it goes, so its request does not begin to wait after the check below.
            assert_eq!(gone.told("PING"), "+PONG");
            gone.send(&["LOCK.ACQUIRE", "k", "gone", "PX", "60000", "WAIT", "30000"]);
        }
        eventually("those who went are known to have gone", || {
            let told = connect(proxy.address).told("INFO clients");
            told.contains("connected_clients:2\r\n")
        });
        let waiters = || {
            let told = connect(proxy.address).told("LOCK.INFO k");
            told.ends_with("waiters 0]")
        };
        eventually("no client waits", waiters);
        assert_eq!(holder.told("LOCK.RELEASE k me"), "1");
        assert_eq!(holder.told("LOCK.INFO k"), "nil");
    }
}

#[test]
fn a_connection_that_waits_holds_up_itself_alone() {
    const INFOS: usize = 60_000;
    let Some(program) = redis_server() else {
        return;
    };
    let redis = Redis::start(&program, &[]);
    for runtime in machines() {
        let directory = tempfile::tempdir().expect("a directory");
        let proxy = Proxy::start(
            |config| {
                runtime(config);
                in_memory(config, directory.path());
            },
            &[redis.address],
        );
        let mut holder = connect(proxy.address);
        assert!(token(&holder.call(&["LOCK.ACQUIRE", "k", "me", "PX", "60000"])).is_some());
        // So many requests of the connection wait, and the others stay behind them in its input.
        let mut many = connect(proxy.address);
        for _ in 0..400 {
            many.send(&["LOCK.ACQUIRE", "k", "many", "PX", "60000", "WAIT", "60000"]);
        }
        eventually("some of them wait", || {
            holder.told("LOCK.INFO k").ends_with("waiters 256]")
        });
        // Answers that wait for another answer are bounded, and count like other replies.
        let mut curious = TcpStream::connect(proxy.address).expect("a connection");
        let mut reader = curious.try_clone().expect("its other half");
        let sender = std::thread::spawn(move || {
            let acquire = "LOCK.ACQUIRE k curious PX 60000 WAIT 60000\r\n";
            let words = acquire.to_owned() + &"LOCK.INFO k\r\n".repeat(INFOS) + "PING\r\n";
            std::io::Write::write_all(&mut curious, words.as_bytes())
        });
        eventually("it waits, too", || {
            holder.told("LOCK.INFO k").ends_with("waiters 257]")
        });
        std::thread::sleep(Duration::from_millis(400));
        let info = holder.told("INFO locks");
        let requests = info
            .split_once("lock_requests:")
            .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect());
        let requests: String = requests.expect("it is told");
        let requests: usize = requests.parse().expect("a number");
        assert!(requests < INFOS / 2, "{requests} were carried out");
        assert_eq!(holder.told("LOCK.RELEASE k me"), "1");
        for _ in 0..400 {
            assert!(token(&many.reply()).is_some());
        }
        assert_eq!(many.told("LOCK.RELEASE k many"), "1");
        reader
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a limit");
        let (mut said, mut some) = (Vec::new(), [0; 1 << 16]);
        while !said.ends_with(b"+PONG\r\n") {
            let read = std::io::Read::read(&mut reader, &mut some).expect("replies");
            assert!(read > 0, "it was closed");
            said.extend_from_slice(&some[..read]);
        }
        let said = String::from_utf8(said).expect("text");
        assert_eq!(said.matches("\r\nwaiters\r\n").count(), INFOS);
        sender.join().expect("it has sent").expect("all");
    }
}

#[test]
fn a_proxy_that_stops_lets_waiters_go_and_remembers_that_nothing_is_held() {
    let Some(program) = redis_server() else {
        return;
    };
    let redis = Redis::start(&program, &[]);
    let directory = tempfile::tempdir().expect("a directory");
    let mut last = 0;
    for runtime in machines() {
        let start = || {
            let change = |config: &mut Config| {
                runtime(config);
                in_memory(config, directory.path());
            };
            Proxy::start(change, &[redis.address])
        };
        let proxy = start();
        let mut holder = connect(proxy.address);
        let granted = token(&holder.call(&["LOCK.ACQUIRE", "k", "me", "PX", "300"]));
        let granted = granted.expect("it was not held when the last one stopped");
        assert!(granted > last, "{granted} after {last}");
        last = granted;
        let mut waiter = connect(proxy.address);
        assert!(token(&waiter.call(&["LOCK.ACQUIRE", "other", "you", "PX", "60000"])).is_some());
        let mut waits = connect(proxy.address);
        waits.send(&[
            "LOCK.ACQUIRE",
            "other",
            "me",
            "PX",
            "60000",
            "WAIT",
            "60000",
        ]);
        eventually("it waits", || {
            waiter.told("LOCK.INFO other").ends_with("waiters 1]")
        });
        assert_eq!(holder.told("LOCK.RELEASE k me"), "1");
        // The remaining lock is released while the other request still waits.
        waiter.send(&["LOCK.RELEASE", "other", "you"]);
        assert_eq!(waiter.reply().shown(), "1");
        assert!(token(&waits.reply()).is_some());
        waiter.send(&[
            "LOCK.ACQUIRE",
            "other",
            "you",
            "PX",
            "60000",
            "WAIT",
            "60000",
        ]);
        eventually("it waits", || {
            holder.told("LOCK.INFO other").ends_with("waiters 1]")
        });
        assert_eq!(waits.told("LOCK.INFO k"), "nil");
        let begin = Instant::now();
        proxy.running().stopper().stop();
        let told = waiter.reply().shown();
        assert!(told.starts_with("-LOCKSTOPPING "), "{told}");
        drop(proxy);
        assert!(begin.elapsed() < Duration::from_secs(8));
        // One lock was held: the proxy remembers that.
        let proxy = start();
        let told = connect(proxy.address).told("LOCK.INFO k");
        assert!(told.starts_with("-LOCKSETTLING "), "{told}");
        drop(proxy);
        std::fs::remove_file(directory.path().join("locks.ledger")).expect("the ledger");
        let proxy = start();
        let mut client = connect(proxy.address);
        assert!(token(&client.call(&["LOCK.ACQUIRE", "k", "me", "PX", "60000"])).is_some());
        assert_eq!(client.told("LOCK.RELEASE k me"), "1");
    }
}
