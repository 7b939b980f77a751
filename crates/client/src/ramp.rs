//! Read-atomic keys (paper 1; RAMP): several of them are read, or written, such that a reader sees all
//! or nothing of what was written together, and no transaction waits for another.
//!
//! | | who does it |
//! |---|---|
//! | a read | the client, unless [`Reads::ByNode`] says otherwise: it asks the partitions of the keys, all at once, and asks those again that lag behind the others; see [`cluster::ramp`] |
//! | a write | a node that leads one of the partitions, or the client if [`WriteCoordinator::Client`] says so; it coordinates |
//!
//! An answer from an earlier attempt of a round is kept when another partition does not answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::partition::OwnedReply;
use base::versions::Ask;
use base::{Abort, NodeId, Op, PartitionId};
use cluster::message::{Answer, Request};
use cluster::ramp::{Algorithm, ReadAtomicRead, ReadStep};

use crate::attempt::{RetryReason, judge_other};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::cluster_map::{ClusterMap, route};
use crate::connection_pool::{RequestFailure, SentRequest};
use crate::error::Error;
use crate::one_sided::OneSided;
use crate::options::{Reads, WriteCoordinator};
use crate::read_counts::ReadCounts;
use crate::replies::check;

/// Longest time for reading an answer that has already arrived.
const AT_ONCE: Duration = Duration::from_millis(10);

/// One partition's part of a round: the places of its keys, and the request that was sent.
struct RoundPart<'a> {
    partition: PartitionId,
    node: NodeId,
    places: Vec<usize>,
    sent: Result<SentRequest<'a>, RequestFailure>,
}

impl Client {
    /// Returns the values of read-atomic keys; `None` for one that is absent or no string. Of what one
    /// [`Client::put_all`] has written, or another command that only writes, the call sees all or
    /// nothing, and no value is older than what was acknowledged before the call.
    ///
    /// Any algorithm can read what any other has written. [`Algorithm::Fast`] and [`Algorithm::Hybrid`]
    /// read alike: one round trip, or two if a write is under way. [`Algorithm::Small`] takes two.
    ///
    /// # Errors
    /// See [`Error`]; [`Abort::Unsupported`] if a key is not read atomic.
    pub fn get_all(
        &self,
        keys: &[&[u8]],
        algorithm: Algorithm,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let begun = Instant::now();
        let deadline = begun + self.options.timeout;
        self.check_declared(keys, deadline)?;
        if self.options.reads == Reads::ByNode {
            return self.get_by_node(keys, algorithm, deadline);
        }
        let mut backoff = Backoff::until(deadline);
        let start = || ReadAtomicRead::new(algorithm, keys.iter().copied(), begun.elapsed());
        let mut reading = start();
        while reading.asks().next().is_some() {
            let map = self.map.current();
            let again = match self.round(&map, &mut reading, (begun, deadline))? {
                Ok(ReadStep::GaveUp) => {
                    reading = start();
                    let why = "each time it took longer than old versions are kept".to_owned();
                    RetryReason { why, stale: false }
                }
                Ok(_) => continue,
                Err(again) => again,
            };
            if !backoff.pause() {
                let (attempts, why) = (backoff.attempts, again.why);
                return Err(Error::TimedOut { attempts, why });
            }
            if again.stale {
                self.map.refresh(&map, &self.pool, deadline);
            }
        }
        self.reads.note(reading.costs());
        Ok(strings(reading.replies()))
    }

