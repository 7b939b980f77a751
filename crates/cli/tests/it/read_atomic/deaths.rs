//! Nodes whose memory clients read are killed, or paused: clients believe nothing older than what
//! was acknowledged, they notice at once, and they return to reading in memory.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::client::{Algorithm, Client, Error, Transport};

use crate::read_atomic::{KEYS, TOP, connect_with};
use crate::support::cluster::{Cluster, Keeping};
use testkit::SetOnDrop;
use testkit::eventually;
use testkit::wait::go_on_until;

/// Keys of the two nodes.
pub(crate) const BOTH: [&str; 2] = [KEYS[0], KEYS[2]];
/// The key of the second node, which is killed or paused.
const OF_VICTIM: [&str; 1] = [KEYS[2]];
const VICTIM: usize = 1;
/// How long a client waits for an answer of a node that it considers alive.
const ANSWER: Duration = Duration::from_secs(3);

fn start(keeping: Keeping) -> Cluster {
    let cluster = Cluster::start_with(2, keeping, TOP, &["--transport", "shm"]);
    // Nodes listen before they serve.
    let client = connect(&cluster, Duration::from_secs(20));
    put(&client, &BOTH, 0).expect("it is written");
    cluster
}

/// Returns a client that reads in memory, and gives up after a time.
fn connect(cluster: &Cluster, timeout: Duration) -> Client {
    connect_with(cluster.fabrics(), |options| {
        options.transport = Transport::Shm;
        options.timeout = timeout;
        options.answer_within = ANSWER;
    })
}

pub(crate) fn put(client: &Client, keys: &[&str], number: u64) -> Result<(), Error> {
    let value = number.to_string().into_bytes();
    let pairs = keys.iter().map(|key| (key.as_bytes(), Some(&value[..])));
    client.put_all(&pairs.collect::<Vec<_>>(), Algorithm::Fast)
}

/// Returns the numbers that keys have; 0 if they are absent.
pub(crate) fn get(client: &Client, keys: &[&str]) -> Result<Vec<u64>, Error> {
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let number = |value: Option<Vec<u8>>| {
        let text = String::from_utf8(value.unwrap_or(b"0".to_vec())).expect("text");
        text.parse().expect("a number")
    };
    let values = client.get_all(&keys, Algorithm::Fast)?;
    Ok(values.into_iter().map(number).collect())
}

/// Reads keys until they are read in memory alone.
pub(crate) fn warm(client: &Client, keys: &[&str]) {
    eventually("keys are read in memory", || {
        let before = client.read_counts();
        let read = get(client, keys);
        let after = client.read_counts();
        read.is_ok() && after.in_memory - before.in_memory == keys.len() as u64
    });
}

/// While a node is away, calls for its keys are repeated: each attempt notices at once, and the
/// first one that can succeed does. Other keys are read as usual.
#[test]
fn a_dead_node_is_noticed_at_once_and_its_successor_too() {
    let mut cluster = start(Keeping::Data);
    let hasty = connect(&cluster, Duration::from_secs(1));
    let patient = connect(&cluster, Duration::from_secs(20));
    put(&patient, &BOTH, 1).expect("it is written");
    for client in [&hasty, &patient] {
        warm(client, &BOTH);
    }
    cluster.kill_node(VICTIM);
    let mut most = 0;
    // A busy machine may not get round to many attempts in the time.
    for _ in 0..20 {
        let begun = Instant::now();
        match get(&hasty, &OF_VICTIM) {
            Err(Error::TimedOut { attempts, .. }) => most = attempts.max(most),
            other => panic!("{other:?}"),
        }
        assert!(begun.elapsed() < ANSWER);
        if most > 4 {
            break;
        }
    }
    // An answer would be waited for much longer.
    assert!(most > 4, "{most} attempts");
    let before = hasty.read_counts();
    assert_eq!(get(&hasty, &BOTH[..1]).expect("its node lives"), [1]);
    assert_eq!(hasty.read_counts().in_memory, before.in_memory + 1);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| get(&patient, &BOTH));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!reading.is_finished(), "no server can tell the value");
        cluster.start_node(VICTIM).expect("it starts again");
        let started = Instant::now();
        assert_eq!(
            reading.join().expect("a reader").expect("it is read"),
            [1, 1]
        );
        let took = started.elapsed();
        assert!(took < Duration::from_secs(3), "it has taken {took:?}");
    });
    put(&hasty, &BOTH, 2).expect("it is written");
    for client in [&hasty, &patient] {
        assert_eq!(get(client, &BOTH).expect("it is read"), [2, 2]);
        warm(client, &BOTH);
    }
}

