//! A node's work for coordinators, its own included: it serves their requests to its partition.
//!
//! Invariant: a request is answered once, unless its link goes down or its coordinator aborts it.

use base::change::siblings;
use base::participant::{Isolation, Participant, Prepare, Sequenced, State};
use base::partition::OwnedReply;
use base::planted::{self, Bug};
use base::transaction::{Holder, check_guards};
use base::versions::{Ask, Found, OwnedFound};
use base::{Abort, Epoch, NodeId, Op, Timestamp, TransactionId};

use crate::codec;
use crate::message::{Answer, Fate, Request, Roll};
use crate::node::{Asker, Node};
use crate::parked::{ParkedPrepare, Parking};
use crate::pending_answers::{Haste, PendingAnswer};
use crate::ramp;

/// A prepare whose timestamp is this far behind the partition's time is refused. So refusals need not be
/// remembered for ever.
pub(crate) const OLDEST_PREPARE_MS: u64 = 30_000;
/// How long a refusal is remembered: longer than a prepare can still come.
pub(crate) const REFUSAL_MS: u64 = 2 * OLDEST_PREPARE_MS;

/// Most keys and ids in a request.
const MOST_ASKED: usize = 1 << 20;
/// Most bytes of values that one request reads.
const MOST_READ: usize = 1 << 29;

impl<C> Node<C> {
    /// Serves a request on this node's own partition.
    pub(crate) fn serve(
        &mut self,
        partition: &mut impl Participant,
        asker: Asker,
        request: Request<'_>,
    ) {
        if let Err(leader) = partition.leads()
            && !matches!(request, Request::Topology)
        {
            return self.redirect(asker, leader);
        }
        match request {
            Request::Execute { ops } => self.execute(partition, asker, &ops),
            Request::Once { of, ops } => self.execute_once(partition, asker, &ops, of),
            Request::OpenSession => self.open_session(partition, asker),
            Request::Each { transactions } => self.execute_each(partition, asker, &transactions),
            Request::Read { ops } => self.read(partition, asker, &ops),
            Request::Prepare {
                id,
                age,
                roll,
                siblings,
                isolation,
                ops,
            } => {
                if let Some(what) = self.unfit(&roll, siblings) {
                    return self.deliver(asker, Answer::Aborted(Abort::Unavailable { what }));
                }
                let mut note = Vec::new();
                codec::encode_roll(&roll, &mut note);
                let prepare = Prepare {
                    holder: Holder { id, age },
                    ops: &ops,
                    siblings,
                    note: &note,
                    isolation,
                };
                self.prepare(partition, asker, &prepare);
            }
            Request::Commit { id, awaited } => self.commit(partition, asker, id, awaited),
            Request::Versions { asks } => {
                let (answer, epoch) = self.look_at_versions(partition, &asks);
                self.answer(partition, asker, answer, (epoch, Haste::Soon));
            }
            Request::Locate { keys } => self.locate(partition, asker, &keys),
            Request::Region { offer } => {
                let region = self.region(offer);
                self.deliver(asker, region);
            }
            // An attempt that waits for holds is undecided, but not because its coordinator is gone.
            Request::Vote { id } if self.waiting.has(id) => {
                let what = "it waits for keys that another transaction holds".to_owned();
                self.deliver(asker, Answer::Failed(what));
            }
            Request::Outcome { id } if self.waiting.has(id) => {
                self.deliver(asker, Answer::Fate(Fate::Open));
            }
            Request::Vote { id } => {
                let until = partition.time_ms() + REFUSAL_MS;
                let known = partition.refuse(id, until).map(|(state, epoch)| {
                    self.counters.refused += u64::from(state == State::Unknown);
                    (Answer::State(state), epoch)
                });
                self.drop_parked(id);
                self.answer_with(partition, asker, known);
            }
            Request::Outcome { id } => {
                let fate = self.outcome(partition, id);
                let fate = fate.map(|(fate, epoch)| (Answer::Fate(fate), epoch));
                self.answer_with(partition, asker, fate);
            }
            Request::Abandon { id } => {
                let fate = self.abandon(partition, id);
                let fate = fate.map(|(fate, epoch)| (Answer::Fate(fate), epoch));
                self.answer_with(partition, asker, fate);
            }
            Request::Inquire { id } => {
                let leadership = partition.leadership();
                let (state, epoch) = partition.state(id);
                // The leadership may have changed in between; then the state means nothing.
                match partition.leads() {
                    Ok(()) if partition.leadership() == leadership => {
                        let when = (epoch, Haste::Soon);
                        self.answer(partition, asker, Answer::State(state), when);
                    }
                    led => self.redirect(asker, led.err().flatten()),
                }
            }
            Request::Topology => {
                let text = self.topology.text_for_clients();
                self.deliver(asker, Answer::Topology(text));
            }
            // Only peers send these, and `Node::message` handles them.
            Request::Coordinate { .. } | Request::Ramp { .. } => {
                unreachable!("a node does not ask itself to coordinate")
            }
        }
    }

