//! A runtime's part of the cluster: its [`Node`], the links to other nodes, and the connections
//! whose transactions run on several nodes.
//!
//! In each turn of the loop, messages that came on links go to the node; then connections are
//! served, which may begin transactions; then the node makes progress, its messages are sent, and
//! outcomes are answered. A connection waits for its transaction, so that its replies keep their
//! order.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use base::partition::OwnedReply;
use base::{Abort, Epoch, NodeId, Op};
use cluster::ramp::{Algorithm, Published};
use cluster::{Finished, Node, NodeOptions, Wants};
use fabric::tcp::Tcp;
use fabric::{Event, Inbox, Link, Messages, Peer, SendError};
use resp::Args;

use crate::block::Call;
use crate::command::{Command, Ops, Run};
use crate::config::Membership;
use crate::connection::Connection;
use crate::execution::{Execution, Verdict};
use crate::executor::{Executor, tell_abort};
use crate::partition::Worker;
use crate::render::Surroundings;
use crate::routing::{ClusterFigures, Route, Routes};
use crate::task::{Coordinated, Task, Work};

/// The shortest interval at which leaders are looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The connection that a transaction belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// The connection's number in its runtime; another connection may have the number by now.
    pub(crate) key: usize,
    /// As [`Coordinated::number`].
    pub(crate) number: u64,
}

/// See the module's description.
pub(crate) struct Coordination {
    routes: Arc<Routes>,
    runtime: usize,
    node: Node<Caller>,
    links: Links,
    inbox: Inbox,
    last_number: u64,
    /// When the leaders of other partitions were last looked for.
    looked: Option<Duration>,
    figures: ClusterFigures,
}

impl Coordination {
    pub(crate) fn new(
        membership: &Membership,
        (ramp, published): (Algorithm, Option<Arc<Published>>),
        routes: Arc<Routes>,
        runtime: usize,
        fabric: Tcp,
        now: Duration,
    ) -> Coordination {
        let options = NodeOptions {
            topology: Arc::clone(&membership.topology),
            me: membership.node,
            unique: RandomState::new().hash_one(runtime),
            keeper: runtime == 0,
            waiting: routes.waiting.clone(),
            leaders: Arc::clone(&routes.leaders),
            timeouts: membership.timeouts,
            ramp,
            published,
        };
        Coordination {
            routes,
            runtime,
            node: Node::new(options, now),
            links: Links::new(fabric),
            inbox: Inbox::default(),
            last_number: 0,
            looked: None,
            figures: ClusterFigures::default(),
        }
    }

    /// Notes an event of the loop that is about a link.
    pub(crate) fn note_event(&mut self, event: reactor::SocketEvent) {
        self.links.fabric.on_event(event);
    }

    /// Gives the node the messages that came on links.
    pub(crate) fn receive(&mut self, worker: &mut Worker, now: Duration) -> Heard {
        self.links.fabric.tick(now);
        let more = self.links.receive(&mut self.inbox);
        let something = !self.inbox.is_empty();
        for (link, event) in self.inbox.iter() {
            self.links.note(&self.routes, link, &event);
            self.node.event(worker, link, event, now);
        }
        self.inbox.clear();
        Heard { something, more }
    }

