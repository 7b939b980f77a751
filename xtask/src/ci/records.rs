//! Which steps have passed, and with which inputs: so that a step whose inputs are unchanged need not run
//! again on this machine.
//!
//! A record is an empty file `target/ci-records/KEY`. The key is a hash of the step's name and of all that
//! the step reads:
//!
//! | input | how it enters the key |
//! |---|---|
//! | sources of the crates that it reads, their tests, corpora and manifests | names and contents of the files, as git hashes them |
//! | the lock file, profiles and lints of the workspace, cargo's configuration, README, ARCHITECTURE and docs | the same |
//! | the tools that run the step (`xtask`) | the same |
//! | the toolchain | what `rustc -vV` prints |
//! | the peers, where a step meets them | versions of the installed programs, the files `target/peers/*.installed`, and the variables `KUMIKI_*` |
//!
//! Records are written on a clean working tree only: what has passed can be found again then.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::step::StepInputs;
use crate::workspace::Workspace;
use crate::{build, peers, process};

/// What every step reads.
const COMMON: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    ".cargo",
    "xtask",
    "README.md",
    "ARCHITECTURE.md",
    "docs",
];

/// The records, and the state of the working tree.
pub(super) struct Records<'a> {
    workspace: &'a Workspace,
    dir: PathBuf,
    /// The files of the working tree, in order, each with the hash of its content.
    files: Vec<(String, String)>,
    is_clean: bool,
    toolchain: String,
}

