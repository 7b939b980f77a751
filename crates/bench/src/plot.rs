//! What is drawn of an experiment's results, and what is held beside a paper's values.

use crate::experiment::Param;

/// A figure.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What it shows.
    pub title: &'static str,
    /// What to see in it, and which figure of the paper it repeats.
    pub caption: &'static str,
    /// How.
    pub shape: Shape,
    /// The points that are in it: those whose parameters have one of these values.
    pub only: Vec<(&'static str, Vec<Param>)>,
    /// Values that a paper gives.
    pub paper: Vec<Mark>,
}

/// How results become a figure.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A line for each value of `series`: metric over a parameter.
    Lines {
        /// The parameter across.
        x: &'static str,
        /// The metric upwards.
        y: &'static str,
        /// The parameters that tell the lines apart.
        series: &'static [&'static str],
        /// Whether the parameter doubles from point to point.
        doubling: bool,
    },
    /// Bars: a group for each value of a parameter, in it one for each value of another.
    Bars {
        /// The parameter of the groups.
        x: &'static str,
        /// The metric upwards.
        y: &'static str,
        /// The parameter of the bars in a group.
        series: &'static str,
        /// Whether values are shown as shares of the baseline's.
        relative: bool,
    },
    /// A bar for each point, of several metrics on top of each other.
    Stack {
        /// The parameters that name a bar.
        x: &'static [&'static str],
        /// The metrics, from below.
        parts: &'static [&'static str],
    },
    /// Cores that the processes of a point used, over the time of its last run.
    Course,
    /// A dot for each point: one metric over another.
    Scatter {
        /// The metric across.
        x: &'static str,
        /// The metric upwards.
        y: &'static str,
        /// The parameter of the dots' colours.
        series: &'static str,
        /// The parameters written beside a dot.
        label: &'static [&'static str],
    },
}

/// A value of a paper in a figure.
#[derive(Clone, Copy, Debug)]
pub enum Mark {
    /// A line across.
    Line {
        /// The value, in the metric's unit.
        value: f64,
        /// What it is.
        label: &'static str,
    },
    /// A bar, in a group of the paper's own.
    Bar {
        /// The value, in the metric's unit.
        value: f64,
        /// The value of the bars' parameter.
        series: &'static str,
    },
}

/// A statement of a paper beside what was measured here.
#[derive(Clone, Debug)]
pub struct Compare {
    /// What is compared.
    pub what: &'static str,
    /// What the paper says; `None`: it says nothing, the row is an aim of our own.
    pub paper: Option<&'static str>,
    /// What is said here.
    pub ours: Measure,
    /// What it should be at least, or at most.
    pub aim: Option<Aim>,
}

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// Not less.
    AtLeast(f64),
    /// Not more.
    AtMost(f64),
}

/// How to compute a figure from results.
#[derive(Clone, Debug)]
pub enum Measure {
    /// The median of a metric at a point; the greatest if several points match.
    Value {
        /// The metric.
        metric: &'static str,
        /// The point's parameters.
        at: Vec<(&'static str, Param)>,
    },
    /// The quotient of a metric at two points.
    Ratio {
        /// The metric.
        metric: &'static str,
        /// The point above the line.
        of: Vec<(&'static str, Param)>,
        /// The point below the line.
        to: Vec<(&'static str, Param)>,
    },
    /// A metric at a point as a share of its baseline's, run by run.
    Share {
        /// The metric.
        metric: &'static str,
        /// The point's parameters.
        at: Vec<(&'static str, Param)>,
    },
    /// By how much the best of the `others` beats the best of the `ours` on both metrics at once,
    /// as a factor (throughput up, latency down): 1.1 is 10 % on both.
    Beaten {
        /// Ours.
        ours: Vec<(&'static str, Param)>,
        /// The others.
        others: Vec<(&'static str, Param)>,
    },
}
