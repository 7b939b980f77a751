//! Partitions that several machines hold: their leaders, and the fate of what a leader has begun.
//!
//! Consensus is modelled by one [`Book`]. A leader writes into it; when it is replaced, a branch of the
//! book goes on, with everything that was durable and some of the rest, in its order: a random prefix.
//! The old leader, if it does not know yet, goes on writing into a book that no machine reads.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use base::participant::{Participant, State};
use base::{Epoch, PartitionId};

use super::book::Book;
use super::partition::Partition;
use super::reached::Point;
use super::world::{Event, Life, World};

/// The machines that hold a replicated partition.
pub(super) struct Group {
    pub(super) of: PartitionId,
    /// The numbers of the machines.
    members: Vec<usize>,
    pub(super) book: Rc<RefCell<Book>>,
    /// The machine that leads.
    pub(super) leader: Option<usize>,
    /// Grows with every change of the leader.
    term: u64,
    /// No leader has given a ticket above this one that it has led with to its end.
    newest: Epoch,
}

impl World {
    /// Returns the groups of the replicated partitions.
    pub(super) fn groups(&self) -> Vec<Group> {
        let partitions = self.topology.partitions().iter();
        let replicated = partitions.filter(|one| self.topology.is_replicated(one.id));
        let group = |one: &crate::topology::PartitionInfo| Group {
            of: one.id,
            members: one.nodes.iter().map(|id| usize::from(id.0) - 1).collect(),
            book: Rc::default(),
            leader: None,
            term: 0,
            newest: Epoch::ZERO,
        };
        replicated.map(group).collect()
    }

    /// Returns the group to which a machine belongs.
    pub(super) fn group_at(&self, at: usize) -> Option<usize> {
        let groups = &mut self.groups.iter();
        groups.position(|group| group.members.contains(&at))
    }

    /// Returns `true` if a machine leads its partition, or holds it alone. The machine itself may
    /// believe otherwise.
    pub(super) fn is_leader(&self, at: usize) -> bool {
        let group = self.group_at(at).map(|group| &self.groups[group]);
        group.is_none_or(|group| group.leader == Some(at))
    }

    /// Takes the leadership from a group's leader, if it has one.
    pub(super) fn depose(&mut self, number: usize) {
        let group = &mut self.groups[number];
        let Some(at) = group.leader.take() else {
            return;
        };
        group.term += 1;
        if let Some(running) = &self.machines[at].running {
            group.newest = group.newest.max(running.partition.newest());
        }
        let (branch, kept, lost) = group.book.borrow().branch(&mut self.random);
        group.book = Rc::new(RefCell::new(branch));
        let (of, term) = (group.of, group.term);
        let machine = &mut self.machines[at];
        let (id, life) = (machine.id, machine.life);
        self.trace.note(
            self.now,
            format_args!(
                "{id} does not lead {of} any more; of what is open, {kept} is kept, {lost} lost"
            ),
        );
        for (point, times) in [(Point::Kept, kept), (Point::Lost, lost)] {
            self.reached.add(point, u64::from(times > 0));
        }
        let pause = self.while_up_to(Duration::from_millis(60));
        self.after(pause, Event::Elect(number, term));
        if self.random.bool() {
            self.step_down(at);
        } else if let Some(running) = &self.machines[at].running {
            let leadership = running.partition.leadership();
            let time = self.while_up_to(Duration::from_millis(150));
            self.after(time, Event::Notice(at, life, leadership));
        }
    }

    /// Tells a machine that it does not lead any more.
    pub(super) fn step_down(&mut self, at: usize) {
        let group = self.group_at(at).expect("it is one of several");
        if let Some(running) = &mut self.machines[at].running {
            let group = &mut self.groups[group];
            group.newest = group.newest.max(running.partition.newest());
            running.partition.step_down();
            running.is_syncing = false;
            self.turn(at);
        }
    }

    pub(super) fn notice(&mut self, at: usize, life: Life, leadership: u64) {
        let machine = &self.machines[at];
        let is_it = |running: &super::machine::Running| {
            running.partition.leads().is_ok() && running.partition.leadership() == leadership
        };
        if machine.life == life && machine.running.as_ref().is_some_and(is_it) {
            self.step_down(at);
        }
    }

    /// Makes one of a group's machines that are up its leader.
    pub(super) fn elect(&mut self, number: usize, term: u64) {
        let group = &self.groups[number];
        if group.term != term || group.leader.is_some() {
            return;
        }
        let up = group.members.iter().copied();
        let up: Vec<usize> = up
            .filter(|at| self.machines[*at].running.is_some())
            .collect();
        if up.is_empty() {
            return self.after(Duration::from_millis(5), Event::Elect(number, term));
        }
        let at = up[self.random.usize(..up.len())];
        // It may be the one that was replaced.
        self.step_down(at);
        let group = &mut self.groups[number];
        if group.leader.is_some() || self.machines[at].running.is_none() {
            return self.after(Duration::from_millis(1), Event::Elect(number, term));
        }
        group.book.borrow_mut().durable = group.newest;
        let machine = &mut self.machines[at];
        machine.set_clock(self.now);
        let mut partition = match Partition::open(&group.book, &machine.clock, group.newest) {
            Ok(partition) => partition,
            Err(error) => return self.fail(format!("node {} cannot lead: {error}", at + 1)),
        };
        let undecided = partition.undecided();
        let prepared = |(_, state): &(_, State)| matches!(state, State::Prepared(_));
        let took_over = undecided.iter().any(prepared);
        group.leader = Some(at);
        let (id, of) = (machine.id, group.of);
        let running = machine.running.as_mut().expect("it was seen");
        running.partition.lead(partition);
        self.trace
            .note(self.now, format_args!("{id} leads {of} in term {term}"));
        self.reached.add(Point::Elected, u64::from(term > 0));
        self.reached.add(Point::TookOver, u64::from(took_over));
        self.spread(number);
        self.turn(at);
    }

    /// Plans when the members of a group hear of its leader.
    pub(super) fn spread(&mut self, number: usize) {
        let term = self.groups[number].term;
        let pause = self.while_up_to(Duration::from_millis(40));
        self.after(pause, Event::Heard(number, term));
    }

    pub(super) fn heard(&mut self, number: usize, term: u64) {
        let group = &self.groups[number];
        if group.term != term {
            return;
        }
        let leader = group.leader.map(|at| self.machines[at].id);
        for &at in &group.members {
            if let Some(running) = &mut self.machines[at].running {
                running.partition.leader = leader;
            }
        }
    }
}
