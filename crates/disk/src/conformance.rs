//! The common behaviour of every [`Disk`]. A test of each implementation calls [`check`] with an
//! empty directory of its own; a deviation panics with the expected behaviour.

use std::io::{ErrorKind, IoSlice};
use std::path::Path;

use crate::{Access, Disk, DiskFile, LockError};

/// Runs the whole suite in `dir`, which exists and is empty.
///
/// # Panics
/// Panics if `disk` deviates from the contract.
pub fn check(disk: &dyn Disk, dir: &Path) {
    let parts: [fn(&dyn Disk, &Path); 14] = [
        creates_and_lists,
        reads_what_was_written,
        writes_in_parts,
        writes_at_any_place,
        writes_and_syncs,
        writes_from_several_threads,
        says_its_alignment,
        changes_size,
        sets_space_aside,
        writes_in_space_set_aside,
        renames,
        removes,
        keeps_access,
        locks,
    ];
    for (i, part) in parts.iter().enumerate() {
        let dir = dir.join(format!("part{i}")).join("below");
        disk.create_dir_all(&dir)
            .expect("creates directories with their parents");
        part(disk, &dir);
    }
}

fn write(file: &dyn DiskFile, bytes: &[u8], at: u64) {
    file.write_all_at(&[IoSlice::new(bytes)], at)
        .expect("writes");
}

fn content(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0xee; file.size().expect("has a size") as usize + 10];
    let n = file.read_at(&mut bytes, 0).expect("reads");
    bytes.truncate(n);
    assert_eq!(
        bytes.len() as u64,
        file.size().unwrap(),
        "reads to the end and no further"
    );
    bytes
}

fn names(disk: &dyn Disk, dir: &Path) -> Vec<(String, bool)> {
    let name = |entry: crate::DirEntry| (entry.name.into_string().unwrap(), entry.is_dir);
    disk.list(dir)
        .expect("lists")
        .into_iter()
        .map(name)
        .collect()
}

