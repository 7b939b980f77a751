//! Snapshots: written, read, sent and received; interrupted and damaged.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::change::{Origin, SYSTEM_GENERATION, siblings};
use base::transaction::Kind;
use base::{Epoch, Tid};
use disk::{Access, Crash, Disk, Fault, FaultDisk, FaultKind, OpKind};
use fastrand::Rng;
use kumiki_replica::snapshot::{
    SnapshotError, SnapshotFile, SnapshotHead, SnapshotReader, SnapshotReceiver, SnapshotRecord,
    SnapshotSource, SnapshotWriter, newest, remove_old, reserve, tidy,
};
use raft::eraftpb::ConfState;

use crate::support::CRASHES;

fn dir() -> &'static Path {
    Path::new("/member")
}

fn on(disk: &FaultDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn empty() -> FaultDisk {
    let disk = FaultDisk::new();
    disk.create_dir_all(dir()).unwrap();
    disk
}

fn head(index: u64) -> SnapshotHead {
    let mut head = SnapshotHead {
        stamp_ms: 1000 + index,
        generation: 3,
        generation_tid: Tid::new(Epoch(2), 0),
        ..SnapshotHead::default()
    };
    head.meta.index = index;
    head.meta.term = 2;
    head.meta
        .set_conf_state(ConfState::from((vec![65_537, 65_538], vec![131_075])));
    head
}

/// Keys with every property that a key can have.
struct Content {
    siblings: Vec<u8>,
    keys: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Content {
    fn new(keys: u32, value: usize) -> Content {
        let mut list = Vec::new();
        siblings::push(&mut list, b"a");
        siblings::push(&mut list, b"b");
        let pair = |n: u32| (format!("key {n:06}").into_bytes(), vec![n as u8; value]);
        Content {
            siblings: list,
            keys: (0..keys).map(pair).collect(),
        }
    }

    fn records(&self) -> impl Iterator<Item = SnapshotRecord<'_>> {
        self.keys
            .iter()
            .enumerate()
            .map(|(n, (key, value))| SnapshotRecord {
                key,
                value,
                kind: if n % 3 == 0 { Kind::Hash } else { Kind::String },
                generation: if n % 7 == 0 { SYSTEM_GENERATION } else { 3 },
                deadline: (n % 2 == 0).then_some(n as u64),
                tid: Tid::new(Epoch(n as u64), 1),
                origin: (n % 5 < 2).then_some(Origin {
                    id: base::TransactionId {
                        timestamp: base::Timestamp(9),
                        unique: 5,
                    },
                    siblings: &self.siblings,
                }),
            })
    }

    fn write(
        &self,
        disk: &FaultDisk,
        index: u64,
        sessions: &[u8],
    ) -> Result<SnapshotFile, SnapshotError> {
        let mut writer = SnapshotWriter::create(&on(disk), dir(), &head(index))?;
        for record in self.records() {
            writer.put(&record)?;
        }
        writer.finish(sessions)
    }

    /// Checks that the snapshot in `path` has exactly this content.
    fn check(&self, disk: &FaultDisk, path: &Path, sessions: &[u8]) -> Result<(), SnapshotError> {
        let mut reader = SnapshotReader::open(&on(disk), path)?;
        for expected in self.records() {
            assert_eq!(reader.next()?, Some(expected));
        }
        assert_eq!(reader.next()?, None);
        assert_eq!(reader.next()?, None, "the end stays the end");
        let (done, total) = reader.progress();
        assert_eq!(done, total);
        assert!(reader.sessions()? == sessions);
        Ok(())
    }
}

fn names(disk: &FaultDisk) -> Vec<String> {
    let listed = disk.list(dir()).unwrap();
    let name = |entry: disk::DirEntry| entry.name.into_string().unwrap();
    listed.into_iter().map(name).collect()
}

fn bytes_of(disk: &FaultDisk, path: &Path) -> Vec<u8> {
    SnapshotSource::open(disk, path)
        .unwrap()
        .read_chunk(0, usize::MAX)
        .unwrap()
}

#[test]
fn a_state_comes_back_with_its_sessions() {
    for (content, sessions) in [
        (Content::new(0, 0), vec![]),
        (Content::new(1, 1_000_000), vec![1]),
        (Content::new(5000, 300), vec![7; 700_000]),
    ] {
        let disk = empty();
        let made = content.write(&disk, 77, &sessions).unwrap();
        assert_eq!(made.records, content.keys.len() as u64);
        assert_eq!(made.bytes, bytes_of(&disk, &made.path).len() as u64);
        content.check(&disk, &made.path, &sessions).unwrap();
        let found = newest(&on(&disk), dir()).unwrap();
        assert_eq!(found, Some(made));
        assert_eq!(found.unwrap().head, head(77));
    }
}

#[test]
fn what_is_put_does_not_stay_in_memory() {
    let disk = empty();
    let mut writer = SnapshotWriter::create(&on(&disk), dir(), &head(1)).unwrap();
    let mut put = 0;
    for record in Content::new(2000, 1000).records() {
        writer.put(&record).unwrap();
        put += record.value.len() as u64;
        assert!(put < writer.bytes() + 300_000);
    }
    drop(writer);
    assert_eq!(newest(&on(&disk), dir()).unwrap(), None, "it was given up");
}

#[test]
fn snapshots_are_made_and_received_in_space_that_was_set_aside() {
    let content = Content::new(40, 50);
    let sent = sent();
    let disk = empty();
    let full = || {
        // The next request for space is refused.
        disk.plan(Fault {
            on: OpKind::Write,
            nth: disk.count(OpKind::Write),
            kind: FaultKind::NoSpace,
        });
    };
    for (index, bytes) in [(5, 100_000), (6, 300_000)] {
        reserve(&disk, dir(), bytes).unwrap();
        full();
        let error = reserve(&disk, dir(), 2 * bytes).unwrap_err();
        assert!(error.is_full(), "{error}");
        assert_eq!(
            bytes_of(&disk, &dir().join("snapshot.new")).len() as u64,
            bytes
        );
        let made = content.write(&disk, index, b"table").unwrap();
        assert_eq!(made.bytes, bytes_of(&disk, &made.path).len() as u64);
        content.check(&disk, &made.path, b"table").unwrap();
    }
    // The next snapshot contains nothing of the one that was begun before.
    let mut given_up = SnapshotWriter::create(&on(&disk), dir(), &head(8)).unwrap();
    for record in Content::new(2000, 1000).records() {
        given_up.put(&record).unwrap();
    }
    drop(given_up);
    let made = content.write(&disk, 8, b"").unwrap();
    content.check(&disk, &made.path, b"").unwrap();
    tidy(&disk, dir()).unwrap();
    reserve(&disk, dir(), 100_000).unwrap();
    tidy(&disk, dir()).unwrap();
    assert_eq!(names(&disk).len(), 2, "a restart keeps it");
    let length = sent.len() as u64;
    full();
    let error = SnapshotReceiver::begin(&on(&disk), dir(), (2, 9), length)
        .map(drop)
        .unwrap_err();
    assert!(error.is_full(), "{error}");
    let mut receiver =
        SnapshotReceiver::begin_in_reserve(&on(&disk), dir(), (2, 9), length).unwrap();
    receiver.chunk(0, &sent).unwrap();
    let received = receiver.finish().unwrap();
    assert_eq!(bytes_of(&disk, &received.path), sent);
}

#[test]
fn the_newest_counts_and_the_others_go() {
    let disk = empty();
    assert_eq!(newest(&on(&disk), dir()).unwrap(), None);
    let content = Content::new(3, 3);
    for index in [5, 40, 300] {
        content.write(&disk, index, b"").unwrap();
    }
    for leftover in ["snapshot.new", "snapshot.part", "something else"] {
        disk.create_new(&dir().join(leftover)).unwrap();
    }
    let found = newest(&on(&disk), dir()).unwrap().unwrap();
    assert_eq!(found.head.meta.index, 300);
    remove_old(&disk, dir()).unwrap();
    assert_eq!(names(&disk).len(), 4, "what is under way stays");
    tidy(&disk, dir()).unwrap();
    let name = found.path.file_name().unwrap().to_str().unwrap().to_owned();
    let stays = ["snapshot.new".to_owned(), "something else".to_owned()];
    assert!(names(&disk).into_iter().eq([name].into_iter().chain(stays)));
}

#[test]
fn a_flipped_byte_is_refused_wherever_it_is() {
    let disk = empty();
    let content = Content::new(20, 30);
    let made = content.write(&disk, 5, b"the sessions").unwrap();
    let bytes = bytes_of(&disk, &made.path);
    let file = disk.open(&made.path, Access::ReadWrite).unwrap();
    for at in 0..bytes.len() {
        file.write_all_at(&[IoSlice::new(&[bytes[at] ^ 4])], at as u64)
            .unwrap();
        let mut reader = SnapshotReader::open(&on(&disk), &made.path);
        let error = loop {
            match reader.as_mut().map(SnapshotReader::next) {
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) => panic!("byte {at} was flipped"),
                Ok(Err(error)) => break error.to_string(),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("damaged at byte") && error.contains("add the node again"));
        file.write_all_at(&[IoSlice::new(&bytes[at..=at])], at as u64)
            .unwrap();
    }
    for length in 0..bytes.len() {
        file.set_size(length as u64).unwrap();
        assert!(
            SnapshotReader::open(&on(&disk), &made.path).is_err(),
            "{length} bytes"
        );
    }
}

/// Returns where the first block behind the head begins, and where it and the next one end.
fn first_blocks(bytes: &[u8]) -> [usize; 3] {
    let end = |at: usize| {
        let length = bytes[at + 4..at + 8].try_into().unwrap();
        at + 24 + u32::from_le_bytes(length) as usize
    };
    [end(16), end(end(16)), end(end(end(16)))]
}

fn overwrite(disk: &FaultDisk, path: &Path, at: usize, bytes: &[u8]) {
    let file = disk.open(path, Access::ReadWrite).unwrap();
    file.write_all_at(&[IoSlice::new(bytes)], at as u64)
        .unwrap();
}

#[test]
fn blocks_in_another_order_are_refused() {
    let disk = empty();
    let content = Content::new(900, 1000);
    let made = content.write(&disk, 5, b"").unwrap();
    let bytes = bytes_of(&disk, &made.path);
    let [first, second, third] = first_blocks(&bytes);
    let moved = [&bytes[second..third], &bytes[first..second]].concat();
    overwrite(&disk, &made.path, first, &moved);
    let error = content.check(&disk, &made.path, b"").unwrap_err();
    let error = error.to_string();
    assert!(error.contains("no sound header"), "{error}");
}

#[test]
fn a_block_of_another_snapshot_is_refused() {
    let disk = empty();
    let content = Content::new(900, 1000);
    let made = content.write(&disk, 5, b"").unwrap();
    let mut other = Content::new(900, 1000);
    other.keys[0].1.fill(9);
    let theirs = other.write(&disk, 6, b"").unwrap();
    let theirs = bytes_of(&disk, &theirs.path);
    let [first, second, _] = first_blocks(&theirs);
    overwrite(&disk, &made.path, first, &theirs[first..second]);
    let mut reader = SnapshotReader::open(&on(&disk), &made.path).unwrap();
    let error = loop {
        match reader.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it was taken"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("of other blocks"), "{error}");
}

/// Writes a new snapshot beside an old one, or receives it, while `fault` is planned.
fn replace(disk: &FaultDisk, content: &Content, sent: Option<&[u8]>) -> Result<(), SnapshotError> {
    match sent {
        None => drop(content.write(disk, 9, b"new")?),
        Some(bytes) => {
            let length = bytes.len() as u64;
            let mut receiver = SnapshotReceiver::begin(&on(disk), dir(), (2, 9), length)?;
            for piece in bytes.chunks(700) {
                receiver.chunk(receiver.offset(), piece)?;
            }
            drop(receiver.finish()?);
        }
    }
    remove_old(disk, dir())
}

/// Checks that after each interruption the old snapshot or the new one is there as a whole, and
/// that the operation can be repeated.
fn sweep(sent: Option<&[u8]>) {
    let (old, new) = (Content::new(3, 10), Content::new(40, 50));
    let before = empty();
    old.write(&before, 5, b"old").unwrap();
    reserve(&before, dir(), 20_000).unwrap();
    let all = before.crash(Crash::DropAll, 0);
    replace(&all, &new, sent).unwrap();
    let operations = all.count(OpKind::Change);
    assert!(operations > 8, "{operations}");
    let (mut olds, mut news) = (0, 0);
    for nth in 0..=operations {
        for kind in [
            FaultKind::PowerOff,
            FaultKind::Io,
            FaultKind::NoSpace,
            FaultKind::ShortWrite,
        ] {
            for crash in CRASHES {
                let disk = before.crash(Crash::DropAll, 0);
                let fault = Fault {
                    on: OpKind::Change,
                    nth,
                    kind,
                };
                disk.plan(fault);
                let done = replace(&disk, &new, sent);
                if kind == FaultKind::NoSpace && nth == 1 {
                    assert!(done.as_ref().unwrap_err().is_full());
                }
                let disk = disk.crash(crash, nth);
                let found = newest(&on(&disk), dir()).unwrap().expect("one of the two");
                if found.head.meta.index == 9 {
                    news += 1;
                    new.check(&disk, &found.path, b"new").unwrap();
                } else {
                    olds += 1;
                    assert!(
                        done.is_err(),
                        "{kind:?} at {nth}, then {crash:?}: it was durable"
                    );
                    old.check(&disk, &found.path, b"old").unwrap();
                }
                tidy(&disk, dir()).unwrap();
                let names = names(&disk);
                let left = names.iter().filter(|name| *name != "snapshot.new");
                assert_eq!(left.count(), 1, "{names:?}");
                replace(&disk, &new, sent).unwrap();
            }
        }
    }
    assert!(olds > 50 && news > 20, "{olds} old, {news} new");
}

#[test]
fn an_interruption_leaves_the_old_or_the_new_one() {
    sweep(None);
}

fn sent() -> Vec<u8> {
    let elsewhere = empty();
    let made = Content::new(40, 50).write(&elsewhere, 9, b"new").unwrap();
    bytes_of(&elsewhere, &made.path)
}

#[test]
fn an_interruption_of_receiving_leaves_the_old_or_the_new_one() {
    sweep(Some(&sent()));
}

#[test]
fn pieces_are_taken_in_order_and_once() {
    let elsewhere = empty();
    let content = Content::new(1000, 100);
    let made = content.write(&elsewhere, 9, b"table").unwrap();
    let source = SnapshotSource::open(&elsewhere, &made.path).unwrap();
    elsewhere.remove(&made.path).unwrap();
    let mut rng = Rng::with_seed(1);
    let disk = empty();
    let mut receiver = SnapshotReceiver::begin(&on(&disk), dir(), (2, 9), source.bytes()).unwrap();
    assert_eq!(receiver.of(), (2, 9));
    while !receiver.is_complete() {
        // Pieces come late, twice, or not at all; the receiver says where to go on.
        let wanted = receiver.offset();
        let offset = match rng.u8(0..4) {
            0 => wanted.saturating_sub(rng.u64(0..3000)),
            1 => wanted + rng.u64(0..3000),
            _ => wanted,
        };
        let piece = source.read_chunk(offset, rng.usize(1..5000)).unwrap();
        let next = receiver.chunk(offset, &piece).unwrap();
        assert_eq!(next != wanted, offset == wanted && !piece.is_empty());
        assert_eq!(receiver.progress(), (next, source.bytes()));
    }
    let received = receiver.finish().unwrap();
    content.check(&disk, &received.path, b"table").unwrap();
    assert_eq!(source.read_chunk(source.bytes(), 10).unwrap(), b"");
    assert_eq!(newest(&on(&disk), dir()).unwrap(), Some(received));
}

#[test]
fn what_was_damaged_on_the_way_or_is_another_is_not_taken() {
    let good = sent();
    let mut damaged = good.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    for (bytes, of, length) in [
        (&damaged[..], (2, 9), good.len()),
        (&good[..], (2, 10), good.len()),
        (&good[..], (2, 9), good.len() + 1),
        (&good[..good.len() - 1], (2, 9), good.len() - 1),
    ] {
        let disk = empty();
        let mut receiver = SnapshotReceiver::begin(&on(&disk), dir(), of, length as u64).unwrap();
        receiver.chunk(0, bytes).unwrap();
        assert!(receiver.finish().is_err());
        assert_eq!(names(&disk), [""; 0], "nothing stays behind");
    }
    let disk = empty();
    let mut receiver = SnapshotReceiver::begin(&on(&disk), dir(), (2, 9), 10).unwrap();
    assert_eq!(
        receiver.chunk(0, &good).unwrap(),
        0,
        "more than was announced"
    );
    let path: PathBuf = dir().join("snapshot.part");
    assert!(disk.open(&path, Access::Read).is_ok());
}
