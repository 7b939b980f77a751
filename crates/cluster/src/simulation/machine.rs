//! A machine with a node: it steps, crashes and starts again.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::simulation::{Trace, draw};
use base::clock::ManualClock;
use base::participant::{Participant, State};
use base::{Epoch, NodeId, Op, TransactionId};
use fabric::sim::Endpoint;
use fabric::{Event as LinkEvent, Inbox, Link, Messages};
use fastrand::Rng;

use super::book::Book;
use super::client::Answered;
use super::keys::DEPOSIT;
use super::member::Member;
use super::partition::Partition;
use super::plan::Faults;
use super::reached::Point;
use super::tap::{Said, Tap};
use super::world::{BEGIN_MS, Event, Life, World};
use crate::codec;
use crate::node::Node;
use crate::options::NodeOptions;
use crate::ramp::Algorithm;

/// The origin of a transaction at a node: a client and its life, or the finale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ticket {
    Client(usize, Life),
    Finale(u32),
}

/// A machine: the part of it that survives a crash, and the part that does not.
pub(super) struct Machine {
    pub(super) id: NodeId,
    pub(super) life: Life,
    /// How far its clock is ahead.
    pub(super) ahead_ms: i64,
    pub(super) clock: Arc<ManualClock>,
    pub(super) book: Rc<RefCell<Book>>,
    /// The newest epoch that the log knows when it is read again.
    newest: Epoch,
    pub(super) slow_disk: bool,
    pub(super) running: Option<Running>,
}

/// A process.
pub(super) struct Running {
    pub(super) node: Node<Ticket>,
    pub(super) partition: Member,
    endpoint: Endpoint,
    inbox: Inbox,
    pub(super) is_syncing: bool,
    wake_at: Option<Duration>,
    /// Attempts for which it has asked votes, and which it has not decided.
    voting: BTreeSet<TransactionId>,
}

/// The next work of a node.
enum Task<'a> {
    Turn,
    Receive,
    Begin(&'a [Op<'a>], Ticket),
}

impl Machine {
    pub(super) fn new(id: NodeId, random: &mut Rng) -> Machine {
        Machine {
            id,
            life: 0,
            ahead_ms: random.i64(-30..=30),
            clock: Arc::new(ManualClock::new(BEGIN_MS)),
            book: Rc::default(),
            newest: Epoch::ZERO,
            slow_disk: false,
            running: None,
        }
    }

    pub(super) fn set_clock(&self, now: Duration) {
        self.book.borrow_mut().now = now;
        let time = BEGIN_MS + now.as_millis() as u64;
        self.clock.set(time.saturating_add_signed(self.ahead_ms));
    }
}

fn note_event(trace: &mut Trace, now: Duration, node: NodeId, link: Link, event: &LinkEvent<'_>) {
    let link = link.0;
    match event {
        LinkEvent::Message(bytes) => match codec::decode(bytes) {
            Ok(message) => {
                let said = Said(&message);
                trace.note(now, format_args!("node {node} receives on {link}: {said}"));
            }
            Err(error) => trace.note(now, format_args!("node {node} receives {error}")),
        },
        other => trace.note(now, format_args!("node {node}, link {link}: {other:?}")),
    }
}

impl World {
    /// Starts a machine's process.
    pub(super) fn start(&mut self, at: usize) {
        let unique = self.random.u64(..);
        let group = self.group_at(at);
        let machine = &mut self.machines[at];
        machine.set_clock(self.now);
        let endpoint = match machine.life {
            0 => self.network.endpoint(machine.id),
            _ => self.network.restart(machine.id),
        };
        machine.life += 1;
        let mut partition = if group.is_some() {
            Member::of_several(&machine.clock)
        } else {
            match Partition::open(&machine.book, &machine.clock, machine.newest) {
                Ok(partition) => Member::alone(partition, &machine.clock),
                Err(error) => {
                    let id = machine.id;
                    return self.fail(format!("node {id} does not start: {error}"));
                }
            }
        };
        for (_, state) in partition.undecided() {
            let point = match state {
                State::Prepared(_) => Point::RestoredPrepared,
                _ => Point::RestoredCommitted,
            };
            self.reached.add(point, 1);
        }
        let options = NodeOptions {
            topology: Arc::clone(&self.topology),
            me: machine.id,
            unique,
            resolver: true,
            waiting_prepares: crate::WaitingPrepares::default(),
            leaders: Arc::new(crate::Leaders::new(&self.topology)),
            timeouts: self.plan.timeouts,
            ramp: Algorithm::ALL[self.random.usize(..3)],
            published: None,
        };
        machine.running = Some(Running {
            node: Node::new(options, self.now),
            partition,
            endpoint,
            inbox: Inbox::default(),
            is_syncing: false,
            wake_at: None,
            voting: BTreeSet::new(),
        });
        let (id, life) = (machine.id, machine.life);
        self.trace
            .note(self.now, format_args!("node {id} starts, life {life}"));
        self.after(Duration::from_millis(10), Event::Idle(at, life));
        if let Some(group) = group {
            self.spread(group);
        }
        self.turn(at);
    }

