//! Cases for memory that processes share: owners that are killed, and files of others.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::memory::{RemoteError, RemoteMemory, Words};
use kumiki_fabric as fabric;

use fabric::memory::{Access, Grant, Memory, Region};
use fabric::shm::Shm;
use testkit::own_process::test_as_process;

/// The variable that makes the test below an owner, in this directory.
const OWNER: &str = "KUMIKI_TEST_OWNER_IN";

/// A directory in shared memory, of one test alone.
pub(crate) struct SharedDirectory(tempfile::TempDir);

impl SharedDirectory {
    pub(crate) fn new() -> SharedDirectory {
        let mut dir = tempfile::Builder::new();
        SharedDirectory(dir.prefix("kumiki-test-").tempdir_in("/dev/shm").unwrap())
    }

    pub(crate) fn memory(&self) -> Shm {
        Shm::in_dir(self.0.path())
    }

    /// Returns the number of files.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(self.0.path()).unwrap().count()
    }
}

/// A process that owns a region.
struct Owner {
    process: Child,
    grant: Grant,
}

impl Owner {
    fn start(dir: &Path) -> Owner {
        let mut process = test_as_process(module_path!(), "plays_an_owner_if_told_to")
            .env(OWNER, dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let hex = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("grant:").map(|(_, hex)| hex.to_owned()))
            .expect("the owner tells its grant");
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let grant = Grant::decode(&bytes).unwrap();
        Owner { process, grant }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The process of an [`Owner`]; does nothing when run as a test.
#[test]
fn plays_an_owner_if_told_to() {
    let Some(dir) = std::env::var_os(OWNER) else {
        return;
    };
    let region = Shm::in_dir(dir).register(4, Access::Read).unwrap();
    region.words()[3].store(42, Ordering::Release);
    let mut grant = Vec::new();
    region.grant().encode(&mut grant);
    let hex: String = grant.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("grant:{hex}");
    std::io::stdout().flush().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

fn read(remote: &mut impl RemoteMemory) -> Result<Vec<u64>, RemoteError> {
    let mut words = Vec::new();
    remote.begin(0, 4)?;
    remote.finish(&mut words)?;
    Ok(words)
}

#[test]
fn a_reader_notices_that_the_owner_was_killed_and_frees_its_memory() {
    let place = SharedDirectory::new();
    let mut owner = Owner::start(place.0.path());
    let mut remote = place.memory().reach(&owner.grant).unwrap();
    assert_eq!(read(&mut remote), Ok(vec![0, 0, 0, 42]));
    assert_eq!(place.files(), 1);
    owner.kill();
    let killed = Instant::now();
    let error = loop {
        match read(&mut remote) {
            Ok(words) => assert_eq!(words, [0, 0, 0, 42]),
            Err(error) => break error,
        }
        assert!(killed.elapsed() < Duration::from_secs(20));
    };
    assert!(matches!(error, RemoteError::Lost(_)), "{error}");
    assert_eq!(place.files(), 0, "the file stays");
    assert!(read(&mut remote).is_err(), "it is there again");
    assert!(place.memory().reach(&owner.grant).is_err());
}

#[test]
fn what_a_killed_owner_left_is_swept_away_and_what_lives_stays() {
    let place = SharedDirectory::new();
    let (mut dead, living) = (Owner::start(place.0.path()), Owner::start(place.0.path()));
    let own = place.memory().register(1, Access::Write).unwrap();
    std::fs::write(place.0.path().join("kumiki-notes"), "not one of ours").unwrap();
    assert_eq!(place.memory().sweep().unwrap(), 0);
    dead.kill();
    assert!(place.memory().reach(&dead.grant).is_err(), "it is dead");
    let mut dead = Owner::start(place.0.path());
    dead.kill();
    assert_eq!(place.memory().sweep().unwrap(), 1);
    assert_eq!(place.files(), 3);
    let mut remote = place.memory().reach(&living.grant).unwrap();
    assert_eq!(read(&mut remote), Ok(vec![0, 0, 0, 42]));
    drop(own);
    assert_eq!(place.files(), 2);
}

/// Others sweep all the time while regions are made: none gets lost.
#[test]
fn a_region_survives_those_who_sweep() {
    let place = SharedDirectory::new();
    let shm = place.memory();
    let swept = std::thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            let (begun, mut swept) = (Instant::now(), 0);
            while begun.elapsed() < Duration::from_secs(1) {
                swept += shm.sweep().unwrap();
            }
            swept
        });
        while !sweeper.is_finished() {
            let region = shm.register(1, Access::Read).unwrap();
            shm.reach(region.grant()).expect("it was swept away");
        }
        sweeper.join().unwrap()
    });
    println!("{swept} files were swept away before they were locked");
    assert_eq!(place.files(), 0);
}

