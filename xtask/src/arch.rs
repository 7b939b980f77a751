//! The architecture check: `ARCHITECTURE.md` against `cargo metadata` and the sources, and the links of all
//! pages (module `links`).
//!
//! | table in the page | begins with | what is held against it |
//! |---|---|---|
//! | tiers | `\| tier \| crate \|` | every crate is there; each uses only crates of lower tiers |
//! | unsafe code | `\| crate \| module \|` | the word `unsafe` stands in these files alone; other crates forbid it |
//! | cycles | `\| cycles \| crate \|` | the longest cycle of modules in a crate has so many (module `modules`) |
//! | uses | `\| module \| must not use \|` | no module within the first one uses a module within the others |
//! | names | `\| name \| why several types have it \|` | exactly these are names of several types |
//!
//! No module lies in a file `mod.rs`. Examples in the documentation are run (module `examples`).

mod examples;
mod modules;

use std::collections::{BTreeMap, BTreeSet};
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
    complaints.extend(examples::check(&crates)?);
    let modules = crates.iter().map(|one| Ok((one, Modules::read(&one.dir)?)));
    let modules: Vec<_> = modules.collect::<Result<_>>()?;
    complaints.extend(check_cycles(&page, &modules)?);
    complaints.extend(check_uses(&page, &modules)?);
    let duplicates = modules::duplicates(&modules);
    complaints.extend(check_names(&page, &duplicates)?);
    complaints.extend(links::check(build::root_path())?);
    if !complaints.is_empty() {
        bail!(
            "the pages and the code disagree:\n  {}",
            complaints.join("\n  ")
        );
    }
    println!("architecture: {} crates stand in their tiers", crates.len());
    for (one, modules) in &modules {
        if let Some(longest) = modules.cycles().first() {
            let (name, longest) = (&one.name, longest.join(", "));
            println!("the longest cycle of modules in {name}: {longest}");
        }
    }
    println!("names of several types: {}", duplicates.len());
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

/// Returns complaints about crates whose longest cycle is not the one that
/// the page says, and about files `mod.rs`.
fn check_cycles(page: &str, crates: &[(&Crate, Modules)]) -> Result<Vec<String>> {
    let mut said: BTreeMap<String, usize> = BTreeMap::new();
    for row in table(page, &["cycles", "crate"])? {
        let most = row[0].parse().ok();
        let most = most.with_context(|| format!("'{}' is no number of modules", row[0]))?;
        for name in names_of(&row[1]) {
            said.insert(name.to_owned(), most);
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

/// Returns complaints about modules that use what the page forbids them, and about modules in the page that do not
/// exist.
fn check_uses(page: &str, crates: &[(&Crate, Modules)]) -> Result<Vec<String>> {
    let modules_of = |name: &str| {
        let found = crates.iter().find(|(one, _)| one.name == name);
        found.map(|(_, modules)| modules)
    };
    let mut complaints = Vec::new();
    for row in table(page, &["module", "must not use"])? {
        let (owner, from) = row[0].split_once("::").unwrap_or((&row[0], ""));
        let modules = modules_of(owner);
        let modules =
            modules.with_context(|| format!("the table of uses names the crate {owner}"))?;
        for to in names_of(&row[1]) {
            let other = to.split_once("::").and_then(|(name, module)| {
                let other = modules_of(name)?;
                other.contains(module).then_some((name, other, module))
            });
            let found = match other {
                _ if !modules.contains(from) => Err(row[0].as_str()),
                _ if modules.contains(to) => Ok(modules.uses_between(from, to)),
                Some((name, other, module)) => Ok(modules.uses_beyond(from, (name, other), module)),
                None => Err(to),
            };
            match found {
                Ok(found) => complaints.extend(found.iter().map(|(user, used)| {
                    format!("{} must not use {to}: {user} uses {used}", row[0])
                })),
                Err(name) => complaints.push(format!(
                    "the table of uses names {name}, which does not exist"
                )),
            }
        }
    }
    Ok(complaints)
}

/// Returns complaints about names of several types that the page does not have, and about names in the page that
/// are not those of several types.
fn check_names(page: &str, found: &BTreeMap<String, Vec<String>>) -> Result<Vec<String>> {
    let rows = table(page, &["name", "why several types have it"])?;
    let named: BTreeSet<&str> = rows.iter().flat_map(|row| names_of(&row[0])).collect();
    let other = found
        .iter()
        .filter(|(name, _)| !named.contains(name.as_str()));
    let other = other.map(|(name, places)| {
        let places = places.join(", ");
        format!("several types have the name {name}, and ARCHITECTURE.md has no reason: {places}")
    });
    let idle = named.iter().filter(|name| !found.contains_key(**name));
    let idle =
        idle.map(|name| format!("the table of names has {name}, which only one type has, or none"));
    Ok(other.chain(idle).collect())
}

/// Returns the names in a cell that lists them.
fn names_of(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(", ").map(|name| name.trim_matches('`'))
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

/// Returns the rows of the table whose header begins with `header`, as cells without decoration.
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
            cells(line).is_some_and(|c| c.len() >= header.len() && c[..header.len()] == *header)
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

    fn names(page: &str, files: &[&[(&str, &str)]]) -> Vec<String> {
        let crates: Vec<Crate> = ["a", "b"].map(|name| one(name, &[])).into();
        let modules = files.iter().map(|files| modules::tests::read(files));
        let modules: Vec<_> = crates.iter().zip(modules).collect();
        check_names(page, &modules::duplicates(&modules)).expect("the page has a table")
    }

    #[test]
    fn names_of_several_types_have_a_reason() {
        let page = "\
| name | why several types have it |
|---|---|
| `Options`, `Error` | the module says which |
";
        let options = ("lib.rs", "pub struct Options; pub(crate) enum Error {}");
        assert_eq!(names(page, &[&[options], &[options]]), Vec::<String>::new());
        let other = (
            "lib.rs",
            "pub struct Options; pub struct Node; mod c { pub struct Node; }",
        );
        assert_eq!(
            names(page, &[&[options], &[other]]),
            [
                "several types have the name Node, and ARCHITECTURE.md has no reason: b::(root), b::c",
                "the table of names has Error, which only one type has, or none",
            ]
        );
    }

    #[test]
    fn forbidden_uses_are_found() {
        let page = "\
| module | must not use |
|---|---|
| `a::low` | `high`, `other` |
";
        let text = "mod low { mod part { use crate::high::H; } } mod high { pub struct H; }";
        let (a, modules) = (one("a", &[]), modules::tests::read(&[("lib.rs", text)]));
        let found = check_uses(page, &[(&a, modules)]).expect("the page has a table");
        assert_eq!(
            found,
            [
                "a::low must not use high: low::part uses high",
                "the table of uses names other, which does not exist",
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
