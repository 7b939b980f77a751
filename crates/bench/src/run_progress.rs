//! Progress of experiments on standard error: a bar on a terminal, otherwise a log line at intervals.
//!
//! The time left is estimated from measured times. A run that is still to come takes as long as the
//! runs of its point took so far, in this series or in an earlier result; else as long as the mean run
//! of its experiment; else its nominal time (warm-up and counted time) and as much more as the mean
//! run of all experiments took. Without any measured time the nominal times are a lower bound, and are
//! called so.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::parameters::Scale;
use crate::result::Results;

/// The shortest interval between log lines on the progress.
const INTERVAL: Duration = Duration::from_secs(10);

/// The runs of one experiment that are to be made, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedRuns {
    /// The experiment.
    pub experiment: String,
    /// The ids of the points, one for each run.
    pub runs: Vec<String>,
    /// The number of runs in the first round.
    pub first_round: usize,
    /// How long a run warms up and counts.
    pub nominal: Duration,
}

/// A sum of measured times.
#[derive(Clone, Copy, Debug, Default)]
struct MeasuredTime {
    seconds: f64,
    runs: usize,
}

impl MeasuredTime {
    fn add(&mut self, seconds: f64) {
        self.seconds += seconds;
        self.runs += 1;
    }

    fn mean(self) -> Option<f64> {
        (self.runs > 0).then(|| self.seconds / self.runs as f64)
    }
}

/// How long runs take.
#[derive(Clone, Debug, Default)]
pub struct RunTimes {
    points: BTreeMap<(String, String), MeasuredTime>,
    experiments: BTreeMap<String, MeasuredTime>,
    /// The time of all runs beyond their nominal time.
    overhead: MeasuredTime,
}

impl RunTimes {
    /// Adds the times of an earlier result, if its runs were as long as those of this scale.
    pub fn learn(&mut self, results: &Results, scale: &Scale) {
        let length = |scale: &Scale| (scale.effort, scale.time, scale.warm_up);
        if length(&results.scale) != length(scale) {
            return;
        }
        let nominal = scale.time + scale.warm_up;
        for point in &results.points {
            // Files of earlier releases do not know how long a run took.
            let runs = point.repetitions.iter().filter(|run| run.seconds > 0.0);
            for run in runs {
                self.add(&results.experiment, &point.id, nominal, run.seconds);
            }
        }
    }

    fn add(&mut self, experiment: &str, point: &str, nominal: Duration, seconds: f64) {
        let key = (experiment.to_owned(), point.to_owned());
        self.points.entry(key).or_default().add(seconds);
        let experiment = self.experiments.entry(experiment.to_owned());
        experiment.or_default().add(seconds);
        self.overhead
            .add((seconds - nominal.as_secs_f64()).max(0.0));
    }

    /// Returns how long some of the planned runs will take, in seconds.
    fn estimate(&self, plan: &PlannedRuns, runs: &[String]) -> f64 {
        let of_experiment = self.experiments.get(&plan.experiment);
        let usual = of_experiment
            .and_then(|time| time.mean())
            .unwrap_or_else(|| {
                plan.nominal.as_secs_f64() + self.overhead.mean().unwrap_or_default()
            });
        let run = |id: &String| {
            let key = (plan.experiment.clone(), id.clone());
            let measured = self.points.get(&key).and_then(|time| time.mean());
            measured.unwrap_or(usual)
        };
        runs.iter().map(run).sum()
    }

    /// Returns how long all planned runs will take, in words.
    #[must_use]
    pub fn show(&self, plans: &[PlannedRuns]) -> String {
        let seconds = plans.iter().map(|plan| self.estimate(plan, &plan.runs));
        self.in_words(seconds.sum())
    }

    fn in_words(&self, seconds: f64) -> String {
        let time = duration(seconds);
        match self.overhead.mean() {
            Some(_) => format!("about {time}"),
            None => format!("at least {time} (no run is measured yet)"),
        }
    }
}

