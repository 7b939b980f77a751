//! Regions, beyond the cases of every kind of memory.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::memory::{RemoteError, RemoteMemory, Words};
use kumiki_fabric as fabric;

use fabric::memory::{Access, Grant, Memory, Region, Remote};

use crate::verbs::net::{connect, device, domain, options, read, try_read};

/// Several pieces, in both directions, through small buffers.
#[test]
fn long_reads_and_writes_go_in_pieces() {
    const WORDS: usize = 5000;
    let mut options = options();
    (options.depths.landing_words, options.depths.staging_words) = (128, 256);
    (options.depths.sends, options.depths.signal_every) = (8, 2);
    let Some(device) = device(&options) else {
        return;
    };
    let domain = device.domain().unwrap();
    let [near, far] = connect(&domain, &domain);
    let region = far.register(WORDS, Access::Write).unwrap();
    let mut remote = near.reach(region.grant()).unwrap();
    let words: Vec<u64> = (0..WORDS as u64).map(|word| word * 7 + 1).collect();
    remote.write(0, &words).unwrap();
    assert_eq!(read(&mut remote, 0, WORDS), words);
    let owned = region
        .words()
        .iter()
        .map(|word| word.load(Ordering::Acquire));
    assert!(owned.eq(words.iter().copied()));
    // A read may begin at any place of the landing memory.
    for from in [1, 100, 127, 128, 4000] {
        assert_eq!(read(&mut remote, from, 1000), words[from..from + 1000]);
    }
}

/// More writes than the device has room for, each over the previous one, to a peer that is not
/// ready yet.
#[test]
fn writes_that_have_to_wait_take_place_in_their_order() {
    // Writes of this length do not use all words of the mailbox, nor all of the staging memory.
    const LONG: usize = 15;
    let mut options = options();
    options.dead_after = Duration::from_secs(10);
    let Some(device) = device(&options) else {
        return;
    };
    let domain = device.domain().unwrap();
    let [initiator, acceptor] = [1000, 1000].map(|words| domain.offer(words).unwrap());
    let first = initiator.grant().clone();
    let mut near = initiator.accept(acceptor.grant()).unwrap();
    let begun = Instant::now();
    for round in 1..=100 {
        near.remote.write(0, &[round; LONG]).unwrap();
    }
    // There is room for this one, but it is not its turn.
    near.remote.write(0, &[101]).unwrap();
    let mut expected = [100; LONG];
    expected[0] = 101;
    assert_eq!(near.remote.settle(), Ok(false), "no process is there");
    assert!(begun.elapsed() < options.dead_after / 2, "it has waited");
    let far = acceptor.accept(&first).unwrap();
    while !near.remote.settle().unwrap() {
        std::thread::yield_now();
    }
    let words = far.mailbox.words()[..LONG].iter();
    assert!(words.map(|word| word.load(Ordering::Acquire)).eq(expected));
}

/// The device refuses a peer that requests more than it was granted, and other peers are not
/// affected.
#[test]
fn the_device_itself_keeps_the_bounds() {
    let Some(domain) = domain() else {
        return;
    };
    let [near, far] = connect(&domain, &domain);
    let region = far.register(10, Access::Write).unwrap();
    let grant = region.grant();
    let longer = |access| Grant::new(grant.kind(), access, 20, grant.key(), grant.address());
    let mut remote = near.reach(&longer(Access::Read)).unwrap();
    assert_eq!(read(&mut remote, 9, 1), [0]);
    let error = try_read(&mut remote, 9, 2).expect_err("beyond the end");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
    let [near, _far] = connect(&domain, &domain);
    let mut remote = near.reach(&longer(Access::Write)).unwrap();
    remote.write(9, &[1, 2]).unwrap();
    let error = try_read(&mut remote, 0, 1).expect_err("it was written beyond the end");
    assert!(matches!(error, RemoteError::Lost(_)), "{error}");
    assert!(near.check().is_err());
}

#[test]
fn what_is_written_is_settled_before_it_is_said_so() {
    let Some(domain) = domain() else {
        return;
    };
    let [near, far] = connect(&domain, &domain);
    let region = far.register(1, Access::Write).unwrap();
    let mut remote = near.reach(region.grant()).unwrap();
    assert_eq!(remote.settle(), Ok(true), "nothing was written");
    for round in 1..50 {
        remote.write(0, &[round]).unwrap();
        while !remote.settle().unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(region.words()[0].load(Ordering::Acquire), round);
    }
}

