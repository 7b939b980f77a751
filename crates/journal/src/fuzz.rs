//! Entry points for fuzzing what reads logs. They panic when a promise is broken.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Epoch, Tid};
use disk::{Disk, FaultDisk};

use crate::entry;
use crate::journal::Journal;

/// Reads `bytes` in two ways: as a block's payload, which a checksum keeps from being reached in a
/// whole log; and as the only segment of a log.
///
/// # Panics
/// If the reader panics, or applies other entries than it counts.
pub fn fuzz_log(bytes: &[u8]) {
    payload(bytes);
    segment(bytes).expect("a disk in memory takes what it is given");
}

/// The first eight bytes of a payload are a TID; blocks hold transactions of one epoch.
fn payload(bytes: &[u8]) {
    let tid = bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
    let epoch: Epoch = Tid::from_bits(tid).epoch();
    let mut applied = 0;
    if let Ok(entries) = entry::decode(bytes, epoch, 0, |_| applied += 1) {
        assert_eq!(
            entries, applied,
            "entries that were applied and not counted"
        );
    }
}

fn segment(bytes: &[u8]) -> std::io::Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(FaultDisk::new());
    let (dir, log) = (Path::new("/data"), Path::new("/data/log0"));
    disk.create_dir_all(log)?;
    let file = disk.create_new(&log.join("00000000.log"))?;
    file.write_all_at(&[IoSlice::new(bytes)], 0)?;
    file.sync_data()?;
    disk.sync_dir(log)?;
    let applied = AtomicU64::new(0);
    let apply = |_: entry::Entry<'_>| {
        applied.fetch_add(1, Ordering::Relaxed);
    };
    // A refusal is as good as a recovery.
    if let Ok(recovered) = Journal::recover(&disk, dir, 1, &apply, &|_| {}) {
        assert_eq!(recovered.entries, applied.into_inner());
        assert!(recovered.durable <= recovered.newest);
    }
    Ok(())
}
