//! The index of the papers' figures and tables, with links into the page.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::chart::escape;
use crate::experiment::Experiment;
use crate::experiments;
use crate::paper_index::{IndexedPlots, PAPERS, Paper, PaperItem, PaperItemState};

/// Returns the name by which links find the plot in this place of an experiment's plots.
pub(super) fn anchor(experiment: &str, place: usize) -> String {
    format!("{experiment}-{place}")
}

/// Writes the index. `anchors` are the experiments and plots that are in the page.
pub(super) fn write(page: &mut String, anchors: &BTreeSet<String>) {
    *page += "<section id=\"index\">\n<h2>The papers' figures and tables</h2>\n";
    let _ = writeln!(page, "<p>{}</p>", escape(&summary()));
    for paper in &PAPERS {
        let title = escape(paper.subject);
        let number = paper.number;
        let _ = writeln!(page, "<h3>Paper {number}: {title}</h3>");
        *page += "<div class=\"scroll\"><table class=\"index\">\n<tr><th></th><th>shows</th>\
                  <th>the paper's values that are known</th><th>here</th><th></th></tr>\n";
        for item in paper.items {
            row(page, item, anchors);
        }
        *page += "</table></div>\n";
    }
    *page += "</section>\n";
}

/// Returns how many items are followed, in part, and not at all.
fn summary() -> String {
    let items = || PAPERS.iter().flat_map(|paper: &Paper| paper.items);
    let of = |fits: fn(&PaperItemState) -> bool| items().filter(|item| fits(&item.state)).count();
    format!(
        "Of the {} figures and tables of the five papers that show measurements, {} are followed (the \
         same axes, the same compared systems and the same load), {} in part, and {} are not reproduced. \
         No machine here is the papers'.",
        items().count(),
        of(|state| matches!(state, PaperItemState::Followed(..))),
        of(|state| matches!(state, PaperItemState::InPart(..))),
        of(|state| matches!(state, PaperItemState::NotReproduced(_))),
    )
}

fn row(page: &mut String, item: &PaperItem, anchors: &BTreeSet<String>) {
    let (state, remark) = match item.state {
        PaperItemState::Followed(_, differs) => ("followed: ", differs.to_owned()),
        PaperItemState::InPart(_, differs) => ("in part: ", differs.to_owned()),
        PaperItemState::NotReproduced(because) => {
            ("", format!("Not reproduced, because {because}."))
        }
    };
    let links = item.sources().iter().map(|source| links(source, anchors));
    let links: Vec<String> = links.collect();
    let links = match links.is_empty() {
        true => String::new(),
        false => format!("{state}{}", links.join("; ")),
    };
    let known = match item.known {
        "" => "only drawn",
        known => known,
    };
    let _ = writeln!(
        page,
        "<tr><td>{item}</td><td>{}</td><td>{}</td><td>{links}</td><td class=\"soft\">{}</td></tr>",
        escape(item.title),
        escape(known),
        escape(&remark)
    );
}

/// Returns links to what follows an item, or the command that would measure it.
fn links(source: &IndexedPlots, anchors: &BTreeSet<String>) -> String {
    let name = source.experiment;
    let Some(experiment) = experiments::named(name).filter(|_| anchors.contains(name)) else {
        return format!("not run here (<code>kumiki-bench run {name}</code>)");
    };
    if source.titles.is_empty() {
        return format!("<a href=\"#{name}\">the tables of {name}</a>");
    }
    let link = |title: &&str| link(experiment, title, anchors);
    let links: Vec<String> = source.titles.iter().map(link).collect();
    links.join("; ")
}

fn link(experiment: &Experiment, title: &str, anchors: &BTreeSet<String>) -> String {
    let plots = (experiment.plots)();
    let place = plots.iter().position(|plot| plot.title == title);
    let anchor = place.map(|place| anchor(experiment.name, place));
    let title = escape(title);
    match anchor.filter(|anchor| anchors.contains(anchor)) {
        Some(anchor) => format!("<a href=\"#{anchor}\">{title}</a>"),
        None => format!("{title} (has no points here)"),
    }
}
