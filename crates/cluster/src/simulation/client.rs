//! Clients: each runs one transaction after the other and records the answers.
//!
//! Half of them are attached to nodes, as Redis clients are: a node begins their transactions as its
//! own caller's. The others are peers in the network and send requests.

use std::time::Duration;

use base::partition::OwnedReply;
use base::{Abort, NodeId, PartitionId};
use fabric::sim::Endpoint;
use fabric::{Event as LinkEvent, Inbox, Link, Messages};
use history::Outcome;

use super::doubt::Doubt;
use super::job::{Draw, Job, Watched};
use super::machine::Ticket;
use super::reached::Point;
use super::world::{Event, Life, World};
use crate::codec;
use crate::message::{Answer, Message, Request};

/// An answer to a client.
pub(super) struct Answered(pub(super) Result<Vec<OwnedReply>, Abort>);

/// A client of the simulation.
pub(super) struct Client {
    process: u32,
    /// Grows with each transaction, and when the client goes away.
    life: Life,
    left: u32,
    watched: Watched,
    current: Option<Current>,
    remote: Option<Remote>,
}

/// A transaction under way.
struct Current {
    job: Job,
    start: Duration,
    node: usize,
    /// The partition of that node.
    own: Option<PartitionId>,
    /// The node has begun it, or has answered it.
    begun: bool,
    heard: bool,
}

/// A client in the network.
struct Remote {
    endpoint: Endpoint,
    inbox: Inbox,
    link: Option<(usize, Link)>,
    up: bool,
}

impl Client {
    /// Returns `true` if the client has nothing more to do.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.current.is_none()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.current.is_some()
    }
}

impl World {
    pub(super) fn new_client(&mut self) {
        let remote = self.random.bool().then(|| self.connect_client());
        let client = Client {
            process: self.processes,
            life: 0,
            left: self.plan.transactions,
            watched: Watched::new(),
            current: None,
            remote,
        };
        self.processes += 1;
        self.clients.push(client);
        self.pause(self.clients.len() - 1);
    }

    fn connect_client(&self) -> Remote {
        Remote {
            endpoint: self.network.client(),
            inbox: Inbox::default(),
            link: None,
            up: false,
        }
    }

    /// Lets a client think before its next transaction.
    fn pause(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.life += 1;
        if client.left > 0 {
            let life = client.life;
            let pause = self.while_up_to(self.plan.think);
            self.after(pause, Event::Think(at, life));
        }
    }

    /// Lets a client begin a transaction.
    pub(super) fn think(&mut self, at: usize, life: Life) {
        if self.clients[at].life != life {
            return;
        }
        let node = self.random.usize(..self.machines.len());
        let own = self.topology.partition_at(self.machines[node].id);
        let client = &mut self.clients[at];
        let mut draw = Draw {
            random: &mut self.random,
            keys: &self.keys,
            value: &mut self.value,
            flushes: self.plan.flushes,
            own,
        };
        let job = draw.job(&mut client.watched);
        let (node, own) = self.choose_node(&job, node, own);
        self.trace.note(
            self.now,
            format_args!("client {at} wants from node {}: {:?}", node + 1, job.steps),
        );
        let client = &mut self.clients[at];
        client.left -= 1;
        client.current = Some(Current {
            job,
            start: self.now,
            node,
            own,
            begun: false,
            heard: false,
        });
        if client.remote.is_some() {
            self.send(at);
        } else {
            let delay = self.while_up_to(self.plan.delay);
            self.after(delay, Event::Submit(at, life));
        }
    }

    /// Chooses a node. A transaction of one partition is often sent to its owner, as clients do that
    /// know the cluster.
    fn choose_node(
        &mut self,
        job: &Job,
        node: usize,
        own: Option<PartitionId>,
    ) -> (usize, Option<PartitionId>) {
        match job.partitions(&self.keys, own)[..] {
            [Some(only)] if self.random.u8(..4) > 0 => {
                let owner = usize::from(self.topology.node_of(only).0) - 1;
                let leader = self.group_at(owner).map(|group| self.groups[group].leader);
                (leader.flatten().unwrap_or(owner), Some(only))
            }
            _ => (node, own),
        }
    }

