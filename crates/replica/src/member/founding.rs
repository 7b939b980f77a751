//! Founds a partition, and decides what a member does whose disk is empty.
//!
//! An empty disk may mean that the partition never existed, or that this node has lost its data. In
//! the second case the member must not come back under its old number: its votes and its log are
//! gone. The rules are:
//!
//! | a blank member | does |
//! |---|---|
//! | has heard, since it was started, from every other member that it knows nothing, too | says so |
//! | and hears the same of every other member, or that it has begun | begins, as one of the first members |
//! | is invited by a leader, which has a place for it under a new number | begins under that number |
//! | else | waits, and says for what |
//!
//! A member knows nothing if its disk is empty, or if it has begun and knows of no elected leader.
//! If this has been true of all other members since this one was started, there is nothing that
//! this one could have lost: a candidate that it had voted for, or a leader that it had heard from,
//! would know of the election.

use std::time::Duration;

use base::NodeId;
use hashbrown::{HashMap, HashSet};
use raft::eraftpb::ConfState;

use super::{Failure, Member};
use crate::messages::{Envelope, Hello};
use crate::status::raft_id;

/// The interval at which the others are asked.
const PAUSE: Duration = Duration::from_millis(100);
/// A node that has not said for this many intervals that it waits is not counted as waiting.
const LATELY: u32 = 20;

/// See the module's description.
#[derive(Default)]
pub(super) struct Founding {
    /// The nodes that have said that they know nothing.
    blank: HashSet<NodeId>,
    /// The last hello of each node, and its time.
    last: HashMap<NodeId, (Hello, Duration)>,
    next: Duration,
}

impl Member {
    /// Asks the others for their state, while this node is not a member.
    pub(super) fn seek_others(&mut self) -> Result<(), Failure> {
        if self.options.nodes == [self.options.me] {
            return self.found();
        }
        if self.now.since >= self.founding.next {
            self.founding.next = self.now.since + PAUSE;
            self.next_tick = self.founding.next;
            self.greet();
        }
        Ok(())
    }

    /// Returns the last hello of a node, if it is recent.
    pub(super) fn founding_hello(&self, node: NodeId) -> Option<Hello> {
        let (hello, at) = self.founding.last.get(&node)?;
        let lately = (self.options.election * 2).max(PAUSE * LATELY);
        (self.now.since < *at + lately).then_some(*hello)
    }

    fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        let me = self.options.me;
        self.options.nodes.iter().copied().filter(move |n| *n != me)
    }

    fn hello(&self) -> Hello {
        Hello {
            raft_id: self.raft.as_ref().map_or(0, |raft| raft.raft.id),
            knows_nothing: self.raft.as_ref().is_none_or(|raft| {
                let raft = &raft.raft;
                let first = raft.id == raft_id(1, self.options.me);
                first && raft.term == 0 && raft.raft_log.last_index() == 0
            }),
            all_blank: self
                .others()
                .all(|node| self.founding.blank.contains(&node)),
        }
    }

    pub(super) fn on_hello(&mut self, from: NodeId, hello: Hello) -> Result<(), Failure> {
        let is_blank = hello.raft_id == 0;
        if hello.knows_nothing {
            self.founding.blank.insert(from);
        }
        self.founding.last.insert(from, (hello, self.now.since));
        if self.raft.is_some() {
            if is_blank {
                // The sender asks for an answer.
                let answer = Envelope::Hello(self.hello());
                self.send(from, &answer);
            }
            return Ok(());
        }
        let ready = |node| {
            let hello = self.founding.last.get(&node);
            hello.is_some_and(|(hello, _)| hello.all_blank || hello.raft_id == raft_id(1, node))
        };
        if self.hello().all_blank && self.others().all(ready) {
            return self.found();
        }
        self.say_what_it_waits_for();
        Ok(())
    }

    fn say_what_it_waits_for(&mut self) {
        let member = self
            .founding
            .last
            .values()
            .any(|(hello, _)| !hello.knows_nothing);
        let note = if member {
            format!(
                "the partition exists, and this node's disk is empty: run \"kumiki cluster add \
                 --node {}\" to give it a copy",
                self.options.me.0
            )
        } else {
            let silent = self
                .others()
                .filter(|n| !self.founding.last.contains_key(n));
            let silent: Vec<u16> = silent.map(|node| node.0).collect();
            if silent.is_empty() {
                return;
            }
            format!("the partition is new, and begins when nodes {silent:?} have been heard from")
        };
        if self.note.as_ref() != Some(&note) {
            tracing::info!("{note}");
            self.note = Some(note);
            self.changed = true;
        }
    }

    /// Starts as one of the first members.
    fn found(&mut self) -> Result<(), Failure> {
        let ids = self.options.nodes.iter().map(|node| raft_id(1, *node));
        let members = ConfState::from((ids.collect::<Vec<u64>>(), vec![]));
        let id = raft_id(1, self.options.me);
        tracing::info!(members = ?self.options.nodes, "founds the partition");
        self.become_member(id, &members)?;
        self.greet();
        Ok(())
    }

    /// Sends this member's state to all.
    fn greet(&mut self) {
        let hello = Envelope::Hello(self.hello());
        for node in self.options.nodes.clone() {
            self.send(node, &hello);
        }
    }

    fn become_member(&mut self, id: u64, members: &ConfState) -> Result<(), Failure> {
        let Some(mut log) = self.blank.take() else {
            return Ok(());
        };
        if let Err(error) = log.found(id, members) {
            self.blank = Some(log);
            return Err(error.into());
        }
        self.note = None;
        self.next_tick = self.now.since + self.options.tick();
        self.start(log)
    }

    /// Takes a leader's invitation to join as a member.
    pub(super) fn on_invite(&mut self, id: u64) -> Result<(), Failure> {
        if self.raft.is_some() || crate::status::node_of(id) != self.options.me {
            return Ok(());
        }
        tracing::info!(raft_id = id, "joins the partition");
        self.become_member(id, &ConfState::default())?;
        self.greet();
        Ok(())
    }
}
