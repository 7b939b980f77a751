//! Tests of mapped files: in memory, on a device, and in persistent memory where there is some. The
//! environment variable `KUMIKI_TEST_DAX` names a directory on a file system with DAX.

use std::fs;
use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use kumiki_disk::{Access, Disk, DiskFile, MappedDisk, MappedMedium, RealDisk, conformance};

use crate::support::write;

const IN_MEMORY: &str = "/dev/shm";

/// Media with directories on them.
type Media = Arc<Mutex<Vec<(MappedMedium, PathBuf)>>>;

/// Returns a disk, and what it reports.
fn observed() -> (MappedDisk, Media) {
    let seen = Media::default();
    let log = Arc::clone(&seen);
    let disk = MappedDisk::with_observer(move |medium, dir| {
        log.lock().unwrap().push((medium, dir.to_owned()));
    });
    (disk, seen)
}

#[test]
fn each_medium_is_reported_once_when_space_is_set_aside() {
    let dir = tempfile::tempdir_in(IN_MEMORY).unwrap();
    let (disk, seen) = observed();
    for name in ["a", "b"] {
        let file = disk.create_new(&dir.path().join(name)).unwrap();
        write(&*file, b"abc", 0);
        file.sync_data().unwrap();
        if name == "a" {
            assert_eq!(*seen.lock().unwrap(), [], "nothing is mapped yet");
        }
        file.allocate(10_000).unwrap();
        file.allocate(20_000).unwrap();
    }
    let expected = (MappedMedium::VolatileMemory, dir.path().to_owned());
    assert_eq!(*seen.lock().unwrap(), [expected]);
}

/// Returns the number of system calls with which this thread has written.
fn write_calls() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/io").expect("reads the thread's figures");
    let line = text.lines().find_map(|line| line.strip_prefix("syscw: "));
    line.expect("a line of writes").parse().expect("a number")
}

#[test]
fn writes_in_memory_are_stores_within_the_space_and_calls_behind_it() {
    stores_and_calls(Path::new(IN_MEMORY));
}

#[test]
fn persistent_memory_conforms_and_is_written_without_calls() {
    const PERSISTENT: &str = "KUMIKI_TEST_DAX";
    let Some(place) = std::env::var_os(PERSISTENT) else {
        eprintln!("left out: {PERSISTENT} names no directory on persistent memory");
        return;
    };
    let dir = tempfile::tempdir_in(&place).unwrap();
    let (disk, seen) = observed();
    conformance::check(&disk, dir.path());
    let media: Vec<_> = seen.lock().unwrap().iter().map(|one| one.0).collect();
    assert_eq!(media, [MappedMedium::PersistentMemory]);
    stores_and_calls(Path::new(&place));
}

fn stores_and_calls(place: &Path) {
    let dir = tempfile::tempdir_in(place).unwrap();
    let disk = MappedDisk::default();
    let file = disk.create_new(&dir.path().join("f")).unwrap();
    file.allocate(1000 * 100).unwrap();
    file.sync_data().unwrap();
    let before = write_calls();
    for i in 0..1000 {
        file.write_and_sync(&[IoSlice::new(&[i as u8; 100])], i * 100)
            .unwrap();
    }
    assert_eq!(write_calls(), before, "no call within the space");
    write(&*file, b"ab", 1000 * 100 - 1);
    assert!(write_calls() > before, "its end is crossed");
    file.set_size(50).unwrap();
    let cut = write_calls();
    write(&*file, b"ab", 70);
    assert!(write_calls() > cut, "the space was cut off");
}

/// Returns the kibibytes of the file's mapping that are to be written back.
fn dirty(path: &Path) -> u64 {
    let text = fs::read_to_string("/proc/self/smaps").expect("reads the mappings");
    let own = text.split_once(&format!("{}\n", path.display()));
    let (_, own) = own.expect("the file is mapped");
    let lines = own.lines().take_while(|line| !line.starts_with("VmFlags:"));
    let kibibytes = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim().strip_suffix(" kB")?;
        name.ends_with("_Dirty")
            .then(|| value.parse::<u64>().unwrap())
    };
    lines.filter_map(kibibytes).sum()
}

