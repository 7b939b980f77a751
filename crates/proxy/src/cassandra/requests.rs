//! The clients' requests, and the nodes that get them.

use bytes::Bytes;
use cql::request::{Execute, Parameters, Query as CqlQuery, Request, RequestMessage};
use cql::response::{INVALID, PROTOCOL_ERROR};
use cql::statement::{StatementKind, Summary};
use cql::{
    BoundValues, EventKind, Header, Malformed, Opcode, Response, ResultBody, StreamId, paging,
};

use super::atomic_requests::AtomicQuery;
use super::client::CqlClient;
use super::lock_requests::LockQuery;
use super::merge;
use super::protocol::{CqlProtocol, RequestProgress, Task};
use super::route::{self, RequestRoute, envelope};
use super::system::{self, Proxies};
use crate::runtime::protocol::{Dispatch, InputProgress, RequestContext};
use crate::runtime::query::NodeIndex;

/// Refuses a request with the one timestamp that nodes cannot read, and returns `true` if it did. Nodes
/// count unreadable requests by connection, and this connection is shared. Paging states are left to
/// the nodes: a client that gives a state of another form is not refused, but from now on its requests
/// take separate connections.
fn refuse_unreadable(
    client: &mut CqlClient,
    stream: StreamId,
    parameters: &Parameters<'_>,
) -> bool {
    let is_readable = parameters.paging_state.is_none_or(paging::is_readable);
    if !is_readable {
        client.quarantine();
    }
    let is_refused = parameters.timestamp == Some(i64::MIN);
    if is_refused {
        let (least, most) = (i64::MIN + 1, i64::MAX);
        let text = format!("Out of bound timestamp, must be in [{least}, {most}]");
        client.refuse(stream, PROTOCOL_ERROR, &text);
    }
    is_refused
}

impl CqlProtocol {
    /// Handles a request of a client that has finished its handshake.
    pub(crate) fn request(
        &mut self,
        client: &mut CqlClient,
        header: Header,
        bytes: Bytes,
        context: &mut RequestContext<'_>,
    ) -> RequestProgress {
        let stream = header.stream;
        if header.version != client.version {
            let text = format!(
                "Invalid message version. Got {} but previous messages on this connection had \
                 version {}",
                header.version.number(),
                client.version.number()
            );
            client.refuse(stream, PROTOCOL_ERROR, &text);
            return RequestProgress::Close;
        }
        let done = match header.opcode {
            Opcode::Execute => self.execute(client, header, bytes, context),
            Opcode::Query => self.query(client, header, bytes, context),
            Opcode::Batch => self.batch(client, header, bytes, context),
            Opcode::Prepare => self.prepare(client, header, bytes, context),
            Opcode::Register => self.register(client, header, &bytes),
            Opcode::Options => {
                self.supported(client, stream);
                Ok(RequestProgress::Handled)
            }
            other => {
                let text = format!("Unexpected message {other:?}: the connection has been set up");
                client.refuse(stream, PROTOCOL_ERROR, &text);
                return RequestProgress::Close;
            }
        };
        done.unwrap_or_else(|malformed| {
            client.refuse(stream, PROTOCOL_ERROR, &malformed.to_string());
            RequestProgress::Close
        })
    }

    fn register(
        &mut self,
        client: &mut CqlClient,
        header: Header,
        bytes: &Bytes,
    ) -> Result<RequestProgress, Malformed> {
        let message = RequestMessage::decode(envelope(header, bytes))?;
        if let Request::Register(kinds) = message.request {
            client.registered |= kinds.contains(&EventKind::Schema);
        }
        client.answer(header.stream, Response::Ready);
        Ok(RequestProgress::Handled)
    }