fn creates_and_lists(disk: &dyn Disk, dir: &Path) {
    assert_eq!(names(disk, dir), []);
    disk.create_dir_all(&dir.join("d")).expect("creates");
    disk.create_dir_all(&dir.join("d"))
        .expect("creating it again is nothing");
    drop(disk.create_new(&dir.join("b")).expect("creates"));
    drop(disk.create_new(&dir.join("a")).expect("creates"));
    let expected = [("a".into(), false), ("b".into(), false), ("d".into(), true)];
    assert_eq!(names(disk, dir), expected, "unsynced names are seen");
    disk.sync_dir(dir).expect("syncs");
    assert_eq!(names(disk, dir), expected, "synced names are seen");

    let kind = |result: std::io::Result<Box<dyn DiskFile>>| result.err().map(|e| e.kind());
    assert_eq!(
        kind(disk.create_new(&dir.join("a"))),
        Some(ErrorKind::AlreadyExists)
    );
    assert_eq!(
        kind(disk.create_new(&dir.join("no").join("a"))),
        Some(ErrorKind::NotFound)
    );
    assert_eq!(
        kind(disk.open(&dir.join("c"), Access::Read)),
        Some(ErrorKind::NotFound)
    );
    assert_eq!(
        disk.list(&dir.join("no")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert!(
        disk.create_dir_all(&dir.join("a")).is_err(),
        "a file is in the way"
    );
}

fn reads_what_was_written(disk: &dyn Disk, dir: &Path) {
    let path = dir.join("f");
    let file = disk.create_new(&path).expect("creates");
    assert_eq!(content(&*file), b"");
    write(&*file, b"hello world", 0);
    write(&*file, b"W", 6);
    assert_eq!(content(&*file), b"hello World", "before the sync");
    let other = disk
        .open(&path, Access::Read)
        .expect("opens what is not synced");
    assert_eq!(content(&*other), b"hello World", "through another handle");
    file.sync_data().expect("syncs");
    assert_eq!(content(&*file), b"hello World", "after the sync");
    write(&*file, b"!", 14);
    assert_eq!(
        content(&*other),
        b"hello World\0\0\0!",
        "a gap reads as zeros"
    );
    disk.sync_dir(dir).expect("syncs");
    file.sync_data().expect("syncs");
    assert_eq!(content(&*other), b"hello World\0\0\0!", "after all syncs");

    let mut middle = [0; 5];
    assert_eq!(other.read_at(&mut middle, 6).unwrap(), 5);
    assert_eq!(&middle, b"World");
    assert_eq!(other.read_at(&mut middle, 13).unwrap(), 2, "up to the end");
    assert_eq!(other.read_at(&mut middle, 15).unwrap(), 0, "at the end");
    assert_eq!(other.read_at(&mut middle, 99).unwrap(), 0, "behind the end");
    let short = other.read_exact_at(&mut middle, 13).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
}

fn writes_in_parts(disk: &dyn Disk, dir: &Path) {
    let file = disk.create_new(&dir.join("f")).expect("creates");
    let bytes: Vec<u8> = (0..3000_u32).flat_map(u32::to_le_bytes).collect();
    // More parts than one system call accepts, empty ones among them.
    let parts: Vec<IoSlice<'_>> = bytes
        .chunks(5)
        .flat_map(|c| [c, &[]])
        .map(IoSlice::new)
        .collect();
    file.write_all_at(&parts, 7).expect("writes");
    file.write_all_at(&[], 90_000).expect("writes nothing");
    assert!(
        content(&*file)[7..] == bytes,
        "all parts, in order, and no more"
    );
    disk.sync_dir(dir).expect("syncs");
    file.sync_data().expect("syncs");
    assert!(
        content(&*file)[7..] == bytes,
        "all parts, in order, and no more"
    );
}

/// Sizes around those at which an implementation may change its method: sectors, pages, pieces.
const SIZES: [usize; 9] = [1, 511, 512, 4095, 4096, 8193, 262_144, 300_000, 1_200_000];

/// Applies a write to the expected contents of the file.
fn overwrite(expected: &mut Vec<u8>, bytes: &[u8], at: usize) {
    expected.resize(expected.len().max(at + bytes.len()), 0);
    expected[at..at + bytes.len()].copy_from_slice(bytes);
}

fn writes_at_any_place(disk: &dyn Disk, dir: &Path) {
    let path = dir.join("f");
    let file = disk.create_new(&path).expect("creates");
    let other = disk.open(&path, Access::Read).expect("opens");
    let mut rng = fastrand::Rng::with_seed(1);
    let mut expected = Vec::new();
    for round in 0..4 {
        for size in SIZES {
            let at = match round {
                0 => 0,
                1 => expected.len(),
                2 => rng.usize(0..1000) * 4096,
                _ => rng.usize(0..4_000_000),
            };
            let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(1..)).take(size).collect();
            let (left, right) = bytes.split_at(rng.usize(0..=size));
            let parts = [left, right].map(IoSlice::new);
            file.write_all_at(&parts, at as u64).expect("writes");
            overwrite(&mut expected, &bytes, at);
            // The bytes around the write, from an odd offset: its edges and their neighbours.
            let from = at.saturating_sub(4097);
            let mut around = vec![0xee; size + 9000];
            let n = other.read_at(&mut around, from as u64).expect("reads");
            let there = &expected[from..expected.len().min(from + around.len())];
            assert!(around[..n] == *there, "{size} bytes at {at}, another's");
            let n = file.read_at(&mut around, from as u64).expect("reads");
            assert!(around[..n] == *there, "{size} bytes at {at}, its own");
        }
        assert!(content(&*file) == expected, "all of it, round {round}");
        if round == 1 {
            file.sync_data().expect("syncs");
            disk.sync_dir(dir).expect("syncs");
        }
    }
    assert!(content(&*other) == expected, "another's eyes");
}

fn writes_and_syncs(disk: &dyn Disk, dir: &Path) {
    let path = dir.join("f");
    let file = disk.create_new(&path).expect("creates");
    disk.sync_dir(dir).expect("syncs");
    file.write_and_sync(&[], 77).expect("syncs nothing");
    assert_eq!(content(&*file), b"", "an empty write leaves no trace");
    let mut expected = Vec::new();
    for (i, size) in SIZES.into_iter().enumerate() {
        if i % 3 == 0 {
            file.allocate(expected.len() as u64 + 10_000)
                .expect("sets space aside");
            expected.resize(expected.len() + 10_000, 0);
        }
        let bytes = vec![i as u8 + 1; size];
        // Even rounds write at a multiple of every alignment, odd ones do not.
        let at = match i % 2 {
            0 => i * 16_384,
            _ => expected.len() - 1,
        };
        file.write_and_sync(&[IoSlice::new(&bytes)], at as u64)
            .expect("writes and syncs");
        overwrite(&mut expected, &bytes, at);
        let other = disk.open(&path, Access::Read).expect("opens");
        assert!(content(&*other) == expected, "{size} bytes at {at}");
    }
    let reader = disk.open(&path, Access::Read).expect("opens");
    let refused = reader.write_and_sync(&[IoSlice::new(b"x")], 0);
    assert!(refused.is_err(), "a reader cannot write");
}

/// Writes neighbouring ranges that share sectors from several threads: no write undoes another one.
fn writes_from_several_threads(disk: &dyn Disk, dir: &Path) {
    const THREADS: usize = 4;
    let file = disk.create_new(&dir.join("f")).expect("creates");
    for size in [1000, 4096, 5000] {
        let write = |thread: usize| {
            for round in 0..8 {
                let at = (round * THREADS + thread) * size;
                let bytes = vec![thread as u8 + 1; size];
                let parts = [IoSlice::new(&bytes)];
                if round % 3 == 0 {
                    file.write_and_sync(&parts, at as u64).expect("writes");
                } else {
                    file.write_all_at(&parts, at as u64).expect("writes");
                }
                let mut own = vec![0; size];
                file.read_exact_at(&mut own, at as u64).expect("reads");
                assert!(own == bytes, "its own write, at {at}");
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || write(thread));
            }
        });
        for (i, piece) in content(&*file)[..size * 8 * THREADS]
            .chunks(size)
            .enumerate()
        {
            let whose = (i % THREADS) as u8 + 1;
            assert!(piece.iter().all(|&byte| byte == whose), "piece {i}");
        }
    }
}

