//! Learns the kind of the nodes and the node of each slot, and keeps this knowledge up to date.
//!
//! A thread asks the nodes: at the start, when something shows that the knowledge is old, and at
//! regular intervals.

use std::collections::HashSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::number::parse_int;
use resp::Value;

use super::commands::Commands;
use super::control_connection::RedisControlConnection;
use super::shared_state::{ClusterMetadata, RedisState, SlotOwners};
use super::slot_map::SlotMap;
use super::wire::{Options, RedisConnectionProperties};
use crate::error::ProxyError;
use crate::node_kind::NodeKind;
use crate::nodes::Nodes;
use crate::runtime::query::NodeIndex;
use crate::seeds::SeedAddresses;

/// Interval at which the nodes are asked without a reason.
const ROUTINE: Duration = Duration::from_secs(10);
/// The shortest interval between two rounds of questions.
const REST: Duration = Duration::from_millis(50);
/// How long the start waits for a node that loads its data.
const LOADING: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Keeps the knowledge up to date until it is stopped.
pub(crate) fn run(state: &RedisState, seeds: &SeedAddresses, options: &Options) {
    while !state.refresh.is_stopping() {
        state.refresh.wait(ROUTINE);
        if state.refresh.is_stopping() {
            return;
        }
        let found = match state.kind {
            NodeKind::RedisServers => Ok(servers(&seeds.look_up_again(), &state.nodes)),
            _ => look(state, &seeds.look_up_again(), options),
        };
        match found {
            Ok(found) => state.learn(found),
            Err(tried) => {
                tracing::warn!("no node tells which has which slot: {}", tried.join("; "));
            }
        }
        std::thread::sleep(REST);
    }
}

