//! Coordinators and participants.

use crate::error::RunError;
use crate::simulation::partition::{PreparedPart, TxnId, Version, Vote};
use crate::systems::AtomicityProtocol;
use std::rc::Rc;

use super::{FIRST_PAUSE, LONGEST_PAUSE, ProtocolSimulation, ProtocolStep};

impl ProtocolSimulation<'_> {
    pub(super) fn start_cost(&self, txn: TxnId) -> f64 {
        let state = &self.txns[txn];
        let cost = self.cost(state.writes);
        let own = state.parts[0].1.len();
        match state.parts.len() {
            1 => cost.single(own),
            _ => self.coordinator_cost(txn) / 3.0,
        }
    }

    /// Returns a coordinator's service time; a third of it each for start, commit and finish.
    pub(super) fn coordinator_cost(&self, txn: TxnId) -> f64 {
        let state = &self.txns[txn];
        let own = state.parts[0].1.len();
        let far = self.config.width.saturating_sub(own);
        let others = state.parts.len() - 1;
        self.cost(state.writes).coordinator(others, own, far)
    }

    /// Begins an attempt on the coordinator.
    pub(super) fn start(&mut self, txn: TxnId) -> Result<(), RunError> {
        self.counts.attempts += 1;
        self.clock += 1;
        let state = &mut self.txns[txn];
        state.attempt += 1;
        state.id = self.clock;
        state.missing = state.parts.len();
        state.seen.clear();
        let (attempt, writes) = (state.attempt, state.writes);
        let parts = state.parts.clone();
        let own = self.try_part(txn, 0);
        self.txns[txn].has_asked = own != Vote::No;
        if own != Vote::No {
            let size = match writes {
                true => self.sizes.prepare_write,
                false => self.sizes.prepare_read,
            };
            for (part, (node, keys)) in parts.iter().enumerate().skip(1) {
                // Half of it: the other is commit and the rest.
                let service = self.cost(writes).participant(keys.len()) / 2.0;
                let what = ProtocolStep::Prepare { txn, part, attempt };
                self.send(*node, size.of(keys.len()), service, what);
            }
        }
        match own {
            Vote::Waits => Ok(()),
            own => {
                self.vote(txn, attempt, own == Vote::Yes, 0);
                Ok(())
            }
        }
    }

    /// Prepares a part on its partition.
    pub(super) fn try_part(&mut self, txn: TxnId, part: usize) -> Vote {
        let state = &self.txns[txn];
        let (node, keys) = state.parts[part].clone();
        if self.config.protocol != AtomicityProtocol::S2pl {
            let newest = keys.iter().map(|&key| self.partitions[node].newest_id(key));
            let is_newer = newest.max().unwrap_or(0) < state.id;
            return if is_newer { Vote::Yes } else { Vote::No };
        }
        let wanted = PreparedPart {
            txn,
            attempt: state.attempt,
            age: state.age,
            keys,
            writes: state.writes,
        };
        let vote = self.partitions[node].hold(&wanted);
        if vote == Vote::Yes {
            self.read_part(txn, part);
        }
        vote
    }

    /// Notes the versions that a held part reads.
    pub(super) fn read_part(&mut self, txn: TxnId, part: usize) {
        let (node, keys) = self.txns[txn].parts[part].clone();
        for &key in &*keys {
            if let Some(version) = self.partitions[node].newest(key) {
                self.txns[txn].seen.insert(key, version.clone());
            }
        }
    }

    pub(super) fn prepare(&mut self, txn: TxnId, part: usize, attempt: u32) {
        if self.txns[txn].attempt != attempt {
            return;
        }
        match self.try_part(txn, part) {
            Vote::Waits => {}
            vote => self.send_vote(txn, part, attempt, vote == Vote::Yes),
        }
    }

    pub(super) fn send_vote(&mut self, txn: TxnId, part: usize, attempt: u32, yes: bool) {
        let state = &self.txns[txn];
        let (writes, home) = (state.writes, state.parts[0].0);
        let keys = state.parts[part].1.len();
        let size = if writes {
            self.sizes.write_reply
        } else {
            self.sizes.read_reply
        };
        let what = ProtocolStep::Vote {
            txn,
            attempt,
            yes,
            by: part,
        };
        self.send(home, size.of(keys), 0.0, what);
    }

    pub(super) fn vote(&mut self, txn: TxnId, attempt: u32, yes: bool, by: usize) {
        if self.txns[txn].attempt != attempt || self.txns[txn].missing == 0 {
            return;
        }
        if !yes {
            return self.abort(txn, by);
        }
        self.txns[txn].missing -= 1;
        if self.txns[txn].missing == 0 {
            let home = self.txns[txn].parts[0].0;
            let service = match self.txns[txn].parts.len() {
                1 => 0.0,
                _ => self.coordinator_cost(txn) / 3.0,
            };
            self.machine
                .go_on(home, service, ProtocolStep::CommitAll { txn });
        }
    }

    /// Gives an attempt up, and schedules another one.
    pub(super) fn abort(&mut self, txn: TxnId, against: usize) {
        self.txns[txn].missing = 0;
        let parts = self.txns[txn].parts.clone();
        for (part, (node, _)) in parts.iter().enumerate() {
            if part == against {
                continue;
            }
            if part == 0 {
                self.release(txn, 0);
            } else if self.txns[txn].has_asked {
                let size = self.sizes.notice.of(0);
                self.send(*node, size, 0.0, ProtocolStep::Aborted { txn, part });
            }
        }
        let doubled = FIRST_PAUSE * 2f64.powi(self.txns[txn].attempt as i32 - 1);
        let pause = doubled.min(LONGEST_PAUSE) * (0.5 + self.rng.f64() / 2.0);
        let service = self.start_cost(txn);
        self.machine.give(
            parts[0].0,
            pause as u64,
            service,
            ProtocolStep::Start { txn },
        );
    }

    /// Gives up the keys of a part, and lets waiting parts continue.
    pub(super) fn release(&mut self, txn: TxnId, part: usize) {
        let (node, keys) = self.txns[txn].parts[part].clone();
        if self.config.protocol != AtomicityProtocol::S2pl {
            return;
        }
        for (waited, vote) in self.partitions[node].release(txn, &keys) {
            let (other, attempt) = (waited.txn, waited.attempt);
            if self.txns[other].attempt != attempt {
                // The keys that it holds now are given up when it hears that the attempt was given
                // up.
                continue;
            }
            let parts = &self.txns[other].parts;
            let part = parts.iter().position(|(of, _)| *of == node);
            let part = part.expect("it waits where it has a part");
            if vote == Vote::Yes {
                self.read_part(other, part);
            }
            match part {
                0 => self.vote(other, attempt, vote == Vote::Yes, 0),
                part => self.send_vote(other, part, attempt, vote == Vote::Yes),
            }
        }
    }

    /// Commits: all participants have voted for it.
    pub(super) fn commit_all(&mut self, txn: TxnId) -> Result<(), RunError> {
        let parts = self.txns[txn].parts.clone();
        let writes = self.txns[txn].writes;
        if !writes {
            self.counts.reads += 1;
            self.check(txn)?;
        }
        if self.config.protocol == AtomicityProtocol::S2pl || parts.len() == 1 {
            self.reply(txn);
        }
        self.take_effect(txn, 0);
        self.txns[txn].missing = parts.len() - 1;
        for (part, (node, keys)) in parts.iter().enumerate().skip(1) {
            let service = self.cost(writes).participant(keys.len()) / 3.0;
            let size = self.sizes.commit.of(0);
            self.send(*node, size, service, ProtocolStep::Commit { txn, part });
        }
        if parts.len() == 1 {
            self.free.push(txn);
        }
        Ok(())
    }

    /// Sends the client the outcome of its transaction.
    pub(super) fn reply(&mut self, txn: TxnId) {
        let (client, writes) = (self.txns[txn].client, self.txns[txn].writes);
        let size = if writes {
            self.sizes.write_reply
        } else {
            self.sizes.read_reply
        };
        let width = self.config.width;
        let service = self.cost(writes).client(1, width) / 2.0;
        let thread = self.config.partitions + client;
        self.send(thread, size.of(width), service, ProtocolStep::Ended);
    }

    pub(super) fn take_effect(&mut self, txn: TxnId, part: usize) {
        let state = &self.txns[txn];
        if state.writes {
            let (node, keys) = state.parts[part].clone();
            let version = Version {
                id: state.id,
                keys: Rc::clone(&state.keys),
            };
            for &key in &*keys {
                self.partitions[node].install(key, version.clone());
            }
        }
        self.release(txn, part);
    }

    pub(super) fn commit(&mut self, txn: TxnId, part: usize) {
        self.take_effect(txn, part);
        let home = self.txns[txn].parts[0].0;
        let size = self.sizes.done.of(0);
        self.send(home, size, 0.0, ProtocolStep::Acknowledged { txn });
    }

    pub(super) fn acknowledged(&mut self, txn: TxnId) {
        self.txns[txn].missing -= 1;
        if self.txns[txn].missing == 0 {
            let home = self.txns[txn].parts[0].0;
            let service = self.coordinator_cost(txn) / 3.0;
            self.machine
                .go_on(home, service, ProtocolStep::Finish { txn });
        }
    }

    pub(super) fn finish(&mut self, txn: TxnId) {
        let (parts, writes) = (self.txns[txn].parts.clone(), self.txns[txn].writes);
        if self.config.protocol != AtomicityProtocol::S2pl {
            self.reply(txn);
        }
        for (node, keys) in parts.iter().skip(1) {
            let service = self.cost(writes).participant(keys.len()) / 6.0;
            let size = self.sizes.notice.of(0);
            self.send(*node, size, service, ProtocolStep::Forgotten);
        }
        self.free.push(txn);
    }
}
