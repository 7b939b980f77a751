//! Clients: each runs one transaction after the other and records the answers.
//!
//! Half of them are attached to nodes, as Redis clients are: a node begins their transactions as its
//! own caller's. The others are peers in the network and send requests; some of their writes of read-atomic
//! keys they coordinate themselves (module `coordinating_clients`).

use std::time::Duration;

use base::partition::OwnedReply;
use base::{Abort, NodeId, PartitionId};
use fabric::sim::Endpoint;
use fabric::{Event as LinkEvent, Inbox, Link, Messages};
use history::Outcome;

use super::client_transaction::{ClientTransaction, TransactionGenerator, Watched};
use super::coordinated_write::{ClientWrite, CoordinatingClient};
use super::coverage::Point;
use super::environment::{CallerId, ClientAnswer, Environment, Event, Incarnation};
use super::machines::SimulatedMachines;
use super::uncertain_transaction::UncertainTransaction;
use crate::codec;
use crate::message::{Answer, Message, Request};

/// A client of the simulation.
pub(super) struct SimulatedClient {
    process: u32,
    /// Grows with each transaction, and when the client goes away.
    life: Incarnation,
    left: u32,
    watched: Watched,
    current: Option<CurrentTransaction>,
    remote: Option<RemoteClient>,
}

/// A transaction under way.
pub(super) struct CurrentTransaction {
    pub(super) transaction: ClientTransaction,
    /// Its state, if the client coordinates it.
    pub(super) write: Option<ClientWrite>,
    start: Duration,
    node: usize,
    /// The partition of that node.
    own: Option<PartitionId>,
    /// The node has begun it, or has answered it.
    begun: bool,
    heard: bool,
}

/// A client in the network.
pub(super) struct RemoteClient {
    pub(super) endpoint: Endpoint,
    pub(super) coordinator: CoordinatingClient,
    inbox: Inbox,
    link: Option<(usize, Link)>,
    up: bool,
}

impl SimulatedClient {
    /// Returns `true` if the client has nothing more to do.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.current.is_none()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    pub(super) fn life(&self) -> Incarnation {
        self.life
    }

    pub(super) fn remote_mut(&mut self) -> Option<&mut RemoteClient> {
        self.remote.as_mut()
    }

    /// Returns the transaction under way of a client in the network.
    pub(super) fn current_and_remote(
        &mut self,
    ) -> Option<(&mut CurrentTransaction, &mut RemoteClient)> {
        self.current.as_mut().zip(self.remote.as_mut())
    }
}

/// The clients, and the transactions about which they do not know everything.
#[derive(Default)]
pub(super) struct SimulatedClients {
    pub(super) clients: Vec<SimulatedClient>,
    pub(super) uncertain: Vec<UncertainTransaction>,
}

impl SimulatedClients {
    pub(super) fn new_client(&mut self, env: &mut Environment) {
        let remote = env.random.bool().then(|| Self::connect_client(env));
        let client = SimulatedClient {
            process: env.processes,
            life: 0,
            left: env.plan.transactions,
            watched: Watched::new(),
            current: None,
            remote,
        };
        env.processes += 1;
        self.clients.push(client);
        self.pause(env, self.clients.len() - 1);
    }

    fn connect_client(env: &mut Environment) -> RemoteClient {
        RemoteClient {
            endpoint: env.network.client(),
            coordinator: CoordinatingClient::new(env),
            inbox: Inbox::default(),
            link: None,
            up: false,
        }
    }

    /// Lets a client think before its next transaction.
    fn pause(&mut self, env: &mut Environment, at: usize) {
        let client = &mut self.clients[at];
        client.life += 1;
        if client.left > 0 {
            let life = client.life;
            let pause = env.while_up_to(env.plan.think);
            env.after(pause, Event::Think(at, life));
        }
    }

    /// Lets a client begin a transaction.
    pub(super) fn think(
        &mut self,
        (env, machines): (&mut Environment, &mut SimulatedMachines),
        at: usize,
        life: Incarnation,
    ) {
        if self.clients[at].life != life {
            return;
        }
        let node = env.random.usize(..machines.machines.len());
        let own = env.topology.partition_at(machines.machines[node].id);
        let client = &mut self.clients[at];
        let mut draw = TransactionGenerator {
            random: &mut env.random,
            keys: &env.keys,
            value: &mut env.value,
            flushes: env.plan.flushes,
            own,
        };
        let transaction = draw.transaction(&mut client.watched);
        let (node, own) = self.choose_node(env, machines, &transaction, node, own);
        env.trace.note(
            env.now,
            format_args!(
                "client {at} wants from node {}: {:?}",
                node + 1,
                transaction.steps
            ),
        );
        let is_write = transaction.writes_several_read_atomic_keys(&env.keys)
            && transaction.partitions(&env.keys, own).len() > 1;
        let client = &mut self.clients[at];
        let coordinates = is_write && client.remote.is_some() && env.random.u8(..3) > 0;
        client.left -= 1;
        client.current = Some(CurrentTransaction {
            transaction,
            write: None,
            start: env.now,
            node,
            own,
            begun: false,
            heard: false,
        });
        if coordinates {
            self.begin_write(env, at);
        } else if client.remote.is_some() {
            self.send(env, machines, at);
        } else {
            let delay = env.while_up_to(env.plan.delay);
            env.after(delay, Event::Submit(at, life));
        }
    }

