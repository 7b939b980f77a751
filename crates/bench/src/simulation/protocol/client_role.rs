//! Clients, and reads of RAMP, which they run themselves.

use crate::error::RunError;
use crate::simulation::partition::{TxnId, Version};
use crate::systems::AtomicityProtocol;

use super::{ProtocolSimulation, ProtocolStep};

impl ProtocolSimulation<'_> {
    pub(super) fn begin(&mut self, client: usize) {
        self.begun[client] = self.machine.now();
        self.counts.begun += 1;
        let writes = self.rng.f64() >= self.config.reads;
        let txn = self.draw(client, writes);
        let (servers, keys) = match self.asks_all(txn) {
            true => (self.txns[txn].parts.len(), self.config.width),
            false => (1, self.config.width),
        };
        let rounds = if self.is_small(txn) { 2.0 } else { 1.0 };
        let service = self.cost(writes).client(servers, keys) / 2.0 / rounds;
        let thread = self.config.partitions + client;
        self.machine
            .go_on(thread, service, ProtocolStep::Asked { txn });
    }

    /// Returns `true` if the client asks all partitions itself.
    pub(super) fn asks_all(&self, txn: TxnId) -> bool {
        self.config.protocol != AtomicityProtocol::S2pl && !self.txns[txn].writes
    }

    /// Returns `true` if it takes two rounds in any case.
    pub(super) fn is_small(&self, txn: TxnId) -> bool {
        self.config.protocol == AtomicityProtocol::RampS && !self.txns[txn].writes
    }

    /// Handles the end of the client's work of sending its requests.
    pub(super) fn ask(&mut self, txn: TxnId) {
        if self.asks_all(txn) {
            return self.ask_round(txn);
        }
        let (writes, node) = (self.txns[txn].writes, self.txns[txn].parts[0].0);
        let size = if writes {
            self.sizes.write
        } else {
            self.sizes.read
        };
        let service = self.start_cost(txn);
        self.send(
            node,
            size.of(self.config.width),
            service,
            ProtocolStep::Start { txn },
        );
    }

    pub(super) fn ask_round(&mut self, txn: TxnId) {
        let state = &self.txns[txn];
        let (small, second) = (self.is_small(txn), state.second_round);
        let mut asked = Vec::new();
        for (part, (node, keys)) in state.parts.iter().enumerate() {
            let wanted = |key: &&u64| small || state.wanted.iter().any(|(other, _)| other == *key);
            let keys = match second {
                true => keys.iter().filter(wanted).count(),
                false => keys.len(),
            };
            if keys > 0 {
                asked.push((part, *node, keys));
            }
        }
        self.txns[txn].missing = asked.len();
        let size = match (small, second) {
            (true, false) => self.sizes.ask_id,
            (_, true) => self.sizes.ask_one_of,
            (false, false) => self.sizes.ask_newest,
        };
        let rounds = if small { 2.0 } else { 1.0 };
        for (part, node, keys) in asked {
            let service = self.config.costs.read.participant(keys) / rounds;
            self.send(
                node,
                size.of(keys),
                service,
                ProtocolStep::Look { txn, part },
            );
        }
    }

    /// Answers as a partition with the newest versions, or with the requested ones.
    pub(super) fn look(&mut self, txn: TxnId, part: usize) {
        let (node, keys) = self.txns[txn].parts[part].clone();
        let second = self.txns[txn].second_round;
        if !second {
            for &key in &*keys {
                if let Some(version) = self.partitions[node].newest(key) {
                    self.txns[txn].seen.insert(key, version.clone());
                }
            }
        }
        let small = self.is_small(txn);
        let state = &self.txns[txn];
        let is_asked =
            |key: &&u64| !second || small || state.wanted.iter().any(|(other, _)| other == *key);
        let asked: Vec<u64> = keys.iter().filter(is_asked).copied().collect();
        let size = match small && !second {
            true => self.sizes.found_id,
            false => self.sizes.found_newest,
        };
        let has_version = |key: &&u64| state.seen.contains_key(key);
        let told = match small && !second {
            true => 0,
            false => asked.iter().filter(has_version).count(),
        };
        let bytes = size.of(asked.len()) + told * self.sizes.siblings;
        let client = self.config.partitions + state.client;
        let servers = state.parts.len();
        let whole = self.config.costs.read.client(servers, self.config.width);
        let rounds = if small { 2.0 } else { 1.0 };
        let service = match second && !small {
            // The work beyond the first round if a part is asked once more.
            true => self.config.costs.read.client.of([0, 1, asked.len(), 0]),
            false => whole / 2.0 / rounds / servers as f64,
        };
        self.send(client, bytes, service, ProtocolStep::Seen { txn });
    }

    pub(super) fn seen(&mut self, txn: TxnId) -> Result<(), RunError> {
        self.txns[txn].missing -= 1;
        if self.txns[txn].missing > 0 {
            return Ok(());
        }
        let client = self.txns[txn].client;
        if !self.txns[txn].second_round && self.wants_more(txn) {
            self.txns[txn].second_round = true;
            let servers = self.txns[txn].parts.len();
            let whole = self.config.costs.read.client(servers, self.config.width);
            let service = if self.is_small(txn) { whole / 4.0 } else { 0.0 };
            let thread = self.config.partitions + client;
            self.machine
                .go_on(thread, service, ProtocolStep::Asked { txn });
            return Ok(());
        }
        let state = &mut self.txns[txn];
        for (key, version) in std::mem::take(&mut state.wanted) {
            state.seen.insert(key, version);
        }
        self.counts.reads += 1;
        self.counts.one_round += u64::from(!state.second_round);
        self.check(txn)?;
        self.free.push(txn);
        self.ended(client);
        Ok(())
    }

    /// Returns `true` if there is a second round, after noting which versions it brings.
    pub(super) fn wants_more(&mut self, txn: TxnId) -> bool {
        let small = self.is_small(txn);
        if self.config.plant {
            return false;
        }
        let hybrid = self.config.protocol == AtomicityProtocol::RampH;
        let (errors, rng) = (self.errors, &mut self.rng);
        let state = &mut self.txns[txn];
        for &key in &*state.keys {
            let own = state.seen.get(&key);
            let newer = state.seen.values();
            let newer = newer.filter(|version| own.is_none_or(|own| own.id < version.id));
            let (mut best, mut in_error) = (None, false);
            for version in newer {
                if version.keys.contains(&key) {
                    let newest = best.is_none_or(|best: &Version| best.id < version.id);
                    best = if newest { Some(version) } else { best };
                } else {
                    in_error |= hybrid && rng.f64() < errors;
                }
            }
            match (best, own) {
                (Some(version), _) => state.wanted.push((key, version.clone())),
                (None, Some(own)) if in_error => state.wanted.push((key, own.clone())),
                _ => {}
            }
        }
        small || !state.wanted.is_empty()
    }

    /// Checks that a read saw all or nothing of every write.
    pub(super) fn check(&self, txn: TxnId) -> Result<(), RunError> {
        let seen = &self.txns[txn].seen;
        for version in seen.values() {
            for key in &*self.txns[txn].keys {
                let id = seen.get(key).map_or(0, |other| other.id);
                if id < version.id && version.keys.contains(key) {
                    return Err(RunError::Failed(format!(
                        "a simulated read saw write {} at one key, and write {id} at another one of it",
                        version.id
                    )));
                }
            }
        }
        Ok(())
    }

    /// Gives the client the outcome, and begins its next transaction.
    pub(super) fn ended(&mut self, client: usize) {
        self.counts.ended += 1;
        self.counts.latency += self.machine.now() - self.begun[client];
        self.begin(client);
    }
}
