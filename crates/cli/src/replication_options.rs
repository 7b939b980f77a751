//! Options of the replication of `kumiki serve`.

use std::time::Duration;

use clap::Args;

use crate::argument_values::parse_time;

/// Options of a replica.
#[derive(Args, Debug)]
#[command(next_help_heading = "Replication")]
pub(crate) struct ReplicationOptions {
    /// With a replicated partition: the transactions of so many clients go through one append, one
    /// sync and one transfer at most; what a client sends in a pipeline counts once. With 1 each
    /// transaction goes by itself. Default: 64.
    #[arg(
        long,
        value_name = "N",
        requires = "file",
        value_parser = clap::value_parser!(u32).range(1..=4096)
    )]
    pub(crate) group: Option<u32>,
    /// With a replicated partition: plain Raft, for comparison. One transaction at a time goes
    /// through consensus, and is executed after it. Transactions over several partitions are not
    /// served.
    #[arg(long, requires = "file", conflicts_with = "group")]
    pub(crate) naive: bool,
    /// With a replicated partition: the leader answers reads without asking the others, as long as
    /// its clock guarantees that no other node leads. It needs clocks whose speeds differ by less
    /// than a tenth.
    #[arg(long, requires = "file")]
    pub(crate) lease_reads: bool,
    /// With a replicated partition: a node that hears nothing of its leader for so long, or up to
    /// twice as long, wants to lead; the same on all nodes. What READONLY connections read from
    /// other nodes than the leader is no older than this. Default: 1s.
    #[arg(long, value_name = "TIME", requires = "file", value_parser = parse_election)]
    pub(crate) election_timeout: Option<Duration>,
}

/// The time after which a leader that is silent is replaced.
const ELECTION: Duration = Duration::from_secs(1);

impl ReplicationOptions {
    /// Returns the time after which a leader that is silent is replaced.
    pub(crate) fn election(&self) -> Duration {
        self.election_timeout.unwrap_or(ELECTION)
    }
}

fn parse_election(text: &str) -> Result<Duration, String> {
    let time = parse_time(text).ok_or("it is not a time such as 1s or 300ms")?;
    let sensible = Duration::from_millis(50)..=Duration::from_secs(60);
    if sensible.contains(&time) {
        Ok(time)
    } else {
        Err("it lies between 50ms and 60s".to_owned())
    }
}
