//! The file in which a log will continue: created, and written once with zeros, before it is needed
//! (paper 2, section 5.2: warm-up). Syncs of a file that was written before need not record where
//! its data lies.
//!
//! A spare lies in its log's directory under the name [`SPARE_NAME`]. When it is needed, the logger
//! renames it to the next segment and writes the header.
//!
//! | state | actor | becomes |
//! |---|---|---|
//! | nothing | the logger, half-way through a segment | wanted |
//! | wanted | the maker (a thread of the journal) writes and syncs the file | ready, or nothing |
//! | ready | the logger, at the end of a segment | nothing |
//!
//! Invariants:
//! 1. A spare that is ready holds zeros alone, and its content is durable. Its name is not.
//! 2. The logger never waits for the maker: where no spare is ready, the log continues in a new
//!    file.
//! 3. A failure to make one is no failure of the journal: the file is given up, and nothing relied
//!    on it.
//! 4. The name means nothing to a recovery, which removes it.

use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread, park, park_timeout};
use std::time::Instant;

use disk::{Disk, DiskFile};
use parking_lot::Mutex;

use crate::format::SPARE_NAME;

/// Bytes that are written at once. Other files that are to be synced meanwhile wait for no more
/// than this.
const PIECE: usize = 1024 * 1024;

/// A log's place for a spare.
pub(crate) struct Spare {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Bytes of zeros in it.
    size: u64,
    /// The use of a segment, in bytes, at which the next one is wanted.
    half: u64,
    state: Mutex<SpareState>,
    /// The thread to wake.
    maker: Mutex<Option<Thread>>,
}

enum SpareState {
    Nothing,
    Wanted,
    Ready(Box<dyn DiskFile>),
}

impl Spare {
    /// Returns the place for the log in `dir`, whose segments end at about `segment_size`, give or
    /// take the bytes of a cycle.
    pub(crate) fn new(
        disk: &Arc<dyn Disk>,
        dir: PathBuf,
        segment_size: u64,
        preallocate: u64,
    ) -> Spare {
        Spare {
            disk: Arc::clone(disk),
            path: dir.join(SPARE_NAME),
            // The last write of a segment may go beyond its end.
            size: segment_size.saturating_add(preallocate.min(segment_size)),
            half: segment_size / 2,
            state: Mutex::new(SpareState::Nothing),
            maker: Mutex::new(None),
        }
    }

    /// Returns the path at which the spare lies until it is taken.
    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Returns the bytes of zeros in it.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Notes that the logger's segment has grown to `used`. Returns `true` if it has grown enough
    /// to want the next one.
    pub(crate) fn want_at(&self, used: u64) -> bool {
        if used < self.half {
            return false;
        }
        let mut state = self.state.lock();
        if matches!(*state, SpareState::Nothing) {
            *state = SpareState::Wanted;
            if let Some(maker) = &*self.maker.lock() {
                maker.unpark();
            }
        }
        true
    }

