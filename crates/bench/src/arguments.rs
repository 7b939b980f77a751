//! The arguments of commands that measure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base::affinity::Affinity;
use bench::paper_index::PAPERS;
use bench::parameters::{Effort, Scale};
use bench::peers::Peers;
use bench::program::ProgramInfo;
use bench::result::MeasurementPrograms;
use bench::runner::Options;
use clap::Args;
use testkit::peers::Selection;

use crate::Failure;

/// The time within which all papers are measured with `--quick`.
const QUICK_LIMIT: Duration = Duration::from_secs(40 * 60);

/// The arguments of `run`.
#[derive(Args, Debug)]
pub(crate) struct RunArguments {
    /// Which one; `kumiki-bench list` names them.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Record all transactions, judge them, and write them to this file as JSON lines. Runs are
    /// short then, and their figures say nothing.
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) measure: MeasureArguments,
}

/// The arguments of `paper`.
#[derive(Args, Debug)]
pub(crate) struct PaperArguments {
    /// The paper: 1, 2, 3, 4 or 5; or all of them, with the experiments that belong to none.
    #[arg(value_name = "N|all", value_parser = parse_paper)]
    pub(crate) paper: PaperSelection,
    /// Measure everything anew, also what is complete.
    #[arg(long)]
    pub(crate) again: bool,
    /// Leave out repetitions, but for the first, if everything would take longer than so many minutes;
    /// default: 40 for all papers with --quick, otherwise no limit.
    #[arg(long, value_name = "MINUTES", value_parser = parse_minutes)]
    within: Option<Duration>,
    /// Measure nothing: print what would be measured, and how long it would take.
    #[arg(long)]
    pub(crate) plan: bool,
    #[command(flatten)]
    pub(crate) measure: MeasureArguments,
}

/// Papers whose experiments are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PaperSelection {
    /// One of them, by its number.
    One(u8),
    /// All, and the experiments of none.
    All,
}

/// How to measure, for one experiment or many.
#[derive(Args, Debug)]
pub(crate) struct MeasureArguments {
    /// Fewer points and shorter runs: a minute or so for an experiment, to see that the figures make
    /// sense.
    #[arg(long)]
    quick: bool,
    /// Where `NAME.json` goes.
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
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

/// Parses a time in minutes, which may have a fraction.
fn parse_minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse::<f64>().ok().filter(|minutes| *minutes > 0.0);
    let time = minutes.and_then(|minutes| Duration::try_from_secs_f64(minutes * 60.0).ok());
    time.ok_or_else(|| format!("'{text}' is not a number of minutes above 0"))
}

/// Parses the number of a paper, or `all`.
fn parse_paper(text: &str) -> Result<PaperSelection, String> {
    let number = text.parse().ok();
    let known = PAPERS.iter().map(|paper| paper.number);
    match number.filter(|number| known.clone().any(|known| known == *number)) {
        Some(number) => Ok(PaperSelection::One(number)),
        None if text == "all" => Ok(PaperSelection::All),
        None => Err(format!(
            "'{text}' is neither the number of a paper, 1 to 5, nor all"
        )),
    }
}

impl PaperArguments {
    /// Returns the time within which repetitions are begun, if it is limited.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let is_quick = self.measure.quick && self.paper == PaperSelection::All;
        self.within.or_else(|| is_quick.then_some(QUICK_LIMIT))
    }
}

impl MeasureArguments {
    /// Prepares this process as the arguments say, and returns the options.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        if let Some(affinity) = &self.affinity {
            let usable = base::cpus::usable()?;
            affinity.check(&usable)?;
        }
        let mut numa_nodes = None;
        if self.numa == MemoryPlacement::Interleave {
            let nodes = base::numa::interleave();
            let nodes = nodes.map_err(|error| format!("cannot interleave memory: {error}"))?;
            tracing::info!("memory is interleaved over {nodes} NUMA nodes");
            numa_nodes = Some(nodes);
        }
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
            history: None,
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