/// Returns a time as people say it.
#[must_use]
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// The progress of a series of experiments.
pub struct RunProgress {
    plans: Vec<PlannedRuns>,
    /// The number of experiments that were begun.
    begun: usize,
    /// The number of runs of the last one that were begun.
    runs: usize,
    times: RunTimes,
    /// The time within which later rounds are begun, if it is limited.
    limit: Option<Duration>,
    started: Instant,
    bar: ProgressBar,
    logged: Instant,
}

impl RunProgress {
    /// Returns the progress of these experiments, none of which has begun. With a limit, rounds after
    /// an experiment's first one are left out if time would not suffice for them and for a round of
    /// each later experiment.
    #[must_use]
    pub fn new(plans: Vec<PlannedRuns>, times: RunTimes, limit: Option<Duration>) -> RunProgress {
        let total: usize = plans.iter().map(|plan| plan.runs.len()).sum();
        let bar = ProgressBar::new(total as u64);
        let style = ProgressStyle::with_template("{bar:24} {wide_msg}");
        bar.set_style(style.expect("the template makes sense"));
        RunProgress {
            plans,
            begun: 0,
            runs: 0,
            times,
            limit,
            started: Instant::now(),
            bar,
            logged: Instant::now(),
        }
    }

    /// Begins the next experiment.
    pub fn begin_experiment(&mut self) {
        let before = &self.plans[..self.begun];
        let runs: usize = before.iter().map(|plan| plan.runs.len()).sum();
        self.bar.set_position(runs as u64);
        self.begun += 1;
        self.runs = 0;
    }

    /// Begins the next run of the experiment.
    pub fn begin_run(&mut self) {
        if self.runs > 0 {
            self.bar.inc(1);
        }
        self.runs += 1;
        let text = self.show();
        if self.bar.is_hidden() && self.logged.elapsed() >= INTERVAL {
            self.logged = Instant::now();
            tracing::info!("{text}");
        }
        self.bar.set_message(text);
    }

    /// Ends the run that was begun, and took so many seconds.
    pub fn end_run(&mut self, seconds: f64) {
        let plan = &self.plans[self.begun - 1];
        let id = &plan.runs[self.runs - 1];
        self.times.add(&plan.experiment, id, plan.nominal, seconds);
    }

    /// Has no more runs of a point come: it cannot be measured, or has failed.
    pub fn give_up(&mut self) {
        let plan = &mut self.plans[self.begun - 1];
        let id = plan.runs[self.runs - 1].clone();
        let mut place = 0;
        let begun = self.runs;
        plan.runs.retain(|run| {
            place += 1;
            place <= begun || *run != id
        });
        self.set_length();
    }

    /// Returns `true` if time suffices for so many more runs of the experiment, and for the first round
    /// of each later one.
    #[must_use]
    pub fn has_time_for(&self, runs: usize) -> bool {
        let Some(limit) = self.limit else {
            return true;
        };
        let plan = &self.plans[self.begun - 1];
        let runs = &plan.runs[self.runs..plan.runs.len().min(self.runs + runs)];
        let later = self.plans[self.begun..].iter();
        let later = later.map(|plan| self.times.estimate(plan, &plan.runs[..plan.first_round]));
        let needed = self.times.estimate(plan, runs) + later.sum::<f64>();
        self.started.elapsed().as_secs_f64() + needed <= limit.as_secs_f64()
    }

    /// Has no more runs of the experiment come.
    pub fn leave_out_rest(&mut self) {
        self.plans[self.begun - 1].runs.truncate(self.runs);
        self.set_length();
    }

