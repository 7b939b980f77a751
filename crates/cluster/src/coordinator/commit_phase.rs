//! The end of a committed attempt, steps 4 to 6 of module [`node`](crate::node): all participants
//! commit, then forget.

use std::collections::HashMap;
use std::time::Duration;

use base::participant::Participant;
use base::partition::OwnedReply;
use base::{Abort, PartitionId, TransactionId};

use super::callers::{CallerOutcomes, TransactionCaller};
use crate::context::REPEAT_AFTER;
use crate::message::{Answer, Notice, Request};
use crate::requester::{LostRequest, RequestPurpose};
use crate::router::PartitionRouter;

/// A caller that is answered when all participants have committed.
pub(crate) struct AwaitingCaller<C> {
    pub(crate) caller: TransactionCaller<C>,
    pub(crate) replies: Vec<OwnedReply>,
    /// When it gets the answer that some have not acknowledged.
    pub(crate) until: Duration,
}

/// A committed attempt whose participants have not all acknowledged.
struct CommittedAttempt<C> {
    /// Its caller, if it has not been answered before.
    awaiting: Option<AwaitingCaller<C>>,
    participants: Vec<PartitionId>,
    /// Participants that have not acknowledged, and when they are asked again.
    missing: Vec<(PartitionId, Duration)>,
    /// This node's own partition has not committed durably, so that no other participant is asked yet.
    local_first: bool,
    /// The home acts instead of the coordinator. That can go on after a restart.
    is_resolved: bool,
    /// The participants forget no earlier.
    forget_from: Duration,
    until: Duration,
}

/// After this time the attempt is left to the home's resolver.
const LONGEST: Duration = Duration::from_secs(30);

/// The committed attempts whose participants have not all acknowledged.
pub(crate) struct CommitPhase<C> {
    attempts: HashMap<TransactionId, CommittedAttempt<C>>,
}

impl<C> CommitPhase<C> {
    pub(super) fn new() -> CommitPhase<C> {
        CommitPhase {
            attempts: HashMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    pub(crate) fn contains(&self, id: TransactionId) -> bool {
        self.attempts.contains_key(&id)
    }

    /// Returns how many callers wait for acknowledgements.
    pub(crate) fn awaited(&self) -> usize {
        let attempts = self.attempts.values();
        attempts
            .filter(|attempt| attempt.awaiting.is_some())
            .count()
    }

    /// Returns `true` if the home acts instead of the coordinator in all attempts.
    pub(crate) fn are_all_resolved(&self) -> bool {
        self.attempts.values().all(|attempt| attempt.is_resolved)
    }

    /// Carries out steps 4 to 6 for an attempt whose coordinator this node is.
    pub(super) fn begin<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        id: TransactionId,
        participants: Vec<PartitionId>,
        awaiting: Option<AwaitingCaller<C>>,
    ) {
        let mut attempt = CommittedAttempt::new(participants, router.context.now);
        // This node may have become the leader of the home of an attempt of its own.
        self.attempts.remove(&id);
        attempt.awaiting = awaiting;
        self.attempts.insert(id, attempt);
        self.request_commits(router, id);
    }

    /// Begins steps 4 to 6 at the home, instead of a coordinator that may not know of the commit. Other
    /// participants are asked only once the commit is durable here, as the answer of this node's own
    /// partition will say, and forgetting does not begin before `forget_from`: until then the
    /// coordinator may ask to abandon the attempt.
    pub(crate) fn begin_resolved(
        &mut self,
        id: TransactionId,
        participants: Vec<PartitionId>,
        now: Duration,
        forget_from: Duration,
    ) {
        let mut attempt = CommittedAttempt::new(participants, now);
        attempt.local_first = true;
        attempt.is_resolved = true;
        attempt.until = forget_from + LONGEST;
        attempt.forget_from = forget_from;
        // This node may have become the leader of the home of an attempt of its own.
        let before = self.attempts.remove(&id);
        attempt.awaiting = before.and_then(|before| before.awaiting);
        self.attempts.insert(id, attempt);
    }

    /// Asks the participants that have not acknowledged and whose time has come.
    fn request_commits<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        id: TransactionId,
    ) {
        let attempt = self.attempts.get_mut(&id).expect("it is in this phase");
        if attempt.local_first {
            return;
        }
        let awaited = attempt.awaiting.is_some();
        let now = router.context.now;
        for (of, again_at) in &mut attempt.missing {
            if *again_at <= now {
                *again_at = now + REPEAT_AFTER;
                let purpose = RequestPurpose::Commit { id, of: *of };
                router.request(*of, Request::Commit { id, awaited }, purpose);
            }
        }
    }