#[test]
fn a_region_without_a_name_lives_as_long_as_a_process_has_it() {
    let place = SharedDirectory::new();
    let mut region = place.memory().register(4, Access::Read).unwrap();
    let mut remote = place.memory().reach(region.grant()).unwrap();
    remote.trust_owner();
    region.close_to_others();
    assert_eq!(place.files(), 0);
    region.words()[1].store(8, Ordering::Release);
    assert_eq!(read(&mut remote), Ok(vec![0, 8, 0, 0]));
    assert!(place.memory().reach(region.grant()).is_err());
    drop(region);
    assert!(matches!(read(&mut remote), Err(RemoteError::Lost(_))));
}

#[test]
fn the_system_itself_keeps_peers_from_writing() {
    let place = SharedDirectory::new();
    let region = place.memory().register(4, Access::Read).unwrap();
    let name = std::str::from_utf8(region.grant().address()).unwrap();
    let metadata = std::fs::metadata(place.0.path().join(name)).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o400);
    let writable = place.memory().register(4, Access::Write).unwrap();
    let name = std::str::from_utf8(writable.grant().address()).unwrap();
    let metadata = std::fs::metadata(place.0.path().join(name)).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
}

/// A peer names files; only regions are opened, and only whole ones.
#[test]
fn a_grant_leads_to_nothing_but_regions() {
    let place = SharedDirectory::new();
    let region = place.memory().register(4, Access::Read).unwrap();
    let grant = |name: &str| {
        Grant::new(
            region.grant().kind(),
            Access::Read,
            4,
            region.grant().key(),
            name.as_bytes(),
        )
    };
    let name = |digit: &str| format!("kumiki-{}", digit.repeat(32));
    std::fs::write(place.0.path().join(name("1")), "short").unwrap();
    std::fs::write(place.0.path().join(name("2")), vec![0; 4096 + 32]).unwrap();
    let own = std::str::from_utf8(region.grant().address()).unwrap();
    std::os::unix::fs::symlink(place.0.path().join(own), place.0.path().join(name("3"))).unwrap();
    for name in [
        name("1"),
        name("2"),
        name("3"),
        name("4"),
        format!("../{own}"),
        String::new(),
    ] {
        assert!(place.memory().reach(&grant(&name)).is_err(), "{name}");
    }
    assert!(place.memory().reach(region.grant()).is_ok());
}

/// Another user could shorten such a file, and touching the missing part then ends the process.
#[test]
fn files_that_other_users_can_change_are_not_mapped() {
    let place = SharedDirectory::new();
    for access in [Access::Read, Access::Write] {
        let region = place.memory().register(4, access).unwrap();
        let name = std::str::from_utf8(region.grant().address()).unwrap();
        let path = place.0.path().join(name);
        assert!(place.memory().reach(region.grant()).is_ok());
        let set = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let refused = || {
            let error = place.memory().reach(region.grant()).unwrap_err();
            assert!(matches!(error, RemoteError::Refused(_)), "{error:?}");
        };
        for mode in [0o622, 0o620, 0o602] {
            set(mode);
            refused();
        }
        set(0o600);
        assert!(place.memory().reach(region.grant()).is_ok());
        // Only the superuser can give files away.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            refused();
        }
    }
}

#[test]
fn memory_that_is_not_there_is_an_error_that_says_what_to_do() {
    let place = SharedDirectory::new();
    let error = place
        .memory()
        .register(1 << 39, Access::Read)
        .expect_err("that is more than there is");
    assert!(error.to_string().contains("no room"), "{error}");
    assert_eq!(place.files(), 0);
    assert!(place.memory().register(0, Access::Read).is_err());
    assert!(Shm::in_dir("/nowhere").register(1, Access::Read).is_err());
}
