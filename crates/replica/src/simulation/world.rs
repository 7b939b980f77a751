//! A partition, its clients and the network in virtual time, and the events that are to happen to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::simulation::{Coverage, EventQueue, Trace, draw};
use base::NodeId;
use fastrand::Rng;

use super::actors::{Administrator, ClientTask, RunEnd, SimulatedClient, SimulatedCoordinator};
use super::book::RunRecord;
use super::call::{Call, CallOutcome, CallRequest, CallValue, Caller, NodeLife, PendingOutcome};
use super::clock::{NodeClock, TrueTime};
use super::network::SimulatedNetwork;
use super::node::SimulatedNode;
use super::plan::RunPlan;
use super::reached::Point;

/// The events.
pub(super) enum SimulatedEvent {
    /// A node's thread goes on.
    Turn(usize, NodeLife),
    /// A message arrives.
    Arrive(usize, NodeId, Vec<u8>),
    /// A call arrives.
    Call(CallRequest),
    /// An answer arrives.
    Answer(Caller, u64, CallOutcome),
    /// A call was not answered for long.
    TimeOut(Caller, u64),
    /// An asker goes on by itself.
    Think(Caller),
    /// Background work of a node is done.
    Job(usize, NodeLife),
    /// A node's janitor works.
    Tidy(usize, NodeLife),
    /// A node that is down starts again.
    Restart(usize, NodeLife),
    /// A node's disk is repaired.
    MendDisk(usize),
    /// The administrator looks at the members, and may change them.
    Administrator,
    /// Faults are drawn.
    Tick,
    /// Faults stop.
    Calm,
    /// Checks if everything has come to rest.
    Rest,
}

/// The hashes of a state, and the node that had it first.
pub(super) type Witness = (usize, u64, u64);

/// The whole simulated world.
pub(super) struct World {
    pub(super) plan: RunPlan,
    pub(super) random: Rng,
    pub(super) now: Duration,
    pub(super) truth: TrueTime,
    pub(super) network: SimulatedNetwork,
    pub(super) nodes: Vec<SimulatedNode>,
    pub(super) clients: Vec<SimulatedClient>,
    pub(super) coordinators: Vec<SimulatedCoordinator>,
    pub(super) admin: Administrator,
    /// The numbers of values, and of keys that expire, so far.
    pub(super) value: i64,
    pub(super) lent: usize,
    /// The number of processes of the history, so far.
    pub(super) processes: usize,
    /// Hashes of states, by the index of the last entry.
    pub(super) witnesses: BTreeMap<u64, Witness>,
    pub(super) book: RunRecord,
    pub(super) run_end: RunEnd,
    pub(super) trace: Trace,
    pub(super) reached: Coverage<Point>,
    /// The reason why the run has failed.
    pub(super) failure: Option<String>,
    queue: EventQueue<Duration, SimulatedEvent>,
}

impl World {
    pub(super) fn new(seed: u64, keep_trace: bool) -> World {
        let mut random = Rng::with_seed(seed);
        let plan = RunPlan::draw(seed, &mut random);
        let truth = TrueTime::default();
        let founders: Vec<NodeId> = (1..=plan.founders as u16).map(NodeId).collect();
        let nodes = (0..plan.nodes()).map(|at| {
            let ahead = random.i64(-plan.ahead_ms..=plan.ahead_ms);
            let clock = NodeClock::new(&truth, plan.rates[at], ahead);
            let node = NodeId(at as u16 + 1);
            let known = if at < plan.founders {
                founders.clone()
            } else {
                all(&plan)
            };
            SimulatedNode::new(node, clock, known)
        });
        let mut world = World {
            nodes: nodes.collect(),
            network: SimulatedNetwork::new(&plan),
            random,
            now: Duration::ZERO,
            truth,
            clients: Vec::new(),
            coordinators: Vec::new(),
            admin: Administrator::default(),
            value: 0,
            lent: 0,
            processes: 0,
            witnesses: BTreeMap::new(),
            book: RunRecord::default(),
            run_end: RunEnd::default(),
            trace: Trace::new(keep_trace),
            reached: Coverage::default(),
            failure: None,
            queue: EventQueue::new(),
            plan,
        };
        world.note(format_args!("seed {seed}"));
        let plan = format!("{:?}", world.plan);
        world.note(format_args!("{plan}"));
        world
    }

