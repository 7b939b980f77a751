//! Entry points for fuzzing the code that reads logs, snapshots, and messages of members. They
//! panic when a promise is broken.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use base::codec::Reader;
use disk::{Disk, FaultDisk};

use crate::log::{self, LogOptions, RaftLog};
use crate::snapshot::{SnapshotReader, SnapshotReceiver};
use crate::wire::{self, Payload};

/// Reads `bytes` in two ways: as the records of a frame, which fuzzing would not reach in a whole
/// log because of the checksum; and as the only segment of a log.
///
/// # Panics
/// Panics if the reader panics, or if a log that was opened differs when it is opened again.
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
        RaftLog::open(Arc::clone(&disk), dir, options, &mut |_, _| {})
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

/// Makes a disk with one file.
fn with_file(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<Arc<dyn Disk>> {
    let disk: Arc<dyn Disk> = Arc::new(FaultDisk::new());
    disk.create_dir_all(dir)?;
    let file = disk.create_new(&dir.join(name))?;
    file.write_all_at(&[IoSlice::new(bytes)], 0)?;
    file.sync_data()?;
    disk.sync_dir(dir)?;
    Ok(disk)
}

/// Reads `bytes` as a snapshot on disk and as one that is received.
///
/// # Panics
/// Panics if the reader panics, if its count differs from the footer, or if a damaged snapshot gets
/// a name.
pub fn fuzz_snapshot(bytes: &[u8]) {
    let dir = Path::new("/snapshots");
    let disk = with_file(dir, "file", bytes).expect("a disk in memory takes what it is given");
    let records = whole(&disk, &dir.join("file"));
    let length = bytes.len() as u64;
    let receiver = SnapshotReceiver::begin(&disk, dir, records.unwrap_or((0, 0)), length);
    let mut receiver = receiver.expect("a disk in memory takes what it is given");
    let end = receiver.chunk(0, bytes);
    assert_eq!(
        end.expect("a disk in memory takes what it is given"),
        length
    );
    assert_eq!(receiver.finish().is_ok(), records.is_some());
}

/// Returns the term and the index of a snapshot, if it can be read to its end.
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

/// Reads `bytes` as a message of Raft and as the data of an entry.
///
/// # Panics
/// Panics if a reader panics, or if what was read is written in another way.
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

#[cfg(test)]
#[expect(
    clippy::field_reassign_with_default,
    reason = "the library's structures have many fields, and are made so everywhere"
)]
mod tests {
    use std::path::PathBuf;

    use base::Tid;
    use base::transaction::Kind;
    use disk::{Access, DiskFile};
    use raft::eraftpb::{ConfState, Entry, Message, MessageType, SnapshotMetadata};

    use super::*;
    use crate::snapshot::{SnapshotHead, SnapshotRecord, SnapshotSource, SnapshotWriter};

    const DIR: &str = "/member";

    fn entries() -> Vec<Entry> {
        (1..=3)
            .map(|index| {
                let mut entry = Entry::default();
                (entry.index, entry.term) = (index, 1);
                entry.data = payloads()[index as usize].clone().into();
                entry
            })
            .collect()
    }

