//! Messages between nodes: they take time, and are lost, repeated, overtaken and delayed.

use std::time::Duration;

use ::simulation::draw;
use fastrand::Rng;

use super::plan::RunPlan;

/// The links between all nodes.
pub(super) struct SimulatedNetwork {
    nodes: usize,
    /// The time until which no message gets through, for each pair of nodes.
    cut: Vec<Duration>,
    /// The time at which the last message on each link arrives.
    last: Vec<Duration>,
    orderly: bool,
    lose: u32,
    repeat: u32,
    delay: Duration,
}

impl SimulatedNetwork {
    pub(super) fn new(plan: &RunPlan) -> SimulatedNetwork {
        let nodes = plan.nodes();
        SimulatedNetwork {
            nodes,
            cut: vec![Duration::ZERO; nodes * nodes],
            last: vec![Duration::ZERO; nodes * nodes],
            orderly: plan.orderly,
            lose: if plan.orderly { 0 } else { plan.faults.lose },
            repeat: if plan.orderly { 0 } else { plan.faults.repeat },
            delay: plan.delay,
        }
    }

    /// Stops messages from one node to another until then.
    pub(super) fn cut(&mut self, from: usize, to: usize, until: Duration) {
        let cut = &mut self.cut[from * self.nodes + to];
        *cut = until.max(*cut);
    }

    /// Repairs all links; no message is lost any more.
    pub(super) fn heal(&mut self) {
        self.cut.fill(Duration::ZERO);
        (self.lose, self.repeat) = (0, 0);
    }

    pub(super) fn is_cut(&self, from: usize, to: usize, now: Duration) -> bool {
        now < self.cut[from * self.nodes + to]
    }

    /// Draws the delay of a message.
    pub(super) fn delay(&self, random: &mut Rng) -> Duration {
        let share = random.f64();
        Duration::from_micros(20) + self.delay.mul_f64(share * share)
    }

    /// Returns the times at which a message arrives that leaves now: none, one, or two.
    pub(super) fn arrivals(
        &mut self,
        (from, to): (usize, usize),
        now: Duration,
        random: &mut Rng,
    ) -> Vec<Duration> {
        if self.is_cut(from, to, now) || draw::chance(random, self.lose) {
            return Vec::new();
        }
        let copies = 1 + usize::from(draw::chance(random, self.repeat));
        let arrivals = (0..copies).map(|_| {
            let slow = !self.orderly && random.u8(..50) == 0;
            let factor = if slow { random.u32(2..=40) } else { 1 };
            now + self.delay(random) * factor
        });
        let mut arrivals: Vec<Duration> = arrivals.collect();
        if self.orderly {
            let last = &mut self.last[from * self.nodes + to];
            arrivals.iter_mut().for_each(|at| *at = (*at).max(*last));
            *last = arrivals[0];
        }
        arrivals
    }
}
