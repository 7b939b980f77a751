//! Compares a log with plain vectors, and tests it with damage and with a full disk.

#![expect(
    clippy::field_reassign_with_default,
    reason = "the library's structures have many fields, and are made so everywhere"
)]

use std::path::Path;

use disk::{Access, Disk, Fault, FaultDisk, FaultKind, OpKind};
use fastrand::Rng;
use kumiki_replica::log::{LogError, RaftLog};
use raft::eraftpb::{Entry, HardState, SnapshotMetadata};
use raft::{Error, GetEntriesContext, Storage, StorageError};

use crate::support::logs::{DIR, Model, members, open, step};

fn entry(index: u64, term: u64, bytes: usize) -> Entry {
    let mut entry = Entry::default();
    entry.index = index;
    entry.term = term;
    entry.data = vec![index as u8; bytes].into();
    entry
}

fn founded(disk: &FaultDisk, segment: u64) -> (RaftLog, Model) {
    let mut log = open(disk, segment).unwrap();
    assert!(log.is_blank());
    log.found(65_537, &members(&[65_537])).unwrap();
    let model = Model {
        conf: (0, members(&[65_537])),
        ..Model::default()
    };
    (log, model)
}

fn files(disk: &FaultDisk) -> Vec<String> {
    let listed = disk.list(Path::new(DIR)).unwrap();
    let name = |entry: disk::DirEntry| entry.name.into_string().unwrap();
    listed.into_iter().map(name).collect()
}

#[test]
fn a_random_load_leaves_what_vectors_hold() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let disk = FaultDisk::new();
        let segment = rng.u64(500..9000);
        let (mut log, mut model) = founded(&disk, segment);
        for _ in 0..400 {
            step(&mut log, &mut model, &mut rng).unwrap();
            if rng.u32(0..3) > 0 {
                continue;
            }
            let before = log.syncs();
            log.sync().unwrap();
            assert!(log.syncs() <= before + 1);
            model
                .compare(&log)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            if rng.u32(0..8) == 0 {
                log = open(&disk, segment).unwrap();
                assert_eq!(log.raft_id(), 65_537);
                model
                    .compare(&log)
                    .unwrap_or_else(|error| panic!("seed {seed}, again: {error}"));
                while log.floor().0 < model.floor.0 {
                    let back = log.entry(model.floor.0).unwrap().clone();
                    let term = log.term(model.floor.0 - 1).unwrap();
                    model.entries.insert(0, back);
                    model.floor = (model.floor.0 - 1, term);
                }
            }
        }
        assert!(files(&disk).len() < 40, "segments go");
    }
}

#[test]
fn one_sync_writes_once_and_none_writes_nothing() {
    let disk = FaultDisk::new();
    let (mut log, _) = founded(&disk, 1 << 16);
    let entries: Vec<_> = (1..=64).map(|index| entry(index, 1, 50)).collect();
    log.append(&entries);
    let mut hard = HardState::default();
    (hard.term, hard.vote) = (1, 65_537);
    log.set_hard_state(&hard);
    let (writes, syncs) = (disk.count(OpKind::Write), disk.count(OpKind::Sync));
    log.sync().unwrap();
    log.sync().unwrap();
    assert_eq!(disk.count(OpKind::Write), writes + 1);
    assert_eq!(disk.count(OpKind::Sync), syncs + 1);
    assert_eq!(log.syncs(), 1);
    assert!(log.written() > 64 * 50 && log.written() < 64 * 60);
}

