//! More keys than there is memory for: slots pass from key to key all the time, under readers that
//! are stopped in the middle of their work. No reader takes one key's value for another's, nor half
//! of one for a value, nor an old one for a new one.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::client::{Algorithm, Client, Transport};
use rustix::process::Signal;

use crate::read_atomic::peer::{Peer, Role};
use crate::read_atomic::{TOP, connect_by};
use crate::support::cluster::{Cluster, Keeping};
use testkit::SetOnDrop;

/// Keys, whose values are together about twice what nodes publish.
const KEYS: usize = 6000;
/// Half of the reads and writes are of these keys.
const HOT: usize = 200;
const WRITERS: usize = 2;
const TIME: Duration = Duration::from_secs(4);
/// The least number of keys that a reader must read in memory and must request to show something.
const ENOUGH: u64 = 100;
/// How long a reader continues that should end and has not read so many.
const LONGER: Duration = Duration::from_secs(20);

fn key(at: usize) -> String {
    format!("ra:p{at}")
}

/// Returns a value that contains its key and number: both over and over, so often that another
/// number mostly makes another size.
fn value(key: &str, number: u64) -> Vec<u8> {
    let times = 1 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56);
    format!("{key}={number};")
        .repeat(times as usize)
        .into_bytes()
}

/// Returns the number of a value, after checking that it is one whole value of this key.
fn certified(key: &str, found: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(found);
    let number = text
        .strip_prefix(key)
        .and_then(|rest| rest.strip_prefix('='));
    let number = number.and_then(|rest| rest.split(';').next()?.parse().ok());
    let number = number.unwrap_or_else(|| panic!("{key} was read as {text}"));
    assert!(found == value(key, number), "{key} was read as {text}");
    number
}

fn draw(random: &mut fastrand::Rng) -> usize {
    let of = if random.bool() { HOT } else { KEYS };
    random.usize(..of)
}

/// Writes keys, some of them together, so that no other thread writes the same ones.
fn write(client: &Client, at: usize, numbers: &AtomicU64, stop: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(at as u64);
    while !stop.load(Ordering::Relaxed) {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let own = (0..random.usize(1..4)).map(|_| draw(&mut random) / WRITERS * WRITERS + at);
        put(client, own, number);
        std::thread::sleep(Duration::from_micros(random.u64(..2000)));
    }
}

fn put(client: &Client, keys: impl Iterator<Item = usize>, number: u64) {
    let keys: Vec<String> = keys.map(key).collect();
    let values: Vec<Vec<u8>> = keys.iter().map(|key| value(key, number)).collect();
    let pairs = keys.iter().zip(&values);
    let pairs: Vec<_> = pairs
        .map(|(key, value)| (key.as_bytes(), Some(&value[..])))
        .collect();
    client
        .put_all(&pairs, Algorithm::Fast)
        .expect("it is written");
}

/// Runs the client of another process. Returns how many keys were read in memory, and how many were
/// requested.
pub(crate) fn read(seed: usize, fabrics: &[SocketAddr], stop: &AtomicBool) -> Vec<u64> {
    let client = connect_by(fabrics.iter().copied(), Transport::Shm);
    std::thread::scope(|scope| {
        let client = &client;
        let thread = |of: usize| scope.spawn(move || read_by(client, seed * 2 + of, stop));
        let threads = [thread(0), thread(1)];
        for thread in threads {
            thread.join().expect("nothing wrong was read");
        }
    });
    let counts = client.read_counts();
    vec![counts.in_memory, counts.asked]
}

fn read_by(client: &Client, seed: usize, stop: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(seed as u64);
    let mut last = HashMap::new();
    let mut told = None;
    loop {
        if stop.load(Ordering::Relaxed) {
            let told: &Instant = told.get_or_insert_with(Instant::now);
            let counts = client.read_counts();
            let suffice = counts.in_memory > ENOUGH && counts.asked > ENOUGH;
            if suffice || told.elapsed() > LONGER {
                return;
            }
        }
        let keys: Vec<String> = (0..random.usize(1..8))
            .map(|_| key(draw(&mut random)))
            .collect();
        let asks: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
        let values = client.get_all(&asks, Algorithm::Fast);
        for (key, found) in keys.iter().zip(values.expect("they are read")) {
            let number = certified(key, &found.expect("all keys are there"));
            let before = last.insert(key.clone(), number).unwrap_or(0);
            assert!(number >= before, "{key} was {before}, and is {number}");
        }
    }
}

#[test]
fn slots_that_are_reused_show_each_reader_only_its_key() {
    let further = ["--transport", "shm", "--published", "3mb"];
    let cluster = Cluster::start_with(2, Keeping::Nothing, TOP, &further);
    let client = connect_by(cluster.fabrics(), Transport::Shm);
    for first in (0..KEYS).step_by(8) {
        put(&client, first..(first + 8).min(KEYS), 1);
    }
    let (stop, numbers) = (AtomicBool::new(false), AtomicU64::new(2));
    let peers = [0, 1].map(|number| Peer::start(Role::Reads, number, cluster.fabrics()));
    let told = std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        for at in 0..WRITERS {
            let (client, numbers, stop) = (&client, &numbers, &stop);
            scope.spawn(move || write(client, at, numbers, stop));
        }
        // The second one is stopped, mostly for less than the grace period, and continued.
        let mut random = fastrand::Rng::with_seed(1);
        let begun = Instant::now();
        while begun.elapsed() < TIME {
            let longest = if random.u8(..8) == 0 { 300 } else { 20 };
            peers[1].signal(Signal::STOP);
            std::thread::sleep(Duration::from_millis(random.u64(..longest)));
            peers[1].signal(Signal::CONT);
            std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
        }
        // Writers continue until readers have ended: these may need a while.
        let ended = scope.spawn(|| peers.map(Peer::finish)).join();
        stop.store(true, Ordering::Relaxed);
        ended.expect("nothing wrong was read")
    });
    for told in told {
        println!("in memory and asked for: {told:?}");
        assert!(told.iter().all(|count| *count > ENOUGH), "{told:?}");
    }
}
