//! Replicated partitions: what a node does with commands when it does not lead, and with those that
//! are executed after consensus.
//!
//! | the command | then |
//! |---|---|
//! | reads, on a connection that has said `READONLY` | executes here, if what is here is fresh enough |
//! | walks or counts all keys of the node: `SCAN`, `KEYS`, `DBSIZE` | as above, on every connection, as Redis's replicas do |
//! | is alone, and its connection watches no keys | its client gets the address of the leader (`MOVED`), or an error that there is none |
//! | arrives while this node hands the leadership over | this node coordinates it, as soon as there is a leader |
//! | is a block, a `WATCH`, or behind one | this node coordinates it |

use std::time::Duration;

use base::{Abort, NodeId, Op};

use crate::command::{Command, Flags};
use crate::connection::Connection;
use crate::coordination::can_be_sent_away;
use crate::executor::Executor;
use crate::refusal;
use crate::task::{Proposed, Task, Work};

/// Returns `true` if a command reads the keys of the node on which it runs, whichever these are.
#[inline]
fn is_of_node(command: &Command) -> bool {
    command.keys.first == 0 && command.flags.has(Flags::READ) && !command.flags.has(Flags::ADMIN)
}

impl Executor {
    /// Returns the greatest age of the data that a command of the connection may read here, if it
    /// may read old data.
    #[inline]
    pub(crate) fn stale(&self, connection: &Connection, command: &Command) -> Option<Duration> {
        let may = connection.reads_stale || is_of_node(command);
        self.stale_of_node().filter(|_| may)
    }

    /// Returns the greatest age of the node's keys when a command shows them.
    pub(crate) fn stale_of_node(&self) -> Option<Duration> {
        Some(self.context.shared.config.staleness)
    }

    /// Continues with operations after `leader` was found to lead instead of this node.
    #[cold]
    pub(crate) fn redirect(
        &mut self,
        connection: &mut Connection,
        ops: &[Op<'_>],
        leader: Option<NodeId>,
        work: Work,
    ) {
        let partition = self.context.shared.partition.replicated();
        // There will be a leader within a moment: this node waits for it, and asks it.
        let waits = leader.is_none() && partition.is_some_and(|own| own.member().hands_over());
        if !waits
            && let Work::Call(call) = &work
            && can_be_sent_away(connection, call.command)
        {
            return self.tell_elsewhere(connection, ops, &Abort::Elsewhere { leader });
        }
        let number = self.begin(connection, ops);
        connection.wait_for(number, work);
    }

    /// Answers with the leader, or with the reason why nothing has happened.
    #[cold]
    pub(crate) fn tell_elsewhere(
        &mut self,
        connection: &mut Connection,
        ops: &[Op<'_>],
        abort: &Abort,
    ) {
        let routes = self.context.shared.routes.as_ref();
        match (abort, routes) {
            (
                Abort::Elsewhere {
                    leader: Some(leader),
                },
                Some(routes),
            ) => {
                let (slot, to) = (routes.own_slot(ops), routes.address_of(*leader));
                let text = format!("MOVED {slot} {}:{}", to.ip(), to.port());
                connection.writer().error(&text);
            }
            _ => refusal::abort(abort, &mut connection.writer()),
        }
    }

    /// Proposes operations, which are executed after consensus.
    #[cold]
    pub(crate) fn propose(&mut self, connection: &mut Connection, ops: &[Op<'_>], work: Work) {
        match self.worker.propose(ops) {
            Err(Abort::Elsewhere { leader }) => self.redirect(connection, ops, leader, work),
            proposed => self.wait_for_outcome(connection, work, proposed),
        }
    }

    /// Makes the connection wait for the outcome of a proposal.
    #[cold]
    pub(crate) fn wait_for_outcome(
        &mut self,
        connection: &mut Connection,
        work: Work,
        proposed: Result<u64, Abort>,
    ) {
        match proposed {
            Ok(number) => {
                let observed = self.worker.observed();
                connection.task = Some(Task::Proposed(Proposed {
                    work,
                    number,
                    epoch: observed.epoch,
                    time_ms: observed.time_ms,
                }));
            }
            Err(abort) => self.tell_elsewhere(connection, &[], &abort),
        }
    }

    /// Answers a proposal whose outcome is known, or will never be known.
    pub(crate) fn tell_proposed(&mut self, connection: &mut Connection, proposed: Proposed) {
        let Proposed {
            work,
            number,
            epoch,
            time_ms,
        } = proposed;
        let is_lost = self.context.shared.partition.is_lost(epoch);
        match self.worker.outcome(number).filter(|_| !is_lost) {
            Some(outcome) => self.tell_outcome(connection, work, outcome, time_ms),
            None => connection.writer().raw(refusal::LEADERSHIP_LOST),
        }
    }
}
