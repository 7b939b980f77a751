//! All machines, and the leaders of replicated partitions: machines step, crash and start again, and
//! leaders change.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::simulation::{Trace, draw};
use base::participant::{DurableEpochs, Leadership, State, TwoPhaseCommit};
use base::{Epoch, NodeId, Op, PartitionId};
use fabric::{Event as LinkEvent, Inbox, Link};

use super::coverage::Point;
use super::engine_partition::EnginePartition;
use super::environment::{CallerId, ClientAnswer, Environment, Event, Incarnation};
use super::keys::DEPOSIT;
use super::machine::{MachineProcess, SimulatedMachine};
use super::memory_log::MemoryLog;
use super::outgoing_messages::{MessageText, OutgoingMessages};
use super::partition_replica::PartitionReplica;
use super::plan::FaultPlan;
use super::replica_group::ReplicaGroup;
use crate::codec;
use crate::node::Node;
use crate::options::NodeOptions;
use crate::ramp::Algorithm;
use crate::topology::Topology;

/// An event at a machine that concerns clients.
pub(super) enum MachineOutput {
    /// A node has answered one of its callers.
    Replied(usize, CallerId, ClientAnswer),
    /// A machine has crashed.
    Crashed(usize),
}

/// The machines, and the groups of them that hold a partition together.
pub(super) struct SimulatedMachines {
    pub(super) machines: Vec<SimulatedMachine>,
    pub(super) groups: Vec<ReplicaGroup>,
    pub(super) outputs: Vec<MachineOutput>,
}

/// The next work of a node.
enum Task<'a> {
    Turn,
    Receive,
    Begin(&'a [Op<'a>], CallerId),
}

impl SimulatedMachines {
    /// Creates the machines of a topology; none of them runs.
    pub(super) fn new(env: &mut Environment) -> SimulatedMachines {
        let nodes = env.topology.nodes().to_vec().into_iter();
        let machines = nodes.map(|info| SimulatedMachine::new(info.id, &mut env.random));
        SimulatedMachines {
            machines: machines.collect(),
            groups: ReplicaGroup::of_topology(&env.topology),
            outputs: Vec::new(),
        }
    }

    /// Starts all machines, and lets partitions have leaders.
    pub(super) fn start_all(&mut self, env: &mut Environment) {
        for at in 0..self.machines.len() {
            self.start(env, at);
        }
        for group in 0..self.groups.len() {
            self.elect(env, group, 0);
        }
        self.open_accounts(env);
    }

    /// Starts a machine's process.
    pub(super) fn start(&mut self, env: &mut Environment, at: usize) {
        let unique = env.random.u64(..);
        let group = self.group_at(at);
        let machine = &mut self.machines[at];
        machine.set_clock(env.now);
        let endpoint = match machine.life {
            0 => env.network.endpoint(machine.id),
            _ => env.network.restart(machine.id),
        };
        machine.life += 1;
        let mut partition = if group.is_some() {
            PartitionReplica::of_several(&machine.clock)
        } else {
            match EnginePartition::open(&machine.log, &machine.clock, machine.newest) {
                Ok(partition) => PartitionReplica::alone(partition, &machine.clock),
                Err(error) => {
                    let id = machine.id;
                    return env.fail(format!("node {id} does not start: {error}"));
                }
            }
        };
        for (_, state) in partition.undecided() {
            let point = match state {
                State::Prepared(_) => Point::RestoredPrepared,
                _ => Point::RestoredCommitted,
            };
            env.reached.add(point, 1);
        }
        let options = NodeOptions {
            topology: Arc::clone(&env.topology),
            me: machine.id,
            unique,
            resolver: true,
            waiting_prepares: crate::WaitingPrepares::default(),
            leaders: Arc::new(crate::Leaders::new(&env.topology)),
            timeouts: env.plan.timeouts,
            ramp: Algorithm::ALL[env.random.usize(..3)],
            published: None,
        };
        machine.running = Some(MachineProcess {
            node: Node::new(options, env.now),
            partition,
            endpoint,
            inbox: Inbox::default(),
            is_syncing: false,
            wake_at: None,
            voting: BTreeSet::new(),
        });
        let (id, life) = (machine.id, machine.life);
        env.trace
            .note(env.now, format_args!("node {id} starts, life {life}"));
        env.after(Duration::from_millis(10), Event::Idle(at, life));
        if let Some(group) = group {
            self.spread(env, group);
        }
        self.turn(env, at);
    }

