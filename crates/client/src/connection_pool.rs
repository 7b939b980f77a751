//! Connections to nodes, kept for the next calls.
//!
//! Invariants:
//! 1. A connection is given to one call at a time, and returns to the pool only if every request on it
//!    was answered.
//! 2. The number of connections to a node never exceeds the bound; a call that finds none free waits.
//! 3. A kept connection is tested before it is used again: a node that was restarted has closed it.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base::NodeId;
use cluster::codec;
use cluster::message::{Answer, Message, Request};
use fabric::frame::RefusalCode;
use fabric::tcp::{CallError, Caller, CallerOptions, Transport};
use fabric::verbs::Domain;
use parking_lot::{Condvar, Mutex};

use crate::options::Options;

/// A connection, and the number of requests that were sent on it.
pub(crate) struct NodeConnection {
    caller: Caller,
    requests: u64,
    output: Vec<u8>,
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
}

/// Connections to a node.
#[derive(Default)]
struct NodeConnections {
    /// Free connections, the least recently used in front, with the time of that use.
    free: VecDeque<(Instant, SocketAddr, NodeConnection)>,
    /// Number of connections in use.
    used: usize,
}

impl ConnectionPool {
    /// Creates a pool whose connections use this RDMA device, if the transport says so.
    pub(crate) fn new(options: &Options, verbs: Option<&Domain>) -> ConnectionPool {
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
        match connection.send(request, deadline) {
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
    ) -> Result<(Answer, NodeConnection), RequestFailure> {
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
        nodes.entry(node).or_default().used += 1;
        Ok(LentConnection {
            pool: self,
            node,
            back: None,
        })
    }

    /// Returns a connection that was used before and still can be.
    fn take_free(&self, node: NodeId, address: SocketAddr) -> Option<NodeConnection> {
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

    fn give_back(&self, node: NodeId, back: Option<(SocketAddr, NodeConnection)>) {
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

/// The right to use a connection to a node. It is given back when dropped, with a connection if one can
/// be used again.
struct LentConnection<'a> {
    pool: &'a ConnectionPool,
    node: NodeId,
    back: Option<(SocketAddr, NodeConnection)>,
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
    connection: NodeConnection,
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
) -> Result<NodeConnection, RequestFailure> {
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
    Ok(NodeConnection {
        caller,
        requests: 0,
        output: Vec::new(),
    })
}

impl NodeConnection {
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
        self.output.shrink_to(1 << 20);
        sent.map_err(|error| match error {
            CallError::TooLong { .. } => RequestFailure::TooLong(error.to_string()),
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
                "{address} answered what makes no sense: {error}"
            ))),
        }
    }
}
