//! Attempts that no coordinator decides: it is gone, or its decision was lost.
//!
//! | an attempt here | this partition is | does |
//! |---|---|---|
//! | prepared for long | its home | asks all participants for their vote, and decides |
//! | prepared for long | another participant | asks the home |
//! | committed for long | its home | has all participants commit, then forget |
//! | committed for long | another participant | forgets it if the home has |

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use base::participant::{Participant, State};
use base::{Abort, Epoch, PartitionId, TransactionId};

use crate::message::{Answer, Fate, Notice, Request};
use crate::node::{Asker, Node, Purpose};
use crate::pending_answers::Haste;
use crate::wires::Lost;

/// Decides attempts that stay undecided; see the module's description.
pub(crate) struct Keeper {
    next: Duration,
    /// It has looked since the start, or since this node leads. Attempts that a restart has brought back
    /// are in doubt at once; those that another leader has left are so a while later, because their
    /// coordinators have to find this node first, and know more.
    looked: bool,
    /// When attempts were first seen in their present state.
    noticed: BTreeMap<TransactionId, (bool, Duration)>,
    resolving: HashMap<TransactionId, Resolution>,
}

/// A vote that the home takes.
struct Resolution {
    participants: Vec<PartitionId>,
    missing: Vec<PartitionId>,
    until: Duration,
}

impl Keeper {
    pub(crate) fn new(next: Duration) -> Keeper {
        Keeper {
            next,
            looked: false,
            noticed: BTreeMap::new(),
            resolving: HashMap::new(),
        }
    }

    /// Returns when it looks again.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }
}

impl<C> Node<C> {
    /// Looks for attempts that have been undecided for too long.
    pub(crate) fn keep(&mut self, partition: &mut impl Participant) {
        let now = self.now;
        let Some(keeper) = &mut self.keeper else {
            return;
        };
        if now < keeper.next {
            return;
        }
        if partition.leads().is_err() {
            // A new keeper is made when this node leads again.
            return keeper.next = now + self.timeouts.doubt;
        }
        keeper.next = now + self.timeouts.doubt / 4;
        keeper
            .resolving
            .retain(|_, resolution| resolution.until > now);
        let first = !std::mem::replace(&mut keeper.looked, true);
        let mut undecided = partition.undecided();
        undecided.sort_unstable_by_key(|(id, _)| *id);
        let before = std::mem::take(&mut keeper.noticed);
        let mut late = Vec::new();
        for (id, state) in undecided {
            let committed = matches!(state, State::Committed(_));
            let fresh = (committed, if first { Duration::ZERO } else { now });
            let known = before.get(&id).copied();
            let since = known.filter(|(was, _)| *was == committed).unwrap_or(fresh);
            keeper.noticed.insert(id, since);
            let patience = if committed {
                self.timeouts.forget
            } else {
                self.timeouts.doubt
            };
            if since.1 + patience <= now || first {
                late.push((id, state));
            }
        }
        for (id, state) in late {
            self.look_after(partition, id, &state);
        }
    }

    fn look_after(&mut self, partition: &mut impl Participant, id: TransactionId, state: &State) {
        let (State::Prepared(note) | State::Committed(note)) = state else {
            return;
        };
        let Some(roll) = self.roll(id, note) else {
            return;
        };
        let at_home = Some(roll.home) == self.own;
        match state {
            State::Prepared(note) if at_home => self.resolve(partition, id, note),
            State::Prepared(_) => {
                self.ask(
                    partition,
                    roll.home,
                    Request::Outcome { id },
                    Purpose::Outcome { id },
                );
            }
            _ if self.finishing.contains_key(&id) => {}
            _ if at_home => match partition.commit(id) {
                Ok((State::Committed(_), epoch)) => {
                    self.finish_in_stead(partition, id, roll.participants, epoch);
                }
                // The next look sees its present state.
                Ok(_) => {}
                Err(error) => later(id, &error),
            },
            _ => self.ask(
                partition,
                roll.home,
                Request::Inquire { id },
                Purpose::Inquire { id },
            ),
        }
    }

    /// Takes a vote on an attempt that is prepared here, at its home.
    pub(crate) fn resolve(
        &mut self,
        partition: &mut impl Participant,
        id: TransactionId,
        note: &[u8],
    ) {
        let Some(roll) = self.roll(id, note) else {
            return;
        };
        let until = self.now + self.timeouts.answer;
        // Only the keeper decides, so that there is one vote at a time.
        let Some(keeper) = &mut self.keeper else {
            return;
        };
        if keeper.resolving.contains_key(&id) {
            return;
        }
        // This partition's own vote, too, counts only once it is durable.
        let asked = roll.participants.clone();
        let resolution = Resolution {
            missing: asked.clone(),
            participants: roll.participants,
            until,
        };
        keeper.resolving.insert(id, resolution);
        for of in asked {
            self.ask(
                partition,
                of,
                Request::Vote { id },
                Purpose::Vote { id, of },
            );
        }
    }

