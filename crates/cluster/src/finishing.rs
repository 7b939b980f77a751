//! The end of a committed attempt, steps 4 to 6 of module `node`: all participants commit, then
//! forget.

use std::time::Duration;

use base::participant::Participant;
use base::partition::OwnedReply;
use base::{Abort, PartitionId, TransactionId};

use crate::message::{Answer, Notice, Request};
use crate::node::{Caller, Node, Purpose};
use crate::wires::Lost;

/// A caller that is answered when all participants have committed.
pub(crate) struct Awaiting<C> {
    pub(crate) caller: Caller<C>,
    pub(crate) replies: Vec<OwnedReply>,
    /// When it gets the answer that they have not.
    pub(crate) until: Duration,
}

/// A committed attempt whose participants have not all acknowledged.
pub(crate) struct Finishing<C> {
    /// Its caller, if it has not been answered before.
    pub(crate) awaiting: Option<Awaiting<C>>,
    participants: Vec<PartitionId>,
    /// Participants that have not acknowledged, and when they are asked again.
    missing: Vec<(PartitionId, Duration)>,
    /// This node's own partition has not committed durably, so that no other participant is asked yet.
    own_first: bool,
    in_stead: bool,
    /// The participants forget no earlier.
    forget_from: Duration,
    until: Duration,
}

impl<C> Finishing<C> {
    /// Returns `true` if a caller waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaiting.is_some()
    }

    /// Returns `true` if it is finished in the stead of its coordinator; that can go on after a restart.
    pub(crate) fn is_in_stead(&self) -> bool {
        self.in_stead
    }
}

/// Acknowledgements, and the home's consent, are asked for again after this time.
pub(crate) const AGAIN: Duration = Duration::from_millis(500);
/// They are asked for again after `SOON` if another node leads, or after `LEADERLESS` if none is known
/// to lead.
const SOON: Duration = Duration::from_millis(20);
const LEADERLESS: Duration = Duration::from_millis(100);
/// After this time the attempt is left to the home's keeper.
const FINISHING: Duration = Duration::from_secs(30);

impl<C> Node<C> {
    /// Carries out steps 4 to 6 for an attempt that has committed. In the stead of a coordinator that
    /// may not know, other participants are asked only once the commit is durable here, as this node's
    /// answer to itself will say, and forgetting does not begin before `in_stead_until`: until then the
    /// coordinator may ask to abandon the attempt.
    pub(crate) fn finish_commit(
        &mut self,
        id: TransactionId,
        participants: Vec<PartitionId>,
        in_stead_until: Option<Duration>,
    ) {
        let forget_from = in_stead_until.unwrap_or(self.now);
        let missing = participants.iter().map(|of| (*of, self.now));
        // This node may have become the leader of the home of an attempt of its own.
        let before = self.finishing.remove(&id);
        let finishing = Finishing {
            awaiting: before.and_then(|before| before.awaiting),
            missing: missing.collect(),
            own_first: in_stead_until.is_some(),
            in_stead: in_stead_until.is_some(),
            until: forget_from + FINISHING,
            forget_from,
            participants,
        };
        self.finishing.insert(id, finishing);
    }

    /// Asks the participants that have not acknowledged and whose time has come.
    pub(crate) fn ask_to_commit(&mut self, partition: &mut impl Participant, id: TransactionId) {
        let finishing = self.finishing.get_mut(&id).expect("it is finishing");
        if finishing.own_first {
            return;
        }
        let awaited = finishing.awaiting.is_some();
        let now = self.now;
        let mut asked = Vec::new();
        for (of, again_at) in &mut finishing.missing {
            if *again_at <= now {
                *again_at = now + AGAIN;
                asked.push(*of);
            }
        }
        for of in asked {
            let purpose = Purpose::Commit { id, of };
            self.ask(partition, of, Request::Commit { id, awaited }, purpose);
        }
    }

    /// Carries out step 6.
    fn forget_all(&mut self, partition: &mut impl Participant, id: TransactionId) {
        let finishing = self.finishing.remove(&id).expect("it is finishing");
        for of in finishing.participants {
            self.tell(partition, of, Notice::Forget { id });
        }
    }