    pub(super) fn turn(&mut self, env: &mut Environment, at: usize) {
        self.do_task(env, at, &Task::Turn);
    }

    /// Puts the deposit into every account.
    pub(super) fn open_accounts(&mut self, env: &mut Environment) {
        let deposit = DEPOSIT.to_string();
        for machine in &mut self.machines {
            let own = env.topology.partition_at(machine.id);
            let here = env
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
    pub(super) fn crash(&mut self, env: &mut Environment, at: usize) {
        if let (Some(group), true) = (self.group_at(at), self.is_leader(at)) {
            self.depose(env, group);
        }
        let machine = &mut self.machines[at];
        let Some(mut running) = machine.running.take() else {
            return;
        };
        let is_of_several = self.group_at(at).is_some();
        let undecided = running.partition.undecided();
        let prepared = |(_, state): &(_, State)| matches!(state, State::Prepared(_));
        let was_prepared = undecided.iter().any(prepared);
        self.count(env, &running);
        let machine = &mut self.machines[at];
        let led = running.partition.into_led();
        let mut lost = 0;
        if let (Some(partition), false) = (led, is_of_several) {
            (lost, machine.newest) = partition.crash(&mut env.random);
        }
        let (id, life) = (machine.id, machine.life);
        env.network.crash(id);
        env.trace.note(
            env.now,
            format_args!("node {id} crashes; {lost} changes are lost"),
        );
        env.reached.add(Point::LostEpochs, u64::from(lost > 0));
        env.reached
            .add(Point::ParticipantCrash, u64::from(was_prepared));
        env.reached.add(
            Point::CoordinatorCrash,
            u64::from(!running.voting.is_empty()),
        );
        self.outputs.push(MachineOutput::Crashed(at));
        let pause = env.while_up_to(Duration::from_millis(150));
        env.after(pause, Event::Restart(at, life));
    }

    pub(super) fn restart(&mut self, env: &mut Environment, at: usize, life: Incarnation) {
        let machine = &self.machines[at];
        if machine.life == life && machine.running.is_none() {
            self.start(env, at);
        }
    }

    /// Counts the points that a process has reached.
    pub(super) fn count(&mut self, env: &mut Environment, running: &MachineProcess) {
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
            env.reached.add(point, times);
        }
    }

    pub(super) fn wake(&mut self, env: &mut Environment, at: usize, life: Incarnation) {
        let now = env.now;
        let machine = &mut self.machines[at];
        if let (true, Some(running)) = (machine.life == life, &mut machine.running)
            && running.wake_at == Some(now)
        {
            running.wake_at = None;
            self.turn(env, at);
        }
    }

    pub(super) fn synced(
        &mut self,
        env: &mut Environment,
        at: usize,
        life: Incarnation,
        epoch: Epoch,
        leadership: u64,
    ) {
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
            env.trace
                .note(env.now, format_args!("node {id} has synced epoch {epoch}"));
            self.turn(env, at);
        }
    }

    pub(super) fn idle(&mut self, env: &mut Environment, at: usize, life: Incarnation) {
        let machine = &mut self.machines[at];
        if let (true, Some(running)) = (machine.life == life, &mut machine.running) {
            if let Some(led) = running.partition.led() {
                led.tidy();
            }
            if env.random.u8(..4) == 0 {
                self.sync(env, at);
            }
            env.after(Duration::from_millis(10), Event::Idle(at, life));
        }
    }

    /// Hands a node the messages that have arrived.
    pub(super) fn receive_at(&mut self, env: &mut Environment, at: usize) {
        if let Some(running) = &mut self.machines[at].running {
            running.endpoint.receive(&mut running.inbox);
            if !running.inbox.is_empty() {
                self.do_task(env, at, &Task::Receive);
            }
        }
    }