impl<'a> Records<'a> {
    /// Reads the working tree. Outside of a git checkout every step runs, and nothing is recorded.
    ///
    /// # Errors
    /// If the tree or the toolchain cannot be read.
    pub(super) fn open(workspace: &'a Workspace) -> Result<Records<'a>> {
        let toolchain = process::output("rustc", Command::new("rustc").arg("-vV"))?;
        let status = git(&["status", "--porcelain"]);
        let files = status.as_ref().map_or(Ok(Vec::new()), |_| hashes())?;
        Ok(Records {
            workspace,
            dir: build::target_dir()?.join("ci-records"),
            files,
            is_clean: status.is_ok_and(|text| text.is_empty()),
            toolchain,
        })
    }

    /// Returns the key of a step that reads this; none for a step that always runs.
    ///
    /// # Errors
    /// If the installed peers cannot be read.
    pub(super) fn key(&self, step: &str, reads: &StepInputs) -> Result<Option<String>> {
        if self.files.is_empty() {
            return Ok(None);
        }
        let mut hash = DefaultHasher::new();
        (step, &self.toolchain).hash(&mut hash);
        let mut paths: Vec<String> = COMMON.iter().map(|path| (*path).to_owned()).collect();
        match reads {
            StepInputs::Any => return Ok(None),
            StepInputs::Tree => paths = vec![String::new()],
            StepInputs::Crates(names) | StepInputs::CratesAndPeers(names) => {
                paths.extend(self.folders(&self.workspace.with_used(names)));
            }
        }
        for (name, content) in &self.files {
            if paths.iter().any(|path| lies_below(name, path)) {
                (name, content).hash(&mut hash);
            }
        }
        if matches!(reads, StepInputs::CratesAndPeers(_)) {
            installed()?.hash(&mut hash);
        }
        let name: String = step.chars().map(as_file_name).collect();
        Ok(Some(format!("{name}-{:016x}", hash.finish())))
    }

    /// Returns the folders of crates, below the root.
    fn folders(&self, names: &BTreeSet<String>) -> Vec<String> {
        let crates = self.workspace.crates();
        let crates = crates.filter(|one| names.contains(&one.name));
        let below = |dir: &Path| {
            let dir = dir.strip_prefix(build::root_path()).unwrap_or(dir);
            dir.to_string_lossy().into_owned()
        };
        crates.map(|one| below(&one.dir)).collect()
    }

    /// Returns `true` if a step with this key has passed.
    pub(super) fn has(&self, key: &str) -> bool {
        self.dir.join(key).exists()
    }

    /// Records that a step has passed, if the working tree is clean.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub(super) fn passed(&self, key: Option<&str>) -> Result<()> {
        let Some(key) = key.filter(|_| self.is_clean) else {
            return Ok(());
        };
        let file = self.dir.join(key);
        fs::create_dir_all(&self.dir)
            .and_then(|()| fs::write(&file, ""))
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

fn as_file_name(c: char) -> char {
    if c.is_ascii_alphanumeric() { c } else { '-' }
}

/// Returns `true` for the path itself, and for files in the folder; everything lies below the empty path.
fn lies_below(file: &str, path: &str) -> bool {
    let rest = file.strip_prefix(path);
    path.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the installed peers, and the variables by which tests find them.
fn installed() -> Result<String> {
    let mut text = peers::versions();
    let mut marks: Vec<PathBuf> = fs::read_dir(build::root().join("target/peers"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "installed"))
        .collect();
    marks.sort();
    for mark in marks {
        text += &fs::read_to_string(&mark)?;
    }
    let mut variables: Vec<_> = env::vars()
        .filter(|(name, _)| name.starts_with("KUMIKI_"))
        .collect();
    variables.sort();
    variables
        .iter()
        .for_each(|(name, value)| text += &format!("{name}={value}\n"));
    Ok(text)
}

/// Returns the files that git knows or would add, each with the hash of its content in the working tree.
fn hashes() -> Result<Vec<(String, String)>> {
    let listed = git(&["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let is_file = |name: &&str| build::root().join(name).is_file();
    let names: Vec<&str> = listed.lines().filter(is_file).collect();
    let mut command = Command::new("git");
    command.args(["hash-object", "--stdin-paths"]);
    command.current_dir(build::root());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start git")?;
    let mut input = child.stdin.take().context("no standard input")?;
    let text = names.join("\n") + "\n";
    // On a thread of its own, because git answers while it still reads.
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output()?;
    writer.join().expect("no panic")?;
    let hashes = String::from_utf8(output.stdout)?;
    let hashes: Vec<&str> = hashes.lines().collect();
    if !output.status.success() || hashes.len() != names.len() {
        bail!("git cannot hash the files of the working tree");
    }
    let pairs = names.iter().zip(hashes);
    Ok(pairs
        .map(|(name, hash)| ((*name).to_owned(), hash.to_owned()))
        .collect())
}

pub(super) fn git(args: &[&str]) -> Result<String> {
    process::output(
        "git",
        Command::new("git").args(args).current_dir(build::root()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records<'a>(workspace: &'a Workspace, files: &[(&str, &str)]) -> Records<'a> {
        let owned = |(name, hash): &(&str, &str)| ((*name).to_owned(), (*hash).to_owned());
        Records {
            workspace,
            dir: PathBuf::new(),
            files: files.iter().map(owned).collect(),
            is_clean: true,
            toolchain: "rustc 1".to_owned(),
        }
    }

    /// Returns `true` if a change of `file` changes the key of a step that reads crate `resp`.
    fn changes_the_key(file: &str) -> bool {
        let workspace = Workspace::read().unwrap();
        let reads = StepInputs::Crates(&["resp"]);
        let key = |hash| {
            let files = [("crates/resp/src/lib.rs", "a"), (file, hash)];
            records(&workspace, &files)
                .key("step", &reads)
                .unwrap()
                .unwrap()
        };
        key("b") != key("c")
    }

    #[test]
    fn a_key_changes_with_all_that_a_step_reads_and_nothing_else() {
        for read in [
            "crates/resp/tests/it/main.rs",
            "crates/base/src/lib.rs",
            "Cargo.lock",
            "Cargo.toml",
            "xtask/src/ci.rs",
            ".cargo/config.toml",
            "docs/format.md",
        ] {
            assert!(changes_the_key(read), "{read}");
        }
        for other in [
            "crates/engine/src/lib.rs",
            "crates/resp2/src/lib.rs",
            "CHANGELOG.md",
        ] {
            assert!(!changes_the_key(other), "{other}");
        }
    }

    #[test]
    fn a_key_changes_with_the_step_and_the_toolchain() {
        let workspace = Workspace::read().unwrap();
        let mut records = records(&workspace, &[("Cargo.lock", "a")]);
        let reads = StepInputs::Crates(&["resp"]);
        let first = records.key("one", &reads).unwrap();
        assert_ne!(first, records.key("two", &reads).unwrap());
        records.toolchain = "rustc 2".to_owned();
        assert_ne!(first, records.key("one", &reads).unwrap());
    }

    #[test]
    fn some_steps_have_no_key() {
        let workspace = Workspace::read().unwrap();
        let records = records(&workspace, &[("Cargo.lock", "a")]);
        assert_eq!(records.key("format", &StepInputs::Any).unwrap(), None);
    }
}
