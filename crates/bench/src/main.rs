//! The command `kumiki-bench`: experiments, their results, the report.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | everything was measured, and every check held; results were compared |
//! | 1 | a check failed, something could not be measured, a signal stopped the run, or nothing could be compared |
//! | 2 | the command line is malformed |
//! | 130 | a second signal came before the run had stopped |

#![forbid(unsafe_code)]

mod arguments;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bench::experiment::Experiment;
use bench::paper_index::{PAPERS, Paper};
use bench::runner::{self, Options};
use bench::series::ExperimentSeries;
use bench::{difference, experiments, paper_proxy, report, storage_node, table, target};
use clap::{Parser, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use arguments::{PaperArguments, PaperSelection, RunArguments};

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
        default_value = "warn,bench=info,kumiki_bench=info",
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
    /// Run all experiments of a paper, or of all papers, and write the report. What is complete, by the
    /// same programs on the same machine, is kept: the command can be stopped, and goes on.
    Paper(Box<PaperArguments>),
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
        Command::Paper(options) => paper(&options),
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

fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let experiment = experiments::named(&arguments.name).ok_or_else(|| {
        let names: Vec<&str> = experiments::ALL.iter().map(|one| one.name).collect();
        let all = names.join(", ");
        format!(
            "there is no experiment '{}'; there are: {all}",
            arguments.name
        )
    })?;
    let options = Options {
        history: arguments.history.clone(),
        ..arguments.measure.options()?
    };
    let stop = stop_signals()?;
    let outcome = runner::run(experiment, &options, &stop)?;
    print_line(&table::show(experiment, &outcome.results))?;
    let path = outcome.path.display();
    print_line(&format!("kumiki-bench: the results are in {path}"))?;
    match outcome.failure() {
        Some(what) => Err(what.into()),
        None if !outcome.results.complete => Err("stopped before the end".into()),
        None => Ok(()),
    }
}

/// Returns a flag that a signal sets; a second signal ends the process.
fn stop_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the flag is still unset when the first signal asks it.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| format!("cannot receive signals: {error}"))?;
    }
    Ok(stop)
}

/// Runs the experiments of a paper, and writes the report.
fn paper(arguments: &PaperArguments) -> Result<(), Failure> {
    let experiments: Vec<&'static Experiment> = match arguments.paper {
        PaperSelection::All => experiments::ALL.iter().collect(),
        PaperSelection::One(number) => {
            let mut papers = PAPERS.iter();
            let paper = papers.find(|paper| paper.number == number);
            paper.map(Paper::experiments).unwrap_or_default()
        }
    };
    let options = arguments.measure.options()?;
    let series =
        ExperimentSeries::plan(&experiments, &options, arguments.again, arguments.limit())?;
    if arguments.plan {
        return print_line(&series.to_string());
    }
    let (kept, planned) = (series.kept.len(), series.planned.len());
    let estimate = series.estimate();
    tracing::info!("experiments to measure: {planned}, kept: {kept}; {estimate}");
    let stop = stop_signals()?;
    let mut failures = Vec::new();
    let mut complete = 0;
    series.run(&options, &stop, |experiment, outcome| {
        let (name, path) = (experiment.name, outcome.path.display());
        complete += usize::from(outcome.results.complete);
        match outcome.failure() {
            Some(what) => {
                tracing::warn!("{name}: {what}");
                failures.push(format!("{name}: {what}"));
            }
            None if outcome.results.complete => tracing::info!("{name} is complete: {path}"),
            None => tracing::info!("{name} was stopped: {path}"),
        }
    })?;
    let path = report::write(&options.out)?;
    print_line(&format!("kumiki-bench: the report is {}", path.display()))?;
    if complete < planned {
        failures.push(format!(
            "stopped: {complete} of {planned} experiments are complete; the same command measures the others"
        ));
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("\n").into()),
    }
}
