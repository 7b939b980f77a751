//! A run: the nodes, clients and coordinators begin, and one event after another happens until
//! everything has come to rest.

use std::time::Duration;

use super::actors::{Coordinator, Habit};
use super::call::{Asker, Outcome};
use super::plan::TICK;
use super::world::{Event, World};

/// More events than any run has: a run that goes on is stuck.
const MOST_EVENTS: u64 = 500_000;

impl World {
    /// Runs until everything has come to rest after the faults, or an error was found.
    pub(super) fn run(&mut self) {
        self.settle();
        let mut events = 0;
        while self.failure.is_none() && !self.finale.is_over() {
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
            && let Err(why) = self.book.judge(self.skew())
        {
            self.fail(why);
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
        self.after(Duration::from_millis(1), Event::Think(Asker::Client(0)));
        for _ in 0..self.plan.clients {
            let at = self.clients.len();
            let client = self.new_client();
            self.clients.push(client);
            self.after(
                Duration::from_millis(at as u64 + 1),
                Event::Think(Asker::Client(at)),
            );
        }
        if !self.plan.flushes {
            for habit in [Habit::Beats, Habit::Beats, Habit::Watches, Habit::Watches] {
                let client = self.new_client().with_habit(habit);
                self.clients.push(client);
                let asker = Asker::Client(self.clients.len() - 1);
                self.after(Duration::from_millis(5), Event::Think(asker));
            }
        }
        if self.plan.forgets_clients() {
            for _ in 0..3 {
                let client = self.new_client().with_habit(Habit::Sleeps);
                self.clients.push(client);
                let asker = Asker::Client(self.clients.len() - 1);
                self.after(Duration::from_millis(5), Event::Think(asker));
            }
        }
        for at in 0..self.plan.coordinators {
            self.processes += 1;
            self.coordinators.push(Coordinator::new(self.processes));
            self.after(
                Duration::from_millis(50),
                Event::Think(Asker::Coordinator(at)),
            );
        }
        if !self.plan.faults.is_none() {
            self.after(TICK, Event::Tick);
        }
        self.after(self.plan.election, Event::Admin);
        self.after(self.plan.calm, Event::Calm);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turn(node, life) => self.turn(node, life),
            Event::Arrive(node, from, bytes) => self.arrive(node, from, bytes),
            Event::Call(request) => self.call(request),
            Event::Answer(asker, number, outcome) => self.answer(asker, number, outcome),
            Event::TimeOut(asker, number) => {
                self.answer(asker, number, Outcome::Broken);
            }
            Event::Think(Asker::Client(client)) => self.think(client),
            Event::Think(Asker::Coordinator(at)) => self.coordinate(at),
            Event::Job(node, life) => self.job(node, life),
            Event::Tidy(node, life) => self.tidy(node, life),
            Event::Restart(node, life) => self.restart(node, life),
            Event::MendDisk(node) => self.mend_disk(node),
            Event::Admin => self.administer(),
            Event::Tick => self.draw_faults(),
            Event::Calm => self.calm(),
            Event::Rest => self.rest(),
        }
    }

    fn answer(&mut self, asker: Asker, number: u64, outcome: Outcome) {
        match asker {
            Asker::Client(client) => self.answered(client, number, outcome),
            Asker::Coordinator(at) => self.coordinator_answered(at, number, outcome),
        }
    }
}
