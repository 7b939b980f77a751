//! A node's work for its callers: transactions over any partitions.
//!
//! | the operations are | way |
//! |---|---|
//! | of one partition | executed there, as a transaction of its own |
//! | of several, and none writes | read everywhere, then checked for changes (module `reading`) |
//! | of several | two-phase commit (module `two_phase`) |
//! | on read-atomic keys, and they read | read in rounds (module `ramp::rounds`), also if all are of one partition |
//! | of several, and they write such keys | two-phase commit that holds nothing; the caller is answered when all have committed |
//!
//! Guards (`Op::Guard`) have no partition of their own: each participant executes them. A transaction of
//! several partitions has no time of its own, so `Op::Now` is refused in it.
//!
//! Invariants:
//! 1. A caller is answered once.
//! 2. The answer "nothing has happened" is given only when that is durable: after a vote against, or the
//!    home's consent.
//! 3. Another attempt begins only when the last one cannot commit any more.

use std::cmp::Reverse;
use std::time::Duration;

use base::participant::Participant;
use base::partition::OwnedReply;
use base::transaction::check_guards;
use base::{Abort, Epoch, Op, PartitionId, Timestamp, TransactionId};

use crate::codec;
use crate::message::{Answer, Request};
use crate::node::{Caller, Node, Purpose};
use crate::ramp::{self, Algorithm, Reading, Refusal, Way, classify};
use crate::wires::Lost;

/// A transaction under way.
pub(crate) struct Coordination<C> {
    pub(crate) caller: Caller<C>,
    /// The operations, encoded; empty for [`Manner::Reading`], which has the keys itself.
    pub(crate) ops: Vec<u8>,
    /// The partition of each operation, or of each key for [`Manner::Reading`]; `None` for an operation
    /// that each participant executes.
    pub(crate) places: Vec<Option<PartitionId>>,
    pub(crate) read_only: bool,
    pub(crate) manner: Manner,
    pub(crate) begun: Duration,
    pub(crate) age: Timestamp,
    /// The number of the attempt, from 1 on.
    pub(crate) attempt: u32,
    pub(crate) attempt_begun: Duration,
    pub(crate) stage: Stage,
    pub(crate) parts: Vec<Part>,
    /// Number of missing answers.
    pub(crate) missing: usize,
    /// Of a validated read: the own part was read at once, before any other.
    pub(crate) own_first: bool,
}

/// What a caller wants besides its operations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    None,
    /// Keys that are only read are held, too.
    Holds,
    /// The operations must read or write read-atomic keys, by this algorithm.
    Ramp(Algorithm),
}

/// How a transaction of several partitions is executed.
pub(crate) enum Manner {
    Serializable,
    /// With holds also for keys that are only read.
    Holding,
    /// It writes read-atomic keys.
    Writing(Algorithm),
    /// It reads read-atomic keys.
    Reading(Box<Reading>),
}

/// Progress of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Before an attempt.
    Paused,
    /// Another node executes it.
    Forwarded,
    /// A validated read, first and second round.
    Collecting,
    Confirming,
    /// A round of a read-atomic read.
    Reading,
    /// Votes are coming.
    Preparing {
        id: TransactionId,
    },
    /// The home is asked to abort, for this reason; again from this time on.
    Abandoning {
        id: TransactionId,
        why: Abort,
        again_at: Duration,
    },
}

/// The part of a transaction that belongs to one partition.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) of: PartitionId,
    /// Indexes of its operations.
    pub(crate) ops: Vec<usize>,
    pub(crate) replies: Option<Vec<OwnedReply>>,
    /// An epoch that had finished there when the attempt began.
    pub(crate) finished: Epoch,
}

/// Pauses between attempts double from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(300);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// The least pause while no node is known to lead a partition.
const LEADERLESS_PAUSE: Duration = Duration::from_millis(5);
/// Number of attempts that follow each other at once when a timestamp was overtaken.
const HASTY_ATTEMPTS: u32 = 4;
/// How far a timestamp goes beyond one that has overtaken it, in points of the clock, for each time that
/// it was overtaken; and how often that grows. It stays far below a millisecond, so that clocks that
/// overtake each other do not leave the time of day behind.
const LEAP: u64 = 64;
const LEAPS: u64 = 64;
/// A validated read that fails this often takes holds instead.
pub(crate) const READ_ATTEMPTS: u32 = 8;

