//! One client's connection: its input that is not executed yet, the client's session, its
//! transaction, and what it waits for.
//!
//! An idle connection holds no buffers: requests are read into the runtime's buffer, and only the
//! beginning of an unfinished one is kept here; output buffers go back to the runtime's pool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{Epoch, Version};
use reactor::budget::{Budget, Share};
use reactor::newcomers;
use resp::{Parser, Writer};

use crate::blocked_command::BlockedCommand;
use crate::clients::ConnectedClient;
use crate::command_block::CommandBlock;
use crate::command_timing::SlicedCall;
use crate::pending_command::PendingCommand;
use crate::session::ClientSession;
use crate::snapshots::ClientSnapshot;

/// See the module's description.
pub(crate) struct Connection {
    pub(crate) session: ClientSession,
    pub(crate) parser: Parser,
    /// Input that could not be executed yet: the beginning of a command, or commands that wait
    /// (`stalled`).
    pub(crate) input: Vec<u8>,
    /// Its place among those that have not given the password.
    pub(crate) newcomer: Option<newcomers::AdmissionTicket>,
    /// The `MULTI` block that is being queued.
    pub(crate) block: Option<Box<CommandBlock>>,
    /// Keys under `WATCH`, with the versions seen.
    pub(crate) watches: BTreeMap<Vec<u8>, Version>,
    /// The memory that these take, in bytes.
    pub(crate) watched_bytes: usize,
    /// Its snapshot.
    pub(crate) snapshot: Option<ClientSnapshot>,
    /// A command that is not answered yet.
    pub(crate) pending: Option<PendingCommand>,
    /// The same command, if it waits for keys, also while it looks at them.
    pub(crate) blocked: Option<Box<BlockedCommand>>,
    /// The same command, if it is measured and executes in slices.
    pub(crate) sliced: Option<Box<SlicedCall>>,
    pub(crate) state: ConnectionState,
    /// Its share of the memory that all connections have together.
    pub(crate) share: Share,
}

/// A connection's state in the runtime's loop.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    /// The socket may have input.
    pub(crate) readable: bool,
    /// An event has said that the client will send nothing more, behind what is still to be read.
    pub(crate) end_seen: bool,
    /// Everything has been read: the client sends nothing more.
    pub(crate) ended: bool,
    /// The socket takes no more output for now.
    pub(crate) full: bool,
    /// `input` begins with whole commands that wait.
    pub(crate) stalled: bool,
    /// Closes at once.
    pub(crate) dead: bool,
    /// In the runtime's list of connections to serve.
    pub(crate) in_ready: bool,
    /// In the runtime's list of connections to write to.
    pub(crate) in_touched: bool,
    /// In the runtime's list of connections whose replies wait for durability.
    pub(crate) in_waiting: bool,
    /// In the runtime's list of connections that have a snapshot.
    pub(crate) in_snapshots: bool,
    /// In the runtime's list of connections whose pending command waits for others.
    pub(crate) in_tasks: bool,
    /// When it is looked at because it waits for keys.
    pub(crate) blocked_until: Option<Duration>,
}

impl Connection {
    pub(crate) fn new(
        key: usize,
        client: Arc<ConnectedClient>,
        authenticated: bool,
        budget: &Arc<Budget>,
    ) -> Connection {
        Connection {
            session: ClientSession::new(key, client, authenticated),
            parser: Parser::new(),
            input: Vec::new(),
            newcomer: None,
            block: None,
            watches: BTreeMap::new(),
            watched_bytes: 0,
            snapshot: None,
            pending: None,
            blocked: None,
            sliced: None,
            // The first request may have come with the connection.
            state: ConnectionState {
                readable: true,
                ..ConnectionState::default()
            },
            share: Share::new(budget),
        }
    }

    /// Returns the epoch that it waits for: that of its last reply, or of what it has proposed.
    #[inline]
    pub(crate) fn waits_for(&self) -> Option<Epoch> {
        match &self.pending {
            Some(PendingCommand::Proposed(proposed)) => Some(proposed.epoch),
            _ => self.session.output.waits_for(),
        }
    }

    /// Returns a writer at the end of the output.
    #[inline]
    pub(crate) fn writer(&mut self) -> Writer<'_> {
        self.session.writer()
    }

    /// Records the length of the block, for `CLIENT LIST`.
    pub(crate) fn note_block(&self) {
        let queued = self.block.as_ref().map_or(-1, |block| block.len() as i64);
        self.session.client.queued.store(queued, Ordering::Relaxed);
    }

    /// Ends the block, and the watches, which are its precondition.
    pub(crate) fn end_block(&mut self) {
        self.block = None;
        self.note_block();
        self.take_watches();
    }

    /// Ends the watches, and returns them.
    pub(crate) fn take_watches(&mut self) -> BTreeMap<Vec<u8>, Version> {
        self.watched_bytes = 0;
        std::mem::take(&mut self.watches)
    }

    /// Returns the memory that its requests and replies take, in bytes.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| block.bytes());
        let subscriptions = self.session.subscriptions.bytes();
        let session = self.session.output.pending() + subscriptions;
        let pending = self.pending.as_ref().map_or(0, PendingCommand::bytes);
        let blocked = self.blocked.as_ref().map_or(0, |blocked| blocked.bytes());
        self.input.len() + session + block + pending + blocked + self.watched_bytes
    }

    /// Returns the time at which its snapshot is given up, if it is not used before; `idle` is the
    /// time that it may be unused.
    pub(crate) fn snapshot_due(&self, idle: Duration) -> Option<Duration> {
        match &self.snapshot {
            Some(ClientSnapshot::Open(snapshot)) => Some(snapshot.last_used + idle),
            _ => None,
        }
    }
}
