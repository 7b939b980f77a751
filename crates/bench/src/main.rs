//! The command `kumiki-bench`: experiments, their results, the report.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | everything was measured, and every check held; results were compared |
//! | 1 | a check failed, something could not be measured, a signal stopped the run, or nothing could be compared |
//! | 2 | the command line is malformed |
//! | 130 | a second signal came before the run had stopped |

#![forbid(unsafe_code)]

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use base::affinity::Affinity;
use bench::parameters::{Effort, Scale};
use bench::peers::Peers;
use bench::program::ProgramInfo;
use bench::result::MeasurementPrograms;
use bench::runner::{self, Options};
use bench::{difference, experiments, paper_proxy, report, storage_node, table, target};
use clap::{Args, Parser, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use testkit::peers::Selection;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Run experiments on Kumiki and report them.
#[derive(Parser, Debug)]
#[command(name = "kumiki-bench", version = buildinfo::VERSION, about)]
struct Arguments {
    #[command(subcommand)]
    what: Command,
    /// How much to log on standard error: off, error, warn, info, debug or trace, and after commas
    /// levels of single modules, for example info,kumiki_proxy=debug.
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        default_value = "info",
        overrides_with = "log_level"
    )]
    log_level: Targets,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the experiments.
    List,
    /// Run an experiment.
    Run(Box<RunArguments>),
    /// Be a storage node that is measured: an experiment starts this program again for it.
    #[command(hide = true)]
    StorageNode {
        /// The configuration of the node, as JSON.
        #[arg(value_name = "CONFIGURATION")]
        config: String,
    },
    /// Be a proxy as paper 3 describes it: an experiment starts this program again for it.
    #[command(hide = true)]
    PaperProxy {
        /// The configuration of the proxy, as JSON.
        #[arg(value_name = "CONFIGURATION")]
        config: String,
    },
    /// Be the network stack of paper 3's earlier proxy: an experiment starts this program again for it.
    #[command(hide = true)]
    PaperProxyNetwork {
        /// The configuration of the process, as JSON.
        #[arg(value_name = "CONFIGURATION")]
        config: String,
    },
    /// Be the clients of a replicated partition: an experiment starts this program again for them.
    #[command(hide = true)]
    ReplicaClients {
        /// The configuration of the clients, as JSON.
        #[arg(value_name = "CONFIGURATION")]
        config: String,
    },
    /// Compare two results, or two directories of them: medians, their quotients, and whether the
    /// repetitions are apart by more than chance.
    Diff {
        /// A result file, or a directory of them: what B is compared with.
        #[arg(value_name = "A")]
        a: PathBuf,
        /// Another one.
        #[arg(value_name = "B")]
        b: PathBuf,
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Draw all results in a directory into one page.
    Report {
        /// Where the results are, and where `report.html` goes.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

#[derive(Args, Debug)]
struct RunArguments {
    /// Which one; `kumiki-bench list` names them.
    #[arg(value_name = "NAME")]
    name: String,
    /// Fewer points and shorter runs: a minute, to see that the figures make sense.
    #[arg(long)]
    quick: bool,
    /// Where `NAME.json` goes.
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Record all transactions, judge them, and write them to this file as JSON lines. Runs are
    /// short then, and their figures say nothing.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Seconds that a run counts.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// Seconds that a run warms up before.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    warm_up: Option<Duration>,
    /// How often each point is measured.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: Option<u16>,
    /// Keys in a store.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    records: Option<u64>,
    /// Worker threads, where an experiment does not sweep them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    workers: Option<u16>,
    /// Which processors loggers and workers run on, as in 0:1,2,3+4:5,6,10. Points with other
    /// numbers of them are skipped.
    #[arg(long, value_name = "PLACEMENT")]
    affinity: Option<Affinity>,
    /// Where the memory of a machine with several NUMA nodes comes from; of stores in this process.
    #[arg(long, value_name = "HOW", default_value = "local")]
    numa: MemoryPlacement,
    /// Only points whose name contains this, and what they are compared with.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// A directory on the disk to measure; default: that of the results. What is made there is
    /// removed again.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A directory in memory.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    memory: PathBuf,
    /// The seed of the random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The program kumiki, whose servers, proxies and storage nodes are measured; default: the one
    /// in the directory of kumiki-bench.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Write a wrong value, to see that it is found.
    #[arg(long, hide = true)]
    plant_failure: bool,
}

/// Where memory comes from.
#[derive(Clone, Copy, Debug, clap::ValueEnum, PartialEq, Eq)]
enum MemoryPlacement {
    /// From the node of the thread that touches it first.
    Local,
    /// From all nodes by turns, page by page; log buffers stay near their thread.
    Interleave,
}

/// Parses a time in seconds, which may have a fraction.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let sensible = Duration::from_millis(1)..=Duration::from_secs(3600);
    time.filter(|time| sensible.contains(time))
        .ok_or_else(|| format!("'{text}' is not a number of seconds between 0.001 and 3600"))
}

/// Why a command has failed: its text is printed.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let Arguments { what, log_level } = Arguments::parse();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let log = tracing_subscriber::registry().with(log_level);
    log.with(lines).init();
    match execute(what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kumiki-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Executes a command. The measured results are printed even if a check failed.
fn execute(what: Command) -> Result<(), Failure> {
    match what {
        Command::List => list(),
        Command::Run(options) => run(&options),
        Command::StorageNode { config } => Ok(storage_node::serve(&config)?),
        Command::PaperProxy { config } => Ok(paper_proxy::serve(&config)?),
        Command::PaperProxyNetwork { config } => Ok(paper_proxy::serve_network(&config)?),
        Command::ReplicaClients { config } => Ok(target::serve_clients(&config)?),
        Command::Diff { a, b, json } => {
            let differences = difference::of_paths(&a, &b)?;
            let text = match json {
                true => serde_json::to_string_pretty(&differences)?,
                false => differences.to_string().trim_end().to_owned(),
            };
            print_line(&text)
        }
        Command::Report { dir } => {
            let path = report::write(&dir)?;
            print_line(&format!("kumiki-bench: the report is {}", path.display()))
        }
    }
}

/// Writes to standard output; a reader that has gone is an error like any other.
fn print_line(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}

fn list() -> Result<(), Failure> {
    for one in experiments::ALL {
        let paper = one
            .paper
            .map_or(String::new(), |paper| format!(" ({paper})"));
        print_line(&format!("{:<14} {}{paper}", one.name, one.title))?;
    }
    Ok(())
}

impl RunArguments {
    fn options(&self, numa_nodes: Option<usize>) -> Result<Options, Failure> {
        let effort = if self.quick {
            Effort::Quick
        } else {
            Effort::Full
        };
        let usual = Scale::of(effort);
        let server = self.server.clone().or_else(|| beside("kumiki"));
        let placed = self.affinity.as_ref().map(|all| all.workers().count());
        Ok(Options {
            scale: Scale {
                records: self.records.unwrap_or(usual.records),
                time: self.seconds.unwrap_or(usual.time),
                warm_up: self.warm_up.unwrap_or(usual.warm_up),
                repetitions: self.repetitions.map_or(usual.repetitions, usize::from),
                workers: self.workers.map(usize::from).or(placed),
                ..usual
            },
            out: self.out.clone(),
            disk: self.data.clone().unwrap_or_else(|| self.out.clone()),
            memory: self.memory.clone(),
            history: self.history.clone(),
            only: self.only.clone(),
            seed: self.seed,
            affinity: self.affinity.clone(),
            plant: self.plant_failure,
            commit: buildinfo::COMMIT.to_owned(),
            profile: buildinfo::PROFILE.to_owned(),
            programs: programs(server.as_deref())?,
            numa_nodes,
            server,
            laboratory: std::env::current_exe().ok(),
            peers: peers()?,
        })
    }
}

/// Describes this program and the one to measure, if there is one.
fn programs(server: Option<&Path>) -> Result<MeasurementPrograms, Failure> {
    let failed = |path: &Path, error: std::io::Error| {
        format!("cannot describe the program {}: {error}", path.display())
    };
    let own = std::env::current_exe()?;
    let version = format!("kumiki-bench {}", buildinfo::VERSION);
    let measuring = ProgramInfo::with_version(&own, &version);
    let measured = server
        .filter(|server| server.is_file())
        .map(|server| ProgramInfo::of(server).map_err(|error| failed(server, error)));
    Ok(MeasurementPrograms {
        measuring: Some(measuring.map_err(|error| failed(&own, error))?),
        measured: measured.transpose()?,
    })
}

/// Returns the path of a program in the directory of this one.
fn beside(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.with_file_name(name))
}

/// Returns the programs of others that are installed.
fn peers() -> Result<Peers, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(Peers {
        selection: Selection::of_environment()?,
        ..Peers::find(Path::new("."), &path)
    })
}

