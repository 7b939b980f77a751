//! `ROLE`: this node's part in the replication of its partition.

use std::net::SocketAddr;

use replica::Role;
use resp::Args;

use crate::command::CommandKind::Local;
use crate::command::{CommandDefinition, commands};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "role" 1 "noscript loading stale fast" NONE("") "admin dangerous" ""
        "2.8.12" "O(1)",
        Local(role), "Whether this node leads its partition, and who else has it.";
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
