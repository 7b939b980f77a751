//! The list of documented differences, compared with the scripts.
//!
//! In `docs/differences-from-redis.md` each difference is a heading `### id`, and some lines of a
//! script show it by `[differs id]`. Those lines fail when the replies are equal, so that a
//! difference that disappeared leaves the list too.

use std::collections::BTreeSet;

use super::rules::Rule;
use super::script::{Action, Script};

/// Returns the ids of the documented differences.
pub(crate) fn documented(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(|id| id.trim().to_owned())
        .collect()
}

/// Returns the ids that scripts show.
pub(crate) fn shown<'a>(scripts: impl IntoIterator<Item = &'a Script>) -> BTreeSet<String> {
    let steps = scripts
        .into_iter()
        .flat_map(|script| &script.cases)
        .flat_map(|case| &case.steps);
    steps
        .filter_map(|step| match &step.action {
            Action::Call {
                rule: Rule::Differs(id),
                ..
            }
            | Action::Read {
                rule: Rule::Differs(id),
                ..
            } => Some(id.clone()),
            _ => None,
        })
        .collect()
}
