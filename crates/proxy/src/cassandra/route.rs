//! The routes of requests to nodes.

use bytes::Bytes;
use cql::request::{Batch, BatchStatement, Execute, Request, RequestMessage, Statement as Part};
use cql::statement::{StatementKind, Summary};
use cql::token::{Token, named_partition_key, partition_key};
use cql::{BoundValues, Consistency, Envelope, HEADER_LEN, Header, Opcode, Version};

use super::prepared::{CachedStatement, PreparedStatements};
use super::reply_time_limit::ReplyTimeLimit;
use super::suspect_nodes::SuspectNodes;
use super::token_ring::TokenRing;
use crate::runtime::protocol::RequestContext;
use crate::runtime::query::NodeIndex;

/// The properties of a request that decide where it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequestRoute {
    /// It only reads: it may be sent twice.
    pub(crate) reads: bool,
    /// Replicas must agree on an order: then all clients' requests go to the same replica, so that
    /// replicas do not contend with each other.
    pub(crate) serial: bool,
    /// It reads data that nodes report about themselves: one client asks one node.
    pub(crate) of_node: bool,
    pub(crate) pace: ReplyTimeLimit,
    /// The mark by which it may be merged with others; see [`super::merge`].
    pub(crate) merge: u32,
}

fn is_serial(consistency: Consistency) -> bool {
    matches!(consistency, Consistency::Serial | Consistency::LocalSerial)
}

/// Returns the envelope of a request from its header and bytes.
pub(crate) fn envelope(header: Header, bytes: &Bytes) -> Envelope<'_> {
    Envelope {
        header,
        body: &bytes[HEADER_LEN..],
    }
}

/// Puts the replicas of a statement's key into `replicas`; none if its values give no key.
fn of_values(
    map: &TokenRing,
    statement: &CachedStatement,
    values: &BoundValues<'_>,
    replicas: &mut Vec<NodeIndex>,
) {
    replicas.clear();
    let mut scratch = Vec::new();
    let key = match values.are_named() {
        true => named_partition_key(values, &statement.key_names, &mut scratch),
        false => partition_key(values, &statement.key, &mut scratch),
    };
    if let Some(keyspace) = &statement.keyspace
        && let Ok(key) = key
    {
        map.replicas(keyspace, Token::of_key(key), replicas);
    }
}

/// Returns the route of an EXECUTE.
pub(crate) fn of_execute(
    map: &TokenRing,
    statement: Option<&CachedStatement>,
    execute: &Execute<'_>,
    replicas: &mut Vec<NodeIndex>,
) -> RequestRoute {
    replicas.clear();
    let Some(statement) = statement else {
        return RequestRoute::default();
    };
    of_values(map, statement, &execute.parameters.values, replicas);
    RequestRoute {
        pace: statement.pace,
        reads: statement.reads,
        serial: statement.conditional || is_serial(execute.parameters.consistency),
        of_node: statement.keyspace.as_deref().is_some_and(tells_of_nodes),
        merge: 0,
    }
}

/// Returns the route of a text.
pub(crate) fn of_text(summary: Option<&Summary<'_>>, current: Option<&str>) -> RequestRoute {
    let pace = ReplyTimeLimit::of(summary.map(|summary| summary.kind));
    let Some(summary) = summary else {
        return RequestRoute {
            pace,
            ..RequestRoute::default()
        };
    };
    let mut tables = summary.tables.iter();
    RequestRoute {
        pace,
        reads: summary.kind == StatementKind::Select,
        serial: false,
        of_node: tables.any(|table| {
            let keyspace = table.keyspace.as_deref().or(current);
            keyspace.is_some_and(tells_of_nodes)
        }),
        merge: 0,
    }
}

/// Returns `true` if tables of the keyspace differ from node to node.
fn tells_of_nodes(keyspace: &str) -> bool {
    ["system", "system_views", "system_virtual_schema"].contains(&keyspace)
}

/// Returns the route of a BATCH: that of its first statement with a key.
pub(crate) fn of_batch(
    map: &TokenRing,
    prepared: &PreparedStatements,
    version: Version,
    batch: &Batch<'_>,
    replicas: &mut Vec<NodeIndex>,
) -> RequestRoute {
    replicas.clear();
    let mut route = RequestRoute::default();
    for part in &batch.statements {
        let Some(statement) = statement_of(prepared, version, part) else {
            continue;
        };
        route.serial |= statement.conditional;
        if replicas.is_empty() {
            of_values(map, &statement, &part.values, replicas);
        }
    }
    route
}

fn statement_of(
    prepared: &PreparedStatements,
    version: Version,
    part: &BatchStatement<'_>,
) -> Option<std::sync::Arc<CachedStatement>> {
    match part.statement {
        Part::Prepared(id) => prepared.get(version, id),
        Part::Text(_) => None,
    }
}