    /// Lets a node begin a transaction. Returns `false` if the machine is down.
    pub(super) fn begin(
        &mut self,
        env: &mut Environment,
        at: usize,
        ops: &[Op<'_>],
        ticket: CallerId,
    ) -> bool {
        let is_up = self.machines[at].running.is_some();
        if is_up {
            self.do_task(env, at, &Task::Begin(ops, ticket));
        }
        is_up
    }

    /// Runs a step of a node: it handles an event, continues what can go on, and sends. It may crash on
    /// the way.
    fn do_task(&mut self, env: &mut Environment, at: usize, task: &Task<'_>) {
        let now = env.now;
        // There are no faults before the accounts are there, either.
        let is_safe = env.have_faults_stopped() || now.is_zero();
        let faults = if is_safe {
            FaultPlan::default()
        } else {
            env.plan.faults
        };
        let is_leader = self.is_leader(at);
        for group in &self.groups {
            group.log.borrow_mut().now = now;
        }
        let machine = &mut self.machines[at];
        machine.set_clock(now);
        let Some(running) = &mut machine.running else {
            return;
        };
        let MachineProcess {
            node,
            partition,
            endpoint,
            inbox,
            voting,
            ..
        } = running;
        let is_stale = partition.leads().is_ok() && !is_leader;
        let is_asked = !matches!(task, Task::Turn);
        env.reached
            .add(Point::Stale, u64::from(is_stale && is_asked));
        if let Some(led) = partition.led() {
            led.refresh();
        }
        match task {
            Task::Turn => {}
            Task::Receive => {
                for (link, event) in inbox.iter() {
                    note_event(&mut env.trace, now, machine.id, link, &event);
                    node.event(partition, link, event, now);
                }
                inbox.clear();
            }
            Task::Begin(ops, ticket) => node.begin(partition, ops, *ticket, now),
        }
        node.turn(partition, now);
        let crashes = draw::chance(&mut env.random, faults.crash_at_step);
        let mut outgoing = OutgoingMessages {
            node: machine.id,
            now,
            endpoint,
            trace: &mut env.trace,
            left: crashes.then(|| env.random.usize(..3)),
            random: &mut env.random,
            crash_share: faults.crash_at_protocol,
            voting,
        };
        node.pump(&mut outgoing);
        outgoing.endpoint.flush();
        let crashes = outgoing.left.is_some();
        let finished: Vec<_> = node.finished().collect();
        for finished in finished {
            // A message that a node sends in the moment of its crash may still arrive.
            if !crashes || env.random.bool() {
                let answered = ClientAnswer(finished.outcome);
                self.outputs
                    .push(MachineOutput::Replied(at, finished.caller, answered));
            }
        }
        if crashes {
            return self.crash(env, at);
        }
        self.schedule_wake(env, at);
        if let (Some(group), true) = (self.group_at(at), is_leader && is_asked)
            && draw::chance(&mut env.random, faults.depose_at_step)
        {
            self.depose(env, group);
        }
    }

    /// Schedules the events that a node waits for.
    fn schedule_wake(&mut self, env: &mut Environment, at: usize) {
        let now = env.now;
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
                env.after(wake_at - now, Event::Wake(at, life));
            }
        }
        if wants.epoch.is_some_and(|epoch| epoch > durable) {
            self.sync(env, at);
        }
    }

    /// Begins a sync of a node's log, unless one is under way.
    fn sync(&mut self, env: &mut Environment, at: usize) {
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
            env.plan.sync
        };
        let time = env.while_up_to(limit);
        env.after(time, Event::Synced(at, life, epoch, leadership));
    }

    /// Returns the group to which a machine belongs.
    pub(super) fn group_at(&self, at: usize) -> Option<usize> {
        let groups = &mut self.groups.iter();
        groups.position(|group| group.members.contains(&at))
    }

    /// Returns `true` if a machine leads its partition, or holds it alone. The machine itself may
    /// believe otherwise.
    pub(super) fn is_leader(&self, at: usize) -> bool {
        let group = self.group_at(at).map(|group| &self.groups[group]);
        group.is_none_or(|group| group.leader == Some(at))
    }

    /// Takes the leadership from a group's leader, if it has one.
    pub(super) fn depose(&mut self, env: &mut Environment, number: usize) {
        let group = &mut self.groups[number];
        let Some(at) = group.leader.take() else {
            return;
        };
        group.term += 1;
        if let Some(running) = &self.machines[at].running {
            group.newest = group.newest.max(running.partition.newest());
        }
        let (branch, kept, lost) = group.log.borrow().branch(&mut env.random);
        group.log = Rc::new(RefCell::new(branch));
        let (of, term) = (group.of, group.term);
        let machine = &mut self.machines[at];
        let (id, life) = (machine.id, machine.life);
        env.trace.note(
            env.now,
            format_args!(
                "{id} does not lead {of} any more; of what is open, {kept} is kept, {lost} lost"
            ),
        );
        for (point, times) in [(Point::Kept, kept), (Point::Lost, lost)] {
            env.reached.add(point, u64::from(times > 0));
        }
        let pause = env.while_up_to(Duration::from_millis(60));
        env.after(pause, Event::Elect(number, term));
        if env.random.bool() {
            self.step_down(env, at);
        } else if let Some(running) = &self.machines[at].running {
            let leadership = running.partition.leadership();
            let time = env.while_up_to(Duration::from_millis(150));
            env.after(time, Event::Notice(at, life, leadership));
        }
    }

    /// Tells a machine that it does not lead any more.
    pub(super) fn step_down(&mut self, env: &mut Environment, at: usize) {
        let group = self.group_at(at).expect("it is one of several");
        if let Some(running) = &mut self.machines[at].running {
            let group = &mut self.groups[group];
            group.newest = group.newest.max(running.partition.newest());
            running.partition.step_down();
            running.is_syncing = false;
            self.turn(env, at);
        }
    }

    pub(super) fn notice(
        &mut self,
        env: &mut Environment,
        at: usize,
        life: Incarnation,
        leadership: u64,
    ) {
        let machine = &self.machines[at];
        let is_it = |running: &super::machine::MachineProcess| {
            running.partition.leads().is_ok() && running.partition.leadership() == leadership
        };
        if machine.life == life && machine.running.as_ref().is_some_and(is_it) {
            self.step_down(env, at);
        }
    }

    /// Makes one of a group's machines that are up its leader.
    pub(super) fn elect(&mut self, env: &mut Environment, number: usize, term: u64) {
        let group = &self.groups[number];
        if group.term != term || group.leader.is_some() {
            return;
        }
        let up = group.members.iter().copied();
        let up: Vec<usize> = up
            .filter(|at| self.machines[*at].running.is_some())
            .collect();
        if up.is_empty() {
            return env.after(Duration::from_millis(5), Event::Elect(number, term));
        }
        let at = up[env.random.usize(..up.len())];
        // It may be the one that was replaced.
        self.step_down(env, at);
        let group = &mut self.groups[number];
        if group.leader.is_some() || self.machines[at].running.is_none() {
            return env.after(Duration::from_millis(1), Event::Elect(number, term));
        }
        group.log.borrow_mut().durable = group.newest;
        let machine = &mut self.machines[at];
        machine.set_clock(env.now);
        let mut partition = match EnginePartition::open(&group.log, &machine.clock, group.newest) {
            Ok(partition) => partition,
            Err(error) => return env.fail(format!("node {} cannot lead: {error}", at + 1)),
        };
        let undecided = partition.undecided();
        let prepared = |(_, state): &(_, State)| matches!(state, State::Prepared(_));
        let took_over = undecided.iter().any(prepared);
        group.leader = Some(at);
        let (id, of) = (machine.id, group.of);
        let running = machine.running.as_mut().expect("it was seen");
        running.partition.lead(partition);
        env.trace
            .note(env.now, format_args!("{id} leads {of} in term {term}"));
        env.reached.add(Point::Elected, u64::from(term > 0));
        env.reached.add(Point::TookOver, u64::from(took_over));
        self.spread(env, number);
        self.turn(env, at);
    }

    /// Plans when the members of a group hear of its leader.
    pub(super) fn spread(&mut self, env: &mut Environment, number: usize) {
        let term = self.groups[number].term;
        let pause = env.while_up_to(Duration::from_millis(40));
        env.after(pause, Event::Heard(number, term));
    }

    pub(super) fn heard(&mut self, number: usize, term: u64) {
        let group = &self.groups[number];
        if group.term != term {
            return;
        }
        let leader = group.leader.map(|at| self.machines[at].id);
        for &at in &group.members {
            if let Some(running) = &mut self.machines[at].running {
                running.partition.leader = leader;
            }
        }
    }

    /// Lets `ask` look at the log of a partition.
    pub(super) fn with_log<T>(
        &self,
        topology: &Topology,
        of: PartitionId,
        ask: impl FnOnce(&MemoryLog) -> T,
    ) -> T {
        let node = usize::from(topology.node_of(of).0) - 1;
        let group = self.group_at(node);
        let log = group.map_or(&self.machines[node].log, |group| &self.groups[group].log);
        ask(&log.borrow())
    }
}

fn note_event(trace: &mut Trace, now: Duration, node: NodeId, link: Link, event: &LinkEvent<'_>) {
    let link = link.0;
    match event {
        LinkEvent::Message(bytes) => match codec::decode(bytes) {
            Ok(message) => {
                let text = MessageText(&message);
                trace.note(now, format_args!("node {node} receives on {link}: {text}"));
            }
            Err(error) => trace.note(now, format_args!("node {node} receives {error}")),
        },
        other => trace.note(now, format_args!("node {node}, link {link}: {other:?}")),
    }
}
