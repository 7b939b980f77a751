//! Draws a chart and its legend from results and a plot's data.

use std::collections::BTreeMap;

use super::axis::{Axis, WIDE};
use super::chart::{Bar, Bars, Dot, Origin, Series, Xy};
use super::labels::{
    Figure, Legend, bar_name, exactly, greatest, is_neutral, name, tip, title, value,
};
use super::lines::lines;
use super::paper_values::marks;
use crate::metric;
use crate::parameters::Param;
use crate::plot::{CourseFigure, PaperMark, Plot, PlotKind};
use crate::result::{PointResult, Results};
use crate::sample::TimelinePoint;

/// Draws a plot; `None` if none of its points were measured.
pub(super) fn draw(plot: &Plot, results: &Results) -> Option<Figure> {
    let inside = |point: &&PointResult| {
        let fits = |(name, values): &(&str, Vec<Param>)| {
            point
                .params
                .get(*name)
                .is_some_and(|param| values.contains(param))
        };
        plot.only.iter().all(fits)
    };
    let points: Vec<&PointResult> = results.points.iter().filter(inside).collect();
    match &plot.shape {
        PlotKind::Lines {
            x,
            y,
            series,
            doubling,
        } => lines(plot, &points, x, y, series, *doubling),
        PlotKind::Bars {
            x,
            y,
            series,
            relative,
        } => bars(plot, &points, x, y, series, *relative),
        PlotKind::Stack { x, parts } => stack(plot, &points, x, parts),
        PlotKind::Timeline => timeline(plot, &points),
        PlotKind::Course { y, series } => course(plot, &points, *y, series),
        PlotKind::Quantiles { quantiles, series } => of_quantiles(plot, &points, quantiles, series),
        PlotKind::Scatter {
            x,
            y,
            series,
            label,
        } => scatter(plot, &points, [x, y], series, label),
    }
}

fn bars(
    plot: &Plot,
    points: &[&PointResult],
    x: &str,
    y: &str,
    series: &str,
    relative: bool,
) -> Option<Figure> {
    let mut legend = Legend::default();
    let mut groups: Vec<(String, Vec<Bar>)> = Vec::new();
    for point in in_order(points, series) {
        let Some(bar) = bar(point, y, relative) else {
            continue;
        };
        let label = point
            .params
            .get(series)
            .map_or_else(String::new, Param::to_string);
        let colour = legend.colour(&bar_name(series, &label), is_neutral(point, points));
        let group = point
            .params
            .get(x)
            .map_or_else(String::new, Param::to_string);
        let bar = Bar {
            pieces: vec![(colour, bar.0)],
            quoted: false,
            spread: bar.1,
            tip: tip(point, &[y]),
        };
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, bars)) => bars.push(bar),
            None => groups.push((group, vec![bar])),
        }
    }
    if groups.is_empty() {
        return None;
    }
    let first = |(name, _): &(String, Vec<Bar>)| {
        points.iter().position(|point| {
            point
                .params
                .get(x)
                .is_some_and(|param| param.to_string() == *name)
        })
    };
    groups.sort_by_key(first);
    groups.extend(quoted(plot, series, &mut legend));
    let bars = || groups.iter().flat_map(|(_, bars)| bars);
    let top = |bar: &Bar| {
        let spread = bar.spread.map_or(0.0, |spread| spread.1);
        spread.max(bar.pieces[0].1)
    };
    let marks = marks(plot, greatest(bars().map(top)));
    let values: Vec<f64> = bars()
        .map(top)
        .chain(marks.iter().map(|mark| mark.0))
        .collect();
    let y_title = if relative {
        format!(
            "{}, of baseline",
            metric::named(y).map_or(y, |metric| metric.title)
        )
    } else {
        title(y)
    };
    let chart = Bars {
        y: Axis::from_zero(values.into_iter()),
        y_title,
        groups,
        marks,
    };
    Some(Figure {
        svg: chart.draw(plot.title),
        legend: legend.entries(),
    })
}

/// Returns the height of a point's bar and its spread: its figure, or its share of the baseline's.
fn bar(point: &PointResult, y: &str, relative: bool) -> Option<(f64, Option<(f64, f64)>)> {
    if relative {
        return Some((point.summary.get(y)?.share?, None));
    }
    let value = value(point, y)?;
    Some((value.median, Some((value.min, value.max))))
}

