//! `cargo xtask …`: developers' commands. `cargo xtask help` lists them.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::nightly::{self, Part};
use xtask::{arch, ci, interrupt, lints, pairs, peers, rdma, redis_suite};

/// Developers' commands of Kumiki.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = HARNESSES)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

/// What the other program offers; its help says more.
const HARNESSES: &str = "\
Harnesses, which are built when they are asked for (`cargo xtask NAME --help`):
  crash          Kill the real server under load and compare what is left with what was acknowledged
  chaos          Hurt a replicated partition of real processes and judge what its clients saw
  failover       Kill the leader of a replicated partition, again and again
  trace          Check by system calls that the sync stands before each reply
  sim            Simulate whole clusters under faults, each from one seed
  fuzz           Feed mutated inputs to parsers
  smoke          The README's first minute
  cluster        Start a cluster on this machine
  cassandra      Start Cassandra nodes on this machine
  bench-cluster, bench-replicas, bench-redis, bench-hostile, bench-publish,
  bench-collections
                 Measure the real server";

#[derive(Subcommand)]
enum Task {
    /// Check everything that must hold before a change is taken: with CI=true in the environment all of
    /// it, otherwise what has changed since it last passed.
    Ci {
        /// Run only the steps whose names contain this.
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
        /// Run also the steps that have passed before with the same inputs.
        #[arg(long)]
        all: bool,
        /// Check format, architecture, lints and the unit tests of what has changed.
        #[arg(long, conflicts_with_all = ["only", "all"])]
        quick: bool,
        /// With --quick: what differs from this commit has changed; default: the last commit, or the one
        /// before it if the working tree has no changes.
        #[arg(long, value_name = "COMMIT", requires = "quick")]
        since: Option<String>,
    },
    /// Run what takes too long for each change: full numbers, all clients and peers, real verbs.
    Nightly {
        /// Run only this part.
        #[arg(long, value_enum)]
        part: Option<Part>,
    },
    /// Install the programs that tests and benchmarks stand beside, and print their versions.
    Peers {
        /// Only these groups; all of them if none is given.
        groups: Vec<peers::PeerGroup>,
    },
    /// Compare ARCHITECTURE.md with the crates.
    Arch {
        /// Print instead which modules of this crate's longest cycle use which.
        #[arg(long, value_name = "CRATE")]
        cycle: Option<String>,
    },
    /// Measure the headline figures of two commits or binaries by turns, and judge the newer one.
    Pairs(pairs::Options),
    /// Run Redis's own test suite against a server, and compare its results with the list of tests that are left out.
    RedisSuite(redis_suite::Options),
    /// Run the tests over real verbs, in a small machine that has an RDMA device.
    Rdma {
        /// Only tests whose names contain this, or the experiment of this name.
        filter: Option<String>,
    },
    /// Start a harness.
    #[command(external_subcommand)]
    Harness(Vec<OsString>),
}

fn main() -> ExitCode {
    if let Some(code) = lints::compile() {
        return code;
    }
    let task = Arguments::parse().task;
    match interrupt::install().and_then(|()| run(task)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Ci {
            quick: true, since, ..
        } => ci::quick::run(since.as_deref()),
        Task::Ci { only, all, .. } => ci::run(&ci::Options { only, all }),
        Task::Nightly { part } => nightly::run(part),
        Task::Peers { groups } if groups.is_empty() => peers::install(peers::PeerGroup::ALL),
        Task::Peers { groups } => peers::install(&groups),
        Task::Arch { cycle: Some(name) } => arch::print_cycle(&name),
        Task::Arch { cycle: None } => arch::check(),
        Task::Pairs(options) => pairs::run(&options),
        Task::RedisSuite(options) => redis_suite::run(&options),
        Task::Rdma { filter } => rdma::run(filter.as_deref()),
        Task::Harness(line) => ci::harness::run(&line),
    }
}
