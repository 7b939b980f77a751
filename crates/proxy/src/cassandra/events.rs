//! Events of nodes. One connection of the proxy registers with one node for all events; of these,
//! clients receive changes of the schema. The proxy handles by itself that nodes come and go: clients
//! see only the proxy.
//!
//! A node that loses its power closes no connection, so a silent node is asked regularly for its schema
//! version. If the version has changed when the proxy next registers with a node, some events were
//! missed. Then the proxy sends clients events that all keyspaces have changed, and drivers read them
//! again.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cql::event::{Change, SchemaChange, SchemaTarget};
use cql::notation::NotationReader;
use cql::request::Request;
use cql::{CqlValue, Event, EventKind, Response};

use super::control_connection::ControlConnection;
use super::shared_state::CassandraState;
use crate::error::ProxyError;
use crate::seeds::SeedAddresses;

/// Interval at which the listener checks if it must stop.
const LOOK: Duration = Duration::from_millis(250);
/// The pause before the listener connects to another node.
const REST: Duration = Duration::from_millis(500);

/// A node that has sent nothing for this time is sent a request that shows if it lives.
const SILENCE: Duration = Duration::from_secs(5);

/// The schema as last seen.
#[derive(Default)]
struct Schema {
    version: Option<CqlValue>,
    keyspaces: BTreeSet<String>,
}

impl Schema {
    /// Reads a node's schema. Returns the events for the changes since the last time.
    fn look(&mut self, asked: &mut ControlConnection) -> Result<Vec<Bytes>, ProxyError> {
        let table = asked.query("SELECT schema_version FROM system.local WHERE key = 'local'")?;
        let row = table.rows.first();
        let version = row.and_then(|row| table.value(row, "schema_version"));
        let version = version.cloned();
        if self.version == version {
            return Ok(Vec::new());
        }
        let table = asked.query("SELECT keyspace_name FROM system_schema.keyspaces")?;
        let rows = table.rows.iter();
        let names = rows.filter_map(|row| table.text(row, "keyspace_name"));
        let keyspaces: BTreeSet<String> = names.map(str::to_owned).collect();
        let before = std::mem::replace(&mut self.keyspaces, keyspaces);
        if std::mem::replace(&mut self.version, version).is_none() {
            return Ok(Vec::new());
        }
        let dropped = before.difference(&self.keyspaces);
        let dropped = dropped.map(|name| (Change::Dropped, name));
        let there = self.keyspaces.iter().map(|name| {
            let is_old = before.contains(name);
            let change = if is_old {
                Change::Updated
            } else {
                Change::Created
            };
            (change, name)
        });
        Ok(dropped.chain(there).map(of_keyspace).collect())
    }
}

/// Returns the body of the event that a keyspace has changed.
fn of_keyspace((change, keyspace): (Change, &String)) -> Bytes {
    let target = SchemaTarget::Keyspace;
    let event = Event::Schema(SchemaChange {
        change,
        keyspace,
        target,
    });
    let mut body = Vec::new();
    event.write(&mut body);
    body.into()
}

/// Listens to one node after another until the proxy stops.
pub(crate) fn listen(state: &CassandraState, seeds: &SeedAddresses) {
    let mut turn = 0;
    let mut schema = Schema::default();
    while !state.is_stopping() {
        let addresses = state.addresses(seeds);
        let address = addresses[turn % addresses.len()];
        turn += 1;
        if let Err(what) = listen_to(state, address, &mut schema) {
            tracing::debug!(node = %address, %what, "a node tells no events");
        }
        // No connection received the events of the meantime.
        state.request_refresh();
        if !state.is_stopping() {
            std::thread::sleep(REST);
        }
    }
}

fn listen_to(
    state: &CassandraState,
    address: SocketAddr,
    schema: &mut Schema,
) -> Result<(), ProxyError> {
    let mut asked = ControlConnection::connect(address, &state.options)?;
    let register = Request::Register(EventKind::ALL.to_vec());
    asked.ask(register, |response| match response {
        Response::Ready => Ok(()),
        other => Err(ProxyError::malformed(format!(
            "answers REGISTER by {:?}",
            other.opcode()
        ))),
    })?;
    for body in schema.look(&mut asked)? {
        tracing::info!("the schema has changed while no node was listened to");
        state.schema_changed(body);
    }
    let mut heard = Instant::now();
    while !state.is_stopping() {
        let event = asked
            .event(LOOK)
            .map_err(|error| ProxyError::unavailable(error.to_string()))?;
        if let Some(body) = event {
            handle_event(state, body);
            heard = Instant::now();
        } else if heard.elapsed() >= SILENCE {
            // The node has sent the events for these changes.
            schema.look(&mut asked)?;
            heard = Instant::now();
        }
    }
    Ok(())
}

fn handle_event(state: &CassandraState, body: Bytes) {
    match Event::read(&mut NotationReader::new(&body)) {
        Ok(Event::Schema(_)) => state.schema_changed(body.clone()),
        Ok(Event::Status(_, address)) => {
            state.setting.nodes.hint(address);
            state.request_refresh();
        }
        Ok(Event::Topology(..)) => state.request_refresh(),
        Err(error) => tracing::warn!(%error, "a node tells what is no event"),
    }
}