/// Returns points by the value of a parameter: words as they come, then numbers by size.
fn in_order<'p>(points: &[&'p PointResult], param: &str) -> Vec<&'p PointResult> {
    let number = |point: &PointResult| match point.params.get(param) {
        Some(Param::Number(number)) => *number,
        Some(Param::Text(text)) => text.parse().unwrap_or(f64::NEG_INFINITY),
        None => f64::NEG_INFINITY,
    };
    let mut points = points.to_vec();
    points.sort_by(|a, b| number(a).total_cmp(&number(b)));
    points
}

/// Returns a group of the paper's bars, if it has any.
fn quoted(plot: &Plot, series: &str, legend: &mut Legend) -> Option<(String, Vec<Bar>)> {
    let mut bars = Vec::new();
    for mark in &plot.paper {
        if let PaperMark::Bar { value, series: of } = *mark {
            bars.push(Bar {
                pieces: vec![(legend.colour(&bar_name(series, of), false), value)],
                quoted: true,
                spread: None,
                tip: format!("the paper's value: {}", metric::tick(value)),
            });
        }
    }
    (!bars.is_empty()).then(|| ("paper".to_owned(), bars))
}

fn stack(plot: &Plot, points: &[&PointResult], x: &[&str], parts: &[&str]) -> Option<Figure> {
    let mut groups = Vec::new();
    for point in points {
        let piece = |(i, part): (usize, &&str)| Some((i, value(point, part)?.median));
        let pieces: Vec<(usize, f64)> = parts.iter().enumerate().filter_map(piece).collect();
        if pieces.is_empty() {
            continue;
        }
        let bar = Bar {
            pieces,
            quoted: false,
            spread: None,
            tip: tip(point, parts),
        };
        groups.push((name(point, x), vec![bar]));
    }
    if groups.is_empty() {
        return None;
    }
    let sum = |bar: &Bar| bar.pieces.iter().map(|piece| piece.1).sum::<f64>();
    let tops: Vec<f64> = groups.iter().flat_map(|(_, bars)| bars).map(sum).collect();
    let chart = Bars {
        y: Axis::from_zero(tops.into_iter()),
        y_title: "mean time, ms".to_owned(),
        groups,
        marks: Vec::new(),
    };
    let named = |(i, part): (usize, &&str)| {
        let title = metric::named(part).map_or(*part, |metric| metric.title);
        (i, title.to_owned())
    };
    Some(Figure {
        svg: chart.draw(plot.title),
        legend: parts.iter().enumerate().map(named).collect(),
    })
}

/// Returns the cores of the first point whose course is known.
fn timeline(plot: &Plot, points: &[&PointResult]) -> Option<Figure> {
    let runs = points.iter().filter_map(|point| point.repetitions.last());
    let run = runs.into_iter().find(|run| !run.timeline.is_empty())?;
    let line = |colour: usize, cores: fn(&TimelinePoint) -> f64| Series {
        colour,
        origin: Origin::Measured,
        dots: run
            .timeline
            .iter()
            .map(|moment| Dot {
                x: exactly(moment.at),
                y: exactly(cores(moment)),
                label: String::new(),
                is_extrapolated: false,
                tip: format!("{} cores", metric::show(cores(moment))),
            })
            .collect(),
    };
    let moments = || run.timeline.iter();
    let chart = Xy {
        x: Axis::from_zero(moments().map(|moment| moment.at)),
        y: Axis::from_zero(moments().flat_map(|moment| [moment.reader, moment.node])),
        x_title: "time, s".to_owned(),
        y_title: "cores".to_owned(),
        joined: true,
        series: vec![
            line(0, |moment| moment.node),
            line(1, |moment| moment.reader),
        ],
        marks: Vec::new(),
    };
    Some(Figure {
        svg: chart.draw(plot.title),
        legend: vec![(0, "storage node".to_owned()), (1, "reader".to_owned())],
    })
}