    fn execute(
        &mut self,
        client: &mut CqlClient,
        header: Header,
        bytes: Bytes,
        context: &mut RequestContext<'_>,
    ) -> Result<RequestProgress, Malformed> {
        let execute = Execute::decode(&envelope(header, &bytes))?;
        if refuse_unreadable(client, header.stream, &execute.parameters) {
            return Ok(RequestProgress::Handled);
        }
        let statement = self.state.prepared.get(header.version, execute.id);
        let statement = statement.as_deref();
        if statement.is_none() && (self.keeps_lock_tables() || self.keeps_read_atomic_tables()) {
            CqlProtocol::not_prepared(client, header.stream, execute.id);
            return Ok(RequestProgress::Handled);
        }
        if let Some(statement) = statement
            && statement.is_local
        {
            let current = statement.connection_keyspace.as_deref();
            let (values, skip) = (execute.parameters.values, execute.parameters.skip_metadata);
            let read_atomic = &self.state.setting.read_atomic;
            if read_atomic.answers(&statement.text, current) {
                let query = AtomicQuery {
                    text: &statement.text,
                    current,
                    values: &values,
                    consistency: execute.parameters.consistency,
                };
                let request = (header, bytes.clone());
                return Ok(self.execute_atomic(client, request, query, context));
            }
            if self
                .state
                .setting
                .lock_tables
                .answers(&statement.text, current)
            {
                if client.has_asked_most() {
                    return Ok(RequestProgress::PutBack(
                        header,
                        bytes,
                        InputProgress::AwaitsReply,
                    ));
                }
                let said = LockQuery {
                    stream: header.stream,
                    text: &statement.text,
                    current,
                    values: &values,
                    // Nodes send the columns of conditional statements each time.
                    skip_metadata: false,
                };
                self.lock(client, said, context);
                return Ok(RequestProgress::Handled);
            }
            if self.answer_locally(
                client,
                header.stream,
                &statement.text,
                current,
                &values,
                skip,
            ) {
                return Ok(RequestProgress::Handled);
            }
        }
        let mut route = route::of_execute(&self.known.map, statement, &execute, &mut self.replicas);
        if let Some(statement) = statement
            && self.state.setting.merge_writes
        {
            route.merge = merge::mark(header, statement, &execute, &self.replicas);
        }
        Ok(self.send(client, header, bytes, Task::Request, route, context))
    }

    fn query(
        &mut self,
        client: &mut CqlClient,
        header: Header,
        bytes: Bytes,
        context: &mut RequestContext<'_>,
    ) -> Result<RequestProgress, Malformed> {
        let query = CqlQuery::decode(&envelope(header, &bytes))?;
        if refuse_unreadable(client, header.stream, &query.parameters) {
            return Ok(RequestProgress::Handled);
        }
        let summary = Summary::of(query.text).ok();
        if let Some(keyspace) = summary.as_ref().and_then(|it| it.keyspace.as_deref()) {
            let keyspace = keyspace.to_owned();
            return Ok(self.use_keyspace(client, header, bytes, &keyspace, context));
        }
        let own = client.keyspace.clone();
        let current = query.parameters.keyspace.or(own.as_deref());
        let (values, skip) = (query.parameters.values, query.parameters.skip_metadata);
        if self.is_about_locks(summary.as_ref(), current) {
            if client.has_asked_most() {
                return Ok(RequestProgress::PutBack(
                    header,
                    bytes,
                    InputProgress::AwaitsReply,
                ));
            }
            let said = LockQuery {
                stream: header.stream,
                text: query.text,
                current,
                values: &values,
                skip_metadata: skip,
            };
            self.lock(client, said, context);
            return Ok(RequestProgress::Handled);
        }
        let is_atomic = summary.as_ref().is_some_and(|summary| {
            let read_atomic = &self.state.setting.read_atomic;
            read_atomic.has_one_of(&summary.tables, current)
        });
        if is_atomic {
            let atomic = AtomicQuery {
                text: query.text,
                current,
                values: &values,
                consistency: query.parameters.consistency,
            };
            return Ok(self.execute_atomic(client, (header, bytes.clone()), atomic, context));
        }
        if system::answers(query.text, current)
            && self.answer_locally(client, header.stream, query.text, current, &values, skip)
        {
            return Ok(RequestProgress::Handled);
        }
        self.replicas.clear();
        let route = route::of_text(summary.as_ref(), current);
        Ok(self.send(client, header, bytes, Task::Request, route, context))
    }

    /// Answers a read of a table that the proxy answers itself. Returns `true` if it did.
    fn answer_locally(
        &self,
        client: &mut CqlClient,
        stream: StreamId,
        text: &str,
        current: Option<&str>,
        values: &BoundValues<'_>,
        skip_metadata: bool,
    ) -> bool {
        let proxies = Proxies {
            this: self.state.setting.address,
            others: &self.state.setting.others,
        };
        let rows = system::answer(text, current, values, &self.known, proxies);
        match rows {
            None => return false,
            Some(Ok(rows)) => {
                let rows = ResultBody::Rows(rows.rows(skip_metadata));
                client.answer(stream, Response::Result(rows));
            }
            Some(Err(refused)) => client.refuse(stream, INVALID, &refused.to_string()),
        }
        true
    }

