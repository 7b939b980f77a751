//! Clients of PostgreSQL that neither pip nor npm installs.
//!
//! | where | what | from |
//! |---|---|---|
//! | `target/peers/pgjdbc/lib` | pgjdbc | Maven |
//! | `target/peers/pgx` | a program with pgx | the Go module proxy |
//! | the system | the ODBC driver of PostgreSQL | Debian |

use std::process::Command;

use anyhow::{Result, bail};

use super::go::GoProgram;
use super::maven::{self, Jars};
use crate::process;

const PGJDBC: Jars = Jars {
    name: "pgjdbc",
    wanted: &[["org.postgresql", "postgresql", "42.7.8"]],
};

const PGX: GoProgram = GoProgram {
    name: "pgx",
    source: "crates/sql/tests/clients/pgx",
    library: "github.com/jackc/pgx/v5 ",
};

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
    PGX.install()?;
    odbc()
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
