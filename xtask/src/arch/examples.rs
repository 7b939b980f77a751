//! Examples in the documentation: cargo runs them only in crates whose manifests do not turn that off. Those without
//! examples turn it off, because looking for some means reading the whole crate.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::workspace::{Crate, files};

/// The line of a manifest with which cargo runs no examples.
const OFF: &str = "doctest = false";

/// Complaints about examples that cargo does not run, and about crates in which it looks for examples in vain.
pub(super) fn check(crates: &[Crate]) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for one in crates {
        let sources = one.dir.join("src");
        let manifest = fs::read_to_string(one.dir.join("Cargo.toml"))?;
        let is_off = manifest.lines().any(|line| line == OFF);
        let example = first_example(&sources)?;
        let has_library = sources.join("lib.rs").exists();
        complaints.extend(match example {
            Some(at) if is_off => Some(format!(
                "{at} has an example, which is not run: delete '{OFF}' in the manifest of {}",
                one.name
            )),
            None if !is_off && has_library => Some(format!(
                "{} has no examples: write '{OFF}' below [lib] in its manifest",
                one.name
            )),
            _ => None,
        });
    }
    Ok(complaints)
}

/// Returns the file and line of the first example.
fn first_example(sources: &Path) -> Result<Option<String>> {
    for file in files(sources, "rs")? {
        let text = fs::read_to_string(&file)?;
        if let Some(line) = example(&text) {
            return Ok(Some(format!("{}:{line}", file.display())));
        }
    }
    Ok(None)
}

/// Returns the line on which the first example begins.
fn example(text: &str) -> Option<usize> {
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let comment = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        let Some(kind) = comment.and_then(|comment| comment.trim().strip_prefix("```")) else {
            continue;
        };
        is_open = !is_open;
        let is_rust = ["", "rust", "no_run", "should_panic", "compile_fail"];
        if is_open && kind.split(',').all(|word| is_rust.contains(&word.trim())) {
            return Some(number + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_found_among_other_fences() {
        let fence = "```";
        let text = format!(
            "//! {fence}text\n//! a\n//! {fence}\n/// {fence}no_run\n/// x();\n/// {fence}\n"
        );
        assert_eq!(example(&text), Some(4));
        let other = format!("/// {fence}text\n/// a\n/// {fence}\n// {fence}\n// x();\n");
        assert_eq!(example(&other), None);
    }
}
