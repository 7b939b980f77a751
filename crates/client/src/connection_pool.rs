//! Connections to nodes, kept for the next calls.
//!
//! Invariants:
//! 1. A connection is given to one call at a time, and returns to the pool only if every request on it
//!    was answered.
//! 2. The number of connections to a node never exceeds the bound; a call that finds none free waits.
//! 3. Notices that are owed to a node travel with the next request to it, and at the latest when the client is
//!    dropped. Before the first notice, and the first request of a write that this client coordinates, the
//!    client introduces itself on the connection.
//! 4. A kept connection is tested before it is used again: a node that was restarted has closed it.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base::NodeId;
use cluster::message::{Answer, Message, Notice, Request};
use cluster::{CoordinatorKey, codec};
use fabric::frame::RefusalCode;
use fabric::tcp::{CallError, Caller, CallerOptions, Transport};
use fabric::verbs::Domain;
use parking_lot::{Condvar, Mutex};

use crate::options::Options;

/// The longest time for the last notices of a client.
const LAST_NOTICES: Duration = Duration::from_millis(100);

/// A connection, and the number of requests that were sent on it.
pub(crate) struct PooledConnection {
    caller: Caller,
    requests: u64,
    output: Vec<u8>,
    /// The node knows the key of this client's attempts.
    introduced: bool,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// The node has not received it and will not. Another attempt may help, possibly with a newer file.
    NotSent(String),
    /// It is too long to be sent.
    TooLong(String),
    /// The node does not accept this client.
    Refused(String),
    /// It was sent; it is not known whether it was served.
    Lost(String),
}

/// The connections of a client.
pub(crate) struct ConnectionPool {
    nodes: Mutex<HashMap<NodeId, NodeConnections>>,
    freed: Condvar,
    bound: usize,
    idle_after: Duration,
    caller: CallerOptions,
    /// The key of the attempts that this client coordinates.
    key: CoordinatorKey,
}

/// Connections to a node.
#[derive(Default)]
struct NodeConnections {
    /// Free connections, the least recently used in front, with the time of that use.
    free: VecDeque<(Instant, SocketAddr, PooledConnection)>,
    /// Number of connections in use.
    used: usize,
    /// Notices about attempts of this client that the node has not got yet.
    owed: Vec<Notice>,
}

impl ConnectionPool {
    /// Creates a pool whose connections use this RDMA device, if the transport says so. `key` is that of the
    /// attempts that this client coordinates.
    pub(crate) fn new(
        options: &Options,
        verbs: Option<&Domain>,
        key: CoordinatorKey,
    ) -> ConnectionPool {
        let mut caller = CallerOptions::new(options.secret.clone());
        caller.limits.handshake = options.connect_within;
        caller.limits.message = options.message;
        caller.transport = options.transport;
        caller.encryption = options.encryption;
        caller.verbs = verbs.cloned();
        ConnectionPool {
            nodes: Mutex::default(),
            freed: Condvar::new(),
            bound: options.connections_per_node.max(1),
            idle_after: options.idle_after,
            caller,
            key,
        }
    }

    /// Sends a node a request and waits for the answer. `cluster` is the fingerprint that the node's
    /// file must have.
    pub(crate) fn ask(
        &self,
        to: (NodeId, SocketAddr, u64),
        request: Request<'_>,
        deadline: Instant,
    ) -> Result<Answer, RequestFailure> {
        self.send(to, request, deadline)?.receive(deadline)
    }

