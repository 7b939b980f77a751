//! A write of several read-atomic keys that the client coordinates itself (paper 1, algorithm 1); the steps of
//! an attempt are those of [`ReadAtomicWrite`].
//!
//! | what happens | the client |
//! |---|---|
//! | all participants have committed | owes them the notice to forget, which leaves with its next requests |
//! | a participant does not prepare | owes the others the notice to abort; tries again under another id, if that may help |
//! | an answer to `Prepare` is lost | asks the home to abort the attempt, until it has an answer |
//! | an answer to `Commit` is lost | asks again, possibly another node |
//! | the time is up meanwhile | [`Error::Committed`] if all have prepared, else [`Error::Unknown`]; the home goes on |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Abort, NodeId, Op, PartitionId, Timestamp};
use cluster::message::{Answer, Notice, Request};
use cluster::ramp::{Algorithm, ReadAtomicWrite, WriteStep};
use cluster::{LostRequest, Timeouts};

use crate::attempt::{final_error, judge};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::cluster_map::ClusterMap;
use crate::connection_pool::{RequestFailure, SentRequest};
use crate::error::Error;

/// Longest time for reading an answer that has already arrived.
const AT_ONCE: Duration = Duration::from_millis(10);
/// Number of attempts that follow each other at once when an id was overtaken.
const HASTY_ATTEMPTS: u32 = 4;
/// How far an id goes beyond one that has overtaken it, in points of the clock, for each time that it was
/// overtaken.
const LEAP: u64 = 64;

/// A request to one participant, and its node.
struct SentPart<'a> {
    partition: PartitionId,
    node: NodeId,
    sent: Result<SentRequest<'a>, RequestFailure>,
}

impl Client {
    /// Writes read-atomic keys of several partitions; the operations set and delete whole values.
    pub(crate) fn write_directly(
        &self,
        ops: &[Op<'_>],
        algorithm: Algorithm,
        deadline: Instant,
    ) -> Result<(), Error> {
        let mut backoff = Backoff::until(deadline);
        let mut overtaken = 0;
        loop {
            let map = self.map.current();
            let Some(abort) = self.attempt_write(&map, ops, algorithm, deadline)? else {
                return Ok(());
            };
            if let Abort::Overtaken { newest } = &abort {
                // A little more each time, so that a clock which is behind catches up with one that goes on.
                let beyond = newest.0.saturating_add(LEAP * u64::from(overtaken));
                self.attempt_ids.pass(Timestamp(beyond));
                overtaken += 1;
                if overtaken <= HASTY_ATTEMPTS && Instant::now() < deadline {
                    continue;
                }
            }
            let Err(again) = judge(Ok(Answer::Aborted(abort)), 0, NodeId(0), false)? else {
                unreachable!("an abort is no success");
            };
            if !backoff.pause() {
                let (attempts, why) = (backoff.attempts + overtaken, again.why);
                return Err(Error::TimedOut { attempts, why });
            }
            if again.stale {
                self.map.refresh(&map, &self.pool, deadline);
            }
        }
    }

    /// Returns `None` if the write has taken effect, or why this attempt has no effect and will have none.
    fn attempt_write(
        &self,
        map: &Arc<ClusterMap>,
        ops: &[Op<'_>],
        algorithm: Algorithm,
        deadline: Instant,
    ) -> Result<Option<Abort>, Error> {
        // The home may have forgotten the attempt later.
        let longest = Timeouts::default().transaction;
        let deadline = deadline.min(Instant::now() + longest);
        let id = self.attempt_ids.next();
        let mut write = ReadAtomicWrite::new(&map.topology, id, algorithm, ops);
        let mut backoff = Backoff::until(deadline);
        let mut refusal = None;
        loop {
            match self.carry_out_stage(map, &mut write, ops, deadline, &mut refusal) {
                WriteStep::NextStage => {}
                WriteStep::Done => {
                    for of in write.participants() {
                        self.pool.owe(map.find(of), Notice::Forget { id });
                    }
                    return Ok(None);
                }
                WriteStep::Failed(abort) => {
                    for of in write.prepared() {
                        self.pool.owe(map.find(of), Notice::Abort { id });
                    }
                    return refusal.map_or(Ok(Some(abort)), Err);
                }
                WriteStep::Unknown(why) => return Err(Error::Unknown { why }),
                WriteStep::Wait => {
                    if !backoff.pause() {
                        return Err(final_error(write.open_outcome()));
                    }
                }
            }
        }
    }

    /// Sends the requests of the present stage that have no answer, and waits for the answers. `refusal` gets
    /// the error that the caller sees if a request cannot be sent to any node.
    fn carry_out_stage(
        &self,
        map: &ClusterMap,
        write: &mut ReadAtomicWrite,
        ops: &[Op<'_>],
        deadline: Instant,
        refusal: &mut Option<Error>,
    ) -> WriteStep {
        let stage = write.stage();
        let patience = deadline.min(Instant::now() + self.options.answer_within);
        let mut requests: BTreeMap<(NodeId, PartitionId), Request<'_>> = BTreeMap::new();
        for (of, request) in write.requests(ops) {
            requests.insert((map.find(of), of), request);
        }
        let send = |((node, partition), request)| SentPart {
            partition,
            node,
            sent: map
                .address_of(node)
                .and_then(|to| self.pool.send(to, request, patience)),
        };
        let parts: Vec<SentPart<'_>> = requests.into_iter().map(send).collect();
        let mut last = WriteStep::Wait;
        for part in parts {
            // An answer that arrived while the client waited for others can be read at once.
            let patience = deadline.min(patience.max(Instant::now() + AT_ONCE));
            let answer = part.sent.and_then(|sent| sent.receive(patience));
            map.learn(part.partition, part.node, &answer);
            let answer = answer.map_err(|failure| lost(failure, refusal));
            match write.answered(stage, part.partition, answer) {
                WriteStep::Wait => {}
                step => last = step,
            }
        }
        last
    }
}

/// Returns what the failure means for an attempt, and notes an error that another attempt meets as well.
fn lost(failure: RequestFailure, refusal: &mut Option<Error>) -> LostRequest {
    let (sent, why) = match failure {
        RequestFailure::NotSent(why) => (false, why),
        RequestFailure::TooLong(why) => {
            refusal.get_or_insert(Error::TooLong { why: why.clone() });
            (false, why)
        }
        RequestFailure::Refused(why) => {
            refusal.get_or_insert(Error::Refused { why: why.clone() });
            (false, why)
        }
        RequestFailure::Lost(why) => (true, why),
    };
    LostRequest { sent, why }
}
