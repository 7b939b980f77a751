//! Workers of a leader that execute at the same time before one log, whose groups are replicated.
//!
//! | step | thread | what |
//! |---|---|---|
//! | execute | a worker | executes a client's transaction and submits what it wrote |
//! | turn | the leader's log | takes a group: what was submitted, up to a number of entries, if nothing is under way or at least as many wait as are under way |
//! | append | the leader's log | appends the group and sends it to the followers |
//! | follow | a follower | appends the group and answers |
//! | apply | the leader's log | once a majority has the group: ends it; its clients begin anew |
//!
//! The leader's work for a group is divided evenly between *append* and *apply*. All service times are
//! measured; what answers cost the leader that come after those of the majority is in them.

use std::collections::VecDeque;
use std::time::Duration;

use super::Machines;
use super::costs::Line;
use super::machine::{ThreadId, ThreadScheduler};

/// The service times, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupCosts {
    /// A worker's, for a transaction.
    pub worker: f64,
    /// The leader's log's: once for each group, and for each entry.
    pub leader: Line,
    /// A follower's, likewise.
    pub follower: Line,
}

/// The configuration of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct GroupConfig {
    /// The members.
    pub members: usize,
    /// The leader's workers.
    pub workers: usize,
    /// The clients, each with one transaction under way.
    pub clients: usize,
    /// The most entries of a group.
    pub group: usize,
    /// Where threads run; apart, each has a processor of its own.
    pub machines: Machines,
    /// The time for which a message between members is under way.
    pub delay: Duration,
    /// Service times.
    pub costs: GroupCosts,
    /// Transactions that count. A tenth as many come before them.
    pub transactions: usize,
}

/// The results of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupResult {
    /// Transactions a second.
    pub throughput: f64,
    /// Their mean latency.
    pub latency: Duration,
    /// Entries of a group.
    pub entries_per_group: f64,
}

/// A piece of work.
enum Step {
    Execute { client: usize },
    Turn,
    Append { group: usize },
    Follow { group: usize },
    Answer { group: usize },
    Apply { group: usize },
}

/// A group that is under way.
struct Group {
    clients: Vec<usize>,
    answers: usize,
}

/// The thread of the leader's log; the workers follow, then the other members.
const LOG: ThreadId = 0;

struct GroupSimulation {
    config: GroupConfig,
    threads: ThreadScheduler<Step>,
    /// Clients whose transactions wait to be taken, in their order.
    submitted: VecDeque<usize>,
    /// Groups that are not applied; the first one's number.
    groups: VecDeque<Group>,
    first: usize,
    /// Entries of these groups.
    under_way: usize,
    /// Groups that all followers of a majority have, and all before them are applied or being applied.
    applying: usize,
    /// A turn is among the work of the log.
    has_turn: bool,
    /// When each client's transaction began, in nanoseconds.
    began: Vec<u64>,
    ended: u64,
    waited: u64,
    taken: u64,
}

/// Runs the simulation.
#[must_use]
pub fn run(config: &GroupConfig) -> GroupResult {
    let threads = 1 + config.workers + config.members - 1;
    let simulation = GroupSimulation {
        config: *config,
        threads: ThreadScheduler::new(threads, config.machines),
        submitted: VecDeque::new(),
        groups: VecDeque::new(),
        first: 0,
        under_way: 0,
        applying: 0,
        has_turn: false,
        began: vec![0; config.clients],
        ended: 0,
        waited: 0,
        taken: 0,
    };
    simulation.run()
}

impl GroupSimulation {
    fn run(mut self) -> GroupResult {
        for client in 0..self.config.clients {
            self.execute(client);
        }
        let warm_up = self.config.transactions as u64 / 10;
        let end = warm_up + self.config.transactions as u64;
        let mut begin = None;
        while self.ended < end
            && let Some((thread, step)) = self.threads.next()
        {
            self.step(thread, step);
            if begin.is_none() && self.ended >= warm_up {
                begin = Some((self.threads.now(), self.ended, self.waited));
            }
        }
        let (since, before, waited) = begin.unwrap_or_default();
        let transactions = (self.ended - before) as f64;
        GroupResult {
            throughput: transactions * 1e9 / (self.threads.now() - since) as f64,
            latency: Duration::from_nanos((self.waited - waited) / (self.ended - before).max(1)),
            entries_per_group: self.taken as f64 / (self.first + self.groups.len()).max(1) as f64,
        }
    }

    fn step(&mut self, thread: ThreadId, step: Step) {
        match step {
            Step::Execute { client } => {
                self.submitted.push_back(client);
                self.plan_turn();
            }
            Step::Turn => {
                self.has_turn = false;
                self.take();
            }
            Step::Append { group } => {
                let followed = self.cost(self.config.costs.follower, group);
                let first = 1 + self.config.workers;
                let delay = self.delay();
                for follower in first..first + self.config.members - 1 {
                    self.threads
                        .give(follower, delay, followed, Step::Follow { group });
                }
                if self.config.members == 1 {
                    self.answered(group);
                }
                self.plan_turn();
            }
            Step::Follow { group } => {
                debug_assert!(thread > self.config.workers);
                let delay = self.delay();
                self.threads.give(LOG, delay, 0.0, Step::Answer { group });
            }
            Step::Answer { group } => self.answered(group),
            Step::Apply { group } => {
                debug_assert_eq!(group, self.first, "groups are applied in their order");
                let done = self.groups.pop_front().expect("it is under way");
                self.first += 1;
                self.applying -= 1;
                self.under_way -= done.clients.len();
                let now = self.threads.now();
                for client in done.clients {
                    self.ended += 1;
                    self.waited += now - self.began[client];
                    self.execute(client);
                }
                self.plan_turn();
            }
        }
    }

