//! Long transactions: their reads and their commit, here or with other nodes, and their answers.

use std::sync::atomic::Ordering;

use base::partition::OwnedReply;
use base::transaction::Holder;
use base::{Abort, Epoch, Op, OpError, Reply, Timestamp, TransactionId};
use resp::Args;

use super::block::write_discarded;
use super::executor::Executor;
use super::in_place::answer;
use super::other_nodes::wait_for_coordinated;
use super::outcome::Outcome;
use crate::command::{CommandDefinition, CommandKind, KeyTurns, Ops};
use crate::command_call::CommandCall;
use crate::connection::Connection;
use crate::long_transaction::{CallContext, Continuation, HeldKeys, LongTransaction, NextStep};
use crate::pending_command::{PendingCommand, PendingTransaction};
use crate::routing::{Route, Routes};
use crate::working_set::ReadAnswers;
use crate::{read_atomic, refusal};

impl Executor {
    /// Runs a command that reads before it writes.
    pub(super) fn begin_long(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
        turns: KeyTurns,
    ) {
        if self.cluster.is_some() {
            let keys = command.keys.indexes(args).map(|at| args.at(at));
            let keys: Ops<'_> = keys.map(|key| Op::Exists { key }).collect();
            if self.sends_elsewhere(connection, command, &keys) {
                return;
            }
        }
        let mut transaction = self.long_transaction();
        let at = (connection.session.database, self.time_ms());
        transaction.begin(CommandCall::new(command, args), at);
        transaction.set_turns(turns);
        match command.kind {
            CommandKind::Compound(_) | CommandKind::Libraries(_) => {
                self.continue_long(connection, transaction);
            }
            _ => self.begin_in_place(connection, transaction),
        }
    }

    /// Returns a transaction that can begin.
    pub(super) fn long_transaction(&mut self) -> Box<LongTransaction> {
        let config = &self.context.shared.config;
        let (longest, databases) = (config.limits.request.bulk, config.databases);
        let ended = self.ended.take();
        ended.unwrap_or_else(|| Box::new(LongTransaction::new(longest, databases)))
    }

    /// Keeps a transaction that has ended for its memory.
    pub(super) fn keep(&mut self, mut transaction: Box<LongTransaction>) {
        transaction.clear();
        self.ended = Some(transaction);
    }

    /// Returns the partition's time in milliseconds since the Unix epoch.
    pub(super) fn time_ms(&mut self) -> u64 {
        self.worker.participant().time_ms()
    }

    /// Continues a transaction until it is answered, or waits.
    pub(super) fn continue_long(
        &mut self,
        connection: &mut Connection,
        mut transaction: Box<LongTransaction>,
    ) {
        loop {
            let next = transaction.run(CallContext {
                commands: self.table,
                context: &mut self.context,
                session: &mut connection.session,
            });
            let continues = match next {
                NextStep::Read => self.read_for(connection, transaction),
                NextStep::Commit => self.commit_long(connection, transaction),
                NextStep::Slice => {
                    connection.pending = Some(PendingCommand::Slice(transaction));
                    None
                }
                NextStep::GiveUp => {
                    self.give_up(connection, transaction);
                    None
                }
                NextStep::TooLong => {
                    self.close_for_replies(connection);
                    None
                }
                NextStep::End(_) => unreachable!("the run is not in place"),
            };
            match continues {
                Some(again) => transaction = again,
                None => return,
            }
        }
    }

    /// Continues a transaction whose operations other nodes have executed.
    pub(super) fn continue_with(
        &mut self,
        connection: &mut Connection,
        mut transaction: Box<LongTransaction>,
        outcome: Outcome,
    ) {
        let Some(need) = transaction.take_need() else {
            return match outcome {
                Ok(_) if transaction.found_nothing() => {
                    self.end_without(connection, transaction, Epoch::ZERO);
                }
                Ok(replies) => {
                    let error = replies.iter().find_map(|reply| error_of(&reply.as_reply()));
                    answer(connection, &mut transaction, error);
                }
                // The outcome was returned when everything that it shows was durable.
                Err(abort) => {
                    let next = transaction.revise(abort, &self.context.shared.libraries);
                    self.continue_after(connection, transaction, next);
                }
            };
        };
        match outcome {
            Ok(replies) => {
                let replies: Vec<_> = replies.iter().map(OwnedReply::as_reply).collect();
                let answers = ReadAnswers::of(&need, &replies);
                transaction.add(need, answers, Epoch::ZERO);
                self.continue_long(connection, transaction);
            }
            Err(abort) => {
                let next = transaction.revise_read(abort, &self.context.shared.libraries);
                self.continue_after(connection, transaction, next);
            }
        }
    }

