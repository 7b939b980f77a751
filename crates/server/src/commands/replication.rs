//! `CLUSTER REPLICATION`: what a node says of its replica, and changes of the members. It is
//! Kumiki's own; `kumiki cluster` sends it.

use std::net::SocketAddr;
use std::time::Duration;

use base::NodeId;
use replica::{MembershipChange, Role, Status};
use resp::Args;

use super::is;
use crate::connection::Connection;
use crate::replication::{ALONE, Report};
use crate::shared::{Context, Shared};
use crate::task::{Job, Task, Then};

/// How long a change may take. The member gives up earlier unless a copy gets on.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);
const NOT_REPLICATED: &str = "ERR this node's partition is not replicated: give it three or more nodes in the cluster's file";

/// Returns what the node reports about its partition.
fn report(shared: &Shared) -> Report {
    let routes = shared.routes.as_ref();
    let partition = routes.and_then(|routes| routes.own).map_or(0, |own| own.0);
    let Some(own) = shared.partition.replicated() else {
        let me = routes.map_or(0, |routes| routes.me.0);
        return Report {
            partition,
            node: me,
            role: ALONE.to_owned(),
            leader: Some(me),
            ..Report::default()
        };
    };
    own.report(partition)
}

/// Returns the status of this node's replica, unless it leads or there is none: then the node is
/// what Redis calls a master.
pub(super) fn follower(shared: &Shared) -> Option<Status> {
    let status = shared.partition.replicated()?.member().status();
    (status.role != Role::Leader).then_some(status)
}

/// Answers `ROLE`: offsets are indexes of the partition's log.
pub(super) fn role(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let shared = &context.shared;
    let address = |node| shared.routes.as_ref().map(|routes| routes.address_of(node));
    let Some(own) = shared.partition.replicated() else {
        return write_master(connection, 0, &[]);
    };
    let status = own.member().status();
    if status.role == Role::Leader {
        let others = status.members.iter().filter(|one| one.node != status.node);
        let active = others.filter(|one| one.active);
        let replicas = active.filter_map(|one| Some((address(one.node)?, one.matched)));
        return write_master(connection, status.last, &replicas.collect::<Vec<_>>());
    }
    let leader = status.leader.and_then(address);
    let mut writer = connection.writer();
    writer.array(5);
    writer.bulk(b"slave");
    let host = leader.map_or_else(String::new, |leader| leader.ip().to_string());
    writer.bulk(host.as_bytes());
    writer.int(leader.map_or(0, |leader| leader.port().into()));
    writer.bulk(match (leader, status.receiving) {
        (None, _) => b"connect",
        (Some(_), Some(_)) => b"sync",
        (Some(_), None) => b"connected",
    });
    writer.int(status.applied as i64);
}

fn write_master(connection: &mut Connection, offset: u64, replicas: &[(SocketAddr, u64)]) {
    let mut writer = connection.writer();
    writer.array(3);
    writer.bulk(b"master");
    writer.int(offset as i64);
    writer.array(replicas.len());
    for (address, offset) in replicas {
        writer.array(3);
        writer.bulk(address.ip().to_string().as_bytes());
        writer.bulk(address.port().to_string().as_bytes());
        writer.bulk(offset.to_string().as_bytes());
    }
}

pub(super) fn replication(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let word = args.at(2);
    if is(word, "status") && args.len() == 3 {
        let text = report(&context.shared).to_string();
        return connection.writer().verbatim(b"txt", text.as_bytes());
    }
    let Some(change) = wanted(args) else {
        return connection.writer().error(
            "ERR give CLUSTER REPLICATION STATUS, ADD node, REMOVE node or TRANSFER [node], where a \
             node is its number in the cluster's file",
        );
    };
    if context.shared.partition.replicated().is_none() {
        return connection.writer().error(NOT_REPLICATED);
    }
    tracing::info!(client = %connection.client.address, ?change, "a client asked for this");
    let runtime = connection.client.runtime;
    let job = Job::begin(
        &context.shared,
        runtime,
        Then::Reply,
        "a change of members",
        move |shared| {
            let own = shared.partition.replicated().ok_or(NOT_REPLICATED)?;
            let changed = own.member().change(change, PATIENCE);
            changed.map_err(|error| error.to_string())
        },
    );
    match job {
        Ok(job) => connection.task = Some(Task::Job(job)),
        Err(error) => connection.writer().error(&format!("ERR {error}")),
    }
}

/// Parses the change that a command requests; `None` if it makes no sense.
fn wanted(args: Args<'_>) -> Option<MembershipChange> {
    let node = match args.get(3) {
        None => None,
        Some(text) => {
            let number: u16 = std::str::from_utf8(text).ok()?.parse().ok()?;
            Some(NodeId(number))
        }
    };
    let word = args.at(2);
    match node {
        _ if args.len() > 4 => None,
        Some(node) if is(word, "add") => Some(MembershipChange::Add(node)),
        Some(node) if is(word, "remove") => Some(MembershipChange::Remove(node)),
        node if is(word, "transfer") => Some(MembershipChange::Transfer(node)),
        _ => None,
    }
}
