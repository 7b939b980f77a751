//! The clients' requests about read-atomic tables: one request becomes queries in two rounds at most.
//!
//! | request | first round | second round |
//! |---|---|---|
//! | write of several rows | PREPARE: the record | COMMIT: each row |
//! | write of one row | the row | – |
//! | read | each row | the records of versions that are missing, if some are |
//!
//! Every query can be repeated: timestamps make writes idempotent. So a query that fails is sent again for
//! the proxy's patience, to another node.
//!
//! Invariants:
//! 1. A request is answered once: when its last round is complete, or at its first query that fails for
//!    good. Later replies to its queries are ignored.
//! 2. A COMMIT begins only when a quorum has the record; see [`read_atomic`](super::read_atomic).
//! 3. The number of a connection's requests under way is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use cql::request::{BatchStatement, Statement as Part};
use cql::response::{
    ErrorBody, ErrorKind, INVALID, IS_BOOTSTRAPPING, OVERLOADED, READ_FAILURE, READ_TIMEOUT,
    SERVER_ERROR, UNAVAILABLE, WRITE_FAILURE, WRITE_TIMEOUT,
};
use cql::statement::RowStatement;
use cql::{BoundValues, Consistency, Header, Response, ResponseMessage, ResultBody, StreamId};

use super::client::CqlClient;
use super::protocol::{CqlProtocol, RequestProgress, Task};
use super::read_atomic::designated_table;
use super::read_atomic::node_queries::{self, PlacedQuery};
use super::read_atomic::record::{RowWrite, TransactionRecord};
use super::read_atomic::request_under_way::{AtomicRequest, AtomicWork, AtomicWrite, RowReads};
use super::read_atomic::second_round;
use super::read_atomic::statement::{AtomicRead, AtomicStatement, READ_LIMIT, StatementContext};
use super::retry_policy;
use super::route::{self, RequestRoute, envelope};
use crate::error::ProxyError;
use crate::figures::ReadAtomicFigures;
use crate::locks::clock;
use crate::runtime::protocol::{Dispatch, InputProgress, RequestContext};
use crate::runtime::query::{BackendQuery, NodeError, QueryFailure};

/// The most requests of a connection about read-atomic tables that are under way.
pub(crate) const MOST_UNDER_WAY: usize = 256;
/// The least pause before a query is sent again that a node has answered with an error.
const PAUSE: Duration = Duration::from_millis(5);

/// A statement of a client, and how it must be answered.
#[derive(Clone, Copy)]
pub(crate) struct AtomicQuery<'a> {
    pub(crate) text: &'a str,
    /// The keyspace of table names without a keyspace.
    pub(crate) current: Option<&'a str>,
    pub(crate) values: &'a BoundValues<'a>,
    pub(crate) consistency: Consistency,
}

impl CqlProtocol {
    /// Returns `true` if there are read-atomic tables.
    pub(crate) fn keeps_read_atomic_tables(&self) -> bool {
        !self.state.setting.read_atomic.tables.is_empty()
    }

    /// Returns the reason why a text about a read-atomic table cannot be prepared, if there is one.
    pub(crate) fn refusal_of_atomic_prepare(
        &self,
        text: &str,
        current: Option<&str>,
    ) -> Option<String> {
        let is_about = self.state.setting.read_atomic.answers(text, current);
        let refused = is_about.then(|| RowStatement::parse(text).err());
        refused.flatten().map(|error| error.to_string())
    }

    fn statements<'a>(&'a self, current: Option<&'a str>) -> StatementContext<'a> {
        StatementContext {
            tables: &self.known.read_atomic,
            current,
        }
    }

    /// Executes a statement about read-atomic tables; its answer comes later.
    pub(crate) fn execute_atomic(
        &mut self,
        client: &mut CqlClient,
        (header, bytes): (Header, Bytes),
        query: AtomicQuery<'_>,
        context: &mut RequestContext<'_>,
    ) -> RequestProgress {
        let statements = self.statements(query.current);
        let statement = statements.statement(query.text, query.values);
        let consistency = query.consistency;
        self.begin_atomic(client, (header, bytes), statement, consistency, context)
    }

