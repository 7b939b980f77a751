//! A partition in a few lines: one map, whole keys held, durability by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::participant::{
    DurableEpochs, Isolation, Leadership, Prepare, State, TransactionExecutor, TwoPhaseCommit,
};
use base::partition::OwnedReply;
use base::transaction::{Holder, Observed};
use base::versions::{Ask, Found, Watcher};
use base::{Abort, Epoch, NodeId, Op, Reply, Tid, TransactionId, Version};
use kumiki_cluster::ramp::PublishedSlots;

use crate::protocol::versions::{self, Versions};

#[derive(Clone, Default)]
pub(crate) struct Model {
    values: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
    states: BTreeMap<TransactionId, State>,
    /// What prepared attempts will write, and the keys they hold.
    effects: BTreeMap<TransactionId, Effects>,
    held: BTreeMap<Vec<u8>, Holder>,
    /// The greatest token of each lock.
    tokens: BTreeMap<Vec<u8>, u64>,
    /// The versions of read-atomic keys.
    pub(crate) versions: Versions,
    /// Another transaction is just changing what commits must change.
    pub(crate) busy: Option<Holder>,
    /// Every change makes a new epoch.
    epoch: u64,
    pub(crate) durable: u64,
    /// Changes become durable at once.
    pub(crate) synced: bool,
    /// Nothing becomes durable any more.
    pub(crate) broken: bool,
    releases: u64,
    pub(crate) time_ms: u64,
    /// Attempts whose effects have become current.
    pub(crate) committed: Vec<TransactionId>,
    /// The node that leads the partition instead, if another one leads.
    pub(crate) elsewhere: Option<Option<NodeId>>,
    leadership: u64,
    /// Lost epochs: above the first number, up to the second.
    lost: Vec<(u64, u64)>,
    /// The state that was agreed upon before changes ceased to become durable.
    agreed: Option<Box<Model>>,
    /// Notified of writes of read-atomic keys.
    pub(crate) watcher: Option<Arc<PublishedSlots>>,
}

type Effects = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// The prefix of the keys of locks, which are held like any other.
const LOCKS: &[u8] = b"\xfflock:";

/// Returns the key that an operation holds: its own, or that of a guard's lock.
fn held_by(op: &Op<'_>) -> Option<Vec<u8>> {
    match op {
        Op::Guard { lock, .. } => Some([LOCKS, lock].concat()),
        other => other.key().map(<[u8]>::to_vec),
    }
}

impl Model {
    pub(crate) fn new() -> Model {
        Model {
            synced: true,
            time_ms: 1_000_000,
            ..Model::default()
        }
    }

    /// Lets no change become durable from now on.
    pub(crate) fn freeze(&mut self) {
        self.agreed = Some(Box::new(self.clone()));
        self.synced = false;
    }

    /// Makes `next` the leader. It has the durable state, and the rest if that is kept; at this node the
    /// rest is lost in any case.
    pub(crate) fn hand_over(&mut self, next: &mut Model, id: NodeId, keeps: bool) {
        let mut state = match self.agreed.take() {
            Some(agreed) if !keeps => *agreed,
            _ => self.clone(),
        };
        state.epoch = self.epoch;
        state.durable = self.epoch;
        state.synced = true;
        state.elsewhere = None;
        state.leadership = next.leadership + 1;
        state.releases = next.releases + 1;
        state.lost = std::mem::take(&mut next.lost);
        state.time_ms = next.time_ms;
        *next = state;
        if self.durable < self.epoch {
            self.lost.push((self.durable, self.epoch));
        }
        self.elsewhere = Some(Some(id));
    }

