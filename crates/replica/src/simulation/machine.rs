//! The activities of nodes: turns, messages, background work, crashes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{Abort, Epoch, NodeId};

use super::call::{CallOutcome, CallRequest, NodeLife, PendingOutcome, WaitingCall};
use super::reached::Point;
use super::world::{SimulatedEvent, World};
use crate::failure::MemberFailure;
use crate::member::MessageOutcome;
use crate::messages::MemberMessage;
use crate::time::Time;

/// The interval of a janitor's work.
const TIDY: Duration = Duration::from_millis(25);
/// The time that a node waits when its disk was full.
const RETRY: Duration = Duration::from_millis(50);
/// A state is compared with others' when its index is a multiple of this.
const COMPARED: u64 = 4;

impl World {
    pub(super) fn start(&mut self, node: usize) {
        let seed = self.random.u64(..);
        if let Err(failure) = self.nodes[node].start(&self.plan, seed) {
            let full = self.nodes[node].volume.refused() > 0;
            if self.nodes[node].power_fails || full && failure.is_temporary() {
                self.note(format_args!("node {} cannot start: {failure}", node + 1));
                return self.crash(node);
            }
            return self.fail(format!("node {} cannot start: {failure}", node + 1));
        }
        let life = self.nodes[node].life;
        let role = self.nodes[node]
            .running
            .as_ref()
            .map(|one| one.shared.role());
        self.note(format_args!("node {} starts as {role:?}", node + 1));
        self.compare(node);
        self.plan_turn(node, Duration::ZERO);
        self.after(TIDY, SimulatedEvent::Tidy(node, life));
    }

    pub(super) fn restart(&mut self, node: usize, life: NodeLife) {
        if self.nodes[node].life == life && self.nodes[node].running.is_none() {
            self.start(node);
        }
    }

    /// Schedules the next turn of a node's thread after a delay, unless an earlier one is
    /// scheduled.
    pub(super) fn plan_turn(&mut self, node: usize, delay: Duration) {
        let one = &mut self.nodes[node];
        let at = self.now + delay;
        let at = at.max(one.busy_until);
        if one.turn_at.is_none_or(|planned| at < planned) {
            one.turn_at = Some(at);
            let life = one.life;
            self.at(at, SimulatedEvent::Turn(node, life));
        }
    }

    /// Returns the time at which a paused node goes on; a little later for some.
    fn is_paused(&mut self, node: usize) -> Option<Duration> {
        self.is_before(self.nodes[node].paused_until)
    }

    fn is_before(&mut self, until: Duration) -> Option<Duration> {
        (self.now < until).then(|| until + Duration::from_micros(self.random.u64(..3000)))
    }

    pub(super) fn turn(&mut self, node: usize, life: NodeLife) {
        if self.nodes[node].life != life || self.nodes[node].turn_at != Some(self.now) {
            return;
        }
        let one = &self.nodes[node];
        let until = one.paused_until.max(one.busy_until);
        if let Some(later) = self.is_before(until) {
            self.nodes[node].turn_at = Some(later);
            return self.at(later, SimulatedEvent::Turn(node, life));
        }
        self.nodes[node].turn_at = None;
        let one = &mut self.nodes[node];
        let Some(running) = &mut one.running else {
            return;
        };
        running.woken.store(false, Ordering::SeqCst);
        let now = one.clock.now();
        let syncs = one.volume.syncs();
        let floor = running.member.log_floor();
        let lost_disk = one.lost_disk;
        let mut outcome = Ok(());
        // These messages leave before the syncs.
        let mut early = Vec::new();
        while let Some((from, bytes)) = running.inbox.pop_front() {
            outcome = outcome.and_then(|()| {
                match running.member.receive(from, &bytes, now)? {
                    MessageOutcome::Taken => {}
                    // Until the operator adds it anew, others believe that it has what its disk had.
                    MessageOutcome::Malformed(what) => {
                        assert!(lost_disk, "from node {from}: {what}")
                    }
                }
                Ok(())
            });
        }
        if outcome.is_ok() && self.now >= running.blocked_until {
            outcome = running.member.turn(now, &mut |outbox| early.append(outbox));
        }
        let syncs = (one.volume.syncs() - syncs) as u32;
        let was_refused = one.volume.is_full() && running.blocked_until > Duration::ZERO;
        if was_refused && running.member.log_floor() > floor {
            self.reached.hit(Point::LogCut);
        }
        if let Err(failure) = outcome {
            if self.nodes[node].power_fails {
                early.truncate(self.random.usize(..=early.len()));
            }
            self.failed(node, &failure);
        }
        for (to, bytes) in early {
            self.transfer(node, to, bytes, Duration::ZERO);
        }
        let slowness = self.nodes[node].slowness;
        let took = self.plan.sync.mul_f64(self.random.f64()) * syncs * slowness;
        self.nodes[node].busy_until = self.now + took;
        self.send(node, took);
        self.answer_waiters(node);
        self.look(node);
        self.go_on(node);
    }