impl<C> Node<C> {
    /// Begins a transaction.
    pub(crate) fn start(
        &mut self,
        partition: &mut impl Participant,
        ops: &[Op<'_>],
        wish: Wish,
        caller: Caller<C>,
    ) {
        let manner = match self.manner(ops, wish) {
            Ok(manner) => manner,
            Err(refusal) => return self.finish(partition, caller, Err(refusal.into())),
        };
        let mut encoded = Vec::new();
        let places = if let Manner::Reading(reading) = &manner {
            let keys = reading.keys();
            Ok(keys.map(|key| Some(self.partition_of(key))).collect())
        } else {
            codec::encode_ops(ops, &mut encoded);
            self.places(ops)
        };
        let places = match places {
            Ok(places) => places,
            Err(abort) => return self.finish(partition, caller, Err(abort)),
        };
        if places.is_empty() {
            return self.finish(partition, caller, Ok(Vec::new()));
        }
        let number = self.next_coordination;
        self.next_coordination += 1;
        let coordination = Coordination {
            caller,
            ops: encoded,
            places,
            read_only: ops.iter().all(Op::is_read_only),
            manner,
            begun: self.now,
            age: self.clock.next(partition.time_ms()),
            attempt: 0,
            attempt_begun: self.now,
            stage: Stage::Paused,
            parts: Vec::new(),
            missing: 0,
            own_first: false,
        };
        self.coordinations.insert(number, coordination);
        self.attempt(partition, number);
    }

    /// Returns the partition of each operation, as in [`Coordination::places`].
    fn places(&self, ops: &[Op<'_>]) -> Result<Vec<Option<PartitionId>>, Abort> {
        check_guards(ops)?;
        let along = !ops.iter().all(Op::goes_along);
        let mut places = Vec::with_capacity(ops.len());
        for op in ops {
            places.push(match op.key() {
                Some(key) => Some(self.partition_of(key)),
                None if along && op.goes_along() => None,
                None => Some(self.own.ok_or_else(placeless)?),
            });
        }
        let mut placed = places.iter().flatten();
        let first = placed.next();
        if ops.contains(&Op::Now) && placed.any(|place| Some(place) != first) {
            let what = "each partition has a time of its own: ask for it in a transaction of one";
            let what = what.to_owned();
            return Err(Abort::Unsupported { what });
        }
        Ok(places)
    }

    /// Returns how operations are executed. Refusals do not depend on where keys lie.
    fn manner(&self, ops: &[Op<'_>], wish: Wish) -> Result<Manner, Refusal> {
        let declared = self.topology.read_atomic();
        let way = classify(declared, ops)?;
        Ok(match (way, wish) {
            (Way::Read | Way::Write, Wish::Holds) => return Err(Refusal::Holds),
            (Way::Ordinary, Wish::None) => Manner::Serializable,
            (Way::Ordinary, Wish::Holds) => Manner::Holding,
            (Way::Read, Wish::None) => self.reading(self.ramp, ops),
            (Way::Write, Wish::None) => Manner::Writing(self.ramp),
            (way, Wish::Ramp(algorithm)) => {
                ramp::one_way(declared, ops)?;
                match way {
                    Way::Read => self.reading(algorithm, ops),
                    Way::Write => Manner::Writing(algorithm),
                    // A single key.
                    Way::Ordinary => Manner::Serializable,
                }
            }
        })
    }

    fn reading(&self, algorithm: Algorithm, ops: &[Op<'_>]) -> Manner {
        Manner::Reading(Box::new(Reading::of_ops(algorithm, ops, self.now)))
    }

    /// Begins the next attempt.
    pub(crate) fn attempt(&mut self, partition: &mut impl Participant, number: u64) {
        let paused = |c: &Coordination<C>| matches!(c.stage, Stage::Paused);
        if !self.coordinations.get(&number).is_some_and(paused) {
            return;
        }
        let mut coordination = self.coordinations.remove(&number).expect("it is there");
        let c = &mut coordination;
        c.attempt += 1;
        c.attempt_begun = self.now;
        self.counters.retried += u64::from(c.attempt > 1);
        if let Manner::Reading(reading) = &mut c.manner {
            if c.attempt > 1 {
                reading.begin(self.now);
            }
            self.ask_round(partition, number, c);
        } else {
            self.attempt_ops(partition, number, c);
        }
        self.coordinations.insert(number, coordination);
    }

    fn attempt_ops(
        &mut self,
        partition: &mut impl Participant,
        number: u64,
        c: &mut Coordination<C>,
    ) {
        c.parts = divide(&c.places);
        c.missing = c.parts.len();
        let bytes = std::mem::take(&mut c.ops);
        let ops = codec::decode_ops(&bytes).expect("it was encoded here");
        let ranges = |op: &Op<'_>| matches!(op, Op::Scan { .. });
        if let [part] = &c.parts[..] {
            c.stage = Stage::Forwarded;
            let request = Request::Execute { ops };
            let purpose = Purpose::Forward {
                coordination: number,
                attempt: c.attempt,
            };
            self.ask(partition, part.of, request, purpose);
        } else if matches!(c.manner, Manner::Serializable)
            && c.read_only
            && c.attempt <= READ_ATTEMPTS
            && !ops.iter().any(ranges)
        {
            self.collect(partition, number, c, &ops);
        } else {
            self.prepare_all(partition, number, c, &ops);
        }
        c.ops = bytes;
    }

    /// Returns the coordination, if this attempt is its current one.
    pub(crate) fn current(
        &mut self,
        (number, attempt): (u64, u32),
    ) -> Option<&mut Coordination<C>> {
        let coordination = self.coordinations.get_mut(&number)?;
        (coordination.attempt == attempt).then_some(coordination)
    }

    /// Handles the answer of the partition that executed the whole transaction.
    pub(crate) fn on_forwarded(
        &mut self,
        partition: &mut impl Participant,
        which: (u64, u32),
        answer: Result<Answer, Lost>,
    ) {
        let number = which.0;
        let Some(c) = self.current(which) else {
            return;
        };
        if !matches!(c.stage, Stage::Forwarded) {
            return;
        }
        let safe = c.read_only;
        let of = c.parts[0].of;
        match answer {
            Ok(Answer::Replies(replies)) if replies.len() == c.places.len() => {
                let c = self.coordinations.remove(&number).expect("it was there");
                self.finish(partition, c.caller, Ok(replies));
            }
            Ok(Answer::Aborted(Abort::Unknown { what }) | Answer::Failed(what)) if safe => {
                let abort = self.unreached(of, what);
                self.again_or_end(partition, number, abort);
            }
            Ok(Answer::Aborted(abort)) => self.again_or_end(partition, number, abort),
            Err(Lost { sent, why }) if !sent || safe => {
                let abort = self.unreached(of, why);
                self.again_or_end(partition, number, abort);
            }
            Err(Lost { why, .. }) => self.end_unknown(partition, number, why),
            Ok(Answer::Failed(what)) => self.end_unknown(partition, number, what),
            Ok(other) => self.end_unknown(partition, number, format!("a node answered {other:?}")),
        }
    }

    /// Returns the abort for a caller if nothing has happened because a partition did not answer. If the
    /// partition has other nodes, one of them may answer.
    pub(crate) fn unreached(&self, of: PartitionId, what: String) -> Abort {
        if self.leaders.is_replicated(of) {
            let leader = self.leaders.leader(of);
            Abort::Elsewhere { leader }
        } else {
            Abort::Unavailable { what }
        }
    }

    pub(crate) fn end_unknown(
        &mut self,
        partition: &mut impl Participant,
        number: u64,
        what: String,
    ) {
        let c = self.coordinations.remove(&number).expect("it is there");
        self.finish(partition, c.caller, Err(Abort::Unknown { what }));
    }

    /// Ends an attempt without effect: tries again if that may help, or answers the caller.
    pub(crate) fn again_or_end(
        &mut self,
        partition: &mut impl Participant,
        number: u64,
        abort: Abort,
    ) {
        let c = self.coordinations.get_mut(&number).expect("it is current");
        let time = self.now.saturating_sub(c.begun);
        let mut abort = abort;
        let again = match &abort {
            Abort::Overtaken { newest } => {
                // A little more each time, so that a clock which is behind catches up with one that goes
                // on.
                let beyond = Timestamp(newest.0 + LEAP * u64::from(c.attempt - 1).min(LEAPS));
                let witnessed = self.clock.witness(beyond, partition.time_ms());
                if let Err(error) = &witnessed {
                    let what = error.to_string();
                    abort = Abort::Unavailable { what };
                }
                witnessed.is_ok()
            }
            Abort::Held { .. } => time < self.timeouts.hold,
            Abort::Refused | Abort::Conflict { .. } => true,
            Abort::Unavailable { .. } => time < self.timeouts.unreachable,
            Abort::Elsewhere { .. } => time < self.timeouts.answer,
            _ => false,
        };
        if !again || time >= self.timeouts.transaction {
            let c = self.coordinations.remove(&number).expect("it was there");
            return self.finish(partition, c.caller, Err(abort));
        }
        c.stage = Stage::Paused;
        let least = match abort {
            Abort::Elsewhere { leader: None } => LEADERLESS_PAUSE,
            _ => Duration::ZERO,
        };
        let longest = LONGEST_PAUSE.min(FIRST_PAUSE * (1 << (c.attempt - 1).min(10)));
        let pause = match abort {
            // No other transaction has to end first.
            Abort::Overtaken { .. } if c.attempt <= HASTY_ATTEMPTS => Duration::ZERO,
            _ => longest.mul_f64(0.5 + self.random.f64() / 2.0),
        };
        self.paused
            .push(Reverse((self.now + pause.max(least), number)));
    }

    /// Gives up attempts that have waited for too long.
    pub(crate) fn sweep_coordinations(&mut self, partition: &mut impl Participant) {
        let (now, limits) = (self.now, self.timeouts);
        let late = |c: &Coordination<C>| {
            // The node that was asked may itself wait for holds.
            let patience = limits.answer + limits.hold;
            !matches!(c.stage, Stage::Paused) && c.attempt_begun + patience <= now
        };
        let late = self.coordinations.iter().filter(|(_, c)| late(c));
        let mut late: Vec<u64> = late.map(|(number, _)| *number).collect();
        late.sort_unstable();
        let what = || "a node does not answer in time".to_owned();
        for number in late {
            let c = self.coordinations.get_mut(&number).expect("it was there");
            for part in c.parts.iter().filter(|part| part.replies.is_none()) {
                if let Some(silent) = self.leaders.leader(part.of) {
                    self.leaders.doubt(part.of, silent);
                }
            }
            match c.stage {
                Stage::Preparing { .. } => {
                    self.abandon_home(partition, number, Abort::Unavailable { what: what() });
                }
                Stage::Forwarded if !c.read_only => self.end_unknown(partition, number, what()),
                Stage::Forwarded | Stage::Collecting | Stage::Confirming | Stage::Reading => {
                    self.again_or_end(partition, number, Abort::Unavailable { what: what() });
                }
                Stage::Abandoning { .. } | Stage::Paused => {}
            }
        }
        self.sweep_abandoning(partition);
    }
}

fn placeless() -> Abort {
    let what = "a node without a partition was given an operation that names no key";
    let what = what.to_owned();
    Abort::Unavailable { what }
}

/// Divides the operations by partition, in their order.
fn divide(places: &[Option<PartitionId>]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for place in places.iter().flatten() {
        if parts.iter().all(|part| part.of != *place) {
            parts.push(Part {
                of: *place,
                ops: Vec::new(),
                replies: None,
                finished: Epoch::ZERO,
            });
        }
    }
    for (op, place) in places.iter().enumerate() {
        let executes = |part: &&mut Part| place.is_none_or(|place| part.of == place);
        let parts = parts.iter_mut().filter(executes);
        parts.for_each(|part| part.ops.push(op));
    }
    parts
}

/// Returns the parts' replies in the order of the operations.
pub(crate) fn together(count: usize, parts: Vec<Part>) -> Vec<OwnedReply> {
    let mut replies: Vec<OwnedReply> = vec![OwnedReply::Nil; count];
    for part in parts {
        let own = part.replies.expect("every part has answered");
        for (op, reply) in part.ops.into_iter().zip(own) {
            replies[op] = reply;
        }
    }
    replies
}

/// Translates the abort of a part into one of the whole transaction.
pub(crate) fn whole(abort: Abort, part: &Part) -> Abort {
    match abort {
        Abort::Precondition { op } => Abort::Precondition {
            op: part.ops.get(op).copied().unwrap_or_default(),
        },
        other => other,
    }
}
