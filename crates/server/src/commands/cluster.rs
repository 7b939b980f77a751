//! Commands about the cluster. Their answers have Redis's form, so that its clients find the nodes.
//!
//! The answers name the leaders of other partitions as far as this node knows them. A request also
//! makes the node look for them: the next answer is right, if the partitions have leaders.

mod replication;

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use cluster::slot::{self, SLOTS};
use cluster::topology::{NodeInfo, PartitionInfo};
use resp::{Args, Writer};

use super::arguments::int;
use super::help::help;
use crate::command::CommandKind::{Container, Deferred, Local};
use crate::command::{CommandDefinition, DeferredAnswer, commands};
use crate::key_walk::KeyWalk;
use crate::routing::Routes;
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "cluster";
    "cluster" -2 "" NONE("") "" ""
        "3.0.0" "Depends on subcommand.",
        Container, CLUSTER, "About the cluster.";
    "readonly" 1 "loading stale fast" NONE("") "connection" ""
        "3.0.0" "O(1)",
        Local(readonly), "Lets this connection read what a replica has, which may be a little old.";
    "readwrite" 1 "loading stale fast" NONE("") "connection" ""
        "3.0.0" "O(1)",
        Local(readwrite), "Ends READONLY.";
    "asking" 1 "fast" NONE("") "connection" ""
        "3.0.0" "O(1)",
        Local(asking), "Accepted; slots do not move between nodes yet.";
};

const CLUSTER: &[CommandDefinition] = commands! { "cluster";
    "cluster|slots" 2 "stale" NONE("") "" "nondeterministic_output"
        "3.0.0" "O(N) where N is the total number of Cluster nodes",
        Local(slots), "Ranges of slots and the node of each.";
    "cluster|shards" 2 "stale" NONE("") "" "nondeterministic_output"
        "7.0.0" "O(N) where N is the total number of cluster nodes",
        Local(shards), "Nodes and their ranges of slots.";
    "cluster|nodes" 2 "stale" NONE("") "" "nondeterministic_output"
        "3.0.0" "O(N) where N is the total number of Cluster nodes",
        Local(nodes), "The nodes, one a line.";
    "cluster|info" 2 "stale" NONE("") "" "nondeterministic_output"
        "3.0.0" "O(1)",
        Local(info), "Figures about the cluster.";
    "cluster|myid" 2 "stale" NONE("") "" ""
        "3.0.0" "O(1)",
        Local(myid), "The name of this node.";
    "cluster|keyslot" 3 "stale" NONE("") "" ""
        "3.0.0" "O(N) where N is the number of bytes in the key",
        Local(keyslot), "The slot of a key.";
    "cluster|countkeysinslot" 3 "stale no_multi" NONE("") "" ""
        "3.0.0" "O(N) where N is the number of keys of the node.",
        Deferred(countkeysinslot), "How many keys of a slot this node has.";
    "cluster|getkeysinslot" 4 "stale no_multi" NONE("") "" "nondeterministic_output"
        "3.0.0" "O(N) where N is the number of keys of the node.",
        Deferred(getkeysinslot), "Some keys of a slot that this node has.";
    "cluster|replication" -3 "admin no_multi" NONE("") "" ""
        "0.1.0" "O(1)",
        Deferred(replication), "About the replicas of this node's partition: STATUS, ADD, REMOVE, TRANSFER.";
    "cluster|help" 2 "loading stale" NONE("") "" ""
        "5.0.0" "O(1)",
        Local(cluster_help), "What can be asked.";
};

const DISABLED: &str = "ERR This instance has cluster support disabled";

/// Returns the routes of the cluster. Answers with an error if the server is not a node of one.
fn routes(context: &RuntimeContext, session: &mut ClientSession) -> Option<Arc<Routes>> {
    let routes = context.shared.routes.clone();
    if routes.is_none() {
        session.writer().error(DISABLED);
    }
    routes
}

fn cluster_help(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    if routes(context, session).is_some() {
        help("CLUSTER", CLUSTER, session);
    }
}

fn readonly(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    if routes(context, session).is_some() {
        session.reads_stale = true;
        session.writer().ok();
    }
}

