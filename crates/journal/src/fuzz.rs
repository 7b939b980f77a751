//! Entry points for fuzzing the readers of logs and checkpoints. They panic when a guarantee is
//! broken.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Epoch, Tid};
use disk::{Disk, FaultDisk};

use base::codec::put_at;

use crate::checkpoint::CheckpointView;
use crate::checkpoint::file_name::{CheckpointFile, directory};
use crate::checkpoint::manifest::{LogStart, Manifest};
use crate::checkpoint::part::{self, PartWriter};
use crate::entry;
use crate::format::LogSegmentHeader;
use crate::journal::Journal;

/// Reads `bytes` in two ways: as a block's payload, which a checksum would protect in a whole log;
/// and as the only segment of a log.
///
/// # Panics
/// Panics if the reader panics, or applies other entries than it counts.
pub fn fuzz_log(bytes: &[u8]) {
    payload(bytes);
    segment(bytes).expect("a disk in memory takes what it is given");
}

/// Reads `bytes` as a payload. The first eight bytes are a TID; blocks hold transactions of one
/// epoch.
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

/// Reads `bytes` in four ways: as a manifest, with its checksum set right; as the keys of a block,
/// which a checksum would protect in a whole part; as the only part of a checkpoint; and as a block
/// of such a part, with all checksums right.
///
/// # Panics
/// Panics if the reader panics, applies other entries than it counts, or changes its input.
pub fn fuzz_checkpoint(bytes: &[u8]) {
    manifest(bytes);
    let counts = keys(bytes);
    let raw = recover_part(bytes, None).expect("a disk in memory takes what it is given");
    assert!(raw.is_none() || bytes.len() == part::HEADER);
    let block = recover_part(&[], Some(bytes)).expect("a disk in memory takes what it is given");
    assert_eq!(
        block,
        counts.filter(|&entries| entries > 0 || bytes.is_empty())
    );
}

fn manifest(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if let Some(end) = bytes.len().checked_sub(4) {
        let checksum = crc32c::crc32c(&bytes[..end]);
        put_at(&mut bytes, end, &checksum.to_le_bytes());
    }
    if let Ok(manifest) = Manifest::decode(&bytes) {
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    }
}

/// The moment of the checkpoint in which fuzzed keys lie.
const VIEW: CheckpointView = CheckpointView {
    epoch: Epoch(1 << 40),
    stamp_ms: 7,
    generation: 1,
    generation_tid: Tid::ZERO,
};

/// Returns the number of keys in `bytes`, if they are well formed.
fn keys(bytes: &[u8]) -> Option<u64> {
    let mut applied = 0;
    let entries = entry::decode_keys(bytes, &VIEW, |_| applied += 1).ok()?;
    assert_eq!(entries, applied, "keys that were applied and not counted");
    Some(entries)
}

