//! How a runtime is woken, and what it announces before it sleeps.
//!
//! Invariant: a runtime that sleeps with waiting replies has announced that by [`RuntimeSignal::announce_waiting_replies`] and
//! afterwards checked once more what is durable; one that sleeps with transactions that wait for
//! keys has announced that by [`RuntimeSignal::announce_lock_waits`] and checked once more what was given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use channels::ChannelMessage;
use parking_lot::Mutex;
use reactor::Wake;

use crate::clients::ConnectedClient;
use crate::tracking::{Invalidation, InvalidationNotice};

/// News that one runtime has for clients of another.
pub(crate) enum RuntimeNews {
    /// A message of a channel, for all of its subscribers.
    Message(Arc<ChannelMessage>),
    /// A key has changed that clients may keep.
    Invalidation(Arc<Invalidation>),
    /// Such news for one client, in the place of another.
    Notice {
        client: Arc<ConnectedClient>,
        notice: InvalidationNotice,
    },
    /// A client has the turn of a key that it waits for.
    Turn(ClientTurn),
    /// A client is to end its wait (`CLIENT UNBLOCK`).
    Unblock(Arc<ConnectedClient>),
}

/// The turn of a client that waits for a key.
pub(crate) struct ClientTurn {
    /// The number of its connection.
    pub(crate) connection: usize,
    /// The number of its wait.
    pub(crate) ticket: u64,
    /// The key, as it is stored.
    pub(crate) key: Box<[u8]>,
}

/// See the module's description.
pub(crate) struct RuntimeSignal {
    waker: Box<dyn Wake>,
    /// `true` if it has replies that wait for durability.
    pub(crate) has_waiting_replies: AtomicBool,
    /// `true` if it has transactions that wait for keys that others hold.
    pub(crate) waits_for_keys: AtomicBool,
    /// `true` if it has been woken and has not handled that yet: one wake-up suffices.
    woken: AtomicBool,
    /// `true` if another connection has requested that one of its connections is closed.
    pub(crate) kills: AtomicBool,
    /// News for its clients, in order.
    news: Mutex<Vec<RuntimeNews>>,
    /// Lines for its monitors, in order.
    monitored: Mutex<Vec<Arc<[u8]>>>,
}

impl RuntimeSignal {
    pub(crate) fn new(waker: impl Wake) -> RuntimeSignal {
        let no = || AtomicBool::new(false);
        RuntimeSignal {
            waker: Box::new(waker),
            has_waiting_replies: no(),
            waits_for_keys: no(),
            woken: no(),
            kills: no(),
            news: Mutex::default(),
            monitored: Mutex::default(),
        }
    }

    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Gives it news for its clients.
    pub(crate) fn send(&self, news: RuntimeNews) {
        self.news.lock().push(news);
        self.wake();
    }

    /// Takes the news that it was given.
    pub(crate) fn take_news(&self) -> Vec<RuntimeNews> {
        std::mem::take(&mut self.news.lock())
    }

    /// Gives it lines for its monitors.
    pub(crate) fn send_monitored(&self, lines: Arc<[u8]>) {
        self.monitored.lock().push(lines);
        self.wake();
    }

    /// Takes the lines that it was given.
    pub(crate) fn take_monitored(&self) -> Vec<Arc<[u8]>> {
        std::mem::take(&mut self.monitored.lock())
    }

    /// Returns `true` if it has been woken and has not handled that yet.
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    /// Announces if the runtime, which is about to sleep, has waiting replies.
    pub(crate) fn announce_waiting_replies(&self, waiting: bool) {
        if self.has_waiting_replies.load(Ordering::Relaxed) != waiting {
            self.has_waiting_replies.store(waiting, Ordering::SeqCst);
        }
        if waiting {
            std::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// Announces if the runtime, which is about to sleep, has transactions that wait for keys.
    pub(crate) fn announce_lock_waits(&self, waits: bool) {
        if self.waits_for_keys.load(Ordering::Relaxed) != waits {
            self.waits_for_keys.store(waits, Ordering::SeqCst);
        }
        if waits {
            std::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// Records that the runtime is awake and will check everything.
    pub(crate) fn awake(&self) {
        if self.woken.load(Ordering::Relaxed) {
            self.woken.store(false, Ordering::SeqCst);
        }
    }
}
