//! Clients of PostgreSQL that neither pip nor npm installs.
//!
//! | where | what | from |
//! |---|---|---|
//! | `target/peers/pgjdbc/lib` | pgjdbc | Maven |
//! | `target/peers/pgx/modules` | pgx and what it needs, as Go keeps modules | the Go module proxy |
//! | `target/peers/pgx.installed` | the hashes of these modules, written once they are there | |
//! | the system | the ODBC driver of PostgreSQL | Debian |

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::maven::{self, Jars};
use crate::{build, process};

const PGJDBC: Jars = Jars {
    name: "pgjdbc",
    wanted: &[["org.postgresql", "postgresql", "42.7.8"]],
};

/// The module that uses pgx, in the tests of SQL.
const PGX: &str = "crates/sql/tests/clients/pgx";

/// Debian's packages: the driver, and the program that says which drivers are installed.
const ODBC: [&str; 2] = ["odbc-postgresql", "odbcinst"];
/// The name of the driver.
const DRIVER: &str = "[PostgreSQL Unicode]";

/// Installs what is missing, and prints what is there.
///
/// # Errors
/// If something cannot be had.
pub(super) fn install() -> Result<()> {
    maven::install()?;
    PGJDBC.install()?;
    pgx()?;
    odbc()
}

fn pgx() -> Result<()> {
    let (peers, module) = (build::root().join("target/peers"), build::root().join(PGX));
    let (modules, mark) = (peers.join("pgx/modules"), peers.join("pgx.installed"));
    let hashes = fs::read_to_string(module.join("go.sum"))?;
    let there = fs::read_to_string(&mark).is_ok_and(|text| text == hashes);
    if !there || !modules.is_dir() {
        println!("peers: installing pgx");
        fs::create_dir_all(&modules)?;
        let mut go = Command::new("go");
        // Of the modules it fetches those that the program needs.
        go.args(["build", "-mod=readonly", "-modcacherw", "-o"]);
        go.arg(peers.join("pgx/client")).arg(".");
        go.env("GOMODCACHE", &modules).current_dir(&module);
        process::run("go", &mut go).context("cannot fetch pgx; Go must be installed")?;
        fs::write(&mark, &hashes)?;
    }
    let version = hashes.lines().find_map(|line| {
        let version = line.strip_prefix("github.com/jackc/pgx/v5 ")?;
        version.split_whitespace().next()
    });
    println!("peers: {:<16} {}", "pgx", version.unwrap_or("?"));
    Ok(())
}

fn odbc() -> Result<()> {
    let has_driver = || {
        let drivers = process::output("odbcinst", Command::new("odbcinst").args(["-q", "-d"]));
        drivers.is_ok_and(|drivers| drivers.lines().any(|line| line == DRIVER))
    };
    if !has_driver() {
        println!("peers: installing {}", ODBC.join(" "));
        super::apt::install(&ODBC)?;
    }
    if !has_driver() {
        bail!(
            "the ODBC driver {DRIVER} is still missing; install the package {}",
            ODBC[0]
        );
    }
    println!("peers: {:<16} {DRIVER}", "odbc");
    Ok(())
}
