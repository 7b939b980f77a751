//! Runs an experiment: all its points, round by round, and keeps their results.
//!
//! A round measures every point once. A baseline is measured before, after, and in between the
//! points that are compared with it, so that each of these has a run of the baseline close by; and
//! every other round goes backwards. So a machine whose speed drifts falsifies shares little.
//!
//! The results are on disk after each round.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::affinity::Affinity;
use history::Recorder;
use indicatif::{ProgressBar, ProgressStyle};

use crate::error::RunError;
use crate::experiment::{Experiment, SweepPoint};
use crate::machine::{self, HostInfo, LoadAround, NoiseMeter};
use crate::parameters::{RunSettings, Scale};
use crate::peers::Peers;
use crate::result::{MeasurementPrograms, PointResult, Results, RunResult, SCHEMA};
use crate::run_context::RunContext;
use crate::sample::{Check, RunSample};
use crate::shared_state::SharedState;

/// The number of points that are compared with one pair of baseline runs.
const BETWEEN: usize = 3;
/// The shortest interval between log lines on the progress of an experiment.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// The shortest and the longest time for which the load of the machine is measured before the first
/// run and after the last one: as long as a run counts, within these bounds.
const IDLE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The scale.
    pub scale: Scale,
    /// The directory for results.
    pub out: PathBuf,
    /// The directory for logs and files on the disk.
    pub disk: PathBuf,
    /// The directory for those in memory.
    pub memory: PathBuf,
    /// The file for recorded transactions, if they are recorded.
    pub history: Option<PathBuf>,
    /// Only points whose id contains this.
    pub only: Option<String>,
    /// The seed of the random choices.
    pub seed: u64,
    /// The processors that loggers and workers run on; points that have other numbers of them are
    /// skipped.
    pub affinity: Option<Affinity>,
    /// Writes wrong values on purpose: a test of the checks.
    pub plant: bool,
    /// The commit that this program was built from, for the result file.
    pub commit: String,
    /// The cargo profile that it was built with, for the result file.
    pub profile: String,
    /// This program and the measured one, for the result file.
    pub programs: MeasurementPrograms,
    /// The number of NUMA nodes that memory is interleaved over, if it is; for the result file.
    pub numa_nodes: Option<usize>,
    /// The program whose `serve` starts a server; without one, points that need servers are
    /// skipped.
    pub server: Option<PathBuf>,
    /// The program whose `storage-node` and `paper-proxy` are the processes that only experiments
    /// need, such as kumiki-bench; without one, points that need them are skipped.
    pub laboratory: Option<PathBuf>,
    /// Programs of others, which some points are compared with.
    pub peers: Peers,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
    /// The results cannot be kept.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// The outcome of an experiment.
#[derive(Debug)]
pub struct ExperimentOutcome {
    /// The results.
    pub results: Results,
    /// The result file.
    pub path: PathBuf,
    /// The finding of the judge of the recorded history, if any.
    pub verdict: Option<String>,
}

impl ExperimentOutcome {
    /// Returns what is wrong, if anything is: a failed check, an anomaly.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let failed = self.results.failures().next().map(|(point, check)| {
            let what = check.failure.as_deref().unwrap_or_default();
            format!("{}: the check '{}' failed: {what}", point.id, check.name)
        });
        failed.or_else(|| self.verdict.clone())
    }
}

/// Runs an experiment until its end, or until `stop` is set.
///
/// # Errors
/// Returns an error if nothing could be measured or kept. A failed check is no error: see
/// [`ExperimentOutcome::failure`].
pub fn run(
    experiment: &Experiment,
    options: &Options,
    stop: &AtomicBool,
) -> Result<ExperimentOutcome, BenchError> {
    let points = points(experiment, options)?;
    let recorder = options.history.as_ref().map(|_| Recorder::new());
    let mut run = ExperimentRun {
        options,
        stop,
        recorder: recorder.as_ref(),
        results: empty(experiment, options, &points),
        points,
        order: 0,
        round_state: SharedState::default(),
        experiment_state: SharedState::default(),
        bar: ProgressBar::new(0),
        progress_logged: Instant::now(),
    };
    let path = run.all()?;
    let results = run.results;
    let verdict = match (recorder, &options.history) {
        (Some(recorder), Some(file)) => judge(recorder, file)?,
        _ => None,
    };
    Ok(ExperimentOutcome {
        results,
        path,
        verdict,
    })
}

