//! The state of a serial execution: the nodes that ran, the nodes that can run, and how to undo a
//! step.
//!
//! Invariants:
//! 1. A node that did not run and that nothing precedes any more is either ready, or waits at a key
//!    that is not in the state that it needs.
//! 2. Undoing a step restores everything but the keys at which nodes wait: every node that may be
//!    able to run is ready again.

use std::collections::BTreeSet;

use super::facts::{FactMap, HistoryFacts, INITIAL, Replaces, versions_of};
use super::graph::SerializationGraph;
use super::order::{LAST, UNDECIDED, VersionOrders};

/// The state of a key that a node needs before it can run.
#[derive(Clone, Copy, Debug)]
struct NeededState {
    key: u32,
    /// The key must be absent.
    absent: bool,
    /// The node begins a segment of the key.
    head: bool,
}

/// The state of a key with unknown orders or absences.
pub(super) struct KeyState {
    /// The version that is current.
    current: u32,
    /// Reads of nothing that come before every version, and have not run.
    first_reads: u32,
    /// The segments' heads that ran, in their order.
    pub(super) heads: Vec<u32>,
    /// Nodes that wait for the key to be absent, and begin no segment of it.
    readers: NodeQueue,
    /// Nodes that wait to begin a segment where the key is absent, …
    inserters: NodeQueue,
    /// … or anywhere.
    writers: NodeQueue,
}

/// Nodes, the most urgent first.
type NodeQueue = BTreeSet<(u64, u32)>;

/// The place of a node that nothing precedes any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NodePosition {
    /// It is at no place, or it ran.
    Nowhere,
    /// It is ready to be tried.
    Ready,
    /// It waits at the key that it needs in another state.
    At(u32),
}

const NO_WAKER: u32 = u32::MAX;
/// The number of nodes that are tried of those that wait to begin a segment of one key.
const CROWD: usize = 8;

pub(super) struct SerialExecution<'a> {
    pub(super) facts: &'a HistoryFacts<'a>,
    pub(super) known: &'a VersionOrders,
    pub(super) certain: &'a SerializationGraph,
    /// Edges from nodes that have not run, for each node.
    blockers: Vec<u32>,
    /// The time by which each node must have taken effect.
    pub(super) deadlines: Vec<u64>,
    needs: FactMap<u32, Vec<NeededState>>,
    /// `true` if the node begins a segment, or ends an absence that a reader may have seen.
    is_choice: Vec<bool>,
    pub(super) keys: FactMap<u32, KeyState>,
    /// Reads of each version that have not run.
    readers: Vec<u32>,
    /// Nodes that may be able to run; choices last.
    ready: BTreeSet<(bool, u64, u32)>,
    places: Vec<NodePosition>,
    /// The key whose change made a waiting node ready.
    woken_by: Vec<u32>,
    /// The nodes that ran, in order, and a hash of them and of the keys' states.
    pub(super) trail: Vec<u32>,
    pub(super) state: u64,
    /// The version that each version replaced when it was written.
    replaced: Vec<u32>,
    versions_of: Vec<u32>,
    pub(super) result: VersionOrders,
}

