//! The protocol of a record's word.

#![allow(unsafe_code)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::engine::word::{DEAD, HELD, LockRefusal, QUEUED, SHARED, Word};

const OLD: u64 = 16;
const NEW: u64 = 32;

/// Runs Silo's commit of a transaction that read `from` and writes `to`, with the fence of the
/// commit epoch.
fn commit(from: &Word, to: &Word) -> bool {
    let seen = from.load();
    let Ok(locked) = to.lock() else { return false };
    fence(Ordering::SeqCst);
    let valid = from.validates(seen, false);
    if valid {
        to.publish(locked, NEW, 0);
    } else {
        to.unlock(locked, locked.0 & QUEUED);
    }
    valid && seen.pointer() == OLD
}

#[test]
fn two_transactions_that_read_the_others_write_do_not_both_commit() {
    loom::model(|| {
        let words = Arc::new((Word::new(OLD), Word::new(OLD)));
        let other = Arc::clone(&words);
        let one = thread::spawn(move || commit(&other.0, &other.1));
        let two = commit(&words.1, &words.0);
        assert!(!(one.join().unwrap() && two), "write skew");
    });
}

#[test]
fn a_thread_that_sees_the_pointer_sees_the_version() {
    loom::model(|| {
        let word = Arc::new(Word::new(OLD));
        let version = Arc::new(UnsafeCell::new(0));
        let (w, v) = (Arc::clone(&word), Arc::clone(&version));
        let writer = thread::spawn(move || {
            let locked = w.lock().expect("no other thread locks");
            // SAFETY: unpublished; the reader looks only behind the new pointer.
            v.with_mut(|v| unsafe { *v = 7 });
            w.publish(locked, NEW, 0);
        });
        if word.load().pointer() == NEW {
            // SAFETY: published before.
            version.with(|v| assert_eq!(unsafe { *v }, 7));
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_lock_has_one_holder_and_marks_are_kept() {
    loom::model(|| {
        let word = Arc::new(Word::new(OLD));
        let held = Arc::new(UnsafeCell::new(0));
        let enter = |word: &Word, held: &UnsafeCell<i32>| {
            let Ok(seen) = word.lock() else { return 0 };
            // SAFETY: the lock makes this access exclusive; loom reports it if it does not.
            held.with_mut(|held| unsafe { *held += 1 });
            word.unlock(seen, QUEUED);
            1
        };
        let (w, h) = (Arc::clone(&word), Arc::clone(&held));
        let one = thread::spawn(move || enter(&w, &h));
        let entered = enter(&word, &held) + one.join().unwrap();
        // SAFETY: the other thread has ended.
        held.with(|held| assert_eq!(unsafe { *held }, entered));
        assert!(entered > 0 && word.load().has(QUEUED));
    });
}

#[test]
fn a_dead_word_stays_dead_and_invalidates_readers() {
    loom::model(|| {
        let word = Arc::new(Word::new(OLD));
        let seen = word.load();
        let w = Arc::clone(&word);
        let remover = thread::spawn(move || {
            if let Ok(locked) = w.lock() {
                w.unlock(locked, DEAD);
            }
        });
        let written = word
            .lock()
            .map(|locked| word.publish(locked, NEW, 0))
            .is_ok();
        remover.join().unwrap();
        if word.load().has(DEAD) {
            assert_eq!(word.lock().err(), Some(LockRefusal::Dead));
            assert!(!word.validates(seen, false));
        } else {
            assert!(written);
        }
    });
}

/// Runs a transaction under two-phase locking that reads `from` and writes `to`: prepared, then
/// decided.
fn prepare_and_commit(from: &Word, to: &Word) -> bool {
    let seen = from.load();
    let Ok(locked) = to.lock() else { return false };
    fence(Ordering::SeqCst);
    if from.share(seen, None).is_err() {
        to.unlock(locked, locked.0 & QUEUED);
        return false;
    }
    to.unlock(locked, locked.0 & QUEUED | HELD);
    let held = to.load();
    assert!(held.has(HELD) && held.pointer() == locked.pointer());
    to.publish(held, NEW, 0);
    from.release_hold(|_| 0);
    seen.pointer() == OLD
}

#[test]
fn a_commit_and_a_prepared_one_do_not_overlook_each_other() {
    loom::model(|| {
        let words = Arc::new((Word::new(OLD), Word::new(OLD)));
        let other = Arc::clone(&words);
        let one = thread::spawn(move || commit(&other.0, &other.1));
        let two = prepare_and_commit(&words.1, &words.0);
        assert!(!(one.join().unwrap() && two), "write skew");
        assert!(!words.0.load().has(HELD | SHARED) && !words.1.load().has(HELD | SHARED));
    });
}

#[test]
fn two_prepared_ones_do_not_overlook_each_other() {
    loom::model(|| {
        let words = Arc::new((Word::new(OLD), Word::new(OLD)));
        let other = Arc::clone(&words);
        let one = thread::spawn(move || prepare_and_commit(&other.0, &other.1));
        let two = prepare_and_commit(&words.1, &words.0);
        assert!(!(one.join().unwrap() && two), "write skew");
    });
}

#[test]
fn what_is_shared_does_not_change_until_the_last_reader_has_left() {
    loom::model(|| {
        let word = Arc::new(Word::new(OLD));
        // The table of holds: the number of readers.
        let table = Arc::new(Mutex::new(0));
        let read = |word: &Word, table: &Mutex<u32>| {
            let seen = word.load();
            {
                let mut readers = table.lock().unwrap();
                if word.share(seen, None).is_err() {
                    return;
                }
                *readers += 1;
            }
            assert_eq!(word.load().pointer(), seen.pointer(), "held");
            let mut readers = table.lock().unwrap();
            *readers -= 1;
            if *readers == 0 {
                word.release_hold(|_| QUEUED);
            }
        };
        let (w, t) = (Arc::clone(&word), Arc::clone(&table));
        let reader = thread::spawn(move || read(&w, &t));
        let w = Arc::clone(&word);
        let writer = thread::spawn(move || {
            if let Ok(locked) = w.lock() {
                assert!(!locked.has(SHARED));
                w.publish(locked, NEW, 0);
            }
        });
        read(&word, &table);
        reader.join().unwrap();
        writer.join().unwrap();
        assert!(!word.load().has(SHARED));
        assert!(word.lock().is_ok());
    });
}