fn points(experiment: &Experiment, options: &Options) -> Result<Vec<SweepPoint>, BenchError> {
    let all = (experiment.points)(&options.scale);
    let Some(only) = &options.only else {
        return Ok(all);
    };
    let selected: Vec<&SweepPoint> = all.iter().filter(|point| point.id.contains(only)).collect();
    let needed = |point: &&SweepPoint| {
        let baseline_of = |other: &&SweepPoint| other.baseline.as_deref() == Some(&point.id);
        point.id.contains(only) || selected.iter().any(baseline_of)
    };
    let some: Vec<SweepPoint> = all.iter().filter(needed).cloned().collect();
    if some.is_empty() {
        /// The number of points that an error names, as examples.
        const NAMED: usize = 5;
        let named = all.iter().take(NAMED).map(|point| point.id.as_str());
        let named: Vec<&str> = named.collect();
        let mut what = format!("no point of {} contains '{only}'; ", experiment.name);
        what += &format!("there are:\n  {}", named.join("\n  "));
        if all.len() > NAMED {
            what += &format!("\n  and {} more, called alike", all.len() - NAMED);
        }
        return Err(BenchError::Options(what));
    }
    Ok(some)
}

fn empty(experiment: &Experiment, options: &Options, points: &[SweepPoint]) -> Results {
    Results {
        schema: SCHEMA,
        experiment: experiment.name.to_owned(),
        title: experiment.title.to_owned(),
        commit: options.commit.clone(),
        profile: options.profile.clone(),
        programs: options.programs.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: machine::unix_time(),
        complete: false,
        recorded: options.history.is_some(),
        host: HostInfo::here(&options.disk, &options.memory),
        load: LoadAround::default(),
        scale: options.scale.clone(),
        settings: Some(settings(options)),
        points: points.iter().map(PointResult::new).collect(),
    }
}

/// Returns the part of the options that decides, with the scale, what is measured and how.
#[must_use]
pub fn settings(options: &Options) -> RunSettings {
    RunSettings {
        only: options.only.clone(),
        seed: options.seed,
        affinity: options.affinity.as_ref().map(ToString::to_string),
        numa_nodes: options.numa_nodes,
        disk: options.disk.display().to_string(),
        memory: options.memory.display().to_string(),
    }
}

/// Returns the order of a round: indices of points, baselines among those that are compared with
/// them.
#[must_use]
pub fn schedule(points: &[SweepPoint], round: usize) -> Vec<usize> {
    let is_baseline = |point: &SweepPoint| {
        let id = Some(&point.id);
        points.iter().any(|other| other.baseline.as_ref() == id)
    };
    let mut order = Vec::new();
    for (i, point) in points.iter().enumerate() {
        if point.baseline.is_some() {
            continue;
        }
        order.push(i);
        if !is_baseline(point) {
            continue;
        }
        let against = |other: &&usize| points[**other].baseline.as_ref() == Some(&point.id);
        let all: Vec<usize> = (0..points.len()).collect();
        let variants: Vec<usize> = all.iter().filter(against).copied().collect();
        for some in variants.chunks(BETWEEN) {
            order.extend_from_slice(some);
            order.push(i);
        }
    }
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// The value of a run.
#[derive(Debug)]
enum RunOutcome {
    RunSample(RunSample),
    Skipped(String),
    Nothing,
}

/// Evaluates a run, during which the user has `stopped` the experiment or not. Stopping it breaks
/// the run, and that is no failure.
fn evaluate(run: Result<RunSample, RunError>, stopped: bool) -> RunOutcome {
    let sample = match run {
        Ok(sample) => sample,
        Err(RunError::Interrupted) => return RunOutcome::Nothing,
        Err(RunError::Skipped(why)) => return RunOutcome::Skipped(why),
        Err(RunError::Failed(what)) => RunSample {
            checks: vec![Check::new(
                "the run comes to its end",
                Err(RunError::Failed(what)),
            )],
            ..RunSample::default()
        },
    };
    match stopped && sample.failure().is_some() {
        true => RunOutcome::Nothing,
        false => RunOutcome::RunSample(sample),
    }
}

/// An experiment that runs.
struct ExperimentRun<'r> {
    options: &'r Options,
    stop: &'r AtomicBool,
    recorder: Option<&'r Recorder>,
    points: Vec<SweepPoint>,
    results: Results,
    order: usize,
    round_state: SharedState,
    experiment_state: SharedState,
    bar: ProgressBar,
    /// The time of the last log line on the progress, for output without a terminal.
    progress_logged: Instant,
}

