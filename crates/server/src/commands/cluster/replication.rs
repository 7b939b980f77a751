//! `CLUSTER REPLICATION`: what a node says of its replica, and changes of the members. It is
//! Kumiki's own; `kumiki cluster` sends it.

use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use replica::MembershipChange;
use resp::Args;

use crate::background_job::{AfterJob, BackgroundJob, JobError, JobReply};
use crate::command::DeferredAnswer;
use crate::commands::arguments::is;
use crate::replication::{ALONE, Report};
use crate::runtime_context::RuntimeContext;
use crate::server_state::ServerState;
use crate::session::ClientSession;

/// How long a change may take. The member gives up earlier unless a copy gets on.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
const NOT_REPLICATED: &str = "ERR this node's partition is not replicated: give it three or more nodes in the cluster's file";

/// Returns what the node reports about its partition.
fn report(shared: &ServerState) -> Report {
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

/// Executes `CLUSTER REPLICATION`.
pub(super) fn replication(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) -> Option<DeferredAnswer> {
    let word = args.at(2);
    if is(word, "status") && args.len() == 3 {
        let text = report(&context.shared).to_string();
        session.writer().verbatim(b"txt", text.as_bytes());
        return None;
    }
    let Some(change) = change_of(args) else {
        session.writer().error(
            "ERR give CLUSTER REPLICATION STATUS, ADD node, REMOVE node or TRANSFER [node], where a \
             node is its number in the cluster's file",
        );
        return None;
    };
    if context.shared.partition.replicated().is_none() {
        session.writer().error(NOT_REPLICATED);
        return None;
    }
    tracing::info!(client = %session.client.address, ?change, "a client asked for this");
    match begin(&context.shared, session.client.runtime, change) {
        Ok(job) => Some(DeferredAnswer::Job(job)),
        Err(error) => {
            session.writer().error(&format!("ERR {error}"));
            None
        }
    }
}

/// Begins a change of the members; `runtime` is woken when it has ended.
fn begin(
    server: &Arc<ServerState>,
    runtime: usize,
    change: MembershipChange,
) -> std::io::Result<BackgroundJob> {
    let what = "a change of members";
    BackgroundJob::begin(server, runtime, AfterJob::Reply, what, move |server| {
        let own = server.partition.replicated();
        let own = own.ok_or_else(|| JobError::Members(NOT_REPLICATED.to_owned()))?;
        let changed = own.member().change(change, CHANGE_TIMEOUT);
        changed.map_err(|error| JobError::Members(error.to_string()))?;
        Ok(JobReply::Ok)
    })
}

/// Parses the change that a command requests; `None` if there is no such change.
fn change_of(args: Args<'_>) -> Option<MembershipChange> {
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
