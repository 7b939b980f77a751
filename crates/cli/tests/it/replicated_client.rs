//! The Rust client and replicated partitions of real processes: while leaders fail, each call takes
//! effect once and is answered.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::support::replicas::Replicas;
use client::{Client, Op, Options};
use testkit::SetOnDrop;
use testkit::wait::go_on_until;

const KEY: &[u8] = b"counter";

fn connect(replicas: &Replicas) -> Client {
    let mut options = Options::new("");
    options.timeout = Duration::from_secs(30);
    options.answer_within = Duration::from_secs(1);
    Client::connect(replicas.fabrics(), options).expect("the nodes run")
}

/// Threads add to one counter, through one client, while `disturb` runs. Every call must succeed
/// and have counted once: so the returned sums are all the numbers from 1 on.
fn count_while(replicas: &mut Replicas, disturb: impl FnOnce(&mut Replicas)) {
    let client = connect(replicas);
    let (stop, calls) = (AtomicBool::new(false), AtomicI64::new(0));
    let told: Vec<i64> = std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        let adders: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut told = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        told.push(client.add(KEY, 1).expect("each call succeeds"));
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                    told
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        disturb(replicas);
        std::thread::sleep(Duration::from_millis(700));
        go_on_until(|| {
            let is_enough = calls.load(Ordering::Relaxed) > 50;
            is_enough || adders.iter().any(|adder| adder.is_finished())
        });
        stop.store(true, Ordering::Relaxed);
        let ended = adders.into_iter().map(|adder| adder.join());
        ended.flat_map(|told| told.expect("it adds")).collect()
    });
    let count = told.len() as i64;
    assert!(count > 50, "{count} calls");
    let sums: BTreeSet<i64> = told.into_iter().collect();
    assert_eq!(sums.len() as i64, count, "a sum was told twice");
    assert_eq!((sums.first(), sums.last()), (Some(&1), Some(&count)));
    let value = client.get(KEY).expect("it is read").expect("it is there");
    assert_eq!(value, count.to_string().as_bytes());
}

/// The limit holds for requests from Rust clients as for those from Redis clients.
#[test]
fn a_full_node_takes_no_more_from_rust_clients() {
    let replicas = Replicas::start_with(1, 3, &["--maxmemory", "10mb"]);
    let client = connect(&replicas);
    let value = vec![b'x'; 1 << 20];
    let refused = (0..20).find_map(|key: u8| client.put(&[b'k', key], &value).err());
    let refused = refused.expect("it is full");
    assert!(refused.to_string().contains("memory is full"), "{refused}");
    assert!(!refused.is_retryable());
    client.put(KEY, &value).expect_err("it stays full");
    for key in 0..20 {
        client.delete(&[b'k', key]).expect("room is made");
    }
    // Deleted versions go a little later.
    let made_room = || client.put(KEY, &value).is_ok();
    testkit::eventually("there is room again", made_room);
}

#[test]
fn no_call_is_lost_or_doubled_when_leaders_are_killed() {
    let mut replicas = Replicas::start(1, 3);
    count_while(&mut replicas, |replicas| {
        for _ in 0..2 {
            let leader = replicas.leader(1);
            replicas.kill_node(leader);
            replicas.leader(1);
            std::thread::sleep(Duration::from_millis(300));
            replicas.start_node(leader);
            std::thread::sleep(Duration::from_millis(300));
        }
    });
}

#[test]
fn nor_when_they_stand_still_or_hand_over() {
    let mut replicas = Replicas::start(1, 3);
    count_while(&mut replicas, |replicas| {
        for _ in 0..3 {
            replicas.transfer(&[]);
            std::thread::sleep(Duration::from_millis(200));
        }
        let leader = replicas.leader(1);
        replicas.pause_node(leader);
        std::thread::sleep(Duration::from_millis(1500));
        replicas.resume_node(leader);
    });
}

/// Bulks, each transaction by itself: a reported outcome is right, and when leaders fail, only the
/// transactions with unknown outcomes are in doubt.
#[test]
fn bulks_are_told_what_became_of_each_when_leaders_change() {
    let mut replicas = Replicas::start(1, 3);
    let client = connect(&replicas);
    let keys: Vec<Vec<u8>> = (0..40)
        .map(|key| format!("bulk{key}").into_bytes())
        .collect();
    // The least number of reported outcomes of any key.
    let (stop, least) = (AtomicBool::new(false), AtomicI64::new(0));
    let counts = std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        let adder = scope.spawn(|| {
            let mut counts = vec![(0_i64, 0_i64); keys.len()];
            while !stop.load(Ordering::Relaxed) {
                let adds = keys.iter().map(|key| vec![Op::Add { key, delta: 1 }]);
                let outcomes = client.execute_each(&adds.collect::<Vec<_>>());
                for ((told, unknown), outcome) in counts.iter_mut().zip(outcomes) {
                    match outcome {
                        Ok(_) => *told += 1,
                        Err(error) if error.is_unknown() => *unknown += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                let told = counts.iter().map(|(told, _)| *told);
                least.store(told.min().expect("there are keys"), Ordering::Relaxed);
            }
            counts
        });
        std::thread::sleep(Duration::from_millis(300));
        let leader = replicas.leader(1);
        replicas.kill_node(leader);
        replicas.leader(1);
        std::thread::sleep(Duration::from_millis(300));
        replicas.start_node(leader);
        std::thread::sleep(Duration::from_millis(300));
        replicas.transfer(&[]);
        std::thread::sleep(Duration::from_millis(500));
        go_on_until(|| least.load(Ordering::Relaxed) > 20 || adder.is_finished());
        stop.store(true, Ordering::Relaxed);
        adder.join().expect("it adds")
    });
    for (key, (told, unknown)) in keys.iter().zip(counts) {
        let value = client.get(key).expect("it is read").expect("it is there");
        let value: i64 = String::from_utf8_lossy(&value).parse().expect("a number");
        assert!(told > 20, "{told}");
        assert!(
            (told..=told + unknown).contains(&value),
            "{told} {unknown} {value}"
        );
    }
}