impl ExperimentRun<'_> {
    fn all(&mut self) -> Result<PathBuf, BenchError> {
        // A history shows as much after one round as after many.
        let rounds = if self.recorder.is_some() {
            1
        } else {
            self.options.scale.repetitions.max(1)
        };
        let total: usize = (0..rounds).map(|r| schedule(&self.points, r).len()).sum();
        self.bar = ProgressBar::new(total as u64);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {eta:>5}  {wide_msg}");
        self.bar.set_style(style.expect("the template makes sense"));
        let idle = self.options.scale.time.clamp(IDLE[0], IDLE[1]);
        self.results.load.before = Some(NoiseMeter::idle(idle));
        self.write()?;
        for round in 0..rounds {
            if !self.round(round, round + 1 == rounds) {
                break;
            }
            self.results.complete = round + 1 == rounds;
            self.write()?;
        }
        self.results.load.after = Some(NoiseMeter::idle(idle));
        let path = self.write()?;
        self.bar.finish_and_clear();
        Ok(path)
    }

    /// Runs all points. Returns `false` if the user asked to stop.
    fn round(&mut self, round: usize, last: bool) -> bool {
        let schedule = schedule(&self.points, round);
        self.round_state = SharedState::default();
        for (place, &i) in schedule.iter().enumerate() {
            self.bar.set_message(self.points[i].id.clone());
            self.log_progress(i);
            // A store is opened again only once for each point: that takes longer than the run.
            let reopen = last && !schedule[place + 1..].contains(&i);
            let has_enough = self.points[i].rounds.is_some_and(|rounds| round >= rounds);
            let given_up = has_enough
                || self.results.points[i].skipped.is_some()
                || self.results.points[i].failure().is_some();
            if !given_up && !self.point(i, round, reopen) {
                return false;
            }
            self.bar.inc(1);
        }
        true
    }

    /// Logs the progress at intervals, if standard error is no terminal and there is no bar.
    fn log_progress(&mut self, i: usize) {
        if self.bar.is_hidden() && self.progress_logged.elapsed() >= PROGRESS_INTERVAL {
            self.progress_logged = Instant::now();
            let (run, of) = (self.bar.position() + 1, self.bar.length().unwrap_or(0));
            tracing::info!("run {run} of {of}: {}", self.points[i].id);
        }
    }

    fn point(&mut self, i: usize, round: usize, reopen: bool) -> bool {
        self.order += 1;
        let context = RunContext {
            scale: &self.options.scale,
            disk: self.options.disk.clone(),
            memory: self.options.memory.clone(),
            stop: self.stop,
            recorder: self.recorder,
            number: self.order,
            seed: self.options.seed,
            reopen,
            affinity: self.options.affinity.as_ref(),
            plant: self.options.plant,
            server: self.options.server.as_deref(),
            laboratory: self.options.laboratory.as_deref(),
            round_state: &self.round_state,
            experiment_state: &self.experiment_state,
            peers: &self.options.peers,
        };
        let meter = NoiseMeter::default();
        let begun = Instant::now();
        let sample = self.points[i].job.run(&context);
        let noise = meter.noise();
        let seconds = begun.elapsed().as_secs_f64();
        let stopped = self.stop.load(Ordering::Relaxed);
        let result = &mut self.results.points[i];
        let sample = match evaluate(sample, stopped) {
            RunOutcome::RunSample(sample) => sample,
            RunOutcome::Nothing => return false,
            RunOutcome::Skipped(why) => {
                result.skipped = Some(why);
                return true;
            }
        };
        let failed = sample.failure().is_some();
        result.note = sample.note;
        result.repetitions.push(RunResult {
            round,
            order: self.order,
            seconds,
            values: if failed {
                Default::default()
            } else {
                sample.values
            },
            checks: sample.checks,
            noise,
            timeline: sample.timeline,
        });
        !self.stop.load(Ordering::Relaxed)
    }

    fn write(&mut self) -> Result<PathBuf, BenchError> {
        self.results.summarise();
        let out = &self.options.out;
        self.results.write(out).map_err(|source| BenchError::Write {
            path: out.clone(),
            source,
        })
    }
}

