//! `USE`: a shared connection does not change its keyspace for one client.

use bytes::Bytes;
use cql::response::INVALID;
use cql::{Flags, Header, Response, ResponseMessage, ResultBody, StreamId};

use super::client::CqlClient;
use super::node_connection::plain_query;
use super::protocol::{CqlProtocol, RequestProgress, Task};
use super::route::{RequestRoute, envelope};
use crate::runtime::protocol::{InputProgress, RequestContext};

/// No keyspace has a longer name, in bytes, so nodes need not be asked about one.
const LONGEST_NAME: usize = 256;

impl CqlProtocol {
    /// Handles a client's `USE`. A shared connection does not change its keyspace for one client: the
    /// proxy checks if the keyspace exists, and the client's requests then take connections that use
    /// it.
    pub(crate) fn use_keyspace(
        &mut self,
        client: &mut CqlClient,
        header: Header,
        bytes: Bytes,
        keyspace: &str,
        context: &mut RequestContext<'_>,
    ) -> RequestProgress {
        if keyspace.len() > LONGEST_NAME {
            let text = "a keyspace with so long a name does not exist";
            client.refuse(header.stream, INVALID, text);
            return RequestProgress::Handled;
        }
        let Some(node) = self.any_node(context) else {
            return RequestProgress::PutBack(header, bytes, InputProgress::AwaitsRoom);
        };
        let text = format!(
            "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = '{}'",
            keyspace.replace('\'', "''")
        );
        let mut question = Vec::new();
        let message = plain_query(&text, client.version).into_message();
        message.write(
            &mut question,
            client.version,
            header.stream,
            Flags::default(),
        );
        client.awaits_reply = true;
        let route = RequestRoute {
            reads: true,
            ..RequestRoute::default()
        };
        keyspace.clone_into(&mut client.wanted_keyspace);
        let dispatch = self.dispatch(client, Task::Use.sequence(header.stream), node, route);
        context.send(dispatch, question.into());
        RequestProgress::Handled
    }

    /// Handles a node's answer to the question if the keyspace exists that a client wants to use.
    pub(crate) fn used(
        &mut self,
        client: &mut CqlClient,
        stream: StreamId,
        header: Header,
        bytes: Bytes,
    ) {
        client.awaits_reply = false;
        let Ok(message) = ResponseMessage::decode(envelope(header, &bytes)) else {
            return client.gathered.put(stream, bytes);
        };
        let Response::Result(ResultBody::Rows(rows)) = message.response else {
            return client.gathered.put(stream, bytes);
        };
        let row = rows.iter().next();
        let name = row.and_then(|row| std::str::from_utf8(row.first().copied()??).ok());
        match name {
            Some(name) => {
                client.set_keyspace(name);
                client.answer(stream, Response::Result(ResultBody::SetKeyspace(name)));
            }
            None => {
                let text = format!("Keyspace '{}' does not exist", client.wanted_keyspace);
                client.refuse(stream, INVALID, &text);
            }
        }
    }
}