    /// Delivers the transaction of an attached client to its node.
    pub(super) fn submit(&mut self, at: usize, life: Life) {
        let client = &mut self.clients[at];
        if client.life != life {
            return;
        }
        let Some(current) = &mut client.current else {
            return;
        };
        let (node, job) = (current.node, current.job.clone());
        current.begun = true;
        let keys = self.keys.clone();
        if !self.begin(node, &job.ops(&keys), Ticket::Client(at, life)) {
            self.end(at, Outcome::Aborted, None);
        }
    }

    /// Handles a node's answer to a transaction.
    pub(super) fn hear(&mut self, node: usize, ticket: Ticket, answered: Answered) {
        match ticket {
            Ticket::Finale(number) => self.finale_answered(node, number, answered),
            Ticket::Client(at, life) => {
                let client = &mut self.clients[at];
                if let (true, Some(current)) = (client.life == life, &mut client.current) {
                    current.heard = true;
                    let delay = self.while_up_to(self.plan.delay);
                    self.after(delay, Event::Answer(at, life, answered));
                }
            }
        }
    }

    /// Handles the answer to a client's transaction.
    pub(super) fn answered(&mut self, at: usize, life: Life, answered: Answered) {
        if self.clients[at].life != life || self.clients[at].current.is_none() {
            return;
        }
        match answered.0 {
            Ok(replies) => self.end(at, Outcome::Committed, Some(&replies)),
            Err(Abort::Unknown { what }) => {
                self.trace
                    .note(self.now, format_args!("client {at}: {what}"));
                self.end(at, Outcome::Unknown, None);
            }
            Err(abort) => {
                self.trace
                    .note(self.now, format_args!("client {at}: {abort}"));
                if matches!(abort, Abort::Precondition { .. }) {
                    self.chronicle.counts.declined += 1;
                } else {
                    self.chronicle.counts.aborted += 1;
                }
                self.end(at, Outcome::Aborted, None);
            }
        }
    }

    /// Ends a client's transaction: the client records it and goes on.
    fn end(&mut self, at: usize, outcome: Outcome, replies: Option<&[OwnedReply]>) {
        let client = &mut self.clients[at];
        let process = client.process;
        let current = client.current.take().expect("a transaction is under way");
        let Current {
            job, start, own, ..
        } = current;
        let time = (start, self.now);
        let doubt = |job, told| Doubt {
            process,
            start,
            told,
            own,
            job,
        };
        let counts = &mut self.chronicle.counts;
        match (outcome, replies) {
            (_, Some(replies)) => {
                counts.committed += 1;
                self.reached.add(Point::Flushed, u64::from(job.flushes()));
                match job.seen(&self.keys, own, replies) {
                    // Its replies do not tell what it replaced, and it need not have replaced anything.
                    Ok(_) if job.is_blind_and_read_atomic(&self.keys) => {
                        let ops = job.attempted(&self.keys, own);
                        self.chronicle.record(process, time, outcome, &ops);
                    }
                    Ok(_) if job.is_blind() => {
                        self.finale.doubts.push(doubt(job, Some(self.now)));
                    }
                    Ok(seen) => {
                        self.chronicle.record(process, time, outcome, &seen.ops);
                        self.clients[at].watched = seen.watched;
                        self.check_sum(seen.sum);
                    }
                    Err(why) => self.fail(why),
                }
            }
            (Outcome::Unknown, None) => {
                counts.unknown += 1;
                self.reached.add(Point::UnknownOutcome, 1);
                if job.is_read_atomic(&self.keys) {
                    let ops = job.attempted(&self.keys, own);
                    self.chronicle.record(process, time, outcome, &ops);
                } else {
                    self.finale.doubts.push(doubt(job, None));
                }
            }
            (_, None) => {
                let ops = job.attempted(&self.keys, own);
                self.chronicle.record(process, time, outcome, &ops);
            }
        }
        self.trace.note(
            self.now,
            format_args!("client {at}: {outcome:?}, {replies:?}"),
        );
        self.pause(at);
    }

    pub(super) fn check_sum(&mut self, sum: Option<i64>) {
        let expected = self.keys.sum();
        if let Some(sum) = sum.filter(|sum| *sum != expected) {
            self.fail(format!(
                "all accounts together have {sum}, and had {expected}"
            ));
        }
    }

    /// Ends the transactions of clients that were attached to a crashed node: they get no answer.
    pub(super) fn lose_clients_of(&mut self, node: usize) {
        for at in 0..self.clients.len() {
            let client = &self.clients[at];
            let waits = |current: &Current| current.node == node && current.begun && !current.heard;
            if client.remote.is_none() && client.current.as_ref().is_some_and(waits) {
                self.end(at, Outcome::Unknown, None);
            }
        }
    }

