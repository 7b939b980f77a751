//! One client's connection: its input that is not executed yet, its replies that are
//! not sent yet, and the settings that the client has made.
//!
//! An idle connection holds no buffers: requests are read into the runtime's buffer, and only the
//! beginning of an unfinished one is kept here; output buffers go back to the runtime's pool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{Epoch, Version};
use budget::{Budget, Share, newcomers};
use resp::{Parser, Protocol, Writer};

use crate::block::Block;
use crate::clients::Client;
use crate::output::Output;
use crate::snapshots::Taken;
use crate::task::Task;

/// See the module's description.
pub(crate) struct Connection {
    /// Its number in its runtime.
    pub(crate) key: usize,
    pub(crate) client: Arc<Client>,
    pub(crate) parser: Parser,
    /// Input that could not be executed yet: the beginning of a command, or commands that wait
    /// (`stalled`).
    pub(crate) input: Vec<u8>,
    pub(crate) output: Output,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
    /// Its place among those that have not given the password.
    pub(crate) newcomer: Option<newcomers::Place>,
    /// `true` if it may read the data of a replica (`READONLY`).
    pub(crate) reads_stale: bool,
    /// The `MULTI` block that is being queued.
    pub(crate) block: Option<Box<Block>>,
    /// Keys under `WATCH`, with the versions seen.
    pub(crate) watches: BTreeMap<Vec<u8>, Version>,
    /// Its snapshot.
    pub(crate) snapshot: Option<Taken>,
    /// A long command that is under way.
    pub(crate) task: Option<Task>,
    pub(crate) state: State,
    pub(crate) last_command: &'static str,
    /// How long the answer to its next wrong password is put off.
    pub(crate) password_delay: Duration,
    /// Which replies it gets (`CLIENT REPLY`).
    pub(crate) replies: Replies,
    /// Its share of the memory that all connections have together.
    pub(crate) share: Share,
}

/// The commands whose replies are sent to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Replies {
    #[default]
    On,
    Off,
    /// To all but the next one.
    SkipNext,
    /// To all but the one that is executed now, or is its task.
    Skip,
}

/// A connection's state in the runtime's loop.
#[derive(Debug, Default)]
pub(crate) struct State {
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
    /// Nothing more is read or executed; closes once the output is taken.
    pub(crate) closing: bool,
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
    /// In the runtime's list of connections whose task waits for others.
    pub(crate) in_tasks: bool,
}

impl Connection {
    pub(crate) fn new(
        key: usize,
        client: Arc<Client>,
        authenticated: bool,
        budget: &Arc<Budget>,
    ) -> Connection {
        Connection {
            key,
            client,
            parser: Parser::new(),
            input: Vec::new(),
            output: Output::default(),
            protocol: Protocol::Resp2,
            authenticated,
            newcomer: None,
            reads_stale: false,
            block: None,
            watches: BTreeMap::new(),
            snapshot: None,
            task: None,
            // The first request may have come with the connection.
            state: State {
                readable: true,
                ..State::default()
            },
            last_command: "NULL",
            password_delay: Duration::ZERO,
            replies: Replies::default(),
            share: Share::new(budget),
        }
    }

    /// Returns the epoch that it waits for: that of its last reply, or of what it has proposed.
    #[inline]
    pub(crate) fn waits_for(&self) -> Option<Epoch> {
        match &self.task {
            Some(Task::Proposed(proposed)) => Some(proposed.epoch),
            _ => self.output.waits_for(),
        }
    }

    /// Returns a writer at the end of the output.
    #[inline]
    pub(crate) fn writer(&mut self) -> Writer<'_> {
        Writer::new(self.output.buffer(), self.protocol)
    }

    /// Records the length of the block, for `CLIENT LIST`.
    pub(crate) fn note_block(&self) {
        let queued = self.block.as_ref().map_or(-1, |block| block.len() as i64);
        self.client.queued.store(queued, Ordering::Relaxed);
    }

    pub(crate) fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.client
            .protocol
            .store(protocol.number() as u8, Ordering::Relaxed);
    }
}