    fn led(&self) -> Result<(), Abort> {
        let leads = self.leads();
        leads.map_err(|leader| Abort::Elsewhere { leader })
    }

    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        let (value, _) = self.values.get(key.as_bytes())?;
        Some(std::str::from_utf8(value).unwrap())
    }

    /// Returns the greatest token of a lock that was seen.
    pub(crate) fn token(&self, lock: &[u8]) -> u64 {
        self.tokens.get(lock).copied().unwrap_or(0)
    }

    pub(crate) fn known(&self, id: TransactionId) -> State {
        self.states.get(&id).cloned().unwrap_or(State::Unknown)
    }

    /// Returns the states of all attempts that it knows.
    pub(crate) fn attempts(&self) -> Vec<State> {
        self.states.values().cloned().collect()
    }

    pub(crate) fn holds(&self) -> usize {
        self.held.len()
    }

    fn changed(&mut self) -> Epoch {
        self.epoch += 1;
        if self.synced && !self.broken {
            self.durable = self.epoch;
        }
        Epoch(self.epoch)
    }

    fn version(&self, key: &[u8]) -> Version {
        match self.values.get(key) {
            Some((_, version)) => Version::present(Tid::new(Epoch(*version), 0)),
            None => Version::absent(Tid::ZERO),
        }
    }

    fn run(
        &self,
        ops: &[Op<'_>],
        own: Option<Holder>,
    ) -> Result<(Vec<OwnedReply>, Effects), Abort> {
        let keys: BTreeSet<Vec<u8>> = ops.iter().filter_map(held_by).collect();
        for key in keys {
            if let Some(by) = self.held.get(&key).filter(|by| Some(**by) != own) {
                return Err(Abort::Held { by: *by });
            }
        }
        let (mut replies, mut effects) = (Vec::new(), Effects::new());
        for (at, op) in ops.iter().enumerate() {
            replies.push(match *op {
                Op::Get { key } => match self.values.get(key) {
                    Some((value, _)) => OwnedReply::Bytes(value.clone()),
                    None => OwnedReply::Nil,
                },
                Op::Watch { key } => OwnedReply::Version(self.version(key)),
                Op::Check { key, version } if self.version(key) == version => OwnedReply::Ok,
                Op::Check { .. } => return Err(Abort::Precondition { op: at }),
                Op::Now => OwnedReply::Int(self.time_ms as i64),
                Op::Guard { lock, token } => {
                    let highest = self.token(lock);
                    if highest > token {
                        let lock = lock.to_vec();
                        return Err(Abort::Stale {
                            lock,
                            token,
                            highest,
                        });
                    }
                    let value = Some(token.to_le_bytes().to_vec());
                    effects.push(([LOCKS, lock].concat(), value));
                    OwnedReply::Ok
                }
                Op::Put { key, value, .. } => {
                    effects.push((key.to_vec(), Some(value.to_vec())));
                    OwnedReply::Ok
                }
                Op::Delete { key } => {
                    effects.push((key.to_vec(), None));
                    OwnedReply::Int(i64::from(self.values.contains_key(key)))
                }
                ref other => panic!("the model does not know {other:?}"),
            });
        }
        Ok((replies, effects))
    }

    fn apply(&mut self, effects: Effects) -> Epoch {
        let epoch = self.changed();
        for (key, value) in effects {
            if let Some(watcher) = self.watcher.as_ref().filter(|_| versions::covers(&key)) {
                watcher.writing(&key);
                watcher.written(&key);
            }
            if let (Some(lock), Some(token)) = (key.strip_prefix(LOCKS), &value) {
                let token = u64::from_le_bytes(token[..].try_into().unwrap());
                self.tokens.insert(lock.to_vec(), token);
                continue;
            }
            match value {
                Some(value) => drop(self.values.insert(key, (value, epoch.0))),
                None => drop(self.values.remove(&key)),
            }
        }
        epoch
    }

    /// Ends what was in the way of commits.
    pub(crate) fn make_way(&mut self) {
        self.busy = None;
        self.releases += 1;
    }

    fn release(&mut self, id: TransactionId) {
        self.held.retain(|_, by| by.id != id);
        self.releases += 1;
    }

    fn now(&self) -> Epoch {
        Epoch(self.epoch)
    }
}

