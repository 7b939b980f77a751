//! Asks the source for its state, and has its writers wait, over a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use super::receiver::SourceAddress;
use crate::node_connection::NodeConnection;

/// How long the source may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module's description.
pub(super) struct SourceMonitor {
    source: Arc<SourceAddress>,
    connection: Option<NodeConnection>,
}

/// What the source says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SourceState {
    /// The offset of the last byte of its stream.
    pub(super) offset: u64,
    /// It is a replica of another server.
    pub(super) is_replica: bool,
    /// It is a node of a Redis Cluster.
    pub(super) in_cluster: bool,
}

impl SourceMonitor {
    pub(super) fn new(source: &Arc<SourceAddress>) -> SourceMonitor {
        SourceMonitor {
            source: Arc::clone(source),
            connection: None,
        }
    }

    /// Returns the source's state.
    ///
    /// # Errors
    /// The text says why it is not known.
    pub(super) fn state(&mut self) -> Result<SourceState, String> {
        let text = self.ask(&["INFO", "everything"])?;
        parse(&text).ok_or_else(|| "its answer to INFO has no master_repl_offset".to_owned())
    }

    /// Has commands that write wait at the source, for this long.
    ///
    /// # Errors
    /// The text says why it does not do so.
    pub(super) fn pause_writers(&mut self, time: Duration) -> Result<(), String> {
        let time = time.as_millis().to_string();
        self.ask(&["CLIENT", "PAUSE", &time, "WRITE"]).map(drop)
    }

    /// Ends the pause.
    ///
    /// # Errors
    /// The text says why it does not do so.
    pub(super) fn resume_writers(&mut self) -> Result<(), String> {
        self.ask(&["CLIENT", "UNPAUSE"]).map(drop)
    }

    fn ask(&mut self, args: &[&str]) -> Result<String, String> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => NodeConnection::connect(self.source.address, &self.source.credentials)?,
        };
        let answer = connection.ask(args, PATIENCE)?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

fn parse(info: &str) -> Option<SourceState> {
    let field = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    Some(SourceState {
        offset: field("master_repl_offset")?.trim().parse().ok()?,
        is_replica: field("role").is_some_and(|role| role.trim() == "slave"),
        in_cluster: field("cluster_enabled").is_some_and(|flag| flag.trim() == "1"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_found_among_all_that_the_source_says() {
        let text = "# Replication\r\nrole:master\r\nmaster_repl_offset:12\r\n# Cluster\r\ncluster_enabled:1\r\n";
        let expected = SourceState {
            offset: 12,
            is_replica: false,
            in_cluster: true,
        };
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("role:master\r\n"), None);
    }
}
