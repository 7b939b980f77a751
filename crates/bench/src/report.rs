//! Results as a page: one file, without scripts and without a network, dark or light as the
//! reader's browser is.

mod axis;
mod chart;
mod figure;
pub mod findings;
mod index;
mod labels;
mod lines;
mod paper_values;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::experiment::Experiment;
use crate::experiments;
use crate::machine::Noise;
use crate::metric;
use crate::parameters::Scale;
use crate::plot::Plot;
use crate::program::ProgramInfo;
use crate::result::{MeasurementPrograms, MetricSummary, PointResult, ResultFileError, Results};
use crate::table;
use chart::escape;
use findings::Finding;

const STYLE: &str = include_str!("report/style.css");

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A result cannot be read.
    #[error(transparent)]
    Read(#[from] ResultFileError),
    /// There is nothing to report.
    #[error("{} holds no results; `kumiki-bench run NAME --out {}` makes some", dir.display(), dir.display())]
    Empty {
        /// The directory.
        dir: PathBuf,
    },
    /// The page cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Its file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// Writes `DIR/report.html` from all results in `DIR`.
///
/// # Errors
/// Returns an error if there are none, or one of them cannot be read.
pub fn write(dir: &Path) -> Result<PathBuf, ReportError> {
    let all = Results::read_all(dir)?;
    if all.is_empty() {
        return Err(ReportError::Empty {
            dir: dir.to_owned(),
        });
    }
    let path = dir.join("report.html");
    match fs::write(&path, page(&all)) {
        Ok(()) => Ok(path),
        Err(source) => Err(ReportError::Write { path, source }),
    }
}

/// Returns the page of these results.
#[must_use]
pub fn page(all: &[Results]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Kumiki: measured</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    );
    page += "<h1>Kumiki, measured</h1>\n<p>The figures follow those of the papers as far as each says, on this machine. \
             Error bars are the least and the greatest of all runs, bars and dots their median. \
             The papers' values are from their texts, and for paper 2 from the points that its authors have published; \
             where they are drawn they are dashed. Absolute figures depend on the machine; ratios \
             within one run say more.</p>\n<nav><ul>\n<li><a href=\"#index\">The papers' figures and tables</a></li>\n";
    for results in all {
        let (name, title) = (&results.experiment, escape(&results.title));
        let busy = results.busy().map_or("", |_| " (on a busy machine)");
        let _ = writeln!(page, "<li><a href=\"#{name}\">{title}</a>{busy}</li>");
    }
    page += "</ul></nav>\n";
    let (mut sections, mut anchors) = (String::new(), BTreeSet::new());
    for results in all {
        section(&mut sections, &mut anchors, results);
    }
    index::write(&mut page, &anchors);
    page += &sections;
    page += "</body>\n</html>\n";
    page
}

/// Writes the section of an experiment, and adds the names by which links find its parts.
fn section(page: &mut String, anchors: &mut BTreeSet<String>, results: &Results) {
    let name = &results.experiment;
    anchors.insert(name.clone());
    let experiment = experiments::named(name);
    let paper = experiment.and_then(|one| one.paper);
    let _ = writeln!(
        page,
        "<section id=\"{name}\">\n<h2>{}</h2>",
        escape(&results.title)
    );
    let source = paper.map_or(String::new(), |paper| format!(", repeats {paper}"));
    let _ = writeln!(page, "<p class=\"soft\"><code>{name}</code>{source}</p>");
    for paragraph in experiment.map_or(&[][..], |one| one.about) {
        let _ = writeln!(page, "<p>{}</p>", escape(paragraph));
    }
    notices(page, results);
    if let Some(experiment) = experiment {
        compared(page, experiment, results);
        anchors.extend(figures(page, &(experiment.plots)(), results));
        points(page, experiment, results);
    }
    conditions(page, results);
    *page += "</section>\n";
}

