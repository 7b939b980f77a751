//! `kumiki check`: verifies a data directory without starting, and describes what a recovery would
//! find.
//!
//! It changes nothing, not even the lock file. A directory that is in use is refused: its end is
//! being written.

mod replica;

use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use store::{CheckReport, RecoveryProgress};

use crate::cli::Check;
use crate::output::say;
use crate::replicated;

/// The interval at which progress is shown.
const ON_TERMINAL: Duration = Duration::from_millis(100);
const ELSEWHERE: Duration = Duration::from_secs(2);
/// Characters of the progress bar.
const BAR: usize = 30;

/// Verifies the directory.
pub(crate) fn check(options: &Check) -> Result<(), String> {
    let dir = &options.dir;
    let names: Vec<_> = match fs::read_dir(dir) {
        Ok(entries) => entries.flatten().map(|entry| entry.file_name()).collect(),
        Err(error) => return Err(format!("cannot read {}: {error}", dir.display())),
    };
    let is_replica = names.iter().any(|name| name == replicated::DIRECTORY);
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
        say!("{}", replica::check(&dir.join(replicated::DIRECTORY))?);
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
    let progress = Progress::default();
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

fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}

/// Formats a time as a date and time of day in UTC.
fn utc(ms: u64) -> String {
    let seconds = ms / 1000;
    let (day, second) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Days are counted from 1 March of year 0, so that a leap day is the last of its year.
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 {
        (month + 3, year + era * 400)
    } else {
        (month - 9, year + era * 400 + 1)
    };
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{:02} UTC",
        second % 60
    )
}

/// Shows the progress of the check: a bar on a terminal, otherwise a line at intervals.
#[derive(Default)]
struct Progress {
    told: Mutex<Duration>,
}

impl Progress {
    fn tell(&self, progress: &RecoveryProgress) {
        let terminal = std::io::stderr().is_terminal();
        let every = if terminal { ON_TERMINAL } else { ELSEWHERE };
        let mut told = self.told.lock();
        if progress.elapsed < *told + every {
            return;
        }
        *told = progress.elapsed;
        if terminal {
            eprint!("\r{}", bar(progress));
        } else {
            eprintln!("{}", bar(progress));
        }
    }

    /// Clears the line for the output that follows.
    fn end(&self) {
        if !self.told.lock().is_zero() && std::io::stderr().is_terminal() {
            eprint!("\r{:78}\r", "");
        }
    }
}

fn bar(progress: &RecoveryProgress) -> String {
    let share = progress.bytes_read as f64 / progress.bytes_total.max(1) as f64;
    let full = ((share * BAR as f64) as usize).min(BAR);
    let rate = progress.bytes_read as f64 / 1_048_576.0 / progress.elapsed.as_secs_f64().max(1e-9);
    format!(
        "[{:<BAR$}] {:3.0} %  {} of {}, {rate:.0} MiB/s",
        "#".repeat(full),
        100.0 * share,
        mib(progress.bytes_read),
        mib(progress.bytes_total),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399_000, "2000-02-28 23:59:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199_999, "2024-02-29 23:59:59 UTC"),
            (4_102_444_800_000, "2100-01-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }

    #[test]
    fn progress_is_a_bar() {
        let progress = RecoveryProgress {
            bytes_read: 50 << 20,
            bytes_total: 100 << 20,
            entries: 7,
            elapsed: Duration::from_millis(500),
        };
        assert_eq!(
            bar(&progress),
            "[###############               ]  50 %  50.0 MiB of 100.0 MiB, 100 MiB/s"
        );
    }
}
