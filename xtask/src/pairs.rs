//! `cargo xtask pairs OLD NEW`: the headline figures of two commits or binaries, measured by turns on this
//! machine, and a verdict.
//!
//! The harness `torture headline` measures and prints lines of JSON; here binaries are found or built, and the
//! lines become intervals and a table. A round is one observation of a figure: the ratio of new by old. From
//! the logarithms of these, Student's distribution gives an interval.
//!
//! A gate has many figures, and one of twenty intervals of 95 % misses the truth: of twelve figures of a binary
//! beside itself, one would do so in every second run. So the intervals of a run are as wide as is needed for
//! *all* of them to hold with 95 % (Šidák). With `--only` and one figure that is the plain interval of 95 %.

mod measurement;
mod statistics;
mod subject;
mod verdict;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;

use self::measurement::{Harness, Measurement};
use self::subject::Subject;
use self::verdict::{Judged, Verdict, WIDE};

/// Options of `cargo xtask pairs`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// What is compared with: a commit, which is built with the profile release, or a binary.
    old: String,
    /// What is judged: a commit, or a binary.
    new: String,
    /// How often each figure is measured, with servers that are started anew; a round of all figures takes
    /// about half a minute.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: u32,
    /// Only figures whose names contain this; may be given several times.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// How much worse a figure may be: the command fails if an interval lies wholly beyond it.
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = percent)]
    bound: f64,
    /// Where pairs.json goes, with every observation.
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Where the servers' files lie: in memory, unless a device is to be measured as well.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    data: PathBuf,
}

/// Measures, prints the table and writes the file.
///
/// # Errors
/// If there is no such commit or binary, a build or the harness fails, a figure could not be measured, or one is
/// worse than the bound allows.
pub fn run(options: &Options) -> Result<()> {
    // Both are looked for before one of them is built.
    let old = Subject::find(&options.old)?;
    let new = Subject::find(&options.new)?;
    let old = old.build()?;
    let new = new.build()?;
    let harness = Harness::build(&old.binary, &new.binary, &options.data)?;
    println!("pairs: old is {}", old.name);
    println!("pairs: new is {}", new.name);
    let mut measurement = harness.measure(options.rounds, &options.only)?;
    let confidence = statistics::of_each(0.95, measurement.figures.len());
    let wide = wide(&measurement, confidence);
    if !wide.is_empty() {
        println!(
            "pairs: the intervals of {} are wider than ± {:.0} %; counting instructions",
            wide.join(", "),
            WIDE * 100.0
        );
        harness.count(&wide, &mut measurement)?;
    }
    let judged: Vec<Judged<'_>> = measurement
        .figures
        .iter()
        .map(|figure| Judged::new(figure, confidence, options.bound))
        .collect();
    print!("\n{}", verdict::table(&judged));
    println!(
        "ratio: new by old, over {} rounds; the intervals hold together with 95 %; bound: {:.1} %",
        options.rounds,
        options.bound * 100.0
    );
    let report = json!({
        "old": old.describe(),
        "new": new.describe(),
        "rounds": options.rounds,
        "bound": options.bound,
        "confidence": { "together": 0.95, "each": confidence },
        "figures": judged.iter().map(Judged::describe).collect::<Vec<_>>(),
    });
    fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot make {}", options.out.display()))?;
    let path = options.out.join("pairs.json");
    fs::write(&path, serde_json::to_string_pretty(&report)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("pairs: every observation is in {}", path.display());
    conclude(&judged)
}

/// Returns the figures whose intervals are too wide to say much.
fn wide(measurement: &Measurement, confidence: f64) -> Vec<String> {
    let figures = measurement.figures.iter();
    let is_wide = |ratios: &[f64]| {
        statistics::interval(ratios, confidence).is_some_and(|it| it.half_width() > WIDE)
    };
    figures
        .filter(|figure| figure.error.is_none() && is_wide(&figure.ratios()))
        .map(|figure| figure.name.clone())
        .collect()
}

fn conclude(judged: &[Judged<'_>]) -> Result<()> {
    let named = |wanted: fn(&Verdict) -> bool| {
        let names = judged.iter().filter(|one| wanted(&one.verdict));
        names
            .map(|one| one.figure.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let failed = named(|verdict| matches!(verdict, Verdict::NotMeasured(_)));
    let worse = named(|verdict| verdict.is_worse());
    match (worse.is_empty(), failed.is_empty()) {
        (true, true) => Ok(()),
        (false, true) => bail!("worse than the bound allows: {worse}"),
        (true, false) => bail!("not measured: {failed}"),
        (false, false) => bail!("worse than the bound allows: {worse}; not measured: {failed}"),
    }
}

/// Reads a share such as 3% or 0.5%.
fn percent(text: &str) -> Result<f64> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    match digits.trim().parse::<f64>() {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent / 100.0),
        _ => bail!("it is not a share from 0% to 100%, such as 3%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_shares() {
        assert_eq!(percent("3%").ok(), Some(0.03));
        assert_eq!(percent("0.5").ok(), Some(0.005));
        for wrong in ["", "%", "-1%", "100%", "three"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
