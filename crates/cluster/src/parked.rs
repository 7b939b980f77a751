//! Requests that wait for holds, and are tried again when some are given back.
//!
//! Invariant: a prepare waits only if its transaction is older than the holder of what it needs, and
//! than every other prepare that waits for one of the same keys: the others have to give way.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::participant::{Isolation, Participant, Prepare, Sequenced};
use base::transaction::Holder;
use base::{Abort, Op, TransactionId};
use fabric::Link;

use crate::codec;
use crate::finishing::AGAIN;
use crate::message::Answer;
use crate::node::{Asker, Node};

/// The longest time for which a numbered transaction waits for holds; its client waits for longer, and
/// asks again.
const ONCE: Duration = Duration::from_secs(2);

/// A request that waits for holds.
pub(crate) struct Parked {
    asker: Asker,
    /// The operations, encoded.
    ops: Vec<u8>,
    until: Duration,
    what: Parking,
    /// The holder of what it needs.
    by: Holder,
}

/// The attempts that wait to be prepared, at all threads of a process: shared by its [`Node`]s.
#[derive(Clone, Debug, Default)]
pub struct Waiting(Arc<Mutex<HashSet<TransactionId>>>);

impl Waiting {
    fn ids(&self) -> MutexGuard<'_, HashSet<TransactionId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has(&self, id: TransactionId) -> bool {
        self.ids().contains(&id)
    }

    fn add(&self, id: TransactionId) {
        self.ids().insert(id);
    }

    fn leave(&self, parked: &[Parked]) {
        let mut gone = parked.iter().filter_map(Parked::prepared).peekable();
        if gone.peek().is_some() {
            let mut ids = self.ids();
            for holder in gone {
                ids.remove(&holder.id);
            }
        }
    }
}

/// What a parked request asks for.
pub(crate) enum Parking {
    Execute,
    Once(Sequenced),
    Read,
    Prepare(ParkedPrepare),
    Commit { id: TransactionId, awaited: bool },
}

pub(crate) struct ParkedPrepare {
    pub(crate) holder: Holder,
    pub(crate) siblings: Vec<u8>,
    pub(crate) note: Vec<u8>,
}

impl Parked {
    /// Returns the holder of the prepare, if it waits to be prepared.
    fn prepared(&self) -> Option<Holder> {
        match &self.what {
            Parking::Prepare(prepare) => Some(prepare.holder),
            Parking::Execute | Parking::Once(_) | Parking::Read | Parking::Commit { .. } => None,
        }
    }
}

impl<C> Node<C> {
    /// Returns an older prepare that waits for a key which this one needs, too.
    pub(crate) fn waits_ahead(&self, holder: Holder, ops: &[Op<'_>]) -> Option<Holder> {
        let waiting = self.parked.iter().filter_map(|parked| {
            let other = parked.prepared()?;
            ((other.age, other.id) < (holder.age, holder.id)).then_some((other, parked))
        });
        let flushes = |ops: &[Op<'_>]| ops.iter().any(|op| matches!(op, Op::Flush));
        for (other, parked) in waiting {
            let theirs = codec::decode_ops(&parked.ops).expect("it was encoded here");
            let wanted = |key| ops.iter().any(|op| op.key() == Some(key));
            let conflict = theirs.iter().filter_map(Op::key).any(wanted);
            if conflict || flushes(&theirs) || flushes(ops) {
                return Some(other);
            }
        }
        None
    }

    pub(crate) fn park(&mut self, asker: Asker, ops: &[Op<'_>], what: Parking, by: Holder) {
        self.counters.waited += 1;
        if let Parking::Prepare(prepare) = &what {
            self.waiting.add(prepare.holder.id);
        }
        // An asker that may ask again soon must get an answer before it takes this node for dead.
        let patience = match &what {
            Parking::Once(_) => self.timeouts.hold.min(ONCE),
            // Its coordinator asks again after that: it must not wait here twice.
            Parking::Commit { .. } => self.timeouts.hold.min(AGAIN),
            _ => self.timeouts.hold,
        };
        let mut bytes = Vec::new();
        codec::encode_ops(ops, &mut bytes);
        self.parked.push(Parked {
            asker,
            ops: bytes,
            until: self.now + patience,
            what,
            by,
        });
    }

    /// Tries again all requests that wait for holds, the oldest prepares first.
    pub(crate) fn retry_parked(&mut self, partition: &mut impl Participant) {
        let mut parked = std::mem::take(&mut self.parked);
        self.waiting.leave(&parked);
        if let Err(leader) = partition.leads() {
            return parked
                .into_iter()
                .for_each(|parked| self.redirect(parked.asker, leader));
        }
        parked.sort_by_key(|parked| parked.prepared().map(|holder| (holder.age, holder.id)));
        for Parked {
            asker,
            ops,
            until,
            what,
            ..
        } in parked
        {
            let (before, commits) = (self.parked.len(), self.counters.commits_waited);
            let decoded = codec::decode_ops(&ops).expect("it was encoded here");
            match what {
                Parking::Execute => self.execute(partition, asker, &decoded),
                Parking::Once(of) => self.execute_once(partition, asker, &decoded, of),
                Parking::Read => self.read(partition, asker, &decoded),
                Parking::Commit { id, awaited } => self.commit(partition, asker, id, awaited),
                Parking::Prepare(parked) => {
                    let prepare = Prepare {
                        holder: parked.holder,
                        ops: &decoded,
                        siblings: &parked.siblings,
                        note: &parked.note,
                        isolation: Isolation::Serializable,
                    };
                    self.prepare(partition, asker, &prepare);
                }
            }
            if let Some(again) = self.parked.get_mut(before) {
                // It goes on waiting.
                again.until = until;
                self.counters.waited -= 1;
                self.counters.commits_waited = commits;
            }
        }
    }

    /// Answers the requests that have waited for too long.
    pub(crate) fn sweep_parked(&mut self) {
        let now = self.now;
        let over: Vec<Parked> = self
            .parked
            .extract_if(.., |parked| parked.until <= now)
            .collect();
        self.waiting.leave(&over);
        for parked in over {
            let abort = Abort::Held { by: parked.by };
            self.deliver(parked.asker, Answer::Aborted(abort));
        }
    }

    /// Drops the requests that came on a link that is down.
    pub(crate) fn leave(&mut self, link: Link) {
        let of_it = |parked: &mut Parked| matches!(parked.asker, Asker::Remote { link: on, .. } if on == link);
        let gone: Vec<Parked> = self.parked.extract_if(.., of_it).collect();
        self.waiting.leave(&gone);
    }

    /// Drops a prepare that waits and must not be prepared any more.
    pub(crate) fn drop_parked(&mut self, id: TransactionId) {
        let gone = |parked: &mut Parked| parked.prepared().is_some_and(|holder| holder.id == id);
        let gone: Vec<Parked> = self.parked.extract_if(.., gone).collect();
        self.waiting.leave(&gone);
        for parked in gone {
            self.deliver(parked.asker, Answer::Aborted(Abort::Refused));
        }
    }
}
