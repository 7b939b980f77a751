//! The speed of syncs of a device by itself: the limit of a log on it.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use disk::{Disk, RealDisk};

use crate::error::RunError;

/// Bytes of one write: a small group of entries.
const PIECE: usize = 512;
/// Pieces of a file; they exist before, and are written over and over.
const PIECES: u64 = 256;

/// Returns the syncs a second of one file below `dir`, while so many are written and synced at
/// once, each by a thread of its own. The files are removed.
pub(crate) fn measure(dir: &Path, files: usize, time: Duration) -> Result<f64, RunError> {
    let barrier = Barrier::new(files);
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..files)
            .map(|number| {
                let (path, barrier) = (dir.join(format!("syncs{number}")), &barrier);
                scope.spawn(move || {
                    let rate = one(&path, barrier, time);
                    RealDisk.remove(&path)?;
                    rate
                })
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|end| end.expect("it writes a file")).collect()
    });
    let mut sum = 0.0;
    for rate in ended {
        sum += rate.map_err(|error| RunError::failed("syncing a file")(&error))?;
    }
    Ok(sum / files as f64)
}

fn one(path: &Path, barrier: &Barrier, time: Duration) -> std::io::Result<f64> {
    let piece = vec![7; PIECE];
    let file = RealDisk.create_new(path).and_then(|file| {
        for n in 0..PIECES {
            file.write_all_at(&[IoSlice::new(&piece)], n * PIECE as u64)?;
        }
        file.sync_data()?;
        Ok(file)
    });
    // All or none get past this, so that no thread waits for one that failed.
    barrier.wait();
    let file = file?;
    let begun = Instant::now();
    let mut syncs = 0;
    while begun.elapsed() < time {
        let place = syncs % PIECES * PIECE as u64;
        file.write_all_at(&[IoSlice::new(&piece)], place)?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(syncs as f64 / begun.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_syncs_for_its_time_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        let rate = measure(dir.path(), 3, Duration::from_millis(60)).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(60));
        assert!(rate > 1.0, "{rate}");
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    }
}
