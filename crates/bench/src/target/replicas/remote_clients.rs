//! Clients that are a process of their own, and reach the leader over TCP.
//!
//! A program that runs experiments starts itself with `replica-clients CONFIGURATION` for it, where
//! `CONFIGURATION` is a [`ReplicaClientsConfig`] as JSON, and calls [`serve_clients`]. The process
//! writes a [`ClientMessage`] in each line of its standard output.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use base::Op;
use base::codec::{Reader, encode_ops, read_replies};
use base::partition::OwnedReply;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use super::counter_client::{CounterClient, CounterExecutor, CounterShare};
use super::frames::FrameConnection;
use super::state_check::{AcknowledgedAdditions, AdditionLedger};
use crate::driver::{DrivePlan, LoadSchedule, WindowEdge, client_runtime, drive_tasks};
use crate::error::RunError;
use crate::machine;
use crate::sample::MetricValues;

/// The configuration of such a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplicaClientsConfig {
    /// The address at which it reaches the leader.
    pub leader: SocketAddr,
    /// Clients, each with a connection, and with one request under way.
    pub clients: usize,
    /// Transactions of a request.
    pub bulk: usize,
    /// Counters, which the clients share out among them.
    pub counters: u64,
    /// The seed of the random choices.
    pub seed: u64,
    /// Time that does not count.
    pub warm_up: Duration,
    /// Time that counts.
    pub time: Duration,
}

/// What the process says.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ClientMessage {
    /// The time that counts begins.
    Begin,
    /// It ends.
    End,
    /// All clients have their last answer.
    Done(ClientReport),
    /// A client has failed.
    Failed(String),
}

/// The results of the clients.
#[derive(Serialize, Deserialize)]
pub(super) struct ClientReport {
    pub(super) values: MetricValues,
    /// Requests that count.
    pub(super) requests: u64,
    /// The length of the time that counts, in seconds.
    pub(super) seconds: f64,
    /// Processor time of the process meanwhile, in seconds.
    pub(super) cpu: f64,
    /// What was acknowledged.
    pub(super) acknowledged: Vec<AcknowledgedAdditions>,
}

/// A connection to the leader.
struct RemoteSession(FrameConnection);

impl CounterExecutor for RemoteSession {
    async fn execute(&mut self, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, RunError> {
        let failed = |error: std::io::Error| RunError::failed("asking the leader")(&error);
        self.0
            .send(|to| encode_ops(ops, to))
            .await
            .map_err(failed)?;
        match self.0.receive().await.map_err(failed)? {
            Some([0, replies @ ..]) => {
                read_replies(&mut Reader::new(replies)).map_err(RunError::of)
            }
            Some([_, text @ ..]) => Err(String::from_utf8_lossy(text).into_owned().into()),
            Some([]) | None => Err("the leader has closed the connection".into()),
        }
    }
}

/// Runs the clients, and reports on standard output.
///
/// # Errors
/// Returns an error if the configuration is malformed, or if nothing reads the output.
pub fn serve_clients(config: &str) -> Result<(), RunError> {
    let config: ReplicaClientsConfig = serde_json::from_str(config).map_err(RunError::of)?;
    let last = match run(&config) {
        Ok(report) => ClientMessage::Done(report),
        Err(error) => ClientMessage::Failed(error.to_string()),
    };
    write_message(&last)
}

fn write_message(message: &ClientMessage) -> Result<(), RunError> {
    let line = serde_json::to_string(message).map_err(RunError::of)?;
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(RunError::of)
}

fn run(config: &ReplicaClientsConfig) -> Result<ClientReport, RunError> {
    let runtime = client_runtime()?;
    let ledger = AdditionLedger::new(config.counters);
    let mut clients = Vec::new();
    for client in 1..=config.clients as u64 {
        let stream = runtime.block_on(TcpStream::connect(config.leader));
        let connection = stream.and_then(FrameConnection::new);
        let connection = connection.map_err(|error| RunError::failed("connecting")(&error))?;
        let share = CounterShare {
            client,
            clients: config.clients as u64,
            counters: config.counters,
        };
        let session = RemoteSession(connection);
        let (bulk, seed) = (config.bulk, config.seed);
        clients.push(CounterClient::new(session, &ledger, bulk, share, seed));
    }
    let plan = DrivePlan {
        pace: LoadSchedule::Closed,
        warm_up: config.warm_up,
        time: config.time,
    };
    let mut used = [0.0; 2];
    let mut told = Ok(());
    let at = |edge| {
        let message = match edge {
            WindowEdge::Begin => ClientMessage::Begin,
            WindowEdge::End => ClientMessage::End,
        };
        used[usize::from(edge == WindowEdge::End)] = machine::own_cpu();
        if let Err(error) = write_message(&message) {
            told = Err(error);
        }
    };
    let (driven, _) = drive_tasks(&runtime, clients, plan, &AtomicBool::new(false), at)?;
    told?;
    let mut values = MetricValues::default();
    driven.add_figures(&mut values);
    Ok(ClientReport {
        values,
        requests: driven.transactions,
        seconds: driven.window.as_secs_f64(),
        cpu: used[1] - used[0],
        acknowledged: ledger.counts(),
    })
}
