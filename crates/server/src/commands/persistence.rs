//! Commands on persistence: checkpoints on request, and stopping.
//!
//! Checkpoints do not make data durable, the log does; they shorten the next start and the log. The
//! words are Redis's, so that its clients and tools understand them.

use resp::Args;
use store::CheckpointRefused;

use super::arguments::is;
use crate::background_job::{AfterJob, BackgroundJob, stop_server};
use crate::command::CommandKind::{Deferred, Local};
use crate::command::{CommandDefinition, DeferredAnswer, commands};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "bgsave" -1 "admin noscript no_async_loading" NONE("") "" ""
        "1.0.0" "O(1)",
        Local(bgsave), "Begins a checkpoint in the background.";
    "save" 1 "admin noscript no_multi no_async_loading" NONE("") "" ""
        "1.0.0" "O(N) where N is the number of keys.",
        Deferred(save), "Makes a checkpoint, and answers when it is there.";
    "lastsave" 1 "loading stale fast" NONE("") "admin dangerous" "nondeterministic_output"
        "1.0.0" "O(1)",
        Local(lastsave), "When the last checkpoint was finished.";
    "shutdown" -1 "admin noscript loading stale no_multi allow_busy immediate" NONE("") "" ""
        "1.0.0" "O(1), with SAVE O(N) where N is the number of keys.",
        Deferred(shutdown), "Stops the server once what it has received is answered and durable.";
};

const RUNNING: &str = "ERR Background save already in progress";
const NOTHING_TO_SAVE: &str =
    "ERR this server keeps data in memory only (--ephemeral): there is nowhere to save to";

fn bgsave(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let mut writer = session.writer();
    // SCHEDULE puts a save off until another job is done: there is no other job to wait for.
    let scheduled = args.len() == 2 && is(args.at(1), "schedule");
    if args.len() > 1 && !scheduled {
        return writer.error("ERR syntax error");
    }
    match context.shared.partition.request_checkpoint() {
        Ok(()) if context.in_block => writer.status("Background saving scheduled"),
        Ok(()) => writer.status("Background saving started"),
        Err(CheckpointRefused::AlreadyRunning) => writer.error(RUNNING),
        Err(CheckpointRefused::Ephemeral) => writer.error(NOTHING_TO_SAVE),
        Err(CheckpointRefused::Failed(reason)) => cannot_save(session, &reason),
    }
}

fn save(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    _: Args<'_>,
) -> Option<DeferredAnswer> {
    if context.shared.partition.checkpoint_status().running {
        session.writer().error(RUNNING);
        return None;
    }
    checkpoint(context, session, AfterJob::Reply)
}

/// Begins a checkpoint that the client waits for.
fn checkpoint(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    then: AfterJob,
) -> Option<DeferredAnswer> {
    if context.shared.config.data.is_none() {
        session.writer().error(NOTHING_TO_SAVE);
        return None;
    }
    match BackgroundJob::checkpoint(&context.shared, session.client.runtime, then) {
        Ok(job) => Some(DeferredAnswer::Job(job)),
        Err(error) => {
            cannot_save(session, &error.to_string());
            None
        }
    }
}

fn cannot_save(session: &mut ClientSession, reason: &str) {
    let reason = reason.replace(['\r', '\n'], " ");
    let text = format!("ERR no checkpoint was made: {reason}");
    session.writer().error(&text);
}

fn lastsave(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let checkpoints = context.shared.partition.checkpoint_status();
    let ms = context.shared.last_save_ms(&checkpoints);
    session.writer().int((ms / 1000) as i64);
}

fn shutdown(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) -> Option<DeferredAnswer> {
    let (save, force) = shutdown_options(session, args)?;
    tracing::info!(client = %session.client.address, "a client asked for shutdown");
    match (save, force) {
        (false, _) => {
            stop_server(&context.shared, session);
            None
        }
        (true, false) => checkpoint(context, session, AfterJob::Stop),
        (true, true) => checkpoint(context, session, AfterJob::StopAnyway),
    }
}

/// Returns whether `SHUTDOWN` makes a checkpoint, and whether it stops in any case. Answers with an
/// error if it does not stop.
fn shutdown_options(session: &mut ClientSession, args: Args<'_>) -> Option<(bool, bool)> {
    let [mut save, mut nosave, mut force, mut abort] = [false; 4];
    let mut valid = true;
    for arg in args.from(1).iter() {
        match arg.to_ascii_lowercase().as_slice() {
            b"save" => save = true,
            b"nosave" => nosave = true,
            b"force" => force = true,
            // NOW says not to wait for replicas that lag behind; there are none.
            b"now" => {}
            b"abort" => abort = true,
            _ => valid = false,
        }
    }
    if !valid || (save && nosave) || (abort && args.len() > 2) {
        session.writer().error("ERR syntax error");
        return None;
    }
    if abort {
        session.writer().error("ERR No shutdown in progress.");
        return None;
    }
    Some((save, force))
}
