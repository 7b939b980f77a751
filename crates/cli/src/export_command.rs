//! `kumiki export rdb`: the keys of a running server, as a file that Redis loads (`dump.rdb`).
//!
//! Each database comes from a snapshot of one moment. The file has its name only once all of it is on the disk.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base::size::Size;
use clap::{Args, Subcommand, ValueEnum};
use pages::Progress as _;
use resp::Value;
use values::dump::{RdbRelease, RdbWriteError, RdbWriter};

use crate::node_connection::{Credentials, NodeConnection};
use crate::output::say_line;
use crate::progress::ProgressLine;
use crate::signals::StopRequest;
use crate::snapshot::{DatabaseSnapshot, ExportedServer, SnapshotKeys};

/// How long the server may take to answer a question.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of bytes that are written at a time.
const WRITE: usize = 1 << 20;

/// Options of `kumiki export`.
#[derive(Args, Debug)]
pub(crate) struct ExportOptions {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Write the keys of a running server to a file that Redis loads: all types, databases, deadlines and functions
    ///
    /// The server goes on meanwhile; each database is as it was at one moment. A node of a cluster gives the keys of its
    /// own partition.
    ///
    /// Example:
    ///   kumiki export rdb dump.rdb --from 127.0.0.1:6380
    ///   redis-server --dbfilename dump.rdb
    #[command(verbatim_doc_comment)]
    Rdb(RdbOptions),
}

/// Options of `kumiki export rdb`.
#[derive(Args, Debug)]
struct RdbOptions {
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    server: ExportedServer,
    /// The oldest release of Redis that can load the file. Only 7.4 has hashes with fields that expire.
    #[arg(long, value_name = "VERSION", default_value = "7.0")]
    redis: ReleaseOption,
    /// Replace the file if it is there.
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReleaseOption {
    #[value(name = "7.0")]
    Redis7_0,
    #[value(name = "7.4")]
    Redis7_4,
}

impl ReleaseOption {
    fn name(self) -> &'static str {
        match self {
            ReleaseOption::Redis7_0 => "7.0.0",
            ReleaseOption::Redis7_4 => "7.4.0",
        }
    }

    fn release(self) -> RdbRelease {
        match self {
            ReleaseOption::Redis7_0 => RdbRelease::Redis7_0,
            ReleaseOption::Redis7_4 => RdbRelease::Redis7_4,
        }
    }
}

/// Exports.
///
/// # Errors
/// The text says why there is no file.
pub(crate) fn run(options: &ExportOptions) -> Result<(), String> {
    let Command::Rdb(options) = &options.command;
    let stop = StopRequest::on_signal()?;
    let begun = Instant::now();
    let path = &options.file;
    if !options.force && path.exists() {
        return Err(format!(
            "{} is there already: name another file, or replace it by --force",
            path.display()
        ));
    }
    let (address, connection, credentials) = options.server.connect()?;
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let draft = Draft::create(path).map_err(|error| told(&error))?;
    let (keys, partitions) = {
        let output = BufWriter::with_capacity(WRITE, &draft.file);
        let mut export = Export {
            options,
            address,
            credentials,
            stop,
            file: RdbWriter::new(output, options.redis.release()).map_err(|error| told(&error))?,
            keys: 0,
        };
        let partitions = export.write(connection)?;
        drop(export.file.finish().map_err(|error| told(&error))?);
        (export.keys, partitions)
    };
    let bytes = draft
        .keep(path, options.force)
        .map_err(|error| told(&error))?;
    say_line!(
        "{}: {keys} keys, {}, in {:.1} s",
        path.display(),
        Size(bytes),
        begun.elapsed().as_secs_f64()
    );
    if partitions > 1 {
        eprintln!(
            "kumiki: {address} has one of {partitions} partitions: the keys of the others are exported from their nodes"
        );
    }
    Ok(())
}

struct Export<'a, W: Write> {
    options: &'a RdbOptions,
    address: SocketAddr,
    credentials: Credentials,
    stop: StopRequest,
    file: RdbWriter<W>,
    keys: u64,
}

/// A database, and how many keys it has, and how many of them have deadlines.
struct DatabaseKeys {
    number: u16,
    keys: u64,
    expiring: u64,
}

