//! Commands that wait until a key has something for them.
//!
//! | step | happens |
//! |---|---|
//! | begins | the command executes at once, at the keys for which no other client waits |
//! | found nothing | its client enters the queues of its keys ([`BlockedCommand`]); the command is pending |
//! | has turns | it executes at their keys as if it had just come, and is answered, or passes the turns on |
//! | its time is over | it is answered that there is nothing |
//!
//! Each execution is a transaction of its own, of the connection's runtime: an element is taken for a client that
//! is there, and its reply waits for durability.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use base::{Abort, Epoch, Op, database};
use resp::Args;

use super::executor::Executor;
use super::in_place::answer;
use super::other_nodes::{first_key, may_be_redirected, write_moved};
use crate::blocked_command::BlockedCommand;
use crate::clients::BlockedState;
use crate::command::{BlockingCommand, CommandDefinition, CommandKind, KeyTurns, Ops};
use crate::command_call::CommandCall;
use crate::connection::Connection;
use crate::handover;
use crate::long_transaction::LongTransaction;
use crate::pending_command::{PausedCommand, PendingCommand};
use crate::routing::Route;

/// The interval at which keys of other nodes are looked at.
const REMOTE_PAUSE: Duration = Duration::from_millis(100);
/// The interval at which keys are looked at while commits are on their way that do not report changes.
const REPORT_PAUSE: Duration = Duration::from_millis(1);

impl Executor {
    /// Begins a command that waits if it finds nothing.
    pub(super) fn begin_blocking(
        &mut self,
        connection: &mut Connection,
        (command, args): (&'static CommandDefinition, Args<'_>),
        blocking: BlockingCommand,
    ) {
        if connection.blocked.is_some() {
            // It has waited for the end of a pause.
            return self.take_turns(connection);
        }
        let terms = match (blocking.terms)(args) {
            Ok(terms) => terms,
            Err(refusal) => return refusal.write(command.name, &mut connection.writer()),
        };
        if let (None, Some(plan)) = (&terms, blocking.plan) {
            return self.run_plan(connection, command, args, plan);
        }
        let mut turns = KeyTurns::ALL;
        let clients = &self.context.shared.blocked;
        if let Some(terms) = terms.filter(|_| clients.count() > 0) {
            let keys = keys_of(connection, args, terms.keys);
            turns.keys = Some(clients.unawaited(&keys, &terms.awaits));
        }
        self.begin_long(connection, command, args, turns);
        self.end_wait(connection);
    }

    /// Continues a transaction whose command has found nothing: it waits, or is answered.
    pub(super) fn end_without(
        &mut self,
        connection: &mut Connection,
        mut transaction: Box<LongTransaction>,
        observed: Epoch,
    ) {
        let shared = &self.context.shared;
        match &mut connection.blocked {
            Some(blocked) => {
                let keys = transaction.turns().unwrap_or_default();
                shared.blocked.pass(blocked.ticket, keys, &shared.signals);
            }
            None => {
                if !self.begin_wait(connection, &transaction) {
                    return self.keep(transaction);
                }
            }
        }
        match &mut connection.blocked {
            Some(blocked) => {
                blocked.observed = blocked.observed.max(observed);
                self.plan_look(blocked);
                connection.pending = Some(PendingCommand::Blocked);
            }
            None => {
                let from = connection.session.output.position();
                answer(connection, &mut transaction, None);
                self.hold_reply(connection, from, observed);
            }
        }
        self.keep(transaction);
    }

    /// Has a client wait for keys, unless its command does not wait. Returns `false` if it is answered.
    fn begin_wait(&mut self, connection: &mut Connection, transaction: &LongTransaction) -> bool {
        let Some(call) = transaction.command() else {
            return true;
        };
        let (command, args) = (call.command, call.args());
        let CommandKind::Blocking(blocking) = command.kind else {
            return true;
        };
        // They were checked before.
        let Ok(Some(terms)) = (blocking.terms)(args) else {
            return true;
        };
        let keys = keys_of(connection, args, terms.keys);
        let ops: Ops<'_> = keys.iter().map(|key| Op::Exists { key }).collect();
        let shared = &self.context.shared;
        if let Some(routes) = &shared.routes
            && let Route::Slot(slot) = routes.route(&ops)
            && may_be_redirected(connection, command)
        {
            write_moved(connection, slot, routes, routes.leader_of(slot));
            return false;
        }
        if let Some(status) = shared.follower() {
            let leader = status.leader;
            self.answer_elsewhere(connection, first_key(&ops), &Abort::Elsewhere { leader });
            return false;
        }
        drop(ops);
        let call = CommandCall::replacing(command, args, transaction.replaced());
        let own = (call, terms.awaits);
        let mut blocked = BlockedCommand::begin(shared, &connection.session.client, own, keys);
        blocked.until = terms.timeout.map(|timeout| self.context.now + timeout);
        blocked.is_reported = shared.partition.announces_all();
        if let Some(routes) = &shared.routes {
            let is_remote = |key: &[u8]| routes.route(&[Op::Exists { key }]) != Route::Local;
            let keys = blocked.keys.iter().filter(|key| is_remote(key));
            blocked.remote = keys.cloned().collect();
        }
        connection.blocked = Some(Box::new(blocked));
        true
    }

