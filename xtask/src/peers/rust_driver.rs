//! The driver program for Cassandra that is written in Rust.
//!
//! | where | what |
//! |---|---|
//! | `crates/cli/tests/clients/cassandra/rust` | the program, a workspace of its own with a lock file of its own |
//! | `target/peers/rust-driver/source` | the same, copied here and built |
//! | `target/peers/rust-driver/rust-driver` | what came of it |
//!
//! The driver brings some ninety packages, which only this program needs. So it is built here once, and
//! tests compare the copy with the original: a program of other sources counts as missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::build::{self, cargo};
use crate::process;

const SOURCE: &str = "crates/cli/tests/clients/cassandra/rust";
const PLACE: &str = "target/peers/rust-driver";
const PROGRAM: &str = "rust-driver";

/// Builds it unless it is there, and prints which driver it has.
///
/// # Errors
/// If its packages cannot be had, or it does not compile.
pub(super) fn install() -> Result<()> {
    let (source, place) = (build::root().join(SOURCE), build::root().join(PLACE));
    let (copy, program) = (place.join("source"), place.join(PROGRAM));
    let files = files(&source)?;
    let is_there = |file: &PathBuf| {
        let [original, copied] = [&source, &copy].map(|dir| fs::read(dir.join(file)));
        copied.is_ok_and(|copied| original.is_ok_and(|original| original == copied))
    };
    if !program.is_file() || !files.iter().all(is_there) {
        println!("peers: building {PROGRAM}");
        let begin = Instant::now();
        // What is left of an older copy would count.
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(copy.join("src"))?;
        for file in &files {
            fs::copy(source.join(file), copy.join(file))?;
        }
        make(&copy, &program)?;
        println!("peers: built it in {} s", begin.elapsed().as_secs());
    }
    let lock = fs::read_to_string(copy.join("Cargo.lock"))?;
    let version = version_of("scylla", &lock).context("no driver in the lock file")?;
    println!("peers: {:<16} scylla {version}", PROGRAM);
    Ok(())
}

/// Returns the files of the program, below its folder.
fn files(source: &Path) -> Result<Vec<PathBuf>> {
    let folder = source.join("src");
    let entries = fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))?;
    let mut files = vec![PathBuf::from("Cargo.toml"), PathBuf::from("Cargo.lock")];
    for entry in entries {
        files.push(Path::new("src").join(entry?.file_name()));
    }
    Ok(files)
}

fn make(copy: &Path, program: &Path) -> Result<()> {
    let target = copy.join("target");
    let mut command = cargo();
    command.args(["build", "--locked"]).current_dir(copy);
    command.arg("--target-dir").arg(&target);
    process::run("cargo build", &mut command).with_context(|| {
        format!("cannot build {PROGRAM}; cargo must reach a registry, or a mirror of one")
    })?;
    fs::copy(target.join("debug").join(PROGRAM), program)?;
    // Hundreds of megabytes, and nothing needs them any more.
    fs::remove_dir_all(&target)?;
    Ok(())
}

/// Returns the version of a package in a lock file.
fn version_of<'a>(package: &str, lock: &'a str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines
        .nth(1)?
        .strip_prefix("version = \"")?
        .strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_has_a_lock_file_that_names_its_driver() {
        let source = build::root().join(SOURCE);
        let lock = fs::read_to_string(source.join("Cargo.lock")).unwrap();
        assert!(version_of("scylla", &lock).is_some_and(|version| version.starts_with("1.")));
        assert_eq!(version_of("scyl", &lock), None);
        let files = files(&source).unwrap();
        assert!(files.contains(&PathBuf::from("src/main.rs")), "{files:?}");
    }
}