fn readwrite(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    if routes(context, session).is_some() {
        session.reads_stale = false;
        session.writer().ok();
    }
}

fn asking(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    if routes(context, session).is_some() {
        session.writer().ok();
    }
}

fn slots(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let Some(routes) = routes(context, session) else {
        return;
    };
    context.wants_leaders = true;
    let mut ranges: Vec<_> = routes
        .topology
        .partitions()
        .iter()
        .flat_map(|partition| partition.slots.iter().map(move |range| (range, partition)))
        .collect();
    ranges.sort_by_key(|(range, _)| *range.start());
    let over_tls = session.client.over_tls;
    let mut writer = session.writer();
    writer.array(ranges.len());
    for (range, partition) in ranges {
        writer.array(2 + partition.nodes.len());
        writer.int((*range.start()).into());
        writer.int((*range.end()).into());
        for node in routes.nodes_of(partition) {
            let address = node.client_address(over_tls);
            writer.array(4);
            writer.bulk(address.ip().to_string().as_bytes());
            writer.int(address.port().into());
            writer.bulk(routes.name(node.id).as_bytes());
            // Further addresses of the node.
            writer.map(0);
        }
    }
}

fn shards(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let Some(routes) = routes(context, session) else {
        return;
    };
    context.wants_leaders = true;
    let over_tls = session.client.over_tls;
    let mut writer = session.writer();
    writer.array(routes.topology.partitions().len());
    for partition in routes.topology.partitions() {
        writer.map(2);
        writer.bulk(b"slots");
        writer.array(2 * partition.slots.len());
        for range in &partition.slots {
            writer.int((*range.start()).into());
            writer.int((*range.end()).into());
        }
        writer.bulk(b"nodes");
        writer.array(partition.nodes.len());
        for (at, node) in routes.nodes_of(partition).enumerate() {
            let role = if at == 0 { "master" } else { "replica" };
            write_node(&routes, node, role, over_tls, &mut writer);
        }
    }
}

/// Writes a node as `CLUSTER SHARDS` shows it, to a client over TLS or another one: its IP address for
/// that client, and each of its ports there.
fn write_node(
    routes: &Routes,
    node: &NodeInfo,
    role: &str,
    over_tls: bool,
    writer: &mut Writer<'_>,
) {
    let ip = node.client_address(over_tls).ip();
    let ports = [("port", Some(node.client)), ("tls-port", node.tls)]
        .into_iter()
        .filter_map(|(field, address)| Some((field, address.filter(|one| one.ip() == ip)?.port())));
    let ports: Vec<(&str, u16)> = ports.collect();
    let ip = ip.to_string();
    let name = routes.name(node.id);
    let health = match routes.is_reachable(node.id) {
        true => "online",
        false => "fail",
    };
    writer.map(6 + ports.len());
    let mut text = |field: &str, text: &str| {
        writer.bulk(field.as_bytes());
        writer.bulk(text.as_bytes());
    };
    text("id", &name);
    text("ip", &ip);
    text("endpoint", &ip);
    text("role", role);
    text("health", health);
    for (field, port) in ports {
        writer.bulk(field.as_bytes());
        writer.int(port.into());
    }
    writer.bulk(b"replication-offset");
    writer.int(0);
}

fn nodes(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let Some(routes) = routes(context, session) else {
        return;
    };
    context.wants_leaders = true;
    let mut text = String::new();
    for node in routes.topology.nodes() {
        let address = node.client_address(session.client.over_tls);
        write_line(&routes, node, address, &mut text).expect("a String takes any text");
    }
    session.writer().verbatim(b"txt", text.as_bytes());
}

