//! Attempts that no coordinator decides: it is gone, or its decision was lost.
//!
//! | an attempt here | this partition is | the [`Resolver`] |
//! |---|---|---|
//! | prepared for long | its home | asks all participants for their vote, and decides |
//! | prepared for long | another participant | asks the home |
//! | committed for long | its home | has all participants commit, then forget |
//! | committed for long | another participant | forgets it if the home has |

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use base::participant::{Participant, State};
use base::{Abort, Epoch, PartitionId, TransactionId};

use crate::codec;
use crate::context::NodeContext;
use crate::coordinator::CommitPhase;
use crate::message::{Answer, AttemptOutcome, Notice, ParticipantList, Request};
use crate::participant;
use crate::requester::{LostRequest, RequestPurpose, Requester, ResolutionStep};
use crate::router::PartitionRouter;

/// Decides attempts that stay undecided; see the module's description.
pub(crate) struct Resolver {
    next_scan: Duration,
    /// It has scanned since the start, or since this node leads. Attempts that a restart has brought back
    /// are in doubt at once; those that another leader has left are so a while later, because their
    /// coordinators have to find this node first, and know more.
    has_scanned: bool,
    /// Each attempt, with `true` if it has committed, and when it was first seen in that state.
    first_seen: BTreeMap<TransactionId, (bool, Duration)>,
    votes: HashMap<TransactionId, VoteRound>,
}

/// The votes that the home collects for an attempt.
struct VoteRound {
    participants: Vec<PartitionId>,
    missing: Vec<PartitionId>,
    until: Duration,
}

impl Resolver {
    pub(crate) fn new(next_scan: Duration) -> Resolver {
        Resolver {
            next_scan,
            has_scanned: false,
            first_seen: BTreeMap::new(),
            votes: HashMap::new(),
        }
    }

    /// Returns when it scans again.
    pub(crate) fn next_scan(&self) -> Duration {
        self.next_scan
    }

    /// Looks for attempts that have been undecided for too long, if it is time.
    pub(crate) fn scan<C, P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        commit_phase: &mut CommitPhase<C>,
    ) {
        let (now, timeouts) = (router.context.now, router.context.timeouts);
        if now < self.next_scan {
            return;
        }
        if router.partition.leads().is_err() {
            // A new resolver is made when this node leads again.
            self.next_scan = now + timeouts.doubt;
            return;
        }
        self.next_scan = now + timeouts.doubt / 4;
        self.votes.retain(|_, round| round.until > now);
        let is_first = !std::mem::replace(&mut self.has_scanned, true);
        let mut undecided = router.partition.undecided();
        undecided.sort_unstable_by_key(|(id, _)| *id);
        let before = std::mem::take(&mut self.first_seen);
        let mut late = Vec::new();
        for (id, state) in undecided {
            let committed = matches!(state, State::Committed(_));
            let fresh = (committed, if is_first { Duration::ZERO } else { now });
            let known = before.get(&id).copied();
            let since = known.filter(|(was, _)| *was == committed).unwrap_or(fresh);
            self.first_seen.insert(id, since);
            let limit = if committed {
                timeouts.forget
            } else {
                timeouts.doubt
            };
            if since.1 + limit <= now || is_first {
                late.push((id, state));
            }
        }
        for (id, state) in late {
            self.resolve_late(router, commit_phase, id, &state);
        }
    }

    fn resolve_late<C, P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        commit_phase: &mut CommitPhase<C>,
        id: TransactionId,
        state: &State,
    ) {
        let (State::Prepared(note) | State::Committed(note)) = state else {
            return;
        };
        let Some(participant_list) = decode_note(router.context, id, note) else {
            return;
        };
        let is_home = Some(participant_list.home) == router.context.local_partition;
        match state {
            State::Prepared(_) if is_home => self.collect_votes(router, id, participant_list),
            State::Prepared(_) => ask_home(router, &participant_list, id, ResolutionStep::Outcome),
            _ if commit_phase.contains(id) => {}
            _ if is_home => match router.partition.commit(id) {
                Ok((State::Committed(_), epoch)) => {
                    finish(
                        router,
                        commit_phase,
                        id,
                        participant_list.participants,
                        epoch,
                    );
                }
                // The next scan sees its present state.
                Ok(_) => {}
                Err(error) => log_undecided(id, &error),
            },
            _ => ask_home(router, &participant_list, id, ResolutionStep::Inquire),
        }
    }

    /// Takes a vote on an attempt that is prepared here, at its home.
    pub(crate) fn resolve<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        id: TransactionId,
        note: &[u8],
    ) {
        if let Some(participant_list) = decode_note(router.context, id, note) {
            self.collect_votes(router, id, participant_list);
        }
    }

    fn collect_votes<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        id: TransactionId,
        participant_list: ParticipantList,
    ) {
        if self.votes.contains_key(&id) {
            return;
        }
        // This partition's own vote, too, counts only once it is durable.
        let asked = participant_list.participants.clone();
        let round = VoteRound {
            missing: asked.clone(),
            participants: participant_list.participants,
            until: router.context.now + router.context.timeouts.answer,
        };
        self.votes.insert(id, round);
        for of in asked {
            let step = ResolutionStep::Vote { of };
            let purpose = RequestPurpose::Resolve { id, step };
            router.request(of, Request::Vote { id }, purpose);
        }
    }

    /// Handles the answer to a request of the resolver.
    pub(crate) fn on_answer<C, P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        commit_phase: &mut CommitPhase<C>,
        (id, step): (TransactionId, ResolutionStep),
        answer: &Result<Answer, LostRequest>,
    ) {
        match step {
            ResolutionStep::Outcome => on_outcome(router, id, answer),
            ResolutionStep::Vote { of } => self.on_vote(router, commit_phase, (id, of), answer),
            ResolutionStep::Inquire => {
                if let Ok(Answer::State(State::Unknown | State::Refused)) = answer {
                    participant::forget(router.partition, id);
                }
            }
        }
    }

    /// Handles a participant's vote.
    fn on_vote<C, P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        commit_phase: &mut CommitPhase<C>,
        (id, of): (TransactionId, PartitionId),
        answer: &Result<Answer, LostRequest>,
    ) {
        let Some(round) = self.votes.get_mut(&id) else {
            return;
        };
        if let Ok(Answer::State(State::Prepared(_) | State::Committed(_))) = answer {
            // An answer to an earlier question may come, too: each participant counts once.
            round.missing.retain(|other| *other != of);
            if !round.missing.is_empty() {
                return;
            }
        }
        let round = self.votes.remove(&id).expect("it was there");
        match answer {
            Ok(Answer::State(State::Prepared(_) | State::Committed(_))) => {
                commit(router, commit_phase, id, round.participants);
            }
            Ok(Answer::State(State::Unknown | State::Refused)) => {
                abort(router, id, round.participants);
            }
            // The participant cannot tell yet: the next scan takes another vote.
            _ => {}
        }
    }
}

