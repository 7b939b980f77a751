//! The figure of `docs/durability.md`: the controller on a model of a device that becomes slow for
//! a while. The test draws it anew and compares it with the file.

use std::fmt::Write as _;

use super::tests::{Drive, Model, Step};

const TARGET: f64 = 3e-3;
/// Bytes that the workers would log in a second.
const DEMAND: f64 = 60e6;
const QUICK: Drive = Drive {
    sync: 200e-6,
    rate: 1e9,
};
const SLOW: Drive = Drive {
    sync: 400e-6,
    rate: 20e6,
};
/// The times at which the device becomes slow and fast again, and the end of the figure.
const FROM: f64 = 0.1;
const TO: f64 = 0.25;
const END: f64 = 0.4;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 680.0;

fn steps() -> (Vec<Step>, Vec<f64>) {
    let mut model = Model::new(TARGET, DEMAND);
    let (mut steps, mut limits) = (Vec::<Step>::new(), Vec::new());
    let mut now = 0.0;
    while now < END {
        let slow = (FROM..TO).contains(&now);
        let step = model.step(if slow { SLOW } else { QUICK });
        now = step.began;
        if now < END {
            steps.push(step);
            limits.push(model.pacer.limit);
        }
    }
    (steps, limits)
}

/// A panel: its place, its range and its title.
struct Panel {
    top: f64,
    height: f64,
    most: f64,
    title: &'static str,
}

impl Panel {
    fn point(&self, time: f64, value: f64) -> (f64, f64) {
        let x = LEFT + (RIGHT - LEFT) * time / END;
        let part = (value / self.most).clamp(0.0, 1.0);
        (x, self.top + self.height * (1.0 - part))
    }

    fn frame(&self, svg: &mut String, ticks: &[f64]) {
        let (x0, y0) = self.point(FROM, self.most);
        let (x1, _) = self.point(TO, self.most);
        let _ = writeln!(
            svg,
            r##"<rect x="{x0:.1}" y="{y0:.1}" width="{:.1}" height="{:.1}" fill="#8883"/>"##,
            x1 - x0,
            self.height
        );
        for &tick in ticks {
            let (x, y) = self.point(0.0, tick);
            let _ = writeln!(
                svg,
                r##"<path d="M{x:.1} {y:.1}H{RIGHT}" stroke="#8886"/><text x="{:.1}" y="{:.1}" text-anchor="end">{tick}</text>"##,
                x - 6.0,
                y + 4.0
            );
        }
        let (title, y) = (self.title, self.top - 10.0);
        let _ = writeln!(
            svg,
            r#"<text x="{LEFT}" y="{y:.1}" font-weight="bold">{title}</text>"#
        );
    }

    fn line(&self, svg: &mut String, colour: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (time, value) in points {
            let (x, y) = self.point(time, value);
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{x:.1} {y:.1}");
        }
        let _ = writeln!(
            svg,
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>"#
        );
    }
}

fn draw() -> String {
    let (steps, limits) = steps();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 480\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#777\">\n"
    );
    let times = Panel {
        top: 40.0,
        height: 200.0,
        most: 12.0,
        title: "milliseconds: latency (blue), period (orange), target (dashed)",
    };
    times.frame(&mut svg, &[0.0, 3.0, 6.0, 9.0, 12.0]);
    let (x, y) = times.point(0.0, TARGET * 1e3);
    let _ = writeln!(
        svg,
        r##"<path d="M{x:.1} {y:.1}H{RIGHT}" stroke="#c33" stroke-dasharray="5 4"/>"##
    );
    times.line(
        &mut svg,
        "#e08a00",
        steps.iter().map(|s| (s.began, s.open * 1e3)),
    );
    times.line(
        &mut svg,
        "#2b6cd4",
        steps.iter().map(|s| (s.began, s.latency * 1e3)),
    );
    let sizes = Panel {
        top: 290.0,
        height: 130.0,
        most: 400.0,
        title: "kilobytes: carried by a cycle (blue), most that workers may hold (green)",
    };
    sizes.frame(&mut svg, &[0.0, 100.0, 200.0, 300.0, 400.0]);
    let limits = steps
        .iter()
        .zip(&limits)
        .map(|(s, limit)| (s.began, limit / 1e3));
    sizes.line(&mut svg, "#2a9d5c", limits);
    sizes.line(
        &mut svg,
        "#2b6cd4",
        steps.iter().map(|s| (s.began, s.bytes / 1e3)),
    );
    for tick in [0.0, 0.1, 0.2, 0.3, 0.4] {
        let (x, y) = sizes.point(tick, 0.0);
        let ms = tick * 1e3;
        let _ = writeln!(
            svg,
            r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{ms:.0} ms</text>"#,
            y + 18.0
        );
    }
    let (x, y) = sizes.point((FROM + TO) / 2.0, 0.0);
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">the device is slow: 20 instead of 1000 MB/s</text>"#,
        y + 38.0
    );
    svg.push_str("</svg>\n");
    svg
}

#[test]
fn the_figure_in_the_documentation_is_of_this_controller() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures/pacer.svg");
    let drawn = draw();
    if std::fs::read_to_string(path).ok().as_deref() != Some(drawn.as_str()) {
        let beside = format!("{path}.new");
        std::fs::write(&beside, drawn).unwrap();
        panic!("the controller has changed: look at {beside}, and put it in the figure's place");
    }
}
