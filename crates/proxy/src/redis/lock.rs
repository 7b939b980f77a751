//! Commands about locks.
//!
//! | command | reply | |
//! |---|---|---|
//! | `LOCK.ACQUIRE key owner PX ms [WAIT ms]` | `[1, token, lease]` | granted, for `lease` ms from when the request was sent: the requested lease plus the time that the request had waited |
//! | | `[0, holder, left]` | another owner has it, and had for as long as the request waited; it has it for at most `left` ms more |
//! | `LOCK.RENEW key owner PX ms` | `[1, token, lease]` | the same |
//! | | `[0, holder, left]` | the owner does not hold it; the holder is null if no owner does |
//! | `LOCK.RELEASE key owner` | `1` | it is free |
//! | | `0` | the owner does not hold it |
//! | `LOCK.INFO key` | owner, token, left, waiters | a map, in RESP2 a list of names and values; null if no owner holds it |
//! | `LOCK.GUARD key token` | – | first in a block; see [`super::multi_block`] |
//!
//! Tokens and times are integers; a time without end is -1. Replies are lists in both versions of
//! the protocol. Errors:
//!
//! | code | meaning |
//! |---|---|
//! | `LOCKLIMIT` | a key, owner or lease is longer than allowed |
//! | `LOCKFULL` | too many locks, or requests that wait; later it may be possible |
//! | `LOCKSETTLING` | a table in memory was emptied by a restart; the text gives the time until it grants again |
//! | `LOCKSTOPPING` | the proxy is stopping; ask another |
//! | `LOCKUNAVAILABLE` | the storage of the table does not answer; nothing has happened |
//! | `LOCKUNKNOWN` | the storage of the table does not answer; the request may have taken effect or not |
//! | `LOCKREFUSED`, `LOCKDAMAGED` | the storage of the table refuses, or has a record that cannot be read |
//! | `LOCKCANCELLED` | the connection has ended while the request waited |
//!
//! Order: a command about locks waits until the nodes have answered everything that its connection sent
//! before, and later commands wait for its answer. So a lock is not released before the writes made
//! under it have arrived. Consecutive commands about locks do not wait for each other; commands on one
//! key are executed in their order.

mod encoding;

use bytes::Bytes;
use resp::Args;

use super::client::{Pending, RedisClient};
use super::commands::{LockCommand, NodeCommand};
use super::outcome::CommandOutcome;
use super::protocol::RedisProtocol;
use crate::locks::LockOutcome;
use crate::locks::pending_requests::{MOST_ASKED, PendingRequest, WhenAbandoned};
use crate::runtime::protocol::{EndReason, InputProgress, RequestContext};
use encoding::{SYNTAX, encode, read, usage, write};

impl RedisProtocol {
    /// Executes a command about locks, outside of a block.
    pub(crate) fn lock(
        &mut self,
        client: &mut RedisClient,
        command: &NodeCommand,
        kind: LockCommand,
        args: Args<'_>,
        context: &mut RequestContext<'_>,
    ) -> CommandOutcome {
        let Some(locks) = &self.state.locks else {
            client.refuse(
                context.out,
                "ERR this proxy keeps no locks: its log says why",
            );
            return CommandOutcome::Handled;
        };
        if !client.has_asked_locks_alone() {
            client.alone = true;
            return CommandOutcome::PutBack(InputProgress::AwaitsReply);
        }
        if client.asked.len() >= MOST_ASKED {
            return CommandOutcome::PutBack(InputProgress::AwaitsReply);
        }
        let request = match read(kind, args) {
            Ok(request) => request,
            Err(text) => {
                let text = match text {
                    SYNTAX => format!("ERR {SYNTAX}, as {}", usage(command)),
                    text => format!("ERR {text}"),
                };
                client.refuse(context.out, &text);
                return CommandOutcome::Handled;
            }
        };
        let key = args.at(1);
        match locks.ask(client.id.thread, key, &request) {
            Ok(outcome) => client.answer_with(context.out, |writer| write(&outcome, kind, writer)),
            Err(ticket) => {
                let sequence = client.expect(Pending::Waiting);
                let question = PendingRequest::new(ticket, key, WhenAbandoned::of(&request), kind);
                self.lock_replies.expect(client.id, sequence, &question);
                client.asked.insert(sequence, question);
                context.await_deferred_reply();
            }
        }
        CommandOutcome::Handled
    }

    /// Gives the client the lock service's answer to a request.
    pub(crate) fn deliver_lock_reply(
        &self,
        client: &mut RedisClient,
        sequence: u64,
        outcome: &LockOutcome,
        context: &mut RequestContext<'_>,
    ) {
        let Some(question) = client.asked.remove(&sequence) else {
            return;
        };
        let reply = encode(outcome, question.about, client.protocol);
        client.settle(context.out, sequence, reply);
    }

    /// Cancels the client's requests that wait for other owners. Returns `true` if there were any.
    /// Requests that have just been answered stay: their lock replies give their outcomes.
    pub(crate) fn give_up_locks(
        &mut self,
        client: &mut RedisClient,
        why: EndReason,
        context: &mut RequestContext<'_>,
    ) -> bool {
        let Some(locks) = &self.state.locks else {
            return false;
        };
        let lock_replies = &mut self.lock_replies;
        let cancelled = client.asked.extract_if(.., |_, question| {
            question.aim == WhenAbandoned::HoldsLater && lock_replies.cancel(locks, question)
        });
        let cancelled: Vec<u64> = cancelled.map(|(sequence, _)| sequence).collect();
        let text = match why {
            EndReason::Client => {
                "LOCKCANCELLED the connection has ended, and no client waits any more"
            }
            EndReason::Proxy => "LOCKSTOPPING the proxy is stopping; ask another one",
        };
        for &sequence in &cancelled {
            context.forget_deferred_reply();
            let reply = Bytes::from(format!("-{text}\r\n"));
            client.settle(context.out, sequence, reply);
        }
        !cancelled.is_empty()
    }

    /// Forgets all pending requests of the client.
    pub(crate) fn forget_locks(&mut self, client: &mut RedisClient) {
        let Some(locks) = &self.state.locks else {
            return;
        };
        for question in std::mem::take(&mut client.asked).into_values() {
            self.lock_replies.forget(locks, &question);
        }
    }
}
