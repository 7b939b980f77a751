//! What a client has set up on its connection, and the replies that it has not been sent: the part of
//! a connection that commands use which do not touch the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use resp::{Protocol, Writer};

use crate::clients::ConnectedClient;
use crate::output::OutputQueue;
use crate::runtime_context::RuntimeContext;

/// See the module's description.
pub(crate) struct ClientSession {
    pub(crate) client: Arc<ConnectedClient>,
    pub(crate) output: OutputQueue,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
    /// `true` if it may read the data of a replica (`READONLY`).
    pub(crate) reads_stale: bool,
    /// Which replies it gets (`CLIENT REPLY`).
    pub(crate) replies: ReplyMode,
    pub(crate) last_command: &'static str,
    /// How long the answer to its next wrong password is put off.
    pub(crate) password_delay: Duration,
    /// Nothing more is read or executed; the connection closes once the output is taken.
    pub(crate) closing: bool,
}

/// The commands whose replies are sent to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ReplyMode {
    #[default]
    On,
    Off,
    /// To all but the next one.
    SkipNext,
    /// To all but the one that is executed now, or for which the connection waits.
    Skip,
}

impl ClientSession {
    pub(crate) fn new(client: Arc<ConnectedClient>, authenticated: bool) -> ClientSession {
        ClientSession {
            client,
            output: OutputQueue::default(),
            protocol: Protocol::Resp2,
            authenticated,
            reads_stale: false,
            replies: ReplyMode::default(),
            last_command: "NULL",
            password_delay: Duration::ZERO,
            closing: false,
        }
    }

    /// Returns a writer at the end of the output.
    #[inline]
    pub(crate) fn writer(&mut self) -> Writer<'_> {
        Writer::new(self.output.buffer(), self.protocol)
    }

    pub(crate) fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.client
            .protocol
            .store(protocol.number() as u8, Ordering::Relaxed);
    }

    /// Updates what other connections see of this client.
    pub(crate) fn publish_activity(&self, context: &RuntimeContext) {
        let client = &self.client;
        client.names.lock().last_command = self.last_command;
        let ms = (context.shared.started + context.now).saturating_duration_since(client.since);
        client
            .last_ms
            .store(ms.as_millis() as u64, Ordering::Relaxed);
    }
}
