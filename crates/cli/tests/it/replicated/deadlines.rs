//! Deadlines of keys while followers stand still.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::replicas::Replicas;
use testkit::{Client, Reply, eventually};

/// Deadlines that pass in the meantime do not stop the leader's time, and their keys do not stay.
#[test]
fn deadlines_count_from_the_leaders_clock_while_followers_stand_still() {
    const MS: u64 = 60_000;
    let replicas = Replicas::start_with(1, 3, &["--election-timeout", "3s"]);
    eventually("a leader stays one", || {
        let leader = replicas.leader(1);
        let connect = || Client::connect(replicas.address(leader));
        let (mut client, mut reader) = (connect(), connect());
        let followers = (1..=3).filter(|node| *node != leader);
        let said = client.call(&["SET", "foo", "v", "PX", "100"]);
        if said != Reply::Status("OK".to_owned()) {
            return false;
        }
        followers.clone().for_each(|node| replicas.pause_node(node));
        std::thread::sleep(Duration::from_millis(1000));
        let sent = Instant::now();
        client.send(&["SET", "{foo}k", "v", "PX", &MS.to_string()]);
        reader.send(&["GET", "foo"]);
        std::thread::sleep(Duration::from_millis(300));
        followers.for_each(|node| replicas.resume_node(node));
        let (set, found) = (client.reply(), reader.reply());
        // On a slow machine another member may have been elected.
        if !matches!(
            (&set, &found),
            (Reply::Status(_), Reply::Null | Reply::Bulk(_))
        ) {
            return false;
        }
        let Reply::Int(left) = client.call(&["PTTL", "{foo}k"]) else {
            return false;
        };
        let passed = sent.elapsed().as_millis() as u64;
        let least = MS.saturating_sub(passed + 100) as i64;
        assert!((least..=MS as i64).contains(&left), "{left} after {passed}");
        assert_eq!(found, Reply::Null, "its deadline has passed");
        true
    });
}

/// Returns commands that give keys of one slot, `{foo}NAME0` and so on, a deadline in `ms`, whole seconds.
fn deadline_commands(name: &str, ms: u64) -> [Vec<String>; 4] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let at = now.expect("a clock after 1970").as_millis() as u64 + ms;
    [
        format!("SET {{foo}}{name}0 v PX {ms}"),
        format!("EXPIRE {{foo}}{name}1 {}", ms / 1000),
        format!("PEXPIREAT {{foo}}{name}2 {at}"),
        format!("GETEX {{foo}}{name}3 PX {ms}"),
    ]
    .map(|command| command.split(' ').map(str::to_owned).collect())
}

/// Each command that gives a key a deadline, with each read: keys live until their deadlines although
/// the followers stand still when these are set, and no longer although they stand still when these pass.
#[test]
fn every_deadline_is_kept_with_every_read_while_followers_stand_still() {
    const LONG: u64 = 60_000;
    const SHORT: u64 = 1000;
    let replicas = Replicas::start_with(1, 3, &["--election-timeout", "3s"]);
    let keys = |name: &str| [0, 1, 2, 3].map(|at| format!("{{foo}}{name}{at}"));
    let (long, short) = (keys("long"), keys("short"));
    eventually("a leader stays one", || {
        let leader = replicas.leader(1);
        let connect = |node| Client::connect(replicas.address(node));
        let mut client = connect(leader);
        // On a slow machine another member may lead.
        let is_done = |reply: Reply| !matches!(reply, Reply::Error(_));
        let plain = long.iter().chain(&short).flat_map(|key| [key, "v"]);
        let plain: Vec<&str> = ["MSET"].into_iter().chain(plain).collect();
        let short_lived = deadline_commands("short", SHORT);
        if !is_done(client.call(&plain))
            || !short_lived.iter().all(|args| is_done(client.call(args)))
        {
            return false;
        }
        let followers = (1..=3).filter(|node| *node != leader);
        followers.clone().for_each(|node| replicas.pause_node(node));
        std::thread::sleep(Duration::from_millis(SHORT + 200));
        let sent = Instant::now();
        // A command waits for the followers, and what comes behind it on its connection as well.
        let send = |args: &[String]| {
            let mut client = connect(leader);
            client.send(args);
            client
        };
        let writers = deadline_commands("long", LONG).map(|args| send(&args));
        let read = |command: &str, key: &String| send(&[command.to_owned(), key.clone()]);
        let readers: Vec<_> = short
            .iter()
            .flat_map(|key| [("GET", key), ("PTTL", key)])
            .map(|(command, key)| (command, key, read(command, key)))
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        followers
            .clone()
            .for_each(|node| replicas.resume_node(node));
        let are_set = writers.map(|mut writer| is_done(writer.reply()));
        let found: Vec<_> = readers
            .into_iter()
            .map(|(command, key, mut reader)| (command, key, reader.reply()))
            .collect();
        let is_led = found.iter().all(|(.., reply)| is_done(reply.clone()));
        if are_set.contains(&false) || !is_led {
            return false;
        }
        for (command, key, reply) in found {
            let expected = match command {
                "GET" => Reply::Null,
                _ => Reply::Int(-2),
            };
            assert_eq!(reply, expected, "{command} {key}: too late");
        }
        for key in &long {
            let (left, value) = (client.call(&["PTTL", key]), client.call(&["GET", key]));
            let (Reply::Int(left), Reply::Bulk(value)) = (left, value) else {
                return false;
            };
            let passed = sent.elapsed().as_millis() as u64;
            let least = LONG.saturating_sub(passed + 100) as i64;
            assert!(
                (least..=LONG as i64).contains(&left),
                "{key}: {left} after {passed}"
            );
            assert_eq!(value, b"v", "{key}: too early");
        }
        for node in followers {
            let mut reader = connect(node);
            assert_eq!(reader.told("READONLY"), "+OK");
            for key in &long {
                // Its state may be too old for a moment.
                eventually("it may read", || {
                    let said = reader.told(&format!("GET {key}"));
                    assert_ne!(said, "nil", "{key} at {node}: too early");
                    said == "v"
                });
            }
            for key in &short {
                eventually("it is gone there, too", || {
                    reader.told(&format!("GET {key}")) == "nil"
                });
            }
        }
        true
    });
}