fn says_its_alignment(disk: &dyn Disk, dir: &Path) {
    let path = dir.join("f");
    let file = disk.create_new(&path).expect("creates");
    assert!(file.alignment().is_power_of_two());
    assert_eq!(file.alignment(), disk.alignment());
    file.sync_data().expect("syncs");
    disk.sync_dir(dir).expect("syncs");
    assert_eq!(file.alignment(), disk.alignment(), "it does not change");
    let opened = disk.open(&path, Access::ReadWrite).expect("opens");
    assert!(opened.alignment().is_power_of_two());
}

fn changes_size(disk: &dyn Disk, dir: &Path) {
    for synced_before in [false, true] {
        let file = disk
            .create_new(&dir.join(format!("f{synced_before}")))
            .expect("creates");
        write(&*file, b"0123456789", 0);
        if synced_before {
            file.sync_data().expect("syncs");
            disk.sync_dir(dir).expect("syncs");
        }
        file.set_size(4).expect("cuts");
        assert_eq!(content(&*file), b"0123");
        file.set_size(6).expect("grows");
        assert_eq!(
            content(&*file),
            b"0123\0\0",
            "what was cut off does not come back"
        );
        write(&*file, b"x", 5);
        file.sync_data().expect("syncs");
        disk.sync_dir(dir).expect("syncs");
        assert_eq!(content(&*file), b"0123\0x");
    }
}

fn sets_space_aside(disk: &dyn Disk, dir: &Path) {
    let file = disk.create_new(&dir.join("f")).expect("creates");
    write(&*file, b"abc", 0);
    file.allocate(2).expect("has as much already");
    assert_eq!(content(&*file), b"abc", "it does not cut");
    file.allocate(5).expect("sets space aside");
    assert_eq!(content(&*file), b"abc\0\0");
    write(&*file, b"def", 3);
    disk.sync_dir(dir).expect("syncs");
    file.sync_data().expect("syncs");
    assert_eq!(content(&*file), b"abcdef");
}

/// Writes and syncs within space that was set aside, across its end and behind it, sets more of it
/// aside, cuts it, and grows it without setting anything aside.
fn writes_in_space_set_aside(disk: &dyn Disk, dir: &Path) {
    let path = dir.join("f");
    let file = disk.create_new(&path).expect("creates");
    disk.sync_dir(dir).expect("syncs");
    let other = disk.open(&path, Access::Read).expect("opens");
    let mut rng = fastrand::Rng::with_seed(2);
    let mut expected: Vec<u8> = Vec::new();
    for round in 0..30 {
        let size = match round {
            // Neither a multiple of a page nor of a sector.
            0 => 10_001,
            _ => expected.len() + rng.usize(0..20_000),
        };
        match round % 5 {
            4 => {
                let size = rng.usize(size / 2..=size);
                file.set_size(size as u64).expect("changes its size");
                expected.resize(size, 0);
            }
            _ => {
                file.allocate(size as u64).expect("sets space aside");
                expected.resize(expected.len().max(size), 0);
            }
        }
        for _ in 0..8 {
            let at = rng.usize(0..=expected.len());
            let len = rng.usize(0..6000);
            let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(1..)).take(len).collect();
            let (left, right) = bytes.split_at(rng.usize(0..=bytes.len()));
            let parts = [left, right].map(IoSlice::new);
            if rng.bool() {
                file.write_and_sync(&parts, at as u64).expect("writes");
            } else {
                file.write_all_at(&parts, at as u64).expect("writes");
            }
            overwrite(&mut expected, &bytes, at);
            let from = at.saturating_sub(100);
            let mut around = vec![0xee; bytes.len() + 200];
            let n = other.read_at(&mut around, from as u64).expect("reads");
            let there = &expected[from..expected.len().min(from + around.len())];
            assert!(around[..n] == *there, "{} bytes at {at}", bytes.len());
        }
        assert!(content(&*file) == expected, "its own eyes, round {round}");
        assert!(content(&*other) == expected, "another's, round {round}");
    }
    file.sync_data().expect("syncs");
    drop(file);
    assert!(content(&*other) == expected, "what is closed stays");
}

