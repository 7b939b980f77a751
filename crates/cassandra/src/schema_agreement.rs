//! Agreement of nodes on the schema: a table that one of them has just made may be unknown to
//! others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cql::{Consistency, ResultBody, ValueList, Version};

use crate::cql_connection::{ConnectionError, CqlConnection, PreparedStatement};

/// How long they may take to agree.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval at which they are asked.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until all nodes have the same schema.
///
/// # Errors
/// One of them does not answer, or they do not agree within a minute.
pub fn agree(nodes: &[SocketAddr]) -> Result<(), ConnectionError> {
    let mut connections = Vec::new();
    for node in nodes {
        let mut connection = CqlConnection::connect(*node, Version::V4)?;
        let statement = connection.prepare("SELECT schema_version FROM system.local")?;
        connections.push((connection, statement));
    }
    let begun = Instant::now();
    loop {
        let versions: Vec<_> = connections
            .iter_mut()
            .map(version)
            .collect::<Result<_, _>>()?;
        if versions.windows(2).all(|two| two[0] == two[1]) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(ConnectionError::Disagreement);
        }
        std::thread::sleep(LOOK);
    }
}

fn version(
    (connection, statement): &mut (CqlConnection, PreparedStatement),
) -> Result<Vec<u8>, ConnectionError> {
    let look = |body: ResultBody<'_>| match body {
        ResultBody::Rows(rows) => {
            let version = rows.iter().next().and_then(|row| *row.first()?);
            Ok(version.unwrap_or_default().to_vec())
        }
        other => {
            let what = format!("a node tells no schema but {other:?}");
            Err(ConnectionError::Protocol(what))
        }
    };
    connection.execute(statement, &ValueList::new(), Consistency::One, look)
}
