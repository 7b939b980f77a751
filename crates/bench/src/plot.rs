//! The figures that are drawn of an experiment's results, and the comparisons with a paper's
//! values.

use crate::parameters::Param;

/// A figure.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its title.
    pub title: &'static str,
    /// The caption: what to see in it, and which figure of the paper it repeats.
    pub caption: &'static str,
    /// Its kind.
    pub shape: PlotKind,
    /// The points in it: those whose parameters have one of these values.
    pub only: Vec<(&'static str, Vec<Param>)>,
    /// Values that a paper gives.
    pub paper: Vec<PaperMark>,
}

/// How results become a figure.
#[derive(Clone, Debug)]
pub enum PlotKind {
    /// A line for each value of `series`: metric over a parameter.
    Lines {
        /// The parameter of the x axis.
        x: &'static str,
        /// The metric of the y axis.
        y: &'static str,
        /// The parameters that distinguish the lines.
        series: &'static [&'static str],
        /// `true` if the parameter doubles from point to point.
        doubling: bool,
    },
    /// Bars: a group for each value of a parameter, in it one for each value of another.
    Bars {
        /// The parameter of the groups.
        x: &'static str,
        /// The metric of the y axis.
        y: &'static str,
        /// The parameter of the bars in a group.
        series: &'static str,
        /// `true` if values are shown as shares of the baseline's.
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
    Timeline,
    /// A line for each point: a figure over the time of its last run.
    Course {
        /// The figure of each moment.
        y: CourseFigure,
        /// The parameters that name a line.
        series: &'static [&'static str],
    },
    /// A line for each point: the latency that a share of the operations did not exceed.
    Quantiles {
        /// The shares in percent, and the metrics with their latencies.
        quantiles: &'static [(f64, &'static str)],
        /// The parameters that name a line.
        series: &'static [&'static str],
    },
    /// A dot for each point: one metric against another.
    Scatter {
        /// The metric of the x axis.
        x: &'static str,
        /// The metric of the y axis.
        y: &'static str,
        /// The parameter of the dots' colours.
        series: &'static str,
        /// The parameters written beside a dot.
        label: &'static [&'static str],
    },
}

/// A figure of the moments of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CourseFigure {
    /// Queries a second.
    Rate,
    /// The mean latency of those that were answered in the moment.
    Latency,
}

/// A value of a paper in a figure.
#[derive(Clone, Debug)]
pub enum PaperMark {
    /// A horizontal line.
    Line {
        /// The value, in the metric's unit.
        value: f64,
        /// Its label.
        label: &'static str,
    },
    /// A bar, in a group of the paper's own.
    Bar {
        /// The value, in the metric's unit.
        value: f64,
        /// The value of the bars' parameter.
        series: &'static str,
    },
    /// A line through published points.
    Curve(PaperCurve),
}

/// A line through points that a paper's authors have published.
#[derive(Clone, Debug, PartialEq)]
pub struct PaperCurve {
    /// Its name in the legend.
    pub name: String,
    /// The name of the line of ours that has the same colour, if it is drawn.
    pub like: String,
    /// Values of the x axis's parameter and of the y axis's metric.
    pub points: Vec<(f64, f64)>,
}

/// A statement of a paper compared with the results here.
#[derive(Clone, Debug)]
pub struct Compare {
    /// The subject of the comparison.
    pub what: &'static str,
    /// The paper's statement; `None`: there is none, the row is an aim of our own.
    pub paper: Option<&'static str>,
    /// The value here.
    pub ours: Measure,
    /// The lower or upper bound that it should meet.
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
        /// The point of the numerator.
        of: Vec<(&'static str, Param)>,
        /// The point of the denominator.
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