#[test]
fn raft_sees_what_it_expects() {
    let mut log = RaftLog::in_memory();
    log.found(1, &members(&[1, 2])).unwrap();
    log.append(
        &(1..=10)
            .map(|index| entry(index, 2, 100))
            .collect::<Vec<_>>(),
    );
    log.sync().unwrap();
    let some = |low, high, max: u64| {
        log.entries(low, high, Some(max), GetEntriesContext::empty(false))
            .map(|list| list.len())
    };
    assert_eq!(some(1, 11, u64::MAX), Ok(10));
    assert_eq!(some(3, 3, u64::MAX), Ok(0));
    assert_eq!(some(3, 11, 0), Ok(1));
    assert_eq!(some(3, 11, 300), Ok(2));
    assert_eq!(log.initial_state().unwrap().conf_state, members(&[1, 2]));
    let unavailable = Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
    assert_eq!(log.snapshot(0, 2).map(drop), unavailable);

    let mut meta = SnapshotMetadata::default();
    (meta.index, meta.term) = (6, 2);
    meta.set_conf_state(members(&[1, 2, 3]));
    log.set_snapshot(&meta);
    log.compact(9).unwrap();
    assert_eq!(log.first_index(), Ok(7), "never beyond the snapshot");
    assert_eq!(log.term(6), Ok(2));
    assert_eq!(log.term(5), Err(Error::Store(StorageError::Compacted)));
    assert_eq!(log.term(11), Err(Error::Store(StorageError::Unavailable)));
    let gone = log.entries(6, 9, None, GetEntriesContext::empty(false));
    assert_eq!(gone, Err(Error::Store(StorageError::Compacted)));
    assert_eq!(log.snapshot(6, 2).unwrap().get_metadata(), &meta);
    assert_eq!(log.snapshot(7, 2).map(drop), unavailable);
    assert_eq!(log.initial_state().unwrap().conf_state, members(&[1, 2, 3]));
}

#[test]
fn a_snapshot_that_is_ahead_of_the_log_is_followed() {
    let disk = FaultDisk::new();
    let (mut log, _) = founded(&disk, 1 << 16);
    log.append(&[entry(1, 1, 1), entry(2, 1, 1), entry(3, 1, 1)]);
    log.sync().unwrap();
    let mut meta = SnapshotMetadata::default();
    (meta.index, meta.term) = (2, 1);
    let mut log = open(&disk, 1 << 16).unwrap();
    log.recover_snapshot(&meta).unwrap();
    assert_eq!(
        (log.hard_state().commit, log.last()),
        (2, 3),
        "its own: entries behind it stay"
    );
    (meta.index, meta.term) = (3, 2);
    log.recover_snapshot(&meta).unwrap();
    assert_eq!(
        (log.hard_state().commit, log.last(), log.floor()),
        (3, 3, (3, 2))
    );
    assert_eq!(log.entry(3), None, "another leader's: it replaces all");
    let mut log = open(&disk, 1 << 16).unwrap();
    assert_eq!((log.last(), log.floor()), (3, (3, 2)));
    (meta.index, meta.term) = (2, 1);
    let error = log.recover_snapshot(&meta).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("lacks a snapshot as of entry 3 or later"),
        "{error}"
    );
}

/// Returns the disk of a log of three segments without anything left to write.
fn three_segments() -> FaultDisk {
    let disk = FaultDisk::new();
    let (mut log, _) = founded(&disk, 856);
    for index in 1..=6 {
        log.append(&[entry(index, 1, 150)]);
        log.sync().unwrap();
    }
    let expected = ["log-0000000001", "log-0000000002", "log-0000000003"];
    assert_eq!(files(&disk), expected);
    disk
}

