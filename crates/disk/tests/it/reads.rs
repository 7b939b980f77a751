//! All ways of reading, on a disk and in memory, against one suite.

use std::path::Path;

use kumiki_disk::reads::{ReadMethod, conformance};

fn check(way: ReadMethod) {
    for place in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        let dir = tempfile::tempdir_in(Path::new(place)).expect("makes a directory");
        let make = |depth| way.reads(depth).expect("can be had");
        conformance::check(&make, dir.path());
    }
}

#[test]
fn a_new_thread_for_each() {
    check(ReadMethod::ThreadPerRead);
}

#[test]
fn one_thread() {
    check(ReadMethod::ThreadPool { threads: 1 });
}

#[test]
fn several_threads() {
    check(ReadMethod::ThreadPool { threads: 5 });
}

#[test]
fn a_ring() {
    check(ReadMethod::IoUring);
}

#[test]
fn the_owner_alone() {
    check(ReadMethod::Inline);
}
