//! The architecture check: `ARCHITECTURE.md` against `cargo metadata` and the sources, and the links of all
//! pages (module `links`).
//!
//! | table in the page | begins with | what is held against it |
//! |---|---|---|
//! | tiers | `\| tier \| crate \|` | every crate is there; each uses only crates of lower tiers |
//! | unsafe code | `\| crate \| module \|` | the word `unsafe` stands in these files alone; other crates forbid it |
//! | cycles | `\| cycles \| crates \|` | the longest cycle of modules in a crate has so many (module `modules`) |
//!
//! No module lies in a file `mod.rs`, and as many names are those of several types as the page says.

mod modules;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::build;
use crate::links;
use crate::workspace::{Crate, Workspace, files};
use modules::Modules;

/// A crate's place: a number, or outside of the order (`–`), as developers' tools are, which may use
/// each other.
type Tier = Option<u32>;

/// Prints which modules of a crate's longest cycle use which.
///
/// # Errors
/// If there is no such crate, or a file of it cannot be read or parsed.
pub fn print_cycle(name: &str) -> Result<()> {
    let workspace = Workspace::read()?;
    let one = workspace.crates().find(|one| one.name == name);
    let one = one.with_context(|| format!("no crate has the name {name}"))?;
    for (from, to) in Modules::read(&one.dir)?.uses_in_longest_cycle() {
        println!("{from} uses {to}");
    }
    Ok(())
}

/// Checks the workspace that this was built from.
///
/// # Errors
/// If the page or the metadata cannot be read, or they disagree; the message lists how.
pub fn check() -> Result<()> {
    let page = fs::read_to_string(build::root().join("ARCHITECTURE.md"))
        .context("cannot read ARCHITECTURE.md")?;
    let crates: Vec<Crate> = Workspace::read()?.crates().cloned().collect();
    let mut complaints = check_tiers(&page, &crates)?;
    complaints.extend(check_unsafe(&page, &crates)?);
    let modules = crates.iter().map(|one| Ok((one, Modules::read(&one.dir)?)));
    let modules: Vec<_> = modules.collect::<Result<_>>()?;
    complaints.extend(check_cycles(&page, &modules)?);
    complaints.extend(check_names(&page, &modules)?);
    complaints.extend(links::check(build::root_path())?);
    if !complaints.is_empty() {
        bail!(
            "the pages and the code disagree:\n  {}",
            complaints.join("\n  ")
        );
    }
    println!("architecture: {} crates stand in their tiers", crates.len());
    Ok(())
}

/// Complaints about crates that are missing in the table, in the table alone, or that use a crate
/// of their own or a higher tier.
///
/// # Errors
/// If the page has no such table.
pub fn check_tiers(page: &str, crates: &[Crate]) -> Result<Vec<String>> {
    let mut tiers: BTreeMap<String, Tier> = BTreeMap::new();
    for row in table(page, &["tier", "crate"])? {
        let tier = row[0].parse().ok();
        if tier.is_none() && row[0] != "–" {
            bail!("'{}' is no tier", row[0]);
        }
        tiers.insert(row[1].clone(), tier);
    }
    let mut complaints = Vec::new();
    for one in crates {
        let Some(tier) = tiers.get(&one.name) else {
            complaints.push(format!(
                "the crate {} is missing in the tier table",
                one.name
            ));
            continue;
        };
        for used in &one.uses {
            match (tier, tiers.get(used)) {
                // A crate may use itself in its own tests, under another set of features.
                _ if *used == one.name => {}
                // The tests of every crate may use their helpers, also where these use the crate.
                _ if used == "testkit" => {}
                (Some(own), Some(Some(other))) if other < own => {}
                (None, Some(_)) => {}
                _ => complaints.push(format!("{} must not use {used}", one.name)),
            }
        }
    }
    for name in tiers
        .keys()
        .filter(|name| !crates.iter().any(|c| c.name == **name))
    {
        complaints.push(format!("the tier table names {name}, which does not exist"));
    }
    Ok(complaints)
}

/// Complaints about unsafe code outside of the named modules, and about names without any.
fn check_unsafe(page: &str, crates: &[Crate]) -> Result<Vec<String>> {
    let mut named: BTreeMap<PathBuf, bool> = BTreeMap::new();
    let mut with_unsafe = Vec::new();
    for row in table(page, &["crate", "module"])? {
        let owner = crates.iter().find(|c| c.name == row[0]);
        let owner =
            owner.with_context(|| format!("the unsafe table names the crate {}", row[0]))?;
        named.insert(owner.dir.join(&row[1]), false);
        with_unsafe.push(row[0].clone());
    }
    let mut complaints = Vec::new();
    for one in crates {
        for file in files(&one.dir, "rs")? {
            let text = fs::read_to_string(&file)?;
            match named.get_mut(&file) {
                _ if !has_unsafe(&text) => {}
                Some(seen) => *seen = true,
                None => complaints.push(format!("{} has unsafe code", file.display())),
            }
            let root = [one.dir.join("src/lib.rs"), one.dir.join("src/main.rs")].contains(&file);
            let forbids = text.contains("#![forbid(unsafe_code)]");
            if root && !forbids && !with_unsafe.contains(&one.name) {
                complaints.push(format!("{} does not forbid unsafe code", file.display()));
            }
        }
    }
    let idle = named.iter().filter(|(_, seen)| !**seen);
    complaints.extend(idle.map(|(file, _)| format!("{} has no unsafe code", file.display())));
    Ok(complaints)
}

