//! Verifies tables.

use pages::Progress;

use super::options::TableCheckOptions;
use crate::output::say_line;
use crate::progress::ProgressLine;

/// The most faults of a table that are shown.
const MOST: usize = 20;

pub(super) fn check(options: &TableCheckOptions) -> Result<(), String> {
    let tables = options.place.open_read_only()?;
    let mut names: Vec<String> = tables
        .list()
        .iter()
        .map(|table| table.name.clone())
        .collect();
    let mut bad = Vec::new();
    if let Some(name) = &options.table {
        tables.table(name).map_err(|error| error.to_string())?;
        names = vec![name.clone()];
    } else {
        for (name, what) in tables.damaged() {
            say_line!("{name}: {what}");
            bad.push(name);
        }
    }
    for name in names {
        let table = tables.table(&name).map_err(|error| error.to_string())?;
        let mut told = ProgressLine::new(format!("{name}: pages"));
        let report = tables.check(&name, &mut |done| told.done(done, Some(table.pages())));
        drop(told);
        let report = report.map_err(|error| error.to_string())?;
        for what in report.wrong.iter().take(MOST) {
            say_line!("{name}: {what}");
        }
        if report.wrong.len() > MOST {
            say_line!("{name}: and {} more", report.wrong.len() - MOST);
        }
        if report.wrong.is_empty() {
            say_line!(
                "{name}: {} rows in {} pages are right",
                table.rows(),
                report.pages
            );
        } else {
            bad.push(name);
        }
    }
    match bad.as_slice() {
        [] => Ok(()),
        bad => Err(format!(
            "damaged: {}; load these again with --replace, or remove them",
            bad.join(", ")
        )),
    }
}