fn bytes_of(disk: &FaultDisk, name: &str) -> Vec<u8> {
    let file = disk.open(&Path::new(DIR).join(name), Access::Read).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn write(disk: &FaultDisk, name: &str, at: usize, bytes: &[u8]) {
    let file = disk
        .open(&Path::new(DIR).join(name), Access::ReadWrite)
        .unwrap();
    file.write_all_at(&[std::io::IoSlice::new(bytes)], at as u64)
        .unwrap();
    file.sync_data().unwrap();
}

fn same(log: &RaftLog, last: u64) -> bool {
    log.last() == last && (1..=last).all(|index| log.entry(index) == Some(&entry(index, 1, 150)))
}

/// Flips every byte of every segment: the log is refused, or its contents are unchanged. Only the
/// last frame of the log can be taken for an interrupted write, and is then cut off as a whole.
#[test]
fn a_flipped_byte_is_refused_or_makes_no_difference() {
    let disk = three_segments();
    let (mut refused, mut cut, mut unchanged) = (0, 0, 0);
    for name in files(&disk) {
        for at in 0..bytes_of(&disk, &name).len() {
            let disk = disk.crash(disk::Crash::DropAll, 0);
            let byte = bytes_of(&disk, &name)[at];
            write(&disk, &name, at, &[byte ^ 0x10]);
            match open(&disk, 856) {
                Err(LogError::Corrupt { path, what, .. }) => {
                    assert!(path.ends_with(&name), "{}: {what}", path.display());
                    refused += 1;
                }
                Err(LogError::Newer { .. }) => panic!("a flip is no version"),
                Err(other) => panic!("{name} at {at}: {other}"),
                Ok(log) if same(&log, 6) => unchanged += 1,
                Ok(log) => {
                    assert!(same(&log, 5) && name == "log-0000000003", "{name} at {at}");
                    cut += 1;
                }
            }
        }
    }
    assert!(refused > 1000, "{refused} refused");
    assert!((150..250).contains(&cut), "{cut} in the last frame");
    assert!(unchanged > 50, "{unchanged} in room, padding and ends");
}

#[test]
fn a_missing_segment_is_refused() {
    for (name, lacks) in [
        ("log-0000000001", "log-0000000001"),
        ("log-0000000002", "log-0000000002"),
        ("log-0000000003", "log-0000000003"),
    ] {
        let disk = three_segments();
        disk.remove(&Path::new(DIR).join(name)).unwrap();
        let error = open(&disk, 856).map(drop).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(&format!("lacks segment {lacks}")),
            "{name}: {text}"
        );
    }
}

#[test]
fn an_emptied_segment_is_refused() {
    for name in ["log-0000000001", "log-0000000002", "log-0000000003"] {
        for length in [None, Some(0)] {
            let disk = three_segments();
            let damage = |bytes: &mut Vec<u8>| match length {
                None => bytes.fill(0),
                Some(length) => bytes.truncate(length),
            };
            disk.damage(&Path::new(DIR).join(name), damage).unwrap();
            let error = open(&disk, 856).map(drop).unwrap_err();
            assert!(
                error.to_string().contains(name),
                "{name} {length:?}: {error}"
            );
        }
    }
}

#[test]
fn a_short_segment_before_the_last_is_refused() {
    let disk = three_segments();
    let path = Path::new(DIR).join("log-0000000002");
    let file = disk.open(&path, Access::ReadWrite).unwrap();
    file.set_size(400).unwrap();
    let error = open(&disk, 856).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("log-0000000002") && error.contains("not whole"),
        "{error}"
    );
}

#[test]
fn every_torn_tail_is_cut_and_written_over() {
    let disk = three_segments();
    let name = "log-0000000003";
    let bytes = bytes_of(&disk, name);
    let last = bytes
        .windows(4)
        .rposition(|window| window == b"KRLF")
        .unwrap();
    for cut in last..last + 180 {
        let disk = disk.crash(disk::Crash::DropAll, 0);
        write(&disk, name, cut, &vec![0; bytes.len() - cut]);
        let mut log = open(&disk, 856).unwrap();
        assert!(same(&log, 5), "cut at {cut}");
        let left = &bytes_of(&disk, name)[last..];
        assert!(left.iter().all(|&byte| byte == 0), "nothing is left of it");
        log.append(&[entry(6, 1, 150)]);
        log.sync().unwrap();
        assert!(same(&open(&disk, 856).unwrap(), 6));
    }
}

#[test]
fn a_newer_version_is_named() {
    let disk = three_segments();
    let mut header = bytes_of(&disk, "log-0000000001")[..64].to_vec();
    header[8] = 3;
    let checksum = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&checksum.to_le_bytes());
    write(&disk, "log-0000000001", 0, &header);
    let error = open(&disk, 856).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("format version 3, and this release reads 2"),
        "{error}"
    );
}