    /// Takes the spare, if it is ready. The caller gives it another name.
    pub(crate) fn take(&self) -> Option<Box<dyn DiskFile>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, SpareState::Nothing) {
            SpareState::Ready(file) => Some(file),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Writes zeros all over `file` and syncs them, calling `pause` with the time that each piece
    /// took. Stops if `pause` returns `false`.
    pub(crate) fn fill(
        &self,
        file: &dyn DiskFile,
        pause: &dyn Fn(Instant) -> bool,
    ) -> io::Result<()> {
        let zeros = vec![0; PIECE.min(self.size as usize)];
        file.allocate(self.size)?;
        let mut at = 0;
        while at < self.size {
            let piece = &zeros[..zeros.len().min((self.size - at) as usize)];
            let start = Instant::now();
            file.write_and_sync(&[IoSlice::new(piece)], at)?;
            at += piece.len() as u64;
            if !pause(start) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        Ok(())
    }

    /// Makes the spare if it is wanted.
    pub(crate) fn make(&self, pause: &dyn Fn(Instant) -> bool) {
        if !matches!(*self.state.lock(), SpareState::Wanted) {
            return;
        }
        let made = self.create().and_then(|file| {
            self.fill(&*file, pause)?;
            Ok(file)
        });
        // The logger waits for this lock: only the state is changed under it.
        match made {
            Ok(file) => *self.state.lock() = SpareState::Ready(file),
            Err(error) => {
                let path = self.path.display();
                if error.kind() != io::ErrorKind::Interrupted {
                    tracing::warn!("cannot warm up {path}: {error}; the log will do without");
                }
                self.remove();
                *self.state.lock() = SpareState::Nothing;
            }
        }
    }

    /// Creates the file. A failed attempt may have left one.
    fn create(&self) -> io::Result<Box<dyn DiskFile>> {
        match self.disk.create_new(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.disk.remove(&self.path)?;
                self.disk.create_new(&self.path)
            }
            other => other,
        }
    }

    /// Removes the file; if that fails, a recovery will remove it.
    fn remove(&self) {
        if let Err(error) = self.disk.remove(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// The spares of all logs, and the thread that makes them.
pub(crate) struct Spares {
    spares: Vec<Arc<Spare>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stopping: Arc<AtomicBool>,
}

impl Spares {
    pub(crate) fn new(spares: Vec<Arc<Spare>>) -> Spares {
        Spares {
            spares,
            thread: Mutex::new(None),
            stopping: Arc::default(),
        }
    }

    /// Starts the thread, if there is anything for it to do.
    pub(crate) fn start(&self) -> io::Result<()> {
        if self.spares.is_empty() {
            return Ok(());
        }
        let (spares, stopping) = (self.spares.clone(), Arc::clone(&self.stopping));
        let thread = std::thread::Builder::new()
            .name("warm-up".to_owned())
            .spawn(move || run(&spares, &stopping))?;
        for spare in &self.spares {
            *spare.maker.lock() = Some(thread.thread().clone());
        }
        // A spare may have been wanted before the thread could be woken.
        thread.thread().unpark();
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Makes the spares that are wanted, on this thread.
    pub(crate) fn make_now(&self) {
        self.spares.iter().for_each(|spare| spare.make(&|_| true));
    }

    /// Ends the thread and removes the spares that were not used.
    pub(crate) fn close(&self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.lock().take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread that warms up log files panicked");
            }
        }
        for spare in &self.spares {
            if spare.take().is_some() {
                spare.remove();
            }
        }
    }
}

/// Makes spares as they are wanted. Rests after each piece for as long as it took, so that the
/// logs have the device for half of the time at least.
fn run(spares: &[Arc<Spare>], stopping: &AtomicBool) {
    let stop = || stopping.load(Ordering::Acquire);
    let pause = |start: Instant| {
        let until = Instant::now() + start.elapsed();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || stop() {
                return !stop();
            }
            park_timeout(left);
        }
    };
    while !stop() {
        spares.iter().for_each(|spare| spare.make(&pause));
        let wanted = |spare: &Arc<Spare>| matches!(*spare.state.lock(), SpareState::Wanted);
        if !stop() && !spares.iter().any(wanted) {
            park();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use disk::{Crash, Fault, FaultDisk, FaultKind, OpKind};

    use super::*;

    fn spare(disk: &FaultDisk) -> Spare {
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        shared.create_dir_all(Path::new("/log0")).unwrap();
        Spare::new(&shared, PathBuf::from("/log0"), 1000, 500)
    }

    #[test]
    fn one_is_made_when_half_a_segment_is_used() {
        let disk = FaultDisk::new();
        let spare = spare(&disk);
        let go_on = |_: Instant| true;
        spare.make(&go_on);
        assert!(!spare.want_at(499) && spare.take().is_none() && disk.files().is_empty());
        assert!(spare.want_at(500));
        assert!(spare.take().is_none(), "it is not waited for");
        spare.make(&go_on);
        assert!(spare.want_at(900), "wanting it again changes nothing");
        let file = spare.take().unwrap();
        assert_eq!(file.size().unwrap(), 1500);
        assert!(spare.take().is_none());
        disk.sync_dir(Path::new("/log0")).unwrap();
        let after = disk.crash(Crash::DropAll, 0);
        let kept = after.open(spare.path(), disk::Access::Read).unwrap();
        assert_eq!(kept.size().unwrap(), 1500, "its content is durable");
    }

    #[test]
    fn a_failed_one_is_given_up_and_the_next_one_made() {
        for (nth, kind) in [
            (0, FaultKind::NoSpace),
            (1, FaultKind::Io),
            (2, FaultKind::ShortWrite),
            (3, FaultKind::Io),
        ] {
            let disk = FaultDisk::new();
            let spare = spare(&disk);
            let on = OpKind::Change;
            let nth = disk.count(on) + nth;
            disk.plan(Fault { on, nth, kind });
            spare.want_at(1000);
            spare.make(&|_| true);
            assert!(disk.count(on) > nth, "the fault was met");
            assert!(spare.take().is_none() && disk.files().is_empty());
            spare.want_at(1000);
            spare.make(&|_| true);
            assert!(spare.take().is_some());
        }
    }

    #[test]
    fn what_is_left_of_another_run_is_replaced() {
        let disk = FaultDisk::new();
        let spare = spare(&disk);
        let left = disk.create_new(spare.path()).unwrap();
        left.write_and_sync(&[IoSlice::new(&[9; 5000])], 0).unwrap();
        spare.want_at(1000);
        spare.make(&|_| true);
        let file = spare.take().unwrap();
        let mut bytes = vec![1; 5000];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 1500);
        assert!(bytes[..1500].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn the_thread_makes_wanted_spares_and_ends_when_closed() {
        let disk = FaultDisk::new();
        let spare = Arc::new(spare(&disk));
        let spares = Spares::new(vec![Arc::clone(&spare)]);
        spares.start().unwrap();
        let deadline = Instant::now() + std::time::Duration::from_secs(10);
        for _ in 0..3 {
            spare.want_at(1000);
            while spare.take().is_none() {
                assert!(Instant::now() < deadline, "no spare is made");
                std::thread::yield_now();
            }
            disk.remove(spare.path()).unwrap();
        }
        spare.want_at(1000);
        spares.close();
        assert!(disk.files().is_empty(), "nothing is left behind");
        spares.close();
    }
}
