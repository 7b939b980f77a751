//! A replica's directory: good, torn, damaged, with parts missing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::{NodeId, Op};
use replica::{LogOptions, MemberOptions, Options, ReplicatedPartition};
use tempfile::{TempDir, tempdir};
use testkit::eventually;

use crate::{assert_says, check};

/// Returns a partition with a single member, whose log has segments of 64 KiB.
fn open(data: &Path) -> Arc<ReplicatedPartition> {
    let member = MemberOptions {
        election: Duration::from_millis(100),
        kept_entries: 20,
        ..MemberOptions::new(NodeId(1), vec![NodeId(1)])
    };
    let listener = fabric::tcp::listen("127.0.0.1:0".parse().unwrap(), 1);
    let options = Options {
        dir: Some(data.join("replica")),
        log: LogOptions {
            segment_bytes: 64 << 10,
            ..LogOptions::default()
        },
        ..Options::new(member, listener.unwrap().remove(0))
    };
    let partition = ReplicatedPartition::open(options, &mut |_, _| {}).expect("it opens");
    eventually("it leads", || partition.is_leader());
    partition
}

fn put(partition: &ReplicatedPartition, keys: std::ops::Range<u32>) {
    let mut worker = partition.worker().expect("few workers");
    for key in keys {
        let key = key.to_be_bytes();
        let ops = [Op::put(&key, &[7; 1000])];
        let ticket = worker.execute(&ops, |_, observed| observed.epoch);
        let ticket = ticket.expect("nothing is in the way");
        eventually("it is durable", || partition.durable() >= ticket);
    }
}

/// Returns the directory of a snapshot of 200 keys and a log of several segments, which begins
/// before it and continues behind it.
fn filled() -> TempDir {
    let data = tempdir().expect("a temporary directory");
    let partition = open(data.path());
    put(&partition, 0..200);
    partition.snapshot();
    eventually("a snapshot", || partition.status().snapshot > 0);
    put(&partition, 150..300);
    partition.close(Duration::ZERO);
    data
}

/// Returns every file with its content and the time of its last change.
fn files(data: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let listed = fs::read_dir(data.join("replica")).expect("a directory");
    let read = |entry: fs::DirEntry| {
        let changed = entry.metadata().and_then(|data| data.modified());
        let content = fs::read(entry.path()).expect("its content");
        (entry.path(), (content, changed.expect("its time")))
    };
    listed.flatten().map(read).collect()
}

/// Returns the files whose names begin so, in order.
fn named(data: &Path, prefix: &str) -> Vec<PathBuf> {
    let begins = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy();
        name.starts_with(prefix)
    };
    files(data).into_keys().filter(begins).collect()
}

#[test]
fn a_good_directory_is_described_and_not_changed() {
    let data = filled();
    let before = files(data.path());
    let segments = named(data.path(), "log-").len();
    assert!(segments > 2, "{segments}");
    let said = check(data.path());
    let segments = format!("{segments} segments");
    // The leader's first entry, one for each put, and no other.
    let words = [
        "member      node 1\n",
        "members     nodes 1, as of entry",
        "snapshot-0000000000000000000",
        "entry 201 of term",
        "200 keys",
        "to 351, ",
        &segments,
        "vote for node 1",
        "everything up to entry 35",
        "MiB/s",
        "sound",
    ];
    assert_says(&said, 0, &words);
    assert!(!said.1.contains("leftover"), "{}", said.1);
    assert!(files(data.path()) == before, "something was changed");
    // It reports what a start gives: all committed entries, and the new leader's entry.
    let partition = open(data.path());
    assert_eq!(partition.status().applied, 352);
    assert_eq!(partition.engine().stats().keys, 300);
}

#[test]
fn a_torn_end_would_be_cut_off_and_damage_before_it_is_refused() {
    let data = filled();
    let log = named(data.path(), "log-").pop().expect("a segment");
    let good = fs::read(&log).expect("its content");
    let end = good.iter().rposition(|&byte| byte != 0).expect("data") + 1;
    let end = end.next_multiple_of(8);
    let mut torn = good.clone();
    torn[end..end + 30].fill(9);
    fs::write(&log, &torn).expect("written");
    let place = format!(
        "{}: an unfinished write of 30 bytes at byte {end}",
        log.display()
    );
    let words = [&*place, "would be cut off", "to 351, ", "sound"];
    assert_says(&check(data.path()), 0, &words);
    assert!(fs::read(&log).expect("its content") == torn, "not cut yet");
    // Frames behind it were synced later: this one was durable.
    let mut bad = good.clone();
    bad[200] ^= 1;
    fs::write(&log, &bad).expect("written");
    let name = log.display().to_string();
    let words = [&*name, "damaged at byte", "add the node again"];
    assert_says(&check(data.path()), 1, &words);
}

#[test]
fn damage_and_gaps_are_named_with_the_remedy() {
    let data = filled();
    let segments = named(data.path(), "log-");
    let snapshot = named(data.path(), "snapshot-").remove(0);
    let refused = |path: &Path, words: &[&str]| {
        let remedy = ["add the node again", "a copy from"];
        assert_says(&check(data.path()), 1, &[words, &remedy[..]].concat());
        // A start reports the same, and changes nothing either.
        let member = MemberOptions::new(NodeId(1), vec![NodeId(1)]);
        let listener = fabric::tcp::listen("127.0.0.1:0".parse().unwrap(), 1);
        let options = Options {
            dir: Some(data.path().join("replica")),
            ..Options::new(member, listener.unwrap().remove(0))
        };
        let error =
            ReplicatedPartition::open(options, &mut |_, _| {}).expect_err("a start refuses it");
        for word in words {
            assert!(
                error.to_string().contains(word),
                "{}: {error}",
                path.display()
            );
        }
    };
    for (path, at) in [(&segments[0], 10), (&segments[1], 300), (&snapshot, 70_000)] {
        let good = fs::read(path).expect("its content");
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(path, bad).expect("written");
        refused(path, &[&path.display().to_string(), "damaged at byte"]);
        fs::write(path, good).expect("written");
    }
    let aside = data.path().join("aside");
    let inner = &segments[segments.len() - 1];
    for (path, words) in [
        (inner, &["lacks segment"][..]),
        (&snapshot, &["lacks a snapshot as of entry"]),
    ] {
        fs::rename(path, &aside).expect("moved");
        refused(path, words);
        fs::rename(&aside, path).expect("moved back");
    }
    let mut newer = fs::read(&segments[0]).expect("its content");
    newer[8] = 9;
    let checksum = crc32c::crc32c(&newer[..60]);
    newer[60..64].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&segments[0], newer).expect("written");
    let words = ["format version 9", "reads 2", "newer"];
    assert_says(&check(data.path()), 1, &words);
}

#[test]
fn a_snapshot_without_a_log_and_an_empty_directory_are_told_apart() {
    let data = filled();
    for segment in named(data.path(), "log-") {
        fs::remove_file(segment).expect("removed");
    }
    assert_says(&check(data.path()), 1, &["lacks its log", "add the node"]);
    for file in files(data.path()).into_keys() {
        fs::remove_file(file).expect("removed");
    }
    assert_says(&check(data.path()), 0, &["nothing: it waits", "sound"]);
}
