//! Client-side caching of the proxy's clients: `CLIENT TRACKING` and its kin, the commands that read keys, and
//! the news that keys have changed.
//!
//! The nodes tell the proxy of all changes ([`super::tracking_hub`]); the proxy knows which client may keep
//! which key ([`super::tracking_service`]).

use bytes::Bytes;
use channels::client_tracking::{
    ChangedKeys, ClientTracking, TrackedReads, parse_client_tracking, write_broken_redirection,
    write_invalidation,
};
use cluster::slot;
use resp::{Args, Writer};

use super::caching_client::CachingClient;
use super::client::{Pending, RedisClient};
use super::commands::{NodeCommand, Special};
use super::outcome::CommandOutcome;
use super::protocol::RedisProtocol;
use super::route;
use crate::node_kind::NodeKind;
use crate::runtime::protocol::RequestContext;
use crate::runtime::query::BackendQuery;

/// A command of a client with client-side caching.
pub(super) struct CachingCommand {
    /// The number that the command gets.
    sequence: u64,
    /// The keys that it reads, and that the client may keep.
    reads: Vec<Box<[u8]>>,
    /// The keys that it changes.
    changes: Vec<Box<[u8]>>,
}

impl RedisProtocol {
    /// Answers `CLIENT TRACKING`.
    pub(super) fn client_tracking(
        &mut self,
        client: &mut RedisClient,
        args: Args<'_>,
        context: &mut RequestContext<'_>,
    ) {
        let exists = |id| self.state.tracking.client(id).is_some();
        let parsed = parse_client_tracking(args, exists).and_then(|options| {
            let Some(mut options) = options else {
                return Ok(None);
            };
            let reads = options.check(client.tracking.as_ref().map(|own| &own.settings))?;
            Ok(Some((options, reads)))
        });
        let (options, reads) = match parsed {
            Err(text) => {
                return client.answer_with(context.out, |writer| writer.error_bytes(&text));
            }
            Ok(None) => {
                self.end_tracking(client);
                return client.answer_with(context.out, |writer| writer.ok());
            }
            Ok(Some(options)) => options,
        };
        if let Some(mut own) = client.tracking.take() {
            let mut prefixes = self.state.tracking.prefixes.change();
            prefixes.add(client.id, &options.prefixes);
            own.settings = options.apply(Some(own.settings), reads);
            client.tracking = Some(own);
            return client.answer_with(context.out, |writer| writer.ok());
        }
        let settings = options.apply(None, reads);
        match self.state.tracking.begin() {
            Some(Ok(())) => {
                self.begin_tracking(client, settings);
                client.answer_with(context.out, |writer| writer.ok());
            }
            Some(Err(error)) => client.answer(context.out, error),
            None => {
                client.alone = true;
                let sequence = client.expect(Pending::Waiting);
                self.caching_clients.wait(client.id, sequence, settings);
                context.await_deferred_reply();
            }
        }
    }

    fn begin_tracking(&mut self, client: &mut RedisClient, settings: ClientTracking) {
        let mut prefixes = self.state.tracking.prefixes.change();
        prefixes.add(client.id, &settings.prefixes);
        self.caching_clients.add(client.id);
        client.tracking = Some(Box::new(CachingClient::new(settings)));
    }

    /// Answers a `CLIENT TRACKING` that has waited for the nodes. An error is a whole reply.
    pub(super) fn tracking_begun(
        &mut self,
        client: &mut RedisClient,
        sequence: u64,
        result: Result<Box<ClientTracking>, Bytes>,
        context: &mut RequestContext<'_>,
    ) {
        let reply = match result {
            Ok(settings) => {
                self.begin_tracking(client, *settings);
                Bytes::from_static(b"+OK\r\n")
            }
            Err(error) => {
                self.state.tracking.end();
                error
            }
        };
        client.settle(context.out, sequence, reply);
    }

    /// Ends the client-side caching of a client, if it is on.
    pub(super) fn end_tracking(&mut self, client: &mut RedisClient) {
        if let Some(own) = client.tracking.take() {
            let mut prefixes = self.state.tracking.prefixes.change();
            let is_it = |other: &_| *other == client.id;
            prefixes.remove(is_it, &own.settings.prefixes);
        }
        if self.caching_clients.remove(client.id) {
            self.state.tracking.end();
        }
    }

    /// Notes the keys of a command that is about to be executed: news of them come from now on.
    pub(super) fn before_command(
        &self,
        client: &mut RedisClient,
        command: &NodeCommand,
        args: Args<'_>,
    ) -> Option<CachingCommand> {
        let own = client.tracking.as_mut()?;
        let is_in_block = client.block.is_some();
        let keys = || {
            let indexes = command.keys(args).into_iter();
            indexes.filter_map(|at| Some(Box::<[u8]>::from(args.get(at)?)))
        };
        let goes_to_node = matches!(command.special, Special::None | Special::KeySplit(_));
        let mut reads = Vec::<Box<[u8]>>::new();
        let mut changes = Vec::<Box<[u8]>>::new();
        match &*command.name {
            "exec" => reads = std::mem::take(&mut own.block_keys),
            "multi" | "discard" => own.block_keys.clear(),
            // The keys that a script is given are those that it may read.
            _ if command.read_only || command.is_script() => {
                reads = keys().filter(|key| own.may_keep(key)).collect();
            }
            _ if goes_to_node && !is_in_block && !own.settings.ignores_own => {
                changes = keys().collect();
            }
            _ => {}
        }
        if is_in_block && &*command.name != "exec" {
            own.block_keys.append(&mut reads);
        }
        if own.settings.reads != TrackedReads::Prefixed {
            for key in &reads {
                self.state.tracking.add_read(key, client.id);
            }
        }
        let sequence = client.next_number();
        Some(CachingCommand {
            sequence,
            reads,
            changes,
        })
    }

