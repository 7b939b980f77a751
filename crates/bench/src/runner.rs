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

use crate::error::RunError;
use crate::experiment::{Experiment, SweepPoint};
use crate::machine::{self, HostInfo, LoadAround, NoiseMeter};
use crate::parameters::{RunSettings, Scale};
use crate::peers::Peers;
use crate::result::{MeasurementPrograms, PointResult, Results, RunResult, SCHEMA};
use crate::run_context::RunContext;
use crate::run_progress::{PlannedRuns, RunProgress, RunTimes};
use crate::sample::{Check, RunSample};
use crate::shared_state::SharedState;

/// The number of points that are compared with one pair of baseline runs.
const BETWEEN: usize = 3;
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
    /// MeasurementPrograms of others, which some points are compared with.
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
    let runs = plan(experiment, options)?;
    let mut times = RunTimes::default();
    if let Ok(earlier) = Results::of_experiment(&options.out, experiment.name) {
        times.learn(&earlier, &options.scale);
    }
    let mut progress = RunProgress::new(vec![runs], times, None);
    let outcome = run_within(experiment, options, stop, &mut progress);
    progress.finish();
    outcome
}

/// Runs the next experiment of those whose progress is shown.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_within(
    experiment: &Experiment,
    options: &Options,
    stop: &AtomicBool,
    progress: &mut RunProgress,
) -> Result<ExperimentOutcome, BenchError> {
    let points = points(experiment, options)?;
    let recorder = options.history.as_ref().map(|_| Recorder::new());
    progress.begin_experiment();
    let mut run = ExperimentRun {
        options,
        stop,
        recorder: recorder.as_ref(),
        results: empty(experiment, options, &points),
        points,
        order: 0,
        round_state: SharedState::default(),
        experiment_state: SharedState::default(),
        progress,
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

/// Returns the runs of an experiment, in order.
///
/// # Errors
/// Returns an error if the options select no point.
pub(crate) fn plan(experiment: &Experiment, options: &Options) -> Result<PlannedRuns, BenchError> {
    let points = points(experiment, options)?;
    let mut runs = Vec::new();
    let mut first_round = 0;
    for round in 0..rounds(options) {
        let scheduled = schedule(&points, round).into_iter().map(|i| &points[i]);
        let due = scheduled.filter(|point| is_due(point, round));
        runs.extend(due.map(|point| point.id.clone()));
        if round == 0 {
            first_round = runs.len();
        }
    }
    Ok(PlannedRuns {
        experiment: experiment.name.to_owned(),
        runs,
        first_round,
        nominal: options.scale.warm_up + options.scale.time,
    })
}

/// Returns the number of rounds. A history shows as much after one as after many.
fn rounds(options: &Options) -> usize {
    match options.history {
        Some(_) => 1,
        None => options.scale.repetitions.max(1),
    }
}

/// Returns `true` if the point is measured in this round.
fn is_due(point: &SweepPoint, round: usize) -> bool {
    point.rounds.is_none_or(|rounds| round < rounds)
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
        rounds: 0,
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
    progress: &'r mut RunProgress,
}

impl ExperimentRun<'_> {
    fn all(&mut self) -> Result<PathBuf, BenchError> {
        let rounds = rounds(self.options);
        let idle = self.options.scale.time.clamp(IDLE[0], IDLE[1]);
        self.results.load.before = Some(NoiseMeter::idle(idle));
        self.write()?;
        for round in 0..rounds {
            let with_next = self.due(round) + self.due(round + 1);
            let last = round + 1 == rounds || !self.progress.has_time_for(with_next);
            if !self.round(round, last) {
                break;
            }
            self.results.rounds = round + 1;
            self.results.complete = last;
            self.write()?;
            if last {
                self.progress.leave_out_rest();
                break;
            }
        }
        self.results.load.after = Some(NoiseMeter::idle(idle));
        self.write()
    }

    /// Runs all points. Returns `false` if the user asked to stop.
    fn round(&mut self, round: usize, last: bool) -> bool {
        let schedule = schedule(&self.points, round);
        self.round_state = SharedState::default();
        for (place, &i) in schedule.iter().enumerate() {
            if !is_due(&self.points[i], round) || self.is_given_up(i) {
                continue;
            }
            self.progress.begin_run();
            // A store is opened again only once for each point: that takes longer than the run.
            let reopen = last && !schedule[place + 1..].contains(&i);
            if !self.point(i, round, reopen) {
                return false;
            }
            if self.is_given_up(i) {
                self.progress.give_up();
            }
        }
        true
    }

    /// Returns the number of runs in a round.
    fn due(&self, round: usize) -> usize {
        let schedule = schedule(&self.points, round);
        let due = |i: &&usize| is_due(&self.points[**i], round) && !self.is_given_up(**i);
        schedule.iter().filter(due).count()
    }

    /// Returns `true` if a point cannot be measured here, or has failed.
    fn is_given_up(&self, i: usize) -> bool {
        let result = &self.results.points[i];
        result.skipped.is_some() || result.failure().is_some()
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
        self.progress.end_run(seconds);
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
mod tests;