/// Prints the longest cycle of each crate. Returns complaints about crates whose longest cycle is not the one that
/// the page says, and about files `mod.rs`.
fn check_cycles(page: &str, crates: &[(&Crate, Modules)]) -> Result<Vec<String>> {
    let mut said: BTreeMap<String, usize> = BTreeMap::new();
    for row in table(page, &["cycles", "crate"])? {
        let most = row[0].parse().ok();
        let most = most.with_context(|| format!("'{}' is no number of modules", row[0]))?;
        for name in row[1].split(", ") {
            said.insert(name.trim_matches('`').to_owned(), most);
        }
    }
    let mut complaints = Vec::new();
    for (one, modules) in crates {
        let cycles = modules.cycles();
        let longest = cycles.first().map_or(0, Vec::len);
        let said = said.get(&one.name).copied().unwrap_or(0);
        if longest > said {
            complaints.push(format!(
                "{} has a cycle of {longest} modules, and ARCHITECTURE.md allows {said}: {}",
                one.name,
                cycles[0].join(", ")
            ));
        } else if longest < said {
            complaints.push(format!(
                "the longest cycle of {} has {longest} modules: ARCHITECTURE.md must not allow {said}",
                one.name
            ));
        }
        let files = files(&one.dir, "rs")?;
        let old = files.iter().filter(|file| file.ends_with("mod.rs"));
        complaints.extend(old.map(|file| {
            let file = file.display();
            format!("{file}: a module lies in a file of its name, beside its directory")
        }));
    }
    Ok(complaints)
}

/// Returns a complaint if the names that several types have are more, or fewer, than the page says.
fn check_names(page: &str, crates: &[(&Crate, Modules)]) -> Result<Vec<String>> {
    let mut lines = page.lines();
    let said = lines.find_map(|line| line.strip_prefix("Names of several types: "));
    let said: Option<usize> = said.and_then(|said| said.split('.').next()?.parse().ok());
    let said = said.context("ARCHITECTURE.md has no line \"Names of several types: N.\"")?;
    let found = modules::duplicates(crates);
    if found.len() == said {
        return Ok(Vec::new());
    }
    let mut most: Vec<_> = found.iter().collect();
    most.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
    let lines = most.iter().take(20);
    let lines: Vec<String> = lines
        .map(|(name, places)| format!("    {name}: {}", places.join(", ")))
        .collect();
    Ok(vec![format!(
        "{} names are those of several types, and ARCHITECTURE.md says {said}; the most frequent:\n{}",
        found.len(),
        lines.join("\n")
    )])
}

/// Returns `true` if the keyword `unsafe` opens a block, function, trait or implementation. Comments and
/// names that contain the word do not count.
fn has_unsafe(text: &str) -> bool {
    let code = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(|line| {
        line.match_indices("unsafe")
            .map(move |(at, word)| (line, at, word.len()))
    })
    .any(|(line, at, len)| {
        let before = line[..at].chars().next_back();
        let after = line[at + len..].trim_start();
        let free = before.is_none_or(|c| c.is_whitespace() || "({[=|,&".contains(c));
        let opens = ["{", "fn ", "impl ", "impl<", "trait ", "extern "];
        // A block may open on the next line.
        free && (after.is_empty() || opens.iter().any(|word| after.starts_with(word)))
    })
}

/// The rows of the table whose header begins with `header`, as cells without decoration.
fn table(page: &str, header: &[&str]) -> Result<Vec<Vec<String>>> {
    let cells = |line: &str| -> Option<Vec<String>> {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        Some(
            inner
                .split('|')
                .map(|cell| cell.trim().trim_matches('`').to_owned())
                .collect(),
        )
    };
    let mut lines = page.lines();
    lines
        .by_ref()
        .find(|line| {
            cells(line).is_some_and(|c| c.len() > header.len() && c[..header.len()] == *header)
        })
        .with_context(|| format!("ARCHITECTURE.md has no table that begins with {header:?}"))?;
    Ok(lines.skip(1).map_while(cells).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
| tier | crate | role |
|---|---|---|
| 0 | `base` | words |
| 1 | `disk` | files |
| 1 | `resp` | frames |
| – | `xtask` | commands |
";

    fn one(name: &str, uses: &[&str]) -> Crate {
        let uses = uses.iter().map(|s| (*s).to_owned()).collect();
        Crate {
            name: name.to_owned(),
            uses,
            ..Crate::default()
        }
    }

    fn complaints(crates: &[Crate]) -> Vec<String> {
        check_tiers(PAGE, crates).expect("the page has a table")
    }

    #[test]
    fn the_order_of_tiers_holds() {
        let right = [
            one("base", &[]),
            one("disk", &["base"]),
            one("resp", &["base"]),
            one("xtask", &["resp", "disk"]),
        ];
        assert_eq!(complaints(&right), Vec::<String>::new());
    }

    #[test]
    fn every_kind_of_disorder_is_found() {
        let wrong = [
            one("base", &["disk"]),
            one("disk", &["resp"]),
            one("resp", &["xtask"]),
            one("new", &[]),
        ];
        let found = complaints(&wrong);
        assert_eq!(
            found,
            [
                "base must not use disk",
                "disk must not use resp",
                "resp must not use xtask",
                "the crate new is missing in the tier table",
                "the tier table names xtask, which does not exist",
            ]
        );
    }

    #[test]
    fn unsafe_code_is_told_from_the_word() {
        // Put together here, so that this file does not count itself.
        let word = "unsafe";
        for code in ["{ x }", "fn f() {}", "impl Send for X {}", "trait T {}"] {
            assert!(has_unsafe(&format!("    {word} {code}")), "{code}");
        }
        assert!(has_unsafe(&format!("let x = {word} {{ y }};")));
        assert!(!has_unsafe(&format!("// {word} {{ }}")));
        assert!(!has_unsafe(&format!("#![forbid({word}_code)]")));
        assert!(!has_unsafe(&format!("unsafe_op_in_{word}_fn")));
    }
}
