//! The record word: the current version of a record, and the lock and marks that govern its change.
//!
//! Silo keeps a TID in each record and reads the value beside it under a sequence check. Here a
//! version is an immutable block of memory that carries its TID, and the word points to it, so that
//! one atomic load gives TID, value, type and expiry of one moment, and no read can be torn.
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 63 | `SHARED` | held by readers under two-phase locking |
//! | 62 | `STAGED` | has staged versions, which entries of the log will make current |
//! | 61 | `STAGING` | held exclusively by a transaction that is about to be submitted, and then gives the hold to the next one |
//! | 60…4 | pointer | the current version, 16-byte aligned; addresses of programs never have the bits above |
//! | 3 | `QUEUED` | the record is known to the janitor |
//! | 2 | `DEAD` | the record has left the index; look its key up again |
//! | 1 | `HELD` | held exclusively by a transaction under two-phase locking |
//! | 0 | `LOCK` | a commit is about to replace the version |
//!
//! Thread safety and invariants:
//! 1. Only the holder of `LOCK` changes the pointer, `DEAD` or `QUEUED`.
//! 2. `DEAD` is never cleared; a dead word is never locked again.
//! 3. [`Word::publish`] releases: a thread that loads the pointer sees the version's bytes.
//! 4. A version that was current stays in memory until every worker that could have loaded it has
//!    left its epoch, so that an unchanged pointer means an unchanged record.
//! 5. `HELD`, `SHARED`, `STAGING` and `STAGED` summarise the table of holds (module `holds`): they change
//!    together with it, under its mutex. A word with `HELD`, `SHARED` or `STAGING` is not locked, so that
//!    nothing else of it changes: the holder of `HELD` may publish as if it had `LOCK`. A word with `STAGED`
//!    is locked by transactions that are staged after those versions.
//! 6. Only the applier of the log locks a word that has these marks, to make a staged version current. Until
//!    it has done so they may change, so that it keeps those that it finds then.

use base::planted::{self, Bug};

use crate::sync::{AtomicU64, Ordering, SPINS, spin_hint};

pub(crate) const LOCK: u64 = 1;
pub(crate) const HELD: u64 = 1 << 1;
pub(crate) const DEAD: u64 = 1 << 2;
pub(crate) const QUEUED: u64 = 1 << 3;
pub(crate) const STAGING: u64 = 1 << 61;
pub(crate) const STAGED: u64 = 1 << 62;
pub(crate) const SHARED: u64 = 1 << 63;
const MARKS: u64 = LOCK | HELD | DEAD | QUEUED | HOLDS;
/// The marks that keep a commit from locking; the planted bug is a commit that does not see
/// readers.
const HOLDS: u64 = HELD | SHARED | STAGING | STAGED;

/// A value of the word at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WordValue(pub(crate) u64);

impl WordValue {
    /// Returns the address of the current version.
    #[inline]
    pub(crate) fn pointer(self) -> u64 {
        self.0 & !MARKS
    }

    #[inline]
    pub(crate) fn has(self, mark: u64) -> bool {
        self.0 & mark != 0
    }
}

/// The reason why a record cannot be locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockRefusal {
    /// Another commit has it.
    Busy,
    /// A transaction under two-phase locking has it.
    Held,
    /// The record has left the index.
    Dead,
}

pub(crate) struct Word(AtomicU64);

impl Word {
    pub(crate) fn new(pointer: u64) -> Word {
        debug_assert_eq!(pointer & MARKS, 0, "a version is 16-byte aligned");
        Word(AtomicU64::new(pointer))
    }

    #[inline]
    pub(crate) fn load(&self) -> WordValue {
        WordValue(self.0.load(Ordering::Acquire))
    }

    /// Locks the word, or returns the reason why it cannot: at once if the record is held, after
    /// some patience if another commit has it. On success the word is as returned until
    /// [`Word::publish`] or [`Word::unlock`].
    #[inline]
    pub(crate) fn lock(&self) -> Result<WordValue, LockRefusal> {
        self.lock_unless(HOLDS)
    }

    /// Locks for a transaction that is staged after the staged versions of the record.
    pub(crate) fn lock_to_stage(&self) -> Result<WordValue, LockRefusal> {
        self.lock_unless(HOLDS & !STAGED)
    }

    /// Locks for a transaction that validates when it commits.
    #[inline]
    pub(crate) fn lock_to_commit(&self) -> Result<WordValue, LockRefusal> {
        self.lock_unless(if planted::is(Bug::IgnoredHolds) {
            HELD
        } else {
            HOLDS
        })
    }

