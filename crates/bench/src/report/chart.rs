//! Charts as SVG: lines, dots, bars. Colours are classes, so that the page's style decides, and a
//! dark page has others. The page draws legends: they wrap where the figure cannot.

use std::fmt::Write;

use super::axis::Axis;
use crate::metric;

/// The figure's size, in its own units. It is as wide as a narrow screen, so that its text stays
/// readable there.
const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 42.0;
/// The approximate width of a letter.
const LETTER: f64 = 6.3;
/// With more bars than this their values are not written.
const LABELLED_BARS: usize = 14;

/// A value with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// A dot of an [`Xy`] chart.
#[derive(Clone, Debug)]
pub(super) struct Dot {
    pub(super) x: Value,
    pub(super) y: Value,
    /// Written beside it.
    pub(super) label: String,
    /// Shown when the pointer is on it.
    pub(super) tip: String,
    /// It was simulated far beyond what the simulation was compared with.
    pub(super) is_extrapolated: bool,
}

/// Where the dots of a series come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// They were measured here.
    Measured,
    /// They were simulated with service times that were measured here.
    Simulated,
    /// A paper's authors have published them.
    Published,
}

/// Dots that belong together.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// The colour's number.
    pub(super) colour: usize,
    pub(super) origin: Origin,
    pub(super) dots: Vec<Dot>,
}

/// Dots in a plane, perhaps joined.
pub(super) struct Xy {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) x_title: String,
    pub(super) y_title: String,
    pub(super) joined: bool,
    pub(super) series: Vec<Series>,
    pub(super) marks: Vec<(f64, String)>,
}

/// Groups of bars. A bar is a list of pieces on top of each other, each with its colour.
pub(super) struct Bars {
    pub(super) y: Axis,
    pub(super) y_title: String,
    pub(super) groups: Vec<(String, Vec<Bar>)>,
    pub(super) marks: Vec<(f64, String)>,
}

/// A bar.
pub(super) struct Bar {
    /// Pieces from below: colour and height.
    pub(super) pieces: Vec<(usize, f64)>,
    /// `true` if the value is quoted from a paper.
    pub(super) quoted: bool,
    /// The spread of the whole, if known.
    pub(super) spread: Option<(f64, f64)>,
    pub(super) tip: String,
}

/// Returns text that is safe within a page.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn across(place: f64) -> f64 {
    LEFT + place * (WIDTH - LEFT - RIGHT)
}

fn up(place: f64) -> f64 {
    HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM)
}

/// An SVG that grows.
struct Canvas(String);