    /// Schedules a node's next turn.
    fn go_on(&mut self, node: usize) {
        let one = &mut self.nodes[node];
        let Some(running) = &mut one.running else {
            return;
        };
        let life = one.life;
        let more = running.member.has_more() || !running.inbox.is_empty();
        let due = one.clock.until(running.member.due());
        let blocked = running.blocked_until.saturating_sub(self.now);
        if !running.jobs.lock().is_empty() && !std::mem::replace(&mut running.job_planned, true) {
            let delay = self.while_up_to(Duration::from_millis(60));
            self.after(delay, SimulatedEvent::Job(node, life));
        }
        let delay = if more { Duration::ZERO } else { due };
        self.plan_turn(node, delay.max(blocked));
    }

    /// Handles a failure after which a member cannot go on.
    fn failed(&mut self, node: usize, failure: &MemberFailure) {
        let one = &mut self.nodes[node];
        let is_full = matches!(failure, MemberFailure::Log(error) if error.is_full());
        if failure.is_temporary() && is_full {
            let running = one.running.as_mut().expect("it has failed");
            running.member.step_aside();
            running.blocked_until = self.now + RETRY;
            self.reached.hit(Point::DiskFull);
            return self.note(format_args!("node {} steps aside: {failure}", node + 1));
        }
        if matches!(failure, MemberFailure::Outdated { .. }) && one.lost_disk {
            self.note(format_args!("node {} stops: {failure}", node + 1));
            return self.crash(node);
        }
        if !one.power_fails {
            return self.fail(format!("node {}: {failure}", node + 1));
        }
        self.note(format_args!(
            "the power of node {} fails: {failure}",
            node + 1
        ));
        self.reached.hit(Point::PowerFailed);
        self.crash(node);
    }

    /// Sends a node's messages.
    fn send(&mut self, node: usize, took: Duration) {
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        let outbox: Vec<_> = std::mem::take(running.member.outbox());
        for (to, bytes) in outbox {
            self.transfer(node, to, bytes, took);
        }
    }

    fn transfer(&mut self, node: usize, to: NodeId, bytes: Vec<u8>, took: Duration) {
        let other = usize::from(to.0) - 1;
        let from = self.nodes[node].id;
        let arrivals = self
            .network
            .arrivals((node, other), self.now + took, &mut self.random);
        if self.trace.is_kept() {
            let what = MemberMessage::decode(&bytes).map(|envelope| describe(&envelope));
            let at = arrivals.first();
            self.trace.tell(
                self.now,
                format_args!("    {} → {} at {at:?}: {what:?}", node + 1, other + 1),
            );
        }
        for at in arrivals {
            self.at(at, SimulatedEvent::Arrive(other, from, bytes.clone()));
        }
        let down =
            self.nodes[other].running.is_none() || self.network.is_cut(node, other, self.now);
        if down
            && self.random.u8(..4) == 0
            && let Some(running) = &mut self.nodes[node].running
        {
            running.member.note_unreachable(to);
        }
    }

    pub(super) fn arrive(&mut self, node: usize, from: NodeId, bytes: Vec<u8>) {
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        running.inbox.push_back((from, bytes));
        self.plan_turn(node, Duration::ZERO);
    }

    /// Finishes background work of a node.
    pub(super) fn job(&mut self, node: usize, life: NodeLife) {
        if self.nodes[node].life != life {
            return;
        }
        if let Some(later) = self.is_paused(node) {
            return self.at(later, SimulatedEvent::Job(node, life));
        }
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        running.job_planned = false;
        let jobs = std::mem::take(&mut *running.jobs.lock());
        jobs.into_iter().for_each(|job| job());
        self.plan_turn(node, Duration::ZERO);
    }

    pub(super) fn tidy(&mut self, node: usize, life: NodeLife) {
        if self.nodes[node].life != life {
            return;
        }
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        running.janitor.tidy(running.shared.engine.applied(), 100);
        self.after(TIDY, SimulatedEvent::Tidy(node, life));
    }

    /// Ends a node at once. It starts again after a while.
    pub(super) fn crash(&mut self, node: usize) {
        self.note(format_args!("node {} crashes", node + 1));
        let waiters = self.nodes[node].crash(&mut self.random);
        for waiter in waiters {
            self.reply(&waiter.request, CallOutcome::Broken);
        }
        let limit = if self.is_calm() { 0 } else { 400 };
        let delay = self.while_up_to(Duration::from_millis(limit));
        let life = self.nodes[node].life;
        self.after(delay, SimulatedEvent::Restart(node, life));
    }

