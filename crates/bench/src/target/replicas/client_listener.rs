//! The leader's side of clients that are another process: a task for each connection, on the thread
//! that has the leader's worker. A connection is a client, with a session of its own.

use std::io;
use std::rc::Rc;

use base::codec::{decode_ops, write_replies};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::counter_client::CounterExecutor;
use super::frames::FrameConnection;
use super::shared_worker::{SharedWorker, WorkerSession};
use crate::error::RunError;

/// Serves connections until it is dropped.
pub(super) async fn serve(listener: TcpListener, worker: Rc<SharedWorker>) {
    loop {
        // A client whose connection fails reports that itself.
        if let Ok((stream, _)) = listener.accept().await {
            let session = WorkerSession::new(&worker);
            spawn_local(async move {
                let _ = serve_client(stream, session).await;
            });
        }
    }
}

async fn serve_client(stream: TcpStream, mut session: WorkerSession) -> io::Result<()> {
    let mut connection = FrameConnection::new(stream)?;
    while let Some(request) = connection.receive().await? {
        let outcome = match decode_ops(request) {
            Ok(ops) => session.execute(&ops).await,
            Err(error) => Err(RunError::of(error)),
        };
        let answer = connection.send(|to| match outcome {
            Ok(replies) => {
                to.push(0);
                write_replies(&replies, to);
            }
            Err(error) => {
                to.push(1);
                to.extend_from_slice(error.to_string().as_bytes());
            }
        });
        answer.await?;
    }
    Ok(())
}
