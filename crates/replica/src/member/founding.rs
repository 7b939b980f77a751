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

use super::context::{MemberContext, RaftNode};
use crate::messages::{Hello, MemberMessage};
use crate::options::MemberOptions;
use crate::status::raft_id;
use crate::time::Now;

/// The interval at which the others are asked.
const PAUSE: Duration = Duration::from_millis(100);
/// A node that has not said for this many intervals that it waits is not counted as waiting.
const LATELY: u32 = 20;

/// See the module's description.
pub(super) struct Founding {
    /// The nodes that have said that they know nothing.
    blank: HashSet<NodeId>,
    /// The last hello of each node, and its time.
    hellos: HashMap<NodeId, (Hello, Duration)>,
    /// The time at which the others were asked last.
    asked_at: Option<Duration>,
    /// The time of the first turn.
    first_turn: Duration,
}

impl Founding {
    pub(super) fn new(options: &MemberOptions, now: Now) -> Founding {
        Founding {
            blank: HashSet::new(),
            hellos: HashMap::new(),
            asked_at: None,
            first_turn: now.since + options.tick(),
        }
    }

    /// Returns the time of the next turn of a member whose disk is empty.
    pub(super) fn due(&self) -> Duration {
        self.asked_at.map_or(self.first_turn, |at| at + PAUSE)
    }

    /// Asks the others for their state now and then, while this node is not a member.
    pub(super) fn ask_if_due(&mut self, context: &mut MemberContext) {
        let now = context.now.since;
        if self.asked_at.is_none_or(|at| now >= at + PAUSE) {
            self.asked_at = Some(now);
            self.greet(context, None);
        }
    }

    /// Sends this node's state to all others.
    pub(super) fn greet(&self, context: &mut MemberContext, raft: Option<&RaftNode>) {
        let hello = MemberMessage::Hello(self.hello(&context.options, raft));
        for node in context.options.nodes.clone() {
            context.send(node, &hello);
        }
    }

    /// Returns the last hello of a node, if it is recent.
    pub(super) fn recent_hello(&self, context: &MemberContext, node: NodeId) -> Option<Hello> {
        let (hello, at) = self.hellos.get(&node)?;
        let lately = (context.options.election * 2).max(PAUSE * LATELY);
        (context.now.since < *at + lately).then_some(*hello)
    }

    fn hello(&self, options: &MemberOptions, raft: Option<&RaftNode>) -> Hello {
        Hello {
            raft_id: raft.map_or(0, |raft| raft.raft.id),
            knows_nothing: raft.is_none_or(|raft| {
                let raft = &raft.raft;
                let first = raft.id == raft_id(1, options.me);
                first && raft.term == 0 && raft.raft_log.last_index() == 0
            }),
            all_blank: others(options).all(|node| self.blank.contains(&node)),
        }
    }

    /// Takes the hello of another node, and answers it if this node is a member.
    pub(super) fn on_hello(
        &mut self,
        context: &mut MemberContext,
        raft: Option<&RaftNode>,
        from: NodeId,
        hello: Hello,
    ) {
        let is_blank = hello.raft_id == 0;
        if hello.knows_nothing {
            self.blank.insert(from);
        }
        self.hellos.insert(from, (hello, context.now.since));
        // A member that is not blank does not ask for an answer.
        if raft.is_some() && is_blank {
            let answer = MemberMessage::Hello(self.hello(&context.options, raft));
            context.send(from, &answer);
        }
    }

    /// Returns `true` if this node, whose disk is empty, may begin as one of the first members: all
    /// others know nothing, and have heard the same of all others or have begun.
    pub(super) fn may_found(&self, options: &MemberOptions) -> bool {
        let is_ready = |node| {
            let hello = self.hellos.get(&node);
            hello.is_some_and(|(hello, _)| hello.all_blank || hello.raft_id == raft_id(1, node))
        };
        self.hello(options, None).all_blank && others(options).all(is_ready)
    }

    /// Notes what this node, whose disk is empty, waits for.
    pub(super) fn note_waiting(&self, context: &mut MemberContext) {
        let options = &context.options;
        let exists = self.hellos.values().any(|(hello, _)| !hello.knows_nothing);
        let note = if exists {
            format!(
                "the partition exists, and this node's disk is empty: run \"kumiki cluster add \
                 --node {}\" to give it a copy",
                options.me.0
            )
        } else {
            let silent = others(options).filter(|node| !self.hellos.contains_key(node));
            let silent: Vec<u16> = silent.map(|node| node.0).collect();
            if silent.is_empty() {
                return;
            }
            format!("the partition is new, and begins when nodes {silent:?} have been heard from")
        };
        if context.notes.general.as_ref() != Some(&note) {
            tracing::info!("{note}");
            context.notes.general = Some(note);
            context.changed = true;
        }
    }
}

fn others(options: &MemberOptions) -> impl Iterator<Item = NodeId> + '_ {
    let nodes = options.nodes.iter().copied();
    nodes.filter(|node| *node != options.me)
}
