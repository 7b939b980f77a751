//! Prometheus's text format (version 0.0.4).
//!
//! ```text
//! # HELP kumiki_commands_total Commands from clients, by what they do.
//! # TYPE kumiki_commands_total counter
//! kumiki_commands_total{kind="read"} 12
//! kumiki_commands_total{kind="write"} 3
//! ```
//!
//! Families without a sample are left out.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// The media type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The value only grows, or begins anew.
    Counter,
    /// The value goes up and down.
    Gauge,
    /// The metric counts values below several bounds.
    Histogram,
}

/// A metric with a name. `F` finds its samples.
pub struct Family<F> {
    /// The name, as in the text; that of a counter ends in `_total`.
    pub name: &'static str,
    /// The type of the metric.
    pub kind: Kind,
    /// The meaning, in one sentence.
    pub help: &'static str,
    /// Finds the samples.
    pub fill: F,
}

/// Makes a metric that only grows.
pub const fn counter<F: Copy>(name: &'static str, help: &'static str, fill: F) -> Family<F> {
    let kind = Kind::Counter;
    Family {
        name,
        kind,
        help,
        fill,
    }
}

/// Makes a metric that goes up and down.
pub const fn gauge<F: Copy>(name: &'static str, help: &'static str, fill: F) -> Family<F> {
    let kind = Kind::Gauge;
    Family {
        name,
        kind,
        help,
        fill,
    }
}

/// Checks in tests that families are as readers of the text require: each name occurs once, only
/// the name of a counter ends in `_total`, and each help text is one sentence.
///
/// # Panics
/// Panics if one of them is not so.
pub fn check<'f, F: 'f>(families: impl IntoIterator<Item = &'f Family<F>>) {
    let mut names = BTreeSet::new();
    for Family {
        name, kind, help, ..
    } in families
    {
        assert!(names.insert(*name), "{name} is there twice");
        let counts = *kind == Kind::Counter;
        assert_eq!(name.ends_with("_total"), counts, "{name}");
        assert!(help.ends_with('.') && !help.contains('\n'), "{name}");
    }
}

/// Samples of one family.
pub struct Samples<'a> {
    name: &'static str,
    lines: &'a mut String,
}

/// Labels of a sample: names and values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Samples<'_> {
    /// Adds the only sample.
    pub fn add(&mut self, value: u64) {
        self.line("", &[], &value.to_string());
    }

    /// Adds the only sample, a time in seconds or another fraction.
    pub fn seconds(&mut self, value: f64) {
        self.line("", &[], &value.to_string());
    }

    /// Adds one sample of several.
    pub fn labelled(&mut self, labels: Labels<'_>, value: u64) {
        self.line("", labels, &value.to_string());
    }

    /// Adds one sample of several, a time in seconds or another fraction.
    pub fn labelled_seconds(&mut self, labels: Labels<'_>, value: f64) {
        self.line("", labels, &value.to_string());
    }

    /// Adds a histogram of times. The first class counts those up to `first`, each further one
    /// those up to twice the bound of the previous one, and the last one all that are longer.
    pub fn histogram(
        &mut self,
        labels: Labels<'_>,
        first: Duration,
        classes: &[u64],
        sum: Duration,
    ) {
        let mut below = 0;
        let mut bound = first;
        for (index, count) in classes.iter().enumerate() {
            below += count;
            let text = if index + 1 == classes.len() {
                "+Inf".to_owned()
            } else {
                bound.as_secs_f64().to_string()
            };
            let labels = [labels, &[("le", &text)]].concat();
            self.line("_bucket", &labels, &below.to_string());
            bound = bound.saturating_mul(2);
        }
        self.line("_sum", labels, &sum.as_secs_f64().to_string());
        self.line("_count", labels, &below.to_string());
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: &str) {
        self.lines.push_str(self.name);
        self.lines.push_str(suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            let value = value.replace('\n', "\\n");
            write!(self.lines, "{before}{name}=\"{value}\"").expect("a String takes any text");
        }
        self.lines
            .push_str(if labels.is_empty() { " " } else { "} " });
        self.lines.push_str(value);
        self.lines.push('\n');
    }
}

/// Returns the whole text: for each family the samples that `fill` adds.
pub fn text<'f, F: 'f>(
    families: impl IntoIterator<Item = &'f Family<F>>,
    mut fill: impl FnMut(&'f Family<F>, &mut Samples<'_>),
) -> String {
    let mut text = String::with_capacity(16 * 1024);
    let mut lines = String::new();
    for family in families {
        lines.clear();
        let mut samples = Samples {
            name: family.name,
            lines: &mut lines,
        };
        fill(family, &mut samples);
        if lines.is_empty() {
            continue;
        }
        let (name, help) = (family.name, family.help);
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n").expect("as above");
        text.push_str(&lines);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(fill: impl FnOnce(&mut Samples<'_>)) -> String {
        let mut lines = String::new();
        fill(&mut Samples {
            name: "a",
            lines: &mut lines,
        });
        lines
    }

    #[test]
    fn labels_are_escaped() {
        let text = lines(|out| out.labelled(&[("x", "1"), ("y", "a\"b\\c\nd")], 7));
        assert_eq!(text, "a{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 7\n");
    }

    #[test]
    fn a_histogram_adds_up() {
        let first = Duration::from_micros(2);
        let sum = Duration::from_micros(1_500);
        let text = lines(|out| out.histogram(&[], first, &[2, 0, 1], sum));
        let expected = "a_bucket{le=\"0.000002\"} 2\na_bucket{le=\"0.000004\"} 2\n\
                        a_bucket{le=\"+Inf\"} 3\na_sum 0.0015\na_count 3\n";
        assert_eq!(text, expected);
        let text = lines(|out| out.histogram(&[("t", "0")], first, &[1], sum));
        let expected =
            "a_bucket{t=\"0\",le=\"+Inf\"} 1\na_sum{t=\"0\"} 0.0015\na_count{t=\"0\"} 1\n";
        assert_eq!(text, expected);
    }
}
