//! The thread that drives a member: its links, its turns.
//!
//! A turn of the loop waits for events, receives from other members, runs the member's turn, and
//! sends. While the member syncs, transactions gather for its next turn.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::NodeId;
use fabric::tcp::Tcp;
use fabric::{Event, Inbox, Link, Messages, Peer, SendError};
use parking_lot::Mutex;
use reactor::{Network, SocketEvent, Wake};

use crate::failure::MemberFailure;
use crate::incoming_links::{IncomingLinks, LinkToClose};
use crate::member::{MalformedMessage, Member, MessageOutcome, Outbox, duplicate_note};
use crate::membership::{ChangeAnswer, MembershipChange};
use crate::shared::MemberShared;

/// The first token of links.
pub(crate) const FIRST_LINK: usize = 0;
/// A link that broke is made again after this time.
const PAUSE: Duration = Duration::from_millis(50);
/// A link that was refused is made again after this time.
const REFUSED: Duration = Duration::from_millis(500);
/// The pause until the log says again that a node sends malformed messages.
const LOG_PAUSE: Duration = Duration::from_secs(60);
/// The pause after which an operation is tried again that failed for a reason that may pass, such
/// as a full disk.
const RETRY: Duration = Duration::from_millis(200);

/// Advice for a member that has stopped.
const STOPPED_ADVICE: &str = "this node's member has stopped: the node serves nothing until its process is \
                       started again. Mend what was the matter and restart it; the other members go \
                       on without it meanwhile";

/// Commands of other threads to this one.
pub(crate) enum DriverCommand {
    Change(MembershipChange, ChangeAnswer),
    Snapshot,
    Stop,
}

/// The means by which other threads reach this one.
pub(crate) struct DriverMailbox {
    waker: Box<dyn Wake>,
    /// The thread has been woken and has not started its next turn: one wake-up is enough.
    woken: AtomicBool,
    commands: Mutex<Vec<DriverCommand>>,
}

impl DriverMailbox {
    pub(crate) fn new(network: &mut impl Network) -> io::Result<DriverMailbox> {
        Ok(DriverMailbox {
            waker: Box::new(network.waker()?),
            woken: AtomicBool::new(false),
            commands: Mutex::default(),
        })
    }

    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    pub(crate) fn command(&self, command: DriverCommand) {
        self.commands.lock().push(command);
        self.wake();
    }
}

/// The connection to another member.
#[derive(Default)]
struct MemberConnection {
    link: Option<Link>,
    /// The link is not made again before this time.
    not_before: Duration,
}

/// The connections to all members.
struct MemberLinks<N: Network> {
    fabric: Tcp<N>,
    connections: HashMap<NodeId, MemberConnection>,
    /// The nodes to which the links lead that are up.
    peers: HashMap<Link, NodeId>,
    /// Nodes to which a message could not be sent since the member was last informed.
    unreachable: BTreeSet<NodeId>,
    /// Links that other members have made.
    incoming: IncomingLinks,
    /// The times at which the log last said that a node sends malformed messages.
    malformed: HashMap<NodeId, Duration>,
    /// The times at which the log last said that a second process takes part as a node.
    copies: HashMap<NodeId, Duration>,
}

impl<N: Network> MemberLinks<N> {
    /// Sends the member's messages. Those that cannot be sent are lost, as members expect.
    fn send(&mut self, network: &mut N, outbox: &mut Outbox, now: Duration) {
        for (node, bytes) in outbox.drain(..) {
            let connection = self.connections.entry(node).or_default();
            let link = match connection.link {
                Some(link) => link,
                None if now >= connection.not_before => {
                    let link = self.fabric.connect(node);
                    connection.link = Some(link);
                    link
                }
                None => continue,
            };
            match self.fabric.send(link, &bytes) {
                Ok(()) => {}
                Err(SendError::Full | SendError::Down) => {
                    self.unreachable.insert(node);
                }
                Err(SendError::TooLong) => {
                    tracing::error!(node = node.0, bytes = bytes.len(), "a message is too long");
                    self.unreachable.insert(node);
                }
            }
        }
        self.fabric.flush(network);
    }

