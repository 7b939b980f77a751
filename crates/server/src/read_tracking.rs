//! Client-side caching, as commands use it: enters the keys that they read into the table of tracked keys.

use std::sync::Arc;

use resp::Args;

use crate::command::{CommandDefinition, CommandFlags, CommandKind};
use crate::routing::Routes;
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;
use crate::tracking::TrackedClient;

/// Returns a client of this runtime as the table of tracked keys has it.
pub(crate) fn tracked(session: &ClientSession, ignores_own: bool) -> TrackedClient {
    TrackedClient {
        id: session.client.id,
        runtime: session.client.runtime,
        connection: session.key,
        ignores_own,
    }
}

/// Tracks the keys that a command is about to read, if its client wants that.
#[inline]
pub(crate) fn track_reads(
    context: &RuntimeContext,
    session: &mut ClientSession,
    command: &CommandDefinition,
    args: Args<'_>,
) {
    if session.tracking.is_none() {
        return;
    }
    // Scripts are not reads of their own: the commands that they call are.
    if command.flags.has(CommandFlags::READ) && !is_script(command) {
        let keys = command.keys.indexes(args);
        track(context, session, keys.map(|at| args.at(at)));
    }
}

fn is_script(command: &CommandDefinition) -> bool {
    matches!(command.kind, CommandKind::Script(_))
}

#[cold]
fn track<'a>(
    context: &RuntimeContext,
    session: &mut ClientSession,
    keys: impl Iterator<Item = &'a [u8]>,
) {
    let Some(tracking) = session.tracking.as_ref().filter(|own| own.tracks_reads()) else {
        return;
    };
    let client = tracked(session, tracking.ignores_own);
    let shared = &context.shared;
    let announces_all = shared.partition.announces_all();
    for key in keys {
        let elsewhere = |routes: &Arc<Routes>| !routes.is_own(cluster::slot::of(key));
        // Of some keys no news come: those of other nodes, and all of them while commits are on their way
        // that began before there was a client that wants news.
        if shared.routes.as_ref().is_some_and(elsewhere) || !announces_all {
            session.untracked.push(key.into());
        } else if shared.tracking.add(key, client) {
            shared.signals[0].wake();
        }
    }
}

/// Ends the client-side caching of a client, if it is on.
pub(crate) fn end_tracking(context: &RuntimeContext, session: &mut ClientSession) {
    if let Some(tracking) = session.tracking.take() {
        let id = session.client.id;
        context.shared.tracking.end(id, &tracking.prefixes);
        session.client.note_tracking(None);
        context.shared.update_listening();
    }
}
