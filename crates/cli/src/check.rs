//! `kumiki check`: verifies a data directory without starting, and describes what a recovery would
//! find.
//!
//! It changes nothing, not even the lock file. A directory that is in use is refused: its end is
//! being written.

mod progress;
mod replica;
mod text;

use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use store::CheckReport;

use crate::data_directory::REPLICA;
use crate::output::say;
use progress::CheckProgress;
use text::{count, mib, utc};

/// Options of `kumiki check`.
#[derive(Args, Debug)]
pub(crate) struct CheckOptions {
    /// The data directory; nothing in it is changed. The server that uses it must be stopped.
    #[arg(value_name = "DIR", default_value = "./kumiki-data")]
    pub(crate) dir: PathBuf,
}

/// Verifies the directory.
pub(crate) fn check(options: &CheckOptions) -> Result<(), String> {
    let dir = &options.dir;
    let names: Vec<_> = match fs::read_dir(dir) {
        Ok(entries) => entries.flatten().map(|entry| entry.file_name()).collect(),
        Err(error) => return Err(format!("cannot read {}: {error}", dir.display())),
    };
    let is_replica = names.iter().any(|name| name == REPLICA);
    let is_local = names.iter().any(is_local_data);
    if !is_local && !is_replica {
        return Err(format!(
            "{} holds no data: neither logs nor a checkpoint nor a replica; name the directory that \
             was given to 'kumiki serve --data'",
            dir.display()
        ));
    }
    let _lock = take_part(dir)?;
    if is_local {
        say!("{}", check_local(dir)?);
    }
    if is_replica {
        say!("{}", replica::check(&dir.join(REPLICA))?);
    }
    Ok(())
}

/// Returns `true` if a file is of a partition that is on one node.
fn is_local_data(name: &std::ffi::OsString) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix("log"));
    number.is_some_and(|number| number.parse::<u32>().is_ok()) || name == "checkpoint"
}

fn check_local(dir: &Path) -> Result<String, String> {
    let disk: Arc<dyn disk::Disk> = Arc::new(disk::RealDisk);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let progress = CheckProgress::default();
    let checked = store::check(&disk, dir, threads, &|so_far| progress.tell(so_far));
    progress.end();
    let report = checked.map_err(|error| error.to_string())?;
    Ok(describe(dir, &report))
}

/// Ensures, without writing to the directory, that no server uses it or begins to.
fn take_part(dir: &Path) -> Result<Option<File>, String> {
    let path = dir.join("LOCK");
    let file = match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| format!("cannot open {}: {error}", path.display()))?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            let pid = fs::read_to_string(&path).unwrap_or_default();
            let pid = match pid.trim() {
                "" => String::new(),
                pid => format!(" (pid {pid})"),
            };
            Err(format!(
                "directory {} is used by another process{pid}; stop it, or check a copy",
                dir.display()
            ))
        }
        Err(TryLockError::Error(error)) => Err(format!("cannot lock {}: {error}", path.display())),
    }
}

/// Describes the findings for people.
fn describe(dir: &Path, report: &CheckReport) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        writeln!(text, "{name:<12}{what}").expect("a string takes everything");
    };
    line("directory", dir.display().to_string());
    let mut bytes = report.log_bytes;
    match &report.checkpoint {
        None => line("checkpoint", "none".to_owned()),
        Some((file, checkpoint)) => {
            bytes += checkpoint.bytes;
            line("checkpoint", file.display().to_string());
            let what = format!(
                "epoch {}, {} keys, {}, made {}",
                checkpoint.epoch,
                checkpoint.entries,
                mib(checkpoint.bytes),
                utc(checkpoint.finished_ms)
            );
            line("", what);
        }
    }
    let logs = format!(
        "{}, {}, {}, written in {}",
        count(report.logs as u64, "log"),
        count(report.segments, "segment"),
        mib(report.log_bytes),
        count(report.runs.into(), "run")
    );
    line("logs", logs);
    let recovers = format!(
        "everything up to epoch {}, {}: {}",
        report.durable_epoch,
        utc(report.stamp_ms),
        count(report.entries, "change")
    );
    line("recovers", recovers);
    for (file, offset, bytes) in &report.cuts {
        let what = format!(
            "{}: an unfinished write of {bytes} bytes at byte {offset} would be cut off; nothing of \
             it was acknowledged",
            file.display()
        );
        line("unfinished", what);
    }
    for warning in &report.warnings {
        line("warning", warning.clone());
    }
    let seconds = report.elapsed.as_secs_f64();
    let rate = bytes as f64 / 1_048_576.0 / seconds.max(1e-9);
    let verified = format!("{} in {seconds:.2} s, {rate:.0} MiB/s", mib(bytes));
    line("verified", verified);
    line("result", "sound".to_owned());
    text
}
