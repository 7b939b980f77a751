//! The cluster's file as the nodes have it: which keys are where; and the leaders, as far as the client
//! has learnt them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use base::{Abort, NodeId, Op, PartitionId};
use cluster::message::{Answer, Request};
use cluster::{Leaders, Topology};
use parking_lot::{Mutex, RwLock};

use crate::connection_pool::{ConnectionPool, RequestFailure};
use crate::error::Error;

/// The cluster's file and the leaders, as this client knows them.
pub(crate) struct ClusterMapCache {
    current_map: RwLock<Arc<ClusterMap>>,
    /// The addresses that the caller gave.
    seeds: Vec<SocketAddr>,
    /// Held by the thread that asks for a newer file.
    asking: Mutex<()>,
}

/// The file, and the leaders of its partitions.
pub(crate) struct ClusterMap {
    pub(crate) topology: Arc<Topology>,
    pub(crate) leaders: Arc<Leaders>,
}

/// The id of no node: this client is not a node.
const NO_LEADER: NodeId = NodeId(0);

impl ClusterMap {
    fn new(topology: Topology) -> ClusterMap {
        ClusterMap {
            leaders: Arc::new(Leaders::new(&topology)),
            topology: Arc::new(topology),
        }
    }

    /// Returns the node to ask for a partition.
    pub(crate) fn find(&self, of: PartitionId) -> NodeId {
        self.leaders.find(of, NO_LEADER)
    }

    /// Returns a node's id and address, and the fingerprint that its file must have.
    pub(crate) fn address_of(
        &self,
        node: NodeId,
    ) -> Result<(NodeId, SocketAddr, u64), RequestFailure> {
        let Some(info) = self.topology.node(node) else {
            let why = format!("the cluster has no node {node}");
            return Err(RequestFailure::NotSent(why));
        };
        Ok((node, info.fabric, self.topology.fingerprint()))
    }

    /// Notes what a node's answer says about the leader of a partition.
    pub(crate) fn learn(
        &self,
        of: PartitionId,
        node: NodeId,
        answer: &Result<Answer, RequestFailure>,
    ) {
        match answer {
            Err(RequestFailure::TooLong(_)) => {}
            Err(_) => self.leaders.doubt(of, node),
            Ok(Answer::Aborted(Abort::Elsewhere { leader })) => {
                self.leaders.redirect(of, node, *leader);
            }
            // This says nothing about the current leader.
            Ok(Answer::Aborted(Abort::Unknown { .. })) => {}
            // Another node may be able to serve.
            Ok(Answer::Failed(_)) => self.leaders.doubt(of, node),
            Ok(_) => self.leaders.served(of, node),
        }
    }
}

/// Where a transaction is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) partition: PartitionId,
    /// Its keys are in several partitions, so that the node must coordinate.
    pub(crate) several: bool,
}

impl ClusterMapCache {
    /// Asks the nodes at these addresses for the file.
    pub(crate) fn fetch(
        pool: &ConnectionPool,
        seeds: Vec<SocketAddr>,
        deadline: Instant,
    ) -> Result<ClusterMapCache, Error> {
        let topology = ask(pool, &seeds, deadline)?;
        Ok(ClusterMapCache {
            current_map: RwLock::new(Arc::new(ClusterMap::new(topology))),
            seeds,
            asking: Mutex::new(()),
        })
    }

    /// Returns the file that was received last, and the leaders.
    pub(crate) fn current(&self) -> Arc<ClusterMap> {
        Arc::clone(&self.current_map.read())
    }

    /// Asks for a newer file than this. The file stays as it is if no node answers.
    pub(crate) fn refresh(&self, old: &Arc<ClusterMap>, pool: &ConnectionPool, deadline: Instant) {
        let Some(_asking) = self.asking.try_lock_until(deadline) else {
            return;
        };
        if !Arc::ptr_eq(&self.current(), old) {
            // Another thread has asked meanwhile.
            return;
        }
        let topology = &old.topology;
        let mut addresses: Vec<SocketAddr> =
            topology.nodes().iter().map(|node| node.fabric).collect();
        fastrand::shuffle(&mut addresses);
        addresses.extend(&self.seeds);
        match ask(pool, &addresses, deadline) {
            Ok(new) => {
                let mut new = ClusterMap::new(new);
                if new.topology.fingerprint() == topology.fingerprint() {
                    new.leaders = Arc::clone(&old.leaders);
                } else {
                    tracing::info!("the cluster has another file");
                }
                *self.current_map.write() = Arc::new(new);
            }
            Err(error) => tracing::warn!(%error, "cannot ask for the cluster's file"),
        }
    }
}