    /// Returns why an attempt cannot be prepared, for reasons that do not depend on its operations.
    fn unfit(&self, roll: &Roll, siblings: &[u8]) -> Option<String> {
        let own = self.own.is_some_and(|own| roll.participants.contains(&own));
        if !own {
            return Some("the node that was asked does not take part".to_owned());
        }
        if siblings::read(siblings).is_none() {
            return Some("the list of keys is malformed".to_owned());
        }
        self.stranger(roll)
    }

    fn answer_with(
        &mut self,
        partition: &impl Participant,
        asker: Asker,
        done: Result<(Answer, Epoch), Abort>,
    ) {
        match done {
            Ok((answer, epoch)) => self.answer(partition, asker, answer, (epoch, Haste::Soon)),
            Err(abort) => self.deliver(asker, not_done(abort)),
        }
    }

    /// Answers that this node does not lead its partition.
    pub(crate) fn redirect(&mut self, asker: Asker, leader: Option<NodeId>) {
        self.counters.redirected += 1;
        self.deliver(asker, Answer::Aborted(Abort::Elsewhere { leader }));
    }

    pub(crate) fn commit(
        &mut self,
        partition: &mut impl Participant,
        asker: Asker,
        id: TransactionId,
        awaited: bool,
    ) {
        match partition.commit(id) {
            Ok((state, epoch)) => {
                if state == State::Refused {
                    tracing::error!(%id, "told to commit what was refused: atomicity is lost");
                }
                let haste = if awaited { Haste::Soon } else { Haste::Leisure };
                self.answer(partition, asker, Answer::Done, (epoch, haste));
            }
            // Another transaction is just changing what this one must change.
            Err(Abort::Held { by }) if awaited => {
                self.counters.commits_waited += 1;
                self.park(asker, &[], Parking::Commit { id, awaited }, by);
            }
            Err(abort) => self.deliver(asker, not_done(abort)),
        }
    }

    /// Reads versions of read-atomic keys.
    pub(crate) fn look_at_versions(
        &self,
        partition: &mut impl Participant,
        asks: &[Ask<'_>],
    ) -> (Answer, Epoch) {
        let aborted = |abort| (Answer::Aborted(abort), Epoch::ZERO);
        let declared = self.topology.read_atomic();
        let keys = || asks.iter().map(Ask::key);
        if let Some(abort) = self.misplaced_key(keys()) {
            return aborted(abort);
        }
        if !keys().all(|key| declared.covers(key)) {
            return aborted(ramp::Refusal::NotCovered.into());
        }
        let ids = |ask: &Ask<'_>| match ask {
            Ask::OneOf { ids, .. } => ids.len(),
            _ => 0,
        };
        if asks.len() + asks.iter().map(ids).sum::<usize>() > MOST_ASKED {
            return aborted(Abort::TooLarge { what: "operations" });
        }
        let mut bytes = 0;
        let mut founds = Vec::with_capacity(asks.len());
        let outcome = partition.read_versions(asks, &mut |found| {
            bytes += length(&found);
            if bytes <= MOST_READ {
                let copy = OwnedFound::copy(found, founds.last());
                founds.push(copy);
            }
        });
        let answer = match outcome {
            Ok(()) if bytes > MOST_READ => Answer::Aborted(Abort::TooLarge { what: "bytes read" }),
            Ok(()) => Answer::Versions(founds),
            Err(abort) => Answer::Aborted(abort),
        };
        let mut epoch = shown(&answer, partition);
        if let Answer::Versions(founds) = &answer {
            epoch = epoch.max(commit_what_others_show(partition, asks, founds));
        }
        (answer, epoch)
    }

