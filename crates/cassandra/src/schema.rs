//! Agreement of nodes on the schema: a table that one of them has just made may be unknown to
//! others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cql::{Consistency, ResultBody, ValueList, Version};

use super::{Link, Statement};

/// How long they may take to agree.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval at which they are asked.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until all nodes have the same schema.
///
/// # Errors
/// One of them does not answer, or they do not agree within a minute.
pub fn agree(nodes: &[SocketAddr]) -> Result<(), String> {
    let mut links = Vec::new();
    for node in nodes {
        let mut link = Link::connect(*node, Version::V4)?;
        let statement = link.prepare("SELECT schema_version FROM system.local")?;
        links.push((link, statement));
    }
    let begun = Instant::now();
    loop {
        let versions: Vec<_> = links.iter_mut().map(version).collect::<Result<_, _>>()?;
        if versions.windows(2).all(|two| two[0] == two[1]) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err("the nodes do not agree on the schema".to_owned());
        }
        std::thread::sleep(LOOK);
    }
}

fn version((link, statement): &mut (Link, Statement)) -> Result<Vec<u8>, String> {
    let look = |body: ResultBody<'_>| match body {
        ResultBody::Rows(rows) => {
            let version = rows.iter().next().and_then(|row| *row.first()?);
            Ok(version.unwrap_or_default().to_vec())
        }
        other => Err(format!("a node tells no schema but {other:?}")),
    };
    link.execute(statement, &ValueList::new(), Consistency::One, look)
}
