//! Reads of newest versions that nodes have published, without the nodes (paper 1, section 3.2;
//! GET\*): memory of this machine, and which key is where in it.
//!
//! | part | holds |
//! |---|---|
//! | `places` | for keys, the node and the address that it has told; bounded |
//! | `nodes` | for each node its region, once or more: a thread that reads has one by itself |
//!
//! A key without an address, or whose slot is not to be believed, is asked for by a message, whose
//! answer brings an address. What is read is a version like any other; the algorithm above does not
//! know where it came from.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use base::NodeId;
use base::memory::RemoteMemory;
use base::versions::{Found, OwnedFound};
use cluster::message::{Answer, RegionInfo, Request};
use cluster::ramp::Reading;
use cluster::ramp::slots::{Address, Ask, Fallback, OwnersClock, Reader};
use fabric::memory::{Grant, Kind, Memory};
use fabric::shm::Shm;
use parking_lot::Mutex;

use crate::map::Known;
use crate::pool::Pool;

/// Parts of the list of places, each with a lock.
const PARTS: usize = 16;
/// Keys whose places are known, at most. Beyond, those of a part are forgotten.
const PLACES: usize = 1 << 20;

/// For keys, the node and the address that it has told.
type Places = HashMap<Vec<u8>, (NodeId, Address)>;

/// See the module's description.
#[derive(Default)]
pub(crate) struct OneSided {
    places: [Mutex<Places>; PARTS],
    nodes: Mutex<BTreeMap<NodeId, Node>>,
    shm: Shm,
    found: AtomicU64,
    missed: AtomicU64,
}

/// What there is of a node.
#[derive(Default)]
struct Node {
    /// Whether it was asked for its region, and has none that is within reach.
    none: bool,
    free: Vec<Opened>,
}

/// A node's region, for one thread at a time.
struct Opened {
    memory: Box<dyn RemoteMemory + Send>,
    reader: Reader,
}

/// This machine's clock, which counts the time for which it is suspended: nanoseconds.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000) + time.tv_nsec as u64
}

impl OneSided {
    /// How many keys were read in memory, and for how many a node had to be asked.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.found), of(&self.missed))
    }

    fn part(&self, key: &[u8]) -> &Mutex<Places> {
        let hash = cluster::slot::of(key);
        &self.places[usize::from(hash) % PARTS]
    }

    /// Where a node has told that a key is; `None`: nowhere.
    pub(crate) fn learn(&self, node: NodeId, key: &[u8], address: Option<Address>) {
        let mut part = self.part(key).lock();
        match address {
            Some(address) => {
                if part.len() >= PLACES / PARTS {
                    part.clear();
                }
                part.insert(key.to_vec(), (node, address));
            }
            None => drop(part.remove(key)),
        }
    }

    /// Reads what the first round of a read asks, as far as places are known. The answers, with the
    /// places of keys in the read.
    pub(crate) fn read(
        &self,
        known: &Known,
        pool: &Pool,
        reading: &Reading,
        deadline: Instant,
    ) -> Vec<(usize, OwnedFound)> {
        let mut asks: BTreeMap<NodeId, (Vec<usize>, Vec<Ask<'_>>)> = BTreeMap::new();
        let mut missed = 0;
        for (at, ask) in reading.asks() {
            let key = ask.key();
            let place = self.part(key).lock().get(key).copied();
            // Whoever leads the partition now has the truth.
            let leader = known.find(known.topology.partition_of(key));
            match place.filter(|(node, _)| *node == leader) {
                Some((node, address)) => {
                    let of_node = asks.entry(node).or_default();
                    of_node.0.push(at);
                    of_node.1.push(Ask { key, address });
                }
                None => missed += 1,
            }
        }
        let mut begun = Vec::new();
        for (node, (places, asks)) in asks {
            let opened = self.open(known, pool, node, deadline);
            let begin = |mut opened: Opened| {
                let ok = opened.reader.begin(&mut *opened.memory, &asks, now());
                ok.is_ok().then_some(opened)
            };
            match opened.and_then(begin) {
                Some(opened) => begun.push((node, opened, places, asks)),
                None => missed += asks.len(),
            }
        }
        let mut found = Vec::new();
        for (node, opened, places, asks) in begun {
            missed += self.finish(node, opened, (&places, &asks), &mut found);
        }
        self.found.fetch_add(found.len() as u64, Ordering::Relaxed);
        self.missed.fetch_add(missed as u64, Ordering::Relaxed);
        found
    }

    /// Takes what was begun. Returns how many keys were not found.
    fn finish(
        &self,
        node: NodeId,
        mut opened: Opened,
        (places, asks): (&[usize], &[Ask<'_>]),
        found: &mut Vec<(usize, OwnedFound)>,
    ) -> usize {
        let before = found.len();
        let mut worst = None;
        let Opened { memory, reader } = &mut opened;
        let read = reader.finish(&mut **memory, asks, now, |at, answer| match answer {
            Ok(version) => {
                let last = found.last().map(|(_, last)| last);
                let copy = OwnedFound::copy(Found::Version(version), last);
                found.push((places[at], copy));
            }
            Err(fallback) => {
                if !fallback.keeps_address() {
                    self.learn(node, asks[at].key, None);
                }
                if matches!(fallback, Fallback::Gone | Fallback::Lapsed) {
                    worst = Some(fallback);
                }
            }
        });
        let count = found.len() - before;
        if read.is_ok() && worst.is_none() {
            let mut nodes = self.nodes.lock();
            nodes.entry(node).or_default().free.push(opened);
        } else {
            // It is opened anew, and its clock asked for.
            let mut nodes = self.nodes.lock();
            nodes.remove(&node);
        }
        asks.len() - count
    }

    /// A node's region, opened if need be.
    fn open(&self, known: &Known, pool: &Pool, node: NodeId, deadline: Instant) -> Option<Opened> {
        {
            let mut nodes = self.nodes.lock();
            let of_node = nodes.entry(node).or_default();
            if of_node.none {
                return None;
            }
            if let Some(opened) = of_node.free.pop() {
                return Some(opened);
            }
        }
        let at_mine = now();
        let answer = known
            .way_to(node)
            .and_then(|to| pool.ask(to, Request::Region, deadline));
        let Ok(Answer::Region(region)) = answer else {
            return None;
        };
        let opened = region.and_then(|region| self.reach(&region, at_mine));
        if opened.is_none() {
            self.nodes.lock().entry(node).or_default().none = true;
        }
        opened
    }

    fn reach(&self, region: &RegionInfo, at_mine: u64) -> Option<Opened> {
        let grant = Grant::decode(&region.grant).filter(|grant| grant.kind() == Kind::Shm)?;
        let memory = self.shm.reach(&grant).ok()?;
        let mut reader = Reader::new();
        reader.learn(OwnersClock {
            at_owner: region.clock,
            at_mine,
        });
        Some(Opened {
            memory: Box::new(memory),
            reader,
        })
    }
}