    /// Replaces a client that goes away by another one.
    pub(super) fn replace_client(&mut self, at: usize) {
        self.trace
            .note(self.now, format_args!("client {at} goes away"));
        if self.clients[at].is_busy() {
            self.end(at, Outcome::Unknown, None);
        }
        self.clients[at].watched.clear();
        self.clients[at].process = self.processes;
        self.processes += 1;
        if let Some(remote) = &self.clients[at].remote {
            self.network.crash(remote.endpoint.host());
            let remote = self.connect_client();
            self.clients[at].remote = Some(remote);
        }
    }

    /// Sends the transaction of a client in the network.
    fn send(&mut self, at: usize) {
        let client = &self.clients[at];
        let node = client.current.as_ref().expect("it has just begun").node;
        let is_leader = self.is_leader(node);
        let client = &mut self.clients[at];
        let number = client.life.into();
        let current = client.current.as_mut().expect("it has just begun");
        let remote = client.remote.as_mut().expect("it is in the network");
        let link = match remote.link {
            Some((node, link)) if node == current.node => link,
            other => {
                if let Some((_, link)) = other {
                    remote.endpoint.close(link);
                }
                remote.up = false;
                let link = remote.endpoint.connect(NodeId(current.node as u16 + 1));
                remote.link = Some((current.node, link));
                link
            }
        };
        let ops = current.job.ops(&self.keys);
        let places = current.job.partitions(&self.keys, current.own);
        let is_owners = is_leader && current.own.is_some() && places == [current.own];
        let request = if is_owners {
            Request::Execute { ops }
        } else if current.job.is_scattered_write(&self.keys) {
            let algorithm = current.job.algorithm;
            Request::Ramp { algorithm, ops }
        } else {
            let holds = current.job.holds && !current.job.is_scattered(&self.keys);
            Request::Coordinate { holds, ops }
        };
        let mut bytes = Vec::new();
        codec::encode(&Message::Request { number, request }, &mut bytes);
        current.begun = true;
        let sent = remote.endpoint.send(link, &bytes);
        remote.endpoint.flush();
        if sent.is_err() {
            remote.link = None;
            self.end(at, Outcome::Aborted, None);
        }
    }

    /// Hands a client in the network the messages that have arrived.
    pub(super) fn receive_client(&mut self, at: usize) {
        let client = &mut self.clients[at];
        let Some(remote) = &mut client.remote else {
            return;
        };
        remote.endpoint.receive(&mut remote.inbox);
        if remote.inbox.is_empty() {
            return;
        }
        let inbox = std::mem::take(&mut remote.inbox);
        for (link, event) in inbox.iter() {
            self.client_event(at, link, &event);
        }
    }

    fn client_event(&mut self, at: usize, link: Link, event: &LinkEvent<'_>) {
        let client = &mut self.clients[at];
        let life = client.life;
        let Some(remote) = &mut client.remote else {
            return;
        };
        if remote.link.is_none_or(|(_, own)| own != link) {
            return;
        }
        match event {
            LinkEvent::Up(_) => remote.up = true,
            LinkEvent::Drained => {}
            LinkEvent::Down(why) => {
                remote.link = None;
                let was_up = std::mem::replace(&mut remote.up, false);
                let reads = |current: &Current| current.job.is_read_only();
                let Some(current) = &client.current else {
                    return;
                };
                let nothing = !was_up || reads(current);
                self.trace
                    .note(self.now, format_args!("client {at}: {why}"));
                let outcome = if nothing {
                    Outcome::Aborted
                } else {
                    Outcome::Unknown
                };
                self.end(at, outcome, None);
            }
            LinkEvent::Message(bytes) => {
                let answered = match codec::decode(bytes) {
                    Ok(Message::Reply { number, reply }) if number == u64::from(life) => reply,
                    Ok(_) => return,
                    Err(error) => return self.fail(format!("a client was told nonsense: {error}")),
                };
                let answered = match answered {
                    Answer::Replies(replies) => Ok(replies),
                    Answer::Aborted(abort) => Err(abort),
                    other => {
                        let what = format!("{other:?}");
                        Err(Abort::Unknown { what })
                    }
                };
                self.answered(at, life, Answered(answered));
            }
        }
    }
}