    /// Handles a participant's vote.
    pub(crate) fn on_resolver_vote(
        &mut self,
        partition: &mut impl Participant,
        id: TransactionId,
        of: PartitionId,
        answer: Result<Answer, Lost>,
    ) {
        let Some(keeper) = &mut self.keeper else {
            return;
        };
        let Some(resolution) = keeper.resolving.get_mut(&id) else {
            return;
        };
        match answer {
            Ok(Answer::State(State::Prepared(_) | State::Committed(_))) => {
                // An answer to an earlier question may come, too: each participant counts once.
                resolution.missing.retain(|other| *other != of);
                if !resolution.missing.is_empty() {
                    return;
                }
                let resolution = keeper.resolving.remove(&id).expect("it was there");
                self.resolve_commit(partition, id, resolution.participants);
            }
            Ok(Answer::State(State::Unknown | State::Refused)) => {
                let resolution = keeper.resolving.remove(&id).expect("it was there");
                self.resolve_abort(partition, id, resolution.participants);
            }
            // The participant cannot tell yet: the next look takes another vote.
            _ => drop(keeper.resolving.remove(&id)),
        }
    }

    /// Commits an attempt that all have prepared, unless the coordinator has had it aborted meanwhile.
    fn resolve_commit(
        &mut self,
        partition: &mut impl Participant,
        id: TransactionId,
        participants: Vec<PartitionId>,
    ) {
        match partition.commit(id) {
            Ok((State::Prepared(_), epoch)) => {
                self.counters.resolved_committed += 1;
                self.finish_in_stead(partition, id, participants, epoch);
            }
            // Another thread or the coordinator has decided, and tells the participants.
            Ok(_) => {}
            Err(error) => later(id, &error),
        }
    }

    /// Finishes an attempt that has committed here in `epoch`, in its coordinator's stead. The
    /// coordinator may still run and not know of it; as long as it may ask to abandon the attempt, this
    /// home must not have forgotten it. If the epoch is lost, no other node has heard of the decision,
    /// and the next leader decides anew.
    fn finish_in_stead(
        &mut self,
        partition: &mut impl Participant,
        id: TransactionId,
        participants: Vec<PartitionId>,
        epoch: Epoch,
    ) {
        let Some(own) = self.own else { return };
        let limits = self.timeouts;
        let patience = limits.answer + limits.hold + limits.transaction;
        let until = self.now + patience;
        self.finish_commit(id, participants, Some(until));
        let asker = Asker::Own(Purpose::Commit { id, of: own });
        let when = (epoch, Haste::Leisure);
        self.answer(partition, asker, Answer::Done, when);
    }

    /// Aborts an attempt that a participant will never prepare.
    fn resolve_abort(
        &mut self,
        partition: &mut impl Participant,
        id: TransactionId,
        participants: Vec<PartitionId>,
    ) {
        match partition.abort(id) {
            Ok((State::Prepared(_), _)) => {
                self.counters.resolved_aborted += 1;
                for of in participants {
                    if Some(of) != self.own {
                        self.tell(partition, of, Notice::Abort { id });
                    }
                }
            }
            Ok(_) => {}
            Err(error) => later(id, &error),
        }
    }

    /// Handles the home's answer about an attempt that is prepared here.
    pub(crate) fn on_outcome(
        &mut self,
        partition: &mut impl Participant,
        id: TransactionId,
        answer: &Result<Answer, Lost>,
    ) {
        let done = match answer {
            Ok(Answer::Fate(Fate::Committed)) => partition.commit(id).map(drop),
            Ok(Answer::Fate(Fate::Aborted)) => partition.abort(id).map(drop),
            // The next look asks again.
            _ => Ok(()),
        };
        if let Err(error) = done {
            later(id, &error);
        }
    }

    /// Handles the home's answer whether it still knows an attempt that has committed here.
    pub(crate) fn on_inquired(
        &mut self,
        partition: &mut impl Participant,
        id: TransactionId,
        answer: &Result<Answer, Lost>,
    ) {
        if let Ok(Answer::State(State::Unknown | State::Refused)) = answer {
            self.on_forget(partition, id);
        }
    }
}

/// Logs that a decision cannot be recorded now; the next look tries again.
fn later(id: TransactionId, why: &Abort) {
    match why {
        // Its leader looks after it, or a part of it is on its way into the log.
        Abort::Elsewhere { .. } | Abort::Held { .. } => {}
        why => tracing::warn!(%id, %why, "cannot record a decision; trying again later"),
    }
}