/// Writes a node as `CLUSTER NODES` shows it: name, addresses (`client` for clients), flags, its master,
/// the times of ping and pong, its epoch, its link, its slots.
fn write_line(
    routes: &Routes,
    node: &NodeInfo,
    client: SocketAddr,
    out: &mut String,
) -> std::fmt::Result {
    let myself = if node.id == routes.me { "myself," } else { "" };
    let held = routes.held_by(node.id);
    let (role, master) = match held {
        Some((partition, false)) => ("slave", routes.name(routes.master_of(partition))),
        _ => ("master", "-".to_owned()),
    };
    let link = match routes.is_reachable(node.id) {
        true => "connected",
        false => "disconnected",
    };
    let fabric = node.fabric.port();
    write!(
        out,
        "{} {}:{}@{fabric} {myself}{role} {master} 0 0 {} {link}",
        routes.name(node.id),
        client.ip(),
        client.port(),
        node.id,
    )?;
    // The slots of a partition are its master's.
    let slots = held.filter(|(_, is_master)| *is_master);
    for range in slots.iter().flat_map(|(partition, _)| &partition.slots) {
        match (range.start(), range.end()) {
            (first, last) if first == last => write!(out, " {first}")?,
            (first, last) => write!(out, " {first}-{last}")?,
        }
    }
    out.push('\n');
    Ok(())
}

fn info(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let Some(routes) = routes(context, session) else {
        return;
    };
    let (nodes, partitions) = (routes.topology.nodes(), routes.topology.partitions());
    let slots = |partition: &PartitionInfo| -> usize {
        let slots = partition.slots.iter();
        slots.map(|range| range.len()).sum()
    };
    let is_own = |partition: &&PartitionInfo| Some(partition.id) == routes.own;
    let not_led = || partitions.iter().filter(|one| !routes.is_led(one));
    let unreachable: usize = not_led().filter(|one| !is_own(one)).map(slots).sum();
    // A node always knows the state of its own partition.
    let failed: usize = not_led().filter(is_own).map(slots).sum();
    let all = usize::from(SLOTS);
    let newest = nodes.iter().map(|node| node.id.0).max().unwrap_or(0);
    let fields = [
        ("slots_assigned", all),
        ("slots_ok", all - unreachable - failed),
        ("slots_pfail", unreachable),
        ("slots_fail", failed),
        ("known_nodes", nodes.len()),
        ("size", partitions.len()),
        ("current_epoch", newest.into()),
        ("my_epoch", routes.me.0.into()),
    ];
    let state = if failed == 0 { "ok" } else { "fail" };
    let mut text = format!("cluster_state:{state}\r\n");
    for (name, value) in fields {
        write!(text, "cluster_{name}:{value}\r\n").expect("a String takes any text");
    }
    session.writer().verbatim(b"txt", text.as_bytes());
}

fn myid(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    if let Some(routes) = routes(context, session) {
        let name = routes.name(routes.me);
        session.writer().bulk(name.as_bytes());
    }
}

fn replication(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) -> Option<DeferredAnswer> {
    routes(context, session)?;
    replication::replication(context, session, args)
}

fn keyslot(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if routes(context, session).is_some() {
        session.writer().int(slot::of(args.at(2)).into());
    }
}

/// Parses a slot's number. Answers with an error if it is not one.
fn slot_of(arg: &[u8], session: &mut ClientSession) -> Option<u16> {
    let wrong = match int(arg) {
        Ok(number) => match u16::try_from(number) {
            Ok(slot) if slot < SLOTS => return Some(slot),
            _ => "ERR Invalid slot",
        },
        Err(_) => "ERR value is not an integer or out of range",
    };
    session.writer().error(wrong);
    None
}

fn countkeysinslot(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) -> Option<DeferredAnswer> {
    routes(context, session)?;
    let slot = slot_of(args.at(2), session)?;
    let walk = KeyWalk::count_of_slot(&context.shared.partition, session.database, slot);
    Some(DeferredAnswer::KeyWalk(Box::new(walk)))
}

fn getkeysinslot(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) -> Option<DeferredAnswer> {
    routes(context, session)?;
    let slot = slot_of(args.at(2), session)?;
    let most = match int(args.at(3)).map(usize::try_from) {
        Ok(Ok(most)) => most,
        Ok(Err(_)) => {
            session.writer().error("ERR Invalid number of keys");
            return None;
        }
        Err(_) => {
            let text = "ERR value is not an integer or out of range";
            session.writer().error(text);
            return None;
        }
    };
    let walk = KeyWalk::of_slot(&context.shared.partition, session.database, slot, most);
    Some(DeferredAnswer::KeyWalk(Box::new(walk)))
}