impl<'a> SerialExecution<'a> {
    pub(super) fn new(
        facts: &'a HistoryFacts<'a>,
        known: &'a VersionOrders,
        certain: &'a SerializationGraph,
    ) -> SerialExecution<'a> {
        let nodes = certain.nodes() as usize;
        let mut blockers = vec![0; nodes];
        for node in 0..nodes as u32 {
            certain
                .edges(node)
                .iter()
                .for_each(|edge| blockers[edge.0 as usize] += 1);
        }
        let mut execution = SerialExecution {
            deadlines: deadlines(facts, certain, blockers.clone()),
            facts,
            known,
            certain,
            blockers,
            needs: FactMap::default(),
            is_choice: vec![false; nodes],
            keys: FactMap::default(),
            readers: vec![0; facts.versions.len()],
            ready: BTreeSet::new(),
            places: vec![NodePosition::Nowhere; nodes],
            woken_by: vec![NO_WAKER; nodes],
            trail: Vec::with_capacity(nodes),
            state: 0,
            replaced: vec![INITIAL; facts.versions.len()],
            versions_of: versions_of(facts),
            result: known.clone(),
        };
        execution.collect_needs();
        for node in 0..nodes as u32 {
            if execution.blockers[node as usize] == 0 {
                execution.make_ready(node);
            }
        }
        execution
    }

    fn collect_needs(&mut self) {
        let facts = self.facts;
        for (key, heads) in self
            .known
            .heads
            .iter()
            .enumerate()
            .filter(|(_, h)| h.len() > 1)
        {
            self.track(key as u32);
            for &head in heads {
                let version = &facts.versions[head as usize];
                let absent = version.replaces == Replaces::Absence;
                let need = NeededState {
                    key: key as u32,
                    absent,
                    head: true,
                };
                self.needs.entry(version.node).or_default().push(need);
            }
        }
        for (read, &saw) in facts.reads.iter().zip(&self.known.saw) {
            if saw == UNDECIDED {
                self.track(read.key);
                let needs = self.needs.entry(read.node).or_default();
                match needs.iter_mut().find(|need| need.key == read.key) {
                    Some(need) => need.absent = true,
                    None => needs.push(NeededState {
                        key: read.key,
                        absent: true,
                        head: false,
                    }),
                }
            }
        }
        for (read, &saw) in facts.reads.iter().zip(&self.known.saw) {
            match saw {
                UNDECIDED => {}
                INITIAL => {
                    if let Some(state) = self.keys.get_mut(&read.key) {
                        state.first_reads += 1;
                    }
                }
                version => self.readers[version as usize] += 1,
            }
        }
        for version in &facts.versions {
            let follows = matches!(version.replaces, Replaces::Version(_));
            if !follows && self.keys.contains_key(&version.key) {
                let is_head = self.known.heads[version.key as usize].len() > 1;
                self.is_choice[version.node as usize] |= is_head || version.value.is_some();
            }
        }
    }

    fn track(&mut self, key: u32) {
        self.keys.entry(key).or_insert_with(|| KeyState {
            current: INITIAL,
            first_reads: 0,
            heads: Vec::new(),
            readers: NodeQueue::new(),
            inserters: NodeQueue::new(),
            writers: NodeQueue::new(),
        });
    }

    fn key(&mut self, key: u32) -> &mut KeyState {
        self.keys.get_mut(&key).expect("a requested key is tracked")
    }

    /// Returns `true` if every node ran.
    pub(super) fn is_complete(&self) -> bool {
        self.trail.len() == self.blockers.len()
    }

    /// Runs every node that is no choice.
    pub(super) fn run_free(&mut self) {
        while let Some(&(is_choice, _, node)) = self.ready.first() {
            if is_choice {
                return;
            }
            match self.unmet(node) {
                None => self.execute(node),
                Some(need) => self.wait(node, need),
            }
        }
    }

    /// Returns the most urgent choice that can run and was not tried.
    pub(super) fn candidate(&mut self, tried: &[u32]) -> Option<u32> {
        let mut after = (true, 0, 0);
        loop {
            let &(_, deadline, node) = self.ready.range(after..).next()?;
            after = (true, deadline, node + 1);
            match self.unmet(node) {
                None if tried.contains(&node) => {}
                None => return Some(node),
                Some(need) => {
                    let waker = self.woken_by[node as usize];
                    self.wait(node, need);
                    if waker != NO_WAKER && waker != need.key {
                        // A node that it wakes may be more urgent than those behind.
                        self.wake(waker, 1);
                        after = (true, 0, 0);
                    }
                }
            }
        }
    }

    /// Returns the first need of `node` that is not met.
    fn unmet(&self, node: u32) -> Option<NeededState> {
        let needs = self.needs.get(&node)?;
        needs.iter().copied().find(|need| {
            let state = &self.keys[&need.key];
            (need.absent && !self.is_absent(state))
                || (need.head && !self.is_closed(state, need.absent))
        })
    }

    fn is_absent(&self, state: &KeyState) -> bool {
        state.current == INITIAL || self.facts.versions[state.current as usize].value.is_none()
    }

    /// Returns `true` if a segment may begin. A node that saw the first absence counts among its
    /// readers.
    fn is_closed(&self, state: &KeyState, saw_absence: bool) -> bool {
        if state.current == INITIAL {
            return state.first_reads <= u32::from(saw_absence);
        }
        let current = state.current as usize;
        self.known.next[current] == LAST && self.readers[current] == 0
    }

    fn entry(&self, node: u32) -> (bool, u64, u32) {
        (
            self.is_choice[node as usize],
            self.deadlines[node as usize],
            node,
        )
    }

    fn make_ready(&mut self, node: u32) {
        self.places[node as usize] = NodePosition::Ready;
        self.ready.insert(self.entry(node));
    }

    fn wait(&mut self, node: u32, need: NeededState) {
        self.ready.remove(&self.entry(node));
        self.woken_by[node as usize] = NO_WAKER;
        self.places[node as usize] = NodePosition::At(need.key);
        let urgency = (self.deadlines[node as usize], node);
        let state = self.key(need.key);
        match (need.head, need.absent) {
            (false, _) => state.readers.insert(urgency),
            (true, true) => state.inserters.insert(urgency),
            (true, false) => state.writers.insert(urgency),
        };
    }

    /// Removes a node that cannot run at all.
    fn withdraw(&mut self, node: u32) {
        match std::mem::replace(&mut self.places[node as usize], NodePosition::Nowhere) {
            NodePosition::Nowhere => {}
            NodePosition::Ready => {
                self.ready.remove(&self.entry(node));
            }
            NodePosition::At(key) => {
                let urgency = (self.deadlines[node as usize], node);
                let state = self.key(key);
                state.readers.remove(&urgency);
                state.inserters.remove(&urgency);
                state.writers.remove(&urgency);
            }
        }
        self.woken_by[node as usize] = NO_WAKER;
    }

    /// Lets the nodes try again that wait for the present state of the key; of those that would
    /// begin a segment, only `crowd`.
    fn wake(&mut self, key: u32, crowd: usize) {
        let Some(state) = self.keys.get(&key) else {
            return;
        };
        let is_absent = self.is_absent(state);
        let insert = if is_absent && self.is_closed(state, true) {
            crowd
        } else {
            0
        };
        let write = if self.is_closed(state, false) {
            crowd
        } else {
            0
        };
        let state = self.key(key);
        let mut woken = Vec::new();
        if is_absent {
            woken.extend(std::mem::take(&mut state.readers));
        }
        woken.extend((0..insert).map_while(|_| state.inserters.pop_first()));
        woken.extend((0..write).map_while(|_| state.writers.pop_first()));
        for (_, node) in woken {
            self.woken_by[node as usize] = key;
            self.make_ready(node);
        }
    }

    pub(super) fn execute(&mut self, node: u32) {
        self.withdraw(node);
        self.trail.push(node);
        self.state ^= mix(u64::from(node));
        if self.certain.is_transaction(node) {
            self.read(node);
            self.write(node);
        }
        for &(to, _) in self.certain.edges(node) {
            self.blockers[to as usize] -= 1;
            if self.blockers[to as usize] == 0 {
                self.make_ready(to);
            }
        }
    }

    fn read(&mut self, node: u32) {
        for i in self.facts.reads_of(node) {
            let key = self.facts.reads[i].key;
            match self.known.saw[i] {
                UNDECIDED => self.result.saw[i] = self.keys[&key].current,
                INITIAL => {
                    if let Some(state) = self.keys.get_mut(&key) {
                        state.first_reads -= 1;
                        self.wake(key, CROWD);
                    }
                }
                version => {
                    self.readers[version as usize] -= 1;
                    if self.readers[version as usize] == 0 {
                        self.wake(key, CROWD);
                    }
                }
            }
        }
    }

    fn write(&mut self, node: u32) {
        for version in self.versions(node) {
            let facts = &self.facts.versions[version as usize];
            let Some(state) = self.keys.get_mut(&facts.key) else {
                continue;
            };
            self.replaced[version as usize] = state.current;
            self.state ^= key_mix(facts.key, state.current) ^ key_mix(facts.key, version);
            state.current = version;
            if is_head(self.known, facts.key, version, facts.replaces) {
                state.heads.push(version);
            }
            self.wake(facts.key, CROWD);
        }
    }

    /// Undoes the last step.
    pub(super) fn undo(&mut self) {
        let node = self.trail.pop().expect("only what ran is undone");
        self.state ^= mix(u64::from(node));
        for &(to, _) in self.certain.edges(node) {
            if self.blockers[to as usize] == 0 {
                self.withdraw(to);
            }
            self.blockers[to as usize] += 1;
        }
        if self.certain.is_transaction(node) {
            self.unread(node);
            self.unwrite(node);
        }
        self.make_ready(node);
    }

    fn unread(&mut self, node: u32) {
        for i in self.facts.reads_of(node) {
            match self.known.saw[i] {
                UNDECIDED => self.result.saw[i] = UNDECIDED,
                INITIAL => {
                    if let Some(state) = self.keys.get_mut(&self.facts.reads[i].key) {
                        state.first_reads += 1;
                    }
                }
                version => self.readers[version as usize] += 1,
            }
        }
    }

    fn unwrite(&mut self, node: u32) {
        for version in self.versions(node).rev() {
            let facts = &self.facts.versions[version as usize];
            let Some(state) = self.keys.get_mut(&facts.key) else {
                continue;
            };
            let before = self.replaced[version as usize];
            self.state ^= key_mix(facts.key, before) ^ key_mix(facts.key, version);
            state.current = before;
            if is_head(self.known, facts.key, version, facts.replaces) {
                state.heads.pop();
            }
            self.wake(facts.key, CROWD);
        }
    }

    fn versions(&self, node: u32) -> std::ops::Range<u32> {
        self.versions_of[node as usize]..self.versions_of[node as usize + 1]
    }
}

