//! Events of keys, from the queues of events that are not durable yet to the clients that want them: messages of
//! keyspace notifications, and the news for client-side caches (module [`crate::tracking`]).
//!
//! The first runtime takes the events that are durable, in order, and gives each runtime those of its
//! clients.

use std::sync::Arc;

use base::Epoch;
use channels::client_tracking::{
    ChangedKeys, TrackedReads, write_broken_redirection, write_invalidation,
};
use reactor::Network;

use super::Runtime;
use crate::clients::ConnectedClient;
use crate::connection::Connection;
use crate::runtime_signal::RuntimeNews;
use crate::session::ClientSession;
use crate::tracking::{Invalidation, InvalidationNotice};

/// A client that waits for a reply, and has more notices than this, is sent the news that all keys may have
/// changed.
const MOST_NOTICES: usize = 1024;

impl<N: Network> Runtime<N> {
    /// Sends the events of keys that are durable to the clients of this node. The first runtime sends all
    /// of them, in order.
    pub(super) fn release_key_events(&mut self) {
        if self.newest_event().is_none() {
            return;
        }
        let context = &self.executor.context;
        let shared = Arc::clone(&context.shared);
        // The events of a replicated partition come from entries that are agreed upon; where replies do not
        // wait for durability, events wait until the epoch is complete.
        let durable = match context.can_lose {
            true => Epoch(u64::MAX),
            false => context.durable,
        };
        if self.has_events_to_send() {
            shared.partition.end_epoch();
        }
        let complete = durable.min(shared.partition.finished_epoch());
        for message in shared.key_events.release(complete) {
            self.dispatch(&Arc::new(message));
        }
        // News that a value may be old are never wrong. Nothing else can be read while the log has failed.
        let complete = match self.executor.context.failed {
            Some(_) => Epoch(u64::MAX),
            None => complete,
        };
        let mut invalidations = shared.tracking.release(complete);
        let has_ended = || shared.partition.announces_all() || shared.tracking.clients() == 0;
        if shared.tracking.misses_commits() && has_ended() {
            shared.tracking.set_misses_commits(false);
            invalidations.push(Invalidation::of_all());
        }
        for invalidation in invalidations {
            let concerned = |runtime: usize| {
                let mut clients = invalidation.clients.iter();
                invalidation.keys.is_none() || clients.any(|client| client.runtime == runtime)
            };
            let runtimes: Vec<usize> = (0..shared.signals.len())
                .filter(|&i| concerned(i))
                .collect();
            let invalidation = Arc::new(invalidation);
            for runtime in runtimes {
                let news = RuntimeNews::Invalidation(Arc::clone(&invalidation));
                match runtime == self.index {
                    true => self.take_news(news),
                    false => shared.signals[runtime].send(news),
                }
            }
        }
    }

    /// Returns the newest epoch of an event of a key, if this runtime sends these, or the first epoch if it waits for
    /// commits that announce nothing.
    fn newest_event(&self) -> Option<Epoch> {
        if self.index != 0 {
            return None;
        }
        let shared = &self.executor.context.shared;
        let messages = shared.key_events.queue.waits_for();
        let missed = shared.tracking.misses_commits().then_some(Epoch(0));
        messages.max(shared.tracking.queue.waits_for()).max(missed)
    }

    /// Returns the newest epoch whose durability an event of a key waits for here.
    pub(super) fn events_wait_for(&self) -> Option<Epoch> {
        let context = &self.executor.context;
        let waits = !context.can_lose && context.failed.is_none();
        let newest = self.newest_event().filter(|_| waits);
        newest.filter(|&epoch| epoch > context.durable)
    }

    /// Returns `true` if an event of a key waits here for the end of an epoch alone.
    pub(super) fn has_events_to_send(&self) -> bool {
        let durable = self.executor.context.durable;
        self.newest_event().is_some_and(|newest| newest <= durable)
    }

    /// Takes what other runtimes have sent.
    pub(super) fn take_received(&mut self) {
        for news in self.signal().take_news() {
            self.take_news(news);
        }
    }

    fn take_news(&mut self, news: RuntimeNews) {
        match news {
            RuntimeNews::Message(message) => self.deliver(&message),
            RuntimeNews::Invalidation(invalidation) => self.invalidate(&invalidation),
            RuntimeNews::Notice { client, notice } => self.notify(&client, notice),
            RuntimeNews::Turn(turn) => self.take_turn(turn),
            RuntimeNews::Unblock(client) => self.unblock(&client),
        }
    }

