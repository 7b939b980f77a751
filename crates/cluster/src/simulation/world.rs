//! A cluster, its clients and the network in virtual time: the events in their order.

use super::clients::SimulatedClients;
use super::environment::{CallerId, Environment, Event};
use super::faults;
use super::final_check::FinalCheck;
use super::machines::{MachineOutput, SimulatedMachines};
use super::plan::TICK;
use super::scenario::Scenario;

/// The simulated world.
pub(super) struct World {
    pub(super) env: Environment,
    machines: SimulatedMachines,
    clients: SimulatedClients,
    final_check: FinalCheck,
}

/// Several times more events than any run has: a run that exceeds this is stuck.
const MOST_EVENTS: u64 = 3_000_000;

impl World {
    pub(super) fn new(scenario: Scenario, seed: u64, keep_trace: bool) -> World {
        let mut env = Environment::new(scenario, seed, keep_trace);
        World {
            machines: SimulatedMachines::new(&mut env),
            clients: SimulatedClients::default(),
            final_check: FinalCheck::default(),
            env,
        }
    }

    /// Runs until everything has come to rest after the faults, or the run has failed.
    pub(super) fn run(&mut self) {
        self.start();
        let mut events = 0;
        while self.env.failure.is_none() && !self.final_check.is_over() {
            events += 1;
            if events > MOST_EVENTS {
                return self
                    .env
                    .fail("the cluster does not come to rest".to_owned());
            }
            self.step();
            self.handle_outputs();
        }
        if self.env.failure.is_none()
            && let Err(why) = self.env.recorded_history.judge()
        {
            self.env.fail(why);
        }
    }

    /// Starts the machines, and schedules the events that come by themselves.
    fn start(&mut self) {
        let env = &mut self.env;
        self.machines.start_all(env);
        for _ in 0..env.plan.clients {
            self.clients.new_client(env);
        }
        if !env.plan.faults.is_none() {
            env.after(TICK, Event::Tick);
        }
        env.after(env.plan.faults_stop, Event::FaultsStop);
    }

    fn step(&mut self) {
        let env = &mut self.env;
        let next = env.queue.next_at();
        let network = env.network.next_event_at();
        match (next, network) {
            (None, None) => env.fail("nothing is left to happen".to_owned()),
            (next, Some(at)) if next.is_none_or(|next| at <= next) => {
                env.network.step();
                env.now = env.now.max(env.network.now());
                self.receive();
            }
            _ => {
                let (at, event) = env.queue.pop().expect("it was seen");
                env.now = at;
                env.network.advance(env.now);
                self.happen(event);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let World {
            env,
            machines,
            clients,
            final_check,
        } = self;
        match event {
            Event::Wake(node, life) => machines.wake(env, node, life),
            Event::Synced(node, life, epoch, leadership) => {
                machines.synced(env, node, life, epoch, leadership);
            }
            Event::Elect(group, term) => machines.elect(env, group, term),
            Event::Heard(group, term) => machines.heard(group, term),
            Event::Notice(node, life, leadership) => machines.notice(env, node, life, leadership),
            Event::Idle(node, life) => machines.idle(env, node, life),
            Event::Restart(node, life) => machines.restart(env, node, life),
            Event::Think(client, life) => clients.think((env, machines), client, life),
            Event::Submit(client, life) => clients.submit((env, machines), client, life),
            Event::Look(client, life) => clients.look(env, client, life),
            Event::Answer(client, life, answered) => clients.answered(env, client, life, answered),
            Event::Tick => faults::draw_faults(env, machines, clients),
            Event::Heal(a, b) => faults::heal(env, machines, a, b),
            Event::FastDisk(node) => machines.machines[node].slow_disk = false,
            Event::FastLink(a, b) => faults::fast_link(env, machines, a, b),
            Event::FaultsStop => faults::faults_stop(env, machines),
            Event::FinalCheck => final_check.advance((env, machines, clients)),
        }
    }

    /// Hands all nodes and clients the messages that have arrived.
    fn receive(&mut self) {
        for node in 0..self.machines.machines.len() {
            self.machines.receive_at(&mut self.env, node);
        }
        self.handle_outputs();
        for client in 0..self.clients.clients.len() {
            self.clients.receive_client(&mut self.env, client);
        }
    }

    /// Gives clients the answers of nodes, and lets them know of crashes.
    fn handle_outputs(&mut self) {
        let World {
            env,
            machines,
            clients,
            final_check,
        } = self;
        for output in std::mem::take(&mut machines.outputs) {
            match output {
                MachineOutput::Replied(node, CallerId::FinalCheck(number), answered) => {
                    final_check.answered((env, machines, clients), node, number, answered);
                }
                MachineOutput::Replied(_, CallerId::Attached(at, life), answered) => {
                    clients.note_answer(env, (at, life), answered);
                }
                MachineOutput::Crashed(node) => clients.lose_clients_of(env, node),
            }
        }
    }
}
