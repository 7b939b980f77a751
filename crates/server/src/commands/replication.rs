//! `ROLE`: this node's part in the replication of its partition; and `REPLICAOF`, which changes nothing.

use std::net::SocketAddr;

use replica::Role;
use resp::Args;

use super::arguments::{int, is};
use crate::command::CommandKind::Local;
use crate::command::{CommandDefinition, commands};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "role" 1 "noscript loading stale fast" NONE("") "admin dangerous" ""
        "2.8.12" "O(1)",
        Local(role), "Whether this node leads its partition, and who else has it.";
    "replicaof" 3 "admin noscript stale no_async_loading" NONE("") "" ""
        "5.0.0" "O(1)",
        Local(replicaof), "Refused but for NO ONE: the cluster's file says which nodes have replicas.";
    "slaveof" 3 "admin noscript stale no_async_loading" NONE("") "" ""
        "1.0.0" "O(1)",
        Local(replicaof), "The old name of REPLICAOF.";
};

/// Answers `ROLE`: offsets are indexes of the partition's log.
fn role(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let shared = &context.shared;
    let over_tls = session.client.over_tls;
    let routes = shared.routes.as_ref();
    let address = |node| routes.map(|routes| routes.address_of(node, over_tls));
    let Some(own) = shared.partition.replicated() else {
        return write_master(session, 0, &[]);
    };
    let status = own.member().status();
    if status.role == Role::Leader {
        let others = status.members.iter().filter(|one| one.node != status.node);
        let active = others.filter(|one| one.active);
        let replicas = active.filter_map(|one| Some((address(one.node)?, one.matched)));
        return write_master(session, status.last, &replicas.collect::<Vec<_>>());
    }
    let leader = status.leader.and_then(address);
    let mut writer = session.writer();
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

/// Answers `REPLICAOF`: a server that is no node of a cluster is a master already.
fn replicaof(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let mut writer = session.writer();
    if context.shared.routes.is_some() {
        return writer.error("ERR REPLICAOF not allowed in cluster mode.");
    }
    if is(args.at(1), "no") && is(args.at(2), "one") {
        return writer.ok();
    }
    match int(args.at(2)) {
        Ok(0..=65535) => writer.error(
            "ERR this server cannot be a replica of another one: replicas are members of a partition in the \
             cluster's file",
        ),
        _ => writer.error("ERR Invalid master port"),
    }
}

fn write_master(session: &mut ClientSession, offset: u64, replicas: &[(SocketAddr, u64)]) {
    let mut writer = session.writer();
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
