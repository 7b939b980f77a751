//! Commands about the cluster. Their answers have Redis's form, so that its clients find the nodes.
//!
//! The answers name the leaders of other partitions as far as this node knows them. A request also
//! makes the node look for them: the next answer is right, if the partitions have leaders.

use std::fmt::Write;
use std::sync::Arc;

use cluster::slot::{self, SLOTS};
use cluster::topology::{NodeInfo, PartitionInfo};
use resp::{Args, Writer};

use super::admin::help;
use super::int;
use crate::connection::Connection;
use crate::keys::KeysTask;
use crate::routing::Routes;
use crate::shared::Context;
use crate::task::Task;

const DISABLED: &str = "ERR This instance has cluster support disabled";

/// Returns the routes of the cluster. Answers with an error if the server is not a node of one.
fn routes(context: &Context, connection: &mut Connection) -> Option<Arc<Routes>> {
    let routes = context.shared.routes.clone();
    if routes.is_none() {
        connection.writer().error(DISABLED);
    }
    routes
}

pub(super) fn cluster_help(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    if routes(context, connection).is_some() {
        help("CLUSTER", super::table::CLUSTER, connection);
    }
}

pub(super) fn readonly(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    if routes(context, connection).is_some() {
        connection.reads_stale = true;
        connection.writer().ok();
    }
}

pub(super) fn readwrite(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    if routes(context, connection).is_some() {
        connection.reads_stale = false;
        connection.writer().ok();
    }
}

pub(super) fn asking(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    if routes(context, connection).is_some() {
        connection.writer().ok();
    }
}

pub(super) fn slots(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let Some(routes) = routes(context, connection) else {
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
    let mut writer = connection.writer();
    writer.array(ranges.len());
    for (range, partition) in ranges {
        writer.array(2 + partition.nodes.len());
        writer.int((*range.start()).into());
        writer.int((*range.end()).into());
        for node in routes.nodes_of(partition) {
            writer.array(4);
            writer.bulk(node.client.ip().to_string().as_bytes());
            writer.int(node.client.port().into());
            writer.bulk(routes.name(node.id).as_bytes());
            // Further addresses of the node.
            writer.map(0);
        }
    }
}

pub(super) fn shards(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let Some(routes) = routes(context, connection) else {
        return;
    };
    context.wants_leaders = true;
    let mut writer = connection.writer();
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
            write_node(&routes, node, role, &mut writer);
        }
    }
}

/// Writes a node as `CLUSTER SHARDS` shows it.
fn write_node(routes: &Routes, node: &NodeInfo, role: &str, writer: &mut Writer<'_>) {
    let ip = node.client.ip().to_string();
    let name = routes.name(node.id);
    let health = match routes.is_reachable(node.id) {
        true => "online",
        false => "fail",
    };
    writer.map(7);
    let mut text = |field: &str, text: &str| {
        writer.bulk(field.as_bytes());
        writer.bulk(text.as_bytes());
    };
    text("id", &name);
    text("ip", &ip);
    text("endpoint", &ip);
    text("role", role);
    text("health", health);
    writer.bulk(b"port");
    writer.int(node.client.port().into());
    writer.bulk(b"replication-offset");
    writer.int(0);
}

pub(super) fn nodes(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let Some(routes) = routes(context, connection) else {
        return;
    };
    context.wants_leaders = true;
    let mut text = String::new();
    for node in routes.topology.nodes() {
        write_line(&routes, node, &mut text).expect("a String takes any text");
    }
    connection.writer().verbatim(b"txt", text.as_bytes());
}

/// Writes a node as `CLUSTER NODES` shows it: name, addresses, flags, its master, the times of ping
/// and pong, its epoch, its link, its slots.
fn write_line(routes: &Routes, node: &NodeInfo, out: &mut String) -> std::fmt::Result {
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
    let (client, fabric) = (node.client, node.fabric.port());
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

pub(super) fn info(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let Some(routes) = routes(context, connection) else {
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
    connection.writer().verbatim(b"txt", text.as_bytes());
}

pub(super) fn myid(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    if let Some(routes) = routes(context, connection) {
        let name = routes.name(routes.me);
        connection.writer().bulk(name.as_bytes());
    }
}

pub(super) fn replication(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    if routes(context, connection).is_some() {
        super::replication::replication(context, connection, args);
    }
}

pub(super) fn keyslot(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    if routes(context, connection).is_some() {
        connection.writer().int(slot::of(args.at(2)).into());
    }
}

/// Parses a slot's number. Answers with an error if it is not one.
fn slot_of(arg: &[u8], connection: &mut Connection) -> Option<u16> {
    let wrong = match int(arg) {
        Ok(number) => match u16::try_from(number) {
            Ok(slot) if slot < SLOTS => return Some(slot),
            _ => "ERR Invalid slot",
        },
        Err(_) => "ERR value is not an integer or out of range",
    };
    connection.writer().error(wrong);
    None
}

pub(super) fn countkeysinslot(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    if routes(context, connection).is_some()
        && let Some(slot) = slot_of(args.at(2), connection)
    {
        let task = KeysTask::count_of_slot(&context.shared.partition, slot);
        connection.task = Some(Task::Keys(Box::new(task)));
    }
}

pub(super) fn getkeysinslot(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    if routes(context, connection).is_none() {
        return;
    }
    let Some(slot) = slot_of(args.at(2), connection) else {
        return;
    };
    let Ok(most) = int(args.at(3)) else {
        let text = "ERR value is not an integer or out of range";
        return connection.writer().error(text);
    };
    let Ok(most) = usize::try_from(most) else {
        return connection.writer().error("ERR Invalid number of keys");
    };
    let task = KeysTask::of_slot(&context.shared.partition, slot, most);
    connection.task = Some(Task::Keys(Box::new(task)));
}
