//! Work that a client waits for and that another thread does: a checkpoint, a change of members, reading of files.

use std::sync::Arc;

use parking_lot::Mutex;
use store::{BackupError, CheckpointError};

use crate::runtime_context::RuntimeContext;
use crate::server_state::ServerState;
use crate::session::ClientSession;

/// See the module's description.
pub(crate) struct BackgroundJob {
    outcome: Arc<Mutex<Option<Outcome>>>,
    what: &'static str,
    then: AfterJob,
}

/// The reply to the client, or the reason of the failure.
type Outcome = Result<JobReply, JobError>;

/// The reply of a job that succeeded.
pub(crate) enum JobReply {
    Ok,
    Text(String),
    Bytes(Vec<u8>),
}

/// Why a job has failed. Nothing has changed, so that it may be tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The members of the partition were not changed; the text says why.
    #[error("{0}")]
    Members(String),
    /// The thread of the job has not finished.
    #[error("it has not ended")]
    Unfinished,
}

/// The action after a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterJob {
    /// Its client is answered.
    Reply,
    /// The server stops if the job succeeded.
    Stop,
    /// The server stops in any case.
    StopAnyway,
}

impl BackgroundJob {
    /// Starts a checkpoint; `runtime` is woken when it has ended.
    pub(crate) fn checkpoint(
        shared: &Arc<ServerState>,
        runtime: usize,
        then: AfterJob,
    ) -> std::io::Result<BackgroundJob> {
        // The store's own thread makes the checkpoint; this one waits on behalf of the runtime. It
        // does nothing but sleep, so that it may share the runtime's processor.
        BackgroundJob::begin(shared, runtime, then, "a checkpoint", |shared| {
            shared.partition.checkpoint()?;
            Ok(JobReply::Ok)
        })
    }

    /// Starts `work` on a thread of its own; `runtime` is woken when it has ended.
    pub(crate) fn begin(
        shared: &Arc<ServerState>,
        runtime: usize,
        then: AfterJob,
        what: &'static str,
        work: impl FnOnce(&ServerState) -> Outcome + Send + 'static,
    ) -> std::io::Result<BackgroundJob> {
        let outcome = Arc::new(Mutex::new(None));
        let (slot, shared) = (Arc::clone(&outcome), Arc::clone(shared));
        let wait = move || {
            let done = work(&shared);
            *slot.lock() = Some(done);
            shared.signals[runtime].wake();
        };
        let name = "job".to_owned();
        std::thread::Builder::new().name(name).spawn(wait)?;
        Ok(BackgroundJob {
            outcome,
            what,
            then,
        })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.outcome.lock().is_some()
    }

    /// Returns the outcome, once.
    fn outcome(&self) -> Outcome {
        let outcome = self.outcome.lock().take();
        outcome.unwrap_or(Err(JobError::Unfinished))
    }

    /// Answers, or stops the server, once the job has ended.
    pub(crate) fn finish(&self, context: &RuntimeContext, session: &mut ClientSession) {
        let outcome = self.outcome();
        if let Err(reason) = &outcome {
            tracing::error!(%reason, "a client asked for {}, in vain", self.what);
        }
        match (self.then, outcome) {
            (AfterJob::Reply, Ok(JobReply::Ok)) => session.writer().ok(),
            (AfterJob::Reply, Ok(JobReply::Text(text))) => {
                session.writer().verbatim(b"txt", text.as_bytes());
            }
            (AfterJob::Reply, Ok(JobReply::Bytes(bytes))) => session.writer().bulk(&bytes),
            (AfterJob::Reply, Err(reason)) => session.writer().error(&format!("ERR {reason}")),
            (AfterJob::Stop, Err(_)) => session
                .writer()
                .error("ERR Errors trying to SHUTDOWN. Check logs."),
            (AfterJob::Stop, Ok(_)) | (AfterJob::StopAnyway, _) => {
                stop_server(&context.shared, session);
            }
        }
    }
}

/// Stops the server at the request of a client.
pub(crate) fn stop_server(server: &Arc<ServerState>, session: &mut ClientSession) {
    server.stop();
    // As in Redis, the client recognizes success by the end of the connection.
    session.closing = true;
}
