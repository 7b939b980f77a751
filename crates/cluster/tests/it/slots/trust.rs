//! The header's fields: leases, time, revocation, other owners.

use std::sync::atomic::{AtomicU64, Ordering};

use base::memory::{RemoteError, Words};
use kumiki_cluster::ramp::slots::{Address, Ask, Fallback, Options, OwnersClock, Reader, Slots};

use crate::slots::support::{
    GRACE, INCARNATION, Owned, Remote, get, get_by, options, pages, version,
};

const ONE: Result<(u64, Option<Vec<u8>>), Fallback> = Ok((1, None));

/// Returns an owner with one key, and the key's address.
fn owned(options: &Options) -> (Owned, Address) {
    let owned = Owned::new(pages(4), options);
    let address = owned.put(b"a", &crate::slots::support::absent(1));
    (owned, address)
}

/// Reads the key; before any word at or above `from`, `what` happens once.
fn with(owned: &Owned, address: Address, from: usize, what: impl FnOnce()) -> Result<(), Fallback> {
    let mut memory = Remote::new(&owned.memory);
    let mut what = Some(what);
    memory.before = Some(Box::new(move |at| {
        if (at < 24) == (from < 24)
            && at >= from
            && let Some(what) = what.take()
        {
            what();
        }
    }));
    get(&mut memory, b"a", address).map(|_| ())
}

#[test]
fn a_revoked_region_is_believed_no_more_even_if_it_was_revoked_during_the_read() {
    let (it, address) = owned(&options());
    let slot = address.at as usize;
    assert_eq!(
        with(&it, address, slot, || it.slots.revoke()),
        Err(Fallback::Gone)
    );
    assert_eq!(it.get(b"a", address), Err(Fallback::Gone));
    let ticket = it.slots.ticket(b"a").expect("no writer is active");
    assert!(it.slots.publish(ticket, b"a", &version(2, b"2")).is_err());
    // Behind the slot, and before the header.
    let (it, address) = owned(&options());
    assert_eq!(
        with(&it, address, 0, || it.slots.revoke()),
        Err(Fallback::Gone)
    );
}

#[test]
fn dropping_the_owner_revokes() {
    let (it, address) = owned(&options());
    let memory = it.memory.clone();
    drop(it);
    assert_eq!(
        get(&mut Remote::new(&memory), b"a", address),
        Err(Fallback::Gone)
    );
}

#[test]
fn time_that_passes_a_deadline_during_the_read_is_noticed() {
    let it = Owned::new(pages(4), &options());
    let address = it.put(b"a", &crate::slots::support::expiring(1, b"v", 70));
    let late = with(&it, address, 0, || it.slots.refresh_time(70));
    assert_eq!(late, Err(Fallback::Expired));
}

#[test]
fn a_lease_holds_until_its_end_by_the_owners_clock() {
    let with_lease = Options {
        lease: 5_000_000,
        ..options()
    };
    let (it, address) = owned(&with_lease);
    let mine = AtomicU64::new(100);
    let mut reader = Reader::new();
    let read = |reader: &mut Reader| {
        let mut memory = Remote::new(&it.memory);
        get_by(reader, &mut memory, b"a", address, &mut || {
            mine.load(Ordering::SeqCst)
        })
    };
    assert_eq!(
        read(&mut reader),
        Err(Fallback::Lapsed),
        "nothing is known of the clock"
    );
    let clock = OwnersClock {
        at_owner: 2_000_000,
        at_mine: 100,
    };
    reader.learn(clock);
    assert_eq!(read(&mut reader), ONE);
    // 2.996 ms later the owner's clock shows 4.999 ms at most, if it runs fast by a thousandth.
    mine.store(100 + 2_996_000, Ordering::SeqCst);
    assert_eq!(read(&mut reader), ONE);
    mine.store(100 + 2_998_000, Ordering::SeqCst);
    assert_eq!(read(&mut reader), Err(Fallback::Lapsed), "it may run fast");
    it.slots.extend_lease(9_000_000);
    assert_eq!(read(&mut reader), ONE);
    it.slots.extend_lease(3_000_000);
    assert_eq!(read(&mut reader), ONE, "a lease is not shortened");
    mine.store(99, Ordering::SeqCst);
    assert_eq!(
        read(&mut reader),
        Err(Fallback::Lapsed),
        "my clock ran backwards"
    );
}

