//! A run: the nodes, clients and coordinators begin, and one event after another happens until
//! everything has come to rest.

use std::time::Duration;

use super::actors::{ClientTask, SimulatedCoordinator};
use super::call::{CallOutcome, Caller};
use super::plan::TICK;
use super::world::{SimulatedEvent, World};

/// Several times more events than any run has (several clients, short waits and messages that overtake each other make
/// half a million): a run that goes on is stuck.
const MOST_EVENTS: u64 = 3_000_000;

impl World {
    /// Runs until everything has come to rest after the faults, or an error was found.
    pub(super) fn run(&mut self) {
        self.settle();
        let mut events = 0;
        while self.failure.is_none() && !self.run_end.is_over() {
            events += 1;
            if events > MOST_EVENTS {
                return self.fail("the partition does not come to rest".to_owned());
            }
            let Some((at, event)) = self.next_event() else {
                return self.fail("nothing is left to happen".to_owned());
            };
            self.now = at;
            self.truth.set(self.now);
            self.happen(event);
            if let Some(wrong) = self.book.take_wrong() {
                self.fail(wrong);
            }
        }
        if self.failure.is_none()
            && let Err(error) = self.book.judge(self.skew())
        {
            self.fail(error.to_string());
        }
    }

    /// Returns the greatest difference of times that may be seen between two nodes, or on a node
    /// before and after a pause.
    fn skew(&self) -> Duration {
        let steps = if self.plan.faults.clock_step > 0 {
            1000
        } else {
            0
        };
        Duration::from_millis(self.plan.ahead_ms as u64 * 2 + steps + 1500)
    }

    fn settle(&mut self) {
        for node in 0..self.nodes.len() {
            self.start(node);
        }
        let teller = self.new_client().scripted(vec![World::deposit()]);
        self.clients.push(teller);
        self.after(
            Duration::from_millis(1),
            SimulatedEvent::Think(Caller::Client(0)),
        );
        for _ in 0..self.plan.clients {
            let at = self.clients.len();
            let client = self.new_client();
            self.clients.push(client);
            self.after(
                Duration::from_millis(at as u64 + 1),
                SimulatedEvent::Think(Caller::Client(at)),
            );
        }
        if !self.plan.flushes {
            for task in [
                ClientTask::Beats,
                ClientTask::Beats,
                ClientTask::Watches,
                ClientTask::Watches,
            ] {
                let client = self.new_client().with_task(task);
                self.clients.push(client);
                let caller = Caller::Client(self.clients.len() - 1);
                self.after(Duration::from_millis(5), SimulatedEvent::Think(caller));
            }
        }
        if self.plan.forgets_clients() {
            for _ in 0..3 {
                let client = self.new_client().with_task(ClientTask::Sleeps);
                self.clients.push(client);
                let caller = Caller::Client(self.clients.len() - 1);
                self.after(Duration::from_millis(5), SimulatedEvent::Think(caller));
            }
        }
        for at in 0..self.plan.coordinators {
            self.processes += 1;
            self.coordinators
                .push(SimulatedCoordinator::new(self.processes));
            self.after(
                Duration::from_millis(50),
                SimulatedEvent::Think(Caller::Coordinator(at)),
            );
        }
        if !self.plan.faults.is_none() {
            self.after(TICK, SimulatedEvent::Tick);
        }
        self.after(self.plan.election, SimulatedEvent::Administrator);
        self.after(self.plan.calm, SimulatedEvent::Calm);
    }

    fn happen(&mut self, event: SimulatedEvent) {
        match event {
            SimulatedEvent::Turn(node, life) => self.turn(node, life),
            SimulatedEvent::Arrive(node, from, bytes) => self.arrive(node, from, bytes),
            SimulatedEvent::Call(request) => self.call(request),
            SimulatedEvent::Answer(caller, number, outcome) => self.answer(caller, number, outcome),
            SimulatedEvent::TimeOut(caller, number) => {
                self.answer(caller, number, CallOutcome::Broken);
            }
            SimulatedEvent::Think(Caller::Client(client)) => self.think(client),
            SimulatedEvent::Think(Caller::Coordinator(at)) => self.coordinate(at),
            SimulatedEvent::Job(node, life) => self.job(node, life),
            SimulatedEvent::Tidy(node, life) => self.tidy(node, life),
            SimulatedEvent::Restart(node, life) => self.restart(node, life),
            SimulatedEvent::MendDisk(node) => self.mend_disk(node),
            SimulatedEvent::Administrator => self.administer(),
            SimulatedEvent::Tick => self.draw_faults(),
            SimulatedEvent::Calm => self.calm(),
            SimulatedEvent::Rest => self.rest(),
        }
    }

    fn answer(&mut self, caller: Caller, number: u64, outcome: CallOutcome) {
        match caller {
            Caller::Client(client) => self.answered(client, number, outcome),
            Caller::Coordinator(at) => self.coordinator_answered(at, number, outcome),
        }
    }
}
