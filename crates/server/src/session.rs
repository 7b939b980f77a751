//! What a client has set up on its connection, and the replies that it has not been sent: the part of
//! a connection that commands use which do not touch the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::passwords::LoginDelay;
use channels::client_tracking::ClientTracking;
use channels::{ChannelMessage, ClientSubscriptions, SubscriptionKind};
use resp::{Protocol, Writer};

use crate::clients::ConnectedClient;
use crate::output::OutputQueue;
use crate::runtime_context::RuntimeContext;
use crate::tracking::InvalidationNotice;

/// See the module's description.
pub(crate) struct ClientSession {
    /// The connection's number in its runtime.
    pub(crate) key: usize,
    pub(crate) client: Arc<ConnectedClient>,
    pub(crate) output: OutputQueue,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
    /// The database that it has selected.
    pub(crate) database: u16,
    /// `true` if it may read the data of a replica (`READONLY`).
    pub(crate) reads_stale: bool,
    /// `true` if its commands do not count as uses of keys (`CLIENT NO-TOUCH`).
    pub(crate) no_touch: bool,
    /// Which replies it gets (`CLIENT REPLY`).
    pub(crate) replies: ReplyMode,
    /// What the command that is executed says about subscriptions. The client gets it even if it wants no
    /// reply.
    pub(crate) announced: Vec<u8>,
    pub(crate) last_command: &'static str,
    pub(crate) subscriptions: ClientSubscriptions,
    /// `true` if it is shown the commands of all clients.
    pub(crate) monitors: bool,
    /// Its client-side caching, if that is on.
    pub(crate) tracking: Option<Box<ClientTracking>>,
    /// News of keys that it may keep, to be written behind the reply to its command.
    pub(crate) notices: Vec<InvalidationNotice>,
    /// Keys that its command reads and of which no news come.
    pub(crate) untracked: Vec<Box<[u8]>>,
    /// The messages that it has published in this turn.
    pub(crate) published: Vec<PublishedMessage>,
    pub(crate) login_delay: LoginDelay,
    /// Nothing more is read or executed; the connection closes once the output is taken.
    pub(crate) closing: bool,
}

/// A message that a client has published.
pub(crate) struct PublishedMessage {
    pub(crate) message: Arc<ChannelMessage>,
    /// `true` if a block has published it: it is sent only if the block takes effect.
    pub(crate) in_block: bool,
    /// Where the answer is in the client's output.
    pub(crate) position: usize,
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
    pub(crate) fn new(
        key: usize,
        client: Arc<ConnectedClient>,
        authenticated: bool,
    ) -> ClientSession {
        ClientSession {
            key,
            client,
            output: OutputQueue::default(),
            protocol: Protocol::Resp2,
            authenticated,
            database: 0,
            reads_stale: false,
            no_touch: false,
            replies: ReplyMode::default(),
            announced: Vec::new(),
            last_command: "NULL",
            subscriptions: ClientSubscriptions::default(),
            monitors: false,
            tracking: None,
            notices: Vec::new(),
            untracked: Vec::new(),
            published: Vec::new(),
            login_delay: LoginDelay::default(),
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

    /// Returns `true` if it gets messages, or lines of a monitor, which it has not asked for one by one.
    #[inline]
    pub(crate) fn gets_messages(&self) -> bool {
        self.subscriptions.any() || self.monitors
    }

    /// Returns `true` if the client has subscriptions and speaks the older protocol, in which messages
    /// cannot be told from replies.
    #[inline]
    pub(crate) fn takes_only_messages(&self) -> bool {
        self.subscriptions.any() && self.protocol == Protocol::Resp2
    }

    /// Records the numbers of subscriptions, for `CLIENT LIST`.
    pub(crate) fn note_subscriptions(&self) {
        for kind in SubscriptionKind::ALL {
            let count = self.subscriptions.count(kind) as u32;
            self.client.subscriptions[kind as usize].store(count, Ordering::Relaxed);
        }
    }

    /// Updates what other connections see of this client.
    pub(crate) fn publish_activity(&self, context: &RuntimeContext) {
        let client = &self.client;
        client.names.lock().last_command = self.last_command;
        client.database.store(self.database, Ordering::Relaxed);
        let ms = (context.shared.started + context.now).saturating_duration_since(client.since);
        client
            .last_ms
            .store(ms.as_millis() as u64, Ordering::Relaxed);
    }
}
