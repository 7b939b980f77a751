//! Requests that gather while a node has enough packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::redis::support::{Proxy, connect, scripted};
use testkit::{Client, eventually};

/// Returns how many requests went in how many packets.
fn sent(client: &mut Client) -> (u64, u64) {
    let told = client.told("INFO nodes");
    let number = |name: &str| {
        let from = told.find(name).expect(name) + name.len();
        let digits = told[from..].split(|one: char| !one.is_ascii_digit()).next();
        digits
            .and_then(|digits| digits.parse().ok())
            .expect("a number")
    };
    (number(",queries="), number(",packets="))
}

/// Returns how many packets five requests take to a node that answers the first of them when all have
/// been made.
fn packets_of_five(packs: Option<usize>) -> u64 {
    let (seen, all_are_made) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (counted, released) = (Arc::clone(&seen), Arc::clone(&all_are_made));
    let node = scripted(
        move |words| match &words[0][..] {
            b"GET" => match counted.fetch_add(1, Ordering::SeqCst) + 1 {
                1 => None,
                2 => {
                    eventually("all requests are made", || released.load(Ordering::SeqCst));
                    Some("+1\r\n".to_owned())
                }
                5 => Some("+4\r\n+5\r\n".to_owned()),
                later => Some(format!("+{}\r\n", later - 1)),
            },
            b"COMMAND" => {
                Some("*1\r\n*6\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n".into())
            }
            _ => Some("-ERR This instance has cluster support disabled\r\n".to_owned()),
        },
        || {},
    );
    let proxy = Proxy::start(|config| config.packs = packs, &[node]);
    let (mut client, mut other) = (connect(proxy.address), connect(proxy.address));
    let before = sent(&mut other);
    for number in 1..=5 {
        client.send(&["GET", "key"]);
        if number <= 2 {
            eventually("it has come", || seen.load(Ordering::SeqCst) >= number);
        } else {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    all_are_made.store(true, Ordering::SeqCst);
    for number in 1..=5 {
        assert_eq!(client.reply().shown(), format!("+{number}"));
    }
    let mut after = before;
    eventually("all are counted", || {
        after = sent(&mut other);
        after.0 >= before.0 + 5
    });
    after.1 - before.1
}

#[test]
fn requests_gather_while_a_node_has_two_packets() {
    assert_eq!(packets_of_five(None), 3, "by default");
    assert_eq!(packets_of_five(Some(2)), 3);
    assert_eq!(packets_of_five(Some(3)), 4);
    assert_eq!(packets_of_five(Some(100)), 5);
}
