//! What the parts of a figure are called, and the colours of its lines and bars.

use super::chart::Value;
use crate::metric;
use crate::parameters::Param;
use crate::result::PointResult;

/// The number of colours; the last one is for points without a log, or without anything to
/// distinguish.
const COLOURS: usize = 8;
const GREY: usize = COLOURS - 1;

/// A figure for the page.
pub(super) struct Figure {
    pub(super) svg: String,
    /// Colour and name.
    pub(super) legend: Vec<(usize, String)>,
}

pub(super) fn value(point: &PointResult, name: &str) -> Option<Value> {
    let summary = point.summary.get(name)?;
    Some(Value {
        median: summary.median,
        min: summary.min,
        max: summary.max,
    })
}

pub(super) fn title(name: &str) -> String {
    match metric::named(name) {
        Some(metric) => format!("{}, {}", metric.title, metric.unit),
        None => name.to_owned(),
    }
}

/// Returns a parameter's number below the figure.
pub(super) fn tick(param: &str, number: f64) -> String {
    match param {
        "sync-size" => base::size::Size((number * 1024.0) as u64)
            .to_string()
            .replace(".0", " "),
        _ => metric::tick(number),
    }
}

/// Returns a name made of the values of parameters.
pub(super) fn name(point: &PointResult, params: &[&str]) -> String {
    let shown = |param: &&str| {
        let value = point.params.get(*param)?;
        Some(match value {
            Param::Number(number) => format!("{param} {number}"),
            Param::Text(text) if text == "yes" => (*param).to_owned(),
            Param::Text(text) if text == "no" => return None,
            Param::Text(text) => text.clone(),
        })
    };
    let parts: Vec<String> = params
        .iter()
        .filter_map(shown)
        .filter(|part| part != "–")
        .collect();
    parts.join(", ")
}

pub(super) fn tip(point: &PointResult, names: &[&str]) -> String {
    let figure = |metric: &&str| {
        let value = value(point, metric)?;
        let [median, min, max] = [value.median, value.min, value.max].map(metric::show);
        Some(format!("{}: {median} ({min}–{max})", title(metric)))
    };
    let figures: Vec<String> = names.iter().filter_map(figure).collect();
    format!("{}\n{}", point.id, figures.join("\n"))
}

/// Names in the order of their first appearance, each with its colour.
#[derive(Default)]
pub(super) struct Legend {
    entries: Vec<(usize, String)>,
    /// The number of colours that were given away.
    used: usize,
}

impl Legend {
    /// Returns the colour of a name; `neutral`: a new name gets grey.
    pub(super) fn colour(&mut self, name: &str, neutral: bool) -> usize {
        if let Some(colour) = self.known(name) {
            return colour;
        }
        let colour = match neutral {
            true => GREY,
            false => {
                self.used += 1;
                (self.used - 1) % GREY
            }
        };
        self.entries.push((colour, name.to_owned()));
        colour
    }

    /// Returns the colour of a name that has the colour of another one, if the other one is there.
    pub(super) fn colour_like(&mut self, name: &str, other: &str, neutral: bool) -> usize {
        let simulated = || self.known(&format!("{other}, simulated"));
        match (self.known(name), self.known(other).or_else(simulated)) {
            (None, Some(colour)) => {
                self.entries.push((colour, name.to_owned()));
                colour
            }
            (Some(_), _) | (None, None) => self.colour(name, neutral),
        }
    }

    fn known(&self, name: &str) -> Option<usize> {
        let found = self.entries.iter().find(|(_, known)| known == name);
        found.map(|(colour, _)| *colour)
    }

    /// Adds a remark, which is in grey.
    pub(super) fn remark(&mut self, text: &str) {
        self.entries.push((GREY, text.to_owned()));
    }

    /// Returns colours and names, in the order in which the names came.
    pub(super) fn entries(self) -> Vec<(usize, String)> {
        self.entries
    }
}

/// Returns `true` if the point is a baseline of others, which is drawn in grey.
pub(super) fn is_neutral(point: &PointResult, points: &[&PointResult]) -> bool {
    let id = Some(&point.id);
    points.iter().any(|other| other.baseline.as_ref() == id)
}

/// Returns a value that was measured once.
pub(super) fn exactly(value: f64) -> Value {
    Value {
        median: value,
        min: value,
        max: value,
    }
}

pub(super) fn greatest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// Returns the name of a bar: values that are unclear by themselves get their parameter's name.
pub(super) fn bar_name(series: &str, value: &str) -> String {
    match series {
        "diff" => format!("max-epoch-diff {value}"),
        "log" if value == "none" => "no log".to_owned(),
        "log" => format!("log on {value}"),
        _ => value.to_owned(),
    }
}

/// Returns the name of the line that a point is on.
pub(super) fn line_name(point: &PointResult, series: &[&str]) -> String {
    match (series, point.params.get("diff")) {
        (["diff"], Some(diff)) => bar_name("diff", &diff.to_string()),
        _ => name(point, series),
    }
}