    fn set_length(&self) {
        let total: usize = self.plans.iter().map(|plan| plan.runs.len()).sum();
        self.bar.set_length(total as u64);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Returns a line on the run that was begun last.
    fn show(&self) -> String {
        let plan = &self.plans[self.begun - 1];
        let (run, of) = (self.runs, plan.runs.len());
        let experiment = match self.plans.len() {
            1 => plan.experiment.clone(),
            all => format!("experiment {} of {all}, {}", self.begun, plan.experiment),
        };
        let id = &plan.runs[run - 1];
        let left = self.times.estimate(plan, &plan.runs[run - 1..]);
        let later = &self.plans[self.begun..];
        let later = later
            .iter()
            .map(|plan| self.times.estimate(plan, &plan.runs));
        let left = self.times.in_words(left + later.sum::<f64>());
        let elapsed = duration(self.started.elapsed().as_secs_f64());
        format!("{experiment}, run {run} of {of}: {id}; {elapsed}, {left} left")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(experiment: &str, runs: &[&str]) -> PlannedRuns {
        PlannedRuns {
            experiment: experiment.to_owned(),
            runs: runs.iter().map(|&id| id.to_owned()).collect(),
            first_round: 1,
            nominal: Duration::from_secs(1),
        }
    }

    #[test]
    fn times_that_are_unknown_are_taken_from_the_nearest_that_are_known() {
        let plans = [plan("a", &["p", "q", "p"]), plan("b", &["r"])];
        let mut times = RunTimes::default();
        assert_eq!(times.show(&plans), "at least 4 s (no run is measured yet)");
        // p as measured, q as the mean of a, r as its nominal time and the mean of what runs take
        // beyond theirs.
        times.add("a", "p", Duration::from_secs(1), 3.0);
        assert_eq!(times.estimate(&plans[0], &plans[0].runs), 9.0);
        assert_eq!(times.estimate(&plans[1], &plans[1].runs), 3.0);
        times.add("a", "q", Duration::from_secs(1), 5.0);
        assert_eq!(times.estimate(&plans[0], &plans[0].runs), 11.0);
        assert_eq!(times.estimate(&plans[1], &plans[1].runs), 4.0);
        assert_eq!(times.show(&plans), "about 15 s");
    }

    #[test]
    fn progress_names_the_experiment_the_run_and_the_time_left() {
        let plans = vec![plan("a", &["p", "q", "p", "q"]), plan("b", &["r"])];
        let mut progress = RunProgress::new(plans, RunTimes::default(), None);
        progress.begin_experiment();
        progress.begin_run();
        progress.end_run(2.0);
        progress.begin_run();
        assert_eq!(
            progress.show(),
            "experiment 1 of 2, a, run 2 of 4: q; 0 s, about 8 s left"
        );
        progress.give_up();
        progress.begin_run();
        assert_eq!(
            progress.show(),
            "experiment 1 of 2, a, run 3 of 3: p; 0 s, about 4 s left"
        );
        progress.end_run(2.0);
        progress.begin_experiment();
        progress.begin_run();
        assert_eq!(
            progress.show(),
            "experiment 2 of 2, b, run 1 of 1: r; 0 s, about 2 s left"
        );
    }

    #[test]
    fn a_limit_leaves_time_for_a_round_of_each_later_experiment() {
        // Without measured times a run takes its second.
        let progress = |seconds| {
            let plans = vec![plan("a", &["p", "p", "p"]), plan("b", &["r", "r"])];
            let limit = Some(Duration::from_secs(seconds));
            let mut progress = RunProgress::new(plans, RunTimes::default(), limit);
            progress.begin_experiment();
            progress
        };
        assert!(progress(5).has_time_for(3));
        assert!(!progress(3).has_time_for(3));
        assert!(progress(3).has_time_for(1));
        let mut last = progress(3);
        last.begin_run();
        last.leave_out_rest();
        last.begin_experiment();
        last.begin_run();
        assert_eq!(
            last.show(),
            "experiment 2 of 2, b, run 1 of 2: r; 0 s, at least 2 s (no run is measured yet) left"
        );
    }

    #[test]
    fn durations_are_short() {
        for (seconds, text) in [
            (8.4, "8 s"),
            (130.0, "2 min"),
            (2400.0, "40 min"),
            (9000.0, "2.5 h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