    /// Notes what became of the command.
    pub(super) fn after_command(
        &self,
        client: &mut RedisClient,
        command: &NodeCommand,
        noted: CachingCommand,
        done: &CommandOutcome,
    ) {
        let CachingCommand {
            sequence,
            reads,
            mut changes,
        } = noted;
        let is_under_way = client.pending(sequence).is_some();
        let is_in_block = client.block.is_some();
        let id = client.id;
        let Some(own) = &mut client.tracking else {
            return;
        };
        if let CommandOutcome::PutBack(_) = done {
            if &*command.name == "exec" {
                own.block_keys = reads;
            }
            return;
        }
        if is_under_way {
            // Redis tells a client of its own changes right behind the replies to them.
            changes.retain(|key| self.state.tracking.take_read(key, id));
            own.reads.begin_stale(sequence, changes);
            match command.special {
                Special::Waits => own.reads.begin_stale(sequence, reads),
                _ => own.reads.begin(sequence, reads),
            }
        }
        if !is_in_block && !command.name.starts_with("client") {
            own.settings.caching = None;
        }
    }

    /// Notes that a node has answered a command.
    pub(super) fn note_answer(&self, client: &mut RedisClient, query: &BackendQuery) {
        if let Some(own) = &mut client.tracking {
            let is_stale = |key: &[u8]| !self.has_news(key, query);
            own.reads.answered(query.sequence, is_stale);
        }
    }

    /// Returns `true` if news come of a key of a command, a query of which has been answered.
    fn has_news(&self, key: &[u8], query: &BackendQuery) -> bool {
        let slot = slot::of(key);
        let owner = self.map.of_slot(slot);
        // A node of Kumiki asks the others for keys that it does not have; one of a Redis Cluster may not know yet
        // that it has lost a slot.
        let is_of_query = route::slot_of(query.route) == Some(slot);
        let is_elsewhere = is_of_query && owner != query.node;
        let is_known = self.state.kind != NodeKind::RedisCluster || !is_elsewhere;
        is_known && self.state.tracking.sends_news(owner)
    }

    /// Tells a client what has waited for replies to it.
    pub(super) fn write_waiting_news(
        &self,
        client: &mut RedisClient,
        context: &mut RequestContext<'_>,
    ) {
        let first = client.first_number();
        let Some(own) = &mut client.tracking else {
            return;
        };
        let keys = own.reads.take_ended(first);
        if !keys.is_empty() {
            self.write_news(client, Some(keys.into()), context);
        }
    }

    /// Handles the news that keys have changed, for this client or for those that have chosen it.
    pub(super) fn keys_changed(
        &self,
        client: &mut RedisClient,
        (keys, redirected): (ChangedKeys, bool),
        context: &mut RequestContext<'_>,
    ) {
        if redirected {
            return self.put_news(client, &keys, true, context);
        }
        let Some(own) = &mut client.tracking else {
            return;
        };
        let keys = match &keys {
            None => {
                own.reads.changed_all();
                None
            }
            Some(all) => {
                let at_once = own.reads.changed(all);
                match at_once.len() {
                    0 => return,
                    len if len == all.len() => keys,
                    _ => Some(at_once.into()),
                }
            }
        };
        self.write_news(client, keys, context);
    }

    /// Tells a client that keys have changed, or the client that gets the news in its place.
    fn write_news(
        &self,
        client: &mut RedisClient,
        keys: ChangedKeys,
        context: &mut RequestContext<'_>,
    ) {
        let Some(own) = &mut client.tracking else {
            return;
        };
        let Some(number) = own.settings.redirect else {
            return self.put_news(client, &keys, false, context);
        };
        match self.state.tracking.client(number) {
            Some(target) => self.state.tracking.send_to(target, keys, true),
            None if std::mem::replace(&mut own.settings.is_broken, true) => {}
            None => context.out.put_with(|bytes| {
                write_broken_redirection(number, &mut Writer::new(bytes, client.protocol));
            }),
        }
    }

    /// Writes the news, unless the client has left too much untaken: then it is about to be closed.
    fn put_news(
        &self,
        client: &RedisClient,
        keys: &ChangedKeys,
        redirected: bool,
        context: &mut RequestContext<'_>,
    ) {
        if context.out.len() > self.state.limits.subscriber_output || client.is_lost() {
            return;
        }
        let is_subscriber = client.subscriptions.any();
        context.out.put_with(|bytes| {
            let mut writer = Writer::new(bytes, client.protocol);
            write_invalidation(keys.as_deref(), redirected, is_subscriber, &mut writer);
        });
    }
}
