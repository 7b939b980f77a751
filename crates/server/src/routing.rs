//! The nodes that have the slots, and the node that executes a transaction.
//!
//! | its keys are | then |
//! |---|---|
//! | all of this node's partition, or it has none | it executes here, if this node leads |
//! | all of one slot of another partition | its client gets the address of that one's leader (`MOVED`) |
//! | else | this node coordinates it |
//!
//! Operations without a key are of this node's own partition, except guards, which go where the
//! others go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base::{NodeId, Op, PartitionId};
use cluster::slot;
use cluster::topology::{NodeInfo, PartitionInfo, Topology};
use cluster::{Counters, Leaders};
use parking_lot::Mutex;

use crate::config::Membership;

/// See the module's description. Also holds what all runtimes know about the cluster.
pub(crate) struct Routes {
    pub(crate) topology: Arc<Topology>,
    pub(crate) me: NodeId,
    pub(crate) own: Option<PartitionId>,
    /// The leaders of partitions, as far as this node knows.
    pub(crate) leaders: Arc<Leaders>,
    /// A key of each partition that has slots; this node's own partition is the first.
    pub(crate) places: Vec<Vec<u8>>,
    /// The state of the links to each node, in the order of the topology.
    reachability: Box<[NodeReachability]>,
    /// The attempts that wait to be prepared, at any runtime.
    pub(crate) waiting: cluster::WaitingPrepares,
    /// The statistics of each runtime.
    statistics: Box<[Mutex<ClusterStatistics>]>,
}

/// The transactions over several nodes of a node, or of a part of it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClusterStatistics {
    pub(crate) counters: Counters,
    /// Transactions that are being coordinated.
    pub(crate) coordinating: usize,
    /// Requests of other nodes that wait for keys.
    pub(crate) waiting: usize,
    /// Other nodes to which there is a link.
    pub(crate) links: usize,
    /// Links, those with clients included, whose messages travel through memory.
    pub(crate) through_memory: usize,
    /// Those of them whose messages travel by Send and Receive.
    pub(crate) send_receive: usize,
    /// Links, those with clients included, whose messages are encrypted.
    pub(crate) encrypted: usize,
}

/// The state of the links to a node, by which it can be reached or not.
#[derive(Default)]
struct NodeReachability {
    /// Links that are up, of all runtimes.
    up: AtomicUsize,
    /// The last link that was made broke, or could not be made.
    broken: AtomicBool,
}

/// Where a transaction must run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// On this node.
    Local,
    /// On the node of this slot, which is another one.
    Slot(u16),
    /// Over several slots, at least one of which is on another node.
    Slots,
}

impl Routes {
    /// Creates the routes of a server with so many runtimes.
    pub(crate) fn new(membership: &Membership, runtimes: usize) -> Routes {
        let topology = Arc::clone(&membership.topology);
        let own = topology.partition_at(membership.node);
        let partitions = topology.partitions().iter();
        let mut with_slots: Vec<_> = partitions.filter(|one| !one.slots.is_empty()).collect();
        with_slots.sort_by_key(|one| Some(one.id) != own);
        let key_of = |one: &PartitionInfo| key_of(&topology, one).into_bytes();
        Routes {
            own,
            places: with_slots.into_iter().map(key_of).collect(),
            me: membership.node,
            leaders: Arc::new(Leaders::new(&topology)),
            reachability: topology
                .nodes()
                .iter()
                .map(|_| NodeReachability::default())
                .collect(),
            waiting: cluster::WaitingPrepares::default(),
            statistics: (0..runtimes).map(|_| Mutex::default()).collect(),
            topology,
        }
    }

    /// Returns where these operations must run.
    pub(crate) fn route(&self, ops: &[Op<'_>]) -> Route {
        let (mut local, mut remote) = (false, None);
        let mut several = false;
        for op in ops.iter().filter(|op| !op.goes_along()) {
            let slot = op.key().map(slot::of);
            match slot.filter(|&slot| !self.is_own(slot)) {
                None => local = true,
                Some(slot) => several |= remote.replace(slot).is_some_and(|other| other != slot),
            }
        }
        match remote {
            None => Route::Local,
            Some(slot) if !local && !several => Route::Slot(slot),
            Some(_) => Route::Slots,
        }
    }

    /// Returns `true` if a slot is of this node's partition.
    pub(crate) fn is_own(&self, slot: u16) -> bool {
        Some(self.topology.partition_of_slot(slot)) == self.own
    }

    /// Returns the node that leads a slot's partition, or one that may know the leader.
    pub(crate) fn leader_of(&self, slot: u16) -> NodeId {
        let partition = self.topology.partition_of_slot(slot);
        self.leaders.find(partition, self.me)
    }

    /// Returns the address of a node for a client that is connected over TLS, or for one that is not.
    pub(crate) fn address_of(&self, node: NodeId, over_tls: bool) -> SocketAddr {
        let node = self.topology.node(node);
        node.expect("partitions are at nodes of the topology")
            .client_address(over_tls)
    }

    /// Returns the error that sends a client to another node.
    pub(crate) fn moved(&self, slot: u16, node: NodeId, over_tls: bool) -> String {
        let to = self.address_of(node, over_tls);
        format!("MOVED {slot} {}:{}", to.ip(), to.port())
    }

    /// Returns the slot that is named to a client that sent a command on this node's partition: that of its first key.
    /// A command without a key is about all of its slots.
    pub(crate) fn own_slot(&self, key: Option<&[u8]>) -> u16 {
        if let Some(key) = key {
            return slot::of(key);
        }
        let own = self.own.and_then(|id| self.topology.partition(id));
        let first = own.and_then(|own| own.slots.first());
        first.map_or(0, |range| *range.start())
    }

    /// Returns the node that clients must take for the partition's master.
    pub(crate) fn master_of(&self, partition: &PartitionInfo) -> NodeId {
        let leader = self.leaders.leader(partition.id);
        leader.unwrap_or(partition.nodes[0])
    }

    /// Returns a key of each replicated partition but this node's own.
    pub(crate) fn keys_of_others(&self) -> impl Iterator<Item = String> + '_ {
        let partitions = self.topology.partitions().iter();
        let others = partitions
            .filter(|one| one.nodes.len() > 1 && Some(one.id) != self.own && !one.slots.is_empty());
        others.map(|one| key_of(&self.topology, one))
    }

