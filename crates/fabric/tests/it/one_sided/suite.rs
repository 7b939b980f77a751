//! The cases. Each takes memory of any kind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::memory::{RemoteError, RemoteMemory, Words};
use kumiki_fabric as fabric;

use fabric::memory::{Access, Grant, Memory, Region, Remote};
use testkit::SetOnDrop;

/// The greatest time of a case: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads words; the case expects this to succeed.
fn read(remote: &mut impl RemoteMemory, from: usize, count: usize) -> Vec<u64> {
    let mut words = Vec::new();
    remote.begin(from, count).unwrap();
    remote.finish(&mut words).unwrap();
    words
}

/// Returns the error of a read.
fn read_error(remote: &mut impl RemoteMemory) -> RemoteError {
    let mut words = vec![77];
    let read = remote
        .begin(0, 1)
        .and_then(|()| remote.finish(&mut words))
        .unwrap_err();
    assert_eq!(words, [77], "something was appended");
    read
}

/// Waits until the owner can see what was written.
fn settle(remote: &mut impl Remote) {
    let begun = Instant::now();
    while !remote.settle().unwrap() {
        assert!(begun.elapsed() < PATIENCE, "it never is there");
        std::thread::yield_now();
    }
}

pub(crate) fn both_sides_see_what_the_other_has_written<M: Memory>(memory: &M) {
    let region = memory.register(1000, Access::Write).unwrap();
    let mut remote = memory.reach(region.grant()).unwrap();
    assert_eq!((remote.len(), region.words().len()), (1000, 1000));
    assert_eq!(read(&mut remote, 0, 1000), [0; 1000]);
    for (place, word) in region.words().iter().enumerate() {
        word.store(place as u64 * 3, Ordering::Relaxed);
    }
    let expected: Vec<u64> = (0..1000).map(|place| place * 3).collect();
    assert_eq!(read(&mut remote, 0, 1000), expected);
    assert_eq!(read(&mut remote, 998, 2), [2994, 2997]);
    assert_eq!(read(&mut remote, 1000, 0), [0_u64; 0]);
    remote.write(997, &[u64::MAX, 1, 2]).unwrap();
    remote.write(0, &[]).unwrap();
    settle(&mut remote);
    let last: Vec<u64> = region.words()[996..]
        .iter()
        .map(|word| word.load(Ordering::Acquire))
        .collect();
    assert_eq!(last, [2988, u64::MAX, 1, 2]);
}

pub(crate) fn reads_are_appended_in_the_order_in_which_they_were_begun<M: Memory>(memory: &M) {
    let region = memory.register(100, Access::Read).unwrap();
    let mut remote = memory.reach(region.grant()).unwrap();
    for (place, word) in region.words().iter().enumerate() {
        word.store(place as u64, Ordering::Relaxed);
    }
    let mut words = vec![9];
    for (from, count) in [(50, 2), (0, 1), (99, 1), (50, 1)] {
        remote.begin(from, count).unwrap();
    }
    remote.finish(&mut words).unwrap();
    assert_eq!(words, [9, 50, 51, 0, 99, 50]);
    remote.finish(&mut words).unwrap();
    assert_eq!(words.len(), 6, "nothing was begun");
}

pub(crate) fn nothing_beyond_the_end_is_read_or_written<M: Memory>(memory: &M) {
    let region = memory.register(10, Access::Write).unwrap();
    let mut remote = memory.reach(region.grant()).unwrap();
    for (from, count) in [(10, 1), (0, 11), (9, 2), (usize::MAX, 2), (1 << 61, 1)] {
        let error = remote.begin(from, count).unwrap_err();
        assert!(matches!(error, RemoteError::Bounds { len: 10, .. }));
    }
    let mut words = Vec::new();
    remote.finish(&mut words).unwrap();
    assert_eq!(words, [0_u64; 0], "nothing was begun");
    for (from, count) in [(10, 1), (0, 11), (9, 2), (usize::MAX, 1)] {
        let error = remote.write(from, &vec![1; count]).unwrap_err();
        assert!(matches!(error, RemoteError::Bounds { len: 10, .. }));
    }
    assert_eq!(read(&mut remote, 0, 10), [0; 10]);
}

