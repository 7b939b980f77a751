//! etcd, which replicated partitions are measured beside.
//!
//! | where | what |
//! |---|---|
//! | `peers/etcd/` beside this file | a Go module that requires etcd at one version, with the hashes of all that it needs |
//! | `target/peers/etcd/etcd` | the server |
//! | `target/peers/etcd.installed` | which one it is, written once it is there |
//!
//! It is built by Go, from the Go module proxy. Where there is no Go, Debian's package is unpacked,
//! which is older; it is not installed, since it would start a server of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{build, process};

/// The version that `etcd/go.mod` requires.
const VERSION: &str = "3.7.3";
/// The module, as it is written where it is built.
const MODULE: [(&str, &str); 3] = [
    ("go.mod", include_str!("etcd/go.mod")),
    ("go.sum", include_str!("etcd/go.sum")),
    ("main.go", include_str!("etcd/main.go")),
];
/// Debian's package.
const PACKAGE: &str = "etcd-server";

/// Installs it unless it is there, and prints which one it is.
///
/// # Errors
/// If neither way leads to it.
pub(super) fn install() -> Result<()> {
    let peers = build::root().join("target/peers");
    let mark = peers.join("etcd.installed");
    let has_go = process::output("go", Command::new("go").arg("version")).is_ok();
    let wanted = match has_go {
        true => VERSION,
        false => PACKAGE,
    };
    let there = fs::read_to_string(&mark).is_ok_and(|text| text == wanted);
    if !there || version(&peers.join("etcd/etcd")).is_err() {
        let dir = peers.join("etcd");
        fs::create_dir_all(&dir)?;
        match has_go {
            true => build(&dir)?,
            false => unpack(&dir)?,
        }
        fs::write(&mark, wanted)?;
    }
    let version = version(&peers.join("etcd/etcd"))?;
    println!("peers: {:<16} {version}", "etcd");
    Ok(())
}

fn version(program: &Path) -> Result<String> {
    let text = process::output("etcd", Command::new(program).arg("--version"))?;
    let line = text.lines().next().unwrap_or_default();
    let version = line.strip_prefix("etcd Version: ");
    Ok(version.context("this is not etcd")?.trim().to_owned())
}

fn build(dir: &Path) -> Result<()> {
    println!("peers: building etcd {VERSION}");
    let source = dir.join("source");
    fs::create_dir_all(&source)?;
    for (name, text) in MODULE {
        fs::write(source.join(name), text)?;
    }
    let mut command = Command::new("go");
    command.args(["build", "-trimpath", "-mod=readonly", "-ldflags=-s -w"]);
    command.args(["-o", "../etcd", "."]).current_dir(&source);
    process::run("go build", &mut command)
}

fn unpack(dir: &Path) -> Result<()> {
    println!("peers: unpacking {PACKAGE}");
    let source = dir.join("source");
    // An older package would stand beside the new one.
    let _ = fs::remove_dir_all(&source);
    fs::create_dir_all(&source)?;
    super::apt::download(PACKAGE, &source)?;
    let is_package = |path: &Path| path.extension().is_some_and(|end| end == "deb");
    let mut files = source.read_dir()?.flatten().map(|entry| entry.path());
    let Some(package) = files.find(|path| is_package(path)) else {
        bail!("apt-get has downloaded no {PACKAGE}");
    };
    let mut command = Command::new("dpkg-deb");
    process::run("dpkg-deb", command.arg("-x").arg(package).arg(&source))?;
    fs::copy(source.join("usr/bin/etcd"), dir.join("etcd"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_requires_the_version_that_is_told() {
        let [(_, required), (_, hashes), _] = MODULE;
        let module = "go.etcd.io/etcd/server/v3";
        assert!(required.contains(&format!("{module} v{VERSION}")));
        assert!(hashes.contains(&format!("{module} v{VERSION} h1:")));
    }
}
