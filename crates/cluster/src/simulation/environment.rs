//! What surrounds machines and clients: time and the events to come, the network, the draws of a run, and
//! what is recorded of it.

use std::sync::Arc;
use std::time::Duration;

use ::simulation::{Coverage, EventQueue, Trace, draw};
use base::partition::OwnedReply;
use base::{Abort, Epoch};
use fabric::sim::{Network, Options};
use fastrand::Rng;

use super::coverage::Point;
use super::keys::{Keys, READ_ATOMIC};
use super::plan::RunPlan;
use super::recorded_history::RecordedHistory;
use super::scenario::Scenario;
use crate::slot::SLOTS;
use crate::topology::Topology;

/// The machines' time when a run begins.
pub(super) const BEGIN_MS: u64 = 1_700_000_000_000;

/// Number of a life: an event that was scheduled in another life does not count.
pub(super) type Incarnation = u32;

/// An event, besides those of the network.
pub(super) enum Event {
    /// A node is woken, as it has asked.
    Wake(usize, Incarnation),
    /// A sync of a node's log has ended.
    Synced(usize, Incarnation, Epoch, u64),
    /// A replicated partition gets a leader; the term in which it has none.
    Elect(usize, u64),
    /// The members of a replicated partition hear of the leader of a term.
    Heard(usize, u64),
    /// A node notices that this leadership of its own has ended.
    Notice(usize, Incarnation, u64),
    /// A node tidies up, and may sync although no answer waits for it.
    Idle(usize, Incarnation),
    /// A node that crashed starts again.
    Restart(usize, Incarnation),
    /// A client begins its next transaction.
    Think(usize, Incarnation),
    /// A client's transaction arrives at the node to which it is attached.
    Submit(usize, Incarnation),
    /// An attached client hears of its transaction.
    Answer(usize, Incarnation, ClientAnswer),
    /// A client that coordinates looks at the time.
    Look(usize, Incarnation),
    /// Faults are drawn.
    Tick,
    /// The separation of two nodes ends.
    Heal(usize, usize),
    /// A node's disk is as fast as before.
    FastDisk(usize),
    /// A slow link is as fast as before.
    FastLink(usize, usize),
    /// Faults stop.
    FaultsStop,
    /// Checks if everything has come to rest.
    FinalCheck,
}

/// The origin of a transaction at a node: a client and its life, or the final check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallerId {
    Attached(usize, Incarnation),
    FinalCheck(u32),
}

/// An answer to a client.
pub(super) struct ClientAnswer(pub(super) Result<Vec<OwnedReply>, Abort>);

/// See the module's description.
pub(super) struct Environment {
    pub(super) plan: RunPlan,
    pub(super) random: Rng,
    pub(super) now: Duration,
    pub(super) network: Network,
    pub(super) topology: Arc<Topology>,
    pub(super) keys: Keys,
    /// Number of processes of the history.
    pub(super) processes: u32,
    /// The last value that a client has drawn.
    pub(super) value: i64,
    pub(super) recorded_history: RecordedHistory,
    pub(super) trace: Trace,
    pub(super) reached: Coverage<Point>,
    /// Why the run has failed.
    pub(super) failure: Option<String>,
    pub(super) queue: EventQueue<Duration, Event>,
}

impl Environment {
    pub(super) fn new(scenario: Scenario, seed: u64, keep_trace: bool) -> Environment {
        let mut random = Rng::with_seed(seed);
        let plan = RunPlan::draw(scenario, &mut random);
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
        let mut env = Environment {
            random,
            now: Duration::ZERO,
            network,
            keys,
            processes: 0,
            value: 0,
            recorded_history: RecordedHistory::default(),
            trace: Trace::new(keep_trace),
            reached: Coverage::default(),
            failure: None,
            queue: EventQueue::new(),
            topology,
            plan,
        };
        env.trace
            .note(Duration::ZERO, format_args!("seed {seed}: {:?}", env.plan));
        env
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
    pub(super) fn have_faults_stopped(&self) -> bool {
        self.now >= self.plan.faults_stop
    }

    /// Checks the sum of all accounts, if it was read.
    pub(super) fn check_sum(&mut self, sum: Option<i64>) {
        let expected = self.keys.sum();
        if let Some(sum) = sum.filter(|sum| *sum != expected) {
            self.fail(format!(
                "all accounts together have {sum}, and had {expected}"
            ));
        }
    }
}

/// Returns the cluster's file: the partitions share the slots evenly, and nodes are numbered in their
/// order; perhaps there is one more that holds none.
fn topology(plan: &RunPlan) -> Topology {
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