/// Asks one node after another until one reports the slots: nodes that have slots first, silent
/// nodes last.
fn look(
    state: &RedisState,
    seeds: &[SocketAddr],
    options: &Options,
) -> Result<SlotOwners, Vec<String>> {
    let map = state.known().map;
    let with_slots = map.all().iter().map(|&node| state.nodes.address(node));
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in with_slots.chain(seeds.iter().copied()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    // A silent node delays the questions to the others.
    addresses.sort_by_key(|&address| state.nodes.is_silent(address));
    let mut tried = Vec::new();
    for address in addresses {
        let asked = RedisControlConnection::connect(address, options)
            .and_then(|mut asked| slots(&mut asked, address, &state.nodes));
        match asked {
            Ok(Some((map, mut addresses))) => {
                addresses.extend(seeds);
                return Ok((map, addresses));
            }
            Ok(None) => tried.push(format!("{address} is of no cluster")),
            Err(what) => tried.push(format!("{address} {what}")),
        }
    }
    Err(tried)
}

/// Learns the kind of the nodes at these addresses, and their slots.
///
/// # Errors
/// Returns the fault of each of them.
pub(crate) fn discover(
    seeds: &SeedAddresses,
    kumiki: bool,
    options: &Options,
    nodes: &Nodes,
) -> Result<(NodeKind, ClusterMetadata), Vec<String>> {
    let until = Instant::now() + LOADING;
    loop {
        let found = try_discover(&seeds.look_up_again(), kumiki, options, nodes);
        match found {
            Err(tried) if tried.iter().any(|what| what.contains("LOADING")) => {
                if Instant::now() >= until {
                    return Err(tried);
                }
                tracing::info!(
                    "waiting for a node that loads its data: {}",
                    tried.join("; ")
                );
                std::thread::sleep(LOOK_AGAIN);
            }
            found => return found,
        }
    }
}

fn try_discover(
    addresses: &[SocketAddr],
    kumiki: bool,
    options: &Options,
    nodes: &Nodes,
) -> Result<(NodeKind, ClusterMetadata), Vec<String>> {
    let mut tried = Vec::new();
    for &address in addresses {
        let found = RedisControlConnection::connect(address, options).and_then(|mut asked| {
            let commands = Arc::new(Commands::read(&asked.ask(&[b"COMMAND"])?)?);
            let told = slots(&mut asked, address, nodes)?;
            let databases = match told.is_some() && !kumiki {
                // A cluster of Redis has one.
                true => 1,
                false => databases(&mut asked),
            };
            Ok((commands, databases, told))
        });
        match found {
            Ok((commands, databases, Some((map, mut told)))) => {
                let kind = if kumiki {
                    NodeKind::Kumiki
                } else {
                    NodeKind::RedisCluster
                };
                told.extend(addresses);
                let known = ClusterMetadata {
                    commands,
                    map: Arc::new(map),
                    addresses: Arc::new(told),
                    databases,
                };
                return Ok((kind, known));
            }
            Ok((commands, databases, None)) => {
                let kind = if kumiki {
                    NodeKind::Kumiki
                } else {
                    NodeKind::RedisServers
                };
                let (map, told) = servers(addresses, nodes);
                let known = ClusterMetadata {
                    commands,
                    map: Arc::new(map),
                    addresses: Arc::new(told),
                    databases,
                };
                return Ok((kind, known));
            }
            Err(what) => tried.push(format!("  {address} {what}")),
        }
    }
    Err(tried)
}

/// Asks a node for the number of databases that its clients can select. If it does not tell, clients have
/// database 0 alone.
fn databases(asked: &mut RedisControlConnection) -> u8 {
    let reply = asked.ask(&[b"CONFIG", b"GET", b"databases"]).ok();
    let number = match reply.and_then(|reply| Value::decode(&reply).ok()) {
        Some(Value::Array(fields)) => match &fields[..] {
            [_, Value::Bulk(number)] => parse_int(number),
            _ => None,
        },
        _ => None,
    };
    let most = RedisConnectionProperties::DATABASES;
    let databases = number.map(|number| u8::try_from(number).unwrap_or(most));
    databases.unwrap_or(1).clamp(1, most)
}

/// Divides the slots evenly among servers that do not know of each other.
fn servers(addresses: &[SocketAddr], nodes: &Nodes) -> SlotOwners {
    let places: Vec<NodeIndex> = addresses
        .iter()
        .map(|&address| nodes.place(address))
        .collect();
    (SlotMap::even(&places), addresses.iter().copied().collect())
}

/// Asks one node for the slots and addresses of all; `None` if it belongs to no cluster.
fn slots(
    asked: &mut RedisControlConnection,
    address: SocketAddr,
    nodes: &Nodes,
) -> Result<Option<SlotOwners>, ProxyError> {
    let reply = asked.ask(&[b"CLUSTER", b"SLOTS"])?;
    let list =
        match Value::decode(&reply).map_err(|error| ProxyError::malformed(error.to_string()))? {
            Value::Array(list) => list,
            Value::Error(text) if has_no_cluster(&text) => return Ok(None),
            Value::Error(text) => {
                let text = String::from_utf8_lossy(&text);
                return Err(ProxyError::malformed(format!(
                    "does not tell which node has which slot: {text}"
                )));
            }
            _ => {
                return Err(ProxyError::malformed(
                    "does not tell which node has which slot",
                ));
            }
        };
    if list.is_empty() {
        return Err(ProxyError::refused(
            "knows no node that has slots; is the cluster made?",
        ));
    }
    let (mut ranges, mut told) = (Vec::new(), HashSet::from([address]));
    for one in &list {
        let (first, last, master) = range(one, address).ok_or_else(|| {
            ProxyError::malformed("tells of slots without telling whose they are")
        })?;
        told.insert(master);
        ranges.push((first, last, nodes.place(master)));
    }
    // Nodes that have no slots yet may be named in redirections by nodes that hand slots to them.
    if let Ok(reply) = asked.ask(&[b"CLUSTER", b"NODES"])
        && let Ok(Value::Bulk(text) | Value::Verbatim { text, .. }) = Value::decode(&reply)
    {
        let text = String::from_utf8_lossy(&text).into_owned();
        told.extend(text.lines().filter_map(|line| listed(line, address)));
    }
    Ok(Some((SlotMap::new(&ranges, nodes.place(address)), told)))
}

/// Returns `true` if this error of a node means that it belongs to no cluster. Other errors (the node
/// loads its data, its user may not ask) say nothing about that.
fn has_no_cluster(error: &[u8]) -> bool {
    let text = String::from_utf8_lossy(error).to_ascii_lowercase();
    text.contains("cluster support disabled") || text.starts_with("err unknown command")
}

/// Reads one element of the reply to `CLUSTER SLOTS`: the first slot, the last, and their node.
fn range(range: &Value, asked: SocketAddr) -> Option<(u16, u16, SocketAddr)> {
    let Value::Array(fields) = range else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(master),
        ..,
    ] = &fields[..]
    else {
        return None;
    };
    let port = match master.get(1)? {
        Value::Int(port) => u16::try_from(*port).ok()?,
        _ => return None,
    };
    let host = match master.first()? {
        Value::Bulk(host) => std::str::from_utf8(host).ok()?,
        _ => "",
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    Some((first, last, place(host, port, asked)?))
}

/// Returns the address of the node in a line of the reply to `CLUSTER NODES`: after its id comes
/// `host:port@port`, and after a comma its name.
fn listed(line: &str, asked: SocketAddr) -> Option<SocketAddr> {
    let text = line.split(' ').nth(1)?.split(['@', ',']).next()?;
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port| port != 0)?;
    place(host, port, asked)
}

