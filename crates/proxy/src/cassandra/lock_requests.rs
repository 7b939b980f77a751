//! The clients' requests about tables of locks: the proxy answers them as Cassandra would.
//!
//! | a client's request about such a table | effect |
//! |---|---|
//! | PREPARE of a step of the recipe | a node prepares it, checks it and returns its columns |
//! | QUERY and EXECUTE of one | the locks are asked |
//! | PREPARE and QUERY of any other statement, BATCH with it | refused |
//! | changes of the schema | nodes execute them |
//!
//! Invariants:
//! 1. Nothing that writes to such a table reaches a node. A statement whose text the proxy does not
//!    know is not executed: its client gets the error to prepare it again.
//! 2. A request is answered once: at once, or when its lock reply comes.
//! 3. The number of requests that wait for lock replies is bounded: from a connection that has reached
//!    the limit, no further request about such a table is executed until a lock reply has come.

use std::sync::Arc;

use ::locks::{Answer, Change, LockError, Request};
use cql::request::{BatchStatement, Statement as Part};
use cql::response::{ErrorBody, ErrorKind, INVALID, OVERLOADED, SERVER_ERROR};
use cql::statement::lock::SUPPORTED;
use cql::statement::{LockStatement, Summary};
use cql::{BoundValues, Consistency, Response, ResultBody, StreamId, Version};

use super::client::CqlClient;
use super::lock_table::PendingLockRequest;
use super::lock_table::schema::KnownTable;
use super::lock_table::step::{LockStep, StepOutcome};
use super::protocol::CqlProtocol;
use crate::error::ProxyError;
use crate::locks::LockOutcome;
use crate::locks::pending_requests::{LockReply, PendingRequest};
use crate::runtime::protocol::RequestContext;

/// A statement of a client, and how it must be answered.
#[derive(Clone, Copy)]
pub(crate) struct LockQuery<'a> {
    pub(crate) stream: StreamId,
    pub(crate) text: &'a str,
    /// The keyspace of table names without a keyspace.
    pub(crate) current: Option<&'a str>,
    pub(crate) values: &'a BoundValues<'a>,
    pub(crate) skip_metadata: bool,
}

impl CqlProtocol {
    /// Returns `true` if there are tables of locks.
    pub(crate) fn keeps_lock_tables(&self) -> bool {
        !self.state.setting.lock_tables.tables.is_empty()
    }

    /// Returns `true` if a statement is about a table of locks.
    pub(crate) fn is_about_locks(
        &self,
        summary: Option<&Summary<'_>>,
        current: Option<&str>,
    ) -> bool {
        let lock_tables = &self.state.setting.lock_tables;
        summary.is_some_and(|summary| lock_tables.has_one_of(&summary.tables, current))
    }

    /// Returns the reason why a text cannot be prepared, if there is one.
    pub(crate) fn refusal_of_prepare(&self, text: &str, current: Option<&str>) -> Option<String> {
        if !self.state.setting.lock_tables.answers(text, current) {
            return None;
        }
        LockStatement::parse(text)
            .err()
            .map(|error| error.to_string())
    }

