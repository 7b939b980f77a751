//! The progress of a check.

use std::io::IsTerminal;
use std::time::Duration;

use parking_lot::Mutex;
use store::RecoveryProgress;

use super::text::mib;

/// The interval at which progress is shown.
const ON_TERMINAL: Duration = Duration::from_millis(100);
const ELSEWHERE: Duration = Duration::from_secs(2);
/// Characters of the progress bar.
const BAR: usize = 30;

/// Shows the progress of the check: a bar on a terminal, otherwise a line at intervals.
#[derive(Default)]
pub(super) struct CheckProgress {
    /// When the progress was shown last.
    shown: Mutex<Duration>,
}

impl CheckProgress {
    /// Shows how far the check is, if it was not shown just before.
    pub(super) fn tell(&self, progress: &RecoveryProgress) {
        let terminal = std::io::stderr().is_terminal();
        let every = if terminal { ON_TERMINAL } else { ELSEWHERE };
        let mut shown = self.shown.lock();
        if progress.elapsed < *shown + every {
            return;
        }
        *shown = progress.elapsed;
        if terminal {
            eprint!("\r{}", bar(progress));
        } else {
            eprintln!("{}", bar(progress));
        }
    }

    /// Clears the line for the output that follows.
    pub(super) fn end(&self) {
        if !self.shown.lock().is_zero() && std::io::stderr().is_terminal() {
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