    /// As [`ConnectionPool::ask`], without waiting for the answer. A caller that asks several nodes before it
    /// waits must ask them in the order of their numbers, and none twice: it holds a connection to each
    /// meanwhile, and other callers may wait for those.
    pub(crate) fn send(
        &self,
        (node, address, cluster): (NodeId, SocketAddr, u64),
        request: Request<'_>,
        deadline: Instant,
    ) -> Result<SentRequest<'_>, RequestFailure> {
        let mut lent = self.borrow(node, deadline)?;
        let mut connection = match self.take_free(node, address) {
            Some(connection) => connection,
            None => {
                let mut options = self.caller.clone();
                (options.node, options.cluster) = (Some(node), Some(cluster));
                connect(address, options, deadline)?
            }
        };
        match connection.send_behind(&lent.owed, self.key, request, deadline) {
            Ok(()) => Ok(SentRequest {
                lent,
                address,
                connection,
            }),
            Err(failure) => {
                if matches!(failure, RequestFailure::TooLong(_)) {
                    lent.back = Some((address, connection));
                }
                Err(failure)
            }
        }
    }

    /// Sends a request to the node at an address, on a new connection.
    pub(crate) fn ask_anyone(
        &self,
        address: SocketAddr,
        request: Request<'_>,
        deadline: Instant,
    ) -> Result<(NodeId, Answer), RequestFailure> {
        let mut connection = connect(address, self.caller.clone(), deadline)?;
        connection.send(request, deadline)?;
        let answer = connection.receive(deadline)?;
        Ok((connection.caller.node(), answer))
    }

    /// Sends a node a request on a new connection, which the caller keeps.
    pub(crate) fn ask_apart(
        &self,
        (node, address, cluster): (NodeId, SocketAddr, u64),
        request: Request<'_>,
        deadline: Instant,
    ) -> Result<(Answer, PooledConnection), RequestFailure> {
        let options = CallerOptions {
            node: Some(node),
            cluster: Some(cluster),
            transport: Transport::Tcp,
            ..self.caller.clone()
        };
        let mut connection = connect(address, options, deadline)?;
        connection.send(request, deadline)?;
        let answer = connection.receive(deadline)?;
        Ok((answer, connection))
    }

    /// Has a notice sent with the next request to a node. It is lost if that request cannot be sent.
    pub(crate) fn owe(&self, node: NodeId, notice: Notice) {
        self.nodes.lock().entry(node).or_default().owed.push(notice);
    }

    /// Waits for the right to use a connection to a node.
    fn borrow(
        &self,
        node: NodeId,
        deadline: Instant,
    ) -> Result<LentConnection<'_>, RequestFailure> {
        let mut nodes = self.nodes.lock();
        while nodes.entry(node).or_default().used >= self.bound {
            if self.freed.wait_until(&mut nodes, deadline).timed_out() {
                let why = format!("all {} connections to node {node} are in use", self.bound);
                return Err(RequestFailure::NotSent(why));
            }
        }
        let node_connections = nodes.entry(node).or_default();
        node_connections.used += 1;
        Ok(LentConnection {
            pool: self,
            node,
            owed: std::mem::take(&mut node_connections.owed),
            back: None,
        })
    }

    /// Returns a connection that was used before and still can be.
    fn take_free(&self, node: NodeId, address: SocketAddr) -> Option<PooledConnection> {
        loop {
            // The most recently used one, so that the others grow old. It is tested, and closed if need
            // be, while other threads can have the lock: that takes system calls.
            let (since, at, connection) = self.nodes.lock().get_mut(&node)?.free.pop_back()?;
            let usable = at == address && since.elapsed() < self.idle_after;
            if usable && connection.caller.is_quiet() {
                return Some(connection);
            }
        }
    }

    fn give_back(&self, node: NodeId, back: Option<(SocketAddr, PooledConnection)>) {
        let mut old = Vec::new();
        let mut nodes = self.nodes.lock();
        let node_connections = nodes.entry(node).or_default();
        node_connections.used -= 1;
        if let Some((address, connection)) = back {
            node_connections
                .free
                .push_back((Instant::now(), address, connection));
        }
        for node_connections in nodes.values_mut() {
            let is_old = |(since, ..): &mut (Instant, _, _)| since.elapsed() >= self.idle_after;
            while let Some(entry) = node_connections.free.pop_front_if(is_old) {
                old.push(entry);
            }
        }
        drop(nodes);
        self.freed.notify_one();
        drop(old);
    }

    /// Returns how many connections to a node are free, and how many are in use.
    pub(crate) fn count(&self, node: NodeId) -> (usize, usize) {
        let nodes = self.nodes.lock();
        nodes.get(&node).map_or((0, 0), |node_connections| {
            (node_connections.free.len(), node_connections.used)
        })
    }
}

impl Drop for ConnectionPool {
    /// Sends the notices that are owed to nodes with an open connection.
    fn drop(&mut self) {
        let deadline = Instant::now() + LAST_NOTICES;
        for connections in self.nodes.get_mut().values_mut() {
            let owed = std::mem::take(&mut connections.owed);
            if let (Some((.., mut connection)), false) =
                (connections.free.pop_back(), owed.is_empty())
            {
                let sent = connection.send_notices(&owed, self.key, deadline);
                // The home asks about them later.
                drop(sent);
            }
        }
    }
}

/// The right to use a connection to a node. It is given back when dropped, with a connection if one can
/// be used again.
struct LentConnection<'a> {
    pool: &'a ConnectionPool,
    node: NodeId,
    /// Notices that leave with the request.
    owed: Vec<Notice>,
    back: Option<(SocketAddr, PooledConnection)>,
}

impl Drop for LentConnection<'_> {
    fn drop(&mut self) {
        self.pool.give_back(self.node, self.back.take());
    }
}

/// A request that was sent.
pub(crate) struct SentRequest<'a> {
    lent: LentConnection<'a>,
    address: SocketAddr,
    connection: PooledConnection,
}

impl SentRequest<'_> {
    /// Waits for the answer.
    pub(crate) fn receive(mut self, deadline: Instant) -> Result<Answer, RequestFailure> {
        let answer = self.connection.receive(deadline)?;
        self.lent.back = Some((self.address, self.connection));
        Ok(answer)
    }
}