    fn payloads() -> Vec<Vec<u8>> {
        let mut changes = Vec::new();
        journal::write_changes(&mut changes, |to| {
            to.put(b"key", b"value", Kind::String, 1, Some(5));
            to.delete(b"gone");
        });
        let mut ops = Vec::new();
        base::codec::encode_ops(&[base::Op::Get { key: b"k" }], &mut ops);
        let (stamp_ms, client, sequence) = (1, 2, 3);
        let all = [
            Payload::Transaction {
                stamp_ms,
                client,
                sequence,
                result: b"ok",
                changes: &changes,
            },
            Payload::Execute {
                stamp_ms,
                client,
                sequence,
                ops: &ops,
            },
            Payload::Tick { stamp_ms },
            Payload::Sessions {
                stamp_ms,
                expire: vec![4, 5],
            },
            Payload::Open { stamp_ms, most: 6 },
        ];
        let encode = |payload: &Payload<'_>| {
            let mut bytes = Vec::new();
            payload.encode(&mut bytes);
            bytes
        };
        all.iter().map(encode).collect()
    }

    fn message() -> Vec<u8> {
        let mut message = Message::default();
        message.msg_type = MessageType::MsgAppend;
        (message.to, message.from, message.term) = (65_537, 65_538, 1);
        (message.index, message.commit) = (300, 299);
        message.entries = entries().into();
        message.context = b"context".to_vec().into();
        let mut bytes = Vec::new();
        wire::put_message(&mut bytes, &message);
        bytes
    }

    fn meta() -> SnapshotMetadata {
        let mut meta = SnapshotMetadata::default();
        (meta.index, meta.term) = (3, 1);
        meta.set_conf_state(ConfState::from((vec![65_537], vec![65_538])));
        meta
    }

    /// Returns a segment that a log has written, without the space set aside.
    fn segment() -> Vec<u8> {
        let disk: Arc<dyn Disk> = Arc::new(FaultDisk::new());
        let options = LogOptions {
            segment_bytes: 1000,
            salt: 1,
        };
        let mut log =
            RaftLog::open(Arc::clone(&disk), Path::new(DIR), options, &mut |_, _| {}).unwrap();
        log.found(65_537, meta().get_conf_state()).unwrap();
        log.append(&entries());
        log.sync().unwrap();
        log.set_conf_state(2, meta().get_conf_state());
        log.sync().unwrap();
        log.install(&meta()).unwrap();
        let mut bytes = file(&*disk, "log-0000000001");
        bytes.truncate(log.bytes() as usize);
        bytes
    }

    fn file(disk: &dyn Disk, name: &str) -> Vec<u8> {
        let file: Box<dyn DiskFile> = disk.open(&Path::new(DIR).join(name), Access::Read).unwrap();
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn snapshot() -> Vec<u8> {
        let disk: Arc<dyn Disk> = Arc::new(FaultDisk::new());
        disk.create_dir_all(Path::new(DIR)).unwrap();
        let head = SnapshotHead {
            meta: meta(),
            ..SnapshotHead::default()
        };
        let mut writer = SnapshotWriter::create(&disk, Path::new(DIR), &head).unwrap();
        for key in [b"a", b"b"] {
            let record = SnapshotRecord {
                key,
                value: b"value",
                kind: Kind::String,
                generation: 1,
                deadline: None,
                tid: Tid::ZERO,
                origin: None,
            };
            writer.put(&record).unwrap();
        }
        let made = writer.finish(b"sessions").unwrap();
        let source = SnapshotSource::open(&*disk, &made.path).unwrap();
        source.read_chunk(0, usize::MAX).unwrap()
    }

    /// Feeds an input and many mutations of it. The seed of the corpus is what the code writes now.
    fn feed(target: &str, name: &str, input: &[u8], entry: fn(&[u8])) {
        let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus");
        let path = corpus.join(target).join(name);
        let there = std::fs::read(&path).unwrap_or_default();
        assert!(there == input, "{} is out of date", path.display());
        entry(input);
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..4000 {
            let mut bytes = input.to_vec();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..=bytes.len());
                match rng.u8(..5) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, rng.u8(..)),
                    2 => drop(bytes.drain(at..(at + 3).min(input.len()).clamp(at, bytes.len()))),
                    _ if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
                    _ => bytes.push(0xff),
                }
            }
            entry(&bytes);
        }
    }

    #[test]
    fn mutated_logs_are_read_or_refused() {
        feed("log", "segment", &segment(), fuzz_log_segment);
        // The records of the second frame, which is the first with entries.
        let segment = segment();
        let frame = segment.windows(4).enumerate();
        let frame = frame
            .filter(|(_, bytes)| *bytes == b"KRLF")
            .nth(1)
            .unwrap()
            .0;
        let length = u32::from_le_bytes(segment[frame + 4..frame + 8].try_into().unwrap());
        let records = &segment[frame + 24..][..length as usize];
        assert_eq!(log::read_payload(records), Some(3));
        feed("log", "records", records, fuzz_log_segment);
    }

    #[test]
    fn mutated_snapshots_are_read_or_refused() {
        assert_eq!(
            whole(
                &with_file(Path::new(DIR), "s", &snapshot()).unwrap(),
                Path::new("/member/s")
            ),
            Some((1, 3))
        );
        feed("snapshot", "whole", &snapshot(), fuzz_snapshot);
    }

    #[test]
    fn mutated_messages_and_payloads_are_read_or_refused() {
        feed("wire", "message", &message(), fuzz_wire);
        let names = ["transaction", "execute", "tick", "sessions", "open"];
        for (name, payload) in names.iter().zip(payloads()) {
            feed("wire", name, &payload, fuzz_wire);
        }
    }
}