    /// Ends a link on which a malformed message has come. Messages that came behind it are dropped.
    fn close_malformed(
        &mut self,
        link: Link,
        node: NodeId,
        error: &MalformedMessage,
        now: Duration,
    ) {
        let last = self.malformed.get(&node);
        if last.is_none_or(|last| now >= *last + LOG_PAUSE) {
            self.malformed.insert(node, now);
            tracing::error!("node {node} sent a malformed message: {error}; its link is closed");
        }
        self.close(link, now);
    }

    fn close(&mut self, link: Link, now: Duration) {
        self.peers.remove(&link);
        self.incoming.down(link, now);
        self.fabric.close(link);
    }

    /// Closes links of processes that are gone, and those of copies of members. Returns the nodes
    /// of which there are copies.
    fn close_later(&mut self, now: Duration) -> Vec<NodeId> {
        let mut copies = Vec::new();
        for closed in self.incoming.decide(now) {
            match closed {
                LinkToClose::Replaced(link) => self.close(link, now),
                LinkToClose::Copy(link, node) => {
                    let last = self.copies.get(&node);
                    if last.is_none_or(|last| now >= *last + LOG_PAUSE) {
                        self.copies.insert(node, now);
                        tracing::error!("{}", duplicate_note(node));
                    }
                    copies.push(node);
                    self.close(link, now);
                }
            }
        }
        copies
    }
}

/// See the module's description.
pub(crate) struct MemberDriver<N: Network> {
    network: N,
    events: Vec<SocketEvent>,
    links: MemberLinks<N>,
    member: Member,
    shared: Arc<MemberShared>,
    mailbox: Arc<DriverMailbox>,
    inbox: Inbox,
    /// The fabric has more messages than were taken.
    fabric_has_more: bool,
    /// The member does not go on before this time: an operation has failed for a reason that may
    /// pass.
    blocked_until: Option<Duration>,
}

impl<N: Network> MemberDriver<N> {
    pub(crate) fn new(
        network: N,
        fabric: Tcp<N>,
        member: Member,
        shared: Arc<MemberShared>,
        mailbox: Arc<DriverMailbox>,
    ) -> MemberDriver<N> {
        MemberDriver {
            network,
            events: Vec::new(),
            links: MemberLinks {
                fabric,
                connections: HashMap::new(),
                peers: HashMap::new(),
                unreachable: BTreeSet::new(),
                incoming: IncomingLinks::new(member.election()),
                malformed: HashMap::new(),
                copies: HashMap::new(),
            },
            member,
            shared,
            mailbox,
            inbox: Inbox::default(),
            fabric_has_more: false,
            blocked_until: None,
        }
    }

