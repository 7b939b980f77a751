//! What is compared: a binary that is there, or one that is built of a commit.
//!
//! | below `target/pairs` | what |
//! |---|---|
//! | `<commit>/kumiki` | the binary of a commit, kept for the next comparison |
//! | `<commit>/source` | the worktree that it is built in, removed afterwards |
//! | `target` | what cargo compiles for all commits; packages from outside are compiled once |

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{build, process};

/// What was named on the command line.
#[derive(Debug)]
pub(super) enum Subject {
    Binary(PathBuf),
    Commit {
        /// Its whole name.
        hash: String,
        /// As it was given, and its subject line.
        title: String,
    },
}

/// A binary that can be started.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) binary: PathBuf,
    /// For people.
    pub(super) name: String,
    /// The commit that it was built of, if that is known for sure.
    commit: Option<String>,
    /// What the binary says of itself.
    version: String,
}

impl Subject {
    /// Finds what is meant.
    ///
    /// # Errors
    /// If there is no such binary and no such commit.
    pub(super) fn find(text: &str) -> Result<Subject> {
        let path = Path::new(text);
        if path.is_file() {
            return Ok(Subject::Binary(path.canonicalize()?));
        }
        if path.exists() {
            bail!("{text} is not a file; name a binary, or a commit");
        }
        let hash = git(&[
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &format!("{text}^{{commit}}"),
        ]);
        let Ok(hash) = hash else {
            bail!(
                "{text} is neither a file nor a commit of this repository (git log lists commits)"
            );
        };
        let title = git(&["log", "-1", "--format=%h %s", &hash])?;
        Ok(Subject::Commit { hash, title })
    }

    /// Builds the binary of a commit, unless that was done before.
    pub(super) fn build(self) -> Result<Built> {
        match self {
            Subject::Binary(binary) => {
                let version = version(&binary)?;
                let name = format!("{} ({version})", binary.display());
                Ok(Built {
                    binary,
                    name,
                    commit: None,
                    version,
                })
            }
            Subject::Commit { hash, title } => {
                let binary = folder()?.join(&hash[..12]).join("kumiki");
                if !binary.is_file() {
                    println!("pairs: building {title}");
                    build_commit(&hash, &binary)
                        .with_context(|| format!("cannot build {title}"))?;
                }
                let version = version(&binary)?;
                Ok(Built {
                    binary,
                    name: title,
                    commit: Some(hash),
                    version,
                })
            }
        }
    }
}

impl Built {
    pub(super) fn describe(&self) -> Value {
        json!({
            "binary": self.binary,
            "commit": self.commit,
            "version": self.version,
        })
    }
}

/// Returns the version that the binary prints.
fn version(binary: &Path) -> Result<String> {
    let said = process::output("kumiki --version", Command::new(binary).arg("--version"))
        .with_context(|| {
            format!(
                "{} does not tell its version; is it kumiki?",
                binary.display()
            )
        })?;
    let first = said.lines().next().unwrap_or_default().trim().to_owned();
    ensure!(
        first.starts_with("kumiki"),
        "{} is not kumiki; it says {first:?}",
        binary.display()
    );
    Ok(first)
}

fn build_commit(hash: &str, binary: &Path) -> Result<()> {
    let dir = binary.parent().context("a binary lies in a folder")?;
    let source = dir.join("source");
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    // One that an interrupted build has left.
    if source.exists() {
        remove(&source)?;
    }
    let path = source.display().to_string();
    git(&["worktree", "add", "--force", "--detach", &path, hash])?;
    let built = cargo_build(&source, binary);
    remove(&source)?;
    built
}

fn cargo_build(source: &Path, binary: &Path) -> Result<()> {
    // Until the library kumiki had a crate of its own, the binary was in its crate.
    let package = match source.join("crates/cli/Cargo.toml").exists() {
        true => "kumiki-cli",
        false => "kumiki",
    };
    let target = folder()?.join("target");
    let mut command = build::cargo();
    command.current_dir(source);
    command.args([
        "build",
        "--release",
        "--bin",
        "kumiki",
        "--package",
        package,
    ]);
    command.arg("--target-dir").arg(&target);
    process::run("cargo build", &mut command)?;
    let made = target.join("release/kumiki");
    // The next commit's binary goes to the same place. The name appears when the copy is whole.
    let part = binary.with_extension("part");
    fs::copy(&made, &part).with_context(|| format!("cannot copy {}", made.display()))?;
    fs::rename(&part, binary)?;
    Ok(())
}

fn remove(source: &Path) -> Result<()> {
    let path = source.display().to_string();
    if git(&["worktree", "remove", "--force", "--force", &path]).is_err() {
        // It is no worktree, or not a whole one.
        fs::remove_dir_all(source).with_context(|| format!("cannot remove {path}"))?;
        git(&["worktree", "prune"])?;
    }
    Ok(())
}

fn git(words: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command
        .args(words)
        .current_dir(build::root())
        .stderr(Stdio::inherit());
    Ok(process::output("git", &mut command)?.trim().to_owned())
}

/// Returns the folder that keeps binaries of commits.
fn folder() -> Result<PathBuf> {
    Ok(build::target_dir()?.join("pairs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_a_binary_nor_a_commit_is_refused() {
        let said = |text: &str| Subject::find(text).unwrap_err().to_string();
        assert!(said("no-such-commit").contains("neither a file nor a commit"));
        assert!(said("/").contains("is not a file"));
    }

    #[test]
    fn a_file_that_is_no_kumiki_is_refused_before_anything_is_measured() {
        let error = Subject::find("/bin/ls").unwrap().build().unwrap_err();
        assert!(format!("{error:#}").contains("is not kumiki"), "{error:#}");
    }
}
