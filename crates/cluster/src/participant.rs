//! A node's work for coordinators, its own included: the [`ParticipantService`] serves their requests to
//! the node's own partition.
//!
//! | module | concept |
//! |---|---|
//! | `served` | the result of a request: an answer, or the transaction for which it has to wait |
//! | `execution` | transactions and reads of this partition alone |
//! | `attempts` | the states of attempts of transactions over several partitions |
//! | `slot_renewals` | slots of keys that were written |
//! | `pending_answers` | answers that wait until their content is durable |
//! | `wait_queue` | requests that wait for holds, and are tried again when some are released |
//!
//! Invariant: a request is answered once, unless its link goes down or its coordinator aborts it.

mod attempts;
mod execution;
mod pending_answers;
mod served;
mod slot_renewals;
mod wait_queue;

use std::sync::Arc;
use std::time::Duration;

use base::change::siblings;
use base::participant::{Isolation, Participant, Prepare};
use base::transaction::Holder;
use base::versions::Ask;
use base::{Abort, Epoch, NodeId, Op, TransactionId};
use fabric::Link;

use crate::codec;
use crate::context::{NodeContext, REPEAT_AFTER};
use crate::message::{Answer, Notice, ParticipantList, RegionInfo, Request};
use crate::ramp::published_slots::LocatedVersions;
use crate::ramp::{self, PublishedSlots};
use crate::requester::Requester;

use attempts::Attempts;
use pending_answers::{BatchOutcome, PendingAnswer, PendingAnswers, SyncUrgency};
use served::ServedRequest;
use slot_renewals::SlotRenewals;
use wait_queue::{BlockedKind, BlockedRequest, HoldWaitQueue};

pub(crate) use attempts::forget;
pub use wait_queue::WaitingPrepares;

/// The longest time for which a numbered transaction waits for holds; its client waits for longer, and
/// asks again.
const LONGEST_NUMBERED_WAIT: Duration = Duration::from_secs(2);

/// The participant's side of the protocol; see the module's description.
pub(crate) struct ParticipantService {
    pending_answers: PendingAnswers,
    attempts: Attempts,
    /// The value of `TransactionExecutor::releases` when the blocked requests were last tried.
    releases: u64,
    published: Option<Arc<PublishedSlots>>,
    renewals: SlotRenewals,
}

impl ParticipantService {
    pub(crate) fn new(
        prepares: WaitingPrepares,
        published: Option<Arc<PublishedSlots>>,
    ) -> ParticipantService {
        ParticipantService {
            pending_answers: PendingAnswers::default(),
            attempts: Attempts::new(HoldWaitQueue::new(prepares)),
            releases: 0,
            published,
            renewals: SlotRenewals::default(),
        }
    }