fn course(
    plot: &Plot,
    points: &[&PointResult],
    figure: CourseFigure,
    series: &[&str],
) -> Option<Figure> {
    let (title, of): (_, fn(&TimelinePoint) -> f64) = match figure {
        CourseFigure::Rate => ("queries a second", |moment| moment.rate),
        CourseFigure::Latency => ("mean latency, ms", |moment| moment.latency),
    };
    let dots = |point: &PointResult| {
        let run = point.repetitions.last()?;
        let dot = |moment: &TimelinePoint| Dot {
            x: exactly(moment.at),
            y: exactly(of(moment)),
            label: String::new(),
            is_extrapolated: false,
            tip: format!("{}\n{title}: {}", point.id, metric::show(of(moment))),
        };
        Some(run.timeline.iter().map(dot).collect())
    };
    named_lines(plot, points, series, ["time, s", title], dots)
}

fn of_quantiles(
    plot: &Plot,
    points: &[&PointResult],
    quantiles: &[(f64, &str)],
    series: &[&str],
) -> Option<Figure> {
    let dots = |point: &PointResult| {
        let dot = |&(share, metric): &(f64, &str)| {
            Some(Dot {
                x: exactly(share),
                y: value(point, metric)?,
                label: String::new(),
                is_extrapolated: false,
                tip: tip(point, &[metric]),
            })
        };
        Some(quantiles.iter().filter_map(dot).collect())
    };
    let titles = ["operations, %", "latency that they do not exceed, ms"];
    named_lines(plot, points, series, titles, dots)
}

/// Draws a line for each point that has dots.
fn named_lines(
    plot: &Plot,
    points: &[&PointResult],
    series: &[&str],
    [x_title, y_title]: [&str; 2],
    dots: impl Fn(&PointResult) -> Option<Vec<Dot>>,
) -> Option<Figure> {
    let mut legend = Legend::default();
    let mut lines: Vec<Series> = Vec::new();
    for point in points {
        let Some(dots) = dots(point).filter(|dots| !dots.is_empty()) else {
            continue;
        };
        let colour = legend.colour(&name(point, series), false);
        lines.push(Series {
            colour,
            origin: Origin::Measured,
            dots,
        });
    }
    if lines.is_empty() {
        return None;
    }
    let dots = || lines.iter().flat_map(|line| &line.dots);
    let ys: Vec<f64> = dots().flat_map(|dot| [dot.y.min, dot.y.max]).collect();
    let chart = Xy {
        x: Axis::from_zero(dots().map(|dot| dot.x.median)),
        y: Axis::fitting(ys.into_iter(), WIDE),
        x_title: x_title.to_owned(),
        y_title: y_title.to_owned(),
        joined: true,
        series: lines,
        marks: Vec::new(),
    };
    Some(Figure {
        svg: chart.draw(plot.title),
        legend: legend.entries(),
    })
}

fn scatter(
    plot: &Plot,
    points: &[&PointResult],
    [x, y]: [&str; 2],
    series: &str,
    label: &[&str],
) -> Option<Figure> {
    let mut legend = Legend::default();
    let mut all: BTreeMap<usize, Series> = BTreeMap::new();
    for point in points {
        let (Some(across), Some(upwards)) = (value(point, x), value(point, y)) else {
            continue;
        };
        let group = name(point, &[series]);
        let colour = legend.colour(&group, is_neutral(point, points));
        let text = name(point, label).replace(" ms", "").replace(&group, "");
        let line = all.entry(colour).or_insert_with(|| Series {
            colour,
            origin: Origin::Measured,
            dots: Vec::new(),
        });
        line.dots.push(Dot {
            x: across,
            y: upwards,
            label: text.trim().to_owned(),
            is_extrapolated: false,
            tip: tip(point, &[x, y]),
        });
    }
    if all.is_empty() {
        return None;
    }
    let dots = || all.values().flat_map(|series| &series.dots);
    let xs: Vec<f64> = dots().map(|dot| dot.x.median).collect();
    let ys: Vec<f64> = dots().flat_map(|dot| [dot.y.min, dot.y.max]).collect();
    let chart = Xy {
        x: Axis::spanning(xs.into_iter()),
        y: Axis::fitting(ys.into_iter(), WIDE),
        x_title: title(x),
        y_title: title(y),
        joined: false,
        series: all.into_values().collect(),
        marks: Vec::new(),
    };
    Some(Figure {
        svg: chart.draw(plot.title),
        legend: legend.entries(),
    })
}