    pub(super) fn turn(&mut self, at: usize) {
        self.do_task(at, &Task::Turn);
    }

    /// Puts the deposit into every account.
    pub(super) fn open_accounts(&mut self) {
        let deposit = DEPOSIT.to_string();
        for machine in &mut self.machines {
            let own = self.topology.partition_at(machine.id);
            let here = self
                .keys
                .accounts
                .iter()
                .filter(|account| Some(account.partition) == own);
            let ops: Vec<Op<'_>> = here
                .map(|account| Op::put(account.name.as_bytes(), deposit.as_bytes()))
                .collect();
            let running = machine.running.as_mut().expect("it has just started");
            if let (Some(led), false) = (running.partition.led(), ops.is_empty()) {
                led.load(&ops);
            }
        }
    }

    /// Ends a machine's process without notice.
    pub(super) fn crash(&mut self, at: usize) {
        if let (Some(group), true) = (self.group_at(at), self.is_leader(at)) {
            self.depose(group);
        }
        let machine = &mut self.machines[at];
        let Some(mut running) = machine.running.take() else {
            return;
        };
        let is_of_several = self.group_at(at).is_some();
        let undecided = running.partition.undecided();
        let prepared = |(_, state): &(_, State)| matches!(state, State::Prepared(_));
        let was_prepared = undecided.iter().any(prepared);
        self.count(&running);
        let machine = &mut self.machines[at];
        let led = running.partition.into_led();
        let mut lost = 0;
        if let (Some(partition), false) = (led, is_of_several) {
            (lost, machine.newest) = partition.crash(&mut self.random);
        }
        let (id, life) = (machine.id, machine.life);
        self.network.crash(id);
        self.trace.note(
            self.now,
            format_args!("node {id} crashes; {lost} changes are lost"),
        );
        self.reached.add(Point::LostEpochs, u64::from(lost > 0));
        self.reached
            .add(Point::ParticipantCrash, u64::from(was_prepared));
        self.reached.add(
            Point::CoordinatorCrash,
            u64::from(!running.voting.is_empty()),
        );
        self.lose_clients_of(at);
        let pause = self.while_up_to(Duration::from_millis(150));
        self.after(pause, Event::Restart(at, life));
    }

    pub(super) fn restart(&mut self, at: usize, life: Life) {
        let machine = &self.machines[at];
        if machine.life == life && machine.running.is_none() {
            self.start(at);
        }
    }

    /// Counts the points that a process has reached.
    pub(super) fn count(&mut self, running: &Running) {
        let counters = running.node.counters();
        let (held, overtaken) = running.partition.met();
        for (point, times) in [
            (Point::HomeCommitted, counters.resolved_committed),
            (Point::HomeAborted, counters.resolved_aborted),
            (Point::Abandoned, counters.abandoned),
            (Point::Died, counters.died),
            (Point::Waited, counters.waited),
            (Point::Refused, counters.refused),
            (Point::Redirected, counters.redirected),
            (Point::LostAnswer, counters.lost),
            (Point::HeldOcc, held),
            (Point::Overtaken, overtaken),
            (Point::SecondRound, counters.ramp_second_rounds),
            (Point::RampWrite, counters.ramp_writes),
            (Point::RampOvertaken, counters.ramp_overtaken),
            (Point::CommitWaited, counters.commits_waited),
        ] {
            self.reached.add(point, times);
        }
    }

    pub(super) fn wake(&mut self, at: usize, life: Life) {
        let now = self.now;
        let machine = &mut self.machines[at];
        if let (true, Some(running)) = (machine.life == life, &mut machine.running)
            && running.wake_at == Some(now)
        {
            running.wake_at = None;
            self.turn(at);
        }
    }

    pub(super) fn synced(&mut self, at: usize, life: Life, epoch: Epoch, leadership: u64) {
        let is_leader = self.is_leader(at);
        let machine = &mut self.machines[at];
        if let (true, Some(running)) = (machine.life == life, &mut machine.running)
            && running.partition.leadership() == leadership
        {
            running.is_syncing = false;
            if !is_leader {
                return;
            }
            running.partition.synced(epoch);
            let id = machine.id;
            self.trace
                .note(self.now, format_args!("node {id} has synced epoch {epoch}"));
            self.turn(at);
        }
    }

