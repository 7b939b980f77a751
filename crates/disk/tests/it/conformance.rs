//! Tests every disk with the same suite, and the particular behaviour of each.

use std::io::{ErrorKind, IoSlice};
use std::path::Path;
use std::time::Duration;

use kumiki_disk::{
    Access, Crash, DirectDisk, Disk, Fault, FaultDisk, FaultKind, ForgetfulDisk, MappedDisk,
    OpKind, RealDisk, Throttle, ThrottledDisk, conformance,
};

use crate::support::write;

fn content(disk: &dyn Disk, path: &Path) -> Option<Vec<u8>> {
    let file = disk.open(path, Access::Read).ok()?;
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

#[test]
fn the_real_disk_conforms() {
    let dir = tempfile::tempdir().unwrap();
    conformance::check(&RealDisk, dir.path());
}

/// Returns a directory beside the build's own files: their file system supports direct I/O more
/// often than the one for temporary files does.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn the_direct_disk_conforms() {
    conformance::check(&DirectDisk::new().unwrap(), directory().path());
}

#[test]
fn the_forgetful_disk_conforms_over_the_direct_one() {
    let disk = ForgetfulDisk::new(DirectDisk::new().unwrap());
    assert_eq!(disk.alignment(), 4096);
    conformance::check(&disk, directory().path());
}

#[test]
fn the_mapped_disk_conforms() {
    for place in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        let dir = tempfile::tempdir_in(place).unwrap();
        conformance::check(&MappedDisk::default(), dir.path());
    }
}

#[test]
fn the_forgetful_disk_conforms_over_the_mapped_one() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    conformance::check(&ForgetfulDisk::new(MappedDisk::default()), dir.path());
}

#[test]
fn the_throttled_disk_conforms() {
    let throttle = Throttle {
        bytes_per_second: 1 << 30,
        sync_delay: Duration::from_micros(10),
    };
    let dir = directory();
    let slow = dir.path().join("part3");
    let disk = ThrottledDisk::new(RealDisk, slow, throttle);
    conformance::check(&disk, dir.path());
    let dir = directory();
    let disk = ThrottledDisk::new(DirectDisk::new().unwrap(), dir.path(), throttle);
    conformance::check(&disk, dir.path());
}

#[test]
fn the_forgetful_disk_conforms() {
    let dir = tempfile::tempdir().unwrap();
    conformance::check(&ForgetfulDisk::new(RealDisk), dir.path());
}

#[test]
fn the_faulty_disk_conforms() {
    let disk = FaultDisk::new();
    let dir = Path::new("/data");
    disk.create_dir_all(dir).unwrap();
    conformance::check(&disk, dir);
    let disk = FaultDisk::with_alignment(4096);
    disk.create_dir_all(dir).unwrap();
    assert_eq!(disk.alignment(), 4096);
    conformance::check(&disk, dir);
}

/// Names, content and syncs, step by step, as another process sees them that opens the directory
/// below, as after a kill.
#[test]
fn the_forgetful_disk_forgets_what_is_not_synced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let disk = ForgetfulDisk::new(RealDisk);
    let file = disk.create_new(&path).unwrap();
    write(&*file, b"one", 0);
    assert_eq!(
        content(&RealDisk, &path),
        None,
        "neither name nor data is synced"
    );
    file.sync_data().unwrap();
    assert_eq!(content(&RealDisk, &path), None, "the name is not synced");
    write(&*file, b"two", 3);
    disk.sync_dir(dir.path()).unwrap();
    assert_eq!(
        content(&RealDisk, &path).unwrap(),
        b"one",
        "what was synced, and no more"
    );
    assert_eq!(content(&disk, &path).unwrap(), b"onetwo");
    file.sync_data().unwrap();
    assert_eq!(content(&RealDisk, &path).unwrap(), b"onetwo");
    file.set_size(1).unwrap();
    assert_eq!(
        content(&RealDisk, &path).unwrap(),
        b"onetwo",
        "a cut is not synced"
    );

    let renamed = dir.path().join("g");
    disk.rename(&path, &renamed).unwrap();
    assert_eq!(
        content(&RealDisk, &renamed),
        None,
        "a new name is not synced"
    );
    assert_eq!(content(&RealDisk, &path).unwrap(), b"onetwo");
    disk.sync_dir(dir.path()).unwrap();
    assert_eq!(content(&RealDisk, &path), None);
    assert_eq!(content(&RealDisk, &renamed).unwrap(), b"onetwo");
    disk.remove(&renamed).unwrap();
    assert_eq!(content(&disk, &renamed), None);
    assert_eq!(
        content(&RealDisk, &renamed).unwrap(),
        b"onetwo",
        "a removal is not synced"
    );
    disk.sync_dir(dir.path()).unwrap();
    assert_eq!(content(&RealDisk, &renamed), None);
}

fn faulty() -> (FaultDisk, &'static Path) {
    let disk = FaultDisk::new();
    disk.create_dir_all(Path::new("/d")).unwrap();
    (disk, Path::new("/d/f"))
}