    /// Notes changes at a node.
    fn look(&mut self, node: usize) {
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        let applied = running.shared.engine.applied();
        let leads = running.shared.tickets.is_serving();
        let (was, led) = (running.applied, running.leads);
        running.applied = applied;
        running.leads = leads;
        let status = running.shared.status.lock();
        let (snapshot, compared) = (status.snapshot, status.compared);
        let difference = status.difference.clone();
        drop(status);
        if snapshot > std::mem::replace(&mut running.snapshot, snapshot) {
            self.reached.hit(Point::SnapshotMade);
        }
        let staged = running.shared.engine.staged_counts();
        let before = std::mem::replace(&mut running.staged, staged);
        if staged.0 > before.0 {
            self.reached.hit(Point::Followed);
        }
        if staged.1 > before.1 {
            self.reached.hit(Point::Dropped);
        }
        if compared > std::mem::replace(&mut running.compared, compared) {
            self.reached.hit(Point::Compared);
        }
        if let Some(difference) = difference {
            return self.fail(format!("node {}: {difference}", node + 1));
        }
        if leads != led {
            let term = running.shared.status.lock().term;
            self.note(format_args!(
                "node {} leads: {leads} in term {term}",
                node + 1
            ));
            self.reached.hit(if leads {
                Point::Elected
            } else {
                Point::Deposed
            });
        }
        if applied != was {
            self.note(format_args!("node {} has applied {}", node + 1, applied.0));
            if applied.0.is_multiple_of(COMPARED) {
                self.compare(node);
            }
        }
    }

    /// Compares a node's state with those of other nodes at the same index.
    pub(super) fn compare(&mut self, node: usize) {
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        let snapshot = running.shared.engine.snapshot();
        let index = snapshot.epoch().0;
        let state = running.workers[0].inner().state_hash(&snapshot);
        let sessions = hash(&running.shared.sessions.lock().encode());
        let witness = *self
            .witnesses
            .entry(index)
            .or_insert((node, state, sessions));
        if (witness.1, witness.2) != (state, sessions) {
            let what = if witness.1 == state {
                "sessions"
            } else {
                "state"
            };
            self.fail(format!(
                "the {what} of nodes {} and {} at entry {index} differ",
                witness.0 + 1,
                node + 1
            ));
        }
    }

    /// Delivers a call to a node.
    pub(super) fn call(&mut self, request: CallRequest) {
        let node = request.node;
        if self.nodes[node].running.is_none() {
            let refused = Abort::Elsewhere { leader: None };
            return self.reply(&request, CallOutcome::Abort(refused));
        }
        if let Some(later) = self.is_paused(node) {
            return self.at(later, SimulatedEvent::Call(request));
        }
        if self.nodes[node].leads() && self.nodes.iter().filter(|one| one.leads()).count() > 1 {
            self.reached.hit(Point::OldLeader);
        }
        let running = self.nodes[node].running.as_mut().expect("asked before");
        let turn = request.number as usize % running.workers.len();
        let (ticket, outcome) = request.call.run(&mut running.workers[turn], self.now);
        let woken = running.woken.load(Ordering::SeqCst);
        match outcome {
            PendingOutcome::Known(outcome) if ticket == Epoch::ZERO => {
                self.reply(&request, outcome)
            }
            outcome => running.waiters.push(WaitingCall {
                request,
                ticket,
                outcome,
            }),
        }
        if woken {
            self.plan_turn(node, Duration::from_micros(10));
        }
    }
}

/// Describes a message in one line.
fn describe(envelope: &MemberMessage<'_>) -> String {
    match envelope {
        MemberMessage::Raft(message) => {
            let (first, count) = (
                message.entries.first().map(|entry| entry.index),
                message.entries.len(),
            );
            format!(
                "{:?} {:x} → {:x}, term {}, log {}/{}, commit {}, reject {}, {count} from {first:?}",
                message.get_msg_type(),
                message.from,
                message.to,
                message.term,
                message.index,
                message.log_term,
                message.commit,
                message.reject,
            )
        }
        MemberMessage::SnapshotPiece {
            to,
            announces,
            total,
            offset,
            piece,
        } => {
            let index = announces.get_snapshot().get_metadata().index;
            format!(
                "{} of {total} bytes from {offset} of snapshot {index} for {to:x}",
                piece.len()
            )
        }
        other => format!("{other:?}"),
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, step)
}
