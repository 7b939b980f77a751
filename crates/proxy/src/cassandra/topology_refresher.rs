//! Keeps the knowledge of the nodes up to date, and notices when all of them have the same schema.
//!
//! A thread asks the nodes: at the start, when something shows that the knowledge is old, and at
//! regular intervals.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::control_connection::ControlConnection;
use super::lock_table::schema::{self, TableUse};
use super::node_connection::Options;
use super::read_atomic::designated_table;
use super::shared_state::CassandraState;
use super::topology::{CassandraTopology, topology};
use crate::error::ProxyError;
use crate::seeds::SeedAddresses;

/// Interval at which the nodes are asked without a reason.
const ROUTINE: Duration = Duration::from_secs(10);
/// The shortest interval between two rounds of questions.
const REST: Duration = Duration::from_millis(20);
/// How long the refresher waits for nodes that have another schema.
const AGREEMENT: Duration = Duration::from_secs(10);
/// A node that does not answer is left out for this time.
const ABSENCE: Duration = Duration::from_secs(5);

/// The thread that asks the nodes. See the module documentation.
pub(crate) struct TopologyRefresher<'a> {
    state: &'a CassandraState,
    seeds: &'a SeedAddresses,
    connections: ControlConnections,
}

impl<'a> TopologyRefresher<'a> {
    pub(crate) fn new(
        state: &'a CassandraState,
        seeds: &'a SeedAddresses,
    ) -> TopologyRefresher<'a> {
        TopologyRefresher {
            state,
            seeds,
            connections: ControlConnections::default(),
        }
    }

    /// Keeps the knowledge up to date until it is stopped.
    pub(crate) fn run(&mut self) {
        while !self.state.is_stopping() {
            self.state.refresh.wait(ROUTINE);
            self.state.options.connection_keys.forget(Instant::now());
            let (wanted, changes) = self.state.take_requested_agreements();
            if wanted > self.state.agreed() {
                self.wait_for_agreement();
            }
            match self.look() {
                Ok(found) => self.state.learn(found),
                Err(tried) => {
                    tracing::warn!("no node tells which nodes there are: {}", tried.join("; "));
                }
            }
            if wanted > self.state.agreed() {
                self.state.record_agreement(wanted, changes);
            }
            std::thread::sleep(REST);
        }
    }

    /// Waits until all nodes that answer have one version of the schema.
    fn wait_for_agreement(&mut self) {
        let begun = Instant::now();
        let text = "SELECT schema_version FROM system.local WHERE key = 'local'";
        while begun.elapsed() < AGREEMENT && !self.state.is_stopping() {
            let mut versions = Vec::new();
            for address in self.state.addresses(self.seeds) {
                let asked = self
                    .connections
                    .ask(address, &self.state.options, |asked| asked.query(text));
                if let Ok(table) = asked {
                    let rows = table.rows.iter();
                    let found = rows.filter_map(|row| table.value(row, "schema_version"));
                    versions.extend(found.cloned());
                }
            }
            if versions.windows(2).all(|pair| pair[0] == pair[1]) {
                return;
            }
            std::thread::sleep(REST);
        }
        tracing::warn!("the nodes do not agree on the schema; going on without");
    }

    /// Asks one node after another until one reports the topology.
    fn look(&mut self) -> Result<CassandraTopology, Vec<String>> {
        let mut tried = Vec::new();
        for address in self.state.addresses(self.seeds) {
            let setting = &self.state.setting;
            let asked = self.connections.ask(address, &self.state.options, |asked| {
                let lock_tables = schema::ask(asked, &setting.lock_tables.tables, TableUse::Locks)?;
                let read_atomic = designated_table::ask(asked, &setting.read_atomic.tables)?;
                let known = topology(asked, address, &setting.nodes)?;
                Ok(CassandraTopology {
                    lock_tables,
                    read_atomic,
                    ..known
                })
            });
            match asked {
                Ok(known) => return Ok(known),
                Err(what) => tried.push(format!("{address} {what}")),
            }
        }
        Err(tried)
    }
}

/// Connections of the refresher, and the times at which nodes did not answer.
#[derive(Default)]
struct ControlConnections {
    connections: HashMap<SocketAddr, ControlConnection>,
    absent: HashMap<SocketAddr, Instant>,
}

impl ControlConnections {
    fn ask<T>(
        &mut self,
        address: SocketAddr,
        options: &Options,
        ask: impl Fn(&mut ControlConnection) -> Result<T, ProxyError>,
    ) -> Result<T, ProxyError> {
        if let Some(mut asked) = self.connections.remove(&address)
            && let Ok(answer) = ask(&mut asked)
        {
            self.connections.insert(address, asked);
            return Ok(answer);
        }
        if let Some(since) = self.absent.get(&address)
            && since.elapsed() < ABSENCE
        {
            return Err(ProxyError::unavailable("has not answered just now"));
        }
        let answer = ControlConnection::connect(address, options).and_then(|mut asked| {
            let answer = ask(&mut asked)?;
            Ok((answer, asked))
        });
        match answer {
            Ok((answer, asked)) => {
                self.absent.remove(&address);
                self.connections.insert(address, asked);
                Ok(answer)
            }
            Err(what) => {
                self.absent.insert(address, Instant::now());
                Err(what)
            }
        }
    }
}
