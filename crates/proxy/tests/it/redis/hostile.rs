//! Clients that say nothing, or stop in the middle: they are closed in time, and other clients do not
//! notice.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::redis::support::{PATIENCE, Proxy, connect, machines, redis_server};
use testkit::Client;
use testkit::SetOnDrop;
use testkit::process::Redis;

/// The limit that is tested.
const LIMIT: Duration = Duration::from_secs(1);

/// A request of which hostile clients send a part.
const REQUEST: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nh\r\n$5\r\nhello\r\n";

/// Returns a client that has given the password, if there is one.
fn known(address: SocketAddr, password: Option<&str>) -> Client {
    let mut client = connect(address);
    if let Some(password) = password {
        assert_eq!(client.told(&format!("AUTH {password}")), "+OK");
    }
    client
}

/// Checks that other clients get their replies while `hostile` runs.
fn beside(proxy: &Proxy, password: Option<&str>, hostile: impl FnOnce(SocketAddr)) {
    let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&over);
        let (over, answered, address) = (&over, &answered, proxy.address);
        let others: Vec<_> = (0..4)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = known(address, password);
                    while !over.load(Ordering::Relaxed) {
                        let tag = answered.fetch_add(1, Ordering::Relaxed).to_string();
                        let key = format!("other{number}");
                        assert_eq!(client.told(&format!("SET {key} {tag}")), "+OK");
                        assert_eq!(client.told(&format!("GET {key}")), tag);
                    }
                })
            })
            .collect();
        hostile(address);
        let begun = Instant::now();
        while answered.load(Ordering::Relaxed) < 500 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        over.store(true, Ordering::Relaxed);
        for other in others {
            other.join().expect("its replies are right");
        }
    });
    let answered = answered.into_inner();
    assert!(answered >= 500, "only {answered} replies");
}

/// Reads until the proxy closes the connection.
fn is_closed(client: &mut Client, what: &str) {
    loop {
        match client.try_reply() {
            Ok(_) => {}
            Err(error) => {
                let waits = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
                assert!(!waits.contains(&error.kind()), "{what}: it stays open");
                return;
            }
        }
    }
}

/// Returns how many clients have been turned out.
fn turned_out(address: SocketAddr, password: Option<&str>) -> String {
    let told = known(address, password).told("INFO clients");
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("turned_out_connections:"));
    line.expect("a line").trim().to_owned()
}

#[test]
fn clients_that_say_nothing_take_no_place_from_others() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    let password = Some("secret");
    for runtime in machines() {
        let proxy = Proxy::start(
            |config| {
                runtime(config);
                config.password = password.map(str::to_owned);
                config.limits.clients = 20;
                config.limits.greeting = PATIENCE;
            },
            &[server.address],
        );
        let mut stays = known(proxy.address, password);
        let mut strangers = Vec::new();
        for _ in 0..60 {
            strangers.push(connect(proxy.address));
            // A client that knows the password is let in at once.
            assert_eq!(known(proxy.address, password).told("PING"), "+PONG");
        }
        is_closed(&mut strangers[0], "the one that has waited for the longest");
        assert_eq!(stays.told("PING"), "+PONG");
        let turned_out: u64 = turned_out(proxy.address, password).parse().unwrap();
        assert!(turned_out >= 40, "{turned_out}");
    }
}

#[test]
fn who_does_not_say_the_password_is_turned_out() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    let password = Some("secret");
    for runtime in machines() {
        let proxy = Proxy::start(
            |config| {
                runtime(config);
                config.password = password.map(str::to_owned);
                config.limits.greeting = LIMIT;
            },
            &[server.address],
        );
        let mut stays = known(proxy.address, password);
        let mut forgets = known(proxy.address, password);
        assert_eq!(forgets.told("RESET"), "+RESET");
        beside(&proxy, password, |address| {
            let begun = Instant::now();
            let mut strangers: Vec<Client> = (0..300).map(|_| connect(address)).collect();
            // A third sends nothing, a third a part of a request, a third invalid input.
            for (number, stranger) in strangers.iter_mut().enumerate() {
                match number % 3 {
                    0 => {}
                    1 => stranger.send_raw(&REQUEST[..1 + number % (REQUEST.len() - 1)]),
                    _ => stranger.send(&["AUTH", "wrong"]),
                }
            }
            // A client whose password comes too slowly.
            let mut slow = connect(address);
            for byte in b"AUTH" {
                slow.send_raw(&[*byte]);
                std::thread::sleep(LIMIT / 8);
            }
            is_closed(&mut slow, "a slow stranger");
            for (number, stranger) in strangers.iter_mut().enumerate() {
                is_closed(stranger, &format!("stranger {number}"));
            }
            assert!(begun.elapsed() >= LIMIT, "{:?}", begun.elapsed());
        });
        assert_eq!(turned_out(proxy.address, password), "301");
        // Authenticated clients may be silent for any time, and so may one that was authenticated
        // before.
        std::thread::sleep(LIMIT / 2);
        assert_eq!(stays.told("PING"), "+PONG");
        assert!(forgets.told("PING").starts_with("-NOAUTH"));
        assert_eq!(forgets.told("AUTH secret"), "+OK");
    }
}

#[test]
fn who_stops_in_the_middle_of_a_request_is_turned_out() {
    let Some(program) = redis_server() else {
        return;
    };
    let server = Redis::start(&program, &[]);
    for runtime in machines() {
        let proxy = Proxy::start(
            |config| {
                runtime(config);
                config.limits.stall = LIMIT;
            },
            &[server.address],
        );
        let mut idle = connect(proxy.address);
        assert_eq!(idle.told("PING"), "+PONG");
        // Input after a request that waits is not read, for any time.
        let mut waits = connect(proxy.address);
        waits.send(&["BLPOP", "list", "0"]);
        waits.send_raw(&REQUEST[..7]);
        beside(&proxy, None, |address| {
            let begun = Instant::now();
            let mut halves: Vec<Client> = (0..300).map(|_| connect(address)).collect();
            for (number, client) in halves.iter_mut().enumerate() {
                if number % 2 == 0 {
                    client.send(&["PING"]);
                }
                client.send_raw(&REQUEST[..1 + number % (REQUEST.len() - 1)]);
            }
            let mut large = connect(address);
            large.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nh\r\n$10000000\r\n");
            large.send_raw(&vec![b'v'; 1_000_000]);
            // The proxy waits for a client that goes on, at any speed.
            let mut slow = connect(address);
            let pieces = REQUEST.chunks(REQUEST.len().div_ceil(8));
            for piece in pieces {
                slow.send_raw(piece);
                std::thread::sleep(LIMIT / 4);
            }
            assert!(begun.elapsed() > LIMIT * 3 / 2, "{:?}", begun.elapsed());
            assert_eq!(slow.reply().shown(), "+OK");
            for (number, client) in halves.iter_mut().enumerate() {
                if number % 2 == 0 {
                    assert_eq!(client.reply().shown(), "+PONG");
                }
                is_closed(client, &format!("half {number}"));
            }
            is_closed(&mut large, "a large value");
        });
        assert_eq!(turned_out(proxy.address, None), "301");
        assert_eq!(idle.told("PING"), "+PONG");
        assert_eq!(idle.told("RPUSH list x"), "1");
        assert_eq!(waits.reply().shown(), "[list x]");
        waits.send_raw(&REQUEST[7..]);
        assert_eq!(waits.reply().shown(), "+OK");
    }
}
