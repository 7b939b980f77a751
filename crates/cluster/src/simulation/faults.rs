//! Faults that come by themselves, until faults stop.

use std::time::Duration;

use ::simulation::draw;
use fabric::sim::NetworkHost;

use super::plan::TICK;
use super::reached::Point;
use super::world::{Event, World};

impl World {
    /// Draws the faults of this moment.
    pub(super) fn draw_faults(&mut self) {
        if self.is_calm() {
            return;
        }
        let faults = self.plan.faults;
        self.after(TICK, Event::Tick);
        let node = self.random.usize(..self.machines.len());
        let other = self.random.usize(..self.machines.len());
        if self.draw(faults.crash) {
            self.crash(node);
        }
        if self.draw(faults.depose) && !self.groups.is_empty() {
            let group = self.random.usize(..self.groups.len());
            self.depose(group);
        }
        if self.draw(faults.separate) && node != other {
            self.separate(node, other);
        }
        if self.draw(faults.break_links) && node != other {
            let (a, b) = (self.machines[node].id, self.machines[other].id);
            self.trace
                .note(self.now, format_args!("links between {a} and {b} break"));
            self.network.break_links(a, b);
        }
        if self.draw(faults.slow_disk) {
            let time = self.while_up_to(Duration::from_millis(100));
            self.trace
                .note(self.now, format_args!("the disk of {} is slow", node + 1));
            self.machines[node].slow_disk = true;
            self.after(time, Event::FastDisk(node));
        }
        if self.draw(faults.slow_link) && node != other {
            let (a, b) = (self.machines[node].id, self.machines[other].id);
            let time = self.while_up_to(Duration::from_millis(100));
            self.network.slow(a, b, Some(20_000));
            self.after(time, Event::FastLink(node, other));
        }
        if self.draw(faults.clock_step) {
            let limit = faults.clock_step_ms;
            let ahead = self.random.i64(-limit..=limit);
            self.trace.note(
                self.now,
                format_args!("the clock of {} is {ahead} ms ahead", node + 1),
            );
            self.machines[node].ahead_ms = ahead;
        }
        if self.draw(faults.client) {
            let client = self.random.usize(..self.clients.len());
            if self.clients[client].is_busy() {
                self.replace_client(client);
            }
        }
    }

    fn draw(&mut self, share: u32) -> bool {
        draw::chance(&mut self.random, share)
    }

    fn separate(&mut self, node: usize, other: usize) {
        let (a, b): (NetworkHost, NetworkHost) = (
            self.machines[node].id.into(),
            self.machines[other].id.into(),
        );
        let is_one_way = self.random.u8(..3) == 0;
        self.trace.note(
            self.now,
            format_args!("{a:?} and {b:?} are separated; one way: {is_one_way}"),
        );
        if is_one_way {
            self.network.partition_one_way(a, b);
        } else {
            self.network.partition(a, b);
        }
        self.reached.add(Point::Separated, 1);
        let time = self.while_up_to(Duration::from_millis(300));
        self.after(time, Event::Heal(node, other));
    }

    pub(super) fn heal(&mut self, node: usize, other: usize) {
        let (a, b) = (self.machines[node].id, self.machines[other].id);
        self.network.heal_between(a, b);
    }

    pub(super) fn fast_link(&mut self, node: usize, other: usize) {
        let (a, b) = (self.machines[node].id, self.machines[other].id);
        self.network.slow(a, b, None);
    }

    /// Stops the faults: all nodes and links work again, and clocks are set right.
    pub(super) fn calm(&mut self) {
        self.trace.note(self.now, format_args!("faults stop"));
        self.network.heal();
        for node in 0..self.machines.len() {
            let machine = &mut self.machines[node];
            machine.slow_disk = false;
            machine.ahead_ms = 0;
            (0..self.machines.len()).for_each(|other| self.fast_link(node, other));
        }
        self.after(Duration::ZERO, Event::Rest);
    }
}
