//! Hundreds of thousands of reads of slots that another process publishes in memory which both share: no torn read is
//! taken for a version, none is of another key, and none is older than what was acknowledged before.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::memory::{RemoteError, RemoteMemory, Words};
use base::versions::Versioned;
use fabric::memory::{Access, Grant, Memory, Region};
use fabric::shm::{Shm, ShmRegion, ShmRemote};
use kumiki_cluster::ramp::slots::{Address, Ask, Fallback, Options, Reader, Slots};
use testkit::amount;
use testkit::own_process::test_as_process;

use crate::slots::support::version;

/// Makes the test below a publisher, in this directory.
const PLAY: &str = "KUMIKI_TEST_PUBLISHER_IN";
/// The longest time for the publisher; the reader ends before.
const LONGEST: Duration = Duration::from_secs(300);
const KEYS: usize = 3;
/// Words that a reader takes of a slot: enough for all values.
const SLOT: u32 = 512;

fn key(at: usize) -> Vec<u8> {
    format!("key{at}").into_bytes()
}

/// Returns the value of a version: key and number repeated, in a number of words that changes with it.
fn value(at: usize, number: u64) -> Vec<u8> {
    let word = number << 8 | at as u64;
    word.to_le_bytes().repeat(400 + number as usize % 50)
}

/// Memory of another process, each piece of which is read in two halves, now and then with a pause
/// between: so the publisher gets on meanwhile, also on a busy machine.
struct Halved {
    memory: ShmRemote,
    begun: Vec<(usize, usize)>,
    random: fastrand::Rng,
}

impl RemoteMemory for Halved {
    fn len(&self) -> usize {
        self.memory.len()
    }

    fn begin(&mut self, from: usize, count: usize) -> Result<(), RemoteError> {
        self.begun.push((from, count));
        Ok(())
    }

    fn finish(&mut self, into: &mut Vec<u64>) -> Result<(), RemoteError> {
        for (from, count) in std::mem::take(&mut self.begun) {
            let first = self.random.usize(..=count);
            self.memory.begin(from, first)?;
            self.memory.finish(into)?;
            match self.random.u8(..) {
                0 => std::thread::sleep(Duration::from_micros(1)),
                1..8 => std::thread::yield_now(),
                _ => {}
            }
            self.memory.begin(from + first, count - first)?;
            self.memory.finish(into)?;
        }
        Ok(())
    }
}

/// A process that publishes. It is killed when this is dropped.
struct Publisher {
    process: Child,
    /// Open for as long as it lives: its harness writes to it when the test takes long.
    _stdout: BufReader<ChildStdout>,
    slots: Halved,
    /// For each key, the number of the version that was acknowledged last.
    acknowledged: ShmRemote,
    addresses: Vec<Address>,
}