impl TransactionExecutor for Model {
    fn execute(
        &mut self,
        ops: &[Op<'_>],
        see: &mut dyn FnMut(&[Reply<'_>], Observed),
    ) -> Result<(), Abort> {
        self.led()?;
        let (replies, effects) = self.run(ops, None)?;
        if !effects.is_empty() {
            self.versions.write(&effects, self.time_ms);
            self.apply(effects);
        }
        let replies: Vec<Reply<'_>> = replies.iter().map(OwnedReply::as_reply).collect();
        see(&replies, self.observed());
        Ok(())
    }

    fn read_versions(
        &mut self,
        asks: &[Ask<'_>],
        see: &mut dyn FnMut(Found<'_>),
    ) -> Result<(), Abort> {
        self.led()?;
        asks.iter().for_each(|ask| see(self.versions.find(ask)));
        Ok(())
    }

    fn observed(&self) -> Observed {
        Observed {
            epoch: self.now(),
            ..Observed::default()
        }
    }

    fn time_ms(&self) -> u64 {
        self.time_ms
    }

    fn releases(&self) -> u64 {
        self.releases
    }

    fn finished(&self) -> Epoch {
        // Every change is over when its call has returned.
        self.now()
    }
}

impl TwoPhaseCommit for Model {
    fn prepare(&mut self, prepare: &Prepare<'_>) -> Result<Vec<OwnedReply>, Abort> {
        self.led()?;
        let id = prepare.holder.id;
        if self.states.contains_key(&id) {
            return Err(Abort::Refused);
        }
        let (replies, effects) = self.run(prepare.ops, None)?;
        if prepare.isolation == Isolation::ReadAtomic {
            self.versions.prepare(id, &effects, prepare.siblings)?;
        } else {
            for key in prepare.ops.iter().filter_map(held_by) {
                self.held.insert(key, prepare.holder);
            }
        }
        self.effects.insert(id, effects);
        self.states
            .insert(id, State::Prepared(prepare.note.to_vec()));
        self.changed();
        Ok(replies)
    }

    fn commit(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        self.led()?;
        let before = self.known(id);
        if let State::Prepared(note) = &before {
            if let Some(by) = self.busy {
                return Err(Abort::Held { by });
            }
            let mut effects = self.effects.remove(&id).unwrap();
            self.versions.commit(id, &mut effects);
            self.apply(effects);
            self.states.insert(id, State::Committed(note.clone()));
            self.committed.push(id);
            self.release(id);
        }
        Ok((before, self.now()))
    }

    fn abort(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        self.led()?;
        let before = self.known(id);
        if let State::Prepared(_) = &before {
            self.effects.remove(&id);
            self.versions.abort(id);
            self.states.remove(&id);
            self.changed();
            self.release(id);
        }
        Ok((before, self.now()))
    }

    fn refuse(&mut self, id: TransactionId, _: u64) -> Result<(State, Epoch), Abort> {
        self.led()?;
        let before = self.known(id);
        if before == State::Unknown {
            self.states.insert(id, State::Refused);
            self.changed();
        }
        Ok((before, self.now()))
    }

    fn forget(&mut self, id: TransactionId) -> Result<(), Abort> {
        self.led()?;
        if let State::Committed(_) = self.known(id) {
            self.states.remove(&id);
        }
        Ok(())
    }

    fn state(&mut self, id: TransactionId) -> (State, Epoch) {
        (self.known(id), self.now())
    }

    fn undecided(&mut self) -> Vec<(TransactionId, State)> {
        if self.led().is_err() {
            return Vec::new();
        }
        let open = |state: &State| matches!(state, State::Prepared(_) | State::Committed(_));
        let states = self.states.iter().filter(|(_, state)| open(state));
        states.map(|(id, state)| (*id, state.clone())).collect()
    }
}

impl DurableEpochs for Model {
    fn failed(&self) -> Option<String> {
        self.broken.then(|| "the disk is broken".to_owned())
    }

    fn durable(&self) -> Epoch {
        Epoch(self.durable)
    }

    fn is_lost(&self, epoch: Epoch) -> bool {
        let mut lost = self.lost.iter();
        self.broken && epoch > self.durable()
            || lost.any(|(from, to)| (from + 1..=*to).contains(&epoch.0))
    }
}

impl Leadership for Model {
    fn leads(&self) -> Result<(), Option<NodeId>> {
        self.elsewhere.map_or(Ok(()), Err)
    }

    fn leadership(&self) -> u64 {
        self.leadership
    }
}
