//! The process of the clients, as its starter sees it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::remote_clients::{ClientMessage, ClientReport, ReplicaClientsConfig};
use crate::driver::WindowEdge;
use crate::error::RunError;

/// The process. It is killed when this is dropped.
pub(super) struct ClientProcess(Child);

impl ClientProcess {
    /// Starts it. Its reports come from the second result.
    pub(super) fn start(
        program: &Path,
        config: &ReplicaClientsConfig,
    ) -> Result<(ClientProcess, ClientReports), RunError> {
        let config = serde_json::to_string(config).map_err(RunError::of)?;
        let mut command = Command::new(program);
        command.args(["replica-clients", &config]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let started = command.spawn();
        let mut child = started.map_err(|error| RunError::failed("starting clients")(&error))?;
        let output = child.stdout.take().ok_or("the clients have no output")?;
        Ok((ClientProcess(child), ClientReports(output)))
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // An error means that it has ended already, which `wait` reports.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the process says.
pub(super) struct ClientReports(ChildStdout);

impl ClientReports {
    /// Reads until the end, and calls `at` at both ends of the time that counts.
    pub(super) fn read(self, mut at: impl FnMut(WindowEdge)) -> Result<ClientReport, RunError> {
        for line in BufReader::new(self.0).lines() {
            let line = line.map_err(RunError::of)?;
            let message = serde_json::from_str(&line);
            match message.map_err(|error| RunError::failed("reading from clients")(&error))? {
                ClientMessage::Begin => at(WindowEdge::Begin),
                ClientMessage::End => at(WindowEdge::End),
                ClientMessage::Done(report) => return Ok(report),
                ClientMessage::Failed(what) => return Err(RunError::Failed(what)),
            }
        }
        Err("the process of the clients has ended without a result".into())
    }
}
