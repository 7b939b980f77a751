//! Links between the pages, and from the sources to them: each leads to a file, and each fragment to a heading.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::files;

/// Returns a complaint for each link that leads nowhere, in pages and sources below `root`.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let read = |extension: &str| -> Result<BTreeMap<String, String>> {
        let text_of = |file: PathBuf| {
            let text = fs::read_to_string(&file);
            let text = text.with_context(|| format!("cannot read {}", file.display()))?;
            let name = file.strip_prefix(root).unwrap_or(&file);
            Ok((name.to_string_lossy().into_owned(), text))
        };
        let files = files(root, extension)?;
        files.into_iter().map(text_of).collect()
    };
    let pages = read("md")?;
    let mut complaints = Vec::new();
    for (page, text) in &pages {
        let broken = links(text).filter(|link| !is_found(root, &pages, page, link));
        complaints.extend(broken.map(|link| format!("{page}: the link '{link}' leads nowhere")));
    }
    for (file, text) in &read("rs")? {
        let broken = mentions(text).filter(|page| !root.join(page).is_file());
        complaints.extend(broken.map(|page| format!("{file}: there is no {page}")));
    }
    Ok(complaints)
}

/// Returns the targets of a page's links, but for those to other hosts.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let after = text.split("](").skip(1);
    let targets = after.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    targets.filter(|target| !target.contains(':') && !target.contains(char::is_whitespace))
}

/// Pages in the directory `docs` that a source names.
fn mentions(text: &str) -> impl Iterator<Item = &str> {
    let is_of_a_path = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    text.match_indices("docs/").filter_map(move |(at, _)| {
        let is_whole = !text[..at].ends_with(is_of_a_path);
        let path = text[at..].split(|c| !is_of_a_path(c)).next()?;
        let end = path.find(".md")? + ".md".len();
        is_whole.then(|| &path[..end])
    })
}

fn is_found(root: &Path, pages: &BTreeMap<String, String>, page: &str, link: &str) -> bool {
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => PathBuf::from(page),
        path => normal(&Path::new(page).with_file_name(path)),
    };
    let heading = |text: &String| headings(text).any(|heading| heading == fragment);
    let has_heading =
        fragment.is_empty() || pages.get(&*target.to_string_lossy()).is_none_or(heading);
    root.join(&target).exists() && has_heading
}

/// Returns the path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            part => whole.push(part),
        }
    }
    whole
}

/// Returns the fragments by which a page's headings are reached.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut is_code = false;
    let outside = text.lines().filter(move |line| {
        is_code ^= line.starts_with("```");
        !is_code
    });
    let titles = outside.filter_map(|line| {
        line.trim_start_matches('#')
            .strip_prefix(' ')
            .filter(|_| line.starts_with('#'))
    });
    titles.map(|title| {
        let kept = title
            .trim()
            .chars()
            .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together here, so that this file does not name pages that do not exist.
    fn page(name: &str) -> String {
        format!("docs/{name}.md")
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("docs")).unwrap();
        let write = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
        let (here, missing) = (page("here"), page("missing"));
        write(
            "README.md",
            &format!("[a]({here}#some-words) [b]({missing}) [c](https://kumiki) [d]({here}#none)"),
        );
        write(
            &here,
            "```\n# none\n```\n## Some `words`\n[up](../README.md) [own](#none)",
        );
        write(
            "main.rs",
            &format!("// {here}, kumiki/{missing}, {missing}."),
        );
        let expected = [
            format!("README.md: the link '{missing}' leads nowhere"),
            format!("README.md: the link '{here}#none' leads nowhere"),
            format!("{here}: the link '#none' leads nowhere"),
            format!("main.rs: there is no {missing}"),
        ];
        assert_eq!(check(root.path()).unwrap(), expected);
    }
}
