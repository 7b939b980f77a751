//! The coordinator's side of two-phase commit; the steps are those of module `node`.

use std::time::Duration;

use base::change::siblings;
use base::participant::Participant;
use base::{Abort, Op, PartitionId, TransactionId};

use crate::coordination::{Coordination, Part, Stage, together, whole};
use crate::message::{Answer, Fate, Notice, Request, Roll};
use crate::node::{Node, Purpose};
use crate::wires::Lost;

/// A committed attempt whose participants have not all acknowledged.
pub(crate) struct Finishing {
    participants: Vec<PartitionId>,
    missing: Vec<PartitionId>,
    again_at: Duration,
    /// Whether only this node's own partition is asked so far.
    own_first: bool,
    in_stead: bool,
    /// Nobody forgets before.
    forget_from: Duration,
    until: Duration,
}

impl Finishing {
    /// Whether it is finished for a coordinator that did not; that can go on after a restart.
    pub(crate) fn is_in_stead(&self) -> bool {
        self.in_stead
    }
}

/// Acknowledgements, and the home's consent, are asked for again after this time.
const AGAIN: Duration = Duration::from_millis(500);
/// After this time the home's keeper is relied upon.
const FINISHING: Duration = Duration::from_secs(30);

impl<C> Node<C> {
    /// Step 1 of the protocol.
    pub(crate) fn prepare_all(
        &mut self,
        partition: &mut impl Participant,
        number: u64,
        c: &mut Coordination<C>,
        ops: &[Op<'_>],
    ) {
        let id = TransactionId {
            timestamp: self.clock.next(partition.time_ms()),
            unique: self.unique,
        };
        c.stage = Stage::Preparing { id };
        let written = ops.iter().filter(|op| !op.is_read_only());
        let mut written: Vec<&[u8]> = written.filter_map(Op::key).collect();
        written.sort_unstable();
        written.dedup();
        let mut keys = Vec::new();
        written
            .iter()
            .for_each(|key| siblings::push(&mut keys, key));
        // The own part first: what it is against costs the others nothing.
        c.parts.sort_by_key(|part| Some(part.of) != self.own);
        let roll = Roll {
            home: home(self.own, &c.parts),
            participants: c.parts.iter().map(|part| part.of).collect(),
        };
        for at in 0..c.parts.len() {
            let part = &c.parts[at];
            let request = Request::Prepare {
                id,
                age: c.age,
                roll: roll.clone(),
                siblings: &keys,
                ops: part.ops.iter().map(|&op| ops[op].clone()).collect(),
            };
            let purpose = Purpose::Prepare {
                coordination: number,
                attempt: c.attempt,
                part: at,
            };
            self.ask(partition, part.of, request, purpose);
            if let Some((last, Ok(Answer::Aborted(_)))) = self.answers.back()
                && *last == purpose
            {
                // The own part is against it: the others need not be bothered.
                c.parts.truncate(at + 1);
                break;
            }
        }
    }

    /// A participant has voted.
    pub(crate) fn on_vote(
        &mut self,
        partition: &mut impl Participant,
        which: (u64, u32),
        part: usize,
        answer: Result<Answer, Lost>,
    ) {
        let Some(c) = self.current(which) else {
            return;
        };
        let Stage::Preparing { id } = c.stage else {
            return;
        };
        match answer {
            Ok(Answer::Replies(replies)) if replies.len() == c.parts[part].ops.len() => {
                c.parts[part].replies = Some(replies);
                c.missing -= 1;
                if c.missing == 0 {
                    self.commit_all(partition, which.0, id);
                }
            }
            Ok(Answer::Aborted(abort)) => {
                let abort = whole(abort, &c.parts[part]);
                self.abort_all(partition, which.0, Some(part), id, abort);
            }
            // What was never sent is as good as a vote against.
            Err(Lost { sent: false, why }) => {
                let abort = Abort::Unavailable { what: why };
                self.abort_all(partition, which.0, Some(part), id, abort);
            }
            Err(Lost { why, .. }) => {
                self.abandon_home(partition, which.0, Abort::Unavailable { what: why })
            }
            Ok(other) => {
                let what = format!("a participant answered a prepare with {other:?}");
                self.abandon_home(partition, which.0, Abort::Unavailable { what });
            }
        }
    }

    /// Step 3 and 4: every part is prepared, durably.
    fn commit_all(&mut self, partition: &mut impl Participant, number: u64, id: TransactionId) {
        let c = self.coordinations.remove(&number).expect("it is current");
        let participants: Vec<_> = c.parts.iter().map(|part| part.of).collect();
        let replies = together(c.places.len(), c.parts);
        self.finish(partition, c.caller, Ok(replies));
        self.finish_commit(partition, id, participants, None);
    }

    /// Steps 4 to 6 for an attempt that has committed. In the stead of a coordinator that may not
    /// know, others are told only once the commit is durable here, and forgetting begins not before
    /// `in_stead_until`: until then the coordinator may ask to abandon the attempt.
    pub(crate) fn finish_commit(
        &mut self,
        partition: &mut impl Participant,
        id: TransactionId,
        participants: Vec<PartitionId>,
        in_stead_until: Option<Duration>,
    ) {
        let forget_from = in_stead_until.unwrap_or(self.now);
        let finishing = Finishing {
            missing: participants.clone(),
            own_first: in_stead_until.is_some(),
            in_stead: in_stead_until.is_some(),
            again_at: self.now + AGAIN,
            until: forget_from + FINISHING,
            forget_from,
            participants,
        };
        self.finishing.insert(id, finishing);
        self.ask_to_commit(partition, id);
    }

    /// Asks those that have not acknowledged.
    fn ask_to_commit(&mut self, partition: &mut impl Participant, id: TransactionId) {
        let finishing = &self.finishing[&id];
        let mut asked = finishing.missing.clone();
        if finishing.own_first {
            asked.retain(|of| Some(*of) == self.own);
        }
        for of in asked {
            let purpose = Purpose::Commit { id, of };
            self.ask(partition, of, Request::Commit { id }, purpose);
        }
    }

    /// Step 6.
    fn forget_all(&mut self, partition: &mut impl Participant, id: TransactionId) {
        let finishing = self.finishing.remove(&id).expect("it is finishing");
        for of in finishing.participants {
            self.tell(partition, of, Notice::Forget { id });
        }
    }

    /// A participant has committed, durably.
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
            // Asked again later.
            return;
        }
        finishing.missing.retain(|other| *other != of);
        if finishing.missing.is_empty() {
            if finishing.forget_from <= self.now {
                self.forget_all(partition, id);
            }
        } else if finishing.own_first && Some(of) == self.own {
            finishing.own_first = false;
            self.ask_to_commit(partition, id);
        }
    }

    /// Asks for acknowledgements that have not come.
    pub(crate) fn sweep_finishing(&mut self, partition: &mut impl Participant) {
        let now = self.now;
        self.finishing.retain(|_, finishing| finishing.until > now);
        let over = |f: &Finishing| f.missing.is_empty() && f.forget_from <= now;
        let over = self.finishing.iter().filter(|(_, f)| over(f));
        let mut over: Vec<TransactionId> = over.map(|(id, _)| *id).collect();
        over.sort_unstable();
        for id in over {
            self.forget_all(partition, id);
        }
        let late = self
            .finishing
            .iter_mut()
            .filter(|(_, finishing)| finishing.again_at <= now);
        let mut again: Vec<TransactionId> = late
            .map(|(id, finishing)| {
                finishing.again_at = now + AGAIN;
                *id
            })
            .collect();
        again.sort_unstable();
        for id in again {
            self.ask_to_commit(partition, id);
        }
    }

    /// A participant has voted against, or was never asked: nobody can commit.
    fn abort_all(
        &mut self,
        partition: &mut impl Participant,
        number: u64,
        against: Option<usize>,
        id: TransactionId,
        abort: Abort,
    ) {
        let parts = &self.coordinations[&number].parts;
        let others = parts
            .iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != against);
        let others: Vec<_> = others.map(|(_, part)| part.of).collect();
        for of in others {
            self.tell(partition, of, Notice::Abort { id });
        }
        self.again_or_end(partition, number, abort);
    }

    /// A vote is lost, or does not come: the home may have seen all of them, and decides.
    pub(crate) fn abandon_home(
        &mut self,
        partition: &mut impl Participant,
        number: u64,
        why: Abort,
    ) {
        let c = self.coordinations.get_mut(&number).expect("it is current");
        let Stage::Preparing { id } = c.stage else {
            return;
        };
        c.stage = Stage::Abandoning { id, why };
        c.attempt_begun = self.now;
        let purpose = Purpose::Abandon {
            coordination: number,
            attempt: c.attempt,
        };
        let home = home(self.own, &c.parts);
        self.ask(partition, home, Request::Abandon { id }, purpose);
    }

    /// The home has answered.
    pub(crate) fn on_abandoned(
        &mut self,
        partition: &mut impl Participant,
        which: (u64, u32),
        answer: Result<Answer, Lost>,
    ) {
        let (now, limit) = (self.now, self.timeouts.transaction);
        let Some(c) = self.current(which) else {
            return;
        };
        let Stage::Abandoning { id, why } = c.stage.clone() else {
            return;
        };
        if c.begun + limit <= now {
            // The home may have committed and forgotten it by now.
            return self.end_unknown(partition, which.0, why.to_string());
        }
        match answer {
            Ok(Answer::Fate(Fate::Aborted)) => self.abort_all(partition, which.0, None, id, why),
            Ok(Answer::Fate(Fate::Committed)) => {
                let c = self.coordinations.remove(&which.0).expect("it is current");
                let what =
                    format!("{why}; the transaction has committed, but its replies are lost");
                self.finish(partition, c.caller, Err(Abort::Unknown { what }));
            }
            // Its log has failed: what it will find after a restart cannot be told.
            Ok(Answer::Failed(what)) => self.end_unknown(partition, which.0, what),
            // The sweep asks again, or gives up.
            _ => {}
        }
    }

    /// Asks homes again that have not answered, until it is too late.
    pub(crate) fn sweep_abandoning(&mut self, partition: &mut impl Participant) {
        let (now, limits) = (self.now, self.timeouts);
        let waiting = self.coordinations.iter().filter_map(|(number, c)| {
            let Stage::Abandoning { id, why } = &c.stage else {
                return None;
            };
            (c.attempt_begun + AGAIN <= now).then(|| (*number, *id, why.clone()))
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable_by_key(|(number, ..)| *number);
        for (number, id, why) in waiting {
            let c = self.coordinations.get_mut(&number).expect("it was there");
            if c.begun + limits.transaction <= now {
                self.end_unknown(partition, number, why.to_string());
                continue;
            }
            c.attempt_begun = now;
            let purpose = Purpose::Abandon {
                coordination: number,
                attempt: c.attempt,
            };
            let home = home(self.own, &c.parts);
            self.ask(partition, home, Request::Abandon { id }, purpose);
        }
    }
}

/// The participant that decides.
fn home(own: Option<PartitionId>, parts: &[Part]) -> PartitionId {
    let own = parts.iter().find(|part| Some(part.of) == own);
    own.unwrap_or(&parts[0]).of
}
