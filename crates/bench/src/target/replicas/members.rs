//! The members of a partition, all in this process; their links are sockets on loopback, or links
//! with a delay.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use base::{NodeId, Tid};
use replica::{Grouping, MemberOptions, Options, ReplicatedPartition};
use testkit::relay::DelayedLinks;

use super::job::{Consensus, ReplicasJob};
use crate::error::RunError;
use crate::{keys, machine};

/// How long they may take to have a leader, or to have the same entries.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval at which that is checked.
const LOOK: Duration = Duration::from_millis(2);
/// Records that are looked at in one go.
const SLICE: usize = 1000;

/// See the module's description. They stop when this is dropped.
pub(super) struct Members {
    partitions: Vec<(NodeId, Arc<ReplicatedPartition>)>,
    /// The threads of members that have led, by their numbers.
    threads: HashMap<NodeId, Arc<OnceLock<u32>>>,
}

/// The state of a member.
#[derive(Clone, Debug)]
pub(super) struct MemberState {
    /// The last entry that it has applied.
    pub(super) applied: u64,
    /// The hash of keys, values, and the transactions that wrote them.
    pub(super) hash: u64,
    /// Counters and their values.
    pub(super) counters: Vec<(u64, u64)>,
}

impl Members {
    /// Starts all of them, with logs below `dir`, if given, and waits for a leader. With `links`
    /// each is a machine of its own, with the node's number.
    pub(super) fn open(
        job: &ReplicasJob,
        dir: Option<&Path>,
        links: Option<&DelayedLinks>,
    ) -> Result<Members, RunError> {
        let nodes: Vec<NodeId> = (1..=job.nodes as u16).map(NodeId).collect();
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listeners = nodes.iter().map(|_| fabric::tcp::listen(anywhere, 1));
        let listeners: std::io::Result<Vec<_>> = listeners.collect();
        let listeners = listeners.map_err(|error| RunError::failed("listening")(&error))?;
        let listeners: Vec<TcpListener> = listeners.into_iter().flatten().collect();
        let addresses = listeners.iter().map(TcpListener::local_addr);
        let peers: std::io::Result<HashMap<NodeId, SocketAddr>> = nodes
            .iter()
            .zip(addresses)
            .map(|(&node, address)| Ok((node, address?)))
            .collect();
        let peers = peers.map_err(|error| RunError::failed("listening")(&error))?;
        let peers_of = |from: NodeId| match links {
            None => Ok(peers.clone()),
            Some(links) => peers
                .iter()
                .map(|(&to, &address)| {
                    let link = links.add(usize::from(from.0), usize::from(to.0), address);
                    Ok((
                        to,
                        link.map_err(|error| RunError::failed("linking")(&error))?,
                    ))
                })
                .collect::<Result<_, RunError>>(),
        };
        let mut members = Members {
            partitions: Vec::new(),
            threads: HashMap::new(),
        };
        for (&node, listener) in nodes.iter().zip(listeners) {
            let member = MemberOptions {
                grouping: match job.consensus {
                    Consensus::Naive => Grouping::Naive,
                    Consensus::Group(size) => Grouping::Group(size),
                },
                ..MemberOptions::new(node, nodes.clone())
            };
            let options = Options {
                dir: dir.map(|dir| dir.join(format!("node{node}"))),
                peers: peers_of(node)?,
                ..Options::new(member, listener)
            };
            let partition = ReplicatedPartition::open(options, &mut |_, _| {});
            let partition = partition.map_err(|error| RunError::failed("opening")(&error))?;
            members.partitions.push((node, partition));
            let thread = Arc::<OnceLock<u32>>::default();
            members.threads.insert(node, Arc::clone(&thread));
            // The member's thread says so when it has begun to lead.
            let note = move || {
                let _ = thread.get_or_init(machine::this_thread);
            };
            let (_, partition) = members.partitions.last().expect("it was added");
            partition.on_change(Box::new(note));
        }
        members.wait("a leader", |members| members.leader().is_ok())?;
        Ok(members)
    }

    /// Returns the member that leads and may serve.
    pub(super) fn leader(&self) -> Result<&(NodeId, Arc<ReplicatedPartition>), RunError> {
        let mut all = self.partitions.iter();
        let none = || RunError::Failed("no member leads any more".to_owned());
        all.find(|(_, partition)| partition.is_leader())
            .ok_or_else(none)
    }