impl<W: Write> Export<'_, W> {
    /// Writes everything but the end of the file. Returns the number of partitions that the server's cluster has.
    fn write(&mut self, mut connection: NodeConnection) -> Result<i64, String> {
        let (address, path) = (self.address, self.options.file.display());
        let told = |error: String| format!("{address}: {error}");
        let failed = |error: &dyn std::fmt::Display| format!("{path}: {error}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs()).to_string();
        for (name, value) in [
            ("redis-ver", self.options.redis.name()),
            ("redis-bits", "64"),
            ("ctime", &now),
        ] {
            let written = self.file.property(name.as_bytes(), value.as_bytes());
            written.map_err(|error| failed(&error))?;
        }
        connection.send(&[b"FUNCTION", b"DUMP"])?;
        match connection.reply(PATIENCE).map_err(told)? {
            Value::Bulk(payload) => {
                let written = self.file.libraries(&payload);
                written.map_err(|error| format!("the functions: {error}"))?;
            }
            other => return Err(told(format!("its answer to FUNCTION DUMP: {other:?}"))),
        }
        let info = connection.ask(&["INFO", "keyspace"], PATIENCE);
        let databases = databases_of(&info.map_err(told)?);
        let mut partitions = 1;
        for database in databases {
            partitions = self.write_database(&database)?;
        }
        Ok(partitions)
    }

    fn write_database(&mut self, database: &DatabaseKeys) -> Result<i64, String> {
        let (address, path) = (self.address, self.options.file.display());
        let told = |error: String| format!("{address}: {error}");
        let failed = |error: &dyn std::fmt::Display| format!("{path}: {error}");
        let number = database.number;
        let written = self
            .file
            .database(number.into(), database.keys, database.expiring);
        written.map_err(|error| failed(&error))?;
        let selection = SnapshotKeys {
            database: number,
            pattern: None,
            stale: self.options.server.stale,
        };
        let connection = NodeConnection::connect(address, &self.credentials)?;
        let mut snapshot = DatabaseSnapshot::begin(connection, &selection).map_err(told)?;
        let mut progress = ProgressLine::new(format!("{path}: database {number}: keys"));
        let mut keys = 0;
        while let Some(entries) = snapshot.next().map_err(told)? {
            if self.stop.is_wanted() {
                return Err("stopped; nothing is kept".to_owned());
            }
            for entry in entries {
                let deadline = entry.expires_ms.and_then(|time| u64::try_from(time).ok());
                let value = entry.value.unwrap_or_default();
                let written = match &entry.kind[..] {
                    b"string" => {
                        let written = self.file.string(&entry.key, deadline, &value);
                        written.map_err(RdbWriteError::Io)
                    }
                    _ => self.file.payload(&entry.key, deadline, &value),
                };
                written.map_err(|error| {
                    let advice = match error {
                        RdbWriteError::Newer => "; add --redis 7.4",
                        _ => "",
                    };
                    format!(
                        "{path}: '{}': {error}{advice}",
                        String::from_utf8_lossy(&entry.key)
                    )
                })?;
                keys += 1;
            }
            progress.done(keys, Some(database.keys));
        }
        self.keys += keys;
        Ok(snapshot.partitions)
    }
}

/// Returns the databases that `INFO keyspace` shows.
fn databases_of(info: &str) -> Vec<DatabaseKeys> {
    let databases = info.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("db")?.split_once(":keys=")?;
        let (keys, rest) = rest.split_once(",expires=")?;
        Some(DatabaseKeys {
            number: number.parse().ok()?,
            keys: keys.parse().ok()?,
            expiring: rest.split(',').next()?.trim().parse().ok()?,
        })
    });
    databases.collect()
}

/// A file that has not got its name. It is removed if it does not get it.
struct Draft {
    file: File,
    path: PathBuf,
    is_kept: bool,
}

impl Draft {
    /// Creates one beside the file.
    fn create(path: &Path) -> std::io::Result<Draft> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let path = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        let file = File::create_new(&path)?;
        Ok(Draft {
            file,
            path,
            is_kept: false,
        })
    }

    /// Gives it its name, when it is on the disk, and returns its length.
    fn keep(mut self, path: &Path, replaces: bool) -> std::io::Result<u64> {
        self.file.sync_all()?;
        let length = self.file.metadata()?.len();
        match replaces {
            true => fs::rename(&self.path, path)?,
            // A link, and not a new name: it replaces no file that was made meanwhile.
            false => {
                fs::hard_link(&self.path, path)?;
                fs::remove_file(&self.path)?;
            }
        }
        self.is_kept = true;
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(length)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_kept {
            // The next export writes another one.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_those_that_the_server_shows() {
        let info =
            "# Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=5\r\ndb15:keys=1,expires=0,avg_ttl=0\r\n";
        let found: Vec<_> = databases_of(info)
            .iter()
            .map(|database| (database.number, database.keys, database.expiring))
            .collect();
        assert_eq!(found, [(0, 3, 1), (15, 1, 0)]);
    }

    #[test]
    fn a_draft_is_no_file_before_it_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump.rdb");
        let draft = Draft::create(&path).unwrap();
        drop(draft);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let mut draft = Draft::create(&path).unwrap();
        draft.file.write_all(b"one").unwrap();
        assert_eq!(draft.keep(&path, false).unwrap(), 3);
        let mut draft = Draft::create(&path).unwrap();
        draft.file.write_all(b"other").unwrap();
        assert!(draft.keep(&path, false).is_err());
        let draft = Draft::create(&path).unwrap();
        draft.keep(&path, true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