    /// Chooses a node. A transaction of one partition is often sent to its owner, as clients do that
    /// know the cluster.
    fn choose_node(
        &mut self,
        env: &mut Environment,
        machines: &SimulatedMachines,
        transaction: &ClientTransaction,
        node: usize,
        own: Option<PartitionId>,
    ) -> (usize, Option<PartitionId>) {
        match transaction.partitions(&env.keys, own)[..] {
            [Some(only)] if env.random.u8(..4) > 0 => {
                let owner = usize::from(env.topology.node_of(only).0) - 1;
                let leader = machines
                    .group_at(owner)
                    .map(|group| machines.groups[group].leader);
                (leader.flatten().unwrap_or(owner), Some(only))
            }
            _ => (node, own),
        }
    }

    /// Delivers the transaction of an attached client to its node.
    pub(super) fn submit(
        &mut self,
        (env, machines): (&mut Environment, &mut SimulatedMachines),
        at: usize,
        life: Incarnation,
    ) {
        let client = &mut self.clients[at];
        if client.life != life {
            return;
        }
        let Some(current) = &mut client.current else {
            return;
        };
        let (node, transaction) = (current.node, current.transaction.clone());
        current.begun = true;
        let keys = env.keys.clone();
        if !machines.begin(
            env,
            node,
            &transaction.ops(&keys),
            CallerId::Attached(at, life),
        ) {
            self.end(env, at, Outcome::Aborted, None);
        }
    }

    /// Notes that a node has answered a transaction of a client that is attached to it.
    pub(super) fn note_answer(
        &mut self,
        env: &mut Environment,
        (at, life): (usize, Incarnation),
        answered: ClientAnswer,
    ) {
        let client = &mut self.clients[at];
        if let (true, Some(current)) = (client.life == life, &mut client.current) {
            current.heard = true;
            let delay = env.while_up_to(env.plan.delay);
            env.after(delay, Event::Answer(at, life, answered));
        }
    }

    /// Handles the answer to a client's transaction.
    pub(super) fn answered(
        &mut self,
        env: &mut Environment,
        at: usize,
        life: Incarnation,
        answered: ClientAnswer,
    ) {
        if self.clients[at].life != life || self.clients[at].current.is_none() {
            return;
        }
        match answered.0 {
            Ok(replies) => self.end(env, at, Outcome::Committed, Some(&replies)),
            Err(open @ (Abort::Unknown { .. } | Abort::Unacknowledged { .. })) => {
                env.trace.note(env.now, format_args!("client {at}: {open}"));
                self.end(env, at, Outcome::Unknown, None);
            }
            Err(abort) => {
                env.trace
                    .note(env.now, format_args!("client {at}: {abort}"));
                if matches!(abort, Abort::Precondition { .. }) {
                    env.recorded_history.counts.declined += 1;
                } else {
                    env.recorded_history.counts.aborted += 1;
                }
                self.end(env, at, Outcome::Aborted, None);
            }
        }
    }

    /// Ends a client's transaction: the client records it and goes on.
    pub(super) fn end(
        &mut self,
        env: &mut Environment,
        at: usize,
        outcome: Outcome,
        replies: Option<&[OwnedReply]>,
    ) {
        let client = &mut self.clients[at];
        let process = client.process;
        let current = client.current.take().expect("a transaction is under way");
        let CurrentTransaction {
            transaction,
            start,
            own,
            ..
        } = current;
        let time = (start, env.now);
        let uncertain_transaction = |transaction, acknowledged| UncertainTransaction {
            process,
            start,
            acknowledged,
            own,
            transaction,
        };
        let counts = &mut env.recorded_history.counts;
        match (outcome, replies) {
            (_, Some(replies)) => {
                counts.committed += 1;
                env.reached
                    .add(Point::Flushed, u64::from(transaction.flushes()));
                match transaction.observed_by(&env.keys, own, replies) {
                    // Its replies do not tell what it replaced, and it need not have replaced anything.
                    Ok(_) if transaction.is_blind_and_read_atomic(&env.keys) => {
                        let ops = transaction.attempted(&env.keys, own);
                        env.recorded_history.record(process, time, outcome, &ops);
                    }
                    Ok(_) if transaction.is_blind() => {
                        self.uncertain
                            .push(uncertain_transaction(transaction, Some(env.now)));
                    }
                    Ok(observed_by) => {
                        env.recorded_history
                            .record(process, time, outcome, &observed_by.ops);
                        self.clients[at].watched = observed_by.watched;
                        env.check_sum(observed_by.sum);
                    }
                    Err(why) => env.fail(why),
                }
            }
            (Outcome::Unknown, None) => {
                counts.unknown += 1;
                env.reached.add(Point::UnknownOutcome, 1);
                if transaction.is_read_atomic(&env.keys) {
                    let ops = transaction.attempted(&env.keys, own);
                    env.recorded_history.record(process, time, outcome, &ops);
                } else {
                    self.uncertain
                        .push(uncertain_transaction(transaction, None));
                }
            }
            (_, None) => {
                counts.committed += u64::from(outcome == Outcome::Committed);
                let ops = transaction.attempted(&env.keys, own);
                env.recorded_history.record(process, time, outcome, &ops);
            }
        }
        env.trace.note(
            env.now,
            format_args!("client {at}: {outcome:?}, {replies:?}"),
        );
        self.pause(env, at);
    }