    #[inline]
    fn lock_unless(&self, held: u64) -> Result<WordValue, LockRefusal> {
        for _ in 0..SPINS {
            let seen = self.0.load(Ordering::Relaxed);
            if seen & DEAD != 0 {
                return Err(LockRefusal::Dead);
            }
            if seen & (LOCK | held) == 0 {
                let taken = self.0.compare_exchange_weak(
                    seen,
                    seen | LOCK,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if taken.is_ok() {
                    return Ok(WordValue(seen | LOCK));
                }
            } else if seen & held != 0 {
                return Err(LockRefusal::Held);
            }
            spin_hint();
        }
        Err(LockRefusal::Busy)
    }

    /// Makes `pointer` current and unlocks, adding `marks` (`QUEUED` or `DEAD`). The caller has
    /// the lock, or holds the record exclusively and gives the hold back by this.
    #[inline]
    pub(crate) fn publish(&self, locked: WordValue, pointer: u64, marks: u64) {
        debug_assert!(locked.has(LOCK | HELD), "publishing without the lock");
        if locked.has(LOCK) && locked.has(HOLDS) {
            return self.publish_held(pointer, marks);
        }
        let kept = locked.0 & (QUEUED | SHARED);
        self.0.store(pointer | kept | marks, Ordering::Release);
    }

    /// Makes `pointer` current and unlocks, and keeps the marks of holds, which may change meanwhile.
    #[cold]
    fn publish_held(&self, pointer: u64, marks: u64) {
        loop {
            let now = self.load();
            let kept = now.0 & (QUEUED | HOLDS);
            if self.change(now, pointer | kept | marks) {
                return;
            }
        }
    }

    /// Unlocks without a new version; `marks` replace the previous ones, but for `SHARED` and `STAGED`.
    #[inline]
    pub(crate) fn unlock(&self, locked: WordValue, marks: u64) {
        debug_assert!(locked.has(LOCK), "unlocking without the lock");
        if locked.has(SHARED) {
            // A planted commit has locked it in spite of its readers, who may leave meanwhile.
            return self.publish_held(locked.pointer(), marks);
        }
        let kept = locked.0 & STAGED;
        self.0
            .store(locked.pointer() | kept | marks, Ordering::Release);
    }

    /// Marks the record as shared if its newest version still is that of `seen`, and no transaction writes it:
    /// validates a read and holds it in one step. `staged` is the address of the newest staged version, for a
    /// reader that may use it. Under the mutex of the table of holds.
    pub(crate) fn share(&self, seen: WordValue, staged: Option<u64>) -> Result<(), LockRefusal> {
        let refused = match staged {
            Some(_) => HELD | STAGING,
            None => HELD | STAGING | STAGED,
        };
        loop {
            let now = self.load();
            if now.has(refused) {
                return Err(LockRefusal::Held);
            }
            if staged.unwrap_or(now.pointer()) != seen.pointer() || now.has(DEAD) {
                return Err(LockRefusal::Dead);
            }
            if now.has(LOCK) {
                return Err(LockRefusal::Busy);
            }
            if now.has(SHARED) || self.change(now, now.0 | SHARED) {
                return Ok(());
            }
        }
    }

    /// Removes the marks of holds but for `STAGED`, and adds the marks that `marks` returns for the word.
    /// Returns the word as it was. Under the mutex of the table of holds.
    pub(crate) fn release_hold(&self, marks: impl Fn(WordValue) -> u64) -> WordValue {
        loop {
            let now = self.load();
            if self.change(now, now.0 & !(HOLDS & !STAGED) | marks(now)) {
                return now;
            }
            spin_hint();
        }
    }

    /// Replaces the mark `from` by the mark `to`, which may be none. Under the mutex of the table of holds.
    pub(crate) fn replace_hold(&self, from: u64, to: u64) {
        loop {
            let now = self.load();
            if self.change(now, now.0 & !from | to) {
                return;
            }
        }
    }

    /// Removes the marks `given_back` and locks, in spite of all other holds; returns `None` if another thread has
    /// the lock. Under the mutex of the table of holds.
    pub(crate) fn lock_over(&self, given_back: u64) -> Option<WordValue> {
        loop {
            let now = self.load();
            if now.has(LOCK | DEAD) {
                return None;
            }
            let locked = now.0 & !given_back | LOCK;
            if self.change(now, locked) {
                return Some(WordValue(locked));
            }
        }
    }

    fn change(&self, from: WordValue, to: u64) -> bool {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.0
            .compare_exchange(from.0, to, order.0, order.1)
            .is_ok()
    }

    /// Returns `true` if a read of `seen` still holds for a transaction that has locked this record
    /// itself or (`own` is `false`) has not. Holds of other readers do no harm.
    #[inline]
    pub(crate) fn validates(&self, seen: WordValue, own: bool) -> bool {
        let now = self.load();
        now.pointer() == seen.pointer()
            && !now.has(DEAD)
            && (planted::is(Bug::IgnoredHolds) || !now.has(HELD | STAGING))
            && (own || !now.has(LOCK))
    }
}
