use std::collections::BTreeSet;

use super::*;
use crate::experiments;

type ItemNames = BTreeSet<(PaperItemKind, String)>;

/// Returns the items of a paper that an experiment follows, by the index.
fn followed(experiment: &str) -> Vec<(u8, ItemNames)> {
    let of = |paper: &Paper| {
        let follows = |item: &&PaperItem| {
            let mut sources = item.sources().iter();
            sources.any(|source| source.experiment == experiment)
        };
        let items = paper.items.iter().filter(follows);
        let names: ItemNames = items
            .map(|item| (item.kind, item.number.to_owned()))
            .collect();
        (!names.is_empty()).then_some((paper.number, names))
    };
    PAPERS.iter().filter_map(of).collect()
}

/// Reads a text such as `paper 4: table 4.2, single points of 4.2–4.18`. What stands in brackets or
/// behind a semicolon is left out, as are sections.
fn claimed(text: &str) -> Vec<(u8, ItemNames)> {
    let text = text.split(';').next().unwrap();
    let mut plain = String::new();
    let mut depth = 0;
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' | ':' => plain.push(' '),
            '–' => plain.push_str(" to "),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let mut words = plain.split_whitespace();
    let mut all: Vec<(u8, ItemNames)> = Vec::new();
    let mut kind = Some(PaperItemKind::Figure);
    let (mut last, mut is_range) = (None, false);
    while let Some(word) = words.next() {
        match word {
            "paper" => {
                let number = words.next().unwrap().parse().unwrap();
                all.push((number, ItemNames::new()));
            }
            "figure" | "figures" => kind = Some(PaperItemKind::Figure),
            "table" | "tables" => kind = Some(PaperItemKind::Table),
            "section" => kind = None,
            "to" => is_range = true,
            _ if word.parse::<f64>().is_ok() => {
                let (Some(kind), Some((_, names))) = (kind, all.last_mut()) else {
                    continue;
                };
                let first = if is_range { last.take() } else { None };
                names.extend(range(first.unwrap_or(word), word).map(|number| (kind, number)));
                (last, is_range) = (Some(word), false);
            }
            _ => {}
        }
    }
    all
}

/// Returns `4.2`, `4.3`, `4.4` for `4.2` and `4.4`.
fn range(first: &str, last: &str) -> impl Iterator<Item = String> {
    let split = |number: &str| match number.rsplit_once('.') {
        Some((chapter, place)) => (format!("{chapter}."), place.parse::<u32>().unwrap()),
        None => (String::new(), number.parse().unwrap()),
    };
    let ((chapter, first), (_, last)) = (split(first), split(last));
    (first..=last).map(move |place| format!("{chapter}{place}"))
}

#[test]
fn texts_are_read() {
    let figures = |numbers: &[&str]| -> ItemNames {
        let named = |number: &&str| (PaperItemKind::Figure, (*number).to_owned());
        numbers.iter().map(named).collect()
    };
    let mut all = figures(&["4.2", "4.3", "4.4"]);
    all.insert((PaperItemKind::Table, "4.2".to_owned()));
    for text in [
        "paper 4, table 4.2, and single points of figures 4.2 to 4.4",
        "paper 4: 4.2–4.4 (not 4.9), table 4.2; 4.8 is missing",
    ] {
        assert_eq!(claimed(text), [(4, all.clone())], "{text}");
    }
    assert_eq!(
        claimed("paper 2, figure 5 and section 6.3"),
        [(2, figures(&["5"]))]
    );
    assert_eq!(claimed("– (2 and 5 together)"), []);
}

#[test]
fn experiments_claim_what_the_index_says() {
    for experiment in experiments::ALL {
        let claimed = claimed(experiment.paper.unwrap_or_default());
        assert_eq!(claimed, followed(experiment.name), "{}", experiment.name);
    }
}

#[test]
fn the_documentation_claims_what_the_index_says() {
    let page = include_str!("../../../../docs/benchmarks.md");
    for experiment in experiments::ALL {
        let row = format!("| `{}` | ", experiment.name);
        let row = page.lines().find_map(|line| line.strip_prefix(&row));
        let row = row.unwrap_or_else(|| panic!("no row is of {}", experiment.name));
        let column = row.split(" | ").next().unwrap();
        assert_eq!(
            claimed(column),
            followed(experiment.name),
            "{}",
            experiment.name
        );
    }
}

#[test]
fn plots_are_there() {
    for (paper, item) in PAPERS
        .iter()
        .flat_map(|p| p.items.iter().map(move |i| (p, i)))
    {
        let place = format!("paper {}, {item}", paper.number);
        for source in item.sources() {
            let experiment = experiments::named(source.experiment);
            let experiment = experiment.unwrap_or_else(|| panic!("{place}: {}", source.experiment));
            let plots = (experiment.plots)();
            for title in source.titles {
                let of_title = plots.iter().filter(|plot| plot.title == *title);
                assert_eq!(of_title.count(), 1, "{place}: {title}");
            }
        }
    }
}

#[test]
fn no_figure_is_missing() {
    let numbers = |paper: usize, kind| -> Vec<&str> {
        let items = PAPERS[paper - 1]
            .items
            .iter()
            .filter(|item| item.kind == kind);
        items.map(|item| item.number).collect()
    };
    let all = |first: &str, last: &str| -> Vec<String> { range(first, last).collect() };
    assert_eq!(numbers(1, PaperItemKind::Figure), all("4", "7"));
    assert_eq!(numbers(2, PaperItemKind::Figure)[1..], all("8", "18"));
    assert_eq!(numbers(3, PaperItemKind::Figure)[1..], all("8", "11"));
    assert_eq!(numbers(3, PaperItemKind::Table), all("3", "4"));
    assert_eq!(numbers(4, PaperItemKind::Figure), all("4.2", "4.40"));
    assert_eq!(numbers(5, PaperItemKind::Figure), all("3", "6"));
    for (place, paper) in PAPERS.iter().enumerate() {
        assert_eq!(usize::from(paper.number), place + 1);
        let names: BTreeSet<String> = paper.items.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), paper.items.len(), "paper {}", paper.number);
        assert!(!paper.experiments().is_empty());
    }
}
