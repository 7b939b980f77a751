//! The reports of `LATENCY`, as text.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::latency_monitor::{LatencyHistory, LatencySample};

/// The rows of a graph.
const ROWS: u64 = 4;
/// The samples of a graph, the newest ones.
const COLUMNS: usize = 80;

/// Returns the samples of an event as a graph: a column for each, with its age below it.
pub(super) fn graph(event: &str, history: &LatencyHistory, now: u64) -> String {
    let left_out = history.samples.len().saturating_sub(COLUMNS);
    let samples: Vec<LatencySample> = history.samples.iter().skip(left_out).copied().collect();
    let high = samples.iter().map(|one| one.ms).max().unwrap_or(0);
    let low = samples.iter().map(|one| one.ms).min().unwrap_or(0);
    let mut out = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        history.longest_ms,
        "-".repeat(COLUMNS)
    );
    for row in (1..=ROWS).rev() {
        let mark = |sample: &LatencySample| {
            // The lowest row is never empty.
            let height = (sample.ms * ROWS).div_ceil(high.max(1)).max(1);
            if height >= row { '#' } else { ' ' }
        };
        let line: String = samples.iter().map(mark).collect();
        writeln!(out, "{}", line.trim_end()).expect("a String takes any text");
    }
    out.push('\n');
    let ages: Vec<String> = samples
        .iter()
        .map(|one| age(now.saturating_sub(one.at)))
        .collect();
    let longest = ages.iter().map(String::len).max().unwrap_or(0);
    for at in 0..longest {
        let character = |age: &String| age.chars().nth(at).unwrap_or(' ');
        let line: String = ages.iter().map(character).collect();
        writeln!(out, "{}", line.trim_end()).expect("as above");
    }
    out
}

/// Returns an age in its greatest unit.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns what the events mean, and what to do. `slow` is the limit of the slow log.
pub(super) fn diagnosis(
    threshold_ms: u64,
    events: &BTreeMap<&str, LatencyHistory>,
    slow: Option<Duration>,
) -> String {
    if threshold_ms == 0 {
        return "Events that take long are not recorded: CONFIG SET latency-monitor-threshold <milliseconds> \
                turns it on.\n"
            .to_owned();
    }
    if events.is_empty() {
        return format!("No event took {threshold_ms} ms or more.\n");
    }
    let mut out = format!("Events that took {threshold_ms} ms or more:\n");
    for (name, history) in events {
        let count = history.samples.len() as u64;
        let sum: u64 = history.samples.iter().map(|one| one.ms).sum();
        writeln!(
            out,
            "{name}: in {count} different seconds, {} ms on average, {} ms at most.",
            sum / count.max(1),
            history.longest_ms
        )
        .expect("as above");
    }
    out += match slow {
        Some(_) => "SLOWLOG GET shows the slow commands.\n",
        None => {
            "The slow log is off: CONFIG SET slowlog-log-slower-than <microseconds> turns it on.\n"
        }
    };
    if events.contains_key("fast-command") {
        out += "Commands that are fast by themselves were slow: look for other load on the processors, and for \
                memory that was swapped out.\n";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(samples: &[(u64, u64)]) -> LatencyHistory {
        let samples = samples.iter().map(|&(at, ms)| LatencySample { at, ms });
        LatencyHistory {
            samples: samples.collect(),
            longest_ms: 90,
        }
    }

    #[test]
    fn a_graph_has_a_column_for_each_sample() {
        let text = graph("command", &history(&[(40, 10), (90, 20), (99, 40)]), 100);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "command - high 40 ms, low 10 ms (all time high 90 ms)"
        );
        assert_eq!(lines[2..6], ["  #", "  #", " ##", "###"]);
        assert_eq!(lines[7..], ["111", "m0s", " s"]);
    }

    #[test]
    fn reports_say_what_to_do() {
        let none = BTreeMap::new();
        assert!(diagnosis(0, &none, None).contains("CONFIG SET latency-monitor-threshold"));
        assert_eq!(diagnosis(5, &none, None), "No event took 5 ms or more.\n");
        let some = BTreeMap::from([("command", history(&[(1, 10), (2, 30)]))]);
        let report = diagnosis(5, &some, Some(Duration::ZERO));
        assert!(
            report.contains("2 different seconds, 20 ms on average, 90 ms at most"),
            "{report}"
        );
        assert!(report.contains("SLOWLOG GET") && !report.contains("swapped"));
    }
}
