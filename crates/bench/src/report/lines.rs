//! Lines: a metric over a parameter, beside a paper's values and points.

use super::axis::{Axis, WIDE};
use super::chart::{Dot, Origin, Series, Xy};
use super::labels::{
    Figure, Legend, exactly, greatest, is_neutral, line_name, tick, tip, title, value,
};
use super::paper_values::{marks, published};
use crate::parameters::Param;
use crate::plot::Plot;
use crate::result::PointResult;

/// Draws a line for each value of `series`.
pub(super) fn lines(
    plot: &Plot,
    points: &[&PointResult],
    x: &str,
    y: &str,
    series: &[&str],
    doubling: bool,
) -> Option<Figure> {
    let mut legend = Legend::default();
    let mut all: Vec<(String, Series)> = Vec::new();
    let mut places = Vec::new();
    for point in points {
        let (Some(Param::Number(place)), Some(value)) = (point.params.get(x), value(point, y))
        else {
            continue;
        };
        let name = line_name(point, series);
        let neutral = is_neutral(point, points) && point.params.contains_key("log");
        let name = if neutral { "no log".to_owned() } else { name };
        let origin = origin(point);
        let (name, colour) = match origin {
            Origin::Simulated => {
                let simulated = format!("{name}, simulated");
                let colour = legend.colour_like(&simulated, &name, neutral);
                (simulated, colour)
            }
            Origin::Measured | Origin::Published => {
                let colour = legend.colour(&name, neutral);
                (name, colour)
            }
        };
        places.push(*place);
        let dot = Dot {
            x: exactly(*place),
            y: value,
            label: String::new(),
            is_extrapolated: point.params.get("threads") == Some(&"extrapolated".into()),
            tip: tip(point, &[y]),
        };
        match all.iter_mut().find(|(other, _)| *other == name) {
            Some((_, line)) => line.dots.push(dot),
            None => {
                let line = Series {
                    colour,
                    origin,
                    dots: vec![dot],
                };
                all.push((name, line));
            }
        }
    }
    if places.is_empty() {
        return None;
    }
    let ours = || all.iter().flat_map(|(_, line)| &line.dots);
    let marks = marks(plot, greatest(ours().map(|dot| dot.y.max)));
    let published = published(plot, &mut legend);
    let is_measured = |(_, line): &(String, Series)| line.origin == Origin::Measured;
    let has_both = all.iter().any(is_measured) && !all.iter().all(is_measured);
    // Another machine's points, and those of a larger one, may be far from ours.
    let is_compared = has_both || !published.is_empty();
    let mut all: Vec<Series> = all.into_iter().map(|(_, line)| line).collect();
    all.extend(published);
    for line in &mut all {
        line.dots.sort_by(|a, b| a.x.median.total_cmp(&b.x.median));
    }
    let dots = || all.iter().flat_map(|line| &line.dots);
    if dots().any(|dot| dot.is_extrapolated) {
        legend.remark("crosses: extrapolated, beyond four times the validated threads");
    }
    let mut places: Vec<f64> = dots().map(|dot| dot.x.median).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let tops = dots().map(|dot| dot.y.max);
    let values: Vec<f64> = tops.chain(marks.iter().map(|mark| mark.0)).collect();
    let upwards = match is_compared {
        true => Axis::fitting(dots().flat_map(|dot| [dot.y.min, dot.y.max]), WIDE),
        false => Axis::from_zero(values.into_iter()),
    };
    let chart = Xy {
        x: Axis::at(&places, doubling, |number| tick(x, number)),
        y: upwards,
        x_title: title(x),
        y_title: title(y),
        joined: true,
        series: all,
        marks,
    };
    Some(Figure {
        svg: chart.draw(plot.title),
        legend: legend.entries(),
    })
}

/// Returns where a point comes from.
fn origin(point: &PointResult) -> Origin {
    match point.params.get("threads") {
        Some(Param::Text(threads)) if threads == "simulated" || threads == "extrapolated" => {
            Origin::Simulated
        }
        _ => Origin::Measured,
    }
}
