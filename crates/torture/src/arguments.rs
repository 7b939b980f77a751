//! The command line of the harnesses.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use torture::bench::cell::BenchMode;
use torture::cassandra::Paxos;
use torture::chaos;
use torture::crash::{CrashBug, ServerDisk};
use torture::fuzz::Target;
use torture::server::Program;
use torture::sim::{self, SimulatedProtocol};

use crate::program;

/// The harnesses of Kumiki: they start the real binary, hurt it, and judge what its clients saw.
#[derive(Parser)]
#[command(name = "torture", bin_name = "cargo xtask")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Start a cluster on this machine and look after it until Ctrl-C.
    Cluster {
        /// How many nodes.
        #[arg(default_value_t = 4)]
        nodes: u16,
        /// How many of them hold the same partition: 1, or 3 and more, of which less than half may
        /// fail. The number of nodes is a multiple of this.
        #[arg(long, value_name = "R", default_value_t = 1)]
        replicas: u16,
        /// Keys with this prefix are read atomic; may be given several times.
        #[arg(long, value_name = "PREFIX")]
        read_atomic: Vec<String>,
        /// How messages between nodes travel, and which ways they take part in with Rust clients:
        /// shm is memory of this machine, from which such clients also read read-atomic keys
        /// without asking.
        #[arg(long, value_name = "HOW", value_parser = ["auto", "tcp", "shm", "verbs", "shm-send", "verbs-send"])]
        transport: Option<String>,
        /// The port at which clients find the first node; the others follow.
        #[arg(long, default_value_t = 7001)]
        base_port: u16,
        /// Where data and logs lie; they stay.
        #[arg(long, default_value = "target/cluster")]
        data: PathBuf,
        /// Keep everything in memory.
        #[arg(long)]
        ephemeral: bool,
        /// Start a node again that has died.
        #[arg(long)]
        restart: bool,
        /// Start this binary instead of building one.
        #[arg(long)]
        binary: Option<PathBuf>,
        /// Further arguments of the nodes.
        #[arg(last = true)]
        server: Vec<String>,
    },
    /// Start Cassandra nodes at 127.0.0.1 and so on, port 9042, and stop them on Ctrl-C.
    Cassandra {
        /// How many nodes.
        #[arg(default_value_t = 1)]
        nodes: u8,
        /// Java's heap of each node; a node takes about 600 MiB besides.
        #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = mebibytes)]
        heap: u64,
        /// How lightweight transactions agree.
        #[arg(long, value_name = "HOW", default_value = "v1", value_parser = paxos)]
        paxos: Paxos,
        /// Where data and logs lie; they stay.
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Keep data and logs, in target/cassandra.
        #[arg(long, conflicts_with = "dir")]
        keep: bool,
    },
    /// Kill the real server under load and compare what is left with what was acknowledged.
    Crash {
        /// How many kills.
        #[arg(long, default_value_t = 100)]
        rounds: u64,
        /// The file layer below the server.
        #[arg(long, value_enum, default_value_t = ServerDisk::Forgetful)]
        disk: ServerDisk,
        /// Seed of the load; drawn and printed if not given.
        #[arg(long)]
        seed: Option<u64>,
        /// Connections that drive load.
        #[arg(long, default_value_t = 4)]
        connections: usize,
        /// A cluster of so many nodes instead of one server; some of them are killed in each round.
        #[arg(long, value_name = "NODES", conflicts_with = "redis")]
        cluster: Option<u16>,
        /// Let the server make checkpoints all the time, and segments small.
        #[arg(long)]
        checkpoints: bool,
        /// Build the server with this planted bug, and succeed only if it is found. Without a name: early-reply, or
        /// early-decision in a cluster.
        #[arg(long, value_enum, value_name = "BUG", conflicts_with = "redis")]
        planted: Option<Option<CrashBug>>,
        #[command(flatten)]
        subject: Subject,
        /// Further arguments of the server, in place of settings of the log that change with
        /// each start.
        #[arg(last = true)]
        server: Vec<String>,
    },
    /// Hurt a replicated partition of real processes: links cut one way and both ways, SIGKILL,
    /// SIGSTOP, full and lost disks; and judge what its clients saw. It takes root's rights.
    Chaos {
        /// For how long; the last round is played to its end.
        #[arg(long, default_value_t = 10.0)]
        minutes: f64,
        /// At most so many rounds.
        #[arg(long)]
        rounds: Option<u64>,
        /// How many nodes: 3 or 5.
        #[arg(long, default_value_t = 3)]
        nodes: u16,
        /// Seed of load and faults; drawn and printed if not given.
        #[arg(long)]
        seed: Option<u64>,
        /// Write the history of each round here, over that of the last one.
        #[arg(long, value_name = "FILE")]
        history: Option<PathBuf>,
        /// Build with this planted bug, and succeed only if it is found.
        #[arg(long, value_enum)]
        planted: Option<chaos::ChaosBug>,
        /// Judge this binary instead of building one.
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// Kill the leader of a replicated partition under load, again and again, and measure how long
    /// no node leads. Nothing that was acknowledged may be missing in the end.
    Failover {
        /// How many leaders get SIGKILL.
        #[arg(long, default_value_t = 50)]
        kills: usize,
        /// How many leaders get SIGTERM afterwards, and hand over.
        #[arg(long, default_value_t = 10)]
        stops: usize,
        /// How many nodes hold the partition: three or more.
        #[arg(long, default_value_t = 3)]
        nodes: u16,
        /// What the nodes are told; see `kumiki serve --help`.
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
        election_timeout: Duration,
        /// Seed of the moments; drawn and printed if not given.
        #[arg(long)]
        seed: Option<u64>,
        /// Measure this binary instead of building one.
        #[arg(long)]
        binary: Option<PathBuf>,
        /// Where the JSON file goes.
        #[arg(long, default_value = "results")]
        out: PathBuf,
        /// Further arguments of the nodes.
        #[arg(last = true)]
        server: Vec<String>,
    },
    /// Trace system calls and check that the sync stands before each reply.
    Trace {
        /// Build the server with a planted bug (it replies before the sync) and succeed only if the
        /// bug is found.
        #[arg(long, conflicts_with = "redis")]
        planted: bool,
        #[command(flatten)]
        subject: Subject,
    },
    /// Simulate whole clusters under faults; each seed is a schedule that can be played again.
    Sim {
        /// The protocol.
        protocol: SimulatedProtocol,
        #[command(flatten)]
        options: sim::Options,
    },
    /// The README's first minute: serve, set, kill, serve again, get.
    Smoke {
        /// Judge this binary instead of building one.
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// Feed mutated inputs to a parser.
    Fuzz {
        /// The parser; all of them if none is given, one after the other on each processor.
        target: Option<Target>,
        /// For how long, each.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Seed of the inputs; drawn and printed if not given.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Measure what transactions and reads over several nodes cost.
    BenchCluster {
        /// Fewer and shorter rounds.
        #[arg(long)]
        quick: bool,
        /// Measure this binary instead of building one.
        #[arg(long)]
        binary: Option<PathBuf>,
        /// Where the JSON file goes.
        #[arg(long, default_value = "results")]
        out: PathBuf,
    },
    /// Compare a replicated partition, read by read index and by lease, with one node.
    BenchReplicas {
        /// Fewer and shorter runs.
        #[arg(long)]
        quick: bool,
        /// Keys in each store.
        #[arg(long, default_value_t = 100_000)]
        keys: u64,
        /// Measure this binary instead of building one.
        #[arg(long)]
        binary: Option<PathBuf>,
        /// Measure although others use the machine.
        #[arg(long)]
        noisy: bool,
        /// As `--io` of `kumiki serve`.
        #[arg(long, default_value = "epoll", value_parser = ["auto", "epoll", "uring"])]
        io: String,
        /// Where the JSON file goes.
        #[arg(long, default_value = "results")]
        out: PathBuf,
    },
    /// Measure the headline figures of two binaries side by side, one JSON object a line;
    /// `cargo xtask pairs` starts this and judges.
    Headline {
        /// The binary that is compared with.
        #[arg(long)]
        old: PathBuf,
        /// The binary that is judged.
        #[arg(long)]
        new: PathBuf,
        /// How often each figure is measured, with servers that are started anew.
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// Only figures whose names contain this; may be given several times.
        #[arg(long, value_name = "TEXT")]
        only: Vec<String>,
        /// Count instructions instead of taking the time.
        #[arg(long, conflicts_with = "rounds")]
        instructions: bool,
        /// Where the servers' files lie: in memory, unless a device is to be measured as well.
        #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
        data: PathBuf,
    },
    /// Compare the server's speed with redis-server's on this machine.
    BenchRedis {
        /// Fewer and shorter runs.
        #[arg(long)]
        quick: bool,
        /// Keys in each store.
        #[arg(long, default_value_t = 1_000_000)]
        keys: u64,
        /// Measure this binary instead of building one.
        #[arg(long)]
        binary: Option<PathBuf>,
        /// Measure although others use the machine.
        #[arg(long)]
        noisy: bool,
        /// Where the JSON file goes.
        #[arg(long, default_value = "results")]
        out: PathBuf,
        /// Only this way of keeping data and of encrypting connections.
        #[arg(long, value_enum)]
        mode: Vec<BenchMode>,
        /// How the server waits for its connections, as `--io` of `kumiki serve`.
        #[arg(long, default_value = "auto", value_parser = ["auto", "epoll", "uring"])]
        io: String,
    },
    /// Measure what one slow or hostile connection costs the other clients of its thread.
    BenchHostile {
        /// Fewer and shorter runs.
        #[arg(long)]
        quick: bool,
        /// Measure this binary instead of building one.
        #[arg(long)]
        binary: Option<PathBuf>,
        /// How the server waits for its connections, as `--io` of `kumiki serve`.
        #[arg(long, default_value = "auto", value_parser = ["auto", "epoll", "uring"])]
        io: String,
    },
    /// Compare deliveries to the subscribers of a channel with redis-server's.
    BenchPublish {
        /// Subscribers of the channel.
        #[arg(long, default_value_t = 1000)]
        subscribers: usize,
        /// Fewer and shorter runs.
        #[arg(long)]
        quick: bool,
        /// Measure this binary instead of building one.
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// Compare hashes, lists, sets, sorted sets and streams with redis-server's: speed, memory, large ones.
    BenchCollections {
        /// Fewer and shorter runs.
        #[arg(long)]
        quick: bool,
        /// Only these parts.
        #[arg(long, value_enum, value_delimiter = ',')]
        parts: Vec<crate::bench::collections::options::Measurement>,
        /// Measure this binary instead of building one.
        #[arg(long)]
        binary: Option<PathBuf>,
        /// How the server waits for its connections, as `--io` of `kumiki serve`.
        #[arg(long, default_value = "auto", value_parser = ["auto", "epoll", "uring"])]
        io: String,
    },
    /// Serve by sending back what comes: the floor that the network sets to every server. `bench-redis` starts it.
    #[command(hide = true)]
    Echo {
        /// The address for clients.
        listen: SocketAddr,
        /// As `--io` of `kumiki serve`.
        #[arg(long)]
        io: String,
    },
}

/// The server that a harness judges: by default, one that is built for it.
#[derive(Args)]
pub(crate) struct Subject {
    /// Judge redis-server with `appendfsync always` instead, to check the harness itself.
    #[arg(long)]
    redis: bool,
    /// Judge this binary instead of building one.
    #[arg(long, conflicts_with = "redis")]
    pub(crate) binary: Option<PathBuf>,
}

impl Subject {
    /// Returns the server that is judged, built if need be, with this planted bug.
    ///
    /// # Errors
    /// Returns an error if it cannot be built.
    pub(crate) fn program(&self, bug: Option<&'static str>) -> Result<Program> {
        if self.redis {
            let args = ["--appendonly", "yes", "--appendfsync", "always"].map(String::from);
            return Ok(Program::Redis {
                args: args.to_vec(),
            });
        }
        program(self.binary.clone(), bug, vec![])
    }
}

/// Parses a time such as 1s or 300ms.
fn time(text: &str) -> Result<Duration> {
    let of = |digits: &str| digits.parse::<u64>().ok();
    let time = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(digits), _) => of(digits).map(Duration::from_millis),
        (None, Some(digits)) => of(digits).map(Duration::from_secs),
        (None, None) => None,
    };
    time.context("it is not a time such as 1s or 300ms")
}

/// Parses a size such as 512m or 2g. Returns MiB.
fn mebibytes(text: &str) -> Result<u64> {
    let of = |digits: &str| digits.parse::<u64>().ok();
    let size = match (text.strip_suffix('m'), text.strip_suffix('g')) {
        (Some(digits), _) => of(digits),
        (_, Some(digits)) => of(digits).and_then(|size| size.checked_mul(1024)),
        (None, None) => None,
    };
    let size = size.filter(|size| (300..=65_536).contains(size));
    size.context("it is not a size such as 512m or 1g, from 300m to 64g")
}

fn paxos(text: &str) -> Result<Paxos> {
    let all = [Paxos::V1, Paxos::V2];
    let found = all.into_iter().find(|paxos| paxos.name() == text);
    found.context("it is v1 or v2")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn a_cluster_is_told_how_messages_travel() {
        let transport = |line: &str| {
            let line = format!("xtask cluster 4 {line}");
            match Arguments::try_parse_from(line.split_whitespace())?.task {
                Task::Cluster {
                    nodes, transport, ..
                } => Ok((nodes, transport)),
                _ => panic!("another task"),
            }
        };
        let parsed = |line| transport(line).map_err(|error: clap::Error| error.to_string());
        assert_eq!(parsed(""), Ok((4, None)));
        let given = Ok((4, Some("shm".to_owned())));
        assert_eq!(parsed("--transport shm"), given);
        assert_eq!(parsed("--transport shm --restart"), given);
        let refused = parsed("--transport pigeons").unwrap_err();
        assert!(refused.contains("auto, tcp, shm, verbs"), "{refused}");
    }

    #[test]
    fn cassandra_is_told_its_heap_and_how_it_agrees() {
        assert_eq!(mebibytes("512m").ok(), Some(512));
        assert_eq!(mebibytes("2g").ok(), Some(2048));
        for wrong in ["512", "m", "10m", "999999999g", "-1g", ""] {
            assert!(mebibytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(paxos("v2").ok(), Some(Paxos::V2));
        assert!(paxos("v3").is_err());
    }

    #[test]
    fn the_command_line_is_sound_and_times_have_units() {
        Arguments::command().debug_assert();
        assert_eq!(time("1s").ok(), Some(Duration::from_secs(1)));
        assert_eq!(time("300ms").ok(), Some(Duration::from_millis(300)));
        assert!(time("300").is_err() && time("s").is_err());
    }
}
