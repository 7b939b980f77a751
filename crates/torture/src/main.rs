//! The harnesses. `cargo xtask` builds this program and passes their command lines on to it.

#![forbid(unsafe_code)]

mod arguments;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use torture::server::Program;
use torture::{
    bench, cassandra, chaos, cluster, crash, failover, fuzz, headline, sim, smoke, trace,
};
use xtask::{build, interrupt};

use crate::arguments::{Arguments, Task};

fn main() -> ExitCode {
    let task = Arguments::parse().task;
    match interrupt::install().and_then(|()| run(task)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("torture: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
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
            let program = program(given, None, args)?;
            let options = cluster::Options {
                nodes,
                shape: cluster::ClusterFileShape {
                    replicas,
                    read_atomic,
                },
                base_port,
                dir: data,
                transport,
                restart,
            };
            cluster::run(&program, &options)
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
            cluster,
            checkpoints,
            planted,
            subject,
            server,
        } => {
            let seed = seed.unwrap_or_else(|| fastrand::u64(..));
            let default = match cluster {
                Some(_) => crash::CrashBug::EarlyDecision,
                None => crash::CrashBug::EarlyReply,
            };
            let bug = planted.map(|bug| bug.unwrap_or(default).name());
            let keep = planted.is_none();
            let verdict = match cluster {
                Some(nodes) => {
                    let options = crash::nodes::Options {
                        rounds,
                        seed,
                        nodes,
                        connections,
                        keep,
                        checkpoints,
                    };
                    let program = program(subject.binary, bug, server)?.with(disk.arguments());
                    crash::nodes::run(&program, &options)?
                }
                None => {
                    let options = crash::Options {
                        rounds,
                        seed,
                        connections,
                        keep,
                        checkpoints,
                        server,
                    };
                    crash::run(&subject.program(bug)?.with(disk.arguments()), &options)?
                }
            };
            match bug {
                Some(_) => crash::require_found(&verdict),
                None => crash::require_clean(&verdict),
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
                rounds: rounds.unwrap_or(planted.map_or(u64::MAX, chaos::ChaosBug::rounds)),
                time: Duration::from_secs_f64(minutes * 60.0),
                history,
                planted,
            };
            let program = program(given, planted.map(chaos::ChaosBug::name), vec![])?;
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
            failover::run(&program(given, None, args)?, &options)
        }
        Task::Trace { planted, subject } => {
            let bug = planted.then_some("early-reply");
            let complaints = trace::run(&subject.program(bug)?)?;
            match planted {
                true => trace::require_early(&complaints),
                false => trace::require_clean(&complaints),
            }
        }
        Task::Sim { protocol, options } => sim::run(protocol, &options),
        Task::Smoke { binary } => smoke::run(&program(binary, None, vec![])?),
        Task::Fuzz {
            target,
            seconds,
            seed,
        } => {
            let seed = seed.unwrap_or_else(|| fastrand::u64(..));
            let time = Duration::from_secs(seconds);
            match target {
                Some(target) => fuzz::run(target, time, seed),
                None => fuzz::run_all(time),
            }
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
            bench::cluster::run(&published(given)?, &options)
        }
        Task::BenchReplicas {
            quick,
            keys,
            binary: given,
            noisy,
            io,
            out,
        } => {
            let (repetitions, seconds) = if quick { (3, 0.7) } else { (5, 2.0) };
            let options = bench::replicas::Options {
                keys,
                repetitions,
                seconds,
                noisy,
                io,
                out,
            };
            bench::replicas::run(&published(given)?, &options)
        }
        Task::Headline {
            old,
            new,
            rounds,
            only,
            instructions,
            data,
        } => headline::run(&headline::Options {
            old,
            new,
            quantity: match instructions {
                true => headline::Quantity::Instructions,
                false => headline::Quantity::Speed { rounds },
            },
            only,
            data,
        }),
        Task::BenchRedis {
            quick,
            keys,
            noisy,
            out,
            mode,
            io,
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
                io,
            };
            bench::run(&published(given)?, &options)
        }
        Task::BenchPublish {
            subscribers,
            quick,
            binary: given,
        } => {
            let (rounds, time) = if quick { (1, 1) } else { (5, 4) };
            let options = bench::publish::Options {
                subscribers,
                rounds,
                time: Duration::from_secs(time),
            };
            bench::publish::run(&published(given)?, &options)
        }
        Task::BenchHostile {
            quick,
            binary: given,
            io,
        } => {
            let (rounds, time) = if quick { (3, 1) } else { (5, 4) };
            let options = bench::hostile::Options {
                rounds,
                time: Duration::from_secs(time),
                io,
            };
            bench::hostile::run(&published(given)?, &options)
        }
        Task::BenchCollections {
            quick,
            parts,
            binary: given,
            io,
        } => {
            let (rounds, requests) = if quick { (1, 200_000) } else { (5, 400_000) };
            let options = bench::collections::options::Options {
                rounds,
                requests,
                parts,
                io,
            };
            bench::collections::run(&published(given)?, &options)
        }
        Task::Echo { listen, io } => bench::echo::run(listen, &io),
    }
}

/// Returns the server that is judged: the given binary, or one that is built; with a bug, one in
/// which bugs can be planted.
fn program(
    given: Option<PathBuf>,
    bug: Option<&'static str>,
    args: Vec<String>,
) -> Result<Program> {
    let binary = binary(given, bug.is_some())?;
    Ok(Program::Kumiki { binary, args, bug })
}

fn binary(given: Option<PathBuf>, with_bugs: bool) -> Result<PathBuf> {
    given.map_or_else(|| build::kumiki(with_bugs), Ok)
}

/// Returns the server that is measured: the given binary, or one that is built like a release.
fn published(given: Option<PathBuf>) -> Result<PathBuf> {
    given.map_or_else(build::published, Ok)
}
