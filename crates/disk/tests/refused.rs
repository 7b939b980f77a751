//! Tests the behaviour on a kernel that refuses io_uring. Alone in its process, whose limits it
//! changes.

use kumiki_disk::{DirectDisk, Disk};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn a_refused_ring_is_an_error_that_names_the_way_out() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = DirectDisk::new().unwrap();
    let before = getrlimit(Resource::Nofile);
    // A ring is a file descriptor, and there is none left.
    let none = Rlimit {
        current: Some(0),
        maximum: before.maximum,
    };
    setrlimit(Resource::Nofile, none).unwrap();
    let refused = DirectDisk::new();
    setrlimit(Resource::Nofile, before).unwrap();
    let text = refused.err().expect("it is refused").to_string();
    assert!(text.contains("io_uring"), "{text}");
    assert!(text.contains("--log-device write"), "{text}");
    // A disk that has a ring continues to use it.
    let file = disk.create_new(&dir.path().join("f")).unwrap();
    file.write_and_sync(&[std::io::IoSlice::new(b"abc")], 0)
        .unwrap();
}