pub(crate) fn what_was_not_granted_is_refused<M: Memory>(memory: &M) {
    let region = memory.register(10, Access::Read).unwrap();
    let other = memory.register(10, Access::Read).unwrap();
    let grant = region.grant();
    assert_ne!(grant.key(), other.grant().key());
    let forged = |access, words, key| Grant::new(grant.kind(), access, words, key, grant.address());
    let mut wrong = grant.key();
    wrong[15] ^= 1;
    for (what, forged) in [
        ("a wrong key", forged(Access::Read, 10, wrong)),
        (
            "another's key",
            forged(Access::Read, 10, other.grant().key()),
        ),
        ("more words", forged(Access::Read, 11, grant.key())),
        ("writing", forged(Access::Write, 10, grant.key())),
    ] {
        // Some kinds find the error when the memory is used.
        let used = memory.reach(&forged).and_then(|mut remote| {
            if forged.access() == Access::Write {
                remote.write(9, &[1])?;
                while !remote.settle()? {
                    std::thread::yield_now();
                }
                return Ok(());
            }
            remote.begin(forged.words() - 1, 1)?;
            remote.finish(&mut Vec::new())
        });
        let error = used.expect_err(what);
        assert!(
            !matches!(error, RemoteError::Bounds { .. }),
            "{what}: {error}"
        );
        assert_eq!(region.words()[9].load(Ordering::Relaxed), 0, "{what}");
    }
    let mut remote = memory.reach(grant).unwrap();
    let error = remote.write(0, &[1]).unwrap_err();
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
    assert_eq!(read(&mut remote, 0, 10), [0; 10]);
}

pub(crate) fn a_grant_travels_in_a_message<M: Memory>(memory: &M) {
    let region = memory.register(10, Access::Write).unwrap();
    let mut message = Vec::new();
    region.grant().encode(&mut message);
    let grant = Grant::decode(&message).unwrap();
    let mut remote = memory.reach(&grant).unwrap();
    remote.write(3, &[5]).unwrap();
    settle(&mut remote);
    assert_eq!(region.words()[3].load(Ordering::Acquire), 5);
}

pub(crate) fn a_withdrawn_grant_does_not_hold<M: Memory>(memory: &M) {
    let region = memory.register(10, Access::Write).unwrap();
    let grant = region.grant().clone();
    let mut remote = memory.reach(&grant).unwrap();
    remote.begin(0, 1).unwrap();
    drop(region);
    let mut words = Vec::new();
    let error = remote.finish(&mut words).unwrap_err();
    let gone =
        |error: &RemoteError| matches!(error, RemoteError::Lost(_) | RemoteError::Refused(_));
    assert!(gone(&error) && words.is_empty(), "{error}");
    assert!(gone(&read_error(&mut remote)));
    let written = remote.write(0, &[1]).and_then(|()| remote.settle());
    assert!(gone(&written.unwrap_err()));
    assert!(memory.reach(&grant).is_err_and(|error| gone(&error)));
}

/// The number of words of a row, the last of which is its checksum. Each word contains its version,
/// and its place.
const ROW: usize = 32;

fn row(version: u64) -> [u64; ROW] {
    let mut row = std::array::from_fn(|place| {
        let low = (version as u32).wrapping_mul(0x9e37_79b9) ^ place as u32;
        version << 32 | u64::from(low)
    });
    row[ROW - 1] = checksum(&row[..ROW - 1]);
    row
}

fn checksum(words: &[u64]) -> u64 {
    words.iter().fold(17, |sum: u64, word| {
        (sum ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29)
    })
}

pub(crate) fn words_are_whole_and_torn_rows_are_noticed<M: Memory>(memory: &M)
where
    M::Region: Sync,
{
    let region = memory.register(ROW, Access::Read).unwrap();
    let mut remote = memory.reach(region.grant()).unwrap();
    let write = |version| {
        for (to, word) in region.words().iter().zip(row(version)) {
            to.store(word, Ordering::Relaxed);
        }
    };
    write(1);
    let (begun, stop) = (Instant::now(), AtomicBool::new(false));
    let (mut torn, mut newest) = (0, 0);
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&stop);
        scope.spawn(|| {
            let mut version = 1;
            while !stop.load(Ordering::Relaxed) {
                version += 1;
                write(version);
            }
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while torn < 100 || newest < 100 {
                let words = read(&mut remote, 0, ROW);
                for (place, &word) in words[..ROW - 1].iter().enumerate() {
                    assert_eq!(word, row(word >> 32)[place], "a torn word");
                }
                if checksum(&words[..ROW - 1]) == words[ROW - 1] {
                    newest = words[0] >> 32;
                    assert_eq!(words, row(newest), "a torn row has passed");
                } else {
                    torn += 1;
                }
                assert!(begun.elapsed() < PATIENCE, "torn {torn}, newest {newest}");
            }
        }));
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
}

pub(crate) fn many_regions_do_not_meet<M: Memory>(memory: &M) {
    let regions: Vec<M::Region> = (0..50)
        .map(|_| memory.register(3, Access::Write).unwrap())
        .collect();
    let mut remotes: Vec<M::Remote> = regions
        .iter()
        .map(|region| memory.reach(region.grant()).unwrap())
        .collect();
    for (number, remote) in remotes.iter_mut().enumerate() {
        remote.write(0, &[number as u64; 3]).unwrap();
    }
    for (number, remote) in remotes.iter_mut().enumerate() {
        settle(remote);
        assert_eq!(read(remote, 0, 3), [number as u64; 3]);
    }
}
