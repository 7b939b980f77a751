//! Listens to what a node sends, and lets a crash come between two messages.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use ::simulation::{Trace, draw};
use base::{NodeId, Op, TransactionId};
use fabric::sim::Endpoint;
use fabric::{Link, Messages, SendError};
use fastrand::Rng;

use crate::codec;
use crate::message::{Answer, Message, Notice, Request};

/// Stands between a node and its endpoint while it sends.
pub(super) struct OutgoingMessages<'w> {
    pub(super) node: NodeId,
    pub(super) now: Duration,
    pub(super) endpoint: &'w mut Endpoint,
    pub(super) trace: &'w mut Trace,
    pub(super) random: &'w mut Rng,
    /// The share of 1000 protocol steps after which the node crashes.
    pub(super) crash_share: u32,
    /// Number of messages that still leave; `None`: all of them.
    pub(super) left: Option<usize>,
    /// Attempts for which the node has asked votes, and which it has not decided.
    pub(super) voting: &'w mut BTreeSet<TransactionId>,
}

impl OutgoingMessages<'_> {
    fn observe(&mut self, link: Link, bytes: &[u8]) {
        let message = codec::decode(bytes).expect("nodes send what they can read");
        match &message {
            Message::Request {
                request: Request::Prepare { id, .. },
                ..
            } => drop(self.voting.insert(*id)),
            Message::Request {
                request: Request::Commit { id, .. },
                ..
            }
            | Message::Notice(Notice::Abort { id }) => drop(self.voting.remove(id)),
            _ => {}
        }
        let node = self.node;
        let text = MessageText(&message);
        self.trace.note(
            self.now,
            format_args!("node {node} sends on {}: {text}", link.0),
        );
        if self.left.is_none()
            && is_protocol(&message)
            && draw::chance(self.random, self.crash_share)
        {
            // The last message that leaves is this one, or the one before.
            self.left = Some(self.random.usize(..2));
        }
    }
}

/// Formats a message as one line for people: keys as texts, without what repeats.
pub(super) struct MessageText<'a, 'm>(pub(super) &'a Message<'m>);

impl fmt::Display for MessageText<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Message::Request { number, request } => match request {
                Request::Execute { ops } => write!(f, "{number}: execute {}", OpsText(ops)),
                Request::Once { of, ops } => {
                    write!(f, "{number}: execute once {of:?} {}", OpsText(ops))
                }
                Request::OpenSession => write!(f, "{number}: open session"),
                Request::Each { transactions } => {
                    write!(f, "{number}: execute each of {}", transactions.len())
                }
                Request::Read { ops } => write!(f, "{number}: read {}", OpsText(ops)),
                Request::Coordinate { holds, ops } => {
                    let holding = if *holds { ", holding" } else { "" };
                    write!(f, "{number}: coordinate{holding} {}", OpsText(ops))
                }
                Request::Ramp { algorithm, ops } => {
                    write!(f, "{number}: put by {algorithm} {}", OpsText(ops))
                }
                Request::Versions { asks } => write!(f, "{number}: versions {asks:?}"),
                Request::Prepare {
                    id,
                    age,
                    participant_list,
                    ops,
                    ..
                } => {
                    let (age, home) = (age.0, participant_list.home);
                    let ops = OpsText(ops);
                    write!(
                        f,
                        "{number}: prepare {id} of age {age:x}, home {home}: {ops}"
                    )
                }
                Request::Commit { id, .. } => write!(f, "{number}: commit {id}"),
                Request::Vote { id } => write!(f, "{number}: vote {id}"),
                Request::Outcome { id } => write!(f, "{number}: outcome {id}"),
                Request::Abandon { id } => write!(f, "{number}: abandon {id}"),
                Request::Inquire { id } => write!(f, "{number}: inquire {id}"),
                Request::Topology => write!(f, "{number}: topology"),
                Request::Locate { keys } => write!(f, "{number}: locate {} keys", keys.len()),
                Request::Region { .. } => write!(f, "{number}: region"),
            },
            Message::Reply { number, reply } => write!(f, "reply to {number}: {reply:?}"),
            Message::Notice(Notice::Abort { id }) => write!(f, "abort {id}"),
            Message::Notice(Notice::Forget { id }) => write!(f, "forget {id}"),
            Message::Publication(publication) => {
                write!(f, "publication to {}", publication.channel.escape_ascii())
            }
            Message::Introduction(key) => write!(f, "introduction of {:x}", key.unique()),
        }
    }
}

/// Formats operations: their names and keys.
pub(super) struct OpsText<'a, 'o>(pub(super) &'a [Op<'o>]);

impl fmt::Display for OpsText<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, op) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { ", " };
            let name = format!("{op:?}");
            let name = name.split(' ').next().unwrap_or_default();
            let key = op.key().unwrap_or_default().escape_ascii();
            write!(f, "{space}{name} {key}")?;
            if let Op::Put { value, .. } = op {
                write!(f, " = {}", value.escape_ascii())?;
            }
        }
        Ok(())
    }
}

fn is_protocol(message: &Message<'_>) -> bool {
    match message {
        Message::Request { request, .. } => !matches!(
            request,
            Request::Execute { .. }
                | Request::Once { .. }
                | Request::OpenSession
                | Request::Each { .. }
                | Request::Read { .. }
                | Request::Coordinate { .. }
                | Request::Ramp { .. }
                | Request::Topology
        ),
        Message::Reply { reply, .. } => !matches!(reply, Answer::Topology(_) | Answer::Failed(_)),
        Message::Notice(_) => true,
        Message::Introduction(_) | Message::Publication(_) => false,
    }
}

impl Messages for OutgoingMessages<'_> {
    fn connect(&mut self, to: NodeId) -> Link {
        let link = self.endpoint.connect(to);
        let node = self.node;
        self.trace.note(
            self.now,
            format_args!("node {node} connects to {to} by {}", link.0),
        );
        link
    }

    fn send(&mut self, on: Link, message: &[u8]) -> Result<(), SendError> {
        self.observe(on, message);
        match &mut self.left {
            // The node is gone, though it does not know it yet.
            Some(0) => Ok(()),
            Some(left) => {
                *left -= 1;
                self.endpoint.send(on, message)
            }
            None => self.endpoint.send(on, message),
        }
    }

    fn close(&mut self, link: Link) {
        self.endpoint.close(link);
    }
}
