//! What backups need of a journal: its files while it runs, a hold of the durable epoch, and copied files that are
//! rewound.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::Epoch;
use disk::Disk;

use super::{Journal, create_segments};
use crate::data_files::{self, DataFiles};
use crate::error::{RecoverError, RewindError};
use crate::logger::Logger;
use crate::options::Options;
use crate::recovery::{self, Progress};

impl Journal {
    /// Holds the durable epoch where it is, for `time` at most: nothing that waits for durability leaves this process
    /// meanwhile. Returns the hold's number and that epoch; `None` if another hold lasts, or the journal closes.
    #[must_use]
    pub fn hold_durable(&self, time: Duration) -> Option<(u64, Epoch)> {
        self.shared.horizon.hold(time)
    }

    /// Ends a hold. Returns `true` if it has lasted until now.
    pub fn release_durable(&self, number: u64) -> bool {
        self.shared.horizon.release(number)
    }

    /// Ends a hold whose time is over. To be called now and then: an idle journal does not find that by itself.
    pub fn end_overdue_hold(&self) {
        self.shared.horizon.end_overdue_hold();
    }

    /// Pins the files that are in `dir`, the journal's directory, for `time`: no checkpoint removes them. A pin of the
    /// same name is replaced.
    ///
    /// # Errors
    /// Returns an error if the files cannot be listed.
    pub fn pin_files(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        name: &str,
        time: Duration,
    ) -> Result<(), RecoverError> {
        let logs = self.shared.loggers.len();
        data_files::pin(disk, dir, logs, &self.origin, (name, time))
    }

    /// Renews a pin for `time`. Returns `false` if it has ended.
    #[must_use]
    pub fn renew_pin(&self, name: &str, time: Duration) -> bool {
        self.origin.pins.lock().renew(name, time).is_some()
    }

    /// Narrows a pin to the segments from those numbers on, one for each log, and to no checkpoint. Returns `false` if
    /// the pin has ended.
    #[must_use]
    pub fn narrow_pin(&self, name: &str, segments: &[u32]) -> bool {
        let mut pins = self.origin.pins.lock();
        let Some(pin) = pins.renew(name, Duration::ZERO) else {
            return false;
        };
        pin.checkpoints.clear();
        for (pinned, &first) in pin.segments.iter_mut().zip(segments) {
            *pinned = first.max(*pinned);
        }
        true
    }

    /// Ends a pin.
    pub fn unpin_files(&self, name: &str) {
        self.origin.pins.remove(name);
    }

    /// Lists the files in `dir`, the journal's directory, as far as they are durable: a copy of them is one that a
    /// crash could have left. Waits for writes of logs that are under way, and lets none begin meanwhile.
    ///
    /// # Errors
    /// Returns an error if they cannot be listed.
    pub fn data_files(&self, disk: &dyn Disk, dir: &Path) -> Result<DataFiles, RecoverError> {
        let positions = Logger::positions(&self.shared.loggers);
        data_files::list(disk, dir, &positions, &self.origin)
    }

    /// Reads up to `count` bytes of a file of [`Journal::data_files`].
    ///
    /// # Errors
    /// Returns an error if there is no such file, or it cannot be read.
    pub fn read_data_file(
        disk: &dyn Disk,
        dir: &Path,
        name: &str,
        offset: u64,
        count: usize,
    ) -> Result<Vec<u8>, RecoverError> {
        data_files::read(disk, dir, name, offset, count)
    }

    /// Returns the newest epoch of the logs in `dir` whose time is not after `stamp_ms`, and the time of the
    /// checkpoint from which a recovery would begin: earlier times have left no trace, and the epoch is that of the
    /// checkpoint then. Verifies the files as [`Journal::check`] does.
    ///
    /// # Errors
    /// As [`Journal::recover`].
    pub fn epoch_at(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        threads: usize,
        stamp_ms: u64,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(Epoch, u64), RecoverError> {
        recovery::epoch_at(disk.as_ref(), dir, threads, stamp_ms, progress)
    }

    /// Makes everything after `epoch` void for ever in the logs in `dir`: a recovery gives the state as of the end
    /// of that epoch, or of the last one that they have. No journal runs there. After an error another call must
    /// succeed before the directory is used.
    ///
    /// # Errors
    /// Returns an error if the files cannot be read or written, or the checkpoint is of a later epoch.
    pub fn rewind(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        threads: usize,
        epoch: Epoch,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(), RewindError> {
        let recovered = recovery::rewind(disk.as_ref(), dir, threads, epoch, progress)?;
        let options = Options {
            loggers: recovered.logs(),
            preallocate: 0,
            ..Options::default()
        };
        create_segments(disk, dir, &options, &recovered, Vec::new())?;
        Ok(())
    }
}