    pub(super) fn idle(&mut self, at: usize, life: Life) {
        let machine = &mut self.machines[at];
        if let (true, Some(running)) = (machine.life == life, &mut machine.running) {
            if let Some(led) = running.partition.led() {
                led.tidy();
            }
            if self.random.u8(..4) == 0 {
                self.sync(at);
            }
            self.after(Duration::from_millis(10), Event::Idle(at, life));
        }
    }

    /// Hands a node the messages that have arrived.
    pub(super) fn receive_at(&mut self, at: usize) {
        if let Some(running) = &mut self.machines[at].running {
            running.endpoint.receive(&mut running.inbox);
            if !running.inbox.is_empty() {
                self.do_task(at, &Task::Receive);
            }
        }
    }

    /// Lets a node begin a transaction. Returns `false` if the machine is down.
    pub(super) fn begin(&mut self, at: usize, ops: &[Op<'_>], ticket: Ticket) -> bool {
        let is_up = self.machines[at].running.is_some();
        if is_up {
            self.do_task(at, &Task::Begin(ops, ticket));
        }
        is_up
    }

    /// Runs a step of a node: it handles an event, continues what can go on, and sends. It may crash on
    /// the way.
    fn do_task(&mut self, at: usize, task: &Task<'_>) {
        let now = self.now;
        // There are no faults before the accounts are there, either.
        let is_safe = self.is_calm() || now.is_zero();
        let faults = if is_safe {
            Faults::default()
        } else {
            self.plan.faults
        };
        let is_leader = self.is_leader(at);
        for group in &self.groups {
            group.book.borrow_mut().now = now;
        }
        let machine = &mut self.machines[at];
        machine.set_clock(now);
        let Some(running) = &mut machine.running else {
            return;
        };
        let Running {
            node,
            partition,
            endpoint,
            inbox,
            voting,
            ..
        } = running;
        let is_stale = partition.leads().is_ok() && !is_leader;
        let is_asked = !matches!(task, Task::Turn);
        self.reached
            .add(Point::Stale, u64::from(is_stale && is_asked));
        if let Some(led) = partition.led() {
            led.refresh();
        }
        match task {
            Task::Turn => {}
            Task::Receive => {
                for (link, event) in inbox.iter() {
                    note_event(&mut self.trace, now, machine.id, link, &event);
                    node.event(partition, link, event, now);
                }
                inbox.clear();
            }
            Task::Begin(ops, ticket) => node.begin(partition, ops, *ticket, now),
        }
        node.turn(partition, now);
        let crashes = draw::chance(&mut self.random, faults.crash_at_step);
        let mut tap = Tap {
            node: machine.id,
            now,
            endpoint,
            trace: &mut self.trace,
            left: crashes.then(|| self.random.usize(..3)),
            random: &mut self.random,
            crash_share: faults.crash_at_protocol,
            voting,
        };
        node.pump(&mut tap);
        tap.flush();
        let crashes = tap.left.is_some();
        let finished: Vec<_> = node.finished().collect();
        for finished in finished {
            // A message that a node sends in the moment of its crash may still arrive.
            if !crashes || self.random.bool() {
                self.hear(at, finished.caller, Answered(finished.outcome));
            }
        }
        if crashes {
            return self.crash(at);
        }
        self.obey(at);
        if let (Some(group), true) = (self.group_at(at), is_leader && is_asked)
            && draw::chance(&mut self.random, faults.depose_at_step)
        {
            self.depose(group);
        }
    }

    /// Schedules the events that a node waits for.
    fn obey(&mut self, at: usize) {
        let now = self.now;
        let machine = &mut self.machines[at];
        let life = machine.life;
        let Some(running) = &mut machine.running else {
            return;
        };
        let wants = running.node.wake_conditions();
        let durable = running.partition.durable();
        if let Some(wake_at) = wants.wake_at {
            let wake_at = wake_at.max(now + Duration::from_micros(1));
            if running
                .wake_at
                .is_none_or(|other| wake_at < other || other <= now)
            {
                running.wake_at = Some(wake_at);
                self.after(wake_at - now, Event::Wake(at, life));
            }
        }
        if wants.epoch.is_some_and(|epoch| epoch > durable) {
            self.sync(at);
        }
    }

    /// Begins a sync of a node's log, unless one is under way.
    fn sync(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        let (life, slow) = (machine.life, machine.slow_disk);
        let Some(running) = &mut machine.running else {
            return;
        };
        if std::mem::replace(&mut running.is_syncing, true) {
            return;
        }
        let leadership = running.partition.leadership();
        let Some(led) = running.partition.led() else {
            running.is_syncing = false;
            return;
        };
        let epoch = led.begin_sync();
        let limit = if slow {
            Duration::from_millis(200)
        } else {
            self.plan.sync
        };
        let time = self.while_up_to(limit);
        self.after(time, Event::Synced(at, life, epoch, leadership));
    }
}
