//! Reads of the newest versions that nodes have published, without the nodes' help (paper 1, section
//! 3.2; GET\*): keeps the addresses of keys in the nodes' memory.
//!
//! | part | holds |
//! |---|---|
//! | `places` | for keys, the node and the address that it has told; bounded |
//! | `nodes` | for each node its region, once or more: a thread that reads has one by itself |
//!
//! A region is memory of this machine, or is read through an RDMA device; the transport determines which
//! of them is tried. A reader through a device has a queue pair, and a connection to the node: the end
//! of the connection shows sooner than the device does that the node is gone.
//!
//! A key without an address, or whose slot is not valid, is asked for by a message, and the answer
//! brings an address. The version that is read is like any other; the read algorithm does not know where
//! it came from.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::NodeId;
use base::memory::RemoteMemory;
use base::versions::{Found, OwnedFound};
use cluster::message::{Answer, RegionInfo, Request};
use cluster::ramp::ReadAtomicRead;
use cluster::ramp::slots::{Address, Ask, Fallback, OwnersClock, Reader};
use fabric::memory::{Grant, Memory, RegionKind};
use fabric::shm::Shm;
use fabric::tcp::Transport;
use fabric::verbs::Domain;
use parking_lot::Mutex;

use crate::cluster_map::ClusterMap;
use crate::connection_pool::{ConnectionPool, RequestFailure};

/// Parts of the list of places, each with a lock.
const PARTS: usize = 16;
/// Most keys whose places are kept. At the limit, all places of a part are forgotten.
const PLACES: usize = 1 << 20;
/// Time after which a node that has not answered is asked for its region again.
const SILENT: Duration = Duration::from_millis(100);
/// Time after which a node that had no region within reach is asked again.
const AGAIN: Duration = Duration::from_secs(2);

/// For keys, the node and the address that it has told.
type SlotAddresses = HashMap<Vec<u8>, (NodeId, Address)>;

/// The regions of nodes, and the places of keys in them.
pub(crate) struct OneSided {
    places: [Mutex<SlotAddresses>; PARTS],
    nodes: Mutex<BTreeMap<NodeId, PublishingNode>>,
    /// Kinds of memory that are tried, in this order.
    kinds: &'static [RegionKind],
    shm: Shm,
    verbs: Option<Domain>,
    found: AtomicU64,
    missed: AtomicU64,
}

/// The published memory of a node, as far as this client knows it.
#[derive(Default)]
struct PublishingNode {
    /// Set if the node has no region within reach, or has not answered: it is not asked again before
    /// this time.
    none_until: Option<Instant>,
    free: Vec<OpenedRegion>,
}

/// A node's region, opened for one thread at a time.
struct OpenedRegion {
    memory: Box<dyn RemoteMemory + Send>,
    reader: Reader,
}

/// Returns this machine's clock, in nanoseconds; it goes on while the machine is suspended.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000) + time.tv_nsec as u64
}

impl OneSided {
    /// Creates the list for a transport, whose kinds of memory it uses.
    pub(crate) fn new(transport: Transport, verbs: Option<Domain>) -> OneSided {
        OneSided {
            places: Default::default(),
            nodes: Mutex::default(),
            kinds: match transport {
                Transport::Tcp => &[],
                Transport::Shm | Transport::ShmSend => &[RegionKind::Shm],
                Transport::Verbs | Transport::VerbsSend => &[RegionKind::Verbs],
                Transport::Auto => &[RegionKind::Shm, RegionKind::Verbs],
            },
            shm: Shm::default(),
            verbs,
            found: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        }
    }