#[test]
fn a_lease_that_ends_during_the_read_is_noticed() {
    let with_lease = Options {
        lease: 5_000_000,
        ..options()
    };
    let (it, address) = owned(&with_lease);
    let mut reader = Reader::new();
    reader.learn(OwnersClock {
        at_owner: 4_900_000,
        at_mine: 0,
    });
    let mut clock = [0, 200_000].into_iter();
    let mut memory = Remote::new(&it.memory);
    let read = get_by(&mut reader, &mut memory, b"a", address, &mut || {
        clock.next().expect("asked twice")
    });
    assert_eq!(read, Err(Fallback::Lapsed));
}

#[test]
fn a_read_that_takes_as_long_as_the_grace_period_is_not_believed() {
    let (it, address) = owned(&options());
    for (took, expected) in [
        (GRACE / 2, ONE),
        (GRACE - GRACE / 2000, Err(Fallback::Late)),
        (u64::MAX, Err(Fallback::Late)),
    ] {
        let mut clock = [500, 500_u64.saturating_add(took)].into_iter();
        let mut memory = Remote::new(&it.memory);
        let read = get_by(&mut Reader::new(), &mut memory, b"a", address, &mut || {
            clock.next().expect("asked twice")
        });
        assert_eq!(read, expected, "{took}");
    }
}

#[test]
fn another_incarnation_is_not_mistaken_for_this_one() {
    let (it, address) = owned(&options());
    // The next owner of the same memory, which has the same key in the same place.
    let next = Options {
        incarnation: INCARNATION + 1,
        ..options()
    };
    let words = Box::new(it.memory.clone());
    let slots = Slots::new(words, &next, Box::new(|| 0)).expect("as before");
    assert_eq!(it.get(b"a", address), Err(Fallback::Gone));
    let ticket = slots.ticket(b"a").expect("no writer is active");
    let new = slots
        .publish(ticket, b"a", &version(2, b"2"))
        .expect("there is room");
    assert_eq!((new.at, new.words), (address.at, address.words));
    assert_eq!(it.get(b"a", address), Err(Fallback::Gone));
    assert_eq!(it.get(b"a", new), Ok((2, Some(b"2".to_vec()))));
    // A slot of the earlier owner is not taken for one of the next owner.
    let old = Owned::new(pages(4), &options());
    let at = old.put(b"a", &version(1, b"1"));
    let words = Box::new(old.memory.clone());
    let _next = Slots::new(words, &next, Box::new(|| 0)).expect("as before");
    let forged = Address {
        incarnation: INCARNATION + 1,
        ..at
    };
    assert_eq!(old.get(b"a", forged), Err(Fallback::Moved));
}

#[test]
fn addresses_that_lead_nowhere_are_not_read() {
    let (it, address) = owned(&options());
    let len = it.memory.words().len() as u32;
    for (at, words) in [
        (0, address.words),
        (address.at, 0),
        (address.at, len),
        (len, 1),
        (u32::MAX, u32::MAX),
        (23, address.words),
    ] {
        let wrong = Address {
            at,
            words,
            ..address
        };
        assert_eq!(it.get(b"a", wrong), Err(Fallback::Moved), "{wrong:?}");
    }
    for at in 24..len - address.words {
        let wrong = Address { at, ..address };
        let read = it.get(b"a", wrong);
        assert_eq!(read.is_ok(), at == address.at, "{at}");
    }
    let part = Address {
        part: 16,
        ..address
    };
    assert_eq!(it.get(b"a", part), Err(Fallback::Moved));
}