/// The case of the suite, in an order that holds here: a read that is begun after the grant was
/// withdrawn.
#[test]
fn a_withdrawn_grant_does_not_hold() {
    let Some(domain) = domain() else {
        return;
    };
    let [near, far] = connect(&domain, &domain);
    let region = far.register(10, Access::Write).unwrap();
    let grant = region.grant().clone();
    let mut remote = near.reach(&grant).unwrap();
    region.words()[0].store(3, Ordering::Release);
    assert_eq!(read(&mut remote, 0, 1), [3]);
    drop(region);
    let error = try_read(&mut remote, 0, 1).expect_err("it was withdrawn");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
    let error = try_read(&mut remote, 0, 1).expect_err("a refusal ends a connection");
    assert!(matches!(error, RemoteError::Lost(_)), "{error}");
    assert!(near.check().is_err());
    let [near, _far] = connect(&domain, &domain);
    let error = near.reach(&grant).expect_err("it was withdrawn");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
}

/// Memory that by now has the place and the device's key of another region has another key of its
/// own.
#[test]
fn a_region_with_another_key_is_not_taken_for_it() {
    let Some(domain) = domain() else {
        return;
    };
    let [near, far] = connect(&domain, &domain);
    let region = far.register(10, Access::Read).unwrap();
    let mut key = region.grant().key();
    key[7] ^= 0x80;
    let grant = region.grant();
    let forged = Grant::new(grant.kind(), Access::Read, 10, key, grant.address());
    let error = near.reach(&forged).expect_err("another key");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
    // No peer requested a forbidden operation from the device, so that the connection goes on.
    assert!(near.reach(grant).is_ok());
}

#[test]
fn a_domain_s_memory_is_not_reached_from_another_one() {
    let Some(device) = device(&options()) else {
        return;
    };
    let [one, other] = [device.domain().unwrap(), device.domain().unwrap()];
    let region = one.register(10, Access::Read).unwrap();
    let [near, _far] = connect(&one, &other);
    let error = near.reach(region.grant()).expect_err("another domain");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
    let [_near, far] = connect(&one, &other);
    assert!(far.reach(region.grant()).is_ok(), "the same domain");
}

/// Reads in progress in several regions of one connection, and a refusal in one of them.
#[test]
fn a_refusal_is_told_to_whom_it_concerns() {
    let Some(domain) = domain() else {
        return;
    };
    let [near, far] = connect(&domain, &domain);
    let [first, second] = [5, 6].map(|word| {
        let region = far.register(1, Access::Read).unwrap();
        region.words()[0].store(word, Ordering::Release);
        region
    });
    let mut good = near.reach(first.grant()).unwrap();
    let mut bad = near.reach(second.grant()).unwrap();
    drop(second);
    good.begin(0, 1).unwrap();
    bad.begin(0, 1).unwrap();
    let mut words = Vec::new();
    let error = bad.finish(&mut words).expect_err("it was withdrawn");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
    good.finish(&mut words).expect("it was read before");
    assert_eq!(words, [5]);
    let error = try_read(&mut good, 0, 1).expect_err("the connection has ended");
    assert!(matches!(error, RemoteError::Lost(_)), "{error}");
}

#[test]
fn many_connections_carry_and_their_memory_is_freed() {
    let Some(domain) = domain() else {
        return;
    };
    let before = pinned();
    let mut ends = Vec::new();
    for number in 0..50 {
        let [near, far] = connect(&domain, &domain);
        let region = far.register(100, Access::Write).unwrap();
        let remote = near.reach(region.grant()).unwrap();
        ends.push((number, near, far, region, remote));
    }
    assert!(pinned() > before + 50);
    for (number, _, _, _, remote) in &mut ends {
        remote.write(99, &[*number]).unwrap();
        remote.begin(99, 1).unwrap();
    }
    for (number, near, far, region, remote) in &mut ends {
        let mut words = Vec::new();
        remote.finish(&mut words).unwrap();
        assert_eq!(words, [*number]);
        assert_eq!(region.words()[99].load(Ordering::Acquire), *number);
        near.check().unwrap();
        far.check().unwrap();
    }
    drop(ends);
    assert_eq!(pinned(), before, "KiB stay registered");
}

/// Returns the KiB that are registered with devices.
fn pinned() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmPin:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn ends_that_do_not_fit_are_refused() {
    let (Some(one), mut other) = (device(&options()), options()) else {
        return;
    };
    // The first address of RoCE in software is of version 1 or 2; the machine's is of its link.
    other.gid_index = Some(0);
    let other = device(&other).unwrap();
    let [one_end, other_end] = [one, other].map(|device| device.domain().unwrap().open().unwrap());
    let mut bytes = Vec::new();
    other_end.address().encode(&mut bytes);
    // This makes it an address of InfiniBand.
    bytes[1] = 1;
    let address = fabric::verbs::QueuePairAddress::decode(&bytes).unwrap();
    let error = one_end.connect(&address).expect_err("another kind of port");
    assert!(error.to_string().contains("GID"), "{error}");
}