#[test]
fn a_sync_on_a_device_leaves_nothing_to_be_written_back() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (disk, seen) = observed();
    let path = dir.path().join("f");
    let file = disk.create_new(&path).unwrap();
    file.allocate(1 << 20).unwrap();
    let medium = seen.lock().unwrap()[0].0;
    if medium != MappedMedium::PageCache {
        eprintln!("left out: the build's directory is on {medium:?}");
        return;
    }
    for round in 0..10_u8 {
        let bytes = [round + 1; 50_000];
        file.write_and_sync(&[IoSlice::new(&bytes)], u64::from(round) * 30_000)
            .unwrap();
        assert_eq!(dirty(&path), 0, "after write_and_sync");
        write(&*file, &bytes, u64::from(round) * 30_000);
        file.sync_data().unwrap();
        assert_eq!(dirty(&path), 0, "after sync_data");
    }
}

/// The variable that names a full file system's directory to the process that is to fill it.
const FULL: &str = "KUMIKI_TEST_FULL_DISK";

/// Another process mounts 1 MiB, which it alone sees, and runs [`fill`] there.
#[test]
fn a_full_disk_is_an_error_and_no_signal() {
    if let Some(dir) = std::env::var_os(FULL) {
        return fill(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let user = ["--user", "--map-root-user"];
    let ways: [&[&str]; 2] = [&[], &user];
    let shell = |way: &[&str], command: &str| {
        let mut shell = Command::new("unshare");
        shell.arg("--mount").args(way).args(["sh", "-c", command]);
        shell.arg(dir.path()).env(FULL, dir.path());
        shell
    };
    let mount = "mount -t tmpfs -o size=1m tmpfs \"$0\"";
    let works = |way: &&[&str]| {
        shell(way, mount)
            .status()
            .is_ok_and(|status| status.success())
    };
    let Some(way) = ways.into_iter().find(works) else {
        eprintln!("left out: this machine lets tests mount nothing");
        return;
    };
    let name = "mapped::a_full_disk_is_an_error_and_no_signal";
    let output = shell(way, &format!("{mount} && exec \"$@\""))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}");
}

fn fill(dir: &Path) {
    let full = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::StorageFull);
    };
    let disk = MappedDisk::default();
    let path = dir.join("f");
    let file: Box<dyn DiskFile> = disk.create_new(&path).unwrap();
    file.allocate(300_000).unwrap();
    full(file.allocate(3 << 20));
    // Others take all that is left.
    let other = RealDisk.create_new(&dir.join("other")).unwrap();
    full(other.write_all_at(&[IoSlice::new(&vec![9; 2 << 20])], 0));
    full(file.allocate(400_000));
    let bytes: Vec<u8> = (0..300_000).map(|i| (i % 251) as u8).collect();
    file.write_and_sync(&[IoSlice::new(&bytes)], 0).unwrap();
    full(file.write_and_sync(&[IoSlice::new(&bytes)], 200_000));
    // The ordinary write that failed has written a part of its bytes.
    file.write_and_sync(&[IoSlice::new(&bytes)], 0).unwrap();
    let mut found = vec![0; bytes.len()];
    let reader = disk.open(&path, Access::Read).unwrap();
    reader.read_exact_at(&mut found, 0).unwrap();
    assert!(found == bytes, "what fitted is there");
    // Room that is given back can be had again.
    disk.remove(&dir.join("other")).unwrap();
    drop(other);
    file.allocate(400_000).unwrap();
    file.write_and_sync(&[IoSlice::new(&bytes)], 100_000)
        .unwrap();
    reader.read_exact_at(&mut found, 100_000).unwrap();
    assert!(found == bytes);
}
