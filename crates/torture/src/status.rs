//! A node's report on its replica: some of the lines of `CLUSTER REPLICATION STATUS`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use testkit::{Client, Reply};

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The part of the report that the harnesses need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedStatus {
    /// `leader`, `follower`, or something else while it does not take part.
    pub role: String,
    /// Its term.
    pub term: u64,
    /// The last entry that it knows to be committed.
    pub committed: u64,
    /// The last entry that it has executed.
    pub applied: u64,
}

impl ReportedStatus {
    /// Asks the node whose clients connect at `address`.
    ///
    /// # Errors
    /// Returns an error if it does not answer within ten seconds, or with something else.
    pub fn of(address: SocketAddr) -> Result<ReportedStatus> {
        let mut client = Client::connect_within(address, PATIENCE)?;
        let reply = client.expect(&["CLUSTER", "REPLICATION", "STATUS"])?;
        let Reply::Bulk(text) = reply else {
            bail!("the node at {address} says {reply:?} of its replica");
        };
        let text = String::from_utf8_lossy(&text);
        ReportedStatus::parse(&text).with_context(|| format!("the node at {address} says {text:?}"))
    }

    /// Parses lines `name:value`.
    fn parse(text: &str) -> Option<ReportedStatus> {
        let field = |name: &str| {
            let fields = text.lines().filter_map(|line| line.split_once(':'));
            fields
                .into_iter()
                .find_map(|(n, value)| (n == name).then_some(value))
        };
        let number = |name| field(name)?.parse().ok();
        Some(ReportedStatus {
            role: field("role")?.to_owned(),
            term: number("term")?,
            committed: number("committed")?,
            applied: number("applied")?,
        })
    }

    /// Returns `true` if it takes part, and has executed entry `wanted`.
    #[must_use]
    pub fn is_level(&self, wanted: u64) -> bool {
        matches!(&*self.role, "leader" | "follower") && self.applied >= wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_level_when_it_takes_part_and_has_everything() {
        let text = "partition:1\r\nrole:follower\r\nleader:3\r\nterm:4\r\nlast:9\r\n\
                    committed:8\r\napplied:7\r\nmember:node=1,id=65537,voter=1,active=1,matched=9\r\n";
        let status = ReportedStatus::parse(text).unwrap();
        assert_eq!((status.term, status.committed), (4, 8));
        assert!(status.is_level(7) && !status.is_level(8));
        let candidate = ReportedStatus::parse(&text.replace("follower", "candidate")).unwrap();
        assert!(!candidate.is_level(7));
        assert_eq!(ReportedStatus::parse("role:leader\r\n"), None);
    }
}