/// Writes the history. Returns what is wrong with it, if anything is.
fn judge(recorder: Recorder, file: &Path) -> Result<Option<String>, BenchError> {
    let history = recorder.finish();
    let write = || {
        let target = std::fs::File::create(file)?;
        history::json::write(&history, std::io::BufWriter::new(target))
    };
    write().map_err(|source| BenchError::Write {
        path: file.to_owned(),
        source,
    })?;
    let verdict = history::check::strictly_serializable(&history);
    Ok((!verdict.is_accepted()).then(|| format!("the recorded history is wrong: {verdict}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk_access::DeviceAccess;
    use crate::run_context::StorageMedium;
    use crate::target::{DeviceJob, TargetJob};

    fn point(name: &str) -> SweepPoint {
        let job = DeviceJob {
            place: StorageMedium::Disk,
            device: DeviceAccess::File,
            piece: 4096,
            sync_size: 4096,
            threads: 1,
            warm_up: false,
        };
        SweepPoint::new([("name", name.into())], TargetJob::Device(job))
    }

    #[test]
    fn baselines_stand_around_what_is_compared_with_them() {
        let (a, b) = (point("a"), point("b"));
        let variants = ["1", "2", "3", "4"].map(|name| point(name).against(&a));
        let points: Vec<SweepPoint> = [a.clone()].into_iter().chain(variants).chain([b]).collect();
        assert_eq!(schedule(&points, 0), [0, 1, 2, 3, 0, 4, 0, 5]);
        assert_eq!(schedule(&points, 1), [5, 0, 4, 0, 3, 2, 1, 0]);
    }

    #[test]
    fn what_breaks_because_the_user_stops_is_no_failure() {
        let bad = || RunSample {
            checks: vec![Check::new(
                "every reply is right",
                Err(RunError::Failed("none came".into())),
            )],
            ..RunSample::default()
        };
        let failed = || Err(RunError::Failed("a server is gone".into()));
        assert!(matches!(evaluate(Ok(bad()), true), RunOutcome::Nothing));
        assert!(matches!(evaluate(failed(), true), RunOutcome::Nothing));
        assert!(matches!(
            evaluate(Ok(RunSample::default()), true),
            RunOutcome::RunSample(_)
        ));
        for run in [Ok(bad()), failed()] {
            let RunOutcome::RunSample(sample) = evaluate(run, false) else {
                panic!("a failure is told");
            };
            assert!(sample.failure().is_some());
        }
        assert!(matches!(
            evaluate(Err(RunError::Interrupted), false),
            RunOutcome::Nothing
        ));
    }
}
