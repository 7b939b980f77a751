//! When loads sync, and which versions they make.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use disk::{Fault, FaultDisk, FaultKind, OpKind};

use super::*;
use crate::table::PageSize;
use crate::tables::Tables;

const DIRS: usize = 2;
/// Bytes after which loads sync here.
const AFTER: u64 = 64 << 10;

fn batch(from: i64) -> RecordBatch {
    let numbers = (from..from + 10_000).map(|n| n.wrapping_mul(0x1e37_79b9_7f4a_7c15));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    RecordBatch::try_from_iter([("n", numbers)]).unwrap()
}

fn tables(disk: &FaultDisk) -> Tables {
    let dirs: [PathBuf; DIRS] = ["/data/one".into(), "/data/two".into()];
    Tables::open(Arc::new(disk.clone()), &dirs).unwrap()
}

fn begin_as(tables: &Tables, mode: Mode, identity: Option<Identity>) -> Result<Load, Error> {
    let options = LoadOptions {
        page_size: PageSize::ALL[0],
        ..LoadOptions::default()
    };
    tables.load_as("t", &batch(0).schema(), &options, mode, identity)
}

fn begin(disk: &FaultDisk) -> Load {
    let mut load = begin_as(&tables(disk), Mode::Create, None).unwrap();
    load.sync_after = AFTER;
    load
}

/// Little is left to be synced at the end, however much was written.
#[test]
fn what_was_written_is_synced_on_the_way() {
    let disk = FaultDisk::new();
    let mut load = begin(&disk);
    let before = disk.count(OpKind::Sync);
    for at in 0..100 {
        load.push(&batch(at * 10_000)).unwrap();
        assert!(load.unsynced < AFTER, "{} bytes are left", load.unsynced);
    }
    let synced = disk.count(OpKind::Sync) - before;
    let most = load.bytes() / AFTER * DIRS as u64;
    assert!(load.bytes() > 10 * AFTER);
    assert!(synced >= 10 && synced <= most, "{synced} syncs");
    assert_eq!(load.commit().unwrap().rows(), 1_000_000);
}

/// Data that a failed sync has lost is not restored by a later sync.
#[test]
fn a_load_whose_sync_failed_is_over() {
    let disk = FaultDisk::new();
    let mut load = begin(&disk);
    disk.plan(Fault {
        on: OpKind::Sync,
        nth: disk.count(OpKind::Sync),
        kind: FaultKind::Io,
    });
    let failed = (0..100).find_map(|at| load.push(&batch(at * 10_000)).err());
    let error = failed.expect("it is synced").to_string();
    assert!(error.contains("cannot sync"), "{error}");
    assert!(load.push(&batch(0)).is_err());
    assert!(load.commit().is_err());
}

#[test]
fn a_table_gets_no_more_segments_than_it_may_have() {
    let tables = tables(&FaultDisk::new());
    for mode in [Mode::Create, Mode::Append] {
        let mut load = begin_as(&tables, mode, None).unwrap();
        load.segment_limit = 2;
        load.push(&batch(0)).unwrap();
        load.commit().unwrap();
    }
    let mut load = begin_as(&tables, Mode::Append, None).unwrap();
    load.segment_limit = 2;
    load.push(&batch(0)).unwrap();
    let error = load.commit().unwrap_err().to_string();
    assert!(error.contains("2 segments"), "{error}");
    assert!(error.contains("replace"), "{error}");
    assert_eq!(tables.table("t").unwrap().segments.len(), 2);
    // A load of all rows makes a single segment.
    let mut load = begin_as(&tables, Mode::Replace, None).unwrap();
    load.segment_limit = 1;
    assert_eq!(load.commit().unwrap().segments.len(), 0);
}

/// Clients that choose the numbers of versions may choose any.
#[test]
fn numbers_of_versions_have_an_end() {
    let tables = tables(&FaultDisk::new());
    let called = |version| {
        Some(Identity {
            table: TableId(7),
            version: Version(version),
            segment: SegmentId::new(),
        })
    };
    for mode in [Mode::Create, Mode::Replace] {
        for version in [0, u64::MAX] {
            let error = begin_as(&tables, mode, called(version)).err().unwrap();
            assert!(error.to_string().contains("version"), "{error}");
        }
    }
    let late = begin_as(&tables, Mode::Create, called(u64::MAX - 1)).unwrap();
    late.commit().unwrap();
    let last = begin_as(&tables, Mode::Replace, None).unwrap();
    assert_eq!(last.commit().unwrap().version, Version(u64::MAX));
    for identity in [None, called(1), called(u64::MAX - 1)] {
        for mode in [Mode::Append, Mode::Replace] {
            let load = begin_as(&tables, mode, identity).unwrap();
            assert!(load.commit().is_err(), "{mode:?} as {identity:?}");
        }
    }
    tables.remove("t").unwrap();
    let anew = begin_as(&tables, Mode::Create, None).unwrap();
    assert_eq!(anew.commit().unwrap().version, Version::FIRST);
}

/// Returns whether the table has changed after a change of the disk has failed at the end of a load,
/// or of removing it, and the error, if there was one.
fn ends(removes: bool, nth: u64) -> (bool, Option<Error>) {
    let disk = FaultDisk::new();
    let kept = tables(&disk);
    let end = |kept: &Tables| match removes {
        true => kept.remove("t"),
        false => begin_as(kept, Mode::Append, None)?.commit().map(drop),
    };
    let mut first = begin_as(&kept, Mode::Create, None).unwrap();
    first.push(&batch(0)).unwrap();
    first.commit().unwrap();
    disk.plan(Fault {
        on: OpKind::Change,
        nth: disk.count(OpKind::Change) + nth,
        kind: FaultKind::Io,
    });
    let error = end(&kept).err();
    drop(kept);
    let found = tables(&disk).table("t");
    let changed = match removes {
        true => found.is_err(),
        false => found.unwrap().version == Version(2),
    };
    (changed, error)
}

#[test]
fn an_error_says_whether_a_change_was_made() {
    for removes in [false, true] {
        let mut made = 0;
        for nth in 0.. {
            match ends(removes, nth) {
                (changed, None) => {
                    assert!(changed);
                    break;
                }
                (changed, Some(Error::Doubtful(_))) => made += u32::from(changed),
                (changed, Some(error)) => assert!(!changed, "{error}"),
            }
        }
        assert!(made > 0, "no change is in doubt");
    }
}