    /// Returns the nodes of a partition, its master first.
    pub(crate) fn nodes_of<'a>(
        &'a self,
        partition: &'a PartitionInfo,
    ) -> impl Iterator<Item = &'a NodeInfo> {
        let master = self.master_of(partition);
        let others = partition.nodes.iter().filter(move |node| **node != master);
        let nodes = std::iter::once(master).chain(others.copied());
        nodes.filter_map(|node| self.topology.node(node))
    }

    /// Returns the partition that a node holds, if it holds one, and whether the node is its
    /// master.
    pub(crate) fn held_by(&self, node: NodeId) -> Option<(&PartitionInfo, bool)> {
        let partition = self.topology.partition(self.topology.partition_at(node)?)?;
        Some((partition, self.master_of(partition) == node))
    }

    /// Returns `true` if a partition is known to have a leader that can be reached, as far as is
    /// known.
    pub(crate) fn is_led(&self, partition: &PartitionInfo) -> bool {
        match self.leaders.leader(partition.id) {
            Some(leader) => self.is_reachable(leader),
            // Of other partitions nothing is known before a client asks for them.
            None => Some(partition.id) != self.own,
        }
    }

    /// Returns a node's name in Redis's form: 40 hexadecimal digits, the same on every node.
    pub(crate) fn name(&self, node: NodeId) -> String {
        let seed = self.topology.fingerprint() ^ u64::from(node.0).rotate_left(48);
        let word = |part: u64| mix(seed.wrapping_add(part.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let mut name: String = (1..=3).map(|part| format!("{:016x}", word(part))).collect();
        name.truncate(40);
        name
    }

    /// Records that a link to a node is up.
    pub(crate) fn note_up(&self, node: NodeId) {
        if let Some(state) = self.reachability_of(node) {
            state.up.fetch_add(1, Ordering::Relaxed);
            state.broken.store(false, Ordering::Relaxed);
        }
    }

    /// Records that a link to a node, which was up or not, is down.
    pub(crate) fn note_down(&self, node: NodeId, was_up: bool) {
        if let Some(state) = self.reachability_of(node) {
            state.up.fetch_sub(usize::from(was_up), Ordering::Relaxed);
            state.broken.store(true, Ordering::Relaxed);
        }
    }

    /// Returns `true` if a node can be reached, or nothing is known that contradicts it.
    pub(crate) fn is_reachable(&self, node: NodeId) -> bool {
        let state = self.reachability_of(node).filter(|_| node != self.me);
        state.is_none_or(|state| {
            state.up.load(Ordering::Relaxed) > 0 || !state.broken.load(Ordering::Relaxed)
        })
    }

    fn reachability_of(&self, node: NodeId) -> Option<&NodeReachability> {
        let mut nodes = self.topology.nodes().iter();
        let at = nodes.position(|info| info.id == node)?;
        self.reachability.get(at)
    }

    /// Records what a runtime has done so far.
    pub(crate) fn note_statistics(&self, runtime: usize, statistics: ClusterStatistics) {
        *self.statistics[runtime].lock() = statistics;
    }

    /// Returns the sum of what all runtimes have done.
    pub(crate) fn statistics(&self) -> ClusterStatistics {
        let mut sum = ClusterStatistics::default();
        for statistics in &self.statistics {
            sum.add(&statistics.lock());
        }
        sum
    }
}

impl ClusterStatistics {
    fn add(&mut self, other: &ClusterStatistics) {
        let (sum, more) = (&mut self.counters, &other.counters);
        sum.committed += more.committed;
        sum.aborted += more.aborted;
        sum.unknown += more.unknown;
        sum.retried += more.retried;
        sum.prepared += more.prepared;
        sum.died += more.died;
        sum.waited += more.waited;
        sum.abandoned += more.abandoned;
        sum.resolved_committed += more.resolved_committed;
        sum.resolved_aborted += more.resolved_aborted;
        sum.refused += more.refused;
        sum.compared += more.compared;
        sum.ramp_reads += more.ramp_reads;
        sum.ramp_second_rounds += more.ramp_second_rounds;
        sum.ramp_restarts += more.ramp_restarts;
        sum.ramp_lost += more.ramp_lost;
        sum.ramp_writes += more.ramp_writes;
        sum.ramp_overtaken += more.ramp_overtaken;
        self.coordinating += other.coordinating;
        self.waiting += other.waiting;
        self.links += other.links;
        self.through_memory += other.through_memory;
        self.send_receive += other.send_receive;
        self.encrypted += other.encrypted;
    }
}

/// Returns a key of a partition that has slots.
fn key_of(topology: &Topology, partition: &PartitionInfo) -> String {
    let mut keys = (0_u32..).map(|number| number.to_string());
    let found = keys.find(|key| topology.partition_of(key.as_bytes()) == partition.id);
    found.expect("every slot has keys")
}

/// Computes the last step of SplitMix64, which spreads numbers that differ in few bits.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Routes {
        let text = r#"
            [[node]]
            id = 1
            client = "127.0.0.1:7001"
            fabric = "127.0.0.1:17001"
            [[node]]
            id = 2
            client = "127.0.0.1:7002"
            tls = "127.0.0.1:8002"
            fabric = "127.0.0.1:17002"
            [[partition]]
            id = 1
            slots = ["0-8191"]
            nodes = [1]
            [[partition]]
            id = 2
            slots = ["8192-16383"]
            nodes = [2]
        "#;
        let topology = Topology::parse(text, "test").unwrap();
        let membership = Membership {
            secrets: topology.link_secrets(),
            topology: Arc::new(topology),
            node: NodeId(1),
            listen: None,
            timeouts: cluster::Timeouts::default(),
            transport: fabric::tcp::Transport::Tcp,
            encryption: fabric::tcp::Encryption::Auto,
            verbs: None,
        };
        Routes::new(&membership, 1)
    }

    #[test]
    fn keys_lead_where_their_slots_are() {
        let routes = routes();
        let get = |key| Op::Get { key };
        // Slots: foo 12182, bar 5061, hello 866, {foo}x as foo.
        let route = |ops: &[Op<'_>]| routes.route(ops);
        assert_eq!(route(&[]), Route::Local);
        assert_eq!(route(&[Op::Count { database: 0 }]), Route::Local);
        assert_eq!(route(&[get(b"bar"), get(b"hello")]), Route::Local);
        assert_eq!(route(&[get(b"foo")]), Route::Slot(12182));
        assert_eq!(route(&[get(b"foo"), get(b"{foo}x")]), Route::Slot(12182));
        assert_eq!(route(&[get(b"foo"), get(b"bar")]), Route::Slots);
        assert_eq!(
            route(&[Op::Count { database: 0 }, get(b"foo")]),
            Route::Slots
        );
        let guard = Op::Guard {
            lock: b"bar",
            token: 1,
        };
        assert_eq!(route(&[guard, get(b"foo")]), Route::Slot(12182));
        // Several slots of one other node: no single redirect serves them all.
        let other = (0..).map(|n: u32| n.to_string().into_bytes());
        let mut other = other.filter(|key| !routes.is_own(slot::of(key)));
        let other = other.next().expect("half of all keys");
        assert_eq!(route(&[get(b"foo"), get(&other)]), Route::Slots);
        assert_eq!(routes.leader_of(12182), NodeId(2));
    }

    #[test]
    fn clients_over_tls_get_the_addresses_for_tls() {
        let routes = routes();
        let port = |node, over_tls| routes.address_of(NodeId(node), over_tls).port();
        assert_eq!([port(2, false), port(2, true)], [7002, 8002]);
        // Node 1 has no such address.
        assert_eq!([port(1, false), port(1, true)], [7001, 7001]);
    }

    #[test]
    fn a_node_is_reachable_by_any_link() {
        let (routes, node) = (routes(), NodeId(2));
        let mut seen = vec![routes.is_reachable(node)];
        routes.note_down(node, false);
        seen.push(routes.is_reachable(node));
        routes.note_up(node);
        seen.push(routes.is_reachable(node));
        routes.note_up(node);
        // One of the two that are up.
        routes.note_down(node, true);
        seen.push(routes.is_reachable(node));
        routes.note_down(node, true);
        seen.push(routes.is_reachable(node));
        assert_eq!(seen, [true, false, true, true, false]);
    }

    #[test]
    fn names_are_forty_digits_and_differ() {
        let routes = routes();
        let names = [routes.name(NodeId(1)), routes.name(NodeId(2))];
        for name in &names {
            assert!(name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        assert_ne!(names[0], names[1]);
        assert_eq!(names[0], self::routes().name(NodeId(1)));
    }
}