    fn batch(
        &mut self,
        client: &mut CqlClient,
        header: Header,
        bytes: Bytes,
        context: &mut RequestContext<'_>,
    ) -> Result<RequestProgress, Malformed> {
        let Request::Batch(batch) = RequestMessage::decode(envelope(header, &bytes))?.request
        else {
            return Ok(RequestProgress::Close);
        };
        if refuse_unreadable(client, header.stream, &batch.parameters) {
            return Ok(RequestProgress::Handled);
        }
        if self.keeps_lock_tables() {
            let own = client.keyspace.clone();
            let current = batch.parameters.keyspace.or(own.as_deref());
            if let Some(error) = self.refusal_of_batch(header.version, &batch.statements, current) {
                client.answer(header.stream, Response::Error(error));
                return Ok(RequestProgress::Handled);
            }
        }
        if self.keeps_read_atomic_tables() {
            let own = client.keyspace.clone();
            let current = batch.parameters.keyspace.or(own.as_deref());
            let how = (current, batch.parameters.consistency);
            let request = (header, &bytes);
            if let Some(done) = self.batch_atomic(client, request, &batch.statements, how, context)
            {
                return Ok(done);
            }
        }
        let (map, prepared) = (&self.known.map, &self.state.prepared);
        let route = route::of_batch(map, prepared, header.version, &batch, &mut self.replicas);
        Ok(self.send(client, header, bytes, Task::Request, route, context))
    }

    fn prepare(
        &mut self,
        client: &mut CqlClient,
        header: Header,
        bytes: Bytes,
        context: &mut RequestContext<'_>,
    ) -> Result<RequestProgress, Malformed> {
        let message = RequestMessage::decode(envelope(header, &bytes))?;
        if let Request::Prepare(prepare) = message.request {
            let of_use = Summary::of(prepare.text).is_ok_and(|it| it.kind == StatementKind::Use);
            let current = prepare.keyspace.or(client.keyspace.as_deref());
            let wrong = match of_use {
                true => Some("USE cannot be prepared: give it as it is".to_owned()),
                false => self
                    .refusal_of_prepare(prepare.text, current)
                    .or_else(|| self.refusal_of_atomic_prepare(prepare.text, current)),
            };
            if let Some(text) = wrong {
                client.refuse(header.stream, INVALID, &text);
                return Ok(RequestProgress::Handled);
            }
        }
        let route = RequestRoute {
            reads: true,
            ..RequestRoute::default()
        };
        self.replicas.clear();
        Ok(self.send(client, header, bytes, Task::Prepare, route, context))
    }

    /// Returns a node that can be asked anything; `None` if none has room.
    pub(crate) fn any_node(&mut self, context: &mut RequestContext<'_>) -> Option<NodeIndex> {
        self.turn = self.turn.wrapping_add(1);
        let nodes = self.known.map.nodes();
        route::choose(nodes, false, self.turn, &self.suspects, context)
    }

    /// Returns a dispatch on the connection key that the client shares with others.
    pub(crate) fn dispatch(
        &self,
        client: &mut CqlClient,
        sequence: u64,
        node: NodeIndex,
        route: RequestRoute,
    ) -> Dispatch {
        let connections = self.state.setting.connections;
        Dispatch {
            sequence,
            part: route.merge,
            node,
            connection_key: client.connection_key(&self.state.options.connection_keys, connections),
            replies: 1,
            safe: route.reads,
            route: route.pace.timeouts(),
            connection: None,
        }
    }

    /// Sends a request unchanged to one of `self.replicas`, or to any node.
    fn send(
        &mut self,
        client: &mut CqlClient,
        header: Header,
        bytes: Bytes,
        task: Task,
        route: RequestRoute,
        context: &mut RequestContext<'_>,
    ) -> RequestProgress {
        let nodes = self.known.map.nodes();
        if route.of_node {
            let (before, from) = nodes.split_at(client.id.number as usize % nodes.len().max(1));
            self.replicas.clear();
            self.replicas.extend(from.iter().chain(before));
        }
        let serial = route.of_node || route.serial && !self.replicas.is_empty();
        // Where no replica lives, any node reports that at once.
        let is_avoided = |node: &NodeIndex| self.suspects.avoids(*node, context.now);
        let nodes = match self.replicas.iter().all(is_avoided) {
            true => nodes,
            false => &self.replicas,
        };
        self.turn = self.turn.wrapping_add(1);
        let Some(node) = route::choose(nodes, serial, self.turn, &self.suspects, context) else {
            return RequestProgress::PutBack(header, bytes, InputProgress::AwaitsRoom);
        };
        let dispatch = self.dispatch(client, task.sequence(header.stream), node, route);
        context.send(dispatch, bytes);
        RequestProgress::Handled
    }
}