    /// Runs until a command stops it or the member cannot go on.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let ended = panic::catch_unwind(AssertUnwindSafe(|| {
            let outcome = self.turns();
            self.member.abdicate();
            outcome
        }));
        let reason = match ended {
            Ok(Ok(())) => "the partition is closed".to_owned(),
            Ok(Err(failure)) => {
                tracing::error!(%failure, "{STOPPED_ADVICE}");
                failure.to_string()
            }
            Err(_) => {
                shared.drop_everything();
                tracing::error!("the member's thread has panicked. {STOPPED_ADVICE}");
                "the member's thread has panicked: see the log, and restart the node".to_owned()
            }
        };
        shared.fail(reason);
        shared.notify();
    }

    fn turns(&mut self) -> Result<(), MemberFailure> {
        while self.turn()? {}
        Ok(())
    }

    /// Runs one turn. Returns `true` if the member goes on.
    fn turn(&mut self) -> Result<bool, MemberFailure> {
        let now = self.shared.time.now().since;
        let timeout = self.timeout(now);
        let waited = self.network.wait(&mut self.events, Some(timeout));
        waited.map_err(|error| MemberFailure::Raft(format!("cannot wait for events: {error}")))?;
        for event in self.events.drain(..) {
            self.links.fabric.on_event(event);
        }
        self.mailbox.woken.store(false, Ordering::SeqCst);
        let commands = std::mem::take(&mut *self.mailbox.commands.lock());
        for command in commands {
            match command {
                DriverCommand::Change(change, answer) => self.member.change(change, answer),
                DriverCommand::Snapshot => self.member.request_snapshot(),
                DriverCommand::Stop => return Ok(false),
            }
        }
        self.receive_messages()?;
        self.run_member()?;
        self.send();
        Ok(true)
    }

    fn timeout(&self, now: Duration) -> Duration {
        if let Some(until) = self.blocked_until {
            return until.saturating_sub(now);
        }
        if self.fabric_has_more || self.member.has_more() {
            return Duration::ZERO;
        }
        let due = self.member.due().saturating_sub(now);
        self.links
            .fabric
            .timeout(now)
            .map_or(due, |fabric| fabric.min(due))
    }

    /// Takes the messages that have come from other members.
    fn receive_messages(&mut self) -> Result<(), MemberFailure> {
        let now = self.shared.time.now();
        let (fabric, network) = (&mut self.links.fabric, &mut self.network);
        fabric.tick(network, now.since);
        self.fabric_has_more = fabric.receive(network, &mut self.inbox);
        let mut inbox = std::mem::take(&mut self.inbox);
        for (link, event) in inbox.iter() {
            match event {
                Event::Up(Peer::Node(node)) => {
                    self.links.peers.insert(link, node);
                    let own = self
                        .links
                        .connections
                        .get(&node)
                        .and_then(|connection| connection.link);
                    if own == Some(link) {
                        self.member.note_link(node, None, now.since);
                    } else {
                        self.links.incoming.up(node, link, now.since);
                    }
                }
                Event::Up(Peer::Client) => {
                    tracing::warn!("a client has connected where members do; its link is closed");
                    self.links.fabric.close(link);
                }
                Event::Message(bytes) => {
                    let Some(node) = self.links.peers.get(&link).copied() else {
                        continue;
                    };
                    if !self.links.incoming.takes(node, link, now.since) {
                        continue;
                    }
                    match self.member.receive(node, bytes, now) {
                        Ok(MessageOutcome::Taken) => {}
                        Ok(MessageOutcome::Malformed(error)) => {
                            self.links.close_malformed(link, node, &error, now.since);
                        }
                        Err(failure) => {
                            self.blocked_until = Some(self.handle_failure(failure, now.since)?);
                        }
                    }
                }
                Event::Drained => {}
                Event::Down(why) => self.down(link, why, now.since),
            }
        }
        inbox.clear();
        self.inbox = inbox;
        for node in self.links.close_later(now.since) {
            self.member.note_duplicate(node, now.since);
        }
        Ok(())
    }

    fn down(&mut self, link: Link, why: &str, now: Duration) {
        self.links.peers.remove(&link);
        self.links.incoming.down(link, now);
        let connection = self
            .links
            .connections
            .iter_mut()
            .find(|(_, connection)| connection.link == Some(link));
        if let Some((node, connection)) = connection {
            tracing::debug!(node = node.0, why, "the link to a member is down");
            let node = *node;
            let refused = self.links.fabric.refusal(node).map(ToString::to_string);
            let pause = if refused.is_some() { REFUSED } else { PAUSE };
            connection.link = None;
            connection.not_before = now + pause;
            self.member.note_link(node, refused, now);
            self.member.note_unreachable(node);
        }
    }

    fn run_member(&mut self) -> Result<(), MemberFailure> {
        let now = self.shared.time.now();
        if self.blocked_until.is_some_and(|until| now.since < until) {
            return Ok(());
        }
        self.blocked_until = None;
        let (links, network) = (&mut self.links, &mut self.network);
        // The messages must not wait for the sync that follows.
        let mut flush = |outbox: &mut Outbox| {
            links.send(network, outbox, now.since);
            if let Err(error) = network.flush() {
                tracing::warn!(%error, "messages to other members leave later");
            }
        };
        match self.member.turn(now, &mut flush) {
            Err(failure) => self.blocked_until = Some(self.handle_failure(failure, now.since)?),
            Ok(()) => self.member.note_log_written(),
        }
        Ok(())
    }

    /// Steps aside if the failure may pass, so that another member can lead meanwhile. Returns the
    /// time until which this member waits.
    fn handle_failure(
        &mut self,
        failure: MemberFailure,
        now: Duration,
    ) -> Result<Duration, MemberFailure> {
        if !failure.is_temporary() {
            return Err(failure);
        }
        self.member.step_aside();
        self.member.note_log_trouble(&failure);
        Ok(now + RETRY)
    }

    fn send(&mut self) {
        let now = self.shared.time.now().since;
        let outbox = self.member.outbox();
        self.links.send(&mut self.network, outbox, now);
        for node in std::mem::take(&mut self.links.unreachable) {
            self.member.note_unreachable(node);
        }
    }
}
