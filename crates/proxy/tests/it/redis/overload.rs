//! More requests than nodes take: every client gets its turn.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::redis::scripted::{NO_CLUSTER, commands};
use crate::redis::support::{Proxy, connect, scripted};
use testkit::SetOnDrop;
use testkit::eventually;

/// How long a node takes for a request.
const SLOW: Duration = Duration::from_millis(3);

/// Starts a server that knows of no others, and is slow.
fn slow() -> SocketAddr {
    let answer = |words: &[Vec<u8>]| {
        Some(match &words[0][..] {
            b"COMMAND" => commands(),
            b"CLUSTER" => NO_CLUSTER.to_owned(),
            name => {
                std::thread::sleep(SLOW);
                match name {
                    b"MGET" => "*1\r\n$1\r\nv\r\n".to_owned(),
                    _ => "$1\r\nv\r\n".to_owned(),
                }
            }
        })
    };
    scripted(answer, || {})
}

/// With room for one request at each of two nodes, both of them are never free together by chance.
#[test]
fn a_command_on_several_nodes_is_not_overtaken_for_ever() {
    let proxy = Proxy::start(|config| config.queue = 1, &[slow(), slow()]);
    let (over, single) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&over);
        for number in 0..16 {
            let (over, single, address) = (&over, &single, proxy.address);
            scope.spawn(move || {
                let mut client = connect(address);
                let key = ["bar", "foo"][number % 2];
                while !over.load(Ordering::Relaxed) {
                    // Two at a time: the second one always waits.
                    client.send(&["GET", key]);
                    client.send(&["GET", key]);
                    assert_eq!(client.reply().shown(), "v");
                    assert_eq!(client.reply().shown(), "v");
                    single.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        eventually("all nodes are busy", || single.load(Ordering::Relaxed) > 50);
        let mut client = connect(proxy.address);
        let begun = Instant::now();
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let before = Instant::now();
            assert_eq!(client.told("MGET bar foo"), "[v v]");
            longest = longest.max(before.elapsed());
        }
        let (took, single) = (begun.elapsed(), single.load(Ordering::Relaxed));
        over.store(true, Ordering::Relaxed);
        // A round of all other clients takes about 2 × 8 × 3 ms.
        assert!(longest < Duration::from_secs(3), "{longest:?} of {took:?}");
        assert!(single > 100, "the others go on: {single}");
    });
}
