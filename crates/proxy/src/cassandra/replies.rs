//! The nodes' replies, and requests that got none.

use bytes::Bytes;
use cql::request::Execute;
use cql::response::{
    IS_BOOTSTRAPPING, PROTOCOL_ERROR, ResultKind, UNPREPARED, peek_error_code, peek_result_kind,
};
use cql::{Direction, Opcode, Response};

use super::client::{CqlClient, HeldReply};
use super::frames::header_of;
use super::protocol::{CqlProtocol, Task};
use super::retry_policy;
use super::route::{self, envelope};
use crate::runtime::protocol::RequestContext;
use crate::runtime::query::{BackendQuery, NodeError, NodeIndex, QueryFailure};

/// How often a request is repeated because a node does not know its statements: once for each statement
/// that a batch may reasonably have.
const PREPARES: u32 = 256;

impl CqlProtocol {
    /// Handles a node's answer.
    pub(crate) fn answered(
        &mut self,
        client: &mut CqlClient,
        query: BackendQuery,
        bytes: Bytes,
        context: &mut RequestContext<'_>,
    ) {
        let (task, stream) = Task::of(query.sequence);
        let Some(header) = header_of(&bytes, Direction::Response) else {
            let why = NodeError::Nonsense("a reply without a header".to_owned());
            return self.failed(client, query, &QueryFailure::Lost(why), context);
        };
        let whole = envelope(header, &bytes);
        let is_error = header.opcode == Opcode::Error;
        if !is_error || peek_error_code(&whole) != Ok(IS_BOOTSTRAPPING) {
            self.suspects.has_answered(query.node);
        }
        match (task, header.opcode) {
            (Task::Login, _) => self.logged_in(client, &query, header, bytes, context),
            (Task::Use, _) => self.used(client, stream, header, bytes),
            (Task::PrepareAgain, _) => self.prepared_again(client, &query, header, bytes, context),
            (Task::ReadAtomic, _) => self.atomic_answered(client, query, header, &bytes, context),
            (Task::Prepare, Opcode::Result) => {
                self.remember(&query, header, &bytes);
                client.gathered.put(stream, bytes);
            }
            (_, Opcode::Error) => match peek_error_code(&whole) {
                Ok(UNPREPARED) if query.retries < PREPARES => {
                    self.prepare_for(client, query, header, bytes, context);
                }
                Ok(IS_BOOTSTRAPPING) => {
                    let why = NodeError::Unreachable("it is just coming".to_owned());
                    self.failed(client, query, &QueryFailure::Unsent(why), context);
                }
                Ok(PROTOCOL_ERROR) => {
                    client.quarantine();
                    client.gathered.put(stream, bytes);
                }
                _ => client.gathered.put(stream, bytes),
            },
            (_, Opcode::Result) if peek_result_kind(&whole) == Ok(ResultKind::SchemaChange) => {
                *context.under_way += 1;
                client.held.push(HeldReply {
                    number: self.state.want_agreement(),
                    stream,
                    envelope: bytes,
                });
            }
            _ => client.gathered.put(stream, bytes),
        }
    }

    /// Handles a query that has no answer.
    pub(crate) fn failed(
        &mut self,
        client: &mut CqlClient,
        query: BackendQuery,
        failure: &QueryFailure,
        context: &mut RequestContext<'_>,
    ) {
        let (QueryFailure::Unsent(why) | QueryFailure::Lost(why)) = failure;
        let node_serves = match why {
            NodeError::Refused(_) | NodeError::Lacks(_) | NodeError::Spoilt(_) => true,
            NodeError::Unanswered(_) | NodeError::HungUp | NodeError::Stopping => true,
            // The node may have closed it after two unreadable requests. If it is dead, other
            // connections notice.
            NodeError::Closed(_) => client.is_quarantined(),
            NodeError::Unreachable(_) | NodeError::Silent(_) => false,
            NodeError::Unready(_) | NodeError::Nonsense(_) => false,
        };
        if !node_serves {
            self.suspects.has_failed(query.node, context.now);
            self.state.request_refresh();
        }
        let (task, stream) = Task::of(query.sequence);
        if task == Task::PrepareAgain {
            // The request itself was not executed.
            if let Some(parked) = client.parked.remove(&query.part) {
                self.failed(
                    client,
                    parked.query,
                    &QueryFailure::Unsent(why.clone()),
                    context,
                );
            }
            return;
        }
        let count = self.known.map.nodes().len();
        let patience = self.state.setting.patience;
        if retry_policy::may_repeat(&query, failure)
            && let Some(pause) = retry_policy::pause(&query, failure, count, context.now, patience)
        {
            let node = match why {
                NodeError::Lacks(_) => self.next_node(&query),
                _ => self.other_node(&query, context),
            };
            if task == Task::Login {
                self.end_login(client, context);
                self.begin_login(client, node, query.connection_key);
            }
            return context.send_again(query, node, pause);
        }
        if matches!(task, Task::Use | Task::Login) {
            client.awaits_reply = false;
        }
        if task == Task::Login {
            self.end_login(client, context);
        }
        if task == Task::ReadAtomic {
            return self.atomic_failed(client, &query, failure);
        }
        let words = retry_policy::words(
            &query,
            failure,
            self.state.setting.nodes.address(query.node),
        );
        let Some(header) = header_of(&query.bytes, Direction::Request) else {
            return client.refuse(stream, PROTOCOL_ERROR, &words);
        };
        let whole = envelope(header, &query.bytes);
        let conditional = route::is_conditional(&self.state.prepared, &whole);
        let told = retry_policy::told(&query, failure, &whole, conditional, &words);
        client.answer(stream, Response::Error(told));
    }

    /// Returns the node after the one of a query, so that each node is asked once.
    fn next_node(&self, query: &BackendQuery) -> NodeIndex {
        let nodes = self.known.map.nodes();
        let at = nodes.iter().position(|node| *node == query.node);
        let next = at.map_or(0, |at| (at + 1) % nodes.len());
        nodes.get(next).copied().unwrap_or(query.node)
    }

    /// Returns the node to which a failed query goes next: another replica of its key, or any node.
    pub(crate) fn other_node(
        &mut self,
        query: &BackendQuery,
        context: &mut RequestContext<'_>,
    ) -> NodeIndex {
        self.replicas.clear();
        if let Some(header) = header_of(&query.bytes, Direction::Request)
            && header.opcode == Opcode::Execute
            && let Ok(execute) = Execute::decode(&envelope(header, &query.bytes))
        {
            let statement = self.state.prepared.get(header.version, execute.id);
            let statement = statement.as_deref();
            route::of_execute(&self.known.map, statement, &execute, &mut self.replicas);
        }
        let (suspects, now) = (&self.suspects, context.now);
        let is_other = |node: &NodeIndex| *node != query.node;
        self.replicas
            .retain(|node| is_other(node) && !suspects.avoids(*node, now));
        if self.replicas.is_empty() {
            let all = self.known.map.nodes().iter().copied();
            self.replicas.extend(all.filter(is_other));
        }
        self.turn = self.turn.wrapping_add(1);
        let (nodes, turn) = (&self.replicas, self.turn);
        route::choose(nodes, false, turn, &self.suspects, context).unwrap_or(query.node)
    }
}
