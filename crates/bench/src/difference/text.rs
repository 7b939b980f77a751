//! Differences as text, for a terminal.

use std::fmt::{self, Write};

use super::{Differences, MetricDifference, MetricRange, RangeVerdict, ResultDifference};
use crate::metric;
use crate::table::grid;

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A: {}\nB: {}", self.a.display(), self.b.display())?;
        for incomparable in &self.refused {
            writeln!(
                f,
                "not compared: {}: {}",
                incomparable.name, incomparable.why
            )?;
        }
        alone(f, "experiments", &self.only_in_a, &self.only_in_b)?;
        for result in &self.results {
            f.write_str(&show(result)?)?;
        }
        f.write_str(&conclusion(self))
    }
}

fn alone(f: &mut impl Write, what: &str, a: &[String], b: &[String]) -> fmt::Result {
    for (names, side) in [(a, "A"), (b, "B")] {
        if !names.is_empty() {
            writeln!(f, "{what} in {side} alone:\n  {}", names.join("\n  "))?;
        }
    }
    Ok(())
}

fn show(result: &ResultDifference) -> Result<String, fmt::Error> {
    let mut text = format!("\n{}\n\n", result.experiment);
    if result.conditions.is_empty() {
        text += "commit, programs, machine and settings are the same\n";
    } else {
        let header = ["differs", "A", "B"].map(str::to_owned);
        let row = |one: &super::ConditionDifference| {
            vec![one.what.to_owned(), one.a.clone(), one.b.clone()]
        };
        let rows: Vec<Vec<String>> = result.conditions.iter().map(row).collect();
        text += &grid(&header, &rows);
    }
    for (notices, side) in [(&result.notices_a, "A"), (&result.notices_b, "B")] {
        for notice in notices {
            writeln!(text, "{side} was {notice}")?;
        }
    }
    text.push('\n');
    let header = ["point", "metric", "A", "B", "B / A", "ranges"].map(str::to_owned);
    let mut rows = Vec::new();
    for point in &result.points {
        for (i, metric) in point.metrics.iter().enumerate() {
            // A point is named once.
            let id = if i == 0 { point.id.as_str() } else { "" };
            rows.push(row(id, metric));
        }
    }
    text += &grid(&header, &rows);
    for incomparable in &result.refused {
        writeln!(
            text,
            "not compared: {}: {}",
            incomparable.name, incomparable.why
        )?;
    }
    alone(&mut text, "points", &result.only_in_a, &result.only_in_b)?;
    Ok(text)
}

fn row(id: &str, difference: &MetricDifference) -> Vec<String> {
    let title = match metric::named(&difference.metric) {
        Some(metric) => format!("{}, {}", metric.title, metric.unit),
        None => difference.metric.clone(),
    };
    let range = |range: &MetricRange| {
        let [median, min, max] = [range.median, range.min, range.max].map(metric::show);
        format!("{median} ({min}–{max}, {})", range.runs)
    };
    let ranges = match difference.ranges {
        RangeVerdict::Overlap => "",
        RangeVerdict::Apart => "apart",
        RangeVerdict::TooFewRuns => "apart, too few runs",
    };
    let quotient = difference.quotient;
    vec![
        id.to_owned(),
        title,
        range(&difference.a),
        range(&difference.b),
        quotient.map_or("–".to_owned(), |quotient| format!("{quotient:.3}")),
        ranges.to_owned(),
    ]
}

/// Returns how many differences there are, beside the number that chance alone would make.
fn conclusion(differences: &Differences) -> String {
    let of = |verdict| {
        let metrics = differences.metrics();
        metrics.filter(|one| one.ranges == verdict).count()
    };
    let able = || {
        differences
            .metrics()
            .filter(|one| one.chance <= super::CHANCE)
    };
    let by_chance = able().map(|one| one.chance).fold(0.0, |sum, one| sum + one);
    let (apart, few) = (of(RangeVerdict::Apart), of(RangeVerdict::TooFewRuns));
    let mut text = format!(
        "\n{apart} of {} metrics are apart; chance alone would make about {by_chance:.1} of them so\n",
        able().count()
    );
    if few > 0 {
        let _ = writeln!(
            text,
            "{few} more are apart, but have too few runs to tell: take --repetitions 4 or more"
        );
    }
    text
}
