//! Memory that is read in odd ways, and an owner with a clock of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::memory::{RemoteError, RemoteMemory, Words};
use base::transaction::Kind;
use base::versions::{Content, Versioned};
use base::{Timestamp, TransactionId};
use kumiki_cluster::ramp::slots::{Address, Ask, Fallback, Options, Reader, Slots};

/// Words that an owner and readers of one process share.
#[derive(Clone)]
pub(crate) struct Shared(Arc<[AtomicU64]>);

impl Shared {
    pub(crate) fn new(bytes: usize) -> Shared {
        Shared((0..bytes / 8).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Words for Shared {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Called before each word that is read, with its place in the region.
pub(crate) type Before<'b> = Box<dyn FnMut(usize) + 'b>;

/// A region as a peer reads it: word by word, each whole, those of one read in any order.
pub(crate) struct Remote<'b> {
    words: Shared,
    begun: Vec<(usize, usize)>,
    random: fastrand::Rng,
    /// The words of a read come in an order drawn anew each time.
    pub(crate) is_shuffled: bool,
    pub(crate) before: Option<Before<'b>>,
}

impl<'b> Remote<'b> {
    pub(crate) fn new(words: &Shared) -> Remote<'b> {
        Remote {
            words: words.clone(),
            begun: Vec::new(),
            random: fastrand::Rng::with_seed(7),
            is_shuffled: false,
            before: None,
        }
    }

    pub(crate) fn shuffled(words: &Shared, seed: u64) -> Remote<'b> {
        Remote {
            random: fastrand::Rng::with_seed(seed),
            is_shuffled: true,
            ..Remote::new(words)
        }
    }
}

impl RemoteMemory for Remote<'_> {
    fn len(&self) -> usize {
        self.words.0.len()
    }

    fn begin(&mut self, from: usize, count: usize) -> Result<(), RemoteError> {
        let len = self.len();
        if from + count > len {
            let to = from + count;
            return Err(RemoteError::Bounds { from, to, len });
        }
        self.begun.push((from, count));
        Ok(())
    }

    fn finish(&mut self, into: &mut Vec<u64>) -> Result<(), RemoteError> {
        for (from, count) in self.begun.drain(..) {
            let first = into.len();
            into.resize(first + count, 0);
            // Every second word has its turn later, or from the end, or from anywhere.
            let (start, step) = if self.is_shuffled {
                let odd = |n: usize| n | 1;
                (self.random.usize(..count), odd(self.random.usize(..8)))
            } else {
                (0, 1)
            };
            let mut at = start;
            for _ in 0..count {
                // A step that shares a factor with the count would leave words out.
                let step = if gcd(step, count) == 1 { step } else { 1 };
                if let Some(before) = &mut self.before {
                    before(from + at);
                }
                into[first + at] = self.words.0[from + at].load(Ordering::Acquire);
                at = (at + step) % count;
            }
        }
        Ok(())
    }
}

fn gcd(one: usize, other: usize) -> usize {
    if other == 0 {
        one
    } else {
        gcd(other, one % other)
    }
}

/// An owner of slots whose clock stands still until it is moved.
pub(crate) struct Owned {
    pub(crate) memory: Shared,
    pub(crate) slots: Slots,
    pub(crate) now: Arc<AtomicU64>,
}

pub(crate) const INCARNATION: u64 = 0xabcd_ef01;
pub(crate) const GRACE: u64 = 1_000_000;

/// Returns small options: one part, few gates, pages of half a kilobyte.
pub(crate) fn options() -> Options {
    Options {
        parts: 1,
        page_bytes: 512,
        gates: 8,
        grace: Duration::from_nanos(GRACE),
        ..Options::new(INCARNATION)
    }
}

/// Returns the bytes of a region with this many pages under [`options`].
pub(crate) fn pages(number: usize) -> usize {
    24 * 8 + number * 512
}

impl Owned {
    pub(crate) fn new(bytes: usize, options: &Options) -> Owned {
        let memory = Shared::new(bytes);
        let now = Arc::new(AtomicU64::new(1_000));
        let clock = Arc::clone(&now);
        let slots = Slots::new(
            Box::new(memory.clone()),
            options,
            Box::new(move || clock.load(Ordering::SeqCst)),
        );
        let slots = slots.expect("the region is large enough");
        Owned { memory, slots, now }
    }

    pub(crate) fn pass(&self, ns: u64) {
        self.now.fetch_add(ns, Ordering::SeqCst);
    }

    /// Publishes a version of a key without a writer.
    pub(crate) fn put(&self, key: &[u8], version: &Versioned<'_>) -> Address {
        let ticket = self.slots.ticket(key).expect("no writer is active");
        self.slots
            .publish(ticket, key, version)
            .expect("there is room")
    }

    /// Reads a key without a pause.
    pub(crate) fn get(&self, key: &[u8], address: Address) -> Result<Owner, Fallback> {
        get(&mut Remote::new(&self.memory), key, address)
    }
}

/// The number and the value of a version that a read found.
pub(crate) type Owner = (u64, Option<Vec<u8>>);

pub(crate) fn get(
    memory: &mut Remote<'_>,
    key: &[u8],
    address: Address,
) -> Result<Owner, Fallback> {
    get_by(&mut Reader::new(), memory, key, address, &mut || 0)
}

pub(crate) fn get_by(
    reader: &mut Reader,
    memory: &mut Remote<'_>,
    key: &[u8],
    address: Address,
    now: &mut dyn FnMut() -> u64,
) -> Result<Owner, Fallback> {
    let asks = [Ask { key, address }];
    reader.begin(memory, &asks, now()).expect("it can be read");
    let mut found = None;
    let answer = |_, answer: Result<Versioned<'_>, Fallback>| {
        found = Some(answer.map(|version| {
            let value = version.content.map(|content| content.value.to_vec());
            (version.id.unique, value)
        }));
    };
    let finished = reader.finish(memory, &asks, &mut *now, answer);
    finished.expect("it can be read");
    found.expect("one was asked for")
}

/// Returns the version with this number.
pub(crate) fn version(number: u64, value: &[u8]) -> Versioned<'_> {
    Versioned {
        id: TransactionId {
            timestamp: Timestamp(number),
            unique: number,
        },
        siblings: &[],
        content: Some(Content {
            value,
            kind: Kind::String,
            deadline: None,
        }),
    }
}

/// As [`version`], with a deadline.
pub(crate) fn expiring(number: u64, value: &[u8], deadline: u64) -> Versioned<'_> {
    let mut version = version(number, value);
    version.content.as_mut().expect("it has a value").deadline = Some(deadline);
    version
}

/// As [`version`]: the key is absent.
pub(crate) fn absent(number: u64) -> Versioned<'static> {
    Versioned {
        content: None,
        ..version(number, &[])
    }
}
