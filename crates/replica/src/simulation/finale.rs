//! The end of a run: the partition serves soon after the faults, every member catches up, and all
//! have the same state.

use std::time::Duration;

use super::call::Caller;
use super::job::{ACCOUNTS, COUNTERS, PlannedStep, PlannedTransaction, key};
use super::world::{SimulatedEvent, World};

/// The interval between two checks.
const PAUSE: Duration = Duration::from_millis(10);
/// The number of election time-outs within which the partition serves after the faults.
const SERVES_WITHIN: u32 = 10;
/// The number of election time-outs within which everything has come to rest.
const RESTS_WITHIN: u32 = 600;

impl World {
    /// Checks if everything has come to rest.
    pub(super) fn rest(&mut self) {
        self.after(PAUSE, SimulatedEvent::Rest);
        let since = self.now.saturating_sub(self.plan.calm);
        let served = self
            .run_end
            .committed
            .is_some_and(|(begun, _)| begun >= self.plan.calm);
        if served && !self.run_end.served {
            self.run_end.served = true;
            self.book.counts.served_ms.push(since.as_millis() as u64);
        }
        if !self.run_end.served {
            if since > self.plan.election * SERVES_WITHIN {
                self.fail(format!("nothing is served {since:?} after the faults"));
            }
            return;
        }
        if since > self.plan.election * RESTS_WITHIN {
            let what = self.what_is_left();
            return self.fail(format!("{since:?} after the faults: {what}"));
        }
        self.run_end.quiet = since > self.plan.election * 3;
        if !self.run_end.quiet || self.leader().is_none() || !self.what_is_left().is_empty() {
            return;
        }
        if !self.run_end.last_reads {
            self.run_end.last_reads = true;
            return self.read_last();
        }
        for node in 0..self.nodes.len() {
            self.compare(node);
        }
        let hashes: Vec<_> = self.witnesses.values().map(|one| (one.1, one.2)).collect();
        self.note(format_args!("{} states: {hashes:x?}", hashes.len()));
        self.book.counts.states += hashes.len() as u64;
        self.run_end.over = true;
    }

    /// Reads everything, and writes every key, which no transaction may hold any more.
    fn read_last(&mut self) {
        let keys = || (0..self.plan.keys).map(key);
        let mut jobs = vec![PlannedTransaction::new(vec![PlannedStep::Sweep])];
        jobs.push(PlannedTransaction::new(
            keys().map(PlannedStep::Get).collect(),
        ));
        if !self.plan.flushes {
            jobs.push(PlannedTransaction::new(
                (0..COUNTERS).map(PlannedStep::Counter).collect(),
            ));
            jobs.push(PlannedTransaction::new(
                (0..ACCOUNTS).map(PlannedStep::Balance).collect(),
            ));
            jobs.push(PlannedTransaction::new(
                (0..self.lent).map(PlannedStep::Look).collect(),
            ));
        }
        let mut value = self.value;
        let puts = keys().map(|key| {
            value += 1;
            PlannedStep::Put(key, value)
        });
        jobs.push(PlannedTransaction::new(puts.collect()));
        self.value = value;
        let client = self.new_client().scripted(jobs);
        self.clients.push(client);
        self.after(
            PAUSE,
            SimulatedEvent::Think(Caller::Client(self.clients.len() - 1)),
        );
    }

    /// Describes what is not at rest; empty if everything is.
    fn what_is_left(&self) -> String {
        let mut left = Vec::new();
        let clients = self.clients.iter().enumerate();
        left.extend(
            clients
                .filter(|(_, one)| !one.is_idle())
                .map(|(at, _)| format!("client {at} waits")),
        );
        let coordinators = self.coordinators.iter().enumerate();
        let busy = coordinators.filter(|(_, one)| !one.is_idle());
        left.extend(busy.map(|(at, _)| format!("coordinator {at} waits")));
        if !self.is_whole() {
            left.push("not all nodes are members".to_owned());
        }
        let Some(leader) = self.leader() else {
            return "no member leads".to_owned();
        };
        let status = |node: usize| {
            let running = self.nodes[node].running.as_ref();
            running.map(|one| one.shared.status.lock().clone())
        };
        let last = status(leader).map(|status| status.last);
        for node in 0..self.nodes.len() {
            let applied = status(node).map(|status| status.applied);
            if applied != last {
                left.push(format!(
                    "node {} has applied {applied:?} of {last:?}",
                    node + 1
                ));
            }
        }
        left.join(", ")
    }
}