    /// Handles the answer of a participant that was asked to commit.
    pub(crate) fn on_acknowledged(
        &mut self,
        partition: &mut impl Participant,
        id: TransactionId,
        of: PartitionId,
        answer: &Result<Answer, Lost>,
    ) {
        let Some(finishing) = self.finishing.get_mut(&id) else {
            return;
        };
        if *answer != Ok(Answer::Done) {
            if finishing.own_first && finishing.awaiting.is_some() {
                // It is this node's own attempt, which has committed: the next leader is asked.
                finishing.own_first = false;
            } else if finishing.own_first {
                // The next leader of this partition finds whether it has committed, and goes on.
                self.finishing.remove(&id);
            } else if let Some(again_at) = self.sooner(of, answer) {
                let finishing = self.finishing.get_mut(&id).expect("it is finishing");
                let missing = finishing.missing.iter_mut().find(|(other, _)| *other == of);
                if let Some(missing) = missing {
                    missing.1 = missing.1.min(again_at);
                }
            }
            return;
        }
        finishing.missing.retain(|(other, _)| *other != of);
        if finishing.missing.is_empty() {
            let awaiting = finishing.awaiting.take();
            let may_forget = finishing.forget_from <= self.now;
            if let Some(Awaiting {
                caller, replies, ..
            }) = awaiting
            {
                self.finish(partition, caller, Ok(replies));
            }
            if may_forget {
                self.forget_all(partition, id);
            }
        } else if finishing.own_first && Some(of) == self.own {
            finishing.own_first = false;
            self.ask_to_commit(partition, id);
        }
    }

    /// Returns when to ask a partition again that has not answered, if that is earlier than planned:
    /// because another node leads it, or will.
    pub(crate) fn sooner(
        &self,
        of: PartitionId,
        answer: &Result<Answer, Lost>,
    ) -> Option<Duration> {
        let is_led = self.leaders.leader(of).is_some();
        let pause = if is_led { SOON } else { LEADERLESS };
        let may_move = match answer {
            Ok(Answer::Aborted(_)) => true,
            Ok(_) => false,
            Err(_) => self.leaders.is_replicated(of),
        };
        may_move.then_some(self.now + pause)
    }

    /// Asks again for acknowledgements that have not come.
    pub(crate) fn sweep_finishing(&mut self, partition: &mut impl Participant) {
        self.sweep_awaiting(partition);
        let now = self.now;
        self.finishing
            .retain(|_, finishing| finishing.until > now || finishing.awaiting.is_some());
        let over = |f: &Finishing<C>| f.missing.is_empty() && f.forget_from <= now;
        let over = self.finishing.iter().filter(|(_, f)| over(f));
        let mut over: Vec<TransactionId> = over.map(|(id, _)| *id).collect();
        over.sort_unstable();
        for id in over {
            self.forget_all(partition, id);
        }
        let is_late = |f: &Finishing<C>| f.missing.iter().any(|(_, again_at)| *again_at <= now);
        let late = self.finishing.iter().filter(|(_, f)| is_late(f));
        let mut again: Vec<TransactionId> = late.map(|(id, _)| *id).collect();
        again.sort_unstable();
        for id in again {
            self.ask_to_commit(partition, id);
        }
    }

    /// Answers callers that have waited too long for participants to acknowledge. The participants will
    /// commit, and are asked on.
    fn sweep_awaiting(&mut self, partition: &mut impl Participant) {
        let now = self.now;
        let is_over = |awaiting: &mut Awaiting<C>| awaiting.until <= now;
        let open = self.finishing.iter_mut();
        let mut over: Vec<_> = open
            .filter_map(|(id, finishing)| {
                let awaiting = finishing.awaiting.take_if(is_over)?;
                let missing: Vec<_> = finishing.missing.iter().map(|(of, _)| of.0).collect();
                Some((*id, awaiting.caller, missing))
            })
            .collect();
        over.sort_unstable_by_key(|(id, ..)| *id);
        for (_, caller, missing) in over {
            let what = format!(
                "the transaction is kept by all partitions, but not yet seen in all: of {missing:?} \
                 nothing was heard in time"
            );
            self.finish(partition, caller, Err(Abort::Unknown { what }));
        }
    }
}