    /// Serves a request.
    pub(crate) fn serve<P: Participant + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
        requester: Requester,
        request: Request<'_>,
    ) {
        if let Err(leader) = partition.leads()
            && !matches!(request, Request::Topology)
        {
            return redirect(context, requester, leader);
        }
        let attempts = &mut self.attempts;
        let served = match request {
            Request::Execute { ops } => {
                let kind = BlockedKind::Execute;
                return self.execute(context, partition, requester, &ops, kind);
            }
            Request::Once { of, ops } => {
                let kind = BlockedKind::Once(of);
                return self.execute(context, partition, requester, &ops, kind);
            }
            Request::Read { ops } => {
                let kind = BlockedKind::Read;
                return self.execute(context, partition, requester, &ops, kind);
            }
            Request::OpenSession => return self.open_session(context, partition, requester),
            Request::Each { transactions } => {
                return self.execute_batch(context, partition, requester, &transactions);
            }
            Request::Prepare {
                id,
                age,
                participant_list,
                siblings,
                isolation,
                ops,
            } => {
                if let Some(what) = malformed_prepare(context, &participant_list, siblings) {
                    let abort = Abort::Unavailable { what };
                    return context.deliver(requester, Answer::Aborted(abort));
                }
                let declared = context.topology.read_atomic();
                if isolation == Isolation::ReadAtomic
                    && let Err(refusal) = ramp::check_one_kind(declared, &ops)
                {
                    return context.deliver(requester, Answer::Aborted(refusal.into()));
                }
                let mut note = Vec::new();
                codec::encode_participant_list(&participant_list, &mut note);
                let prepare = Prepare {
                    holder: Holder { id, age },
                    ops: &ops,
                    siblings,
                    note: &note,
                    isolation,
                };
                let served = attempts.prepare(context, partition, &prepare);
                return self.conclude(context, partition, requester, &ops, served);
            }
            Request::Locate { keys } => return self.locate(context, partition, requester, &keys),
            Request::Commit { id, awaited } => Attempts::commit(context, partition, id, awaited),
            Request::Vote { id } => attempts.vote(context, partition, id),
            Request::Outcome { id } => attempts.outcome(context, partition, id),
            Request::Abandon { id } => attempts.abandon(context, partition, id),
            Request::Inquire { id } => Attempts::inquire(context, partition, id),
            Request::Versions { asks } => {
                let (answer, epoch) = execution::read_versions(context, partition, &asks);
                ServedRequest::after(answer, epoch)
            }
            Request::Region { offer } => {
                let region = self.published.as_ref().and_then(|own| own.grant(offer));
                let region = region.map(|(grant, clock)| RegionInfo { grant, clock });
                ServedRequest::at_once(Answer::Region(region))
            }
            Request::Topology => {
                let text = context.topology.text_for_clients();
                ServedRequest::at_once(Answer::Topology(text))
            }
            // Only peers send these, and the node gives them to its coordinator.
            Request::Coordinate { .. } | Request::Ramp { .. } => {
                unreachable!("a node does not ask itself to coordinate")
            }
        };
        self.conclude(context, partition, requester, &[], served);
    }

    /// Handles a notice about an attempt.
    pub(crate) fn notice<P: Participant + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
        notice: Notice,
    ) {
        match notice {
            Notice::Abort { id } => self.attempts.abort(context, partition, id),
            Notice::Forget { id } => forget(partition, id),
        }
    }

    /// Delivers the answers that have become durable, and replaces those whose epoch was lost. Slots of
    /// keys that were written are renewed first.
    pub(crate) fn deliver_due<P: Participant + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
    ) {
        let published = self.published.as_deref();
        if let Some(published) = published {
            self.renewals.run(context, partition, published);
        }
        self.pending_answers
            .deliver_due(context, partition, published);
    }

    /// Answers a request of this node itself, that a commit has been carried out, once `epoch` is durable.
    /// No sync is requested for it.
    pub(crate) fn acknowledge<P: Participant + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &P,
        requester: Requester,
        epoch: Epoch,
    ) {
        let when = (epoch, SyncUrgency::Await);
        self.pending_answers
            .answer(context, partition, requester, Answer::Done, when);
    }

    /// Returns `true` if holds have been released since the last call.
    pub(crate) fn sees_releases<P: Participant + ?Sized>(&mut self, partition: &P) -> bool {
        let releases = partition.releases();
        std::mem::replace(&mut self.releases, releases) != releases
    }

    /// Tries again what had to wait: aborts of attempts that were on their way into the log, then all
    /// requests that wait for holds.
    pub(crate) fn retry_blocked<P: Participant + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
    ) {
        self.attempts.retry_aborts(context, partition);
        let blocked = self.attempts.wait_queue.take_all();
        if let Err(leader) = partition.leads() {
            let requesters = blocked.into_iter().map(|request| request.requester);
            return requesters.for_each(|requester| redirect(context, requester, leader));
        }
        for request in blocked {
            let queued = self.attempts.wait_queue.len();
            let commits = context.counters.commits_waited;
            let until = request.until;
            self.retry(context, partition, request);
            if let Some(again) = self.attempts.wait_queue.get_mut(queued) {
                // It goes on waiting.
                again.until = until;
                context.counters.waited -= 1;
                context.counters.commits_waited = commits;
            }
        }
    }

    fn retry<P: Participant + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
        request: BlockedRequest,
    ) {
        let ops = codec::decode_ops(&request.ops).expect("it was encoded here");
        let served = match request.kind {
            BlockedKind::Commit { id, awaited } => {
                Attempts::commit(context, partition, id, awaited)
            }
            BlockedKind::Prepare(blocked) => {
                let prepare = Prepare {
                    holder: blocked.holder,
                    ops: &ops,
                    siblings: &blocked.siblings,
                    note: &blocked.note,
                    isolation: Isolation::Serializable,
                };
                self.attempts.prepare(context, partition, &prepare)
            }
            kind => return self.execute(context, partition, request.requester, &ops, kind),
        };
        self.conclude(context, partition, request.requester, &ops, served);
    }

    /// Answers the requests that have waited for too long, and requests syncs for answers that have.
    pub(crate) fn sweep(&mut self, context: &mut NodeContext) {
        self.pending_answers.request_overdue(context.now);
        for request in self.attempts.wait_queue.take_expired(context.now) {
            let abort = Abort::Held { by: request.by };
            context.deliver(request.requester, Answer::Aborted(abort));
        }
    }

    /// Drops the requests that came on a link that is down.
    pub(crate) fn link_down(&mut self, link: Link) {
        self.attempts.wait_queue.drop_link(link);
    }

    /// Takes an attempt whose home this partition is, and whose outcome was asked for while it is
    /// prepared: the attempt, and the note with its participants.
    pub(crate) fn next_in_doubt(&mut self) -> Option<(TransactionId, Vec<u8>)> {
        self.attempts.next_in_doubt()
    }

    /// Returns how many requests wait for holds.
    pub(crate) fn blocked_requests(&self) -> usize {
        self.attempts.wait_queue.len()
    }

    /// Returns `true` if a release of holds lets work go on.
    pub(crate) fn awaits_releases(&self) -> bool {
        self.attempts.awaits_releases()
    }

    /// Returns `true` if answers wait until they are durable.
    pub(crate) fn has_pending_answers(&self) -> bool {
        !self.pending_answers.is_empty()
    }

    /// Returns the epoch that is to become durable soon, because answers wait for it.
    pub(crate) fn requested_epoch(&self) -> Option<Epoch> {
        self.pending_answers.requested_epoch()
    }

    /// Executes operations as `kind` says.
    fn execute<P: Participant + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
        requester: Requester,
        ops: &[Op<'_>],
        kind: BlockedKind,
    ) {
        let served = match kind {
            BlockedKind::Once(of) => execution::execute_once(context, partition, ops, of),
            BlockedKind::Read => execution::read(context, partition, ops),
            _ => execution::execute(context, partition, ops),
        };
        self.conclude(context, partition, requester, ops, served);
    }

    /// Executes transactions that come and are answered together, one after the other; each is a
    /// transaction by itself (paper 5, section 3.1.3). None of them waits for holds: one that meets a
    /// hold is answered so, and its client may send it by itself.
    fn execute_batch<P: Participant + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
        requester: Requester,
        transactions: &[Vec<Op<'_>>],
    ) {
        let outcomes: Vec<BatchOutcome> = transactions
            .iter()
            .map(|ops| execution::execute_of_batch(context, partition, ops))
            .collect();
        let last = outcomes.iter().map(|(epoch, _)| *epoch).max();
        let when = (last.unwrap_or(Epoch::ZERO), SyncUrgency::Request);
        let pending = (requester, PendingAnswer::Batch(outcomes));
        self.pending_answers.push(when, pending, context.now);
    }

    fn open_session<P: Participant + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
        requester: Requester,
    ) {
        match partition.open_session() {
            Ok(number) => {
                let when = (partition.observed().epoch, SyncUrgency::Request);
                let pending = (requester, PendingAnswer::Session(number));
                self.pending_answers.push(when, pending, context.now);
            }
            Err(abort) => context.deliver(requester, Answer::Aborted(abort)),
        }
    }

    /// Reads the newest versions of read-atomic keys, and publishes them once they are durable.
    fn locate<P: Participant + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
        requester: Requester,
        keys: &[&[u8]],
    ) {
        let asks: Vec<Ask<'_>> = keys.iter().map(|key| Ask::Newest { key }).collect();
        // Taken before the versions are read; otherwise a version might be published that is not the
        // newest one.
        let published = self.published.as_deref();
        let ticket = |key: &&[u8]| published.and_then(|published| published.slots().ticket(key));
        let tickets: Vec<_> = keys.iter().map(ticket).collect();
        let (answer, epoch) = execution::read_versions(context, partition, &asks);
        let when = (epoch, SyncUrgency::Request);
        let Answer::Versions(founds) = answer else {
            return self
                .pending_answers
                .answer(context, partition, requester, answer, when);
        };
        let keys = keys.iter().map(|key| key.to_vec()).zip(tickets).collect();
        let located = LocatedVersions { founds, keys };
        if epoch <= partition.durable() && !partition.is_lost(epoch) {
            let answer = pending_answers::located_answer(published, located);
            context.deliver(requester, answer);
        } else {
            let pending = (requester, PendingAnswer::Located(located));
            self.pending_answers.push(when, pending, context.now);
        }
    }

    /// Answers a request once its answer is durable, or lets the request wait for holds.
    fn conclude<P: Participant + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &P,
        requester: Requester,
        ops: &[Op<'_>],
        served: ServedRequest,
    ) {
        match served {
            ServedRequest::Answered(answer, epoch, urgency) => {
                let when = (epoch, urgency);
                self.pending_answers
                    .answer(context, partition, requester, answer, when);
            }
            ServedRequest::Blocked(kind, by) => self.block(context, requester, ops, kind, by),
        }
    }

    /// Lets a request wait for holds.
    fn block(
        &mut self,
        context: &mut NodeContext,
        requester: Requester,
        ops: &[Op<'_>],
        kind: BlockedKind,
        by: Holder,
    ) {
        context.counters.waited += 1;
        // A sender that may ask again soon must get an answer before it takes this node for dead.
        let longest = match &kind {
            BlockedKind::Once(_) => context.timeouts.hold.min(LONGEST_NUMBERED_WAIT),
            // Its coordinator asks again after that: it must not wait here twice.
            BlockedKind::Commit { .. } => context.timeouts.hold.min(REPEAT_AFTER),
            _ => context.timeouts.hold,
        };
        let mut bytes = Vec::new();
        codec::encode_ops(ops, &mut bytes);
        self.attempts.wait_queue.push(BlockedRequest {
            requester,
            ops: bytes,
            until: context.now + longest,
            kind,
            by,
        });
    }
}

/// Answers that this node does not lead its partition.
fn redirect(context: &mut NodeContext, requester: Requester, leader: Option<NodeId>) {
    context.counters.redirected += 1;
    context.deliver(requester, Answer::Aborted(Abort::Elsewhere { leader }));
}

/// Returns why an attempt cannot be prepared, for reasons that do not depend on its operations.
fn malformed_prepare(
    context: &NodeContext,
    participant_list: &ParticipantList,
    siblings: &[u8],
) -> Option<String> {
    let takes_part = |own| participant_list.participants.contains(&own);
    if !context.local_partition.is_some_and(takes_part) {
        return Some("the node that was asked does not take part".to_owned());
    }
    if siblings::read(siblings).is_none() {
        return Some("the list of keys is malformed".to_owned());
    }
    context.unknown_participant(participant_list)
}
