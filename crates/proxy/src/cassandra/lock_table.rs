//! Tables of locks: the proxy answers statements about them as Cassandra would.
//!
//! | module | concept |
//! |---|---|
//! | [`schema`] | the tables' columns, as nodes report them |
//! | [`row`] | a row as the value of a lock |
//! | [`reading`] | reads a statement with its values |
//! | [`step`] | the effect of a statement on its lock, and the reply |
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

mod reading;
pub(crate) mod row;
pub(crate) mod schema;
pub(crate) mod step;

use std::fmt;
use std::sync::Arc;

use ::locks::{Answer, Change, LockError, Request as Asking};
use cql::request::{BatchStatement, Statement as Part};
use cql::response::{ErrorBody, ErrorKind, INVALID, OVERLOADED, SERVER_ERROR};
use cql::statement::lock::SUPPORTED;
use cql::statement::{LockStatement, Summary, TableName};
use cql::{BoundValues, Consistency, Response, ResultBody, StreamId, Version};

use self::schema::LockTableSchema;
use self::step::{Judged, Step};
use super::client::Client;
use super::protocol::CqlProtocol;
use crate::config::LockTable;
use crate::locks::Outcome;
use crate::locks::lock_service::LockService;
use crate::locks::pending_requests::PendingRequest;
use crate::runtime::protocol::{LockReply, RequestContext};

/// The locks, and the tables that are kept as locks.
#[derive(Default)]
pub(crate) struct Keeping {
    pub(crate) tables: Vec<LockTable>,
    /// The lock service; `None`: the proxy keeps no locks.
    pub(crate) locks: Option<Arc<LockService>>,
}

/// A statement of a client, and how it must be answered.
#[derive(Clone, Copy)]
pub(crate) struct Said<'a> {
    pub(crate) stream: StreamId,
    pub(crate) text: &'a str,
    /// The keyspace of table names without a keyspace.
    pub(crate) current: Option<&'a str>,
    pub(crate) values: &'a BoundValues<'a>,
    pub(crate) skip_metadata: bool,
}

/// A statement whose answer comes as a lock reply.
#[derive(Debug)]
pub(crate) struct PendingLockRequest {
    stream: StreamId,
    step: Arc<Step>,
    skip_metadata: bool,
}

impl fmt::Display for LockTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.keyspace, self.table)
    }
}

impl Keeping {
    /// Returns `true` if the proxy keeps one of these tables.
    fn has_one_of(&self, tables: &[TableName<'_>], current: Option<&str>) -> bool {
        let is = |table: &TableName<'_>| self.tables.iter().any(|own| own.is(table, current));
        tables.iter().any(is)
    }

    /// Returns `true` if a text is about a table that the proxy keeps.
    pub(crate) fn answers(&self, text: &str, current: Option<&str>) -> bool {
        !self.tables.is_empty()
            && Summary::of(text).is_ok_and(|summary| self.has_one_of(&summary.tables, current))
    }
}

impl LockTable {
    fn is(&self, table: &TableName<'_>, current: Option<&str>) -> bool {
        table.is(&self.keyspace, &self.table, current)
    }
}

impl CqlProtocol {
    /// Returns `true` if there are tables of locks.
    pub(crate) fn keeps_lock_tables(&self) -> bool {
        !self.state.setting.keeping.tables.is_empty()
    }

    /// Returns `true` if a statement is about a table of locks.
    pub(crate) fn is_of_locks(&self, summary: Option<&Summary<'_>>, current: Option<&str>) -> bool {
        let keeping = &self.state.setting.keeping;
        summary.is_some_and(|summary| keeping.has_one_of(&summary.tables, current))
    }

    /// Returns the reason why a text cannot be prepared, if there is one.
    pub(crate) fn cannot_prepare(&self, text: &str, current: Option<&str>) -> Option<String> {
        if !self.state.setting.keeping.answers(text, current) {
            return None;
        }
        LockStatement::parse(text)
            .err()
            .map(|error| error.to_string())
    }