fn notices(page: &mut String, results: &Results) {
    let mut notice = |text: &str| {
        let _ = writeln!(page, "<p class=\"notice\">{}</p>", escape(text));
    };
    if !results.complete {
        notice("This run was stopped before its end: some points have fewer runs, or none.");
    }
    if results.recorded {
        notice("Transactions were recorded: the checks count, the figures do not.");
    }
    for (point, check) in results.failures() {
        let what = check.failure.as_deref().unwrap_or_default();
        notice(&format!(
            "Failed, and therefore without figures: {}. {}: {what}",
            point.id, check.name
        ));
    }
    if let Some(what) = results.shortened() {
        notice(&format!("{what}."));
    }
    if let Some(why) = results.busy() {
        notice(&format!(
            "Measured on a busy machine, so that these figures may be worse than the machine's own: {why}."
        ));
    }
    let noisy = results.points.iter().filter(|point| point.noisy).count();
    if noisy > 0 {
        notice(&format!(
            "{noisy} of {} points are noisy: others used the machine during all of their runs.",
            results.points.len()
        ));
    }
}

fn compared(page: &mut String, experiment: &Experiment, results: &Results) {
    let found = findings::of(&(experiment.compare)(), results);
    if found.is_empty() {
        return;
    }
    *page += "<h3>Beside the paper</h3>\n<div class=\"scroll\"><table class=\"compare\">\n\
              <tr><th></th><th>paper</th><th>here</th><th>aim</th><th></th></tr>\n";
    for finding in found {
        let Finding { what, paper, .. } = finding;
        let value = finding
            .value
            .map_or("not measured".to_owned(), metric::show);
        let aim = finding.aim.map_or(String::new(), table::show_aim);
        let met = match finding.met() {
            Some(true) => "<span class=\"met\">met</span>",
            Some(false) => "<span class=\"missed\">missed</span>",
            None => "",
        };
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{value}</td><td>{}</td><td>{met}</td></tr>",
            escape(what),
            escape(paper.unwrap_or("–")),
            escape(&aim)
        );
    }
    *page += "</table></div>\n";
}

/// Draws the plots that have points, and returns their anchors.
fn figures(page: &mut String, plots: &[Plot], results: &Results) -> Vec<String> {
    let mut anchors = Vec::new();
    *page += "<div class=\"figures\">\n";
    for (place, plot) in plots.iter().enumerate() {
        let Some(figure) = figure::draw(plot, results) else {
            continue;
        };
        let title = escape(plot.title);
        let anchor = index::anchor(&results.experiment, place);
        let _ = write!(
            page,
            "<figure id=\"{anchor}\">\n<h4>{title}</h4>\n{}<ul class=\"legend\">",
            figure.svg
        );
        for (colour, name) in figure.legend {
            let name = escape(&name);
            let _ = write!(
                page,
                "<li class=\"c{colour}\"><i></i><span>{name}</span></li>"
            );
        }
        let caption = escape(plot.caption);
        let _ = writeln!(page, "</ul>\n<figcaption>{caption}</figcaption>\n</figure>");
        anchors.push(anchor);
    }
    *page += "</div>\n";
    anchors
}

fn points(page: &mut String, experiment: &Experiment, results: &Results) {
    let count = results.points.len();
    let _ = writeln!(
        page,
        "<details><summary>All {count} points</summary>\n<div class=\"scroll\"><table>\n<tr>"
    );
    for name in experiment.columns {
        match metric::named(name) {
            Some(m) => {
                let _ = write!(page, "<th class=\"number\">{}, {}</th>", m.title, m.unit);
            }
            None => {
                let _ = write!(page, "<th>{name}</th>");
            }
        }
    }
    *page += "<th class=\"number\">of baseline</th><th></th></tr>\n";
    for point in &results.points {
        row(page, experiment, point);
    }
    *page += "</table></div></details>\n";
}