fn renames(disk: &dyn Disk, dir: &Path) {
    let (a, b) = (dir.join("a"), dir.join("b"));
    let file = disk.create_new(&a).expect("creates");
    write(&*file, b"new", 0);
    file.sync_data().expect("syncs");
    write(&*disk.create_new(&b).expect("creates"), b"old", 0);
    disk.rename(&a, &b).expect("renames over a file");
    assert_eq!(names(disk, dir), [("b".into(), false)]);
    let content_of = |path| content(&*disk.open(path, Access::Read).expect("opens"));
    assert_eq!(content_of(&b), b"new");
    disk.sync_dir(dir).expect("syncs");
    assert_eq!(names(disk, dir), [("b".into(), false)]);
    assert_eq!(content_of(&b), b"new");
    write(&*file, b"N", 0);
    file.sync_data().expect("the handle follows the file");
    assert_eq!(content_of(&b), b"New");

    // The name is free again.
    write(&*disk.create_new(&a).expect("creates"), b"second", 0);
    assert_eq!(content_of(&a), b"second");
    let gone = disk.rename(&dir.join("c"), &a).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    disk.create_dir_all(&dir.join("d")).expect("creates");
    let elsewhere = disk.rename(&a, &dir.join("d").join("a")).unwrap_err();
    assert_eq!(elsewhere.kind(), ErrorKind::InvalidInput);
}

fn removes(disk: &dyn Disk, dir: &Path) {
    for synced in [false, true] {
        let path = dir.join("f");
        let file = disk.create_new(&path).expect("creates");
        write(&*file, b"abc", 0);
        if synced {
            file.sync_data().expect("syncs");
            disk.sync_dir(dir).expect("syncs");
        }
        disk.remove(&path).expect("removes");
        assert_eq!(names(disk, dir), []);
        assert_eq!(content(&*file), b"abc", "an open handle stays usable");
        assert_eq!(disk.remove(&path).unwrap_err().kind(), ErrorKind::NotFound);
        let again = disk.create_new(&path).expect("the name is free");
        assert_eq!(content(&*again), b"", "and the file a new one");
        disk.remove(&path).expect("removes");
        disk.sync_dir(dir).expect("syncs");
        assert_eq!(names(disk, dir), []);
    }
}

fn keeps_access(disk: &dyn Disk, dir: &Path) {
    let path = dir.join("f");
    drop(disk.create_new(&path).expect("creates"));
    let reader = disk.open(&path, Access::Read).expect("opens");
    assert!(
        reader.write_all_at(&[IoSlice::new(b"x")], 0).is_err(),
        "a reader cannot write"
    );
    assert!(
        reader.set_size(9).is_err(),
        "a reader cannot change the size"
    );
    let writer = disk.open(&path, Access::ReadWrite).expect("opens");
    write(&*writer, b"x", 0);
    assert_eq!(content(&*reader), b"x");
}

fn locks(disk: &dyn Disk, dir: &Path) {
    let lock = disk.lock_dir(dir).expect("locks");
    let refused = disk.lock_dir(dir).err().expect("it is locked");
    let text = refused.to_string();
    assert!(matches!(refused, LockError::OpenHere { .. }), "{refused:?}");
    assert!(text.contains("is open in this process already"), "{text}");
    assert!(text.contains(&dir.display().to_string()), "{text}");
    drop(lock);
    drop(disk.lock_dir(dir).expect("it is free again"));
    assert!(matches!(
        disk.lock_dir(&dir.join("no")),
        Err(LockError::Io { .. })
    ));
}