fn run(options: &RunArguments) -> Result<(), Failure> {
    if let Some(affinity) = &options.affinity {
        let usable = base::cpus::usable()?;
        affinity.check(&usable)?;
    }
    let mut numa_nodes = None;
    if options.numa == MemoryPlacement::Interleave {
        let nodes = base::numa::interleave();
        let nodes = nodes.map_err(|error| format!("cannot interleave memory: {error}"))?;
        tracing::info!("memory is interleaved over {nodes} NUMA nodes");
        numa_nodes = Some(nodes);
    }
    let experiment = experiments::named(&options.name).ok_or_else(|| {
        let names: Vec<&str> = experiments::ALL.iter().map(|one| one.name).collect();
        let all = names.join(", ");
        format!(
            "there is no experiment '{}'; there are: {all}",
            options.name
        )
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the flag is still unset when the first signal asks it.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| format!("cannot receive signals: {error}"))?;
    }
    let outcome = runner::run(experiment, &options.options(numa_nodes)?, &stop)?;
    print_line(&table::show(experiment, &outcome.results))?;
    let path = outcome.path.display();
    print_line(&format!("kumiki-bench: the results are in {path}"))?;
    match outcome.failure() {
        Some(what) => Err(what.into()),
        None if !outcome.results.complete => Err("stopped before the end".into()),
        None => Ok(()),
    }
}
