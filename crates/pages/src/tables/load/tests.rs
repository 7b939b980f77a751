//! When what is loaded is synced.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use disk::{Fault, FaultDisk, FaultKind, OpKind};

use super::*;

const DIRS: usize = 2;
/// Bytes after which it is synced here.
const AFTER: u64 = 64 << 10;

fn batch(from: i64) -> RecordBatch {
    let numbers = (from..from + 10_000).map(|n| n.wrapping_mul(0x1e37_79b9_7f4a_7c15));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    RecordBatch::try_from_iter([("n", numbers)]).unwrap()
}

fn begin(disk: &FaultDisk) -> Load {
    let dirs: [PathBuf; DIRS] = ["/data/one".into(), "/data/two".into()];
    let tables = Tables::open(Arc::new(disk.clone()), &dirs).unwrap();
    let options = LoadOptions {
        page_size: PageSize::ALL[0],
        ..LoadOptions::default()
    };
    let schema = batch(0).schema();
    let mut load = tables.load("t", &schema, &options, Mode::Create).unwrap();
    load.sync_after = AFTER;
    load
}

/// Little is left to be synced in the end, however much was written.
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

/// What a failed sync has lost, no later one brings back.
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
