//! Clients of PostgreSQL as their users run them: each connects, asks, and checks the answers. What they do is in
//! `tests/clients`.
//!
//! | group | clients |
//! |---|---|
//! | `postgres` | psycopg 3, asyncpg, node-postgres; psql, in `serve` and `clients` |
//! | `sql-clients` | psycopg 2, SQLAlchemy, pandas, connectorx and polars, DuckDB's scanner, dbt, ODBC, pgjdbc, pgx |

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::peers::{self, Group};

use crate::serve::{Served, text};

/// Seconds until a client is ended that does not end by itself.
const LIMIT: &str = "300";

/// Returns the path of a client's program.
fn script(name: &str) -> PathBuf {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    clients.join(name)
}

/// Returns a command that is ended after [`LIMIT`].
fn limited(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg(LIMIT).arg(program);
    command
}

/// Runs a client's program, to which a server's host and port are given as last arguments.
///
/// # Panics
/// If it fails, or does not print `ok` last.
#[track_caller]
fn run(mut client: Command, more: &[&Path]) {
    let served = Served::start(|options| options.connections = NonZeroUsize::new(16).unwrap());
    let address = served.address;
    client.args([address.ip().to_string(), address.port().to_string()]);
    let output = client.args(more).stdin(Stdio::null()).output();
    let output = output.expect("the command timeout runs it");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let is_ok = output.status.success() && out.lines().last() == Some("ok");
    assert!(is_ok, "{client:?}: {}\n{out}{err}", output.status);
}

/// Runs a program in Python with a library in a folder of libraries; says why not, if it is missing.
#[track_caller]
fn python(group: Group, name: &str, folder: &str, library: &str) {
    let Some(python) = peers::program(group, "python3") else {
        return;
    };
    let path = format!("{folder}/{library}");
    if peers::installed(group, &path).is_none() {
        return;
    }
    let mut client = limited(&python);
    client.arg(script(name));
    let libraries = peers::root().join("target/peers").join(folder);
    client.env("PYTHONPATH", libraries);
    client.env("PYTHONDONTWRITEBYTECODE", "1");
    run(client, &[]);
}

#[test]
fn psycopg_3_asks() {
    python(Group::Postgres, "psycopg3.py", "python-postgres", "psycopg");
}

#[test]
fn asyncpg_asks() {
    let name = "asyncpg_client.py";
    python(Group::Postgres, name, "python-postgres", "asyncpg");
}

#[test]
fn node_postgres_asks() {
    let Some(node) = peers::program(Group::Postgres, "node") else {
        return;
    };
    let folder = "node-postgres/node_modules";
    let Some(folder) = peers::installed(Group::Postgres, folder) else {
        return;
    };
    let mut client = limited(&node);
    client.arg(script("node_postgres.mjs"));
    run(client, &[&folder]);
}

#[test]
fn psycopg_2_asks() {
    let name = "psycopg2_client.py";
    python(Group::SqlClients, name, "python-sql", "psycopg2");
}

#[test]
fn sqlalchemy_reflects_tables() {
    let name = "sqlalchemy_reflection.py";
    python(Group::SqlClients, name, "python-sql", "sqlalchemy");
}

#[test]
fn pandas_reads_frames() {
    let name = "pandas_frames.py";
    python(Group::SqlClients, name, "python-sql", "pandas");
}

#[test]
fn connectorx_and_polars_read_frames() {
    let name = "connectorx_frames.py";
    python(Group::SqlClients, name, "python-sql", "connectorx");
}

#[test]
fn odbc_asks() {
    let drivers = std::fs::read_to_string("/etc/odbcinst.ini").unwrap_or_default();
    let is_there = drivers.contains("[PostgreSQL Unicode]");
    if !peers::require(Group::SqlClients, "the package odbc-postgresql", is_there) {
        return;
    }
    python(Group::SqlClients, "odbc.py", "python-sql", "pyodbc.pyi");
}

#[test]
fn dbt_is_content() {
    python(Group::SqlClients, "dbt_debug.py", "python-dbt", "dbt");
}

#[test]
fn duckdb_scans() {
    let name = "duckdb_scanner.py";
    python(Group::SqlClients, name, "python-duckdb", "duckdb");
}

#[test]
fn pgjdbc_asks_and_reads_metadata() {
    let Some(java) = peers::program(Group::SqlClients, "java") else {
        return;
    };
    let Some(jars) = peers::installed(Group::SqlClients, "pgjdbc/lib") else {
        return;
    };
    let mut client = limited(&java);
    client.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]);
    client.arg(jars.join("*")).arg(script("PgJdbc.java"));
    run(client, &[]);
}

#[test]
fn pgx_asks() {
    let Some(go) = peers::program(Group::SqlClients, "go") else {
        return;
    };
    let Some(modules) = peers::installed(Group::SqlClients, "pgx/modules") else {
        return;
    };
    let modules = modules.canonicalize().expect("it is there");
    let mut client = limited(&go);
    client.args(["run", "-mod=readonly", "."]);
    client.current_dir(script("pgx"));
    client.env("GOMODCACHE", modules).env("GOPROXY", "off");
    run(client, &[]);
}