    /// Executes a BATCH if one of its statements is about read-atomic tables. Returns `None` if none is.
    pub(crate) fn batch_atomic(
        &mut self,
        client: &mut CqlClient,
        (header, bytes): (Header, &Bytes),
        parts: &[BatchStatement<'_>],
        (current, consistency): (Option<&str>, Consistency),
        context: &mut RequestContext<'_>,
    ) -> Option<RequestProgress> {
        let read_atomic = &self.state.setting.read_atomic;
        let mut texts: Vec<(String, Option<String>)> = Vec::new();
        let mut about = 0;
        for part in parts {
            let (text, current) = match part.statement {
                Part::Text(text) => (text.to_owned(), current.map(str::to_owned)),
                Part::Prepared(id) => match self.state.prepared.get(header.version, id) {
                    // It may be about any table.
                    None => {
                        CqlProtocol::not_prepared(client, header.stream, id);
                        return Some(RequestProgress::Handled);
                    }
                    Some(statement) => {
                        let current = statement.connection_keyspace.as_deref();
                        (statement.text.clone(), current.map(str::to_owned))
                    }
                },
            };
            about += usize::from(read_atomic.answers(&text, current.as_deref()));
            texts.push((text, current));
        }
        if about == 0 {
            return None;
        }
        let statement = self.statement_of_batch(parts, &texts);
        let request = (header, bytes.clone());
        Some(self.begin_atomic(client, request, statement, consistency, context))
    }

    fn statement_of_batch(
        &self,
        parts: &[BatchStatement<'_>],
        texts: &[(String, Option<String>)],
    ) -> Result<AtomicStatement, ProxyError> {
        let mut all: Vec<RowWrite> = Vec::new();
        let mut of_all = None;
        for (part, (text, current)) in parts.iter().zip(texts) {
            let statements = self.statements(current.as_deref());
            match statements.statement(text, &part.values)? {
                AtomicStatement::Write { keyspace, writes } => {
                    if *of_all.get_or_insert_with(|| keyspace.clone()) != keyspace {
                        return Err(ProxyError::invalid_request(
                            "a read-atomic batch writes to tables of one keyspace: make two batches",
                        ));
                    }
                    all.extend(writes);
                }
                AtomicStatement::Read(_) => {
                    return Err(ProxyError::invalid_request(
                        "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are \
                         allowed.",
                    ));
                }
            }
        }
        AtomicStatement::of_writes(of_all, all)
    }

    fn begin_atomic(
        &mut self,
        client: &mut CqlClient,
        (header, bytes): (Header, Bytes),
        statement: Result<AtomicStatement, ProxyError>,
        consistency: Consistency,
        context: &mut RequestContext<'_>,
    ) -> RequestProgress {
        let stream = header.stream;
        if client.atomic.len() >= MOST_UNDER_WAY {
            return RequestProgress::PutBack(header, bytes, InputProgress::AwaitsReply);
        }
        let statement = match statement {
            Ok(statement) => statement,
            Err(refused) => {
                if self.known.read_atomic.iter().any(|it| it.schema.is_err()) {
                    self.state.request_refresh();
                }
                client.refuse(stream, INVALID, &refused.to_string());
                return RequestProgress::Handled;
            }
        };
        let reads = matches!(statement, AtomicStatement::Read(_));
        let suffices = match consistency {
            Consistency::Quorum | Consistency::All => true,
            Consistency::EachQuorum => !reads,
            _ => false,
        };
        if !suffices {
            let text = format!(
                "a read-atomic table is read and written with consistency QUORUM or ALL, and not \
                 {consistency:?}: reads must see what was acknowledged; set it for the statement"
            );
            client.refuse(stream, INVALID, &text);
            return RequestProgress::Handled;
        }
        if self.any_node(context).is_none() {
            return RequestProgress::PutBack(header, bytes, InputProgress::AwaitsRoom);
        }
        let work = match statement {
            AtomicStatement::Read(read) => {
                self.count(&read, |figures| &figures.reads);
                AtomicWork::FirstRound(RowReads {
                    since: context.now,
                    rows: vec![None; read.keys.len()],
                    tags: vec![None; read.keys.len()],
                    missing: Vec::new(),
                    read,
                })
            }
            AtomicStatement::Write { keyspace, writes } => {
                match self.begin_write(&keyspace, writes) {
                    Some(write) if write.has_record() => AtomicWork::Prepare(write),
                    Some(write) => AtomicWork::Commit(write),
                    None => {
                        client.answer(stream, Response::Error(no_number(consistency)));
                        return RequestProgress::Handled;
                    }
                }
            }
        };
        let request = AtomicRequest {
            stream,
            consistency,
            outstanding: 0,
            work,
        };
        let number = client.next_atomic();
        self.send_round(client, number, request, context);
        RequestProgress::Handled
    }

    /// Draws the id of a transaction; `None`: the proxy has no number at present.
    fn begin_write(&self, keyspace: &str, writes: Vec<RowWrite>) -> Option<AtomicWrite> {
        let transactions = self.state.setting.read_atomic.keyspace(keyspace)?;
        let id = transactions.begin(clock::now(), writes.len() > 1)?;
        transactions.figures.writes.fetch_add(1, Relaxed);
        Some(AtomicWrite {
            record: TransactionRecord {
                id,
                owner: transactions.owner,
                writes,
            },
            transactions: Arc::clone(transactions),
        })
    }

    /// Sends the queries of a request's current round.
    fn send_round(
        &mut self,
        client: &mut CqlClient,
        number: u32,
        mut request: AtomicRequest,
        context: &mut RequestContext<'_>,
    ) {
        let (keyspace, queries) = match self.queries(&request.work) {
            Ok(found) => found,
            Err(fault) => return self.fail(client, request, &fault.to_string(), false),
        };
        request.outstanding = queries.len();
        for (part, query) in (0..).zip(queries) {
            self.send_atomic(
                client,
                (number, part),
                &request,
                (&keyspace, &query),
                context,
            );
        }
        client.atomic.insert(number, request);
    }

    /// Returns the queries of a round, and their keyspace.
    fn queries(&self, work: &AtomicWork) -> Result<(String, Vec<PlacedQuery>), ProxyError> {
        match work {
            AtomicWork::Prepare(write) => {
                let keyspace = &write.transactions.keyspace;
                let query = node_queries::prepare(keyspace, &write.record);
                Ok((keyspace.clone(), vec![query]))
            }
            AtomicWork::Commit(write) => {
                let keyspace = &write.transactions.keyspace;
                let rows = write.record.writes.iter().map(|row| {
                    let tables = &self.known.read_atomic;
                    let schema = designated_table::find(tables, keyspace, &row.key.table)?;
                    Ok(node_queries::commit(schema, &write.record, row))
                });
                Ok((keyspace.clone(), rows.collect::<Result<_, ProxyError>>()?))
            }
            AtomicWork::FirstRound(reads) => {
                let schema = &reads.read.schema;
                let keys = reads.read.keys.iter();
                let queries = keys
                    .map(|key| node_queries::read_row(schema, key))
                    .collect();
                Ok((schema.name.keyspace.clone(), queries))
            }
            AtomicWork::SecondRound(reads) => {
                let keyspace = reads.read.schema.name.keyspace.clone();
                let missing = reads.missing.iter();
                let queries = missing
                    .map(|it| node_queries::read_record(&keyspace, it.owner, it.id))
                    .collect();
                Ok((keyspace, queries))
            }
        }
    }

    fn send_atomic(
        &mut self,
        client: &mut CqlClient,
        (number, part): (u32, u32),
        request: &AtomicRequest,
        (keyspace, query): (&str, &PlacedQuery),
        context: &mut RequestContext<'_>,
    ) {
        self.known
            .map
            .replicas(keyspace, query.token, &mut self.replicas);
        let nodes = self.known.map.nodes();
        let is_avoided =
            |node: &crate::runtime::query::NodeIndex| self.suspects.avoids(*node, context.now);
        let nodes = match self.replicas.iter().all(is_avoided) {
            true => nodes,
            false => &self.replicas,
        };
        self.turn = self.turn.wrapping_add(1);
        // The request has begun: a node without room takes its queries as well.
        let chosen = route::choose(nodes, false, self.turn, &self.suspects, context);
        let node = chosen.or_else(|| nodes.first().copied());
        let node = node.expect("a proxy has nodes");
        let sequence = Task::ReadAtomic.sequence(request.stream) | u64::from(number) << 32;
        let route = RequestRoute {
            // It may be repeated.
            reads: true,
            ..RequestRoute::default()
        };
        let bytes = query.bytes(client.version, request.consistency);
        let dispatch = self.dispatch(client, sequence, node, route);
        context.send(Dispatch { part, ..dispatch }, bytes);
    }

    /// Handles a node's answer to a query of such a request.
    pub(crate) fn atomic_answered(
        &mut self,
        client: &mut CqlClient,
        query: BackendQuery,
        header: Header,
        bytes: &Bytes,
        context: &mut RequestContext<'_>,
    ) {
        let number = number_of(&query);
        if !client.atomic.contains_key(&number) {
            return;
        }
        let message = ResponseMessage::decode(envelope(header, bytes)).map(|it| it.response);
        let body = match message {
            Ok(Response::Result(body)) => body,
            Ok(Response::Error(error)) => {
                return self.atomic_refused(client, query, &error, bytes, context);
            }
            _ => {
                let why = NodeError::Nonsense("an answer of another kind".to_owned());
                return self.failed(client, query, &QueryFailure::Lost(why), context);
            }
        };
        let Some(mut request) = client.atomic.remove(&number) else {
            return;
        };
        request.outstanding -= 1;
        let taken = match &mut request.work {
            AtomicWork::Prepare(_) | AtomicWork::Commit(_) => Ok(()),
            AtomicWork::FirstRound(reads) => reads.take_row(query.part as usize, &body),
            AtomicWork::SecondRound(reads) => reads.take_record(query.part as usize, &body),
        };
        if let Err(fault) = taken {
            let text = format!("a row of a read-atomic table is damaged: {fault}");
            return client.refuse(request.stream, SERVER_ERROR, &text);
        }
        if request.outstanding > 0 {
            client.atomic.insert(number, request);
            return;
        }
        self.round_ended(client, number, request, context);
    }

    /// Goes on after all queries of a round have been answered.
    fn round_ended(
        &mut self,
        client: &mut CqlClient,
        number: u32,
        request: AtomicRequest,
        context: &mut RequestContext<'_>,
    ) {
        let AtomicRequest {
            stream,
            consistency,
            ..
        } = request;
        let work = match request.work {
            AtomicWork::Prepare(write) => {
                if !write.transactions.may_commit(write.record.id) {
                    let work = AtomicWork::Prepare(write);
                    let request = AtomicRequest { work, ..request };
                    let text = "the transaction took too long, and was handed over to recovery";
                    return self.fail(client, request, text, true);
                }
                AtomicWork::Commit(write)
            }
            AtomicWork::Commit(write) => {
                if write.has_record() {
                    write.transactions.finish(write.record.id);
                }
                return client.answer(stream, Response::Result(ResultBody::Void));
            }
            AtomicWork::FirstRound(mut reads) => {
                self.observe(&reads);
                reads.missing = second_round::missing(&reads.read.keys, &reads.tags);
                match reads.missing.is_empty() {
                    true => return answer_read(client, stream, reads),
                    false => {
                        self.count(&reads.read, |figures| &figures.second_rounds);
                        AtomicWork::SecondRound(reads)
                    }
                }
            }
            AtomicWork::SecondRound(reads) => {
                if context.now > reads.since + READ_LIMIT {
                    let message = "the read took so long that versions which it needs may have \
                                   been removed; nothing has changed, retry it";
                    let kind = read_timeout(consistency);
                    return client.answer(stream, Response::Error(ErrorBody { message, kind }));
                }
                return answer_read(client, stream, reads);
            }
        };
        let request = AtomicRequest {
            stream,
            consistency,
            outstanding: 0,
            work,
        };
        self.send_round(client, number, request, context);
    }

    /// Adds one to a figure of the keyspace of a read.
    fn count(&self, read: &AtomicRead, figure: impl Fn(&ReadAtomicFigures) -> &AtomicU64) {
        let keyspace = &read.schema.name.keyspace;
        if let Some(transactions) = self.state.setting.read_atomic.keyspace(keyspace) {
            figure(&transactions.figures).fetch_add(1, Relaxed);
        }
    }

    fn observe(&self, reads: &RowReads) {
        let keyspace = &reads.read.schema.name.keyspace;
        let newest = reads.tags.iter().flatten().map(|tag| tag.id).max();
        let transactions = self.state.setting.read_atomic.keyspace(keyspace);
        if let (Some(newest), Some(transactions)) = (newest, transactions) {
            transactions.observe(newest);
        }
    }

    /// Handles a node's error: sends the query again if that may help, or ends the request.
    fn atomic_refused(
        &mut self,
        client: &mut CqlClient,
        query: BackendQuery,
        error: &ErrorBody<'_>,
        bytes: &Bytes,
        context: &mut RequestContext<'_>,
    ) {
        let passes = [
            UNAVAILABLE,
            OVERLOADED,
            IS_BOOTSTRAPPING,
            READ_TIMEOUT,
            WRITE_TIMEOUT,
            READ_FAILURE,
            WRITE_FAILURE,
            SERVER_ERROR,
        ];
        let may_pass = passes.contains(&error.kind.code());
        let patience = self.state.setting.patience;
        let count = self.known.map.nodes().len();
        let lost = QueryFailure::Lost(NodeError::Unanswered(Duration::ZERO));
        if may_pass
            && let Some(pause) = retry_policy::pause(&query, &lost, count, context.now, patience)
        {
            let node = self.other_node(&query, context);
            return context.send_again(query, node, pause.max(PAUSE));
        }
        let Some(request) = client.atomic.remove(&number_of(&query)) else {
            return;
        };
        let certain = matches!(
            error.kind.code(),
            UNAVAILABLE | OVERLOADED | IS_BOOTSTRAPPING
        );
        match &request.work {
            AtomicWork::Prepare(_) | AtomicWork::Commit(_) if may_pass => {
                let uncertain = !certain || query.retries > 0;
                self.fail(client, request, error.message, uncertain);
            }
            work => {
                if let AtomicWork::Prepare(write) = work {
                    // A node has refused the record: no row of the transaction is written.
                    write.transactions.finish(write.record.id);
                }
                client.gathered.put(request.stream, bytes.clone());
            }
        }
    }

    /// Handles a query that has no answer, and that is not sent again.
    pub(crate) fn atomic_failed(
        &mut self,
        client: &mut CqlClient,
        query: &BackendQuery,
        failure: &QueryFailure,
    ) {
        let Some(request) = client.atomic.remove(&number_of(query)) else {
            return;
        };
        let (QueryFailure::Unsent(why) | QueryFailure::Lost(why)) = failure;
        let node = self.state.setting.nodes.address(query.node);
        let uncertain = matches!(failure, QueryFailure::Lost(_)) || query.retries > 0;
        self.fail(client, request, &format!("node {node} {why}"), uncertain);
    }

    /// Ends a request with an error. `uncertain`: its last query may have had an effect.
    fn fail(&self, client: &mut CqlClient, request: AtomicRequest, why: &str, uncertain: bool) {
        let consistency = request.consistency;
        let (kind, what) = match &request.work {
            AtomicWork::FirstRound(_) | AtomicWork::SecondRound(_) => {
                (read_timeout(consistency), "nothing has changed, retry it")
            }
            AtomicWork::Commit(write) if write.has_record() => (
                write_timeout(consistency, "BATCH"),
                "the transaction is recorded, and the proxies will complete it",
            ),
            AtomicWork::Prepare(_) if uncertain => (
                write_timeout(consistency, "BATCH_LOG"),
                "the transaction will be completed, or have no effect: read one of its rows to \
                 find out, after a minute",
            ),
            AtomicWork::Commit(_) if uncertain => (
                write_timeout(consistency, "SIMPLE"),
                "whether the write took effect is not known",
            ),
            AtomicWork::Prepare(write) | AtomicWork::Commit(write) => {
                write.transactions.finish(write.record.id);
                (unavailable(consistency), "nothing has happened, retry it")
            }
        };
        let message = format!("{why}; {what}");
        let message = &message;
        client.answer(request.stream, Response::Error(ErrorBody { message, kind }));
    }
}

/// Returns the number of the request that a query belongs to.
fn number_of(query: &BackendQuery) -> u32 {
    (query.sequence >> 32) as u32
}

fn unavailable(consistency: Consistency) -> ErrorKind<'static> {
    ErrorKind::Unavailable {
        consistency,
        required: 1,
        alive: 0,
    }
}

fn read_timeout(consistency: Consistency) -> ErrorKind<'static> {
    ErrorKind::ReadTimeout {
        consistency,
        received: 0,
        required: 1,
        data_present: false,
    }
}

fn write_timeout(consistency: Consistency, write: &'static str) -> ErrorKind<'static> {
    ErrorKind::WriteTimeout {
        consistency,
        received: 0,
        required: 1,
        write,
        contentions: None,
    }
}

fn no_number(consistency: Consistency) -> ErrorBody<'static> {
    ErrorBody {
        message: "the proxy has no number for its transactions at present, because the nodes do not \
                  answer or it has just started; nothing has happened, retry it",
        kind: unavailable(consistency),
    }
}

/// Answers a read.
fn answer_read(client: &mut CqlClient, stream: StreamId, reads: RowReads) {
    let rows = reads.into_rows();
    // The columns may have changed since the client prepared the statement.
    let rows = ResultBody::Rows(rows.rows(false));
    client.answer(stream, Response::Result(rows));
}
