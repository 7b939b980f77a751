//! Readers see all or nothing of what was written together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ::client::Algorithm;

use crate::read_atomic::{KEYS, TOP, connect, figure, mget, mset, values, whole};
use crate::support::cluster::{Cluster, Keeping};
use testkit::SetOnDrop;
use testkit::{Client, eventually};

/// How long a reader continues that has not met enough writers.
const LONGEST: Duration = Duration::from_secs(60);

#[test]
fn redis_clients_of_any_node_see_all_or_nothing() {
    const READS: usize = 1000;
    let cluster = Cluster::start_with(4, Keeping::Nothing, TOP, &[]);
    let (stop, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let sum = |name| (0..4).map(|node| figure(cluster.address(node), name)).sum();
    let suffices = || {
        let second: u64 = sum("cluster_ramp_second_rounds");
        seen.load(Ordering::Relaxed) > 100 && second > 0
    };
    let until = Instant::now() + LONGEST;
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        let (seen, suffices) = (&seen, &suffices);
        for writer in 0..2 {
            let (to, stop) = (cluster.address(writer), &stop);
            scope.spawn(move || {
                let mut client = Client::connect(to);
                for number in 0_u64.. {
                    let value = format!("{writer}-{number}");
                    let reply = client.frame(&mset(&KEYS, &value));
                    assert_eq!(reply.raw, b"+OK\r\n", "{reply:?}");
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let read = |node| {
            let to = cluster.address(node);
            scope.spawn(move || {
                let mut client = Client::connect(to);
                let mut last = None;
                let goes_on = |read| read < READS || !suffices() && Instant::now() < until;
                for _ in (0..).take_while(|read| goes_on(*read)) {
                    let reply = client.frame(&mget(&KEYS));
                    let value = whole(&values(&reply).unwrap_or_else(|| panic!("{reply:?}")));
                    seen.fetch_add(
                        usize::from(last.as_ref() != Some(&value)),
                        Ordering::Relaxed,
                    );
                    last = Some(value);
                }
            })
        };
        let readers: Vec<_> = (1..4).map(read).collect();
        let ended = readers.into_iter().map(|reader| reader.join());
        // Also when one has panicked, so that the test ends.
        let ended: Vec<_> = ended.collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|it| it.expect("it reads"));
    });
    let seen = seen.into_inner();
    assert!(seen > 100, "only {seen} values were seen");
    // A thread updates its figures at the end of its turn, after its replies.
    eventually("all reads are counted", || {
        let reads: u64 = sum("cluster_ramp_reads");
        reads >= 3 * READS as u64
    });
    // Without these the test would show nothing.
    let second: u64 = sum("cluster_ramp_second_rounds");
    assert!(second > 0, "no read has met a writer");
}

/// Two threads write all keys, or delete all, by one algorithm, two others read them by another.
fn write_and_read(cluster: &Cluster, (writes, reads): (Algorithm, Algorithm), count: usize) {
    let client = connect(cluster.fabrics());
    let stop = AtomicBool::new(false);
    let keys = KEYS.map(str::as_bytes);
    let write = |writer: usize| {
        let (mut number, begin) = (0, Instant::now());
        while !stop.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(30) {
            number += 1;
            let value = format!("{writer}-{number}").into_bytes();
            let value = (number % 10 > 0).then_some(&value[..]);
            let pairs = keys.map(|key| (key, value));
            client.put_all(&pairs, writes).expect("it is written");
        }
    };
    let read = || {
        for _ in 0..count {
            whole(&client.get_all(&keys, reads).expect("they are read"));
        }
    };
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        let (write, read) = (&write, &read);
        for writer in 0..2 {
            scope.spawn(move || write(writer));
        }
        let readers = [scope.spawn(read), scope.spawn(read)];
        let ended = readers.map(|reader| reader.join());
        stop.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a reader has failed");
    });
}

#[test]
fn rust_clients_see_all_or_nothing_by_every_algorithm() {
    let cluster = Cluster::start_with(4, Keeping::Nothing, TOP, &[]);
    for algorithm in Algorithm::ALL {
        write_and_read(&cluster, (algorithm, algorithm), 500);
    }
    // Keys written by one algorithm can be read by another.
    write_and_read(&cluster, (Algorithm::Small, Algorithm::Fast), 200);
    write_and_read(&cluster, (Algorithm::Hybrid, Algorithm::Small), 200);
    write_and_read(&cluster, (Algorithm::Fast, Algorithm::Hybrid), 200);
}

/// Four writers, each of two keys that it shares with two others, and each by an algorithm of its
/// own. No reader sees two values of one writer at a time.
#[test]
fn writes_that_overlap_are_seen_whole() {
    let cluster = Cluster::start_with(4, Keeping::Nothing, TOP, &[]);
    let client = connect(cluster.fabrics());
    let stop = AtomicBool::new(false);
    let keys = KEYS.map(str::as_bytes);
    let write = |writer: usize| {
        let algorithm = Algorithm::ALL[writer % 3];
        for number in 0_u64.. {
            let value = format!("{writer}-{number}").into_bytes();
            let pairs = [keys[writer], keys[(writer + 1) % 4]].map(|key| (key, Some(&value[..])));
            client.put_all(&pairs, algorithm).expect("it is written");
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    let read = |algorithm: Algorithm| {
        let (mut met, until) = (0, Instant::now() + LONGEST);
        for number in 0.. {
            if number >= 500 && (met > 10 || Instant::now() > until) {
                break;
            }
            let values = client.get_all(&keys, algorithm).expect("they are read");
            let texts = values
                .iter()
                .flatten()
                .map(|value| std::str::from_utf8(value));
            let parts = texts.map(|text| text.expect("text").split_once('-').expect("two parts"));
            let mut seen = BTreeMap::new();
            for (writer, number) in parts {
                let first = *seen.entry(writer).or_insert(number);
                assert_eq!(first, number, "a fractured read: {values:?}");
            }
            met += usize::from(seen.len() < values.len());
        }
        assert!(met > 10, "only {met} times both keys were of one writer");
    };
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        let (write, read) = (&write, &read);
        for writer in 0..4 {
            scope.spawn(move || write(writer));
        }
        let readers = Algorithm::ALL.map(|algorithm| scope.spawn(move || read(algorithm)));
        let ended = readers.map(|reader| reader.join());
        stop.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a reader has failed");
    });
}

#[test]
fn a_node_goes_by_the_algorithm_that_it_is_told() {
    for (further, every) in [(&[][..], 0), (&["--ramp", "small"], 10)] {
        let cluster = Cluster::start_with(2, Keeping::Nothing, TOP, further);
        let mut client = Client::connect(cluster.address(1));
        assert_eq!(client.frame(&mset(&KEYS, "1")).raw, b"+OK\r\n");
        for _ in 0..10 {
            let reply = client.frame(&mget(&KEYS));
            let value = whole(&values(&reply).expect("values"));
            assert_eq!(value.as_deref(), Some("1"));
        }
        let figure = |name| figure(cluster.address(1), name);
        // A thread updates its figures at the end of its turn, after its replies; and a read counts
        // when it begins, its rounds when it ends.
        eventually("all reads are counted", || {
            figure("cluster_ramp_reads") >= 10 && figure("cluster_ramp_second_rounds") >= every
        });
        assert_eq!(figure("cluster_ramp_reads"), 10, "{further:?}");
        assert_eq!(figure("cluster_ramp_second_rounds"), every, "{further:?}");
        assert_eq!(figure("cluster_ramp_writes"), 1, "{further:?}");
    }
}