#[test]
fn a_full_disk_is_told_before_anything_is_lost() {
    let disk = FaultDisk::new();
    let (mut log, _) = founded(&disk, 856);
    log.append(&[entry(1, 1, 150), entry(2, 1, 150)]);
    log.sync().unwrap();
    // There is no space for the next segment.
    disk.plan(Fault {
        on: OpKind::Write,
        nth: disk.count(OpKind::Write),
        kind: FaultKind::NoSpace,
    });
    log.append(&[entry(3, 1, 150)]);
    let error = log.sync().unwrap_err();
    assert!(error.is_full() && error.may_retry(), "{error}");
    assert!(same(
        &open(&disk.crash(disk::Crash::DropAll, 0), 856).unwrap(),
        2
    ));
    // Space was freed.
    log.sync().unwrap();
    assert!(same(&open(&disk, 856).unwrap(), 3));
}

#[test]
fn a_log_that_gets_no_space_can_be_cut() {
    let disk = three_segments();
    let mut log = open(&disk, 856).unwrap();
    let no_space = || {
        disk.plan(Fault {
            on: OpKind::Write,
            nth: disk.count(OpKind::Write),
            kind: FaultKind::NoSpace,
        });
    };
    log.append(&[entry(7, 1, 150)]);
    for _ in 0..2 {
        no_space();
        let error = log.sync().unwrap_err();
        assert!(error.is_full() && error.may_retry(), "{error}");
    }
    let mut meta = SnapshotMetadata::default();
    (meta.index, meta.term) = (6, 1);
    log.set_snapshot(&meta);
    log.compact(6).unwrap();
    assert_eq!(files(&disk), ["log-0000000003"]);
    let crashed = open(&disk.crash(disk::Crash::DropAll, 0), 856).unwrap();
    assert_eq!((crashed.floor(), crashed.last()), ((6, 1), 6));
    // A snapshot replaces the records that wait for space.
    let installed = disk.crash(disk::Crash::KillProcess, 0);
    let mut behind = open(&installed, 856).unwrap();
    behind.append(&[entry(7, 1, 150)]);
    meta.index = 20;
    behind.install(&meta).unwrap();
    assert_eq!(open(&installed, 856).unwrap().last(), 20);
    // The rest is written as soon as there is space.
    log.sync().unwrap();
    let opened = open(&disk, 856).unwrap();
    assert_eq!((opened.floor(), opened.last()), ((6, 1), 7));
}

#[test]
fn after_a_failed_write_there_is_no_other() {
    for (kind, full) in [(FaultKind::Io, false), (FaultKind::NoSpace, true)] {
        let disk = FaultDisk::new();
        let (mut log, _) = founded(&disk, 6000);
        log.append(&[entry(1, 1, 150)]);
        log.sync().unwrap();
        disk.plan(Fault {
            on: OpKind::Sync,
            nth: disk.count(OpKind::Sync),
            kind,
        });
        log.append(&[entry(2, 1, 150)]);
        let error = log.sync().unwrap_err();
        assert_eq!((error.is_full(), error.may_retry()), (full, false));
        assert!(
            error.to_string().contains("start this member again"),
            "{error}"
        );
        log.append(&[entry(3, 1, 150)]);
        assert!(log.sync().is_err(), "though the disk works again");
        assert!(same(
            &open(&disk.crash(disk::Crash::DropAll, 0), 6000).unwrap(),
            1
        ));
    }
}

#[test]
fn progress_goes_to_the_end() {
    let disk = three_segments();
    let mut seen = Vec::new();
    let options = kumiki_replica::log::LogOptions::default();
    let shared: std::sync::Arc<dyn Disk> = std::sync::Arc::new(disk);
    RaftLog::open(shared, Path::new(DIR), options, &mut |done, total| {
        seen.push((done, total))
    })
    .unwrap();
    assert!(seen.len() >= 3 && seen.is_sorted());
    let (done, total) = *seen.last().unwrap();
    assert!(done == total && total > 1000);
}