    fn get_by_node(
        &self,
        keys: &[&[u8]],
        algorithm: Algorithm,
        deadline: Instant,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::GetIfString { key }).collect();
        let replies = self.ramp_until(&ops, algorithm, deadline)?;
        Ok(strings(replies))
    }

    /// Sets read-atomic keys that do not expire, or deletes those without a value: [`Client::get_all`]
    /// sees all of it or nothing. Of a key that occurs repeatedly the last value counts. Writers do not
    /// wait for each other: of two that write the same keys at one time, the same one determines each
    /// key's value.
    ///
    /// # Errors
    /// See [`Error`]; [`Abort::Unsupported`] if a key is not read atomic.
    pub fn put_all(
        &self,
        pairs: &[(&[u8], Option<&[u8]>)],
        algorithm: Algorithm,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.timeout;
        let last: BTreeMap<&[u8], Option<&[u8]>> = pairs.iter().copied().collect();
        let keys: Vec<&[u8]> = last.keys().copied().collect();
        self.check_declared(&keys, deadline)?;
        if last.is_empty() {
            return Ok(());
        }
        let ops: Vec<Op<'_>> = last
            .into_iter()
            .map(|(key, value)| match value {
                Some(value) => Op::put(key, value),
                None => Op::Delete { key },
            })
            .collect();
        let is_direct = self.options.writes == WriteCoordinator::Client;
        if is_direct && route(&self.map.current().topology, &ops).several {
            return self.write_directly(&ops, algorithm, deadline);
        }
        let replies = self.ramp_until(&ops, algorithm, deadline)?;
        check(&replies)
    }

    /// Returns the costs of this client's [`Client::get_all`] so far. Reads that nodes have run are in
    /// the nodes' own figures.
    #[must_use]
    pub fn read_counts(&self) -> ReadCounts {
        let one_sided = self.one_sided.as_ref().map(OneSided::counts);
        self.reads.counts(one_sided.unwrap_or_default())
    }

    /// Returns an error if a key is not read atomic.
    fn check_declared(&self, keys: &[&[u8]], deadline: Instant) -> Result<(), Error> {
        let find = |map: &ClusterMap| {
            let declared = map.topology.read_atomic();
            keys.iter().find(|key| !declared.covers(key)).copied()
        };
        let map = self.map.current();
        if find(&map).is_none() {
            return Ok(());
        }
        // A newer file may declare it.
        self.map.refresh(&map, &self.pool, deadline);
        find(&self.map.current()).map_or(Ok(()), |key| {
            let key = key.escape_ascii();
            let what = format!(
                "the key \"{key}\" is not read atomic: use mget, mset or execute, or declare its \
                 prefix by read_atomic in the cluster's file"
            );
            Err(Error::Aborted(Abort::Unsupported { what }))
        })
    }

    /// Asks all partitions at once, and waits for all of them. Returns `RetryReason` if one of them has not
    /// answered.
    fn round(
        &self,
        map: &Arc<ClusterMap>,
        reading: &mut ReadAtomicRead,
        (begun, deadline): (Instant, Instant),
    ) -> Result<Result<ReadStep, RetryReason>, Error> {
        let patience = deadline.min(Instant::now() + self.options.answer_within);
        let round = reading.round();
        let newest = reading
            .asks()
            .all(|(_, ask)| matches!(ask, Ask::Newest { .. }));
        let one_sided = self.one_sided.as_ref().filter(|_| newest);
        if let Some(one_sided) = one_sided {
            let found = one_sided.read(map, &self.pool, reading, patience);
            let step = reading.answered(round, found, begun.elapsed());
            if step != ReadStep::Wait {
                return Ok(Ok(step));
            }
        }
        let parts = self.send_asks(map, reading, one_sided.is_some(), patience);
        let (mut last, mut failed) = (ReadStep::Wait, None);
        for part in parts {
            // An answer that arrived while the client waited for others can be read at once.
            let patience = deadline.min(patience.max(Instant::now() + AT_ONCE));
            let answer = part.sent.and_then(|sent| sent.receive(patience));
            map.learn(part.partition, part.node, &answer);
            match answer {
                Ok(Answer::Versions(found)) if found.len() == part.places.len() => {
                    let answers = part.places.into_iter().zip(found);
                    let step = reading.answered(round, answers, begun.elapsed());
                    if step != ReadStep::Wait {
                        last = step;
                    }
                }
                Ok(Answer::Located { founds, addresses })
                    if [founds.len(), addresses.len()] == [part.places.len(); 2] =>
                {
                    if let Some(one_sided) = one_sided {
                        let keys = part.places.iter().map(|at| reading.key_at(*at));
                        keys.zip(addresses)
                            .for_each(|(key, address)| one_sided.learn(part.node, key, address));
                    }
                    let answers = part.places.into_iter().zip(founds);
                    let step = reading.answered(round, answers, begun.elapsed());
                    if step != ReadStep::Wait {
                        last = step;
                    }
                }
                answer => failed = Some(judge_other(answer, part.node)?),
            }
        }
        Ok(match failed {
            // If the round is over, the missing answer is not needed any more.
            Some(again) if last == ReadStep::Wait => Err(again),
            _ => Ok(last),
        })
    }

    /// Sends each partition its part.
    fn send_asks<'a>(
        &'a self,
        map: &ClusterMap,
        reading: &ReadAtomicRead,
        located: bool,
        patience: Instant,
    ) -> Vec<RoundPart<'a>> {
        let mut asks: BTreeMap<(NodeId, PartitionId), (Vec<usize>, Vec<Ask<'_>>)> = BTreeMap::new();
        for (place, ask) in reading.asks() {
            let partition = map.topology.partition_of(ask.key());
            let part = asks.entry((map.find(partition), partition)).or_default();
            part.0.push(place);
            part.1.push(ask);
        }
        let send = |((node, partition), (places, asks))| RoundPart {
            partition,
            node,
            places,
            sent: map.address_of(node).and_then(|to| {
                let request = request(asks, located);
                self.pool.send(to, request, patience)
            }),
        };
        asks.into_iter().map(send).collect()
    }
}

/// Returns the values of those replies that are strings.
fn strings(replies: Vec<OwnedReply>) -> Vec<Option<Vec<u8>>> {
    let value = |reply: OwnedReply| match reply {
        OwnedReply::Bytes(bytes) => Some(bytes),
        _ => None,
    };
    replies.into_iter().map(value).collect()
}

/// Returns the request for a part of a round. If slots are to be `located`, it asks for newest versions.
fn request(asks: Vec<Ask<'_>>, located: bool) -> Request<'_> {
    match located {
        true => Request::Locate {
            keys: asks.iter().map(Ask::key).collect(),
        },
        false => Request::Versions { asks },
    }
}
