//! The coordinator's side of two-phase commit, up to the commit point; the steps are those of module
//! `node`.

use base::participant::{Isolation, Participant};
use base::{Abort, Op, PartitionId, TransactionId};

use crate::coordination::{Coordination, Manner, Part, Stage, together, whole};
use crate::finishing::{AGAIN, Awaiting};
use crate::message::{Answer, Fate, Notice, Request, Roll};
use crate::node::{Node, Purpose};
use crate::ramp::{self, Algorithm};
use crate::wires::Lost;

impl<C> Node<C> {
    /// Carries out step 1 of the protocol.
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
        let written = written.filter_map(Op::key);
        let (isolation, algorithm) = match c.manner {
            Manner::Writing(algorithm) => (Isolation::ReadAtomic, algorithm),
            _ => (Isolation::Serializable, Algorithm::Fast),
        };
        let siblings = ramp::siblings(algorithm, written);
        if isolation == Isolation::ReadAtomic {
            self.counters.ramp_writes += u64::from(c.attempt == 1);
        }
        // The own part is prepared first: if it fails, the other partitions have no work.
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
                siblings: &siblings,
                isolation,
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
                // The own part votes against: the other partitions need not be asked.
                c.parts.truncate(at + 1);
                break;
            }
        }
    }

    /// Handles a participant's vote.
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
            // The participant does not know whether its vote is durable: as good as lost.
            Ok(Answer::Aborted(Abort::Unknown { what })) => {
                let why = self.unreached_part(which.0, part, what);
                self.abandon_home(partition, which.0, why);
            }
            Ok(Answer::Aborted(abort)) => {
                let abort = whole(abort, &c.parts[part]);
                let overtaken = matches!(abort, Abort::Overtaken { .. });
                let is_ramp = matches!(c.manner, Manner::Writing(_));
                self.counters.ramp_overtaken += u64::from(overtaken && is_ramp);
                self.abort_all(partition, which.0, Some(part), id, abort);
            }
            // A request that was never sent is as good as a vote against.
            Err(Lost { sent: false, why }) => {
                let abort = self.unreached_part(which.0, part, why);
                self.abort_all(partition, which.0, Some(part), id, abort);
            }
            Err(Lost { why, .. }) => {
                let why = self.unreached_part(which.0, part, why);
                self.abandon_home(partition, which.0, why);
            }
            Ok(other) => {
                let what = format!("a participant answered a prepare with {other:?}");
                self.abandon_home(partition, which.0, Abort::Unavailable { what });
            }
        }
    }

    fn unreached_part(&self, number: u64, part: usize, what: String) -> Abort {
        let of = self.coordinations[&number].parts[part].of;
        self.unreached(of, what)
    }

    /// Carries out steps 3 and 4: every part is prepared, durably.
    fn commit_all(&mut self, partition: &mut impl Participant, number: u64, id: TransactionId) {
        let c = self.coordinations.remove(&number).expect("it is current");
        let participants: Vec<_> = c.parts.iter().map(|part| part.of).collect();
        let replies = together(c.places.len(), c.parts);
        let awaiting = if let Manner::Writing(_) = c.manner {
            let until = c.begun + self.timeouts.transaction;
            Some(Awaiting {
                caller: c.caller,
                replies,
                until,
            })
        } else {
            self.finish(partition, c.caller, Ok(replies));
            None
        };
        self.finish_commit(id, participants, None);
        let finishing = self.finishing.get_mut(&id).expect("it was put in");
        finishing.awaiting = awaiting;
        self.ask_to_commit(partition, id);
    }

    /// Aborts an attempt that cannot commit: a participant has voted against, or was never asked.
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

    /// Asks the home to abort the attempt, because a vote is lost, or does not come: the home may have
    /// seen all of them, and decides.
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
        c.stage = Stage::Abandoning {
            id,
            why,
            again_at: self.now,
        };
        self.ask_to_abandon(partition, number);
    }

    fn ask_to_abandon(&mut self, partition: &mut impl Participant, number: u64) {
        let c = self.coordinations.get_mut(&number).expect("it is current");
        let Stage::Abandoning { id, again_at, .. } = &mut c.stage else {
            return;
        };
        *again_at = self.now + AGAIN;
        let id = *id;
        let purpose = Purpose::Abandon {
            coordination: number,
            attempt: c.attempt,
        };
        let home = home(self.own, &c.parts);
        self.ask(partition, home, Request::Abandon { id }, purpose);
    }

    /// Handles the home's answer.
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
        let Stage::Abandoning { id, why, .. } = c.stage.clone() else {
            return;
        };
        let home = home(self.own, &self.coordinations[&which.0].parts);
        let c = &self.coordinations[&which.0];
        if c.begun + limit <= now {
            // The home may have committed and forgotten it by now.
            return self.end_unknown(partition, which.0, reason(&why));
        }
        match answer {
            Ok(Answer::Fate(Fate::Aborted)) => self.abort_all(partition, which.0, None, id, why),
            Ok(Answer::Fate(Fate::Committed)) => {
                let c = self.coordinations.remove(&which.0).expect("it is current");
                let what = format!("{}: the replies of the transaction are lost", reason(&why));
                self.finish(partition, c.caller, Err(Abort::Unknown { what }));
            }
            // Its log has failed: only a restart will show the outcome.
            Ok(Answer::Failed(what)) => self.end_unknown(partition, which.0, what),
            // The sweep asks again, or gives up.
            other => {
                let sooner = self.sooner(home, &other);
                let c = self.coordinations.get_mut(&which.0);
                if let (Some(sooner), Some(c)) = (sooner, c)
                    && let Stage::Abandoning { again_at, .. } = &mut c.stage
                {
                    *again_at = sooner.min(*again_at);
                }
            }
        }
    }

    /// Asks homes again that have not answered, until it is too late.
    pub(crate) fn sweep_abandoning(&mut self, partition: &mut impl Participant) {
        let (now, limits) = (self.now, self.timeouts);
        let waiting = self.coordinations.iter().filter_map(|(number, c)| {
            let Stage::Abandoning { why, again_at, .. } = &c.stage else {
                return None;
            };
            let is_over = c.begun + limits.transaction <= now;
            (*again_at <= now).then(|| (*number, is_over, reason(why)))
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable_by_key(|(number, ..)| *number);
        for (number, is_over, why) in waiting {
            if is_over {
                self.end_unknown(partition, number, why);
            } else {
                self.ask_to_abandon(partition, number);
            }
        }
    }
}

/// Returns the participant that decides.
fn home(own: Option<PartitionId>, parts: &[Part]) -> PartitionId {
    let own = parts.iter().find(|part| Some(part.of) == own);
    own.unwrap_or(&parts[0]).of
}

/// Returns why an attempt was given up, without its outcome.
fn reason(why: &Abort) -> String {
    match why {
        Abort::Unavailable { what } => what.clone(),
        Abort::Elsewhere { .. } => "the leader of a partition was lost".to_owned(),
        other => other.to_string(),
    }
}
