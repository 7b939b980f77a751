//! `CLUSTER REPLICATION`: what a node says of its replica, and changes of who takes part. It is
//! Kumiki's own; `kumiki cluster` gives it.

use std::time::Duration;

use base::NodeId;
use replica::Change;
use resp::Args;

use super::is;
use crate::connection::Connection;
use crate::replication::{ALONE, Report};
use crate::shared::{Context, Shared};
use crate::task::{Job, Task, Then};

/// How long a change may take. The member gives up earlier unless a copy gets on.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);
const NOT_REPLICATED: &str = "ERR this node's partition is not replicated: give it three or more nodes in the cluster's file";

/// What a node says of its partition.
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
            own.member().change(change, PATIENCE)
        },
    );
    match job {
        Ok(job) => connection.task = Some(Task::Job(job)),
        Err(error) => connection.writer().error(&format!("ERR {error}")),
    }
}

/// What a command wants changed, if it makes sense.
fn wanted(args: Args<'_>) -> Option<Change> {
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
        Some(node) if is(word, "add") => Some(Change::Add(node)),
        Some(node) if is(word, "remove") => Some(Change::Remove(node)),
        node if is(word, "transfer") => Some(Change::Transfer(node)),
        _ => None,
    }
}
