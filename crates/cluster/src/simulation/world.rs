//! A cluster, its clients and the network in virtual time: the events in their order.

use std::sync::Arc;
use std::time::Duration;

use ::simulation::{Coverage, EventQueue, Trace, draw};
use base::Epoch;
use fabric::sim::{Network, Options};
use fastrand::Rng;

use super::Scenario;
use super::chronicle::Chronicle;
use super::client::{Answered, Client};
use super::finale::Finale;
use super::group::Group;
use super::keys::{Keys, READ_ATOMIC};
use super::machine::Machine;
use super::plan::{Plan, TICK};
use super::reached::Point;
use crate::slot::SLOTS;
use crate::topology::Topology;

/// The machines' time when a run begins.
pub(super) const BEGIN_MS: u64 = 1_700_000_000_000;

/// Number of a life: an event that was scheduled in another life does not count.
pub(super) type Life = u32;

/// An event, besides those of the network.
pub(super) enum Event {
    /// A node is woken, as it has asked.
    Wake(usize, Life),
    /// A sync of a node's log has ended.
    Synced(usize, Life, Epoch, u64),
    /// A replicated partition gets a leader; the term in which it has none.
    Elect(usize, u64),
    /// The members of a replicated partition hear of the leader of a term.
    Heard(usize, u64),
    /// A node notices that this leadership of its own has ended.
    Notice(usize, Life, u64),
    /// A node tidies up, and may sync although no answer waits for it.
    Idle(usize, Life),
    /// A node that crashed starts again.
    Restart(usize, Life),
    /// A client begins its next transaction.
    Think(usize, Life),
    /// A client's transaction arrives at the node to which it is attached.
    Submit(usize, Life),
    /// An attached client hears of its transaction.
    Answer(usize, Life, Answered),
    /// Faults are drawn.
    Tick,
    /// The separation of two nodes ends.
    Heal(usize, usize),
    /// A node's disk is as fast as before.
    FastDisk(usize),
    /// A slow link is as fast as before.
    FastLink(usize, usize),
    /// Faults stop.
    Calm,
    /// Checks if everything has come to rest.
    Rest,
}

/// The simulated world.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) random: Rng,
    pub(super) now: Duration,
    pub(super) network: Network,
    pub(super) topology: Arc<Topology>,
    pub(super) keys: Keys,
    pub(super) machines: Vec<Machine>,
    pub(super) groups: Vec<Group>,
    pub(super) clients: Vec<Client>,
    pub(super) processes: u32,
    pub(super) value: i64,
    pub(super) chronicle: Chronicle,
    pub(super) finale: Finale,
    pub(super) trace: Trace,
    pub(super) reached: Coverage<Point>,
    /// Why the run has failed.
    pub(super) failure: Option<String>,
    queue: EventQueue<Duration, Event>,
}

/// More events than any run has: a run that exceeds this is stuck.
const MOST_EVENTS: u64 = 300_000;

impl World {
    pub(super) fn new(scenario: Scenario, seed: u64, keep_trace: bool) -> World {
        let mut random = Rng::with_seed(seed);
        let plan = Plan::draw(scenario, &mut random);
        let topology = Arc::new(topology(&plan));
        let options = Options {
            delay: Duration::from_micros(20)..plan.delay.max(Duration::from_micros(40)),
            slow_share: f64::from(plan.faults.slow_link) / 2000.0,
            slow_delay: Duration::from_millis(1)..Duration::from_millis(60),
            silent_crashes: if plan.faults.separate > 0 { 0.5 } else { 0.0 },
            dead_after: Duration::from_millis(200),
            connect_limit: Duration::from_millis(100),
            ..Options::default()
        };
        let network = Network::new(random.u64(..), options);
        let keys = Keys::new(&topology, plan.read_atomic, plan.keys, plan.accounts);
        let mut world = World {
            random,
            now: Duration::ZERO,
            network,
            keys,
            machines: Vec::new(),
            groups: Vec::new(),
            clients: Vec::new(),
            processes: 0,
            value: 0,
            chronicle: Chronicle::default(),
            finale: Finale::default(),
            trace: Trace::new(keep_trace),
            reached: Coverage::default(),
            failure: None,
            queue: EventQueue::new(),
            topology,
            plan,
        };
        world.trace.note(
            Duration::ZERO,
            format_args!("seed {seed}: {:?}", world.plan),
        );
        world
    }