    fn begin(&mut self, worker: &mut Worker, ops: &[Op<'_>], key: usize, now: Duration) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.node.begin(worker, ops, Caller { key, number }, now);
        number
    }

    /// Reads a key of each replicated partition of other nodes, so that this node learns its
    /// leader.
    pub(crate) fn look_for_leaders(&mut self, worker: &mut Worker, now: Duration) {
        if self.looked.is_some_and(|looked| now < looked + LOOK_AGAIN) {
            return;
        }
        self.looked = Some(now);
        for key in self.routes.keys_of_others() {
            let (key, number) = (key.as_bytes(), 0);
            let no_caller = Caller {
                key: usize::MAX,
                number,
            };
            self.node
                .begin(worker, &[Op::Exists { key }], no_caller, now);
        }
    }

    /// Lets the node make progress. Outcomes are added to `finished`.
    pub(crate) fn go_on(
        &mut self,
        worker: &mut Worker,
        now: Duration,
        finished: &mut Vec<Finished<Caller>>,
    ) {
        self.node.turn(worker, now);
        finished.extend(self.node.finished());
    }

    /// Sends the node's messages.
    pub(crate) fn send(&mut self) {
        self.node.pump(&mut self.links);
        self.links.flush();
        let (coordinating, waiting) = self.node.under_way();
        let figures = ClusterFigures {
            counters: self.node.counters(),
            coordinating,
            waiting,
            links: self.node.links_up(),
            through_memory: self.links.fabric.links_through_memory(),
        };
        if self.figures != figures {
            self.figures = figures;
            self.routes.note_figures(self.runtime, figures);
        }
    }

    /// Returns the epochs that the node waits for.
    pub(crate) fn wants(&self) -> Wants {
        self.node.wants()
    }

    /// Returns the time until the node or its links must be looked at.
    pub(crate) fn due_in(&self, now: Duration) -> Option<Duration> {
        let node = self.wants().wake_at.map(|at| at.saturating_sub(now));
        node.into_iter().chain(self.links.fabric.timeout(now)).min()
    }

    /// Begins to close all links: the node sends and receives nothing more.
    pub(crate) fn close(&mut self) {
        self.links.fabric.close_all();
    }

    /// Continues to send what waited on links when they were closed. Returns the time until they
    /// must be looked at again; `None`: all have ended.
    pub(crate) fn go_on_closing(&mut self, now: Duration) -> Option<Duration> {
        let fabric = &mut self.links.fabric;
        fabric.tick(now);
        fabric.receive(&mut self.inbox);
        self.inbox.clear();
        fabric.flush();
        let left = fabric.connections() > 0;
        left.then(|| fabric.timeout(now).unwrap_or(Duration::MAX))
    }

    /// Returns `true` if no transaction would be left undecided if the server stopped now.
    pub(crate) fn is_idle(&self) -> bool {
        self.node.is_settled()
    }
}

/// The outcome of receiving messages of other nodes.
pub(crate) struct Heard {
    /// At least one message came.
    pub(crate) something: bool,
    /// More messages have come than were taken.
    pub(crate) more: bool,
}

/// The links, and to which node each of them leads.
struct Links {
    fabric: Tcp,
    /// The node at the other end, and `true` if the link is up.
    nodes: HashMap<Link, (NodeId, bool)>,
}

impl Messages for Links {
    fn connect(&mut self, to: NodeId) -> Link {
        let link = self.fabric.connect(to);
        self.nodes.insert(link, (to, false));
        link
    }

    fn send(&mut self, on: Link, message: &[u8]) -> Result<(), SendError> {
        self.fabric.send(on, message)
    }

    fn flush(&mut self) {
        self.fabric.flush();
    }

    fn receive(&mut self, inbox: &mut Inbox) -> bool {
        self.fabric.receive(inbox)
    }

    fn close(&mut self, link: Link) {
        self.fabric.close(link);
    }
}

impl Links {
    fn new(fabric: Tcp) -> Links {
        Links {
            fabric,
            nodes: HashMap::new(),
        }
    }