fn row(page: &mut String, experiment: &Experiment, point: &PointResult) {
    *page += "<tr>";
    for name in experiment.columns {
        let cell = match (point.params.get(*name), point.summary.get(*name)) {
            (Some(param), _) => format!("<td>{}</td>", escape(&param.to_string())),
            (None, Some(summary)) => format!("<td class=\"number\">{}</td>", spread(summary)),
            (None, None) => "<td></td>".to_owned(),
        };
        *page += &cell;
    }
    let mut metrics = experiment
        .columns
        .iter()
        .filter_map(|name| point.summary.get(*name));
    let share = metrics.next().and_then(|summary| summary.share);
    let share = share.map_or(String::new(), |share| format!("{share:.2}"));
    let remark = match (point.failure(), &point.skipped) {
        (Some(check), _) => format!(
            "<span class=\"missed\">failed: {}</span>",
            escape(&check.name)
        ),
        (None, Some(why)) => format!("<span class=\"soft\">skipped: {}</span>", escape(why)),
        (None, None) => {
            let noisy = point.noisy.then_some("noisy");
            let all: Vec<&str> = noisy.into_iter().chain(point.note.as_deref()).collect();
            format!("<span class=\"soft\">{}</span>", escape(&all.join("; ")))
        }
    };
    let _ = writeln!(
        page,
        "<td class=\"number\">{share}</td><td>{remark}</td></tr>"
    );
}

fn spread(summary: &MetricSummary) -> String {
    let [median, min, max] = [summary.median, summary.min, summary.max].map(metric::show);
    if min == max {
        return median;
    }
    format!("{median}<br><small>{min}–{max}</small>")
}

fn conditions(page: &mut String, results: &Results) {
    let Results { host, scale, .. } = results;
    let Scale {
        effort,
        records,
        time,
        warm_up,
        repetitions,
        ..
    } = scale;
    let foreign: Vec<f64> = results
        .points
        .iter()
        .flat_map(|point| &point.repetitions)
        .map(|run| run.noise.foreign)
        .collect();
    let foreign = crate::statistics::median(foreign).unwrap_or_default();
    let effort = format!("{effort:?}").to_lowercase();
    let idle = |noise: Option<Noise>| {
        noise.map_or("unknown".to_owned(), |noise| {
            format!("{:.2}", noise.foreign)
        })
    };
    let name = match host.name.as_str() {
        "" => String::new(),
        name => format!("{}: ", escape(name)),
    };
    let _ = writeln!(
        page,
        "<p class=\"conditions\">{name}{}, {} cores, {:.0} GiB; {}; disk: {}; memory: {}. Version {} \
         ({}{}). Effort {effort}: {records} records, {repetitions} repetitions of {} s after {} s. \
         Others used {foreign:.2} cores in the median of all runs, {} before them, and {} after.{}</p>",
        escape(&host.processor),
        host.cores,
        host.memory as f64 / f64::from(1 << 30),
        escape(&host.system),
        escape(&host.disk),
        escape(&host.in_memory),
        escape(&results.version),
        escape(&results.commit),
        match results.profile.as_str() {
            "" => String::new(),
            profile => format!(", {}", escape(profile)),
        },
        time.as_secs_f64(),
        warm_up.as_secs_f64(),
        idle(results.load.before),
        idle(results.load.after),
        programs(&results.programs),
    );
}

/// Returns a sentence for each program.
fn programs(programs: &MeasurementPrograms) -> String {
    let sentence = |what: &str, program: &Option<ProgramInfo>| {
        let program = program.as_ref()?;
        let (version, hash) = (escape(&program.version), escape(&program.sha256));
        Some(format!(
            " {what} by {version}, SHA-256 <code>{hash}</code>."
        ))
    };
    let sentences = [
        sentence("Measured", &programs.measuring),
        sentence(
            "Servers, proxies and storage nodes are run",
            &programs.measured,
        ),
    ];
    sentences.into_iter().flatten().collect()
}