/// Asks one address after the other for the cluster's file.
fn ask(
    pool: &ConnectionPool,
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<Topology, Error> {
    let mut reasons: Vec<String> = Vec::new();
    let mut refused = None;
    for (nth, &address) in addresses.iter().enumerate() {
        if addresses[..nth].contains(&address) {
            continue;
        }
        match pool.ask_anyone(address, Request::Topology, deadline) {
            Ok((node, Answer::Topology(text))) => {
                let name = format!("the cluster file of node {node}");
                match Topology::parse(&text, &name) {
                    Ok(topology) => return Ok(topology),
                    Err(mistakes) => reasons.push(mistakes.to_string()),
                }
            }
            Ok((_, other)) => reasons.push(format!("{address} answered {other:?}")),
            Err(RequestFailure::Refused(why)) => refused = Some(why),
            Err(
                RequestFailure::NotSent(why)
                | RequestFailure::Lost(why)
                | RequestFailure::TooLong(why),
            ) => {
                reasons.push(why);
            }
        }
    }
    match refused {
        Some(why) => Err(Error::Refused { why }),
        None if reasons.is_empty() => Err(Error::Unreachable {
            why: "no address was given".to_owned(),
        }),
        None => Err(Error::Unreachable {
            why: reasons.join("; "),
        }),
    }
}

/// Returns where these operations are sent: to the partition of most of their keys, since those need not
/// travel further; to a random one of several such partitions, so that all nodes coordinate alike.
/// Operations without a key go along.
pub(crate) fn route(topology: &Topology, ops: &[Op<'_>]) -> Route {
    let mut counts: Vec<(PartitionId, usize)> = Vec::new();
    for key in ops.iter().filter_map(Op::key) {
        let partition = topology.partition_of(key);
        match counts.iter_mut().find(|(counted, _)| *counted == partition) {
            Some((_, count)) => *count += 1,
            None => counts.push((partition, 1)),
        }
    }
    let several = counts.len() > 1;
    let most = counts.iter().map(|(_, count)| *count).max();
    counts.retain(|(_, count)| Some(*count) == most);
    let partition = match &counts[..] {
        [] => topology.partitions()[0].id,
        [(one, _)] => *one,
        ties => ties[fastrand::usize(..ties.len())].0,
    };
    Route { partition, several }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn transactions_go_where_most_of_their_keys_are() {
        let text = "
            [[node]]
            id = 1
            client = \"127.0.0.1:1\"
            fabric = \"127.0.0.1:2\"
            [[node]]
            id = 2
            client = \"127.0.0.1:3\"
            fabric = \"127.0.0.1:4\"
            [[partition]]
            id = 1
            slots = [\"0-8191\"]
            nodes = [2]
            [[partition]]
            id = 2
            slots = [\"8192-16383\"]
            nodes = [1]
        ";
        let topology = Topology::parse(text, "cluster.toml").unwrap();
        let get = |key| Op::Get { key };
        // Slots 3300, 7365 and 11298; partition 1, on node 2, has the lower half.
        let (b, c, d): (&[u8], &[u8], &[u8]) = (b"b", b"c", b"d");
        let to = |partition, several| Route {
            partition: PartitionId(partition),
            several,
        };
        assert_eq!(route(&topology, &[get(b)]), to(1, false));
        assert_eq!(route(&topology, &[get(d), get(d)]), to(2, false));
        assert_eq!(route(&topology, &[get(c), get(b), get(d)]), to(1, true));
        assert_eq!(route(&topology, &[get(d), get(b), get(d)]), to(2, true));
        assert_eq!(
            route(&topology, &[Op::Count { database: 0 }, get(d)]),
            to(2, false)
        );
        assert_eq!(route(&topology, &[Op::Count { database: 0 }]), to(1, false));
        let ties: BTreeSet<u16> = (0..100)
            .map(|_| route(&topology, &[get(d), get(b)]).partition.0)
            .collect();
        assert_eq!(ties, [1, 2].into());
        let current_map = ClusterMap::new(topology);
        assert_eq!(current_map.find(PartitionId(1)), NodeId(2));
    }
}