    /// Records which nodes can be reached.
    fn note(&mut self, routes: &Routes, link: Link, event: &Event<'_>) {
        match event {
            Event::Up(Peer::Node(node)) => {
                self.nodes.insert(link, (*node, true));
                routes.note_up(*node);
            }
            Event::Down(_) => {
                if let Some((node, was_up)) = self.nodes.remove(&link) {
                    routes.note_down(node, was_up);
                }
            }
            _ => {}
        }
    }
}

impl Executor {
    /// Returns `true` if all of these operations are of this node's own partition.
    pub(crate) fn is_here(&self, ops: &[Op<'_>]) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_none_or(|cluster| cluster.routes.route(ops) == Route::Here)
    }

    /// Sends a command's client to another node, or begins the command together with other nodes,
    /// if its operations need them.
    #[inline(never)]
    pub(crate) fn leads_elsewhere(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
        ops: &[Op<'_>],
    ) -> bool {
        let Some(cluster) = &mut self.cluster else {
            return false;
        };
        match cluster.routes.route(ops) {
            Route::Here => return false,
            Route::Slot(slot) if can_be_sent_away(connection, command) => {
                let to = cluster.routes.client_address(slot);
                let text = format!("MOVED {slot} {}:{}", to.ip(), to.port());
                connection.writer().error(&text);
            }
            Route::Slot(_) | Route::Slots => {
                let number = self.begin(connection, ops);
                connection.wait_for(number, Work::Call(Call::new(command, args)));
            }
        }
        true
    }

    /// Begins operations that other nodes take part in. Returns the transaction's number.
    pub(crate) fn begin(&mut self, connection: &Connection, ops: &[Op<'_>]) -> u64 {
        let (worker, now) = (&mut self.worker, self.context.now);
        let cluster = self.cluster.as_mut().expect("this is a node of a cluster");
        cluster.begin(worker, ops, connection.key, now)
    }

    /// Answers a connection whose transaction has ended, unless the connection is another one by
    /// now.
    pub(crate) fn tell_finished(
        &mut self,
        connection: &mut Connection,
        finished: Finished<Caller>,
    ) {
        let Finished {
            caller,
            outcome,
            time_ms,
        } = finished;
        let task = connection.task.take_if(
            |task| matches!(task, Task::Coordinated(task) if task.number == caller.number),
        );
        let Some(Task::Coordinated(Coordinated { work, .. })) = task else {
            return;
        };
        let from = connection.output.position();
        self.tell_outcome(connection, work, outcome, time_ms);
        self.end_task(connection, from);
    }

    /// Answers a command or block that was executed on other nodes, or later.
    pub(crate) fn tell_outcome(
        &mut self,
        connection: &mut Connection,
        work: Work,
        outcome: Result<Vec<OwnedReply>, Abort>,
        time_ms: u64,
    ) {
        match work {
            Work::Call(call) => self.tell_call(connection, &call, outcome, time_ms),
            Work::Block(execution) => match outcome {
                Ok(replies) => {
                    let replies: Vec<_> = replies.iter().map(OwnedReply::as_reply).collect();
                    let plan = execution.plan();
                    execution.answer(&plan, &replies, time_ms, &mut self.context, connection);
                }
                Err(abort) => self.go_on(connection, execution, abort),
            },
        }
    }

    fn go_on(&mut self, connection: &mut Connection, mut execution: Box<Execution>, abort: Abort) {
        match execution.revise(abort) {
            Verdict::Again => self.execute_block(connection, execution),
            // The outcome was returned when everything that it shows was durable.
            Verdict::Tell(abort) => self.tell_block(connection, &abort, Epoch::ZERO),
        }
    }

    /// Answers a command that was executed together with other nodes.
    fn tell_call(
        &mut self,
        connection: &mut Connection,
        call: &Call,
        outcome: Result<Vec<OwnedReply>, Abort>,
        time_ms: u64,
    ) {
        let replies = match &outcome {
            Ok(replies) => replies.iter().map(OwnedReply::as_reply).collect::<Vec<_>>(),
            Err(abort) => {
                tell_abort(abort, &mut connection.writer());
                return;
            }
        };
        let (command, args) = (call.command, call.args());
        let (Run::Store(plan) | Run::AllOrNothing(plan)) = command.run else {
            return connection.answer_watch(command, args, &replies);
        };
        let around = Surroundings {
            command,
            cursors: &self.context.shared.cursors,
            time_ms,
            lookups: &self.context.lookups,
        };
        // It was planned before, from the same arguments.
        match plan(args, &mut Ops::new()) {
            Ok(render) => render.write(&replies, &around, &mut connection.writer()),
            Err(refusal) => refusal.write(command, &mut connection.writer()),
        }
    }
}

/// Returns `true` if a command whose keys are in one slot of another node may be answered with that
/// node's address. A client that watches keys here would lose its watches there; and `WATCH` itself
/// should work for clients that do not know about clusters. `SCAN` continues on the node on which
/// it began.
pub(crate) fn can_be_sent_away(connection: &Connection, command: &Command) -> bool {
    match command.run {
        Run::Scan => true,
        Run::Watch | Run::WatchVersion => false,
        _ => connection.watches.is_empty(),
    }
}

impl Connection {
    /// Makes the connection wait for the transaction with this number.
    pub(crate) fn wait_for(&mut self, number: u64, work: Work) {
        self.task = Some(Task::Coordinated(Coordinated { work, number }));
    }
}
