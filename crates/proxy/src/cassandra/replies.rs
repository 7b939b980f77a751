//! What nodes answer, and what becomes of a request that none has answered.

use bytes::Bytes;
use cql::request::Execute;
use cql::response::{
    IS_BOOTSTRAPPING, PROTOCOL_ERROR, ResultKind, UNPREPARED, peek_error_code, peek_result_kind,
};
use cql::{Direction, Opcode, Response};

use super::again;
use super::client::{Client, Held};
use super::face::{CqlFace, Task};
use super::frames::header_of;
use super::route::{self, envelope};
use crate::machine::face::Desk;
use crate::machine::query::{Failure, NodeIndex, Query, Why};

/// How often a request is repeated because a node does not know its statements: once for each that
/// a batch may well have.
const PREPARES: u32 = 256;

impl CqlFace {
    /// A node has answered.
    pub(crate) fn answered(
        &mut self,
        client: &mut Client,
        query: Query,
        bytes: Bytes,
        desk: &mut Desk<'_>,
    ) {
        let (task, stream) = Task::of(query.sequence);
        let Some(header) = header_of(&bytes, Direction::Response) else {
            let why = Why::Nonsense("a reply without a header".to_owned());
            return self.failed(client, query, &Failure::Lost(why), desk);
        };
        let whole = envelope(header, &bytes);
        let is_error = header.opcode == Opcode::Error;
        if !is_error || peek_error_code(&whole) != Ok(IS_BOOTSTRAPPING) {
            self.avoided.has_answered(query.node);
        }
        match (task, header.opcode) {
            (Task::Login, _) => self.logged_in(client, &query, header, bytes, desk),
            (Task::Use, _) => self.used(client, stream, header, bytes),
            (Task::PrepareAgain, _) => self.prepared_again(client, &query, header, bytes, desk),
            (Task::Prepare, Opcode::Result) => {
                self.remember(&query, header, &bytes);
                client.gathered.put(stream, bytes);
            }
            (_, Opcode::Error) => match peek_error_code(&whole) {
                Ok(UNPREPARED) if query.retries < PREPARES => {
                    self.prepare_for(client, query, header, bytes, desk);
                }
                Ok(IS_BOOTSTRAPPING) => {
                    let why = Why::Unreachable("it is just coming".to_owned());
                    self.failed(client, query, &Failure::Unsent(why), desk);
                }
                Ok(PROTOCOL_ERROR) => {
                    client.becomes_suspect();
                    client.gathered.put(stream, bytes);
                }
                _ => client.gathered.put(stream, bytes),
            },
            (_, Opcode::Result) if peek_result_kind(&whole) == Ok(ResultKind::SchemaChange) => {
                *desk.under_way += 1;
                client.held.push(Held {
                    number: self.state.want_agreement(),
                    stream,
                    envelope: bytes,
                });
            }
            _ => client.gathered.put(stream, bytes),
        }
    }

    /// A query has no answer.
    pub(crate) fn failed(
        &mut self,
        client: &mut Client,
        query: Query,
        failure: &Failure,
        desk: &mut Desk<'_>,
    ) {
        let (Failure::Unsent(why) | Failure::Lost(why)) = failure;
        let node_serves = match why {
            Why::Refused(_) | Why::Lacks(_) | Why::Spoilt(_) => true,
            Why::Unanswered(_) | Why::HungUp | Why::Stopping => true,
            // Of two requests that it could not read, perhaps. If it is dead, others notice.
            Why::Closed(_) => client.is_suspect(),
            Why::Unreachable(_) | Why::Silent(_) => false,
            Why::Unready(_) | Why::Nonsense(_) => false,
        };
        if !node_serves {
            self.avoided.has_failed(query.node, desk.now);
            self.state.ask_for_news();
        }
        let (task, stream) = Task::of(query.sequence);
        if task == Task::PrepareAgain {
            // The request itself was not executed.
            if let Some(parked) = client.parked.remove(&query.part) {
                self.failed(client, parked.query, &Failure::Unsent(why.clone()), desk);
            }
            return;
        }
        let count = self.known.map.nodes().len();
        let patience = self.state.setting.patience;
        if again::may_repeat(&query, failure)
            && let Some(pause) = again::pause(&query, failure, count, desk.now, patience)
        {
            let node = match why {
                Why::Lacks(_) => self.next_node(&query),
                _ => self.other_node(&query, desk),
            };
            if task == Task::Login {
                self.end_login(client, desk);
                self.begin_login(client, node, query.lane);
            }
            return desk.send_again(query, node, pause);
        }
        if matches!(task, Task::Use | Task::Login) {
            client.alone = false;
        }
        if task == Task::Login {
            self.end_login(client, desk);
        }
        let words = again::words(
            &query,
            failure,
            self.state.setting.nodes.address(query.node),
        );
        let Some(header) = header_of(&query.bytes, Direction::Request) else {
            return client.refuse(stream, PROTOCOL_ERROR, &words);
        };
        let whole = envelope(header, &query.bytes);
        let conditional = route::is_conditional(&self.state.prepared, &whole);
        let told = again::told(&query, failure, &whole, conditional, &words);
        client.answer(stream, Response::Error(told));
    }

    /// The node behind the one that a query comes from: so each is asked once.
    fn next_node(&self, query: &Query) -> NodeIndex {
        let nodes = self.known.map.nodes();
        let at = nodes.iter().position(|node| *node == query.node);
        let next = at.map_or(0, |at| (at + 1) % nodes.len());
        nodes.get(next).copied().unwrap_or(query.node)
    }

    /// Where a query that failed is to go now: another replica of its key, or any node.
    fn other_node(&mut self, query: &Query, desk: &mut Desk<'_>) -> NodeIndex {
        self.replicas.clear();
        if let Some(header) = header_of(&query.bytes, Direction::Request)
            && header.opcode == Opcode::Execute
            && let Ok(execute) = Execute::decode(&envelope(header, &query.bytes))
        {
            let statement = self.state.prepared.get(header.version, execute.id);
            let statement = statement.as_deref();
            route::of_execute(&self.known.map, statement, &execute, &mut self.replicas);
        }
        let (avoided, now) = (&self.avoided, desk.now);
        let is_other = |node: &NodeIndex| *node != query.node;
        self.replicas
            .retain(|node| is_other(node) && !avoided.avoids(*node, now));
        if self.replicas.is_empty() {
            let all = self.known.map.nodes().iter().copied();
            self.replicas.extend(all.filter(is_other));
        }
        self.turn = self.turn.wrapping_add(1);
        let (nodes, turn) = (&self.replicas, self.turn);
        route::choose(nodes, false, turn, &self.avoided, desk).unwrap_or(query.node)
    }
}