    /// Gives the news to this runtime's clients that have asked for them.
    fn invalidate(&mut self, invalidation: &Invalidation) {
        let clients: Vec<Arc<ConnectedClient>> = match invalidation.keys {
            None => {
                let tracking = self.connections.iter();
                let tracking = tracking.filter(|(_, own)| own.session.tracking.is_some());
                tracking
                    .map(|(_, own)| Arc::clone(&own.session.client))
                    .collect()
            }
            Some(_) => {
                let own = invalidation.clients.iter();
                let own = own.filter(|client| client.runtime == self.index);
                let session = own.filter_map(|client| {
                    let connection = self.connections.get(client.connection)?;
                    let is_it = connection.session.client.id == client.id;
                    // One that has begun anew may still be known as a reader.
                    let tracking = connection.session.tracking.as_ref()?;
                    let wants = tracking.reads != TrackedReads::Prefixed || !invalidation.of_reads;
                    (is_it && wants).then(|| Arc::clone(&connection.session.client))
                });
                session.collect()
            }
        };
        for client in clients {
            self.invalidate_for(&client, invalidation.keys.clone());
        }
    }

    /// Gives one client the news, or the client that gets them in its place.
    fn invalidate_for(&mut self, client: &Arc<ConnectedClient>, keys: ChangedKeys) {
        let shared = Arc::clone(&self.executor.context.shared);
        let Some(connection) = self.connections.get_mut(client.connection()) else {
            return;
        };
        let Some(tracking) = &mut connection.session.tracking else {
            return;
        };
        let Some(id) = tracking.redirect else {
            let redirected = false;
            return self.notify(client, InvalidationNotice::Changed { keys, redirected });
        };
        let Some(target) = shared.clients.get(id) else {
            if !std::mem::replace(&mut tracking.is_broken, true) {
                client.note_tracking(Some(tracking));
                self.notify(client, InvalidationNotice::Broken { target: id });
            }
            return;
        };
        let redirected = true;
        let notice = InvalidationNotice::Changed { keys, redirected };
        match target.runtime == self.index {
            true => self.notify(&target, notice),
            false => shared.signals[target.runtime].send(RuntimeNews::Notice {
                client: target,
                notice,
            }),
        }
    }

    /// Puts a notice behind what a client of this runtime has been answered.
    fn notify(&mut self, client: &ConnectedClient, notice: InvalidationNotice) {
        let key = client.connection();
        if let Some(connection) = self.connections.get_mut(key)
            && connection.session.client.id == client.id
            && !connection.session.closing
        {
            let notices = &mut connection.session.notices;
            notices.push(notice);
            if notices.len() > MOST_NOTICES {
                InvalidationNotice::sum_up(notices);
            }
            self.lists.touched(key, connection);
        }
    }

    /// Writes the notices of a connection, unless the reply to a command is still to come.
    pub(super) fn write_notices(&mut self, key: usize) {
        let is_answered = |connection: &&mut Connection| connection.pending.is_none();
        let Some(connection) = self.connections.get_mut(key).filter(is_answered) else {
            return;
        };
        if !connection.session.untracked.is_empty() {
            let keys = std::mem::take(&mut connection.session.untracked);
            let client = Arc::clone(&connection.session.client);
            self.invalidate_for(&client, Some(keys.into()));
        }
        let connection = &mut self.connections[key];
        let session = &mut connection.session;
        if session.notices.is_empty() {
            return;
        }
        session.output.borrow_buffer(&mut self.pool);
        for notice in std::mem::take(&mut session.notices) {
            write_notice(session, &notice);
        }
    }
}

/// Writes a notice in the form in which the client understands it; nothing if it understands none.
fn write_notice(session: &mut ClientSession, notice: &InvalidationNotice) {
    let is_subscriber = session.subscriptions.any();
    let mut writer = session.writer();
    match notice {
        InvalidationNotice::Broken { target } => write_broken_redirection(*target, &mut writer),
        InvalidationNotice::Changed { keys, redirected } => {
            write_invalidation(keys.as_deref(), *redirected, is_subscriber, &mut writer);
        }
    }
}
