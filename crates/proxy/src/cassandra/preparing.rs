//! Prepares statements with nodes that do not know them.

use std::time::Duration;

use bytes::Bytes;
use cql::request::{Request, RequestMessage};
use cql::response::{ErrorBody, ErrorKind};
use cql::{Direction, Header, Opcode, Response, ResponseMessage, ResultBody, Version};

use super::client::{CqlClient, ParkedRequest};
use super::connection_key::KeyMeaning;
use super::frames::header_of;
use super::prepared::CachedStatement;
use super::protocol::{CqlProtocol, Task};
use super::reply_time_limit::ReplyTimeLimit;
use super::route::envelope;
use crate::runtime::protocol::{Dispatch, RequestContext};
use crate::runtime::query::BackendQuery;

impl CqlProtocol {
    /// Remembers a statement that a node has prepared for a client.
    pub(crate) fn remember(&self, query: &BackendQuery, header: Header, bytes: &Bytes) {
        let Some((id, statement)) = self.statement_of(query, header, bytes) else {
            return;
        };
        self.state.prepared.put(header.version, &id, statement);
    }

    /// Returns the statement that a node has prepared, and its id.
    fn statement_of(
        &self,
        query: &BackendQuery,
        header: Header,
        bytes: &Bytes,
    ) -> Option<(Bytes, CachedStatement)> {
        let request = header_of(&query.bytes, Direction::Request)?;
        let request = RequestMessage::decode(envelope(request, &query.bytes)).ok()?;
        let whole = envelope(header, bytes);
        if header.opcode != Opcode::Result {
            return None;
        }
        let message = ResponseMessage::decode(whole).ok()?;
        let keyspace = match self
            .state
            .options
            .connection_keys
            .meaning(query.connection_key)
        {
            KeyMeaning::Shared(name) => name.keyspace,
            KeyMeaning::Login(_) => None,
        };
        let (Request::Prepare(prepare), Response::Result(ResultBody::Prepared(result))) =
            (request.request, message.response)
        else {
            return None;
        };
        let mut statement =
            CachedStatement::new(&query.bytes, prepare, keyspace, &result, whole.body);
        let lock_tables = &self.state.setting.lock_tables;
        let read_atomic = &self.state.setting.read_atomic;
        let current = statement.connection_keyspace.as_deref();
        statement.is_local |= lock_tables.answers(prepare.text, current)
            || read_atomic.answers(prepare.text, current);
        Some((Bytes::copy_from_slice(result.id), statement))
    }

    /// Prepares the statement of a request with a node that does not know it; the request waits.
    pub(crate) fn prepare_for(
        &mut self,
        client: &mut CqlClient,
        query: BackendQuery,
        header: Header,
        bytes: Bytes,
        context: &mut RequestContext<'_>,
    ) {
        let (_, stream) = Task::of(query.sequence);
        let id = match ResponseMessage::decode(envelope(header, &bytes)).map(|it| it.response) {
            Ok(Response::Error(ErrorBody {
                kind: ErrorKind::Unprepared { id },
                ..
            })) => Bytes::copy_from_slice(id),
            _ => return client.gathered.put(stream, bytes),
        };
        let Some(statement) = self.state.prepared.get(header.version, &id) else {
            return client.gathered.put(stream, bytes);
        };
        let connections = self.state.setting.connections;
        let name = client.connection_properties(statement.connection_keyspace.clone(), connections);
        let dispatch = Dispatch {
            sequence: Task::PrepareAgain.sequence(stream),
            part: 0,
            node: query.node,
            connection_key: self.state.options.connection_keys.connection_key(&name),
            replies: 1,
            safe: true,
            route: ReplyTimeLimit::Rows.timeouts(),
            connection: None,
        };
        let part = client.park(ParkedRequest { query, id });
        context.send(Dispatch { part, ..dispatch }, statement.request.clone());
    }

    /// Handles a node's answer to the PREPARE of a statement that it did not know.
    pub(crate) fn prepared_again(
        &mut self,
        client: &mut CqlClient,
        query: &BackendQuery,
        header: Header,
        bytes: Bytes,
        context: &mut RequestContext<'_>,
    ) {
        let Some(ParkedRequest { query: parked, id }) = client.parked.remove(&query.part) else {
            return;
        };
        let (_, stream) = Task::of(parked.sequence);
        let Some((found, statement)) = self.statement_of(query, header, &bytes) else {
            // The table may have been dropped, for example.
            return client.gathered.put(stream, bytes);
        };
        let before = self.state.prepared.get(header.version, &id);
        let changed = before.is_none_or(|before| before.told != statement.told);
        self.state.prepared.put(header.version, &found, statement);
        // In version 4 a client learns about changed columns only by preparing again.
        if found != id || changed && header.version < Version::V5 {
            let error = ErrorBody {
                message: "Prepared query has changed: prepare it again",
                kind: ErrorKind::Unprepared { id: &id },
            };
            return client.answer(stream, Response::Error(error));
        }
        let node = parked.node;
        context.send_again(parked, node, Duration::ZERO);
    }
}
