//! The workspace's crates: where they lie, and which of them use which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::build;

/// A crate of the workspace.
#[derive(Clone, Debug, Default)]
pub struct Crate {
    /// The name of its directory, by which the crate is known.
    pub name: String,
    /// Cargo's name for its package.
    pub package: String,
    /// The workspace's crates that it uses, those of its tests included, and those whose sources it compiles
    /// (`package.metadata.sources-of` of its manifest).
    pub uses: Vec<String>,
    /// Where its manifest lies.
    pub dir: PathBuf,
}

/// All crates, by the names of their directories.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    crates: BTreeMap<String, Crate>,
}

impl Workspace {
    /// Asks cargo.
    ///
    /// # Errors
    /// If cargo fails, or answers something unknown.
    pub fn read() -> Result<Workspace> {
        Workspace::parse(&build::metadata()?)
    }

    fn parse(metadata: &Value) -> Result<Workspace> {
        let packages = metadata["packages"].as_array();
        let packages = packages.context("no packages in metadata")?;
        let mut crates = BTreeMap::new();
        for package in packages {
            let manifest = package["manifest_path"].as_str();
            let dir = Path::new(manifest.context("no manifest_path")?).parent();
            let dir = dir.context("a manifest without a directory")?;
            let dependencies = package["dependencies"].as_array();
            let dependencies = dependencies.context("no dependencies")?;
            let paths = dependencies.iter().filter_map(|d| d["path"].as_str());
            let mut uses: Vec<String> = paths.map(|path| file_name(Path::new(path))).collect();
            let sources = package["metadata"]["sources-of"].as_array();
            let sources = sources.into_iter().flatten().filter_map(Value::as_str);
            uses.extend(sources.map(str::to_owned));
            uses.sort();
            uses.dedup();
            let one = Crate {
                name: file_name(dir),
                package: package["name"].as_str().context("no name")?.to_owned(),
                uses,
                dir: dir.to_owned(),
            };
            crates.insert(one.name.clone(), one);
        }
        Ok(Workspace { crates })
    }

    /// Returns all crates, in the order of their names.
    pub fn crates(&self) -> impl Iterator<Item = &Crate> {
        self.crates.values()
    }

    /// Returns these crates and all that they use. What only the feature `sql` brings counts only for those who
    /// name it.
    #[must_use]
    pub fn with_used(&self, names: &[&str]) -> BTreeSet<String> {
        let mut found: BTreeSet<String> = BTreeSet::new();
        let mut left: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        while let Some(name) = left.pop() {
            if !found.insert(name.clone()) {
                continue;
            }
            let uses = self.crates.get(&name).map(|one| one.uses.as_slice());
            let uses = uses.unwrap_or_default().iter();
            left.extend(uses.filter(|name| *name != "sql").cloned());
        }
        found
    }

    /// Returns these crates and all that use them.
    #[must_use]
    pub fn with_users(&self, names: &BTreeSet<String>) -> BTreeSet<String> {
        let mut found = names.clone();
        loop {
            let uses_one = |one: &&Crate| one.uses.iter().any(|used| found.contains(used));
            let users: Vec<_> = self.crates().filter(uses_one).collect();
            let before = found.len();
            found.extend(users.into_iter().map(|one| one.name.clone()));
            if found.len() == before {
                return found;
            }
        }
    }

    /// Returns the crate in whose directory a file lies, given by its path below the workspace's root.
    #[must_use]
    pub fn owner(&self, file: &Path) -> Option<&Crate> {
        let file = build::root_path().join(file);
        self.crates().find(|one| file.starts_with(&one.dir))
    }
}

/// Returns the files below a directory whose names have this extension. Build outputs and hidden directories are left
/// out.
///
/// # Errors
/// If a directory cannot be read.
pub fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let (mut files, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let path = entry?.path();
            let name = file_name(&path);
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                dirs.push(path);
            } else if path.extension().is_some_and(|own| own == extension) {
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// Returns the last part of a path.
#[must_use]
pub fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workspace() -> Workspace {
        let package = |name: &str, uses: &[&str]| {
            let path = |name: &str| json!({ "path": format!("/w/crates/{name}") });
            json!({
                "name": format!("kumiki-{name}"),
                "manifest_path": format!("/w/crates/{name}/Cargo.toml"),
                "dependencies": uses.iter().map(|name| path(name)).collect::<Vec<_>>(),
            })
        };
        let packages = [
            package("base", &[]),
            package("engine", &["base"]),
            package("pages", &["base"]),
            package("sql", &["pages"]),
            package("cli", &["engine", "sql"]),
        ];
        Workspace::parse(&json!({ "packages": packages })).unwrap()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_crate_reads_all_that_it_uses_and_sql_only_by_name() {
        let workspace = workspace();
        assert_eq!(workspace.with_used(&["engine"]), names(&["base", "engine"]));
        let without = names(&["base", "cli", "engine"]);
        assert_eq!(workspace.with_used(&["cli"]), without);
        let with = names(&["base", "cli", "engine", "pages", "sql"]);
        assert_eq!(workspace.with_used(&["cli", "sql"]), with);
    }

    #[test]
    fn a_crate_uses_those_whose_sources_it_compiles() {
        let workspace = Workspace::read().unwrap();
        let reached = workspace.with_users(&names(&["engine"]));
        assert!(reached.contains("models"));
    }

    #[test]
    fn a_file_belongs_to_the_crate_in_whose_folder_it_lies() {
        let workspace = Workspace::read().unwrap();
        let owner = |file| {
            workspace
                .owner(Path::new(file))
                .map(|one| one.name.as_str())
        };
        assert_eq!(owner("crates/engine/src/lib.rs"), Some("engine"));
        assert_eq!(owner("xtask/src/ci.rs"), Some("xtask"));
        assert_eq!(owner("docs/format.md"), None);
    }

    #[test]
    fn a_change_reaches_all_that_use_it() {
        let workspace = workspace();
        let reached = workspace.with_users(&names(&["engine"]));
        assert_eq!(reached, names(&["cli", "engine"]));
        let reached = workspace.with_users(&names(&["pages"]));
        assert_eq!(reached, names(&["cli", "pages", "sql"]));
    }
}