/// Asks the home about an attempt.
fn ask_home<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    participant_list: &ParticipantList,
    id: TransactionId,
    step: ResolutionStep,
) {
    let request = match step {
        ResolutionStep::Inquire => Request::Inquire { id },
        _ => Request::Outcome { id },
    };
    let purpose = RequestPurpose::Resolve { id, step };
    router.request(participant_list.home, request, purpose);
}

/// Commits an attempt that all have prepared, unless the coordinator has had it aborted meanwhile.
fn commit<C, P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    commit_phase: &mut CommitPhase<C>,
    id: TransactionId,
    participants: Vec<PartitionId>,
) {
    match router.partition.commit(id) {
        Ok((State::Prepared(_), epoch)) => {
            router.context.counters.resolved_committed += 1;
            finish(router, commit_phase, id, participants, epoch);
        }
        // Another thread or the coordinator has decided, and tells the participants.
        Ok(_) => {}
        Err(error) => log_undecided(id, &error),
    }
}

/// Finishes an attempt that has committed here in `epoch`, in its coordinator's stead. The coordinator
/// may still run and not know of it; as long as it may ask to abandon the attempt, this home must not
/// have forgotten it. If the epoch is lost, no other node has heard of the decision, and the next leader
/// decides anew.
fn finish<C, P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    commit_phase: &mut CommitPhase<C>,
    id: TransactionId,
    participants: Vec<PartitionId>,
    epoch: Epoch,
) {
    let Some(of) = router.context.local_partition else {
        return;
    };
    let (now, timeouts) = (router.context.now, router.context.timeouts);
    let forget_from = now + timeouts.answer + timeouts.hold + timeouts.transaction;
    commit_phase.begin_resolved(id, participants, now, forget_from);
    let requester = Requester::Local(RequestPurpose::Commit { id, of });
    router
        .service
        .acknowledge(router.context, router.partition, requester, epoch);
}

/// Aborts an attempt that a participant will never prepare.
fn abort<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    id: TransactionId,
    participants: Vec<PartitionId>,
) {
    match router.partition.abort(id) {
        Ok((State::Prepared(_), _)) => {
            router.context.counters.resolved_aborted += 1;
            for of in participants {
                if Some(of) != router.context.local_partition {
                    router.notify(of, Notice::Abort { id });
                }
            }
        }
        Ok(_) => {}
        Err(error) => log_undecided(id, &error),
    }
}

/// Handles the home's answer about an attempt that is prepared here.
fn on_outcome<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    id: TransactionId,
    answer: &Result<Answer, LostRequest>,
) {
    let done = match answer {
        Ok(Answer::AttemptOutcome(AttemptOutcome::Committed)) => {
            router.partition.commit(id).map(drop)
        }
        Ok(Answer::AttemptOutcome(AttemptOutcome::Aborted)) => router.partition.abort(id).map(drop),
        // The next scan asks again.
        _ => Ok(()),
    };
    if let Err(error) = done {
        log_undecided(id, &error);
    }
}

/// Returns the participants of a prepared or committed attempt.
fn decode_note(context: &NodeContext, id: TransactionId, note: &[u8]) -> Option<ParticipantList> {
    let log = |error: &dyn std::fmt::Display| {
        tracing::error!(
            %id, %error,
            "a transaction cannot be decided: start the cluster with the file that it began with"
        );
    };
    match codec::decode_participant_list(note) {
        Ok(participants) => match context.unknown_participant(&participants) {
            None => return Some(participants),
            Some(error) => log(&error),
        },
        Err(error) => log(&error),
    }
    None
}

/// Logs that a decision cannot be recorded now; the next scan tries again.
fn log_undecided(id: TransactionId, why: &Abort) {
    match why {
        // Its leader looks after it, or a part of it is on its way into the log.
        Abort::Elsewhere { .. } | Abort::Held { .. } => {}
        why => tracing::warn!(%id, %why, "cannot record a decision; trying again later"),
    }
}
