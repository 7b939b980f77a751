//! Reads over several partitions without holds: each part is read together with the versions of its
//! keys.
//!
//! **One round is enough** if every version that was read is of an epoch that its partition had finished
//! before the read began, as the coordinator knows from an earlier answer of that partition. Then each
//! value was current from that moment until it was read, so that all of them were current at that
//! moment. This is the common case: the values were written before the last message came. An absence may
//! be due to an expiry or a flush, which leave no version, and does not qualify.
//!
//! **Otherwise** the versions are compared once more. Every value was current from its reading to its
//! comparison; all readings come before all comparisons, so that there is a moment in between at
//! which all values were current. With one partition besides the coordinator's own, the own part is
//! read before and compared after the other one is read, which then needs no comparison; unless
//! the own part had to wait for holds, and may have been read last.
//!
//! At that moment the read stands in the serial order: after everything that was acknowledged before it
//! began. A transaction over several partitions is never seen in part: its prepared writes are held
//! wherever it is not yet committed, and a read waits for it there.

use base::participant::Participant;
use base::partition::OwnedReply;
use base::{Abort, Epoch, Op, Tid, Version};

use crate::codec;
use crate::coordination::{Coordination, Part, Stage, together, whole};
use crate::message::{Answer, Request};
use crate::node::{Node, Purpose};
use crate::wires::Lost;

/// Returns the keys of a part, as often as they are read.
fn keys<'o>(part: &Part, ops: &[Op<'o>]) -> Vec<&'o [u8]> {
    part.ops.iter().filter_map(|&op| ops[op].key()).collect()
}

/// Returns the versions that were read with a part.
fn versions(part: &Part) -> impl Iterator<Item = Version> {
    let replies = part.replies.as_deref().unwrap_or_default();
    let behind = part.ops.len().min(replies.len());
    replies[behind..].iter().filter_map(|reply| match reply {
        OwnedReply::Version(version) => Some(*version),
        _ => None,
    })
}

/// Returns `true` if all that a part has read was there when the attempt began.
fn was_there(part: &Part) -> bool {
    let there = |version: Version| {
        let tid = Tid::from_bits(version.to_bits());
        version == Version::present(tid) && tid.epoch() <= part.finished
    };
    versions(part).all(there)
}

impl<C> Node<C> {
    /// Begins the first round.
    pub(crate) fn collect(
        &mut self,
        partition: &mut impl Participant,
        number: u64,
        c: &mut Coordination<C>,
        ops: &[Op<'_>],
    ) {
        c.stage = Stage::Collecting;
        for part in &mut c.parts {
            part.finished = if Some(part.of) == self.own {
                partition.finished()
            } else {
                let leader = self.leaders.leader(part.of);
                leader.map_or(Epoch::ZERO, |leader| self.wires.finished(leader))
            };
        }
        let attempt = c.attempt;
        let parked = self.parked.len();
        let is_led = partition.leads().is_ok();
        for (at, part) in c.parts.iter().enumerate() {
            let request = Request::Read {
                ops: part.ops.iter().map(|&op| ops[op].clone()).collect(),
            };
            let purpose = Purpose::Collect {
                coordination: number,
                attempt,
                part: at,
            };
            self.ask(partition, part.of, request, purpose);
        }
        // Other partitions are asked when this node sends; the own partition is read at once, unless the
        // read has to wait or another node leads.
        c.own_first = is_led && self.parked.len() == parked;
    }

    /// Handles the result of reading a part.
    pub(crate) fn on_collected(
        &mut self,
        partition: &mut impl Participant,
        which: (u64, u32),
        part: usize,
        answer: Result<Answer, Lost>,
    ) {
        let Some(c) = self.current(which) else {
            return;
        };
        if !matches!(c.stage, Stage::Collecting) {
            return;
        }
        match answer {
            Ok(Answer::Read { replies, .. }) if replies.len() >= c.parts[part].ops.len() => {
                c.parts[part].replies = Some(replies);
                c.missing -= 1;
                if c.missing > 0 {
                    return;
                }
                if c.parts.iter().all(was_there) {
                    self.finish_read(partition, which.0);
                } else {
                    self.confirm(partition, which);
                }
            }
            other => self.read_again(partition, which.0, part, other),
        }
    }

    /// Begins the second round.
    fn confirm(&mut self, partition: &mut impl Participant, (number, attempt): (u64, u32)) {
        let mut c = self.coordinations.remove(&number).expect("it is current");
        let bytes = std::mem::take(&mut c.ops);
        let ops = codec::decode_ops(&bytes).expect("it was encoded here");
        let has_own = c.parts.iter().any(|part| Some(part.of) == self.own);
        let own_is_enough = c.parts.len() == 2 && has_own && c.own_first;
        c.stage = Stage::Confirming;
        c.missing = 0;
        for (at, part) in c.parts.iter().enumerate() {
            if own_is_enough && Some(part.of) != self.own {
                continue;
            }
            let checks = keys(part, &ops).into_iter().zip(versions(part));
            let checks = checks.map(|(key, version)| Op::Check { key, version });
            let request = Request::Execute {
                ops: checks.collect(),
            };
            let purpose = Purpose::Confirm {
                coordination: number,
                attempt,
                part: at,
            };
            c.missing += 1;
            self.ask(partition, part.of, request, purpose);
        }
        c.ops = bytes;
        self.counters.compared += 1;
        self.coordinations.insert(number, c);
    }

    /// Handles the result of comparing a part.
    pub(crate) fn on_confirmed(
        &mut self,
        partition: &mut impl Participant,
        which: (u64, u32),
        part: usize,
        answer: Result<Answer, Lost>,
    ) {
        let Some(c) = self.current(which) else {
            return;
        };
        if !matches!(c.stage, Stage::Confirming) {
            return;
        }
        match answer {
            Ok(Answer::Replies(_)) => {
                c.missing -= 1;
                if c.missing == 0 {
                    self.finish_read(partition, which.0);
                }
            }
            // A key has changed meanwhile.
            Ok(Answer::Aborted(Abort::Precondition { .. })) => {
                let attempts = c.attempt;
                self.again_or_end(partition, which.0, Abort::Conflict { attempts });
            }
            other => self.read_again(partition, which.0, part, other),
        }
    }

    fn finish_read(&mut self, partition: &mut impl Participant, number: u64) {
        let mut c = self.coordinations.remove(&number).expect("it is current");
        for part in &mut c.parts {
            let read = part.ops.len();
            let replies = part.replies.as_mut().expect("it was collected");
            replies.truncate(read);
        }
        let replies = together(c.places.len(), c.parts);
        self.finish(partition, c.caller, Ok(replies));
    }

    /// Handles a part that was not read; a read can be tried again in any case.
    pub(crate) fn read_again(
        &mut self,
        partition: &mut impl Participant,
        number: u64,
        part: usize,
        answer: Result<Answer, Lost>,
    ) {
        let of = self.coordinations[&number].parts[part].of;
        let abort = match answer {
            Ok(Answer::Aborted(Abort::Unknown { what }) | Answer::Failed(what)) => {
                self.unreached(of, what)
            }
            Ok(Answer::Aborted(abort)) => whole(abort, &self.coordinations[&number].parts[part]),
            Ok(other) => Abort::Unavailable {
                what: format!("a node answered a read with {other:?}"),
            },
            Err(Lost { why, .. }) => self.unreached(of, why),
        };
        self.again_or_end(partition, number, abort);
    }
}
