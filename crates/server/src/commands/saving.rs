//! Commands on persistence: checkpoints on request, and stopping.
//!
//! Checkpoints do not make data durable, the log does; they shorten the next start and the log. The
//! words are Redis's, so that its clients and tools understand them.

use resp::Args;
use store::CheckpointRefused;

use super::is;
use crate::connection::Connection;
use crate::figures;
use crate::shared::Context;
use crate::task::{Job, Task, Then};

const RUNNING: &str = "ERR Background save already in progress";
const NOTHING_TO_SAVE: &str =
    "ERR this server keeps data in memory only (--ephemeral): there is nowhere to save to";

pub(super) fn bgsave(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let mut writer = connection.writer();
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
        Err(CheckpointRefused::Failed(reason)) => cannot_save(connection, &reason),
    }
}

pub(super) fn save(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    if context.shared.partition.checkpoint_status().running {
        return connection.writer().error(RUNNING);
    }
    begin(context, connection, Then::Reply);
}

/// Makes the connection wait for a checkpoint.
fn begin(context: &mut Context, connection: &mut Connection, then: Then) {
    if context.shared.config.data.is_none() {
        return connection.writer().error(NOTHING_TO_SAVE);
    }
    match Job::checkpoint(&context.shared, connection.client.runtime, then) {
        Ok(task) => connection.task = Some(Task::Job(task)),
        Err(error) => cannot_save(connection, &error.to_string()),
    }
}

fn cannot_save(connection: &mut Connection, reason: &str) {
    let reason = reason.replace(['\r', '\n'], " ");
    let text = format!("ERR no checkpoint was made: {reason}");
    connection.writer().error(&text);
}

/// Answers, or stops the server, once a job has ended.
pub(crate) fn finish_job(context: &mut Context, connection: &mut Connection, job: &Job) {
    let outcome = job.outcome();
    if let Err(reason) = &outcome {
        tracing::error!(%reason, "a client asked for {}, in vain", job.what);
    }
    match (job.then, outcome) {
        (Then::Reply, Ok(())) => connection.writer().ok(),
        (Then::Reply, Err(reason)) => connection.writer().error(&format!("ERR {reason}")),
        (Then::Stop, Err(_)) => connection
            .writer()
            .error("ERR Errors trying to SHUTDOWN. Check logs."),
        (Then::Stop, Ok(())) | (Then::StopAnyway, _) => stop(context, connection),
    }
}

pub(super) fn lastsave(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let checkpoints = context.shared.partition.checkpoint_status();
    let ms = figures::last_save_ms(&context.shared, &checkpoints);
    connection.writer().int((ms / 1000) as i64);
}

pub(super) fn shutdown(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let [mut save, mut nosave, mut force, mut abort] = [false; 4];
    for arg in args.from(1).iter() {
        match arg.to_ascii_lowercase().as_slice() {
            b"save" => save = true,
            b"nosave" => nosave = true,
            b"force" => force = true,
            // NOW says not to wait for replicas that lag behind; there are none.
            b"now" => {}
            b"abort" => abort = true,
            _ => return connection.writer().error("ERR syntax error"),
        }
    }
    if (save && nosave) || (abort && args.len() > 2) {
        return connection.writer().error("ERR syntax error");
    }
    if abort {
        return connection.writer().error("ERR No shutdown in progress.");
    }
    tracing::info!(client = %connection.client.address, "a client asked for shutdown");
    match (save, force) {
        (false, _) => stop(context, connection),
        (true, false) => begin(context, connection, Then::Stop),
        (true, true) => begin(context, connection, Then::StopAnyway),
    }
}

fn stop(context: &mut Context, connection: &mut Connection) {
    context.shared.stop();
    // As in Redis, the client recognizes success by the end of the connection.
    connection.state.closing = true;
}
