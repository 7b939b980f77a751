//! The parameters that a seed determines before anything runs: the cluster, its clients, and its faults.

use std::time::Duration;

use ::simulation::draw;
use fastrand::Rng;

use super::scenario::Scenario;
use crate::timeouts::Timeouts;

/// A run's plan. Shares are out of 1000.
#[derive(Clone, Debug)]
pub(super) struct RunPlan {
    /// How many nodes hold each partition.
    pub(super) holders: Vec<u16>,
    /// The last node holds no partition and only coordinates.
    pub(super) has_idle_node: bool,
    pub(super) clients: u32,
    /// Most transactions of each client.
    pub(super) transactions: u32,
    /// Number of read-atomic keys; 0 in runs with ordinary keys alone.
    pub(super) read_atomic: usize,
    /// Number of ordinary keys whose values are recorded.
    pub(super) keys: usize,
    /// Number of accounts whose sum is conserved; 0 if clients flush.
    pub(super) accounts: usize,
    pub(super) flushes: bool,
    /// The longest pause of a client between two transactions.
    pub(super) think: Duration,
    /// The longest time for a sync.
    pub(super) sync: Duration,
    /// The longest time for a message.
    pub(super) delay: Duration,
    /// When faults stop.
    pub(super) faults_stop: Duration,
    pub(super) faults: FaultPlan,
    pub(super) timeouts: Timeouts,
}

/// Faults and their frequency: shares of 1000, per step of a node or per tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FaultPlan {
    /// A node crashes when it has handled an event: before it has sent the messages that follow, after
    /// that, or in the middle.
    pub(super) crash_at_step: u32,
    /// As `crash_at_step`, but only after steps of two-phase commit, which are rarer.
    pub(super) crash_at_protocol: u32,
    /// A node crashes at some moment; per tick.
    pub(super) crash: u32,
    /// A replicated partition gets another leader: per tick, and after steps of its leader.
    pub(super) depose: u32,
    pub(super) depose_at_step: u32,
    /// Two nodes are separated; per tick.
    pub(super) separate: u32,
    /// A link breaks; per tick.
    pub(super) break_links: u32,
    /// Syncs of a node take very long for a while; per tick.
    pub(super) slow_disk: u32,
    /// Messages between two nodes take very long for a while; per tick.
    pub(super) slow_link: u32,
    /// A node's clock is set forth or back; per tick. The step is at most `clock_step_ms`.
    pub(super) clock_step: u32,
    pub(super) clock_step_ms: i64,
    /// A client goes away in the middle of a transaction.
    pub(super) client: u32,
}

/// Interval at which faults that come by themselves are drawn.
pub(super) const TICK: Duration = Duration::from_millis(5);

impl RunPlan {
    pub(super) fn draw(scenario: Scenario, random: &mut Rng) -> RunPlan {
        let mut holders = match random.u8(..6) {
            0 => vec![3, 1],
            1 => vec![3, 1, 1],
            2 => vec![3, 3],
            _ => vec![1; random.usize(2..=5)],
        };
        random.shuffle(&mut holders);
        let is_ramp = scenario == Scenario::Ramp;
        // A flush is of one partition, and of nothing that is read atomic.
        let flushes = random.u8(..4) == 0 && !is_ramp;
        let ms = Duration::from_millis;
        let scale = random.u64(1..=3);
        let faults = FaultPlan::draw(random);
        let faults_stop = ms(random.u64(150..=600));
        let transactions = random.u32(12..=30);
        RunPlan {
            has_idle_node: random.u8(..8) == 0,
            holders,
            clients: random.u32(2..=6),
            transactions,
            read_atomic: if is_ramp { random.usize(2..=6) } else { 0 },
            keys: random.usize(3..=9),
            accounts: if flushes { 0 } else { random.usize(2..=5) },
            flushes,
            // So there are transactions for as long as there are faults.
            think: faults_stop * 3 / transactions,
            sync: draw::one_of(random, &[Duration::from_micros(300), ms(2), ms(10)]),
            delay: draw::one_of(random, &[Duration::from_micros(100), ms(1), ms(5)]),
            faults_stop,
            faults,
            timeouts: Timeouts {
                answer: ms(60 * scale),
                hold: ms(150 * scale),
                transaction: ms(500 * scale),
                unreachable: ms(50 * scale),
                doubt: ms(40 * scale),
                forget: ms(80 * scale),
            },
        }
    }

    pub(super) fn nodes(&self) -> u16 {
        self.holders.iter().sum::<u16>() + u16::from(self.has_idle_node)
    }
}

impl FaultPlan {
    fn draw(random: &mut Rng) -> FaultPlan {
        // One run in eight has no faults: it shows that transactions get through.
        if random.u8(..8) == 0 {
            return FaultPlan::default();
        }
        let mut some = |most| draw::share(random, most);
        FaultPlan {
            crash_at_step: some(4),
            crash_at_protocol: some(25),
            crash: some(15),
            depose: some(40),
            depose_at_step: some(10),
            separate: some(20),
            break_links: some(40),
            slow_disk: some(20),
            slow_link: some(20),
            clock_step: some(20),
            client: some(30),
            clock_step_ms: draw::one_of(random, &[20, 500, 4_000, 12_000]),
        }
    }

    /// Returns `true` if there are no faults.
    pub(super) fn is_none(&self) -> bool {
        let none = FaultPlan {
            clock_step_ms: self.clock_step_ms,
            ..FaultPlan::default()
        };
        *self == none
    }
}