    /// Runs until everything has come to rest after the faults, or the run has failed.
    pub(super) fn run(&mut self) {
        self.settle();
        let mut events = 0;
        while self.failure.is_none() && !self.finale.is_over() {
            events += 1;
            if events > MOST_EVENTS {
                return self.fail("the cluster does not come to rest".to_owned());
            }
            self.step();
        }
        if self.failure.is_none()
            && let Err(why) = self.chronicle.judge()
        {
            self.fail(why);
        }
    }

    /// Starts the machines, and schedules the events that come by themselves.
    fn settle(&mut self) {
        self.groups = self.groups();
        for info in self.topology.nodes().to_vec() {
            let machine = Machine::new(info.id, &mut self.random);
            self.machines.push(machine);
        }
        for node in 0..self.machines.len() {
            self.start(node);
        }
        for group in 0..self.groups.len() {
            self.elect(group, 0);
        }
        self.open_accounts();
        for _ in 0..self.plan.clients {
            self.new_client();
        }
        if !self.plan.faults.is_none() {
            self.after(TICK, Event::Tick);
        }
        self.after(self.plan.calm, Event::Calm);
    }

    fn step(&mut self) {
        let next = self.queue.next_at();
        let network = self.network.next_event_at();
        match (next, network) {
            (None, None) => self.fail("nothing is left to happen".to_owned()),
            (next, Some(at)) if next.is_none_or(|next| at <= next) => {
                self.network.step();
                self.now = self.now.max(self.network.now());
                self.receive();
            }
            _ => {
                let (at, event) = self.queue.pop().expect("it was seen");
                self.now = at;
                self.network.advance(self.now);
                self.happen(event);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(node, life) => self.wake(node, life),
            Event::Synced(node, life, epoch, leadership) => {
                self.synced(node, life, epoch, leadership);
            }
            Event::Elect(group, term) => self.elect(group, term),
            Event::Heard(group, term) => self.heard(group, term),
            Event::Notice(node, life, leadership) => self.notice(node, life, leadership),
            Event::Idle(node, life) => self.idle(node, life),
            Event::Restart(node, life) => self.restart(node, life),
            Event::Think(client, life) => self.think(client, life),
            Event::Submit(client, life) => self.submit(client, life),
            Event::Answer(client, life, answered) => self.answered(client, life, answered),
            Event::Tick => self.draw_faults(),
            Event::Heal(a, b) => self.heal(a, b),
            Event::FastDisk(node) => self.machines[node].slow_disk = false,
            Event::FastLink(a, b) => self.fast_link(a, b),
            Event::Calm => self.calm(),
            Event::Rest => self.rest(),
        }
    }

    /// Hands all nodes and clients the messages that have arrived.
    fn receive(&mut self) {
        for node in 0..self.machines.len() {
            self.receive_at(node);
        }
        for client in 0..self.clients.len() {
            self.receive_client(client);
        }
    }

    /// Schedules an event.
    pub(super) fn after(&mut self, delay: Duration, event: Event) {
        self.queue.push(self.now + delay, event);
    }

    /// Draws a time up to a limit, more often short than long.
    pub(super) fn while_up_to(&mut self, limit: Duration) -> Duration {
        draw::mostly_short(&mut self.random, limit)
    }

    pub(super) fn fail(&mut self, why: String) {
        self.trace.note(self.now, format_args!("failure: {why}"));
        self.failure.get_or_insert(why);
    }

    /// Returns `true` if faults have stopped.
    pub(super) fn is_calm(&self) -> bool {
        self.now >= self.plan.calm
    }
}

/// Returns the cluster's file: the partitions share the slots evenly, and nodes are numbered in their
/// order; perhaps there is one more that holds none.
fn topology(plan: &Plan) -> Topology {
    let count = plan.holders.len() as u32;
    let begin = |index: u32| index * u32::from(SLOTS) / count;
    let mut text = format!("read_atomic = [{READ_ATOMIC:?}]\n");
    for id in 1..=plan.nodes() {
        text += &format!(
            "[[node]]\nid = {id}\nclient = \"127.0.0.1:{}\"\nfabric = \"127.0.0.1:{}\"\n\
             replica = \"127.0.0.1:{}\"\n",
            7000 + id,
            17000 + id,
            27000 + id
        );
    }
    let mut first = 1;
    for (index, holders) in (0..).zip(&plan.holders) {
        let nodes: Vec<u16> = (first..first + holders).collect();
        first += holders;
        text += &format!(
            "[[partition]]\nid = {}\nslots = \"{}-{}\"\nnodes = {nodes:?}\n",
            index + 1,
            begin(index),
            begin(index + 1) - 1
        );
    }
    Topology::parse(&text, "simulated").expect("the text is right")
}