    /// Continues a transaction whose operations others have refused.
    fn continue_after(
        &mut self,
        connection: &mut Connection,
        transaction: Box<LongTransaction>,
        next: Continuation,
    ) {
        match next {
            Continuation::RunAgain => {
                let again = self.begin_again(transaction);
                self.continue_long(connection, again);
            }
            Continuation::Answer(abort) => {
                self.refuse_long(connection, &transaction, &abort, Epoch::ZERO);
            }
        }
    }

    /// Reads what a transaction needs. Returns the transaction if it can continue now.
    fn read_for(
        &mut self,
        connection: &mut Connection,
        mut transaction: Box<LongTransaction>,
    ) -> Option<Box<LongTransaction>> {
        let need = transaction.take_need()?;
        let ops = transaction.read_ops(&need);
        let room = self.context.shared.config.limits.block_bytes;
        let checked = match transaction.bytes() > room {
            true => Err(Abort::TooLarge { what: "bytes" }),
            false => read_atomic::check(&self.context.shared.read_atomic, &ops),
        };
        if let Err(abort) = checked {
            self.refuse_long(connection, &transaction, &abort, Epoch::ZERO);
            return None;
        }
        let waits = |mut transaction: Box<LongTransaction>| {
            transaction.wait_for(need.clone());
            // What it waits for may wait for it.
            transaction.end_holds();
            PendingTransaction::Long(transaction)
        };
        if self.cluster.is_some() && !self.has_keys_of(&ops) {
            let number = self.coordinate(connection, &ops);
            wait_for_coordinated(connection, waits(transaction), number);
            return None;
        }
        let mut answers = None;
        let outcome = self.worker.execute(&ops, None, |replies, _| {
            answers = Some(ReadAnswers::of(&need, replies));
        });
        match (outcome, answers) {
            (Ok(epoch), Some(answers)) => {
                drop(ops);
                transaction.add(need, answers, epoch);
                return Some(transaction);
            }
            (Ok(_), None) => unreachable!("the partition has answered"),
            (Err(Abort::Held { by }), _) => {
                self.wait_for_locks(connection, waits(transaction), by);
            }
            (Err(Abort::Elsewhere { leader }), _) => {
                let transaction = waits(transaction);
                self.redirect(connection, &ops, leader, transaction);
            }
            (Err(abort), _) => {
                drop(ops);
                match transaction.revise_read(abort, &self.context.shared.libraries) {
                    Continuation::RunAgain => return Some(self.begin_again(transaction)),
                    Continuation::Answer(abort) => {
                        self.refuse_long(connection, &transaction, &abort, Epoch::ZERO);
                    }
                }
            }
        }
        None
    }

    /// Commits a transaction, and answers. Returns the transaction if it runs again.
    fn commit_long(
        &mut self,
        connection: &mut Connection,
        mut transaction: Box<LongTransaction>,
    ) -> Option<Box<LongTransaction>> {
        let from = connection.session.output.position();
        transaction.end_holds();
        let routes = self.context.shared.routes.clone();
        let ops = transaction.commit_ops(places_of(routes.as_deref()));
        if ops.is_empty() {
            drop(ops);
            if transaction.found_nothing() {
                let observed = transaction.observed();
                self.end_without(connection, transaction, observed);
                return None;
            }
            answer(connection, &mut transaction, None);
            self.hold_reply(connection, from, transaction.observed());
            self.keep(transaction);
            return None;
        }
        let checked = read_atomic::check(&self.context.shared.read_atomic, &ops);
        let checked = checked.and_then(|()| match self.worker.executes_later(&ops) {
            true => Err(executes_later()),
            false => Ok(()),
        });
        if let Err(abort) = checked {
            drop(ops);
            self.refuse_long(connection, &transaction, &abort, Epoch::ZERO);
            return None;
        }
        if self.cluster.is_some() && !self.has_keys_of(&ops) {
            drop(ops);
            return self.coordinate_commit(connection, transaction);
        }
        let mut error = None;
        let outcome = self.worker.execute(&ops, None, |replies, _| {
            error = replies.iter().find_map(error_of);
        });
        drop(ops);
        match outcome {
            Ok(epoch) if transaction.found_nothing() => {
                self.end_without(connection, transaction, epoch);
                None
            }
            Ok(epoch) => {
                answer(connection, &mut transaction, error);
                self.hold_reply(connection, from, epoch);
                self.keep(transaction);
                None
            }
            Err(Abort::Elsewhere { .. }) => self.coordinate_commit(connection, transaction),
            Err(Abort::Held { by }) => {
                let pending = PendingTransaction::Long(transaction);
                self.wait_for_locks(connection, pending, by);
                None
            }
            Err(abort) => match transaction.revise(abort, &self.context.shared.libraries) {
                Continuation::RunAgain => Some(self.begin_again(transaction)),
                Continuation::Answer(abort) => {
                    let epoch = self.worker.observed().epoch;
                    self.refuse_long(connection, &transaction, &abort, epoch);
                    None
                }
            },
        }
    }