    /// Returns the processor time that the leader's thread has used, in seconds.
    pub(super) fn cpu_of_leader(&self) -> f64 {
        let leader = self.leader().ok();
        let thread = leader.and_then(|(node, _)| self.threads[node].get());
        thread.map_or(0.0, |&thread| machine::cpu_of_thread(thread))
    }

    /// Waits until all have applied all entries. Statuses are updated once in a turn, and may be
    /// older than what was acknowledged; the engines have the current state.
    pub(super) fn wait_level(&self) -> Result<(), RunError> {
        self.wait("level members", |members| {
            let statuses = members.partitions.iter().map(|(_, one)| one.status());
            let outcome: Vec<[u64; 2]> = statuses.map(|all| [all.applied, all.last]).collect();
            let engines = members.partitions.iter().map(|(_, one)| one.engine());
            let mut applied = engines.map(|engine| engine.applied().0);
            let [first, last] = outcome[0];
            first == last
                && outcome.iter().all(|other| *other == [first, last])
                && applied.all(|applied| applied == last)
        })
    }

    fn wait(&self, what: &str, done: impl Fn(&Members) -> bool) -> Result<(), RunError> {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            let failed = self.partitions.iter().find_map(|(_, one)| one.failed());
            if let Some(reason) = failed {
                return Err(RunError::Failed(reason));
            }
            if Instant::now() > deadline {
                let said = self.partitions.iter().map(|(_, one)| one.status());
                let said: Vec<_> = said.collect();
                let what = format!("no {what} after {PATIENCE:?}: {said:?}");
                return Err(RunError::Failed(what));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Returns the state of each of them.
    pub(super) fn held(&self) -> Result<Vec<(NodeId, MemberState)>, RunError> {
        let held = |(node, one): &(NodeId, Arc<ReplicatedPartition>)| Ok((*node, held(one)?));
        self.partitions.iter().map(held).collect()
    }

    /// Stops them.
    pub(super) fn close(&mut self) {
        // The followers first: no member needs to take over from those that stop.
        self.partitions.sort_by_key(|(_, one)| one.is_leader());
        for (_, partition) in self.partitions.drain(..) {
            partition.close(Duration::ZERO);
        }
    }
}

fn held(partition: &ReplicatedPartition) -> Result<MemberState, RunError> {
    let mut worker = partition.worker().ok_or("the member has no worker left")?;
    let snapshot = partition.engine().snapshot();
    let mut held = MemberState {
        applied: snapshot.epoch().0,
        hash: 0,
        counters: Vec::new(),
    };
    let mut strange = None;
    let mut next = Some(Vec::new());
    while let Some(from) = next {
        next = worker
            .inner()
            .scan_snapshot(&snapshot, &from, None, SLICE, |entry| {
                let digest = digest(entry.key, entry.tid, &entry.value.bytes());
                held.hash = held.hash.wrapping_add(digest);
                match counter(entry.key, &entry.value.bytes()) {
                    Ok(counter) => held.counters.push(counter),
                    Err(what) => strange = Some(what),
                }
            });
    }
    strange.map_or(Ok(held), Err)
}

/// Returns a hash of a key, its writer and its value, which is added up over all keys.
fn digest(key: &[u8], tid: Tid, value: &[u8]) -> u64 {
    let number = tid.epoch().0 << 20 | u64::from(tid.sequence());
    let mut sum = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for &byte in key.iter().chain(value) {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum ^= sum >> 32;
    }
    sum
}

/// Parses a counter of a member: its number and its value.
fn counter(key: &[u8], value: &[u8]) -> Result<(u64, u64), RunError> {
    let sum = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok());
    match (keys::decode(key), sum) {
        (Some(index), Some(sum)) => Ok((index, sum)),
        _ => Err(RunError::Failed(format!(
            "{key:?} holds {value:?}, which is no counter"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use base::Epoch;

    use super::*;

    #[test]
    fn counters_are_read_and_nothing_else_is() {
        let key = keys::encode(7);
        assert_eq!(counter(&key, b"12"), Ok((7, 12)));
        assert!(counter(b"other", b"12").is_err());
        assert!(counter(&key, b"many").is_err());
        let tid = |epoch, sequence| Tid::new(Epoch(epoch), sequence);
        let one = digest(&key, tid(1, 0), b"12");
        assert_eq!(one, digest(&key, tid(1, 0), b"12"));
        for (tid, value) in [(tid(2, 0), b"12"), (tid(1, 1), b"12"), (tid(1, 0), b"13")] {
            assert_ne!(one, digest(&key, tid, value));
        }
    }
}
