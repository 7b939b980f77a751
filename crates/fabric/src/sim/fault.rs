//! Faults of a network.

use super::Place;
use super::wire::{Item, State};
use super::world::{Action, Standing, World};
use crate::messages::Link;

impl World {
    /// Blocks the direction from one place to another.
    pub(super) fn block(&mut self, from: Place, to: Place) {
        if !self.blocked.insert((from, to)) {
            return;
        }
        let cut = self.number();
        for name in self.wires_between(from, to) {
            let wire = self.wires.get_mut(&name).expect("it was just found");
            // Silence counts from its beginning, in whichever direction it began.
            if wire.cut.is_some() {
                continue;
            }
            wire.cut = Some(cut);
            for side in [0, 1] {
                self.doom(name, side, Some(cut));
            }
        }
    }

    /// Makes one side give up after a time, unless the partition ends.
    fn doom(&mut self, wire: u64, side: usize, cut: Option<u64>) {
        let patience = self.options.dead_after.mul_f64(1.0 + self.rng.f64() / 5.0);
        self.schedule(self.now + patience, Action::Dead { wire, side, cut });
    }

    fn wires_between(&self, a: Place, b: Place) -> Vec<u64> {
        let is_meant = |places| places == [a, b] || places == [b, a];
        let found = self
            .wires
            .iter()
            .filter(|(_, wire)| is_meant(wire.places()));
        found.map(|(&name, _)| name).collect()
    }

    /// Ends partitions. Items that have waited arrive after a new delay, in their order.
    pub(super) fn heal(&mut self, is_meant: impl Fn(Place, Place) -> bool) {
        let healed: Vec<(Place, Place)> = self
            .blocked
            .iter()
            .copied()
            .filter(|&(from, to)| is_meant(from, to))
            .collect();
        for way in &healed {
            self.blocked.remove(way);
        }
        for (from, to) in healed {
            for name in self.wires_between(from, to) {
                self.resume(name);
            }
        }
    }

    fn resume(&mut self, name: u64) {
        for side in [0, 1] {
            let delay = self.delay();
            let Some(wire) = self.wires.get_mut(&name) else {
                return;
            };
            let way = (wire.ends[side].place, wire.ends[1 - side].place);
            let back = (way.1, way.0);
            if !self.blocked.contains(&way) && !self.blocked.contains(&back) {
                wire.cut = None;
            }
            if self.blocked.contains(&way) || wire.ends[side].flight.is_empty() {
                continue;
            }
            let at = self.now + delay;
            let end = &mut wire.ends[side];
            for (arrives, _) in &mut end.flight {
                *arrives = (*arrives).max(at);
            }
            end.last = end.last.max(at);
            self.schedule(at, Action::Arrive { wire: name, side });
        }
    }

    /// Breaks the wires with these links and places.
    pub(super) fn break_where(&mut self, is_meant: impl Fn([Link; 2], [Place; 2]) -> bool) {
        let found = self
            .wires
            .iter()
            .filter(|(_, wire)| is_meant(wire.links(), wire.places()));
        let names: Vec<u64> = found.map(|(&name, _)| name).collect();
        for name in names {
            self.break_wire(name);
        }
    }

    /// Breaks a wire: in each direction a prefix of the items in transit arrives, then the end.
    pub(super) fn break_wire(&mut self, name: u64) {
        for side in [0, 1] {
            self.cut_short(name, side);
            self.travel(name, side, Item::Fin("the connection broke"));
        }
    }

    /// Loses the last items in transit. The caller ensures that the other side learns of the end,
    /// by a new [`Item::Fin`] or by silence: one that was in transit may be lost.
    fn cut_short(&mut self, name: u64, side: usize) {
        if let Some(wire) = self.wires.get_mut(&name) {
            let flight = wire.ends[side].flight.len();
            let keep = self.rng.usize(0..=flight);
            wire.ends[side].cut_short(keep);
        }
    }

    /// Limits the rate of one direction from now on.
    pub(super) fn slow(&mut self, from: Place, to: Place, bytes_per_s: Option<u64>) {
        match bytes_per_s {
            Some(rate) => self.rates.insert((from, to), rate.max(1)),
            None => self.rates.remove(&(from, to)),
        };
    }

    /// Ends a place's endpoint.
    pub(super) fn crash(&mut self, place: Place) {
        let Some(&Standing::Alive(number)) = self.places.get(&place) else {
            return;
        };
        let silent = self.rng.f64() < self.options.silent_crashes;
        let standing = if silent {
            Standing::Silent
        } else {
            Standing::Refusing
        };
        self.places.insert(place, standing);
        self.silence(number);
        let names: Vec<u64> = self.wires.keys().copied().collect();
        for name in names {
            let ends = &self.wires[&name].ends;
            let Some(side) = ends.iter().position(|end| end.endpoint == Some(number)) else {
                continue;
            };
            self.cut_short(name, side);
            if silent {
                self.doom(name, 1 - side, None);
            } else {
                self.travel(name, side, Item::Fin("the peer's process ended"));
            }
            self.forget(name, side);
        }
    }

    /// Brings a machine back that had vanished: peers that still wait for it learn that it knows
    /// nothing any more.
    pub(super) fn break_silence(&mut self, place: Place) {
        let names: Vec<u64> = self.wires.keys().copied().collect();
        for name in names {
            let wire = &self.wires[&name];
            for side in [0, 1] {
                if wire.ends[side].place == place && wire.ends[side].state == State::Closed {
                    self.travel(name, side, Item::Fin("the peer has started again"));
                    break;
                }
            }
        }
    }
}
