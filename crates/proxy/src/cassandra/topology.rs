//! The nodes, as they report themselves: their addresses, their keys, and their protocol versions.

use std::net::{IpAddr, SocketAddr};

use cql::request::Request;
use cql::ring::{Replication, Ring, RingNode};
use cql::{CqlValue, Response, Version};

use super::control_connection::{ControlConnection, TableInfo};
use super::lock_table::schema::{self, TableUse};
use super::node_connection::Options;
use super::read_atomic::designated_table;
use super::token_ring::TokenRing;
use crate::config::CqlTable;
use crate::error::ProxyError;
use crate::nodes::Nodes;
use crate::runtime::query::NodeIndex;

/// The knowledge of the nodes.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct CassandraTopology {
    pub(crate) map: TokenRing,
    /// `system.local` of the node that was asked.
    pub(crate) local: TableInfo,
    /// Columns of `system.peers` and of `system.peers_v2`.
    pub(crate) peers: TableInfo,
    pub(crate) peers_v2: Option<TableInfo>,
    /// All tokens of the ring, in order.
    pub(crate) tokens: Vec<String>,
    pub(crate) lock_tables: Vec<schema::KnownTable>,
    pub(crate) read_atomic: Vec<schema::KnownTable>,
}

/// The properties of the nodes that do not change.
#[derive(Clone, Debug)]
pub(crate) struct ClusterProperties {
    /// The class by which they authenticate clients, if they do.
    pub(crate) authenticator: Option<String>,
    /// The newest version that they speak.
    pub(crate) newest: Version,
}

/// Learns the properties and the topology of the nodes at these addresses, and the schemas of the
/// tables that are locks and of those that are read atomic.
///
/// # Errors
/// Returns the fault of each of them.
pub(crate) fn discover(
    addresses: &[SocketAddr],
    [lock_tables, read_atomic]: [&[CqlTable]; 2],
    options: &Options,
    nodes: &Nodes,
) -> Result<(ClusterProperties, CassandraTopology), Vec<String>> {
    let mut tried = Vec::new();
    for &address in addresses {
        let found = ControlConnection::connect(address, options).and_then(|mut asked| {
            let nature = ClusterProperties {
                authenticator: asked.authenticator.clone(),
                newest: newest(&mut asked)?,
            };
            let lock_tables = schema::ask(&mut asked, lock_tables, TableUse::Locks)?;
            let read_atomic = designated_table::ask(&mut asked, read_atomic)?;
            let known = topology(&mut asked, address, nodes)?;
            Ok((
                nature,
                CassandraTopology {
                    lock_tables,
                    read_atomic,
                    ..known
                },
            ))
        });
        match found {
            Ok(found) => return Ok(found),
            Err(what) => tried.push(format!("  {address} {what}")),
        }
    }
    Err(tried)
}

/// Returns the newest version that both a node and the proxy speak.
fn newest(asked: &mut ControlConnection) -> Result<Version, ProxyError> {
    asked.ask(Request::Options, |response| {
        let Response::Supported(options) = response else {
            return Err(ProxyError::malformed(format!(
                "answers OPTIONS by {:?}",
                response.opcode()
            )));
        };
        let versions = options
            .iter()
            .find(|(name, _)| *name == "PROTOCOL_VERSIONS");
        let has = |version| versions.is_some_and(|(_, all)| all.contains(&version));
        Ok(if has("5/v5") {
            Version::V5
        } else {
            Version::V4
        })
    })
}

/// Reads a node's tables about itself, the other nodes, and keyspaces.
pub(super) fn topology(
    asked: &mut ControlConnection,
    address: SocketAddr,
    nodes: &Nodes,
) -> Result<CassandraTopology, ProxyError> {
    let local = asked.query("SELECT * FROM system.local WHERE key = 'local'")?;
    let peers = asked.query("SELECT * FROM system.peers")?;
    let peers_v2 = asked.query("SELECT * FROM system.peers_v2").ok();
    let keyspaces =
        asked.query("SELECT keyspace_name, replication FROM system_schema.keyspaces")?;
    let mut places = vec![nodes.place(address)];
    let own = local
        .rows
        .first()
        .ok_or_else(|| ProxyError::malformed("does not tell of itself"))?;
    let mut ring = vec![ring_node(&local, own)];
    let others = peers_v2.as_ref().unwrap_or(&peers);
    for row in &others.rows {
        // A node that is just joining has no tokens yet.
        let node = ring_node(others, row);
        if let Some(place) = place(others, row, address, nodes)
            && !node.tokens.is_empty()
        {
            places.push(place);
            ring.push(node);
        }
    }
    let mut tokens: Vec<_> = ring.iter().flat_map(|node| node.tokens.clone()).collect();
    tokens.sort_unstable();
    let replications = keyspaces.rows.iter().filter_map(|row| {
        let name = keyspaces.text(row, "keyspace_name")?;
        Some((
            name.to_owned(),
            replication(keyspaces.value(row, "replication")?)?,
        ))
    });
    let map = TokenRing::new(&Ring::new(ring), places, replications);
    let without_rows = |table: TableInfo| TableInfo {
        rows: Vec::new(),
        ..table
    };
    Ok(CassandraTopology {
        map,
        tokens: tokens.iter().map(|token| token.0.to_string()).collect(),
        peers: without_rows(peers),
        peers_v2: peers_v2.map(without_rows),
        local,
        lock_tables: Vec::new(),
        read_atomic: Vec::new(),
    })
}

fn ring_node(table: &TableInfo, row: &[CqlValue]) -> RingNode {
    let text = |name| table.text(row, name).unwrap_or_default().to_owned();
    let tokens = match table.value(row, "tokens") {
        Some(CqlValue::Set(tokens)) => tokens.iter(),
        _ => [].iter(),
    };
    let tokens = tokens.filter_map(|token| match token {
        CqlValue::Text(text) => text.parse().ok(),
        _ => None,
    });
    RingNode {
        datacenter: text("data_center"),
        rack: text("rack"),
        tokens: tokens.collect(),
    }
}

/// Returns the index of another node. If its row has no port, it has the port of the node that was
/// asked.
fn place(
    table: &TableInfo,
    row: &[CqlValue],
    asked: SocketAddr,
    nodes: &Nodes,
) -> Option<NodeIndex> {
    let address = |name| match table.value(row, name) {
        Some(CqlValue::Inet(address)) => Some(*address),
        _ => None,
    };
    let public = address("native_address").or_else(|| address("rpc_address"));
    let public = public.filter(|address: &IpAddr| !address.is_unspecified());
    let port = match table.value(row, "native_port") {
        Some(CqlValue::Int(port)) => u16::try_from(*port).ok()?,
        _ => asked.port(),
    };
    let ip = public.or_else(|| address("peer"))?;
    Some(nodes.place(SocketAddr::new(ip, port)))
}

fn replication(value: &CqlValue) -> Option<Replication> {
    let CqlValue::Map(pairs) = value else {
        return None;
    };
    let pairs = pairs.iter().filter_map(|pair| match pair {
        (CqlValue::Text(key), CqlValue::Text(value)) => Some((key.as_str(), value.as_str())),
        _ => None,
    });
    Replication::parse(pairs).ok()
}