    fn execute(&mut self, client: usize) {
        self.began[client] = self.threads.now();
        let worker = 1 + client % self.config.workers;
        let service = self.config.costs.worker;
        self.threads
            .give(worker, 0, service, Step::Execute { client });
    }

    /// Lets the log look at what was submitted.
    fn plan_turn(&mut self) {
        if !self.has_turn && !self.submitted.is_empty() {
            self.has_turn = true;
            self.threads.give(LOG, 0, 0.0, Step::Turn);
        }
    }

    /// Takes a group if it may.
    fn take(&mut self) {
        let waiting = self.submitted.len();
        if waiting == 0 || (waiting < self.under_way && waiting < self.config.group) {
            return;
        }
        let clients: Vec<usize> = self
            .submitted
            .drain(..waiting.min(self.config.group))
            .collect();
        self.under_way += clients.len();
        self.taken += clients.len() as u64;
        let group = self.first + self.groups.len();
        self.groups.push_back(Group {
            clients,
            answers: 0,
        });
        let service = self.cost(self.config.costs.leader, group) / 2.0;
        self.threads.go_on(LOG, service, Step::Append { group });
    }

    /// Notes an answer. Begins to apply the groups that a majority has.
    fn answered(&mut self, group: usize) {
        let Some(place) = group.checked_sub(self.first) else {
            return;
        };
        // A follower has everything before what it has.
        self.groups[place].answers += 1;
        let needed = self.config.members / 2;
        while let Some(next) = self.groups.get(self.applying)
            && next.answers >= needed
        {
            let group = self.first + self.applying;
            self.applying += 1;
            let service = self.cost(self.config.costs.leader, group) / 2.0;
            self.threads.give(LOG, 0, service, Step::Apply { group });
        }
    }

    fn cost(&self, line: Line, group: usize) -> f64 {
        line.of([1, self.groups[group - self.first].clients.len(), 0, 0])
    }

    fn delay(&self) -> u64 {
        self.config.delay.as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: GroupCosts = GroupCosts {
        worker: 10_000.0,
        leader: Line([20_000.0, 500.0, 0.0, 0.0]),
        follower: Line([10_000.0, 200.0, 0.0, 0.0]),
    };

    fn config(workers: usize, clients: usize) -> GroupConfig {
        GroupConfig {
            members: 3,
            workers,
            clients,
            group: 64,
            machines: Machines::Apart,
            delay: Duration::from_micros(25),
            costs: COSTS,
            transactions: 20_000,
        }
    }

    #[test]
    fn one_client_waits_for_all_steps() {
        let result = run(&config(1, 1));
        // Worker, append and apply of a group of one, two delays, a follower.
        let micros: f64 = 10.0 + 20.5 + 50.0 + 10.2;
        let wanted = 1e6 / micros;
        assert!(
            (result.throughput / wanted - 1.0).abs() < 0.01,
            "{result:?}"
        );
        assert_eq!(result.entries_per_group, 1.0);
    }

    #[test]
    fn workers_add_up_until_the_log_is_busy() {
        let one = run(&config(1, 256));
        // A worker does a hundred thousand a second.
        assert!((0.9..=1.0).contains(&(one.throughput / 1e5)), "{one:?}");
        let four = run(&config(4, 1024));
        assert!(
            (3.4..=4.0).contains(&(four.throughput / one.throughput)),
            "{four:?}"
        );
        // The log takes 64 entries in 52 microseconds.
        let many = run(&config(64, 8192));
        let most = 64.0 / 52e-6;
        assert!((0.85..=1.0).contains(&(many.throughput / most)), "{many:?}");
        assert!(many.entries_per_group > 55.0, "{many:?}");
        let larger = run(&GroupConfig {
            group: 1024,
            ..config(64, 8192)
        });
        assert!(larger.throughput > many.throughput * 1.2, "{larger:?}");
    }

    #[test]
    fn threads_of_one_machine_share_its_processors() {
        let apart = run(&config(2, 128));
        let shared = run(&GroupConfig {
            machines: Machines::Shared(1),
            ..config(2, 128)
        });
        let work = 10_000.0 + 500.0 + 2.0 * 200.0;
        assert!(shared.throughput <= 1e9 / work, "{shared:?}");
        assert!(apart.throughput > shared.throughput, "{apart:?}");
    }

    #[test]
    fn a_single_member_waits_for_no_other() {
        let result = run(&GroupConfig {
            members: 1,
            ..config(1, 64)
        });
        assert!(result.throughput > 9e4, "{result:?}");
    }
}