fn connect(
    address: SocketAddr,
    mut options: CallerOptions,
    deadline: Instant,
) -> Result<PooledConnection, RequestFailure> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(RequestFailure::NotSent(format!(
            "no time to connect to {address}"
        )));
    }
    options.limits.handshake = options.limits.handshake.min(left);
    let caller = Caller::connect(address, &options).map_err(|error| {
        // A newer file of the cluster may help against these.
        let stale = matches!(
            &error,
            CallError::Refused { refused, .. } if matches!(refused.code, RefusalCode::Cluster | RefusalCode::Node)
        );
        if error.is_final() && !stale {
            RequestFailure::Refused(error.to_string())
        } else {
            RequestFailure::NotSent(error.to_string())
        }
    })?;
    Ok(PooledConnection {
        caller,
        requests: 0,
        output: Vec::new(),
        introduced: false,
    })
}

impl PooledConnection {
    /// Returns `true` if the connection is still open, as far as is known here. All requests on it must
    /// have been answered.
    pub(crate) fn lasts(&self) -> bool {
        self.caller.is_quiet()
    }

    fn send(&mut self, request: Request<'_>, deadline: Instant) -> Result<(), RequestFailure> {
        self.requests += 1;
        let number = self.requests;
        self.output.clear();
        codec::encode(&Message::Request { number, request }, &mut self.output);
        let sent = self.caller.send(&self.output, deadline);
        self.end_send(sent)
    }

    /// Sends a request behind notices, and the introduction if it is needed, in one piece.
    fn send_behind(
        &mut self,
        notices: &[Notice],
        key: CoordinatorKey,
        request: Request<'_>,
        deadline: Instant,
    ) -> Result<(), RequestFailure> {
        let belongs_to_attempt = matches!(
            request,
            Request::Prepare { .. } | Request::Commit { .. } | Request::Abandon { .. }
        );
        if notices.is_empty() && (self.introduced || !belongs_to_attempt) {
            return self.send(request, deadline);
        }
        let mut ends = self.put_notices(notices, key);
        self.requests += 1;
        let number = self.requests;
        codec::encode(&Message::Request { number, request }, &mut self.output);
        ends.push(self.output.len());
        self.send_output(&ends, deadline)
    }

    fn send_notices(
        &mut self,
        notices: &[Notice],
        key: CoordinatorKey,
        deadline: Instant,
    ) -> Result<(), RequestFailure> {
        let ends = self.put_notices(notices, key);
        self.send_output(&ends, deadline)
    }

    /// Puts notices into the output, behind the introduction if it is needed. Returns where each message
    /// ends.
    fn put_notices(&mut self, notices: &[Notice], key: CoordinatorKey) -> Vec<usize> {
        self.output.clear();
        let introduction = (!self.introduced).then_some(Message::Introduction(key));
        self.introduced = true;
        let notices = notices.iter().map(|notice| Message::Notice(*notice));
        let messages = introduction.into_iter().chain(notices);
        let put = |message| {
            codec::encode(&message, &mut self.output);
            self.output.len()
        };
        messages.map(put).collect()
    }

    fn send_output(&mut self, ends: &[usize], deadline: Instant) -> Result<(), RequestFailure> {
        let begins = std::iter::once(&0).chain(ends);
        let messages = begins.zip(ends).map(|(from, to)| &self.output[*from..*to]);
        let messages: Vec<&[u8]> = messages.collect();
        let sent = self.caller.send_together(&messages, deadline);
        self.end_send(sent)
    }

    fn end_send(&mut self, sent: Result<(), CallError>) -> Result<(), RequestFailure> {
        self.output.shrink_to(1 << 20);
        sent.map_err(|error| match error {
            CallError::TooLong { .. } => {
                // Nothing was sent, no introduction either.
                self.introduced = false;
                RequestFailure::TooLong(error.to_string())
            }
            error => RequestFailure::NotSent(error.to_string()),
        })
    }

    /// Waits for the answer to the request that was sent last.
    fn receive(&mut self, deadline: Instant) -> Result<Answer, RequestFailure> {
        let number = self.requests;
        let address = self.caller.address();
        let lost = |error: CallError| RequestFailure::Lost(error.to_string());
        let bytes = self.caller.receive(deadline).map_err(lost)?;
        match codec::decode(bytes) {
            Ok(Message::Reply {
                number: answered,
                reply,
            }) if answered == number => Ok(reply),
            Ok(_) => Err(RequestFailure::Lost(format!(
                "{address} answered what was not asked"
            ))),
            Err(error) => Err(RequestFailure::Lost(format!(
                "{address} sent a malformed answer: {error}"
            ))),
        }
    }
}