    /// Sends a call to a node, and schedules the time-out.
    pub(super) fn send_call(&mut self, caller: Caller, number: u64, node: usize, call: Call) {
        let request = CallRequest {
            caller,
            number,
            node,
            call: Arc::new(call),
        };
        let delay = self.network.delay(&mut self.random);
        self.after(delay, SimulatedEvent::Call(request));
        let share = self.random.f64();
        let hurries =
            matches!(caller, Caller::Client(at) if self.clients[at].task == ClientTask::Beats);
        let patience = if hurries {
            self.plan.election.mul_f64(0.2 + 0.4 * share)
        } else {
            self.plan.election.mul_f64(1.0 + 11.0 * share * share)
        };
        self.after(patience, SimulatedEvent::TimeOut(caller, number));
    }

    /// Answers a call.
    pub(super) fn reply(&mut self, request: &CallRequest, outcome: CallOutcome) {
        let delay = self.network.delay(&mut self.random);
        self.after(
            delay,
            SimulatedEvent::Answer(request.caller, request.number, outcome),
        );
    }

    /// Takes the next event.
    pub(super) fn next_event(&mut self) -> Option<(Duration, SimulatedEvent)> {
        self.queue.pop()
    }

    /// Returns a client that is not among the clients yet.
    pub(super) fn new_client(&mut self) -> SimulatedClient {
        self.processes += 1;
        SimulatedClient::new(self.processes, &mut self.random, self.plan.founders)
    }

    /// Schedules an event.
    pub(super) fn after(&mut self, delay: Duration, event: SimulatedEvent) {
        self.at(self.now + delay, event);
    }

    /// Schedules an event at a time.
    pub(super) fn at(&mut self, at: Duration, event: SimulatedEvent) {
        self.queue.push(at.max(self.now), event);
    }

    /// Draws a time up to a limit, more often short than long.
    pub(super) fn while_up_to(&mut self, limit: Duration) -> Duration {
        draw::mostly_short(&mut self.random, limit)
    }

    pub(super) fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.now, what);
    }

    pub(super) fn fail(&mut self, why: String) {
        self.note(format_args!("failure: {why}"));
        self.failure.get_or_insert(why);
    }

    /// Returns `true` if faults have stopped.
    pub(super) fn is_calm(&self) -> bool {
        self.now >= self.plan.calm
    }

    /// Answers every caller whose ticket has resolved or is lost.
    pub(super) fn answer_waiters(&mut self, node: usize) {
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        let tickets = &running.shared.tickets;
        let resolved = tickets.resolved();
        let waiters = std::mem::take(&mut running.waiters);
        let mut done = Vec::new();
        for waiter in waiters {
            if tickets.is_lost(waiter.ticket) {
                done.push((waiter.request, CallOutcome::Lost));
            } else if waiter.ticket <= resolved {
                let outcome = match waiter.outcome {
                    PendingOutcome::Known(outcome) => outcome,
                    PendingOutcome::Naive(number) => match running.workers[0].outcome(number) {
                        Some(Ok(replies)) => CallOutcome::Done(CallValue::Replies(replies)),
                        Some(Err(abort)) => CallOutcome::Abort(abort),
                        None => CallOutcome::Lost,
                    },
                    PendingOutcome::Session(number) => match running.workers[0].opened(number) {
                        Some(Ok(session)) => CallOutcome::Done(CallValue::Session(session)),
                        Some(Err(abort)) => CallOutcome::Abort(abort),
                        None => CallOutcome::Lost,
                    },
                };
                done.push((waiter.request, outcome));
            } else {
                running.waiters.push(waiter);
            }
        }
        for (request, outcome) in done {
            self.reply(&request, outcome);
        }
    }
}

/// Returns all nodes, once the cluster's file names them.
pub(super) fn all(plan: &RunPlan) -> Vec<NodeId> {
    (1..=plan.nodes() as u16).map(NodeId).collect()
}