    /// Returns the reason why a batch cannot be executed, if there is one.
    pub(crate) fn refusal_of_batch<'a>(
        &self,
        version: Version,
        parts: &[BatchStatement<'a>],
        current: Option<&str>,
    ) -> Option<ErrorBody<'a>> {
        let lock_tables = &self.state.setting.lock_tables;
        for part in parts {
            let of_locks = match part.statement {
                Part::Text(text) => lock_tables.answers(text, current),
                Part::Prepared(id) => match self.state.prepared.get(version, id) {
                    // It may be about any table.
                    None => return Some(unprepared(id)),
                    Some(statement) => {
                        let current = statement.connection_keyspace.as_deref();
                        statement.is_local && lock_tables.answers(&statement.text, current)
                    }
                },
            };
            if of_locks {
                let message = "a table of locks takes no part in a BATCH: give its statements \
                               one by one";
                return Some(ErrorBody::plain(INVALID, message));
            }
        }
        None
    }

    /// Executes a statement about a table of locks; its answer may come later.
    pub(crate) fn lock(
        &mut self,
        client: &mut CqlClient,
        query: LockQuery<'_>,
        context: &mut RequestContext<'_>,
    ) {
        let step = match self.step(query) {
            Ok(step) => Arc::new(step),
            Err(what) => return client.refuse(query.stream, INVALID, &what.to_string()),
        };
        let Some(locks) = &self.state.setting.lock_tables.locks else {
            return client.refuse(query.stream, INVALID, "this proxy keeps no locks");
        };
        let change = {
            let step = Arc::clone(&step);
            Change::new(move |lock| step.evaluate(lock).verdict())
        };
        let request = match step.reads() {
            true => Request::Info,
            false => Request::Change(&change),
        };
        match locks.ask(client.id.thread, &step.lock, &request) {
            Ok(outcome) => answer(client, query.stream, &step, query.skip_metadata, &outcome),
            Err(ticket) => {
                let (aim, name) = (step.when_abandoned(), step.lock.clone());
                let about = PendingLockRequest {
                    stream: query.stream,
                    step,
                    skip_metadata: query.skip_metadata,
                };
                let pending = PendingRequest::new(ticket, &name, aim, about);
                let sequence = client.next_question();
                self.lock_replies.expect(client.id, sequence, &pending);
                client.asked.insert(sequence, pending);
                context.await_deferred_reply();
            }
        }
    }

    /// Returns the step that a statement asks for.
    fn step(&self, query: LockQuery<'_>) -> Result<LockStep, ProxyError> {
        let statement = LockStatement::parse(query.text)
            .map_err(|error| ProxyError::invalid_request(error.to_string()))?;
        let is_it = |known: &&KnownTable| known.name.is(&statement.table, query.current);
        let Some(known) = self.known.lock_tables.iter().find(is_it) else {
            return Err(ProxyError::invalid_request(format!(
                "{SUPPORTED}: {} is none",
                statement.table
            )));
        };
        if known.schema.is_err() {
            self.state.request_refresh();
        }
        LockStep::new(
            known.schema.as_ref().map_err(ProxyError::clone)?,
            &statement,
            query.values,
        )
    }

    /// Answers a client that executes a statement unknown to the proxy, which may be about any table.
    pub(crate) fn not_prepared(client: &mut CqlClient, stream: StreamId, id: &[u8]) {
        client.answer(stream, Response::Error(unprepared(id)));
    }

    /// Gives the client the lock service's answer to a statement.
    pub(crate) fn deliver_lock_reply(client: &mut CqlClient, lock_reply: &LockReply) {
        let Some(pending) = client.asked.remove(&lock_reply.sequence) else {
            return;
        };
        let asked = pending.about;
        let (stream, skip) = (asked.stream, asked.skip_metadata);
        answer(client, stream, &asked.step, skip, &lock_reply.outcome);
    }

    /// Forgets the pending requests of a client that has gone.
    pub(crate) fn forget_locks(&mut self, client: &mut CqlClient) {
        let Some(locks) = &self.state.setting.lock_tables.locks else {
            return;
        };
        for pending in std::mem::take(&mut client.asked).into_values() {
            self.lock_replies.forget(locks, &pending);
        }
    }
}

fn unprepared(id: &[u8]) -> ErrorBody<'_> {
    ErrorBody {
        message: "the proxy does not know what this statement is about: prepare it again",
        kind: ErrorKind::Unprepared { id },
    }
}

/// Sends a client the outcome of its request.
fn answer(
    client: &mut CqlClient,
    stream: StreamId,
    step: &LockStep,
    skip_metadata: bool,
    outcome: &LockOutcome,
) {
    let found = match outcome {
        Ok(Answer::Changed { found, .. } | Answer::Info(found)) => found.as_ref(),
        // No other answer occurs.
        Ok(_) => None,
        Err(error) => {
            let message = error.to_string();
            let error = failure(error, step, &message);
            return client.answer(stream, Response::Error(error));
        }
    };
    // The decision about the row that was found is repeated, to make the reply of it.
    let outcome_of_step = step.evaluate(found);
    if let StepOutcome::Refused(what) = outcome_of_step {
        return client.refuse(stream, INVALID, what);
    }
    let rows = step.reply_rows(&outcome_of_step);
    let body = match &rows {
        None => ResultBody::Void,
        Some(rows) => ResultBody::Rows(rows.rows(skip_metadata)),
    };
    client.answer(stream, Response::Result(body));
}

/// Returns the error of Cassandra that fits an error of the locks.
fn failure<'a>(error: &LockError, step: &LockStep, message: &'a str) -> ErrorBody<'a> {
    let consistency = Consistency::Serial;
    let kind = match error {
        LockError::KeyLength { .. }
        | LockError::ValueLength { .. }
        | LockError::LeaseLength { .. }
        | LockError::NeedsLease => return ErrorBody::plain(INVALID, message),
        LockError::TooManyLocks { .. } | LockError::TooManyWaiters { .. } | LockError::Stopping => {
            return ErrorBody::plain(OVERLOADED, message);
        }
        LockError::Refused { .. } | LockError::Damaged => {
            return ErrorBody::plain(SERVER_ERROR, message);
        }
        LockError::Uncertain { .. } if !step.reads() => ErrorKind::WriteTimeout {
            consistency,
            received: 0,
            required: 1,
            write: "CAS",
            contentions: None,
        },
        LockError::Settling { .. }
        | LockError::Unavailable { .. }
        | LockError::Uncertain { .. } => ErrorKind::Unavailable {
            consistency,
            required: 1,
            alive: 0,
        },
    };
    ErrorBody { message, kind }
}