/// Returns a node's address as another node gives it. Without a host, or with an unknown one, it has
/// the address of the node that was asked. A name is looked up.
fn place(host: &str, port: u16, asked: SocketAddr) -> Option<SocketAddr> {
    if matches!(host, "" | "?") {
        return Some(SocketAddr::new(asked.ip(), port));
    }
    match host.parse() {
        Ok(host) => Some(SocketAddr::new(host, port)),
        Err(_) => (host, port).to_socket_addrs().ok()?.next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_are_not_about_clusters_say_nothing_about_them() {
        for (error, has_none) in [
            ("ERR This instance has cluster support disabled", true),
            ("ERR unknown command 'CLUSTER'", true),
            (
                "ERR unknown command `CLUSTER`, with args beginning with: `SLOTS`, ",
                true,
            ),
            ("LOADING Redis is loading the dataset in memory", false),
            ("NOAUTH Authentication required.", false),
            (
                "NOPERM this user has no permissions to run the 'cluster|slots' command",
                false,
            ),
        ] {
            assert_eq!(has_no_cluster(error.as_bytes()), has_none, "{error}");
        }
    }

    #[test]
    fn nodes_are_where_others_say() {
        let asked: SocketAddr = "127.0.0.1:7000".parse().unwrap();
        let at = |text: &str| text.parse::<SocketAddr>().ok();
        for (line, address) in [
            (
                "id 10.0.0.1:7001@17001 master - 0 0 1 connected 0-99",
                at("10.0.0.1:7001"),
            ),
            (
                "id 10.0.0.1:7001@17001,node.example slave x",
                at("10.0.0.1:7001"),
            ),
            ("id ::1:7001@17001 master", at("[::1]:7001")),
            ("id :7002@17002 myself,master", at("127.0.0.1:7002")),
            ("id 10.0.0.1:0@0 noaddr", None),
            ("", None),
        ] {
            assert_eq!(listed(line, asked), address, "{line}");
        }
        let told = |text: &[u8]| range(&Value::decode(text).unwrap(), asked);
        let none = told(b"*3\r\n:0\r\n:9\r\n*2\r\n$-1\r\n:7001\r\n");
        assert_eq!(none, at("127.0.0.1:7001").map(|at| (0, 9, at)));
        let name = told(b"*3\r\n:0\r\n:9\r\n*2\r\n$9\r\nlocalhost\r\n:7001\r\n");
        assert_eq!(
            name.map(|told| (told.2.ip().is_loopback(), told.2.port())),
            Some((true, 7001))
        );
        assert_eq!(told(b"*2\r\n:0\r\n:9\r\n"), None);
    }
}
