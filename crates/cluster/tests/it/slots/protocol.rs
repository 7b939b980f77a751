//! One thing at a time: writers, tickets, room.

use kumiki_cluster::ramp::slots::{Address, Fallback, Options, Slots, Unpublished};

use crate::slots::support::{GRACE, Owned, Shared, absent, expiring, options, pages, version};

#[test]
fn slots_are_for_threads() {
    fn is_for_threads<T: Send + Sync>() {}
    is_for_threads::<Slots>();
}

#[test]
fn what_was_published_is_read() {
    let owned = Owned::new(pages(4), &options());
    let a = owned.put(b"a", &version(1, b"one"));
    let b = owned.put(b"b", &version(2, &[5; 200]));
    let c = owned.put(b"c", &absent(3));
    assert_eq!(owned.get(b"a", a), Ok((1, Some(b"one".to_vec()))));
    assert_eq!(owned.get(b"b", b), Ok((2, Some(vec![5; 200]))));
    assert_eq!(owned.get(b"c", c), Ok((3, None)));
    assert_eq!(owned.slots.address(b"a"), Some(a));
    assert_eq!(owned.slots.address(b"d"), None);
    assert!(owned.slots.has(b"b") && !owned.slots.has(b"d"));
    let figures = owned.slots.figures();
    assert_eq!((figures.published, figures.slots), (3, 3));
    assert_eq!(figures.bytes, pages(4) as u64);
}

#[test]
fn a_slot_is_not_believed_from_the_beginning_of_a_write_until_it_is_published_anew() {
    let owned = Owned::new(pages(4), &options());
    let a = owned.put(b"a", &version(1, b"one"));
    owned.slots.writing(b"a");
    assert_eq!(owned.get(b"a", a), Err(Fallback::Invalid));
    assert!(owned.slots.ticket(b"a").is_none(), "a writer is active");
    assert_eq!(owned.slots.address(b"a"), Some(a), "the address stays");
    owned.slots.written(b"a");
    assert_eq!(owned.get(b"a", a), Err(Fallback::Invalid));
    // It makes no difference if the write was aborted or committed.
    assert_eq!(owned.put(b"a", &version(1, b"one")), a);
    assert_eq!(owned.get(b"a", a), Ok((1, Some(b"one".to_vec()))));
}

#[test]
fn what_is_current_need_not_be_published_again() {
    let owned = Owned::new(pages(4), &options());
    assert_eq!(owned.slots.current(b"a"), None);
    let a = owned.put(b"a", &expiring(1, b"one", 50));
    assert_eq!(owned.slots.current(b"a"), Some(a));
    owned.slots.writing(b"a");
    assert_eq!(owned.slots.current(b"a"), None);
    owned.slots.written(b"a");
    assert_eq!(owned.slots.current(b"a"), None);
    owned.put(b"a", &expiring(1, b"one", 50));
    assert_eq!(owned.slots.current(b"a"), Some(a));
    owned.slots.refresh_time(50);
    assert_eq!(owned.slots.current(b"a"), None, "it has expired");
    owned.put(b"a", &absent(1));
    assert_eq!(owned.slots.current(b"a"), Some(a));
}

#[test]
fn of_several_writers_the_last_one_to_end_counts() {
    let owned = Owned::new(pages(4), &options());
    let a = owned.put(b"a", &version(1, b"one"));
    owned.slots.writing(b"a");
    owned.slots.writing(b"a");
    owned.slots.written(b"a");
    assert!(owned.slots.ticket(b"a").is_none());
    owned.slots.written(b"a");
    owned.put(b"a", &version(2, b"two"));
    assert_eq!(owned.get(b"a", a), Ok((2, Some(b"two".to_vec()))));
}

#[test]
fn an_old_version_is_not_published_over_a_newer_one() {
    for has_slot in [true, false] {
        let owned = Owned::new(pages(4), &options());
        if has_slot {
            owned.put(b"a", &version(1, b"one"));
        }
        let early = owned.slots.ticket(b"a").expect("no writer is active");
        owned.slots.writing(b"a");
        let during = owned.slots.publish(early, b"a", &version(1, b"one"));
        assert_eq!(during, Err(Unpublished::Overtaken));
        owned.slots.written(b"a");
        let late = owned.slots.publish(early, b"a", &version(1, b"one"));
        assert_eq!(late, Err(Unpublished::Overtaken));
        let a = owned.put(b"a", &version(2, b"two"));
        let later = owned.slots.publish(early, b"a", &version(1, b"one"));
        assert_eq!(later, Err(Unpublished::Overtaken));
        assert_eq!(owned.get(b"a", a), Ok((2, Some(b"two".to_vec()))));
        assert_eq!(owned.slots.figures().overtaken, 3);
    }
}

#[test]
fn a_flush_is_a_write_of_all_keys() {
    let owned = Owned::new(pages(4), &options());
    let (a, b) = (
        owned.put(b"a", &version(1, b"1")),
        owned.put(b"b", &version(2, b"2")),
    );
    let early = owned.slots.ticket(b"a").expect("no writer is active");
    owned.slots.writing_all();
    assert_eq!(owned.get(b"a", a), Err(Fallback::Invalid));
    assert_eq!(owned.get(b"b", b), Err(Fallback::Invalid));
    assert!(owned.slots.ticket(b"c").is_none());
    owned.slots.written_all();
    let late = owned.slots.publish(early, b"a", &version(1, b"1"));
    assert_eq!(late, Err(Unpublished::Overtaken));
    owned.put(b"a", &absent(3));
    assert_eq!(owned.get(b"a", a), Ok((3, None)));
}