/// A reader may remove what a dead node has left in memory, so that its successor finds no trace of
/// it. Another reader that was slower may still believe it for a while.
#[test]
fn a_successor_waits_until_no_reader_believes_its_predecessor() {
    let mut cluster = start(Keeping::Data);
    let client = connect(&cluster, Duration::from_secs(20));
    put(&client, &BOTH, 1).expect("it is written");
    let hasty = connect(&cluster, Duration::from_millis(20));
    warm(&hasty, &BOTH);
    cluster.kill_node(VICTIM);
    let killed = Instant::now();
    // It has been read just before, and is checked again only after a while.
    std::thread::sleep(Duration::from_millis(15));
    get(&hasty, &OF_VICTIM).expect_err("it is dead");
    cluster.start_node(VICTIM).expect("it starts again");
    put(&client, &OF_VICTIM, 2).expect("it is written");
    let rested = killed.elapsed();
    assert!(rested > Duration::from_millis(210), "it was {rested:?}");
}

/// Reads what a paused node has published, until it is not believed any more. Returns how long it
/// was believed.
fn believed(client: &Client, lease: Duration) -> Duration {
    let paused = Instant::now();
    loop {
        let begun = paused.elapsed();
        let before = client.read_counts().in_memory;
        let read = get(client, &OF_VICTIM);
        let after = client.read_counts().in_memory;
        match read {
            Ok(numbers) => assert_eq!((numbers, after), (vec![1], before + 1)),
            Err(Error::TimedOut { .. }) => {
                assert_eq!(after, before);
                return begun;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(begun < lease * 2, "it is believed after {begun:?}");
    }
}

/// A paused node cannot say that its memory must not be believed any more.
#[test]
fn a_node_that_stands_still_is_believed_until_its_lease_ends() {
    const LEASE: Duration = Duration::from_secs(1);
    let cluster = start(Keeping::Nothing);
    let patient = connect(&cluster, Duration::from_secs(20));
    let hasty = connect(&cluster, Duration::from_millis(300));
    put(&patient, &BOTH, 1).expect("it is written");
    for client in [&hasty, &patient] {
        warm(client, &BOTH);
    }
    let until = Instant::now() + Duration::from_secs(60);
    let last = loop {
        cluster.pause_node(VICTIM);
        let last = believed(&hasty, LEASE);
        // On a busy machine the node may have been paused for a while before that is known.
        if last > LEASE / 2 || Instant::now() > until {
            break last;
        }
        cluster.resume_node(VICTIM);
        warm(&hasty, &BOTH);
    };
    println!("the node was believed for {last:?}");
    // Otherwise the reads before may have been chance.
    assert!(last > LEASE / 2, "it was believed for {last:?} only");
    // It stays so for every client: one that knows the region from before, and one that does not.
    let newcomer = connect_with(cluster.fabrics().take(1), |options| {
        options.transport = Transport::Shm;
        options.timeout = Duration::from_millis(300);
    });
    for client in [&hasty, &newcomer] {
        get(client, &BOTH).expect_err("half of it is not known");
        assert_eq!(get(client, &BOTH[..1]).expect("its node goes on"), [1]);
    }
    let (reading, before) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| get(&patient, &BOTH));
        std::thread::sleep(Duration::from_secs(1));
        assert!(!reading.is_finished(), "no server can tell the value");
        let before = patient.read_counts().in_memory;
        cluster.resume_node(VICTIM);
        (reading.join().expect("a reader"), before)
    });
    assert_eq!(reading.expect("it is read"), [1, 1]);
    put(&newcomer, &BOTH, 2).expect("it is written");
    for client in [&hasty, &patient, &newcomer] {
        assert_eq!(get(client, &BOTH).expect("it is read"), [2, 2]);
        warm(client, &BOTH);
    }
    assert!(patient.read_counts().in_memory > before);
}

/// How often a reader reads at least, or it shows nothing.
pub(crate) const ENOUGH: u64 = 100;

/// The state that a writer and readers of one run share.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) stop: AtomicBool,
    /// The number that was last acknowledged. There is one writer.
    pub(crate) acknowledged: AtomicU64,
    /// Numbers whose writes have an unknown outcome: they may also appear behind later ones.
    unknown: Mutex<HashSet<u64>>,
}