    /// Carries out step 6.
    fn forget<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        id: TransactionId,
    ) {
        let attempt = self.attempts.remove(&id).expect("it is in this phase");
        for of in attempt.participants {
            router.notify(of, Notice::Forget { id });
        }
    }

    /// Handles the answer of a participant that was asked to commit.
    pub(super) fn on_acknowledged<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        outcomes: &mut CallerOutcomes<C>,
        (id, of): (TransactionId, PartitionId),
        answer: &Result<Answer, LostRequest>,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        if *answer != Ok(Answer::Done) {
            if attempt.local_first && attempt.awaiting.is_some() {
                // It is this node's own attempt, which has committed: the next leader is asked.
                attempt.local_first = false;
            } else if attempt.local_first {
                // The next leader of this partition finds if it has committed, and goes on.
                self.attempts.remove(&id);
            } else if let Some(early) = router.context.repeat_early_at(of, answer) {
                let missing = attempt.missing.iter_mut().find(|(other, _)| *other == of);
                if let Some((_, again_at)) = missing {
                    *again_at = early.min(*again_at);
                }
            }
            return;
        }
        attempt.missing.retain(|(other, _)| *other != of);
        if attempt.missing.is_empty() {
            let awaiting = attempt.awaiting.take();
            let may_forget = attempt.forget_from <= router.context.now;
            if let Some(awaiting) = awaiting {
                outcomes.finish(router, awaiting.caller, Ok(awaiting.replies));
            }
            if may_forget {
                self.forget(router, id);
            }
        } else if attempt.local_first && Some(of) == router.context.local_partition {
            attempt.local_first = false;
            self.request_commits(router, id);
        }
    }

    /// Asks again for acknowledgements that have not come.
    pub(super) fn sweep<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        outcomes: &mut CallerOutcomes<C>,
    ) {
        self.answer_late_callers(router, outcomes);
        let now = router.context.now;
        self.attempts
            .retain(|_, attempt| attempt.until > now || attempt.awaiting.is_some());
        for id in self.ids(|one| one.missing.is_empty() && one.forget_from <= now) {
            self.forget(router, id);
        }
        for id in self.ids(|one| one.missing.iter().any(|(_, again_at)| *again_at <= now)) {
            self.request_commits(router, id);
        }
    }

    /// Returns the attempts of which this is true, in the order of their ids.
    fn ids(&self, is_one: impl Fn(&CommittedAttempt<C>) -> bool) -> Vec<TransactionId> {
        let attempts = self.attempts.iter().filter(|(_, attempt)| is_one(attempt));
        let mut ids: Vec<TransactionId> = attempts.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Answers callers that have waited too long for participants to acknowledge. The participants will
    /// commit, and are asked on.
    fn answer_late_callers<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        outcomes: &mut CallerOutcomes<C>,
    ) {
        let now = router.context.now;
        let is_late = |awaiting: &mut AwaitingCaller<C>| awaiting.until <= now;
        let attempts = self.attempts.iter_mut();
        let mut late: Vec<_> = attempts
            .filter_map(|(id, attempt)| {
                let awaiting = attempt.awaiting.take_if(is_late)?;
                let missing: Vec<_> = attempt.missing.iter().map(|(of, _)| of.0).collect();
                Some((*id, awaiting.caller, missing))
            })
            .collect();
        late.sort_unstable_by_key(|(id, ..)| *id);
        for (_, caller, partitions) in late {
            outcomes.finish(router, caller, Err(Abort::Unacknowledged { partitions }));
        }
    }
}

impl<C> CommittedAttempt<C> {
    fn new(participants: Vec<PartitionId>, now: Duration) -> CommittedAttempt<C> {
        CommittedAttempt {
            awaiting: None,
            missing: participants.iter().map(|of| (*of, now)).collect(),
            participants,
            local_first: false,
            is_resolved: false,
            forget_from: now,
            until: now + LONGEST,
        }
    }
}