/// Returns `true` if a client's lost request had a condition.
pub(crate) fn is_conditional(prepared: &PreparedStatements, envelope: &Envelope<'_>) -> bool {
    let version = envelope.header.version;
    match envelope.header.opcode {
        Opcode::Query => cql::request::Query::decode(envelope)
            .is_ok_and(|query| Summary::of(query.text).is_ok_and(|summary| summary.conditional)),
        Opcode::Execute => Execute::decode(envelope)
            .ok()
            .and_then(|execute| prepared.get(version, execute.id))
            .is_some_and(|statement| statement.conditional),
        Opcode::Batch => match RequestMessage::decode(*envelope).map(|message| message.request) {
            Ok(Request::Batch(batch)) => batch.statements.iter().any(|part| match part.statement {
                Part::Text(text) => Summary::of(text).is_ok_and(|summary| summary.conditional),
                Part::Prepared(id) => prepared
                    .get(version, id)
                    .is_some_and(|statement| statement.conditional),
            }),
            _ => false,
        },
        _ => false,
    }
}

/// Chooses a node: of those that have not failed, the one with the fewest queries under way, or with
/// `serial` the first one. `turn` decides among equals. `None`: none of the possible nodes has room.
pub(crate) fn choose(
    nodes: &[NodeIndex],
    serial: bool,
    turn: usize,
    suspects: &SuspectNodes,
    context: &mut RequestContext<'_>,
) -> Option<NodeIndex> {
    let lives = |node: &NodeIndex| !suspects.avoids(*node, context.now);
    let (first, start) = match serial {
        true => (nodes.iter().copied().find(lives), 0),
        false => (None, turn % nodes.len().max(1)),
    };
    if let Some(first) = first {
        return context.has_room(first).then_some(first);
    }
    let any_lives = nodes.iter().any(lives);
    let (before, from) = nodes.split_at(start);
    let mut best: Option<(u32, NodeIndex)> = None;
    for &node in from.iter().chain(before) {
        if any_lives && suspects.avoids(node, context.now) || !context.has_room(node) {
            continue;
        }
        let load = context.load(node);
        if best.is_none_or(|(least, _)| load < least) {
            best = Some((load, node));
        }
    }
    best.map(|(_, node)| node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cql::ring::{Replication, Ring, RingNode};
    use cql::{Bound, ValueList};

    fn map() -> TokenRing {
        let nodes = (0..8).map(|node| RingNode {
            datacenter: "dc".to_owned(),
            rack: "rack".to_owned(),
            tokens: vec![Token((i64::MIN + 1).wrapping_add(node << 61))],
        });
        let places = (0..8).map(NodeIndex).collect();
        let keyspaces = [("app".to_owned(), Replication::Simple(1))];
        TokenRing::new(&Ring::new(nodes.collect()), places, keyspaces)
    }

    fn statement() -> CachedStatement {
        CachedStatement {
            request: Bytes::new(),
            text: "SELECT * FROM app.t WHERE a = :one AND b = :two".to_owned(),
            connection_keyspace: None,
            keyspace: Some("app".to_owned()),
            key: vec![0, 1],
            key_names: vec!["one".to_owned(), "two".to_owned()],
            told: Bytes::new(),
            reads: true,
            conditional: false,
            is_local: false,
            pace: ReplyTimeLimit::Rows,
            merges: false,
        }
    }

    fn replicas(list: &ValueList) -> Vec<NodeIndex> {
        let mut replicas = Vec::new();
        let values = list.values(Version::V4);
        of_values(&map(), &statement(), &values, &mut replicas);
        replicas
    }

    #[test]
    fn values_with_names_lead_where_values_in_order_do() {
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..100 {
            let (one, two) = (format!("one {number}"), format!("two {number}"));
            let [one, two] = [&one, &two].map(|text| Bound::Bytes(text.as_bytes()));
            let mut in_order = ValueList::new();
            in_order.push(one);
            in_order.push(two);
            let mut named = ValueList::new();
            named.push_named("other", Bound::Null);
            named.push_named("two", two);
            named.push_named("one", one);
            let expected = replicas(&in_order);
            assert_eq!(expected.len(), 1);
            assert_eq!(replicas(&named), expected);
            seen.extend(expected);
        }
        assert_eq!(seen.len(), 8, "keys of all nodes");
        let mut half = ValueList::new();
        half.push_named("one", Bound::Bytes(b"one"));
        assert_eq!(replicas(&half), []);
    }

    #[test]
    fn what_may_take_long_has_more_time() {
        let pace = |text| of_text(Summary::of(text).ok().as_ref(), None).pace;
        for text in ["TRUNCATE t", "CREATE TABLE t (k int PRIMARY KEY)", "'"] {
            assert_eq!(pace(text), ReplyTimeLimit::Schema, "{text}");
        }
        for text in [
            "SELECT * FROM t",
            "INSERT INTO t (k) VALUES (1)",
            "BEGIN BATCH APPLY BATCH",
        ] {
            assert_eq!(pace(text), ReplyTimeLimit::Rows, "{text}");
        }
        assert!(ReplyTimeLimit::Rows.timeouts() < ReplyTimeLimit::Schema.timeouts());
    }
}