#[test]
fn a_power_loss_keeps_what_was_synced_and_parts_of_the_rest() {
    let (disk, path) = faulty();
    let file = disk.create_new(path).unwrap();
    write(&*file, &[1; 2000], 0);
    file.sync_data().unwrap();
    assert_eq!(
        content(&disk.crash(Crash::DropAll, 0), path),
        None,
        "the name is not synced"
    );
    disk.sync_dir(Path::new("/d")).unwrap();
    write(&*file, &[2; 2000], 1000);
    assert_eq!(
        content(&disk.crash(Crash::DropAll, 0), path).unwrap(),
        [1; 2000]
    );

    let mut torn = 0;
    for seed in 0..50 {
        for mode in [Crash::KeepPrefix, Crash::KeepSectors] {
            let kept = content(&disk.crash(mode, seed), path).unwrap();
            assert_eq!(
                kept,
                content(&disk.crash(mode, seed), path).unwrap(),
                "one seed, one result"
            );
            assert_eq!(kept[..1000], [1; 1000], "synced data stays");
            torn += usize::from(kept.contains(&2) && kept[1000..] != [2; 2000]);
        }
    }
    assert!(torn > 10, "some writes are kept in part ({torn})");
}

#[test]
fn a_killed_process_loses_nothing_and_nothing_is_synced() {
    let (disk, path) = faulty();
    write(&*disk.create_new(path).unwrap(), b"abc", 0);
    let killed = disk.crash(Crash::KillProcess, 0);
    assert_eq!(content(&killed, path).unwrap(), b"abc");
    assert_eq!(content(&killed.crash(Crash::DropAll, 0), path), None);
    killed
        .open(path, Access::ReadWrite)
        .unwrap()
        .sync_data()
        .unwrap();
    killed.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(
        content(&killed.crash(Crash::DropAll, 0), path).unwrap(),
        b"abc"
    );
}

#[test]
fn a_failed_sync_loses_the_data_for_good() {
    let (disk, path) = faulty();
    let file = disk.create_new(path).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.plan(Fault {
        on: OpKind::Sync,
        nth: 1,
        kind: FaultKind::Io,
    });
    write(&*file, b"abc", 0);
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(5));
    file.sync_data()
        .expect("as on Linux, the next sync reports success");
    assert_eq!(
        content(&disk, path).unwrap(),
        b"abc",
        "the page cache has it"
    );
    assert_eq!(content(&disk.crash(Crash::DropAll, 0), path).unwrap(), b"");
}

#[test]
fn a_write_within_a_unit_endangers_its_synced_neighbours() {
    let disk = FaultDisk::with_alignment(4096);
    let (dir, path) = (Path::new("/d"), Path::new("/d/f"));
    disk.create_dir_all(dir).unwrap();
    let file = disk.create_new(path).unwrap();
    disk.sync_dir(dir).unwrap();
    file.write_and_sync(&[IoSlice::new(&[1; 8192])], 0).unwrap();
    let torn = |disk: &FaultDisk| {
        let kept = |seed| content(&disk.crash(Crash::KeepSectors, seed), path).unwrap();
        (0..60)
            .filter(|&seed| kept(seed)[..4096] != [1; 4096])
            .count()
    };
    write(&*file, &[2; 4096], 4096);
    assert_eq!(torn(&disk), 0, "whole units leave their neighbours alone");
    file.sync_data().unwrap();
    write(&*file, &[2; 10], 4000);
    assert!(torn(&disk) > 30, "those of a part do not");
}

#[test]
fn a_write_that_failed_is_not_synced() {
    for (on, kind) in [
        (OpKind::Write, FaultKind::Io),
        (OpKind::Write, FaultKind::ShortWrite),
        (OpKind::Sync, FaultKind::Io),
    ] {
        let (disk, path) = faulty();
        let file = disk.create_new(path).unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_and_sync(&[IoSlice::new(b"first")], 0).unwrap();
        let counts = [OpKind::Write, OpKind::Sync].map(|kind| disk.count(kind));
        assert_eq!(counts, [1, 2], "a write, then a sync");
        let nth = disk.count(on);
        disk.plan(Fault { on, nth, kind });
        file.write_and_sync(&[IoSlice::new(b"second")], 5)
            .unwrap_err();
        assert_eq!(disk.count(OpKind::Sync), 2 + u64::from(on == OpKind::Sync));
        let kept = content(&disk.crash(Crash::DropAll, 0), path).unwrap();
        assert_eq!(kept, b"first", "{on:?} {kind:?}");
    }
}

#[test]
fn planned_faults_happen_where_planned() {
    let (disk, path) = faulty();
    let file = disk.create_new(path).unwrap();
    for (nth, kind) in [FaultKind::Io, FaultKind::NoSpace, FaultKind::ShortWrite]
        .iter()
        .enumerate()
    {
        disk.plan(Fault {
            on: OpKind::Write,
            nth: nth as u64 + 1,
            kind: *kind,
        });
    }
    disk.plan(Fault {
        on: OpKind::Read,
        nth: 0,
        kind: FaultKind::Io,
    });
    assert!(disk.open(path, Access::Read).is_err());
    let mut results = Vec::new();
    for i in 0..5 {
        results.push(file.write_all_at(&[IoSlice::new(b"abcd")], i * 4));
    }
    let codes: Vec<_> = results
        .iter()
        .map(|r| r.as_ref().err().and_then(|e| e.raw_os_error()))
        .collect();
    assert_eq!(codes, [None, Some(5), Some(28), None, None]);
    assert_eq!(
        results[3].as_ref().unwrap_err().kind(),
        ErrorKind::WriteZero
    );
    assert_eq!(content(&disk, path).unwrap(), b"abcdab\0\0ab\0\0ab\0\0abcd");

    disk.plan(Fault {
        on: OpKind::Change,
        nth: disk.count(OpKind::Change),
        kind: FaultKind::PowerOff,
    });
    assert!(file.sync_data().is_err());
    assert!(
        file.size().is_err() && disk.list(Path::new("/d")).is_err(),
        "everything fails from now on"
    );
}