#[test]
fn memory_of_something_else_is_no_region_of_slots() {
    let (it, address) = owned(&options());
    it.memory.words()[0].fetch_add(1, Ordering::SeqCst);
    assert_eq!(it.get(b"a", address), Err(Fallback::Gone));
}

#[test]
fn several_keys_are_answered_in_their_order_each_by_itself() {
    let it = Owned::new(pages(8), &options());
    let keys: Vec<Vec<u8>> = (0..8).map(|n| vec![b'k', n]).collect();
    let put = |n: usize| it.put(&keys[n], &version(n as u64 + 1, &[n as u8; 20]));
    let addresses: Vec<Address> = (0..8).map(put).collect();
    it.slots.writing(&keys[3]);
    let mut asks: Vec<Ask<'_>> = keys
        .iter()
        .zip(&addresses)
        .map(|(key, address)| Ask {
            key,
            address: *address,
        })
        .collect();
    asks[5].address.at = u32::MAX;
    asks[6].key = b"other";
    let (mut reader, mut memory) = (Reader::new(), Remote::shuffled(&it.memory, 3));
    reader.begin(&mut memory, &asks, 0).expect("it can be read");
    let mut seen = Vec::new();
    let finished = reader.finish(
        &mut memory,
        &asks,
        || 0,
        |at, answer| {
            seen.push((at, answer.map(|version| version.id.unique)));
        },
    );
    assert_eq!(finished, Ok(()));
    let expected = (0..8).map(|at| {
        let answer = match at {
            3 => Err(Fallback::Invalid),
            5 | 6 => Err(Fallback::Moved),
            _ => Ok(at as u64 + 1),
        };
        (at, answer)
    });
    assert_eq!(seen, expected.collect::<Vec<_>>());
    assert!(!Fallback::Moved.keeps_address() && !Fallback::Gone.keeps_address());
    let kept = Fallback::ALL.into_iter().filter(|it| it.keeps_address());
    assert_eq!(kept.count(), Fallback::ALL.len() - 2);
}

#[test]
fn two_regions_are_read_at_once_in_any_order() {
    let (one, at_one) = owned(&options());
    let two = Owned::new(
        pages(4),
        &Options {
            incarnation: 99,
            ..options()
        },
    );
    let at_two = two.put(b"b", &version(2, b"2"));
    let mut readers = [Reader::new(), Reader::new()];
    let mut memories = [Remote::new(&one.memory), Remote::new(&two.memory)];
    let asks = [
        [Ask {
            key: b"a",
            address: at_one,
        }],
        [Ask {
            key: b"b",
            address: at_two,
        }],
    ];
    for at in [0, 1] {
        readers[at]
            .begin(&mut memories[at], &asks[at], 0)
            .expect("it can be read");
    }
    one.slots.writing(b"a");
    let mut seen = Vec::new();
    for at in [1, 0] {
        let answer = |_, answer: Result<base::versions::Versioned<'_>, Fallback>| {
            seen.push(answer.map(|version| version.id.unique));
        };
        let done = readers[at].finish(&mut memories[at], &asks[at], || 0, answer);
        done.expect("it can be read");
    }
    assert_eq!(seen, [Ok(2), Err(Fallback::Invalid)]);
}

#[test]
fn a_region_that_cannot_be_read_is_an_error_and_nothing_stays_under_way() {
    let (it, address) = owned(&options());
    // Shorter than a header.
    let short = crate::slots::support::Shared::new(8 * 8);
    let mut reader = Reader::new();
    let asks = [Ask { key: b"a", address }];
    let refused = reader.begin(&mut Remote::new(&short), &asks, 0);
    assert!(matches!(refused, Err(RemoteError::Bounds { .. })));
    let read = get_by(
        &mut reader,
        &mut Remote::new(&it.memory),
        b"a",
        address,
        &mut || 0,
    );
    assert_eq!(read, ONE);
}