    /// Returns the reason why a batch cannot be executed, if there is one.
    pub(crate) fn cannot_batch<'a>(
        &self,
        version: Version,
        parts: &[BatchStatement<'a>],
        current: Option<&str>,
    ) -> Option<ErrorBody<'a>> {
        let keeping = &self.state.setting.keeping;
        for part in parts {
            let of_locks = match part.statement {
                Part::Text(text) => keeping.answers(text, current),
                Part::Prepared(id) => match self.state.prepared.get(version, id) {
                    // It may be about any table.
                    None => return Some(unprepared(id)),
                    Some(statement) => {
                        let current = statement.connection_keyspace.as_deref();
                        statement.here && keeping.answers(&statement.text, current)
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
        client: &mut Client,
        said: Said<'_>,
        context: &mut RequestContext<'_>,
    ) {
        let step = match self.step(said) {
            Ok(step) => Arc::new(step),
            Err(what) => return client.refuse(said.stream, INVALID, &what),
        };
        let Some(locks) = &self.state.setting.keeping.locks else {
            return client.refuse(said.stream, INVALID, "this proxy keeps no locks");
        };
        let change = {
            let step = Arc::clone(&step);
            Change::new(move |lock| step.judge(lock).verdict())
        };
        let asking = match step.reads() {
            true => Asking::Info,
            false => Asking::Change(&change),
        };
        match locks.ask(client.id.thread, &step.lock, &asking) {
            Ok(outcome) => tell(client, said.stream, &step, said.skip_metadata, &outcome),
            Err(ticket) => {
                let (aim, name) = (step.aim(), step.lock.clone());
                let about = PendingLockRequest {
                    stream: said.stream,
                    step,
                    skip_metadata: said.skip_metadata,
                };
                let question = PendingRequest::new(ticket, &name, aim, about);
                let sequence = client.next_question();
                self.lock_replies.expect(client.id, sequence, &question);
                client.asked.insert(sequence, question);
                context.wait_for_lock_reply();
            }
        }
    }

    /// Returns the step that a statement asks for.
    fn step(&self, said: Said<'_>) -> Result<Step, String> {
        let statement = LockStatement::parse(said.text).map_err(|error| error.to_string())?;
        let is_it = |known: &&LockTableSchema| known.name.is(&statement.table, said.current);
        let Some(known) = self.known.lock_tables.iter().find(is_it) else {
            return Err(format!("{SUPPORTED}: {} is none", statement.table));
        };
        if known.schema.is_err() {
            self.state.ask_for_news();
        }
        Step::new(
            known.schema.as_ref().map_err(String::clone)?,
            &statement,
            said.values,
        )
    }

    /// Answers a client that executes a statement unknown to the proxy, which may be about any table.
    pub(crate) fn not_prepared(client: &mut Client, stream: StreamId, id: &[u8]) {
        client.answer(stream, Response::Error(unprepared(id)));
    }

    /// Gives the client the lock service's answer to a statement.
    pub(crate) fn deliver_lock_reply(client: &mut Client, lock_reply: &LockReply) {
        let Some(question) = client.asked.remove(&lock_reply.sequence) else {
            return;
        };
        let asked = question.about;
        let (stream, skip) = (asked.stream, asked.skip_metadata);
        tell(client, stream, &asked.step, skip, &lock_reply.outcome);
    }

    /// Forgets the pending requests of a client that has gone.
    pub(crate) fn forget_locks(&mut self, client: &mut Client) {
        let Some(locks) = &self.state.setting.keeping.locks else {
            return;
        };
        for question in std::mem::take(&mut client.asked).into_values() {
            self.lock_replies.forget(locks, &question);
        }
    }
}

impl Judged {
    fn verdict(self) -> ::locks::ChangeVerdict {
        match self {
            Judged::Applied(verdict) => verdict,
            Judged::Missing | Judged::Differs(_) | Judged::Refused(_) => {
                ::locks::ChangeVerdict::Keep
            }
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
fn tell(
    client: &mut Client,
    stream: StreamId,
    step: &Step,
    skip_metadata: bool,
    outcome: &Outcome,
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
    let judged = step.judge(found);
    if let Judged::Refused(what) = judged {
        return client.refuse(stream, INVALID, what);
    }
    let rows = step.told(&judged);
    let body = match &rows {
        None => ResultBody::Void,
        Some(rows) => ResultBody::Rows(rows.rows(skip_metadata)),
    };
    client.answer(stream, Response::Result(body));
}

/// Returns the error of Cassandra that fits an error of the locks.
fn failure<'a>(error: &LockError, step: &Step, message: &'a str) -> ErrorBody<'a> {
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
