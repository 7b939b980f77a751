//! Replies never cross clients: every request is tagged, and every reply is checked.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;

use crate::redis::support::{Proxy, connect, machines, redis_server};
use testkit::process::Redis;

/// Requests of all clients together, for each configuration of the proxy.
const REQUESTS: u64 = 400_000;

/// Sends tagged requests in pipelines of random depth, some of them split over both servers, and checks
/// the replies. Returns how many were answered. Sometimes the client leaves in the middle.
fn tagged(address: std::net::SocketAddr, number: u64, until: &AtomicU64, faults: bool) -> u64 {
    let mut random = fastrand::Rng::with_seed(number);
    let (mut answered, mut succeeded) = (0_u64, 0_u64);
    let mut client = connect(address);
    // The last value of the client's own key, as far as it is known.
    let mut own = format!("own{number}");
    let mut value: Option<String> = None;
    while until.load(Ordering::Relaxed) < REQUESTS {
        let depth = random.u64(1..60);
        let tags: Vec<(u8, String)> = (0..depth)
            .map(|_| (random.u8(..10), format!("c{number}-{}", random.u64(..))))
            .collect();
        for (kind, tag) in &tags {
            match kind {
                0 => client.send(&["ECHO", tag]),
                1 => client.send(&["MGET", "none1", tag, &own, "none2"]),
                2 => client.send(&["EVAL", "return ARGV[1]", "1", tag, tag]),
                _ => client.send(&["SET", &own, tag, "GET", "KEEPTTL"]),
            }
        }
        if random.u8(..40) == 0 {
            // Its replies are dropped.
            client = connect(address);
            // Its earlier commands may still be under way: it takes another key.
            own = format!("own{number}-{}", random.u64(..));
            value = None;
            continue;
        }
        for (kind, tag) in &tags {
            let reply = match client.try_reply() {
                Ok(reply) => reply.shown(),
                Err(error) => panic!("{error} while waiting for {tag}"),
            };
            let failed = reply.starts_with("-UNKNOWN ") || reply.starts_with("-LOADING ");
            let right = match kind {
                0 | 2 => reply == *tag,
                1 => match &value {
                    Some(value) => reply == format!("[nil nil {value} nil]"),
                    None => reply.starts_with("[nil nil "),
                },
                _ => match &value {
                    Some(value) => reply == *value,
                    None => reply == "nil" || reply.starts_with(&format!("c{number}-")),
                },
            };
            assert!(right || faults && failed, "{tag} was answered with {reply}");
            match kind {
                // With faults a server may lose its data, and later commands may overtake one that is
                // retried.
                3.. if !faults => value = Some(tag.clone()),
                _ => {}
            }
            succeeded += u64::from(right);
            answered += 1;
        }
        until.fetch_add(depth, Ordering::Relaxed);
    }
    // The server that is always there has about half of the keys.
    assert!(succeeded * 4 >= answered, "{succeeded} of {answered}");
    answered
}

#[test]
fn replies_do_not_cross_clients() {
    let Some(program) = redis_server() else {
        return;
    };
    let servers = [Redis::start(&program, &[]), Redis::start(&program, &[])];
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    for runtime in machines() {
        let proxy = Proxy::start(runtime, &addresses);
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..16 {
                let (proxy, count) = (&proxy, &count);
                scope.spawn(move || tagged(proxy.address, number, count, false));
            }
        });
        assert!(count.into_inner() >= REQUESTS);
    }
}

/// The same test while one server is stopped, killed, and restarted, again and again.
#[test]
fn replies_do_not_cross_clients_while_nodes_die() {
    let Some(program) = redis_server() else {
        return;
    };
    let steady = Redis::start(&program, &[]);
    let mut victim = Redis::start(&program, &[]);
    let addresses = [steady.address, victim.address];
    for runtime in machines() {
        let proxy = Proxy::start(
            |config| {
                runtime(config);
                config.timeout = std::time::Duration::from_millis(300);
                config.patience = std::time::Duration::from_millis(600);
                config.unknown_outcome = kumiki_proxy::UnknownOutcome::Error;
            },
            &addresses,
        );
        let count = AtomicU64::new(0);
        let mut rounds = 0;
        std::thread::scope(|scope| {
            let clients: Vec<_> = (100..112)
                .map(|number| {
                    let (proxy, count) = (&proxy, &count);
                    scope.spawn(move || tagged(proxy.address, number, count, true))
                })
                .collect();
            let nap = || std::thread::sleep(std::time::Duration::from_millis(100));
            while !clients
                .iter()
                .all(std::thread::ScopedJoinHandle::is_finished)
            {
                rounds += 1;
                nap();
                victim.signal(Signal::STOP);
                nap();
                victim.signal(Signal::CONT);
                nap();
                victim.restart();
            }
        });
        assert!(rounds > 1, "{rounds} rounds of faults");
    }
}