impl Canvas {
    fn new(title: &str) -> Canvas {
        Canvas(format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(title)
        ))
    }

    fn finish(mut self) -> String {
        self.0 += "</svg>\n";
        self.0
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.0,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    fn text(&mut self, class: &str, at: (f64, f64), anchor: &str, text: &str) {
        let _ = writeln!(
            self.0,
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            at.0,
            at.1,
            escape(text)
        );
    }

    /// Draws the vertical scale, with horizontal lines, and its title above.
    fn upwards(&mut self, axis: &Axis, title: &str) {
        for (value, label) in &axis.ticks {
            let y = up(axis.place(*value));
            self.line("grid", (across(0.0), y), (across(1.0), y));
            self.text("tick", (LEFT - 6.0, y + 4.0), "end", label);
        }
        self.text("title", (4.0, 14.0), "start", title);
    }

    /// Draws values of a paper, as horizontal lines.
    fn marks(&mut self, axis: &Axis, marks: &[(f64, String)]) {
        for (value, label) in marks {
            let y = up(axis.place(*value));
            self.line("mark", (across(0.0), y), (across(1.0), y));
            self.text("mark-label", (across(1.0) - 2.0, y - 4.0), "end", label);
        }
    }

    /// Writes a label below the figure, in several lines if necessary.
    fn below(&mut self, x: f64, width: f64, label: &str) {
        for (i, line) in wrap(label, width).iter().enumerate() {
            let y = HEIGHT - BOTTOM + 15.0 + 13.0 * i as f64;
            self.text("tick", (x, y), "middle", line);
        }
    }

    fn dot(&mut self, shape: usize, at: (f64, f64), tip: &str) {
        let (x, y) = at;
        let path = match shape % 4 {
            0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", x - 4.0),
            1 => format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5),
            2 => format!("M{x:.1} {:.1}l4.5 8h-9z", y - 5.0),
            _ => format!("M{x:.1} {:.1}l5 5l-5 5l-5 -5z", y - 5.0),
        };
        let _ = writeln!(
            self.0,
            "<path class=\"dot c{shape}\" d=\"{path}\"><title>{}</title></path>",
            escape(tip)
        );
    }

    fn small_dot(&mut self, colour: usize, (x, y): (f64, f64), tip: &str) {
        let _ = writeln!(
            self.0,
            "<circle class=\"dot c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.6\"><title>{}</title></circle>",
            escape(tip)
        );
    }

    fn ring(&mut self, colour: usize, (x, y): (f64, f64), tip: &str) {
        let _ = writeln!(
            self.0,
            "<circle class=\"ring c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\"><title>{}</title></circle>",
            escape(tip)
        );
    }

    fn cross(&mut self, colour: usize, (x, y): (f64, f64), tip: &str) {
        let _ = writeln!(
            self.0,
            "<path class=\"ring c{colour}\" d=\"M{:.1} {:.1}l6 6m0 -6l-6 6\"><title>{}</title></path>",
            x - 3.0,
            y - 3.0,
            escape(tip)
        );
    }

    fn whisker(&mut self, class: &str, x: f64, axis: &Axis, spread: (f64, f64)) {
        let (low, high) = (up(axis.place(spread.0)), up(axis.place(spread.1)));
        if (low - high).abs() < 1.0 {
            return;
        }
        self.line(class, (x, low), (x, high));
        for y in [low, high] {
            self.line(class, (x - 3.0, y), (x + 3.0, y));
        }
    }
}