    /// Begins the next run of a transaction that has met a conflict.
    fn begin_again(&mut self, mut transaction: Box<LongTransaction>) -> Box<LongTransaction> {
        let (held, time_ms) = (self.hold_keys(&transaction), self.time_ms());
        transaction.run_again(held, time_ms);
        transaction
    }

    /// Holds the keys of this node's partition that a transaction needs, if it has met several conflicts. If
    /// others hold one of them, none is held: they will end.
    fn hold_keys(&mut self, transaction: &LongTransaction) -> Option<HeldKeys> {
        let (mut ops, began_ms) = transaction.wants_held()?;
        let shared = &self.context.shared;
        if let Some(routes) = &shared.routes {
            ops.retain(|op| routes.route(std::slice::from_ref(op)) == Route::Local);
        }
        let age = Timestamp::at_ms(began_ms);
        let id = TransactionId {
            timestamp: age,
            unique: shared.holds.fetch_add(1, Ordering::Relaxed),
        };
        match self.worker.hold(&ops, Holder { id, age }) {
            Ok(true) => Some(HeldKeys::new(&shared.partition, id)),
            Ok(false) | Err(_) => None,
        }
    }

    /// Commits a transaction together with other nodes. Returns `None`: the connection waits.
    fn coordinate_commit(
        &mut self,
        connection: &mut Connection,
        transaction: Box<LongTransaction>,
    ) -> Option<Box<LongTransaction>> {
        let routes = self.context.shared.routes.clone();
        let ops = transaction.commit_ops(places_of(routes.as_deref()));
        let number = self.coordinate(connection, &ops);
        drop(ops);
        wait_for_coordinated(connection, PendingTransaction::Long(transaction), number);
        None
    }

    /// Answers a transaction of which a script was killed.
    fn give_up(&mut self, connection: &mut Connection, mut transaction: Box<LongTransaction>) {
        let error = transaction.take_error();
        match transaction.command() {
            Some(_) => connection.session.output.buffer().extend_from_slice(&error),
            None => {
                let text = error.strip_prefix(b"-").unwrap_or(&error);
                write_discarded(connection, String::from_utf8_lossy(text).trim_end());
            }
        }
    }

    /// Answers a transaction that did not take effect, because of data that `epoch` shows.
    fn refuse_long(
        &mut self,
        connection: &mut Connection,
        transaction: &LongTransaction,
        abort: &Abort,
        epoch: Epoch,
    ) {
        match transaction.command() {
            Some(_) => refusal::write_abort(abort, &mut connection.writer()),
            None => self.answer_block_abort(connection, abort, epoch),
        }
    }
}

/// Returns a key of each partition of the cluster.
fn places_of(routes: Option<&Routes>) -> &[Vec<u8>] {
    routes.map_or(&[], |routes| &routes.places)
}

fn error_of(reply: &Reply<'_>) -> Option<OpError> {
    match reply {
        Reply::Error(error) => Some(*error),
        _ => None,
    }
}

fn executes_later() -> Abort {
    Abort::Unsupported {
        what: "commands that read before they write, and scripts, need partitions that execute before \
            consensus (without --naive)"
            .to_owned(),
    }
}
