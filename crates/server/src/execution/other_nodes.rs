//! Transactions that this node does not execute by itself, at once: others take part in them, or hold
//! their keys, or lead the partition.
//!
//! Of a partition that other nodes lead, or that is executed after consensus:
//!
//! | the command | then |
//! |---|---|
//! | reads, on a connection that has said `READONLY` | executes here, if what is here is fresh enough |
//! | walks or counts all keys of the node: `SCAN`, `KEYS`, `DBSIZE` | as above, on every connection, as Redis's replicas do |
//! | is alone, and its connection watches no keys | its client gets the address of the leader (`MOVED`), or an error that there is none |
//! | arrives while this node hands the leadership over | this node coordinates it, as soon as there is a leader |
//! | is a block, a `WATCH`, or behind one | this node coordinates it |

use base::transaction::Holder;
use base::{Abort, NodeId, Op};
use cluster::slot;
use resp::Args;

use super::executor::Executor;
use crate::command::{CommandDefinition, CommandKind};
use crate::command_call::CommandCall;
use crate::connection::Connection;
use crate::pending_command::{
    CoordinatedTransaction, LockWait, PendingCommand, PendingTransaction, ProposedTransaction,
};
use crate::refusal;
use crate::routing::{Route, Routes};

impl Executor {
    /// Returns `true` if all of these operations are of this node's own partition.
    pub(super) fn has_keys_of(&self, ops: &[Op<'_>]) -> bool {
        let routes = self.context.shared.routes.as_ref();
        routes.is_none_or(|routes| routes.route(ops) == Route::Local)
    }

    /// Returns `true` if all keys of a command are of this node's own partition.
    pub(super) fn has_all_keys(&self, command: &CommandDefinition, args: Args<'_>) -> bool {
        let routes = self.context.shared.routes.as_ref();
        routes.is_none_or(|routes| {
            let mut keys = command.keys.indexes(args);
            keys.all(|at| routes.is_own(slot::of(args.at(at))))
        })
    }

    /// Sends a command's client to another node, or begins the command together with other nodes,
    /// if its operations need them. Returns `true` if it did.
    #[inline(never)]
    pub(super) fn route_elsewhere(
        &mut self,
        connection: &mut Connection,
        command: &'static CommandDefinition,
        args: Args<'_>,
        ops: &[Op<'_>],
    ) -> bool {
        let Some(routes) = &self.context.shared.routes else {
            return false;
        };
        match routes.route(ops) {
            Route::Local => return false,
            Route::Slot(slot) if may_be_redirected(connection, command) => {
                write_moved(connection, slot, routes, routes.leader_of(slot));
            }
            Route::Slot(_) | Route::Slots => {
                let call = CommandCall::new(command, args);
                let number = self.coordinate(connection, ops);
                wait_for_coordinated(connection, PendingTransaction::Call(call), number);
            }
        }
        true
    }

    /// Sends a command's client to the node that has its keys, if that is another one and has all of
    /// them. Returns `true` if it did.
    pub(super) fn sends_elsewhere(
        &self,
        connection: &mut Connection,
        command: &CommandDefinition,
        keys: &[Op<'_>],
    ) -> bool {
        let Some(routes) = &self.context.shared.routes else {
            return false;
        };
        match routes.route(keys) {
            Route::Slot(slot) if may_be_redirected(connection, command) => {
                write_moved(connection, slot, routes, routes.leader_of(slot));
                true
            }
            _ => false,
        }
    }

    /// Begins operations that other nodes take part in. Returns the transaction's number, under which
    /// the connection waits for the outcome.
    pub(super) fn coordinate(&mut self, connection: &Connection, ops: &[Op<'_>]) -> u64 {
        let (worker, now) = (&mut self.worker, self.context.now);
        let cluster = self.cluster.as_mut().expect("this is a node of a cluster");
        cluster.begin(worker, ops, connection.session.key, now)
    }

    /// Continues with operations after `leader` was found to lead instead of this node.
    #[cold]
    pub(super) fn redirect(
        &mut self,
        connection: &mut Connection,
        ops: &[Op<'_>],
        leader: Option<NodeId>,
        transaction: PendingTransaction,
    ) {
        let partition = self.context.shared.partition.replicated();
        // There will be a leader within a moment: this node waits for it, and asks it.
        let waits = leader.is_none() && partition.is_some_and(|own| own.member().hands_over());
        let call = match &transaction {
            PendingTransaction::Call(call) => Some(call),
            PendingTransaction::Long(long) if long.is_new() => long.command(),
            PendingTransaction::Long(_)
            | PendingTransaction::Block(_)
            | PendingTransaction::Write(_)
            | PendingTransaction::Watch(_) => None,
        };
        if !waits
            && let Some(call) = call
            && may_be_redirected(connection, call.command)
        {
            // Not that of the first operation: a script may begin with a key that it does not name, while its client
            // has found this node by one that it names.
            let key = call.first_key().or_else(|| first_key(ops));
            return self.answer_elsewhere(connection, key, &Abort::Elsewhere { leader });
        }
        let number = self.coordinate(connection, ops);
        wait_for_coordinated(connection, transaction, number);
    }

    /// Answers with the leader's address and the slot of a key, or with the reason why nothing has happened.
    #[cold]
    pub(super) fn answer_elsewhere(
        &mut self,
        connection: &mut Connection,
        key: Option<&[u8]>,
        abort: &Abort,
    ) {
        let routes = self.context.shared.routes.as_ref();
        match (abort, routes) {
            (
                Abort::Elsewhere {
                    leader: Some(leader),
                },
                Some(routes),
            ) => write_moved(connection, routes.own_slot(key), routes, *leader),
            _ => refusal::write_abort(abort, &mut connection.writer()),
        }
    }

    /// Proposes operations, which are executed after consensus. The connection waits for the outcome.
    #[cold]
    pub(super) fn propose(
        &mut self,
        connection: &mut Connection,
        ops: &[Op<'_>],
        transaction: PendingTransaction,
    ) {
        match self.worker.propose(ops) {
            Err(Abort::Elsewhere { leader }) => {
                self.redirect(connection, ops, leader, transaction);
            }
            proposed => self.wait_for_proposed(connection, transaction, proposed),
        }
    }

    /// Makes the connection wait for the outcome of a proposal, or answers why there is none.
    #[cold]
    pub(super) fn wait_for_proposed(
        &mut self,
        connection: &mut Connection,
        transaction: PendingTransaction,
        proposed: Result<u64, Abort>,
    ) {
        match proposed {
            Ok(number) => {
                let observed = self.worker.observed();
                connection.pending = Some(PendingCommand::Proposed(ProposedTransaction {
                    transaction,
                    number,
                    epoch: observed.epoch,
                    time_ms: observed.time_ms,
                }));
            }
            Err(abort) => self.answer_elsewhere(connection, None, &abort),
        }
    }

    /// Makes the connection wait until `holder` has ended.
    #[cold]
    pub(super) fn wait_for_locks(
        &mut self,
        connection: &mut Connection,
        transaction: PendingTransaction,
        holder: Holder,
    ) {
        let wait = LockWait::new(&self.context, transaction, holder);
        connection.pending = Some(PendingCommand::LockWait(wait));
    }
}

/// Returns the first key of operations.
pub(super) fn first_key<'a>(ops: &[Op<'a>]) -> Option<&'a [u8]> {
    ops.iter().find_map(Op::key)
}

/// Makes the connection wait for the coordinated transaction with this number.
pub(super) fn wait_for_coordinated(
    connection: &mut Connection,
    transaction: PendingTransaction,
    number: u64,
) {
    connection.pending = Some(PendingCommand::Coordinated(CoordinatedTransaction {
        transaction,
        number,
    }));
}

/// Returns `true` if a command whose keys are in one slot of another node may be answered with that
/// node's address. A client that watches keys here would lose its watches there; and `WATCH` itself
/// should work for clients that do not know about clusters. `SCAN` continues on the node on which
/// it began.
pub(super) fn may_be_redirected(connection: &Connection, command: &CommandDefinition) -> bool {
    match command.kind {
        CommandKind::Scan(_) => true,
        CommandKind::Watch | CommandKind::WatchVersion | CommandKind::Libraries(_) => false,
        _ => connection.watches.is_empty(),
    }
}

/// Writes the error that sends a client to another node.
pub(super) fn write_moved(connection: &mut Connection, slot: u16, routes: &Routes, node: NodeId) {
    let moved = routes.moved(slot, node, connection.session.client.over_tls);
    connection.writer().error(&moved);
}