    /// Plans when a command looks again at keys of which it gets no news.
    fn plan_look(&self, blocked: &mut BlockedCommand) {
        let pause = match blocked.is_reported {
            false => Some(REPORT_PAUSE),
            true => (!blocked.remote.is_empty()).then_some(REMOTE_PAUSE),
        };
        blocked.looks_at = pause.map(|pause| self.context.now + pause);
    }

    /// Asks for the turns of a client's keys, because changes of them may not have been reported.
    fn ask_for_turns(&self, blocked: &mut BlockedCommand) {
        let shared = &self.context.shared;
        // Before the turns: what is not reported from now on has happened, and is found.
        blocked.is_reported = shared.partition.announces_all();
        shared.blocked.look_again(&blocked.keys, &shared.signals);
        self.plan_look(blocked);
    }

    /// Continues a command that waits for keys.
    pub(super) fn resume_blocked(&mut self, connection: &mut Connection) {
        let now = self.context.now;
        let Some(blocked) = &mut connection.blocked else {
            return;
        };
        let looks = blocked.looks_at.is_some_and(|at| at <= now);
        if looks && !blocked.is_reported {
            self.ask_for_turns(blocked);
        } else if looks || !blocked.turns.is_empty() {
            return self.take_turns(connection);
        }
        let from = connection.session.output.position();
        match connection.session.client.blocked() {
            BlockedState::Fails => connection
                .writer()
                .error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            BlockedState::Waits if blocked.until.is_none_or(|until| until > now) => {
                connection.pending = Some(PendingCommand::Blocked);
            }
            _ => {
                let observed = blocked.observed;
                connection.writer().null_array();
                self.hold_reply(connection, from, observed);
            }
        }
    }

    /// Executes a command at the keys of which its client has the turn.
    fn take_turns(&mut self, connection: &mut Connection) {
        let now = self.context.now;
        let Some(blocked) = &connection.blocked else {
            return;
        };
        let call = Arc::clone(&blocked.call);
        if self.is_paused(connection, call.command) {
            let call = CommandCall::new(call.command, call.args());
            let paused = PausedCommand::of_blocked(call);
            connection.pending = Some(PendingCommand::Paused(paused));
            return;
        }
        let Some(blocked) = &mut connection.blocked else {
            return;
        };
        let (keys, ticket) = (blocked.take_turns(now), blocked.ticket);
        let clients = &self.context.shared.blocked;
        let handovers = clients.handovers(ticket, &keys);
        self.worker.serve(connection.session.client.id);
        handover::in_turn(handovers, || {
            let turns = KeyTurns {
                is_first: false,
                keys: Some(keys),
            };
            self.begin_long(connection, call.command, call.args(), turns);
        });
        let lasts = !matches!(connection.pending, None | Some(PendingCommand::Blocked));
        if let Some(blocked) = connection.blocked.as_ref().filter(|_| lasts) {
            let clients = &self.context.shared.blocked;
            clients.end_handovers(ticket, &blocked.keys);
        }
    }

    /// Ends the wait of a client that has been answered.
    pub(super) fn end_wait(&self, connection: &mut Connection) {
        if connection.pending.is_none() {
            connection.blocked = None;
        }
    }
}

/// Returns the keys at these places among the arguments, as they are stored, each once.
fn keys_of(connection: &Connection, args: Args<'_>, places: Range<usize>) -> Vec<Box<[u8]>> {
    let database = connection.session.database;
    let mut keys: Vec<Box<[u8]>> = Vec::with_capacity(places.len());
    for at in places {
        let key = database::qualified(database, args.at(at)).into_boxed_slice();
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}
