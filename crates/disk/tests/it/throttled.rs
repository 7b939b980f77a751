//! Tests of the speed of a throttled disk.

use std::io::IoSlice;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kumiki_disk::{Access, Disk, RealDisk, Throttle, ThrottledDisk};

use crate::support::write;

/// The time slept is the sum of the times of operations on the slow directory's files.
#[test]
fn a_throttled_disk_sleeps_for_what_was_written_and_synced() {
    let slept: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let log = Arc::clone(&slept);
    let throttle = Throttle {
        bytes_per_second: 1_000_000,
        sync_delay: Duration::from_millis(5),
    };
    let dir = tempfile::tempdir().unwrap();
    let slow = dir.path().join("slow");
    let sleep = Box::new(move |time| log.lock().unwrap().push(time));
    let disk = ThrottledDisk::with_sleep(RealDisk, &slow, throttle, sleep);
    let fast = dir.path().join("slowly");
    for dir in [&slow, &fast] {
        disk.create_dir_all(dir).unwrap();
    }
    let unhurried = disk.create_new(&fast.join("f")).unwrap();
    unhurried
        .write_and_sync(&[IoSlice::new(&[1; 100_000])], 0)
        .unwrap();
    disk.sync_dir(&fast).unwrap();
    assert!(slept.lock().unwrap().is_empty(), "another directory");

    let file = disk.create_new(&slow.join("f")).unwrap();
    write(&*file, &[1; 600], 0);
    assert!(slept.lock().unwrap().is_empty(), "not worth a sleep yet");
    write(&*file, &[1; 600], 600);
    write(&*file, &[1; 300], 0);
    file.write_and_sync(&[IoSlice::new(&[1; 200])], 0).unwrap();
    let opened = disk.open(&slow.join("f"), Access::ReadWrite).unwrap();
    write(&*opened, &[1; 3000], 0);
    disk.sync_dir(&slow).unwrap();
    let micros = |&time: &Duration| time.as_micros();
    let slept: Vec<u128> = slept.lock().unwrap().iter().map(micros).collect();
    assert_eq!(slept, [1200, 5500, 3000, 5000]);
}

#[test]
fn writers_of_a_throttled_disk_share_its_rate() {
    let throttle = Throttle {
        bytes_per_second: 1_000_000,
        sync_delay: Duration::ZERO,
    };
    let dir = tempfile::tempdir().unwrap();
    let disk = ThrottledDisk::new(RealDisk, dir.path(), throttle);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let file = disk.create_new(&dir.path().join(name)).unwrap();
            scope.spawn(move || write(&*file, &[1; 20_000], 0));
        }
    });
    // Twenty milliseconds each, one after the other; more on a busy machine.
    assert!(start.elapsed() >= Duration::from_millis(40));
}
