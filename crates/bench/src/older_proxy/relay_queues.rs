//! The state that the proxy thread and the network's thread share: the queues between them, and how
//! each announces new entries to the other.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use mio::net::TcpStream;
use parking_lot::{Condvar, Mutex};
use reactor::buffered::Failure;
use reactor::{SocketEvent, Wake};

/// The state that both threads share.
pub(super) struct RelayQueues {
    pub(super) mailbox: Mutex<Mailbox>,
    pub(super) arrived: Condvar,
    /// Wakes the network's thread.
    pub(super) waker: mio::Waker,
}

#[derive(Default)]
pub(super) struct Mailbox {
    /// Orders for the network's thread.
    pub(super) orders: Vec<RelayCommand>,
    /// Events for the proxy thread, by its numbers.
    pub(super) happened: HashMap<usize, SocketEvent, foldhash::fast::RandomState>,
    /// The proxy thread must be woken for another reason.
    pub(super) woken: bool,
}

pub(super) enum RelayCommand {
    Listen(std::net::TcpListener, Arc<AcceptQueue>),
    Accept(Arc<AcceptQueue>),
    Unlisten(Arc<AcceptQueue>),
    Watch(Arc<RelayedConnection>, TcpStream),
    Connect(Arc<RelayedConnection>, SocketAddr),
    Send(Arc<RelayedConnection>),
    Receive(Arc<RelayedConnection>),
    Close(Arc<RelayedConnection>),
    Stop,
}

/// A connection as both threads know it.
pub(super) struct RelayedConnection {
    pub(super) state: Mutex<ConnectionState>,
}

#[derive(Default)]
pub(super) struct ConnectionState {
    /// The proxy thread's number for it.
    pub(super) token: usize,
    /// The place among the network's connections.
    pub(super) place: Option<usize>,
    pub(super) made: bool,
    pub(super) failed: Option<Failure>,
    /// Input that was read, and not taken by the proxy thread.
    pub(super) incoming: VecDeque<Bytes>,
    pub(super) incoming_len: usize,
    /// The network's thread has stopped reading, because there is no room.
    pub(super) held: bool,
    /// The peer has ended.
    pub(super) ended: bool,
    /// Output that the proxy thread wrote, and the network's thread has not taken.
    pub(super) outgoing: BytesMut,
    /// Bytes that were written and not sent.
    pub(super) unsent: usize,
    /// An order to send is under way.
    pub(super) asked: bool,
    /// The proxy thread waits for room.
    pub(super) wanted: bool,
}

/// Connections that were accepted, or the reason why not.
pub(super) struct AcceptQueue {
    pub(super) token: usize,
    pub(super) state: Mutex<AcceptedConnections>,
}

#[derive(Default)]
pub(super) struct AcceptedConnections {
    pub(super) place: Option<usize>,
    pub(super) waiting: VecDeque<io::Result<(TcpStream, SocketAddr)>>,
    /// The network's thread has stopped accepting.
    pub(super) held: bool,
}

impl RelayQueues {
    pub(super) fn order(&self, order: RelayCommand) {
        let mut mailbox = self.mailbox.lock();
        let first = mailbox.orders.is_empty();
        mailbox.orders.push(order);
        drop(mailbox);
        if first {
            // Later ones are taken with the first.
            Wake::wake(&self.waker);
        }
    }
}
