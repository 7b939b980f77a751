//! `cargo xtask …`: developers' commands. `cargo xtask help` lists them.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use xtask::bench::cell::Mode;
use xtask::build::{self, Build};
use xtask::chaos;
use xtask::crash::{self, Disk};
use xtask::fuzz::{self, Target};
use xtask::server::Program;
use xtask::sim::{self, Bug, Protocol};
use xtask::{arch, bench, ci, cluster, interrupt, peers, smoke, trace};

/// Developers' commands of Kumiki.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that must hold before a change is taken.
    Ci,
    /// Install the programs that tests and benchmarks stand beside, and print their versions.
    Peers,
    /// Hold ARCHITECTURE.md against the crates.
    Arch,
    /// Start a cluster on this machine and look after it until Ctrl-C.
    Cluster {
        /// How many nodes.
        #[arg(default_value_t = 4)]
        nodes: u16,
        /// How many of them hold the same partition: 1, or 3 and more, of which less than half may
        /// fail. The number of nodes is a multiple of this.
        #[arg(long, value_name = "R", default_value_t = 1)]
        replicas: u16,
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
    /// Kill the real server under load and compare what is left with what was acknowledged.
    Crash {
        /// How many kills.
        #[arg(long, default_value_t = 100)]
        rounds: u64,
        /// The file layer below the server.
        #[arg(long, value_enum, default_value_t = Disk::Forgetful)]
        disk: Disk,
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
        planted: Option<chaos::Bug>,
        /// Judge this binary instead of building one.
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// Trace system calls and check that the sync stands before each reply.
    Trace {
        #[command(flatten)]
        subject: Subject,
    },
    /// Simulate whole clusters under faults; each seed is a schedule that can be played again.
    Sim {
        /// The protocol.
        protocol: Protocol,
        /// How many seeds.
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
        /// Play this seed alone, and tell everything that happens.
        #[arg(long, conflicts_with = "seeds")]
        seed: Option<u64>,
        /// Build with this planted bug, and succeed only if a seed finds it.
        #[arg(long, value_enum)]
        planted: Option<Bug>,
    },
    /// The README's first minute: serve, set, kill, serve again, get.
    Smoke,
    /// Feed mutated inputs to a parser.
    Fuzz {
        /// The parser.
        target: Target,
        /// For how long.
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
        /// Only this way of keeping data.
        #[arg(long, value_enum)]
        mode: Vec<Mode>,
    },
}

/// What a harness judges: by default, a server built for it.
#[derive(Args)]
struct Subject {
    /// Build the server with a planted bug (it replies before the sync) and succeed only if the
    /// bug is found.
    #[arg(long)]
    planted: bool,
    /// Judge redis-server with `appendfsync always` instead, to check the harness itself.
    #[arg(long, conflicts_with = "planted")]
    redis: bool,
    /// Judge this binary instead of building one.
    #[arg(long, conflicts_with = "redis")]
    binary: Option<PathBuf>,
}

impl Subject {
    fn program(&self) -> Result<Program> {
        if self.redis {
            let args = ["--appendonly", "yes", "--appendfsync", "always"].map(String::from);
            return Ok(Program::Redis {
                args: args.to_vec(),
            });
        }
        let build = if self.planted {
            Build::PlantedEarlyReply
        } else {
            Build::Honest
        };
        Ok(Program::Kumiki {
            binary: binary(self.binary.clone(), build)?,
            args: vec![],
        })
    }
}

fn main() -> ExitCode {
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
        Task::Ci => ci::run_all(),
        Task::Peers => peers::install(),
        Task::Arch => arch::check(),
        Task::Cluster {
            nodes,
            replicas,
            base_port,
            data,
            ephemeral,
            restart,
            binary: given,
            server: mut args,
        } => {
            if ephemeral {
                args.push("--ephemeral".to_owned());
            }
            let binary = binary(given, Build::Honest)?;
            let options = cluster::Options {
                nodes,
                replicas,
                base_port,
                dir: data,
                restart,
            };
            cluster::run(&Program::Kumiki { binary, args }, &options)
        }
        Task::Crash {
            rounds,
            disk,
            seed,
            connections,
            cluster: Some(nodes),
            checkpoints,
            subject,
            server,
        } => {
            let options = crash::nodes::Options {
                rounds,
                seed: seed.unwrap_or_else(|| fastrand::u64(..)),
                nodes,
                connections,
                keep: !subject.planted,
                checkpoints,
            };
            let build = if subject.planted {
                Build::PlantedEarlyDecision
            } else {
                Build::Honest
            };
            let binary = binary(subject.binary, build)?;
            let args = server;
            let program = Program::Kumiki { binary, args }.with(disk.arguments());
            let verdict = crash::nodes::run(&program, &options)?;
            match subject.planted {
                true => crash::nodes::require_found(&verdict),
                false => crash::require_clean(&verdict),
            }
        }
        Task::Crash {
            rounds,
            disk,
            seed,
            connections,
            cluster: None,
            checkpoints,
            subject,
            server,
        } => {
            let seed = seed.unwrap_or_else(|| fastrand::u64(..));
            let options = crash::Options {
                rounds,
                seed,
                connections,
                keep: !subject.planted,
                checkpoints,
                server,
            };
            let verdict = crash::run(&subject.program()?.with(disk.arguments()), &options)?;
            match subject.planted {
                true => crash::require_loss(&verdict),
                false => crash::require_clean(&verdict),
            }
        }
        Task::Chaos {
            minutes,
            rounds,
            nodes,
            seed,
            history,
            planted,
            binary: given,
        } => {
            let options = chaos::Options {
                nodes,
                seed: seed.unwrap_or_else(|| fastrand::u64(..)),
                rounds: rounds.unwrap_or(planted.map_or(u64::MAX, chaos::Bug::rounds)),
                time: Duration::from_secs_f64(minutes * 60.0),
                history,
                planted,
            };
            let build = planted.map_or(Build::Honest, chaos::Bug::build);
            let program = Program::Kumiki {
                binary: binary(given, build)?,
                args: vec![],
            };
            let verdict = chaos::run(&program, &options)?;
            match planted {
                Some(_) => chaos::require_found(&verdict),
                None => chaos::require_clean(&verdict),
            }
        }
        Task::Trace { subject } => {
            let complaints = trace::run(&subject.program()?)?;
            match subject.planted {
                true => trace::require_early(&complaints),
                false => trace::require_clean(&complaints),
            }
        }
        Task::Sim {
            protocol,
            seeds,
            seed,
            planted,
        } => sim::run(protocol, seeds, seed, planted),
        Task::Smoke => smoke::run(),
        Task::Fuzz {
            target,
            seconds,
            seed,
        } => {
            let seed = seed.unwrap_or_else(|| fastrand::u64(..));
            fuzz::run(target, Duration::from_secs(seconds), seed)
        }
        Task::BenchCluster {
            quick,
            binary: given,
            out,
        } => {
            let (rounds, operations, seconds) = if quick { (3, 100, 0.5) } else { (7, 500, 2.0) };
            let options = bench::cluster::Options {
                rounds,
                operations,
                reading: Duration::from_secs_f64(seconds),
                out,
            };
            bench::cluster::run(&binary(given, Build::Honest)?, &options)
        }
        Task::BenchRedis {
            quick,
            keys,
            noisy,
            out,
            mode,
            binary: given,
        } => {
            let (repetitions, seconds) = if quick { (3, 0.7) } else { (5, 2.0) };
            let options = bench::Options {
                keys,
                repetitions,
                seconds,
                noisy,
                out,
                modes: mode,
            };
            bench::run(&binary(given, Build::Honest)?, &options)
        }
    }
}

fn binary(given: Option<PathBuf>, build: Build) -> Result<PathBuf> {
    given.map_or_else(|| build::kumiki(build), Ok)
}
