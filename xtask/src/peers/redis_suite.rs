//! Redis's own test suite, from Debian's source package.
//!
//! | where | what |
//! |---|---|
//! | `target/peers/redis-suite/tests` | the suite |
//! | `target/peers/redis-suite.installed` | the version of Redis that it is of, written once it is there |
//!
//! The lists of source packages lie below `target/peers` as well while apt-get works, so that the machine's
//! own lists and sources stay as they are.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::apt;
use crate::{build, process};

/// Where the suite lies, below `target/peers`.
const FOLDER: &str = "redis-suite";

/// Installs the suite unless it is there, and prints its version.
///
/// # Errors
/// Returns an error if the source package cannot be had.
pub(super) fn install() -> Result<()> {
    let peers = build::root().join("target/peers");
    let (folder, mark) = (peers.join(FOLDER), peers.join("redis-suite.installed"));
    if !mark.is_file() || !folder.join("tests").is_dir() {
        println!("peers: installing {FOLDER}");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let work = tempfile::tempdir_in(&peers)?;
        apt::source("redis", work.path())?;
        let (version, source) = unpacked(work.path())?;
        fs::rename(source.path().join("tests"), folder.join("tests"))?;
        fs::write(&mark, version)?;
    }
    println!("peers: {:<16} {}", FOLDER, fs::read_to_string(&mark)?);
    tcl(&folder)
}

/// Installs Tcl, in which the suite is written, unless it is there, and prints its version.
fn tcl(folder: &Path) -> Result<()> {
    let script = folder.join("version.tcl");
    fs::write(&script, "puts [info patchlevel]")?;
    let version = || process::output("tclsh", Command::new("tclsh").arg(&script));
    if version().is_err() {
        println!("peers: installing tcl");
        apt::install(&["tcl"])?;
    }
    println!("peers: {:<16} {}", "tclsh", version()?.trim_end());
    Ok(())
}

/// Returns the version and the folder of an unpacked source package.
fn unpacked(work: &Path) -> Result<(String, fs::DirEntry)> {
    let is_source = |entry: &fs::DirEntry| entry.path().join("tests/test_helper.tcl").is_file();
    let mut entries = fs::read_dir(work)?.flatten();
    let source = entries.find(is_source);
    let source = source.context("the source package has no test suite")?;
    let name = source.file_name().to_string_lossy().into_owned();
    let Some(version) = name.strip_prefix("redis-") else {
        bail!("{name} is not a version of Redis");
    };
    Ok((version.to_owned(), source))
}