impl Publisher {
    fn start(dir: &Path) -> Publisher {
        let mut process = test_as_process(module_path!(), "plays_a_publisher_if_told_to")
            .env(PLAY, dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut told = (&mut stdout)
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| {
                let (_, hex) = line.split_once("publisher:")?;
                let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                Some((0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>())
            });
        let mut next = || told.next().expect("the publisher tells something");
        let mut reach = || {
            let grant = Grant::decode(&next()).unwrap();
            Shm::in_dir(dir).reach(&grant).unwrap()
        };
        let (slots, acknowledged) = (reach(), reach());
        let address = |_| {
            let bytes = next().try_into().unwrap();
            let words = SLOT;
            Address {
                words,
                ..Address::from_bytes(bytes)
            }
        };
        let slots = Halved {
            memory: slots,
            begun: Vec::new(),
            random: fastrand::Rng::with_seed(9),
        };
        let addresses = (0..KEYS).map(address).collect();
        Publisher {
            process,
            _stdout: stdout,
            slots,
            acknowledged,
            addresses,
        }
    }

    /// Returns the numbers that were acknowledged last, before now.
    fn acknowledged(&mut self) -> Vec<u64> {
        let mut words = Vec::new();
        self.acknowledged.begin(0, KEYS).unwrap();
        self.acknowledged.finish(&mut words).unwrap();
        words
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The process of a [`Publisher`]; without the variable it does nothing.
#[test]
fn plays_a_publisher_if_told_to() {
    let Some(dir) = std::env::var_os(PLAY) else {
        return;
    };
    let shm = Shm::in_dir(dir);
    let region = shm.register(1 << 15, Access::Read).unwrap();
    let acknowledged = shm.register(KEYS, Access::Read).unwrap();
    println!();
    for region in [&region, &acknowledged] {
        let mut bytes = Vec::new();
        region.grant().encode(&mut bytes);
        tell(&bytes);
    }
    let options = Options {
        parts: 1,
        ..Options::new(0xabcd)
    };
    let clock = AtomicU64::new(0);
    let slots = Slots::new(
        Box::new(region),
        &options,
        Box::new(move || clock.fetch_add(1, Ordering::Relaxed)),
    );
    let slots = slots.unwrap();
    // Room for the largest.
    let addresses: Vec<Address> = (0..KEYS).map(|at| publish(&slots, at, 49)).collect();
    for address in &addresses {
        tell(&address.to_bytes());
    }
    let until = Instant::now() + LONGEST;
    let mut random = fastrand::Rng::with_seed(5);
    for number in (50..).take_while(|_| Instant::now() < until) {
        let at = random.usize(..KEYS);
        write(&slots, &acknowledged, at, number);
        assert_eq!(publish(&slots, at, number).at, addresses[at].at);
    }
}

fn tell(bytes: &[u8]) {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("publisher:{hex}");
    std::io::stdout().flush().unwrap();
}

fn write(slots: &Slots, acknowledged: &ShmRegion, at: usize, number: u64) {
    slots.writing(&key(at));
    slots.written(&key(at));
    acknowledged.words()[at].store(number, Ordering::SeqCst);
}

fn publish(slots: &Slots, at: usize, number: u64) -> Address {
    let key = key(at);
    let ticket = slots.ticket(&key).expect("no other writer is active");
    slots
        .publish(ticket, &key, &version(number, &value(at, number)))
        .expect("there is room")
}

/// Checks a version that was read of a key. Returns its number.
fn check(at: usize, version: &Versioned<'_>, least: u64) -> u64 {
    let number = version.id.unique;
    let content = version.content.expect("it has a value");
    let whole = content.value == value(at, number);
    assert!(whole, "key {at}, version {number} is a mixture");
    assert!(number >= least, "{number} after {least} was acknowledged");
    number
}

#[test]
fn no_torn_read_is_believed_while_another_process_publishes() {
    let mut dir = tempfile::Builder::new();
    let dir = dir.prefix("kumiki-test-").tempdir_in("/dev/shm").unwrap();
    let mut publisher = Publisher::start(dir.path());
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let asks: Vec<Ask<'_>> = keys
        .iter()
        .zip(&publisher.addresses)
        .map(|(key, address)| Ask {
            key,
            address: *address,
        })
        .collect();
    let mut reader = Reader::new();
    let mut last = publisher.acknowledged();
    let (mut attempts, mut found, mut torn) = (0, 0, 0);
    let enough = amount(300_000, 1_000_000);
    // On a busy machine all of them may all fall between two publications, or take minutes.
    let until = Instant::now() + LONGEST / 2;
    while (attempts < enough || found < 1000 || torn < 1000) && Instant::now() < until {
        for (at, least) in publisher.acknowledged().into_iter().enumerate() {
            last[at] = last[at].max(least);
        }
        let slots = &mut publisher.slots;
        reader.begin(slots, &asks, 0).unwrap();
        let finished = reader.finish(
            slots,
            &asks,
            || 0,
            |at, read| match read {
                Ok(version) => {
                    last[at] = check(at, &version, last[at]);
                    found += 1;
                }
                Err(Fallback::Invalid) => {}
                Err(Fallback::Torn | Fallback::Moved) => torn += 1,
                Err(other) => panic!("{other:?}"),
            },
        );
        finished.unwrap();
        attempts += KEYS as u64;
    }
    println!("{attempts} attempts, {found} versions, {torn} torn");
    assert!(found >= 1000 && torn >= 1000, "{found} found, {torn} torn");
}