/// Recovers a store with a checkpoint of one part: `file` as it is, or one with `payload` as its
/// only block. Returns the number of keys, or `None` if the recovery refuses.
fn recover_part(file: &[u8], payload: Option<&[u8]>) -> std::io::Result<Option<u64>> {
    let disk: Arc<dyn Disk> = Arc::new(FaultDisk::new());
    let (dir, log) = (Path::new("/data"), Path::new("/data/log0"));
    let directory = directory(dir);
    disk.create_dir_all(log)?;
    disk.create_dir_all(&directory)?;
    let (salt, run) = (3, 1);
    let path = directory.join(CheckpointFile::Part(VIEW.epoch, 0).to_string());
    let part = disk.create_new(&path)?;
    let described = match payload {
        None => {
            part.write_all_at(&[IoSlice::new(file)], 0)?;
            part::CheckpointPart {
                bytes: file.len() as u64,
                ..part::CheckpointPart::default()
            }
        }
        Some(payload) => {
            let id = (salt, VIEW.epoch, 0);
            let mut writer = PartWriter::new(part, path, id).map_err(std::io::Error::other)?;
            writer.raw(payload, keys(payload).unwrap_or(1) as u32);
            writer.finish().map_err(std::io::Error::other)?
        }
    };
    let manifest = Manifest {
        view: VIEW,
        finished_ms: 0,
        run,
        salt,
        logs: vec![LogStart {
            segment: 5,
            sequence: 0,
        }],
        parts: vec![described],
    };
    let name = CheckpointFile::Manifest(VIEW.epoch).to_string();
    let file = disk.create_new(&directory.join(name))?;
    file.write_all_at(&[IoSlice::new(&manifest.encode())], 0)?;
    let header = LogSegmentHeader {
        log: 0,
        segment: 5,
        run,
        loggers: 1,
        logs: 1,
        base: Epoch::ZERO,
        // An empty log that has closed the checkpoint's epoch.
        start: VIEW.epoch,
        salt,
        sequence: 0,
        first: 0,
    };
    let segment = disk.create_new(&log.join("00000005.log"))?;
    segment.write_all_at(&[IoSlice::new(&header.encode())], 0)?;
    let applied = AtomicU64::new(0);
    let apply = |_: entry::Entry<'_>| {
        applied.fetch_add(1, Ordering::Relaxed);
    };
    let recovered = Journal::recover(&disk, dir, 1, &apply, &|_| {}).ok();
    Ok(recovered.map(|recovered| {
        assert_eq!(recovered.entries, applied.into_inner());
        assert!(recovered.checkpoint.is_some());
        recovered.entries
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::CheckpointKey;
    use base::Change;
    use base::transaction::Kind;

    /// The corpus is the output of the writer; it is written again when a format changes.
    #[test]
    fn the_corpus_of_checkpoints_is_of_this_format() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/checkpoint");
        let mut payload = Vec::new();
        let mut siblings = Vec::new();
        base::change::siblings::push(&mut siblings, &[1, 9]);
        let origin = base::change::Origin {
            id: base::TransactionId {
                timestamp: base::Timestamp::at_ms(8),
                unique: 7,
            },
            siblings: &siblings,
        };
        for (number, deadline, generation) in [
            (0_u8, None, VIEW.generation),
            (1, Some(77), VIEW.generation),
            (2, None, base::change::SYSTEM_GENERATION),
        ] {
            let head = CheckpointKey {
                tid: Tid::new(Epoch(5), number.into()),
                key: &[number, 9],
                value_len: 4,
                kind: Kind::String,
                generation,
                deadline,
                origin: (number == 1).then_some(origin),
            };
            entry::encode_head(&mut payload, &head);
            payload.extend([number; 4]);
        }
        assert_eq!(keys(&payload), Some(3));
        assert_eq!(recover_part(&[], Some(&payload)).unwrap(), Some(3));
        let manifest = Manifest {
            view: VIEW,
            finished_ms: 1,
            run: 2,
            salt: 3,
            logs: vec![LogStart {
                segment: 4,
                sequence: 5,
            }],
            parts: vec![part::CheckpointPart::default(); 2],
        };
        let header = part::encode_header(VIEW.epoch, 0, part::HEADER as u32);
        let inputs = [
            ("payload", payload),
            ("manifest", manifest.encode()),
            ("part", header.to_vec()),
            ("empty", Vec::new()),
        ];
        for (name, bytes) in inputs {
            fuzz_checkpoint(&bytes);
            assert_up_to_date(&corpus.join(name), &bytes);
        }
    }

    fn assert_up_to_date(path: &Path, bytes: &[u8]) {
        let there = std::fs::read(path).unwrap_or_default();
        assert!(there == bytes, "{} is out of date", path.display());
    }

    /// The corpus has a transaction over several partitions: its siblings, its writes in this
    /// partition, and a system record.
    #[test]
    fn the_corpus_of_logs_has_origins() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/log/origins");
        let put = |key, generation, origin| Change::Put {
            key,
            value: b"v",
            kind: Kind::String,
            generation,
            deadline: None,
            origin,
        };
        let origin = Some(base::change::Origin {
            id: base::TransactionId {
                timestamp: base::Timestamp::at_ms(5),
                unique: 7,
            },
            siblings: b"\x01\0\0\0a\x01\0\0\0b",
        });
        let mut payload = Vec::new();
        entry::encode(&mut payload, Tid::new(Epoch(5), 1), |to| {
            to.change(&put(b"system", base::change::SYSTEM_GENERATION, None));
            to.change(&put(b"a", 1, origin));
            to.change(&Change::Delete { key: b"b", origin });
            to.delete(b"c");
        });
        assert_eq!(entry::decode(&payload, Epoch(5), 0, |_| {}), Ok(4));
        fuzz_log(&payload);
        assert_up_to_date(&path, &payload);
    }
}