    pub(crate) fn execute(
        &mut self,
        partition: &mut impl Participant,
        asker: Asker,
        ops: &[Op<'_>],
    ) {
        if let Some(abort) = self.unfit_ops(ops) {
            return self.deliver(asker, Answer::Aborted(abort));
        }
        let mut replies = Vec::new();
        let outcome = partition.execute(ops, &mut |seen, _| {
            replies = seen.iter().map(OwnedReply::from).collect();
        });
        let answer = match outcome {
            Ok(()) => Answer::Replies(replies),
            Err(Abort::Held { by }) => return self.park(asker, ops, Parking::Execute, by),
            Err(abort) => Answer::Aborted(abort),
        };
        let epoch = shown(&answer, partition);
        self.answer(partition, asker, answer, (epoch, Haste::Soon));
    }

    pub(crate) fn execute_once(
        &mut self,
        partition: &mut impl Participant,
        asker: Asker,
        ops: &[Op<'_>],
        of: Sequenced,
    ) {
        if let Some(abort) = self.unfit_ops(ops) {
            return self.deliver(asker, Answer::Aborted(abort));
        }
        let answer = match partition.execute_once(ops, of) {
            Ok(replies) => Answer::Replies(replies),
            Err(Abort::Held { by }) => return self.park(asker, ops, Parking::Once(of), by),
            Err(abort) => Answer::Aborted(abort),
        };
        let epoch = shown(&answer, partition);
        self.answer(partition, asker, answer, (epoch, Haste::Soon));
    }

    fn open_session(&mut self, partition: &mut impl Participant, asker: Asker) {
        match partition.open_session() {
            Ok(number) => {
                let epoch = partition.observed().epoch;
                let pending = (asker, PendingAnswer::Session(number));
                self.pending_answers
                    .push(epoch, Haste::Soon, pending, self.now);
            }
            Err(abort) => self.deliver(asker, Answer::Aborted(abort)),
        }
    }

    /// Reads, and returns the versions of the keys.
    pub(crate) fn read(&mut self, partition: &mut impl Participant, asker: Asker, ops: &[Op<'_>]) {
        let writes = |op: &Op<'_>| !op.is_read_only();
        if ops.iter().any(writes) {
            let what = "a read was asked for that writes".to_owned();
            return self.deliver(asker, Answer::Failed(what));
        }
        if let Some(abort) = self.misplaced(ops) {
            return self.deliver(asker, Answer::Aborted(abort));
        }
        let watches = ops.iter().filter_map(Op::key);
        let watches = watches.map(|key| Op::Watch { key });
        let all: Vec<Op<'_>> = ops.iter().cloned().chain(watches).collect();
        let mut replies = Vec::new();
        let outcome = partition.execute(&all, &mut |seen, _| {
            replies = seen.iter().map(OwnedReply::from).collect();
        });
        let answer = match outcome {
            Ok(()) => Answer::Read {
                finished: partition.finished(),
                replies,
            },
            Err(Abort::Held { by }) => return self.park(asker, ops, Parking::Read, by),
            Err(abort) => Answer::Aborted(abort),
        };
        let epoch = shown(&answer, partition);
        self.answer(partition, asker, answer, (epoch, Haste::Soon));
    }

    /// Returns why operations cannot be executed here: a key belongs to another partition. Their sender
    /// has another file.
    fn misplaced(&self, ops: &[Op<'_>]) -> Option<Abort> {
        self.misplaced_key(ops.iter().filter_map(Op::key))
    }

    /// As [`Node::misplaced`], and also why operations are refused wherever their keys lie.
    pub(crate) fn unfit_ops(&self, ops: &[Op<'_>]) -> Option<Abort> {
        let refusal = ramp::classify(self.topology.read_atomic(), ops).err();
        let refusal = refusal.map(Abort::from).or_else(|| check_guards(ops).err());
        refusal.or_else(|| self.misplaced(ops))
    }

    fn misplaced_key<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>) -> Option<Abort> {
        let other = keys.find(|key| Some(self.topology.partition_of(key)) != self.own)?;
        let slot = crate::slot::of(other);
        let what = format!("slot {slot} is not of the node that was asked");
        Some(Abort::Unavailable { what })
    }

    pub(crate) fn prepare(
        &mut self,
        partition: &mut impl Participant,
        asker: Asker,
        prepare: &Prepare<'_>,
    ) {
        let Holder { id, age } = prepare.holder;
        if let Err(error) = self.clock.witness(id.timestamp, partition.time_ms()) {
            // Other transactions could not write its keys until their clocks had caught up.
            let what = error.to_string();
            return self.deliver(asker, Answer::Aborted(Abort::Unavailable { what }));
        }
        let oldest = partition.time_ms().saturating_sub(OLDEST_PREPARE_MS);
        if id.timestamp.ms() < oldest {
            let newest = Timestamp::at_ms(partition.time_ms());
            return self.deliver(asker, Answer::Aborted(Abort::Overtaken { newest }));
        }
        if let Some(abort) = self.misplaced(prepare.ops) {
            return self.deliver(asker, Answer::Aborted(abort));
        }
        let older = |by: Holder| (age, id) < (by.age, by.id);
        let holds = prepare.isolation == Isolation::Serializable;
        let ahead = self.waits_ahead(prepare.holder, prepare.ops);
        let outcome = match ahead.filter(|_| holds) {
            Some(by) => Err(Abort::Held { by }),
            None => partition.prepare(prepare),
        };
        let answer = match outcome {
            Ok(replies) => {
                self.counters.prepared += 1;
                Answer::Replies(replies)
            }
            Err(Abort::Held { by }) if holds && older(by) => {
                let parked = ParkedPrepare {
                    holder: prepare.holder,
                    siblings: prepare.siblings.to_vec(),
                    note: prepare.note.to_vec(),
                };
                return self.park(asker, prepare.ops, Parking::Prepare(parked), by);
            }
            Err(abort) => {
                self.counters.died += u64::from(matches!(abort, Abort::Held { .. }));
                Answer::Aborted(abort)
            }
        };
        let epoch = if planted::is(Bug::EarlyDecision) {
            Epoch::ZERO
        } else {
            shown(&answer, partition)
        };
        self.answer(partition, asker, answer, (epoch, Haste::Soon));
    }
}

/// Returns the bytes of a version's value.
fn length(found: &Found<'_>) -> usize {
    match found {
        Found::Version(version) => version.content.map_or(0, |content| content.value.len()),
        _ => 0,
    }
}

/// Returns the answer when nothing was done: the abort itself if the sender may try again, here or
/// elsewhere.
fn not_done(abort: Abort) -> Answer {
    match abort {
        Abort::Elsewhere { .. } | Abort::Held { .. } | Abort::Unknown { .. } => {
            Answer::Aborted(abort)
        }
        other => Answer::Failed(other.to_string()),
    }
}

/// Commits versions that are prepared here and were asked for by their ids: another partition shows
/// them, so their transactions have committed. Otherwise a later read of the key alone could be older
/// than this one. Returns the epoch that must be durable before the answer is sent.
///
/// A commit that another transaction blocks is left to the coordinator.
fn commit_what_others_show(
    partition: &mut impl Participant,
    asks: &[Ask<'_>],
    founds: &[OwnedFound],
) -> Epoch {
    let mut epoch = Epoch::ZERO;
    for (ask, found) in asks.iter().zip(founds) {
        let (Ask::OneOf { .. }, Some(id)) = (ask, found.id()) else {
            continue;
        };
        if !matches!(partition.state(id), (State::Prepared(_), _)) {
            continue;
        }
        if let Ok((_, committed)) = partition.commit(id) {
            epoch = epoch.max(committed);
        }
    }
    epoch
}

/// Returns the epoch that an answer promises or shows. An answer that a request was blocked shows
/// nothing.
fn shown(answer: &Answer, partition: &impl Participant) -> Epoch {
    match answer {
        Answer::Aborted(abort) if abort.shows() || *abort == Abort::Forgotten => {
            partition.observed().epoch
        }
        Answer::Aborted(_) => Epoch::ZERO,
        _ => partition.observed().epoch,
    }
}