#[test]
fn who_outgrows_a_slot_gets_another_one() {
    let owned = Owned::new(pages(4), &options());
    let small = owned.put(b"a", &version(1, &[1; 10]));
    let large = owned.put(b"a", &version(2, &[2; 300]));
    assert_ne!(small.at, large.at);
    assert_eq!(owned.get(b"a", small), Err(Fallback::Moved));
    assert_eq!(owned.get(b"a", large), Ok((2, Some(vec![2; 300]))));
    assert_eq!(owned.slots.figures().slots, 1);
    // A version that grows within its slot beyond what is read of it is not misread.
    let owned = Owned::new(
        24 * 8 + 64 * 1024,
        &Options {
            page_bytes: 64 * 1024,
            ..options()
        },
    );
    let short = owned.put(b"a", &version(1, &[1; 34_000]));
    let long = owned.put(b"a", &version(2, &[2; 60_000]));
    assert_eq!(short.at, long.at);
    assert_eq!(owned.get(b"a", short), Err(Fallback::Moved));
    assert_eq!(owned.get(b"a", long), Ok((2, Some(vec![2; 60_000]))));
}

#[test]
fn what_is_too_large_for_any_slot_has_none() {
    let owned = Owned::new(pages(4), &options());
    let a = owned.put(b"a", &version(1, b"one"));
    let ticket = owned.slots.ticket(b"a").expect("no writer is active");
    let refused = owned.slots.publish(ticket, b"a", &version(2, &[2; 500]));
    assert_eq!(refused, Err(Unpublished::TooLarge));
    assert_eq!(owned.get(b"a", a), Err(Fallback::Moved));
    assert_eq!(owned.slots.address(b"a"), None);
    let figures = owned.slots.figures();
    assert_eq!((figures.too_large, figures.slots), (1, 0));
    // The gate does not count the slot that is gone: writers of others stay off the lock, and are right.
    owned.slots.writing(b"a");
    owned.slots.written(b"a");
    assert_eq!(owned.put(b"a", &version(3, b"3")).words, a.words);
}

#[test]
fn who_expired_is_not_believed_and_can_be_published_as_absent() {
    let owned = Owned::new(pages(4), &options());
    let a = owned.put(b"a", &expiring(1, b"one", 50));
    owned.slots.refresh_time(49);
    assert_eq!(owned.get(b"a", a), Ok((1, Some(b"one".to_vec()))));
    owned.slots.refresh_time(50);
    owned.slots.refresh_time(3);
    assert_eq!(owned.get(b"a", a), Err(Fallback::Expired));
    assert_eq!(owned.put(b"a", &absent(1)), a);
    assert_eq!(owned.get(b"a", a), Ok((1, None)));
}

#[test]
fn those_who_are_asked_for_keep_their_room() {
    let owned = Owned::new(pages(4), &options());
    let key = |number: u64| number.to_le_bytes();
    let place = |number| {
        let ticket = owned
            .slots
            .ticket(&key(number))
            .expect("no writer is active");
        owned
            .slots
            .publish(ticket, &key(number), &version(number, &[9; 40]))
    };
    let first: Vec<Address> = (0..16)
        .map(|number| place(number).expect("there is room"))
        .collect();
    assert_eq!(
        place(16),
        Err(Unpublished::Full),
        "sixteen slots fill four pages"
    );
    let mut placed = 0;
    for number in 16..2000 {
        // Asks for some others, and for these four again and again.
        (0..4).for_each(|hot| assert!(owned.slots.address(&key(hot)).is_some(), "{hot}"));
        owned.pass(GRACE / 2);
        placed += u64::from(place(number).is_ok());
    }
    assert!(placed > 300, "room was made {placed} times");
    for hot in 0..4 {
        let value = Ok((hot, Some(vec![9; 40])));
        assert_eq!(owned.get(&key(hot), first[hot as usize]), value);
    }
    let figures = owned.slots.figures();
    assert!(figures.slots <= 16 && figures.full > 0 && figures.evicted >= placed - 16);
    assert_eq!(figures.published, placed + 16);
}

#[test]
fn memory_passes_from_small_slots_to_large_ones_and_back() {
    let owned = Owned::new(pages(8), &options());
    let mut number = 0;
    for round in 0..6 {
        let len = if round % 2 == 0 { 40 } else { 400 };
        let mut placed = 0;
        for _ in 0..400 {
            number += 1;
            let key = u64::to_le_bytes(number);
            let ticket = owned.slots.ticket(&key).expect("no writer is active");
            let value = vec![number as u8; len];
            if let Ok(address) = owned.slots.publish(ticket, &key, &version(number, &value)) {
                assert_eq!(owned.get(&key, address), Ok((number, Some(value))));
                placed += 1;
            }
            owned.pass(GRACE / 2);
        }
        assert!(placed > 40, "round {round}: {placed} were placed");
    }
}

#[test]
fn a_region_must_suit() {
    let make = |bytes| {
        let memory = Box::new(Shared::new(bytes));
        Slots::new(memory, &options(), Box::new(|| 0)).map(|_| ())
    };
    assert_eq!(make(pages(1)), Ok(()));
    let error = make(pages(1) - 8)
        .expect_err("less than a page")
        .to_string();
    assert!(error.contains("704") && error.contains("696"), "{error}");
}
