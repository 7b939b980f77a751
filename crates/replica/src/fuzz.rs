//! Entry points for fuzzing what reads logs, snapshots, and what members send. They panic when a
//! promise is broken.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use base::codec::Reader;
use disk::{Disk, FaultDisk};

use crate::log::{self, Log, LogOptions};
use crate::snapshot::{SnapshotReader, SnapshotReceiver};
use crate::wire::{self, Payload};

/// Reads `bytes` in two ways: as the records of a frame, which a checksum keeps from being reached in
/// a whole log; and as the only segment of a log.
///
/// # Panics
/// If the reader panics, or a log that was opened is another one when it is opened again.
pub fn fuzz_log_segment(bytes: &[u8]) {
    let _ = log::read_payload(bytes);
    segment(bytes).expect("a disk in memory takes what it is given");
}

fn segment(bytes: &[u8]) -> io::Result<()> {
    let dir = Path::new("/log");
    let disk = with_file(dir, "log-0000000001", bytes)?;
    let open = || {
        let options = LogOptions {
            segment_bytes: 4096,
            salt: 1,
        };
        Log::open(Arc::clone(&disk), dir, options, &mut |_, _| {})
    };
    // A refusal is as good as a log.
    let Ok(first) = open() else { return Ok(()) };
    let again = open().expect("a log that was read can be read again");
    assert_eq!(first.last(), again.last());
    assert_eq!(first.floor(), again.floor());
    assert_eq!(first.hard_state(), again.hard_state());
    assert!(first.hard_state().commit <= first.last());
    Ok(())
}

/// A disk with one file.
fn with_file(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<Arc<dyn Disk>> {
    let disk: Arc<dyn Disk> = Arc::new(FaultDisk::new());
    disk.create_dir_all(dir)?;
    let file = disk.create_new(&dir.join(name))?;
    file.write_all_at(&[IoSlice::new(bytes)], 0)?;
    file.sync_data()?;
    disk.sync_dir(dir)?;
    Ok(disk)
}

/// Reads `bytes` as a snapshot, here and as one that is received.
///
/// # Panics
/// If the reader panics, counts otherwise than the footer, or a damaged snapshot gets a name.
pub fn fuzz_snapshot(bytes: &[u8]) {
    let dir = Path::new("/snapshots");
    let disk = with_file(dir, "file", bytes).expect("a disk in memory takes what it is given");
    let records = whole(&disk, &dir.join("file"));
    let length = bytes.len() as u64;
    let receiver = SnapshotReceiver::begin(&disk, dir, records.unwrap_or((0, 0)), length);
    let mut receiver = receiver.expect("a disk in memory takes what it is given");
    let end = receiver.chunk(0, bytes);
    assert_eq!(end.expect("a disk in memory takes what it is given"), length);
    assert_eq!(receiver.finish().is_ok(), records.is_some());
}

/// The term and index of a snapshot, if it can be read to its end.
fn whole(disk: &Arc<dyn Disk>, path: &Path) -> Option<(u64, u64)> {
    let mut reader = SnapshotReader::open(disk, path).ok()?;
    let mut records = 0;
    while reader.next().ok()?.is_some() {
        records += 1;
    }
    assert_eq!(records, reader.file().records);
    let meta = &reader.head().meta;
    Some((meta.term, meta.index))
}

/// Reads `bytes` as a message of Raft and as what an entry holds.
///
/// # Panics
/// If a reader panics, or what was read is written in another way.
pub fn fuzz_wire(bytes: &[u8]) {
    let mut from = Reader::new(bytes);
    if let Ok(message) = wire::read_message(&mut from) {
        let mut again = Vec::new();
        wire::put_message(&mut again, &message);
        assert!(bytes.starts_with(&again), "a message has another encoding");
    }
    if let Ok(payload) = Payload::decode(bytes) {
        let mut again = Vec::new();
        payload.encode(&mut again);
        assert_eq!(again, bytes, "a payload has another encoding");
        if let Payload::Transaction { changes, .. } = payload {
            // Reading goes to the end or to an error.
            let length = wire::changes(changes).count();
            assert!(length <= changes.len());
        }
    }
}