    /// Returns how many keys were read in memory, and for how many a node had to be asked.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.found), of(&self.missed))
    }

    fn part(&self, key: &[u8]) -> &Mutex<SlotAddresses> {
        let hash = cluster::slot::of(key);
        &self.places[usize::from(hash) % PARTS]
    }

    /// Notes the slot in which a node has published a key; `None` means that it has none.
    pub(crate) fn learn(&self, node: NodeId, key: &[u8], address: Option<Address>) {
        let mut part = self.part(key).lock();
        match address {
            Some(address) => {
                let place = (node, address);
                if let Some(slot) = part.get_mut(key) {
                    *slot = place;
                    return;
                }
                if part.len() >= PLACES / PARTS {
                    part.clear();
                }
                part.insert(key.to_vec(), place);
            }
            None => drop(part.remove(key)),
        }
    }

    /// Forgets all that a node has told in an earlier life. Otherwise the first read of each of these
    /// keys would open the region anew.
    fn forget(&self, node: NodeId, incarnation: u64) {
        for part in &self.places {
            let is_other = |(of, address): &(NodeId, Address)| {
                *of != node || address.incarnation != incarnation
            };
            part.lock().retain(|_, place| is_other(place));
        }
    }

    /// Reads the keys of a read's first round whose places are known. Returns the answers, with the
    /// keys' places in the read.
    pub(crate) fn read(
        &self,
        map: &ClusterMap,
        pool: &ConnectionPool,
        reading: &ReadAtomicRead,
        deadline: Instant,
    ) -> Vec<(usize, OwnedFound)> {
        let mut asks: BTreeMap<NodeId, (Vec<usize>, Vec<Ask<'_>>)> = BTreeMap::new();
        let mut missed = 0;
        for (at, ask) in reading.asks() {
            let key = ask.key();
            let place = self.part(key).lock().get(key).copied();
            // Only the current leader of the partition has the newest version.
            let leader = map.find(map.topology.partition_of(key));
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
            let opened = self.open(map, pool, node, deadline);
            let begin = |mut opened: OpenedRegion| {
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

    /// Finishes reads that were begun. Returns how many keys were not found.
    fn finish(
        &self,
        node: NodeId,
        mut opened: OpenedRegion,
        (places, asks): (&[usize], &[Ask<'_>]),
        found: &mut Vec<(usize, OwnedFound)>,
    ) -> usize {
        let before = found.len();
        let (mut worst, mut gone) = (None, None);
        let OpenedRegion { memory, reader } = &mut opened;
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
                if fallback == Fallback::Gone {
                    gone = Some(asks[at].address.incarnation);
                }
            }
        });
        if let Some(incarnation) = gone {
            self.forget(node, incarnation);
        }
        let count = found.len() - before;
        if read.is_ok() && worst.is_none() {
            let mut nodes = self.nodes.lock();
            nodes.entry(node).or_default().free.push(opened);
        } else {
            // The region is opened anew, and the node is asked for its clock.
            let mut nodes = self.nodes.lock();
            nodes.remove(&node);
        }
        asks.len() - count
    }

    /// Returns a node's region, and opens it if need be.
    fn open(
        &self,
        map: &ClusterMap,
        pool: &ConnectionPool,
        node: NodeId,
        deadline: Instant,
    ) -> Option<OpenedRegion> {
        {
            let mut nodes = self.nodes.lock();
            let of_node = nodes.entry(node).or_default();
            if of_node
                .none_until
                .is_some_and(|until| Instant::now() < until)
            {
                return None;
            }
            if let Some(opened) = of_node.free.pop() {
                return Some(opened);
            }
        }
        let mut again = AGAIN;
        // Other nodes' keys are still to be read, so this may take a part of the time only.
        let begun = Instant::now();
        let deadline = begun + deadline.saturating_duration_since(begun) / 4;
        for kind in self.kinds {
            match self.enter(*kind, map, pool, node, deadline) {
                Ok(None) => {}
                Ok(opened) => return opened,
                Err(_) => {
                    again = SILENT;
                    break;
                }
            }
        }
        let mut nodes = self.nodes.lock();
        nodes.entry(node).or_default().none_until = Some(Instant::now() + again);
        None
    }

    /// Returns a node's region, if memory of this kind reaches it.
    ///
    /// # Errors
    /// Returns an error if the node has not answered.
    fn enter(
        &self,
        kind: RegionKind,
        map: &ClusterMap,
        pool: &ConnectionPool,
        node: NodeId,
        deadline: Instant,
    ) -> Result<Option<OpenedRegion>, RequestFailure> {
        let to = map.address_of(node)?;
        match kind {
            RegionKind::Shm => {
                let at_mine = now();
                let answer = pool.ask(to, Request::Region { offer: &[] }, deadline)?;
                let region = region_of(kind, answer)?;
                Ok(region.and_then(|(grant, clock)| {
                    let memory = self.shm.reach(&grant).ok()?;
                    Some(OpenedRegion::new(Box::new(memory), clock, at_mine))
                }))
            }
            // These kinds are for messages; no region is read through them.
            RegionKind::ShmReceives | RegionKind::VerbsReceives => Ok(None),
            RegionKind::Verbs => {
                let Some(domain) = &self.verbs else {
                    return Ok(None);
                };
                let visit = match domain.visit() {
                    Ok(visit) => visit,
                    Err(error) => {
                        tracing::warn!(%error, "the RDMA device takes no more who read");
                        return Ok(None);
                    }
                };
                let (at_mine, offer) = (now(), visit.address());
                let request = Request::Region { offer: &offer };
                let (answer, link) = pool.ask_apart(to, request, deadline)?;
                let region = region_of(kind, answer)?;
                Ok(region.and_then(|(grant, clock)| {
                    let memory = visit.enter(&grant, move || link.lasts());
                    let memory = memory.inspect_err(|error| {
                        tracing::debug!(%node, %error, "a node's memory is out of reach");
                    });
                    Some(OpenedRegion::new(Box::new(memory.ok()?), clock, at_mine))
                }))
            }
        }
    }
}

impl OpenedRegion {
    /// Creates a reader of a region. The owner's clock showed `at_owner` when this machine's clock
    /// showed `at_mine` or later.
    fn new(memory: Box<dyn RemoteMemory + Send>, at_owner: u64, at_mine: u64) -> OpenedRegion {
        let mut reader = Reader::new();
        reader.learn(OwnersClock { at_owner, at_mine });
        OpenedRegion { memory, reader }
    }
}

/// Returns what a node has told of its region: the grant for it, and its clock.
fn region_of(kind: RegionKind, answer: Answer) -> Result<Option<(Grant, u64)>, RequestFailure> {
    let Answer::Region(region) = answer else {
        let why = "the answer to another question".to_owned();
        return Err(RequestFailure::Lost(why));
    };
    Ok(region.and_then(|RegionInfo { grant, clock }| {
        let grant = Grant::decode(&grant).filter(|grant| grant.kind() == kind)?;
        Some((grant, clock))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_told_in_an_earlier_life_is_forgotten_at_once() {
        let one_sided = OneSided::new(Transport::Shm, None);
        let address = |incarnation| Address {
            at: 24,
            words: 16,
            part: 0,
            layout: 0,
            incarnation,
        };
        let (node, other) = (NodeId(1), NodeId(2));
        for at in 0..100 {
            for (of, incarnation) in [(node, 7), (node, 8), (other, 7)] {
                let key = format!("{of}-{incarnation}-{at}");
                one_sided.learn(of, key.as_bytes(), Some(address(incarnation)));
            }
        }
        one_sided.forget(node, 7);
        let parts = one_sided.places.iter();
        let left: Vec<_> = parts
            .flat_map(|part| part.lock().values().copied().collect::<Vec<_>>())
            .collect();
        assert_eq!(left.len(), 200);
        assert!(!left.contains(&(node, address(7))));
    }
}