/// Breaks words into lines of at most this width.
fn wrap(text: &str, width: f64) -> Vec<String> {
    let letters = ((width / LETTER) as usize).max(4);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

impl Xy {
    pub(super) fn draw(&self, title: &str) -> String {
        let mut canvas = Canvas::new(title);
        canvas.upwards(&self.y, &self.y_title);
        self.crosswise(&mut canvas);
        canvas.marks(&self.y, &self.marks);
        for series in &self.series {
            self.draw_series(&mut canvas, series);
        }
        self.labels(&mut canvas);
        canvas.finish()
    }

    fn crosswise(&self, canvas: &mut Canvas) {
        let mut free = f64::NEG_INFINITY;
        for (value, label) in &self.x.ticks {
            let x = across(self.x.place(*value));
            let half = label.chars().count() as f64 * LETTER / 2.0 + 3.0;
            canvas.line("tick-line", (x, up(0.0)), (x, up(0.0) + 4.0));
            // Labels that would touch are left out.
            if x - half >= free {
                canvas.below(x, f64::INFINITY, label);
                free = x + half;
            }
        }
        canvas.text("title", (across(1.0), HEIGHT - 6.0), "end", &self.x_title);
    }

    fn place(&self, dot: &Dot) -> (f64, f64) {
        let x = across(self.x.place(dot.x.median));
        (x, up(self.y.place(dot.y.median)))
    }

    fn draw_series(&self, canvas: &mut Canvas, series: &Series) {
        let colour = series.colour;
        if self.joined {
            let points: Vec<String> = series
                .dots
                .iter()
                .map(|dot| self.place(dot))
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            let class = match series.origin {
                Origin::Measured => "line",
                Origin::Simulated => "line simulated",
                Origin::Published => "line published",
            };
            let _ = writeln!(
                canvas.0,
                "<polyline class=\"{class} c{colour}\" points=\"{}\"/>",
                points.join(" ")
            );
        }
        for dot in &series.dots {
            let (x, y) = self.place(dot);
            match series.origin {
                Origin::Published => {
                    canvas.small_dot(colour, (x, y), &dot.tip);
                    continue;
                }
                Origin::Simulated if dot.is_extrapolated => {
                    canvas.cross(colour, (x, y), &dot.tip);
                }
                Origin::Simulated => canvas.ring(colour, (x, y), &dot.tip),
                Origin::Measured => canvas.dot(colour, (x, y), &dot.tip),
            }
            let spread = (dot.y.min, dot.y.max);
            canvas.whisker(&format!("whisker c{colour}"), x, &self.y, spread);
        }
    }

    /// Writes labels beside their dots, if there is free space.
    fn labels(&self, canvas: &mut Canvas) {
        let dots = || self.series.iter().flat_map(|series| &series.dots);
        let mut taken: Vec<[f64; 4]> = dots()
            .map(|dot| self.place(dot))
            .map(|(x, y)| [x - 4.0, y - 4.0, x + 4.0, y + 4.0])
            .collect();
        for dot in dots().filter(|dot| !dot.label.is_empty()) {
            let (x, y) = self.place(dot);
            let width = dot.label.chars().count() as f64 * 5.6;
            let places = [
                (x + 7.0, y + 4.0, "start", x + 7.0),
                (x - 7.0, y + 4.0, "end", x - 7.0 - width),
                (x, y - 8.0, "middle", x - width / 2.0),
                (x, y + 16.0, "middle", x - width / 2.0),
            ];
            let free = |left: f64, base: f64| {
                let own = [left, base - 9.0, left + width, base + 2.0];
                let inside = own[0] >= LEFT && own[2] <= WIDTH && own[1] >= TOP - 8.0;
                let apart = |other: &[f64; 4]| {
                    own[0] > other[2] || own[2] < other[0] || own[1] > other[3] || own[3] < other[1]
                };
                (inside && taken.iter().all(apart)).then_some(own)
            };
            let found = places
                .into_iter()
                .find_map(|(x, base, anchor, left)| Some((x, base, anchor, free(left, base)?)));
            if let Some((x, base, anchor, own)) = found {
                canvas.text("dot-label", (x, base), anchor, &dot.label);
                taken.push(own);
            }
        }
    }
}

impl Bars {
    pub(super) fn draw(&self, title: &str) -> String {
        let mut canvas = Canvas::new(title);
        canvas.upwards(&self.y, &self.y_title);
        let count: usize = self.groups.iter().map(|(_, bars)| bars.len()).sum();
        let group_width = 1.0 / self.groups.len().max(1) as f64;
        for (i, (label, bars)) in self.groups.iter().enumerate() {
            let begin = across(group_width * (i as f64 + 0.1));
            let end = across(group_width * (i as f64 + 0.9));
            let width = ((end - begin) / bars.len().max(1) as f64).min(46.0);
            let middle = f64::midpoint(begin, end);
            let begin = middle - width * bars.len() as f64 / 2.0;
            for (k, bar) in bars.iter().enumerate() {
                let left = begin + width * k as f64;
                self.bar(&mut canvas, bar, left, width, count <= LABELLED_BARS);
            }
            let room = across(group_width) - across(0.0);
            canvas.below(middle, room, label);
        }
        canvas.marks(&self.y, &self.marks);
        canvas.finish()
    }

    fn bar(&self, canvas: &mut Canvas, bar: &Bar, left: f64, width: f64, labelled: bool) {
        let gap = (width * 0.1).min(2.0);
        let (mut sum, quoted) = (0.0, if bar.quoted { " quoted" } else { "" });
        for (colour, height) in &bar.pieces {
            let low = up(self.y.place(sum));
            sum += height;
            let high = up(self.y.place(sum));
            let _ = writeln!(
                canvas.0,
                "<rect class=\"bar c{colour}{quoted}\" x=\"{:.1}\" y=\"{high:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\"><title>{}</title></rect>",
                left + gap,
                width - 2.0 * gap,
                (low - high).max(0.5),
                escape(&bar.tip)
            );
        }
        let middle = left + width / 2.0;
        let top = bar.spread.map_or(sum, |spread| spread.1.max(sum));
        if let Some(spread) = bar.spread {
            canvas.whisker("whisker over", middle, &self.y, spread);
        }
        let label = metric::show(sum);
        if labelled && !bar.pieces.is_empty() && label.len() as f64 * LETTER < width + 14.0 {
            let y = up(self.y.place(top)) - 5.0;
            canvas.text("value", (middle, y), "middle", &label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(median: f64) -> Value {
        Value {
            median,
            min: median * 0.9,
            max: median * 1.1,
        }
    }

    #[test]
    fn dots_bars_whiskers_and_marks_are_drawn() {
        let dots = [1.0, 2.0].map(|x| Dot {
            x: value(x),
            y: value(x * 10.0),
            label: format!("at {x}"),
            tip: "a < b".to_owned(),
            is_extrapolated: x > 1.0,
        });
        let series = |(colour, origin)| Series {
            colour,
            origin,
            dots: dots.to_vec(),
        };
        let origins = [Origin::Measured, Origin::Simulated, Origin::Published];
        let chart = Xy {
            x: Axis::at(&[1.0, 2.0], true, metric::tick),
            y: Axis::from_zero([22.0].into_iter()),
            x_title: "workers".to_owned(),
            y_title: "latency, ms".to_owned(),
            joined: true,
            series: (3..).zip(origins).map(series).collect(),
            marks: vec![(9.1, "paper".to_owned())],
        };
        let svg = chart.draw("A title");
        for piece in [
            "<polyline class=\"line c3\"",
            "<polyline class=\"line simulated c4\"",
            "<circle class=\"ring c4\"",
            "<path class=\"ring c4\"",
            "<polyline class=\"line published c5\"",
            "<circle class=\"dot c5\"",
            "<title>a &lt; b</title>",
            "class=\"whisker c3\"",
            ">paper</text>",
            ">at 1</text>",
            ">workers</text>",
        ] {
            assert!(svg.contains(piece), "{piece} in {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn pieces_of_a_bar_stand_on_top_of_each_other() {
        let bar = Bar {
            pieces: vec![(0, 2.0), (1, 3.0)],
            quoted: false,
            spread: Some((4.0, 6.0)),
            tip: String::new(),
        };
        let chart = Bars {
            y: Axis::from_zero([10.0].into_iter()),
            y_title: "ms".to_owned(),
            groups: vec![("adaptive 3 ms".to_owned(), vec![bar])],
            marks: vec![],
        };
        let svg = chart.draw("Bars");
        let heights: Vec<f64> = svg
            .lines()
            .filter(|line| line.starts_with("<rect"))
            .filter_map(|line| {
                line.split("height=\"")
                    .nth(1)?
                    .split('"')
                    .next()?
                    .parse()
                    .ok()
            })
            .collect();
        let unit = (HEIGHT - TOP - BOTTOM) / 10.0;
        assert_eq!(heights.len(), 2);
        assert!((heights[0] - 2.0 * unit).abs() < 0.1 && (heights[1] - 3.0 * unit).abs() < 0.1);
        assert!(svg.contains(">5.00</text>"), "{svg}");
    }

    #[test]
    fn long_labels_are_wrapped() {
        assert_eq!(wrap("adaptive 3 ms", 60.0), ["adaptive", "3 ms"]);
        assert_eq!(wrap("1 ms", 60.0), ["1 ms"]);
    }
}
