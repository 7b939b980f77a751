//! Faults that occur by themselves, until they stop.

use std::time::Duration;

use super::plan::TICK;
use super::reached::Point;
use super::world::{SimulatedEvent, World};
use ::simulation::draw;

const LONG: Duration = Duration::from_millis(500);

impl World {
    /// Draws the faults that occur now.
    pub(super) fn draw_faults(&mut self) {
        if self.is_calm() {
            return;
        }
        self.after(TICK, SimulatedEvent::Tick);
        let faults = self.plan.faults;
        let node = self.random.usize(..self.nodes.len());
        // Faults of the leader matter more than those of other nodes.
        let node = match self.leader() {
            Some(leader) if self.random.bool() => leader,
            _ => node,
        };
        if self.draw(faults.crash) && self.nodes[node].running.is_some() {
            self.reached.hit(Point::Crashed);
            self.crash(node);
        }
        if self.draw(faults.power) && !self.nodes[node].power_fails {
            let after = self.random.u64(..8);
            self.nodes[node].power_fails = true;
            self.nodes[node].volume.fail_power(after);
        }
        if self.draw(faults.separate) {
            self.separate(node);
        }
        if self.draw(faults.isolate) {
            self.isolate(node);
        }
        if self.draw(faults.pause) && self.nodes[node].running.is_some() {
            self.pause(node);
        }
        self.draw_disk_faults(node);
        if self.draw(faults.clock_step) {
            let ms = self.random.i64(-500..=500);
            self.note(format_args!(
                "the clock of node {} is {ms} ms ahead",
                node + 1
            ));
            self.nodes[node].clock.set_ahead(ms);
        }
        if self.draw(faults.snapshot)
            && let Some(running) = &mut self.nodes[node].running
        {
            running.member.request_snapshot();
        }
    }

    /// Pauses a node for a while, or only its member's thread.
    fn pause(&mut self, node: usize) {
        let until = self.now + LONG.mul_f64(self.random.f64());
        let wholly = self.random.bool();
        self.note(format_args!(
            "node {} pauses until {until:?}, wholly: {wholly}",
            node + 1
        ));
        self.reached.hit(Point::Paused);
        let one = &mut self.nodes[node];
        if wholly {
            one.paused_until = until;
        } else {
            one.busy_until = until.max(one.busy_until);
        }
    }

    fn draw_disk_faults(&mut self, node: usize) {
        let faults = self.plan.faults;
        if self.draw(faults.slow_disk) {
            let time = self.while_up_to(LONG);
            self.nodes[node].slowness = 50;
            self.after(time, SimulatedEvent::MendDisk(node));
        }
        if self.draw(faults.full_disk) {
            let time = self.while_up_to(LONG);
            self.note(format_args!("the disk of node {} is full", node + 1));
            self.nodes[node].volume.set_full(true);
            self.after(time, SimulatedEvent::MendDisk(node));
        }
        if self.draw(faults.lost_disk)
            && self.run_end.opened
            && self.may_lose()
            && !self.admin.out.contains(&node)
        {
            self.wipe(node);
        }
    }

    fn draw(&mut self, share: u32) -> bool {
        draw::chance(&mut self.random, share)
    }

    fn separate(&mut self, node: usize) {
        let other = self.random.usize(..self.nodes.len());
        let one_way = self.random.bool();
        let until = self.now + self.while_up_to(LONG);
        self.note(format_args!(
            "nodes {} and {} are separated until {until:?}",
            node + 1,
            other + 1
        ));
        self.reached.hit(Point::Separated);
        self.network.cut(node, other, until);
        if !one_way {
            self.network.cut(other, node, until);
        }
    }

    fn isolate(&mut self, node: usize) {
        let (hears, is_heard) = match self.random.u8(..3) {
            0 => (false, true),
            1 => (true, false),
            _ => (false, false),
        };
        let until = self.now + LONG.mul_f64(self.random.f64());
        self.note(format_args!(
            "node {} hears others: {hears}, is heard: {is_heard}, until {until:?}",
            node + 1
        ));
        self.reached.hit(Point::Isolated);
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            if !hears {
                self.network.cut(other, node, until);
            }
            if !is_heard {
                self.network.cut(node, other, until);
            }
        }
    }

    pub(super) fn mend_disk(&mut self, node: usize) {
        self.nodes[node].slowness = 1;
        self.nodes[node].volume.set_full(false);
    }

    /// Stops the faults: everything is repaired, and all nodes run.
    pub(super) fn calm(&mut self) {
        self.note(format_args!("faults stop"));
        self.network.heal();
        for node in 0..self.nodes.len() {
            self.mend_disk(node);
            let one = &mut self.nodes[node];
            one.paused_until = self.now;
            one.busy_until = self.now;
            if one.power_fails {
                self.crash(node);
            }
            let one = &self.nodes[node];
            let life = one.life;
            if one.running.is_none() {
                self.after(Duration::ZERO, SimulatedEvent::Restart(node, life));
            } else {
                self.plan_turn(node, Duration::ZERO);
            }
        }
        self.after(Duration::ZERO, SimulatedEvent::Rest);
    }
}