    /// Ends the transactions of clients that were attached to a crashed node: they get no answer.
    pub(super) fn lose_clients_of(&mut self, env: &mut Environment, node: usize) {
        for at in 0..self.clients.len() {
            let client = &self.clients[at];
            let waits = |current: &CurrentTransaction| {
                current.node == node && current.begun && !current.heard
            };
            if client.remote.is_none() && client.current.as_ref().is_some_and(waits) {
                self.end(env, at, Outcome::Unknown, None);
            }
        }
    }

    /// Replaces a client that goes away by another one.
    pub(super) fn replace_client(&mut self, env: &mut Environment, at: usize) {
        env.trace
            .note(env.now, format_args!("client {at} goes away"));
        if self.clients[at].is_busy() {
            self.end(env, at, Outcome::Unknown, None);
        }
        self.clients[at].watched.clear();
        self.clients[at].process = env.processes;
        env.processes += 1;
        if let Some(remote) = &self.clients[at].remote {
            env.network.crash(remote.endpoint.host());
            let remote = Self::connect_client(env);
            self.clients[at].remote = Some(remote);
        }
    }

    /// Sends the transaction of a client in the network.
    fn send(&mut self, env: &mut Environment, machines: &SimulatedMachines, at: usize) {
        let client = &self.clients[at];
        let node = client.current.as_ref().expect("it has just begun").node;
        let is_leader = machines.is_leader(node);
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
        let ops = current.transaction.ops(&env.keys);
        let places = current.transaction.partitions(&env.keys, current.own);
        let is_owners = is_leader && current.own.is_some() && places == [current.own];
        let request = if is_owners {
            Request::Execute { ops }
        } else if current
            .transaction
            .writes_several_read_atomic_keys(&env.keys)
        {
            let algorithm = current.transaction.algorithm;
            Request::Ramp { algorithm, ops }
        } else {
            let holds = current.transaction.holds
                && !current.transaction.has_several_read_atomic_keys(&env.keys);
            Request::Coordinate { holds, ops }
        };
        let mut bytes = Vec::new();
        codec::encode(&Message::Request { number, request }, &mut bytes);
        current.begun = true;
        let sent = remote.endpoint.send(link, &bytes);
        remote.endpoint.flush();
        if sent.is_err() {
            remote.link = None;
            self.end(env, at, Outcome::Aborted, None);
        }
    }

    /// Hands a client in the network the messages that have arrived.
    pub(super) fn receive_client(&mut self, env: &mut Environment, at: usize) {
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
            if !self.coordinator_event(env, at, link, &event) {
                self.client_event(env, at, link, &event);
            }
        }
    }

    fn client_event(
        &mut self,
        env: &mut Environment,
        at: usize,
        link: Link,
        event: &LinkEvent<'_>,
    ) {
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
                let reads = |current: &CurrentTransaction| current.transaction.is_read_only();
                let Some(current) = &client.current else {
                    return;
                };
                let nothing = !was_up || reads(current);
                env.trace.note(env.now, format_args!("client {at}: {why}"));
                let outcome = if nothing {
                    Outcome::Aborted
                } else {
                    Outcome::Unknown
                };
                self.end(env, at, outcome, None);
            }
            LinkEvent::Message(bytes) => {
                let answered = match codec::decode(bytes) {
                    Ok(Message::Reply { number, reply }) if number == u64::from(life) => reply,
                    Ok(_) => return,
                    Err(error) => {
                        return env.fail(format!("a client received a malformed message: {error}"));
                    }
                };
                let answered = match answered {
                    Answer::Replies(replies) => Ok(replies),
                    Answer::Aborted(abort) => Err(abort),
                    other => {
                        let what = format!("{other:?}");
                        Err(Abort::Unknown { what })
                    }
                };
                self.answered(env, at, life, ClientAnswer(answered));
            }
        }
    }
}