impl Run {
    pub(crate) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    /// Writes rising numbers to both keys.
    pub(crate) fn write(&self, client: &Client) {
        let _ends = SetOnDrop(&self.stop);
        for number in 1.. {
            if !self.goes_on() {
                return;
            }
            match put(client, &BOTH, number) {
                Ok(()) => self.acknowledged.store(number, Ordering::SeqCst),
                Err(error) if error.is_unknown() || error.is_committed() => {
                    self.unknown.lock().expect("no panic").insert(number);
                }
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    }

    /// Reads keys, and counts the reads. Returns the longest time of a failed read.
    pub(crate) fn read(&self, client: &Client, keys: &[&str], reads: &AtomicU64) -> Duration {
        let _ends = SetOnDrop(&self.stop);
        let (mut last, mut longest) = (0, Duration::ZERO);
        while self.goes_on() {
            let least = self.acknowledged.load(Ordering::SeqCst).max(last);
            let begun = Instant::now();
            match get(client, keys) {
                Ok(numbers) => {
                    assert!(
                        numbers.iter().all(|number| *number == numbers[0]),
                        "a fractured read: {numbers:?}"
                    );
                    if numbers[0] < least {
                        let unknown = self.unknown.lock().expect("no panic");
                        let seen = numbers[0];
                        assert!(unknown.contains(&seen), "{seen} after {least}");
                    }
                    last = numbers[0];
                    reads.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    longest = longest.max(begun.elapsed());
                }
            }
        }
        longest
    }

    /// Continues until all readers have read enough.
    pub(crate) fn suffices(&self, reads: &[AtomicU64]) {
        let enough = |count: &AtomicU64| count.load(Ordering::Relaxed) > ENOUGH;
        go_on_until(|| reads.iter().all(enough) || !self.goes_on());
    }
}

/// A node is killed and started again under load, with its data. Some clients read all the time,
/// and one does not read while it happens.
#[test]
fn nothing_older_is_seen_when_a_node_is_killed_and_started_again() {
    const TIMEOUT: Duration = Duration::from_millis(500);
    let mut cluster = start(Keeping::Data);
    let run = Run::default();
    let writer = connect(&cluster, TIMEOUT);
    let readers = [(); 3].map(|()| connect(&cluster, TIMEOUT));
    let idle = connect(&cluster, Duration::from_secs(20));
    let counts = [const { AtomicU64::new(0) }; 3];
    std::thread::scope(|scope| {
        let run = &run;
        let writer = scope.spawn(move || run.write(&writer));
        let keys: [&[&str]; 3] = [&BOTH, &BOTH, &OF_VICTIM];
        let readings: Vec<_> = readers
            .iter()
            .zip(keys)
            .zip(&counts)
            .map(|((client, keys), count)| scope.spawn(move || run.read(client, keys, count)))
            .collect();
        let ends = SetOnDrop(&run.stop);
        for round in 0..4 {
            warm(&idle, &BOTH);
            std::thread::sleep(Duration::from_millis(150));
            cluster.kill_node(VICTIM);
            // Once it is away for long.
            std::thread::sleep(Duration::from_millis(if round == 1 { 1200 } else { 0 }));
            cluster.start_node(VICTIM).expect("it starts again");
            let before = run.acknowledged.load(Ordering::SeqCst);
            eventually("a client writes again", || {
                run.acknowledged.load(Ordering::SeqCst) > before || !run.goes_on()
            });
            let least = run.acknowledged.load(Ordering::SeqCst);
            let seen = get(&idle, &BOTH).expect("it is read")[0];
            let unknown = run.unknown.lock().expect("no panic");
            assert!(
                seen >= least || unknown.contains(&seen),
                "{seen} after {least}"
            );
            drop(unknown);
            // The others come back to reading in memory, too.
            for reader in &readers {
                let before = reader.read_counts().in_memory;
                eventually("keys are read in memory again", || {
                    reader.read_counts().in_memory > before || !run.goes_on()
                });
            }
        }
        run.suffices(&counts);
        drop(ends);
        writer.join().expect("the writer");
        for (reading, reads) in readings.into_iter().zip(&counts) {
            let longest = reading.join().expect("nothing older was read");
            let reads = reads.load(Ordering::Relaxed);
            println!("{reads} reads; the longest that failed took {longest:?}");
            assert!(reads > ENOUGH, "{reads} reads");
            assert!(longest < ANSWER, "{longest:?} until an error came");
        }
    });
}
