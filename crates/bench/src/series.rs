//! A series of experiments, one after the other, that can be stopped and goes on where it was.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::experiment::Experiment;
use crate::machine::HostInfo;
use crate::result::Results;
use crate::run_progress::{PlannedRuns, RunProgress, RunTimes, duration};
use crate::runner::{self, BenchError, ExperimentOutcome, Options};
use crate::table::grid;

/// What a series will do.
pub struct ExperimentSeries {
    /// The experiments that are to be measured, each with its runs.
    pub planned: Vec<(&'static Experiment, PlannedRuns)>,
    /// The experiments whose results are kept.
    pub kept: Vec<&'static Experiment>,
    /// How long runs took before.
    pub times: RunTimes,
    /// The time within which later rounds are begun, if it is limited.
    pub limit: Option<Duration>,
}

impl ExperimentSeries {
    /// Plans a series. Unless it is measured `again`, an experiment is kept if its result in the
    /// directory is complete, without failures, and of the same programs, machine, scale and settings;
    /// without a limit of time it must have all rounds, too.
    /// Experiments of which the options select no point are left out.
    ///
    /// # Errors
    /// Returns an error if the options select no point at all.
    pub fn plan(
        experiments: &[&'static Experiment],
        options: &Options,
        again: bool,
        limit: Option<Duration>,
    ) -> Result<ExperimentSeries, BenchError> {
        let host = HostInfo::here(&options.disk, &options.memory);
        let mut series = ExperimentSeries {
            planned: Vec::new(),
            kept: Vec::new(),
            times: RunTimes::default(),
            limit,
        };
        let mut error = None;
        for &experiment in experiments {
            // A result that cannot be read is measured again.
            let earlier = Results::of_experiment(&options.out, experiment.name).ok();
            if let Some(earlier) = &earlier {
                series.times.learn(earlier, &options.scale);
                let is_whole = limit.is_some() || earlier.shortened().is_none();
                if !again && is_whole && is_current(earlier, options, &host) {
                    series.kept.push(experiment);
                    continue;
                }
            }
            match runner::plan(experiment, options) {
                Ok(runs) => series.planned.push((experiment, runs)),
                Err(none) => error = Some(none),
            }
        }
        match (series.planned.is_empty() && series.kept.is_empty(), error) {
            (true, Some(error)) => Err(error),
            _ => Ok(series),
        }
    }

    /// Returns how long the series will take, in words.
    #[must_use]
    pub fn estimate(&self) -> String {
        if self.planned.is_empty() {
            return "nothing to measure".to_owned();
        }
        let plans: Vec<PlannedRuns> = self.planned.iter().map(|(_, runs)| runs.clone()).collect();
        self.times.show(&plans)
    }

    /// Runs the experiments until the last one, or until `stop` is set. `each` gets the outcome of
    /// every one.
    ///
    /// # Errors
    /// Returns an error if a result cannot be kept.
    pub fn run(
        self,
        options: &Options,
        stop: &AtomicBool,
        mut each: impl FnMut(&'static Experiment, ExperimentOutcome),
    ) -> Result<(), BenchError> {
        let (experiments, plans): (Vec<_>, Vec<_>) = self.planned.into_iter().unzip();
        let mut progress = RunProgress::new(plans, self.times, self.limit);
        for experiment in experiments {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let outcome = runner::run_within(experiment, options, stop, &mut progress)?;
            each(experiment, outcome);
        }
        progress.finish();
        Ok(())
    }
}

impl fmt::Display for ExperimentSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["experiment", "runs", "time"].map(str::to_owned);
        let planned = self.planned.iter().map(|(experiment, runs)| {
            let time = self.times.show(std::slice::from_ref(runs));
            vec![
                experiment.name.to_owned(),
                runs.runs.len().to_string(),
                time,
            ]
        });
        let kept = self.kept.iter().map(|experiment| {
            let kept = "kept, as it is complete".to_owned();
            vec![experiment.name.to_owned(), "–".to_owned(), kept]
        });
        let rows: Vec<Vec<String>> = planned.chain(kept).collect();
        let limit = self.limit.map_or(String::new(), |limit| {
            let limit = duration(limit.as_secs_f64());
            format!("; rounds that would take longer than {limit} in all are left out")
        });
        let table = grid(&header, &rows);
        write!(f, "{table}\nall together: {}{limit}", self.estimate())
    }
}

/// Returns `true` if measuring again would only repeat a result.
fn is_current(results: &Results, options: &Options, host: &HostInfo) -> bool {
    results.complete
        && !results.recorded
        && results.failures().next().is_none()
        && results.commit == options.commit
        && results.profile == options.profile
        && results.programs == options.programs
        && results.host == *host
        && results.scale == options.scale
        && results.settings.as_ref() == Some(&runner::settings(options))
}