/// Returns `true` if a version begins a segment.
fn is_head(known: &VersionOrders, key: u32, version: u32, replaces: Replaces) -> bool {
    match known.heads[key as usize][..] {
        [only] => only == version,
        _ => !matches!(replaces, Replaces::Version(_)),
    }
}

/// Spreads a number over 64 bits, so that sets of numbers can be distinguished by their XOR.
fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn key_mix(key: u32, version: u32) -> u64 {
    mix(mix(u64::from(key) << 32 | u64::from(version)))
}

/// Returns the time by which each node must have taken effect: its end, or the time before which
/// its successors must have.
fn deadlines(
    facts: &HistoryFacts<'_>,
    certain: &SerializationGraph,
    mut blockers: Vec<u32>,
) -> Vec<u64> {
    let nodes = certain.nodes();
    let end = |node| {
        if certain.is_transaction(node) {
            facts.end(node)
        } else {
            u64::MAX
        }
    };
    let mut deadlines: Vec<u64> = (0..nodes).map(end).collect();
    let mut order: Vec<u32> = (0..nodes)
        .filter(|&node| blockers[node as usize] == 0)
        .collect();
    let mut at = 0;
    while at < order.len() {
        for &(to, _) in certain.edges(order[at]) {
            blockers[to as usize] -= 1;
            if blockers[to as usize] == 0 {
                order.push(to);
            }
        }
        at += 1;
    }
    for &node in order.iter().rev() {
        let after = certain
            .edges(node)
            .iter()
            .map(|edge| deadlines[edge.0 as usize])
            .min();
        let own = &mut deadlines[node as usize];
        *own = after.map_or(*own, |after| after.min(*own));
    }
    deadlines
}
