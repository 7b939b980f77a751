//! `cargo xtask …`: developers' commands. `cargo xtask help` lists them.

#![forbid(unsafe_code)]

mod arguments;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use xtask::build::{self, Build};
use xtask::server::Program;
use xtask::{
    arch, bench, cassandra, chaos, ci, cluster, crash, failover, fuzz, interrupt, peers, rdma, sim,
    smoke, trace,
};

use crate::arguments::{Arguments, Task};

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
        Task::Ci { only } => ci::run(only.as_deref()),
        Task::Peers => peers::install(),
        Task::Arch => arch::check(),
        Task::Rdma { filter } => rdma::run(filter.as_deref()),
        Task::Cluster {
            nodes,
            replicas,
            read_atomic,
            transport,
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
                shape: cluster::Shape {
                    replicas,
                    read_atomic,
                },
                base_port,
                dir: data,
                transport,
                restart,
            };
            cluster::run(&Program::Kumiki { binary, args }, &options)
        }
        Task::Cassandra {
            nodes,
            heap,
            paxos,
            dir,
            keep,
        } => cassandra::run(&cassandra::Wish {
            nodes,
            heap_mib: heap,
            paxos,
            dir,
            keep,
        }),
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
        Task::Failover {
            kills,
            stops,
            nodes,
            election_timeout,
            seed,
            binary: given,
            out,
            server: args,
        } => {
            let options = failover::Options {
                nodes,
                election: election_timeout,
                kills,
                stops,
                seed: seed.unwrap_or_else(|| fastrand::u64(..)),
                out: Some(out),
            };
            let binary = binary(given, Build::Honest)?;
            failover::run(&Program::Kumiki { binary, args }, &options)
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
        Task::BenchReplicas {
            quick,
            keys,
            binary: given,
            noisy,
            out,
        } => {
            let (repetitions, seconds) = if quick { (3, 0.7) } else { (5, 2.0) };
            let options = bench::replicas::Options {
                keys,
                repetitions,
                seconds,
                noisy,
                out,
            };
            bench::replicas::run(&binary(given, Build::Honest)?, &options)
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
