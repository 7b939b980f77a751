//! Hand-written cases, and threads; [`ledger`] has tests of the ledger, [`model`] random operations.

mod ledger;
mod model;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::lock::{Change, ChangeEffect, ChangeVerdict, FencingToken, LockLease};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> MonotonicTime {
    MonotonicTime::from_us(ms * 1000)
}

/// A table whose ledgers are kept at once.
struct Kept {
    table: Authority,
    ledger: Option<Ledger>,
    answers: BTreeMap<Ticket, Result<Answer, LockError>>,
    tickets: u64,
}

impl Kept {
    fn new(options: &Options, last: Option<Ledger>, wall_ms: u64) -> Kept {
        let mut out = Vec::new();
        let mut kept = Kept {
            table: Authority::new(options, last, wall_ms, at(0), &mut out),
            ledger: last,
            answers: BTreeMap::new(),
            tickets: 0,
        };
        kept.carry_out(out, at(0));
        kept
    }

    fn carry_out(&mut self, mut commands: Vec<AuthorityCommand>, now: MonotonicTime) {
        while let Some(command) = commands.pop() {
            match command {
                AuthorityCommand::KeepLedger(ledger) => {
                    self.ledger = Some(ledger);
                    self.table.ledger_kept(Ok(()), now, &mut commands);
                }
                AuthorityCommand::Answer { ticket, outcome } => {
                    let before = self.answers.insert(ticket, outcome);
                    assert_eq!(before, None, "two answers to {ticket:?}");
                }
            }
        }
    }

    /// Sends a request. Returns its ticket; the answer, if there is one, is among `answers`.
    fn ask(&mut self, key: &str, request: &Request<'_>, now: MonotonicTime) -> Ticket {
        self.tickets += 1;
        let (ticket, mut out) = (Ticket(self.tickets), Vec::new());
        let outcome = self
            .table
            .request(ticket, key.as_bytes(), request, now, &mut out);
        if let Some(outcome) = outcome {
            self.answers.insert(ticket, outcome);
        }
        self.carry_out(out, now);
        self.verify();
        ticket
    }

    fn now(
        &mut self,
        key: &str,
        request: &Request<'_>,
        now: MonotonicTime,
    ) -> Result<Answer, LockError> {
        let ticket = self.ask(key, request, now);
        self.answers.remove(&ticket).expect("an answer at once")
    }

    fn expire(&mut self, now: MonotonicTime) {
        let mut out = Vec::new();
        self.table.expire(now, &mut out);
        self.carry_out(out, now);
        self.verify();
    }

    fn verify(&self) {
        for part in &self.table.shards {
            let shard = part.shard.lock();
            shard.verify();
            let due = shard.next_due().map_or(NOTHING_DUE, MonotonicTime::as_us);
            assert_eq!(part.due_us.load(Ordering::Acquire), due);
        }
    }
}

fn acquire(owner: &str, lease_ms: u64, wait_ms: u64) -> Request<'_> {
    Request::Acquire {
        owner: owner.as_bytes(),
        lease: LockLease::For(ms(lease_ms)),
        wait: ms(wait_ms),
    }
}

fn renew(owner: &str, lease_ms: u64) -> Request<'_> {
    Request::Renew {
        owner: owner.as_bytes(),
        lease: LockLease::For(ms(lease_ms)),
    }
}

fn release(owner: &str) -> Request<'_> {
    let owner = owner.as_bytes();
    Request::Release { owner }
}

fn token(outcome: &Result<Answer, LockError>) -> FencingToken {
    match outcome {
        Ok(Answer::Granted { token, .. }) => *token,
        other => panic!("not granted: {other:?}"),
    }
}

fn small() -> Options {
    Options {
        shards: 2,
        block: 4,
        first_bound: ms(10_000),
        margin: ms(100),
        ..Options::default()
    }
}

#[test]
fn a_lock_is_held_until_it_is_released() {
    let mut table = Kept::new(&small(), None, 7);
    let first = token(&table.now("k", &acquire("a", 1000, 0), at(0)));
    assert_eq!(first, FencingToken::at_ms(7));
    let held = table.now("k", &acquire("b", 1000, 0), at(1));
    let Ok(Answer::Held(lock)) = held else {
        panic!("{held:?}")
    };
    assert_eq!((&*lock.value, lock.token), (&b"a"[..], first));
    assert!(matches!(lock.left, LockLease::For(left) if left >= ms(999) && left < ms(1000)));
    let not = table.now("k", &release("b"), at(2));
    assert!(matches!(not, Ok(Answer::NotHeld(Some(_)))), "{not:?}");
    assert_eq!(table.now("k", &release("a"), at(3)), Ok(Answer::Released));
    assert_eq!(
        table.now("k", &release("a"), at(3)),
        Ok(Answer::NotHeld(None))
    );
    assert_eq!(
        table.now("k", &Request::Info, at(3)),
        Ok(Answer::Info(None))
    );
    assert!(token(&table.now("k", &acquire("b", 1000, 0), at(4))) > first);
    assert_eq!(table.table.locks(), 1);
}

#[test]
fn a_lease_ends_a_little_after_its_time_and_can_be_prolonged() {
    let mut table = Kept::new(&small(), None, 0);
    let first = token(&table.now("k", &acquire("a", 320, 0), at(0)));
    assert_eq!(token(&table.now("k", &acquire("a", 100, 0), at(10))), first);
    // The shorter lease has not shortened the longer one; a thirty-first part is the margin.
    let early = table.now("k", &acquire("b", 320, 0), at(319));
    assert!(matches!(early, Ok(Answer::Held(_))), "{early:?}");
    assert_eq!(token(&table.now("k", &renew("a", 640), at(320))), first);
    let early = table.now("k", &acquire("b", 320, 0), at(320 + 640 + 20));
    assert!(matches!(early, Ok(Answer::Held(_))), "{early:?}");
    let late = table.now("k", &acquire("b", 320, 0), at(320 + 640 + 21));
    assert!(token(&late) > first);
    let lost = table.now("k", &renew("a", 640), at(981));
    assert!(matches!(lost, Ok(Answer::NotHeld(Some(_)))), "{lost:?}");
}

#[test]
fn waiters_are_served_in_their_order_or_told_when_their_time_has_passed() {
    let mut table = Kept::new(&small(), None, 0);
    table.ask("k", &acquire("a", 5000, 0), at(0));
    let second = table.ask("k", &acquire("b", 100, 3000), at(1));
    let third = table.ask("k", &acquire("c", 100, 3000), at(2));
    let short = table.ask("k", &acquire("d", 100, 50), at(3));
    let gone = table.ask("k", &acquire("e", 100, 3000), at(4));
    let again = table.ask("k", &acquire("b", 200, 3000), at(5));
    assert!(table.table.cancel(b"k", gone));
    assert!(!table.table.cancel(b"k", gone));
    table.answers.clear();
    assert_eq!(table.table.next_due(), Some(at(53)));
    table.expire(at(53));
    let told = table.answers.remove(&short);
    assert!(matches!(told, Some(Ok(Answer::Held(_)))), "{told:?}");
    assert_eq!(table.now("k", &release("a"), at(60)), Ok(Answer::Released));
    // Both requests of the same owner are one lock, as long as the longer lease.
    assert_eq!(
        token(&table.answers[&second]),
        token(&table.answers[&again])
    );
    assert!(!table.answers.contains_key(&third));
    table.expire(at(60 + 200));
    assert!(!table.answers.contains_key(&third));
    table.expire(at(60 + 207));
    assert!(token(&table.answers[&third]) > token(&table.answers[&second]));
    assert!(!table.answers.contains_key(&gone));
}

#[test]
fn the_lease_of_who_has_waited_begins_with_the_grant() {
    let mut table = Kept::new(&small(), None, 0);
    table.ask("k", &acquire("a", 5000, 0), at(0));
    let waiting = table.ask("k", &acquire("b", 100, 3000), at(32));
    table.ask("k", &release("a"), at(32 + 640));
    let told = table.answers[&waiting].clone();
    // The holder counts this lease from when it sent the request, which has waited 640 ms, or 620 ms
    // by the slowest clock.
    let expected = LockLease::For(ms(620 + 100));
    assert!(
        matches!(told, Ok(Answer::Granted { lease, .. }) if lease == expected),
        "{told:?}"
    );
    let held = table.now("k", &acquire("c", 100, 0), at(32 + 640 + 100));
    assert!(matches!(held, Ok(Answer::Held(_))), "{held:?}");
    token(&table.now("k", &acquire("c", 100, 0), at(32 + 640 + 104)));
}

#[test]
fn no_request_is_granted_after_its_wait() {
    let mut table = Kept::new(&small(), None, 0);
    table.ask("k", &acquire("a", 310, 0), at(0));
    let short = table.ask("k", &acquire("b", 5000, 400), at(1));
    let same = table.ask("k", &acquire("c", 5000, 500), at(2));
    let long = table.ask("k", &acquire("c", 5000, 900), at(3));
    // The process has stood still while the lease ended, and so did the waits of some requests.
    table.expire(at(600));
    for late in [short, same] {
        let told = table.answers[&late].clone();
        assert!(matches!(told, Ok(Answer::Held(_))), "{told:?}");
    }
    token(&table.answers[&long]);
    // The same if another request comes first.
    let mut table = Kept::new(&small(), None, 0);
    table.ask("k", &acquire("a", 310, 0), at(0));
    let short = table.ask("k", &acquire("b", 5000, 400), at(1));
    token(&table.now("k", &acquire("d", 310, 0), at(600)));
    assert!(matches!(table.answers[&short], Ok(Answer::Held(_))));
}

#[test]
fn changes_decide_about_what_is_there() {
    let mut table = Kept::new(&small(), None, 0);
    let insert = |value: &'static [u8], lease_ms: u64| {
        Change::new(move |lock| match lock {
            Some(_) => ChangeVerdict::Keep,
            None => ChangeVerdict::Set {
                value: value.to_vec(),
                lease: LockLease::For(ms(lease_ms)),
            },
        })
    };
    let set = |value: &'static [u8], lease: LockLease| {
        Change::new(move |_| ChangeVerdict::Set {
            value: value.to_vec(),
            lease,
        })
    };
    let applied = table.now("k", &Request::Change(&insert(b"a", 5000)), at(0));
    let Ok(Answer::Changed {
        found: None,
        effect: ChangeEffect::Set(first),
    }) = applied
    else {
        panic!("{applied:?}")
    };
    let refused = table.now("k", &Request::Change(&insert(b"b", 5000)), at(1));
    assert!(
        matches!(&refused, Ok(Answer::Changed { found: Some(lock), effect: ChangeEffect::Kept }) if *lock.value == *b"a")
    );
    // The same value keeps its token, and its lease may become shorter.
    let same = table.now(
        "k",
        &Request::Change(&set(b"a", LockLease::For(ms(320)))),
        at(2),
    );
    assert!(
        matches!(same, Ok(Answer::Changed { effect: ChangeEffect::Set(token), .. }) if token == first)
    );
    let other = table.now(
        "k",
        &Request::Change(&set(b"b", LockLease::For(ms(320)))),
        at(3),
    );
    assert!(
        matches!(other, Ok(Answer::Changed { effect: ChangeEffect::Set(token), .. }) if token > first)
    );
    let endless = table.now("k", &Request::Change(&set(b"b", LockLease::Endless)), at(4));
    assert_eq!(endless, Err(LockError::NeedsLease));
    let remove = Change::new(|_| ChangeVerdict::Remove);
    let removed = table.now("k", &Request::Change(&remove), at(5));
    assert!(matches!(
        removed,
        Ok(Answer::Changed {
            found: Some(_),
            effect: ChangeEffect::Removed
        })
    ));
    let nothing = table.now("k", &Request::Change(&remove), at(6));
    assert!(matches!(
        nothing,
        Ok(Answer::Changed {
            found: None,
            effect: ChangeEffect::Kept
        })
    ));
    assert_eq!(table.table.locks(), 0);
}

#[test]
fn requests_beyond_the_limits_are_refused() {
    let limits = LockLimits {
        key: 4,
        owner: 4,
        lease: ms(5000),
        locks: 2,
        waiters: 1,
        all_waiters: 100,
        ..LockLimits::default()
    };
    let mut table = Kept::new(&Options { limits, ..small() }, None, 0);
    for key in ["", "12345"] {
        let error = table.now(key, &Request::Info, at(0));
        assert_eq!(error, Err(LockError::KeyLength { limit: 4 }));
    }
    let error = table.now("k", &acquire("12345", 1, 0), at(0));
    assert_eq!(error, Err(LockError::ValueLength { limit: 4 }));
    for lease in [0, 5001] {
        let error = table.now("k", &acquire("a", lease, 0), at(0));
        assert_eq!(error, Err(LockError::LeaseLength { limit: ms(5000) }));
    }
    let endless = Request::Acquire {
        owner: b"a",
        lease: LockLease::Endless,
        wait: ms(0),
    };
    assert_eq!(table.now("k", &endless, at(0)), Err(LockError::NeedsLease));
    table.ask("1", &acquire("a", 1000, 0), at(0));
    table.ask("2", &acquire("a", 1000, 0), at(0));
    let error = table.now("3", &acquire("a", 1000, 0), at(0));
    assert_eq!(error, Err(LockError::TooManyLocks { limit: 2 }));
    table.ask("1", &acquire("b", 1000, 100), at(0));
    let error = table.now("1", &acquire("c", 1000, 100), at(0));
    assert_eq!(error, Err(LockError::TooManyWaiters { limit: 1 }));
}

#[test]
fn locks_have_so_many_bytes_together() {
    let limits = LockLimits {
        bytes: 10,
        ..LockLimits::default()
    };
    let mut table = Kept::new(&Options { limits, ..small() }, None, 0);
    table.ask("k1", &acquire("abcd", 1000, 0), at(0));
    let full = Err(LockError::TooManyLocks { limit: 1 });
    assert_eq!(table.now("k2", &acquire("abc", 1000, 0), at(0)), full);
    let waiting = table.ask("k1", &acquire("ab", 1000, 500), at(0));
    token(&table.now("k2", &acquire("ab", 1000, 0), at(0)));
    // A holder may prolong its lock, and a release makes room.
    token(&table.now("k1", &renew("abcd", 1000), at(0)));
    table.ask("k1", &release("abcd"), at(1));
    token(&table.answers[&waiting]);
    token(&table.now("k", &acquire("a", 1000, 0), at(2)));
    table.expire(at(5_000));
    assert_eq!(table.table.bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn so_many_wait_for_all_keys_and_places_are_given_up() {
    let limits = LockLimits {
        all_waiters: 3,
        ..LockLimits::default()
    };
    let mut table = Kept::new(&Options { limits, ..small() }, None, 0);
    let keys = ["1", "2", "3", "4", "5"];
    for key in keys {
        table.ask(key, &acquire("a", 1000, 0), at(0));
    }
    let waiting: Vec<Ticket> = keys[..3]
        .iter()
        .map(|key| table.ask(key, &acquire("b", 1000, 600), at(0)))
        .collect();
    let full = Err(LockError::TooManyWaiters { limit: 3 });
    assert_eq!(table.now("4", &acquire("b", 1000, 600), at(0)), full);
    // Requests that need not wait are served, and a holder can release its lock.
    assert!(matches!(
        table.now("4", &acquire("b", 1000, 0), at(0)),
        Ok(Answer::Held(_))
    ));
    // One waiter has gone, one gets its lock, and the wait of one has ended.
    assert!(table.table.cancel(b"1", waiting[0]));
    table.ask("4", &acquire("b", 1000, 600), at(0));
    assert_eq!(table.now("5", &acquire("b", 1000, 600), at(0)), full);
    assert_eq!(table.now("2", &release("a"), at(1)), Ok(Answer::Released));
    table.ask("5", &acquire("b", 1000, 600), at(1));
    assert_eq!(table.table.waiting(), 3);
    table.expire(at(700));
    assert_eq!((table.table.waiting(), table.table.expired()), (0, 0));
    // All leases end: of four keys before, and of one later.
    table.expire(at(3_000));
    assert_eq!((table.table.locks(), table.table.expired()), (0, 5));
    let mut out = Vec::new();
    table.table.stop(at(3_000), &mut out);
    table.verify();
}

#[test]
fn a_listing_has_what_is_held_in_order() {
    let mut table = Kept::new(&small(), None, 0);
    for (key, lease) in [("b/2", 1000), ("a", 1000), ("b/1", 1000), ("b/0", 10)] {
        table.ask(key, &acquire("x", lease, 0), at(0));
    }
    let listed = table.table.scan(b"b/", 10, at(500)).unwrap();
    let keys: Vec<&[u8]> = listed.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(keys, [b"b/1", b"b/2"]);
    assert_eq!(table.table.scan(b"", 1, at(500)).unwrap()[0].0, b"a");
}

#[test]
fn threads_never_hold_a_key_at_once_and_see_tokens_grow() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 3_000;
    let options = Options {
        block: 1 << 10,
        ..small()
    };
    let mut out = Vec::new();
    let table = Authority::new(&options, None, 0, at(0), &mut out);
    let begin = Instant::now();
    let clock = || MonotonicTime::default() + begin.elapsed();
    // In a proxy, another thread keeps the ledgers; here the thread that gets the command does.
    let carry_out = |out: &mut Vec<AuthorityCommand>, answers: &mut Vec<(Ticket, Answer)>| {
        while let Some(command) = out.pop() {
            match command {
                AuthorityCommand::KeepLedger(_) => table.ledger_kept(Ok(()), clock(), out),
                AuthorityCommand::Answer { ticket, outcome } => {
                    answers.push((ticket, outcome.unwrap()))
                }
            }
        }
    };
    carry_out(&mut out, &mut Vec::new());
    let held: [AtomicU64; 3] = Default::default();
    let newest: [AtomicU64; 3] = Default::default();
    let grants = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (carry_out, table, held, newest, grants, clock) =
                (&carry_out, &table, &held, &newest, &grants, &clock);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                let owner = format!("t{thread}");
                for round in 0..ROUNDS {
                    let at = rng.usize(0..3);
                    let key = [at as u8];
                    let ticket = Ticket(thread << 32 | round);
                    let (mut out, mut answers) = (Vec::new(), Vec::new());
                    let request = acquire(&owner, 5_000, 0);
                    let outcome = table.request(ticket, &key, &request, clock(), &mut out);
                    carry_out(&mut out, &mut answers);
                    let own = answers.into_iter().find(|(of, _)| *of == ticket);
                    let answer = outcome
                        .map(Result::unwrap)
                        .or(own.map(|(_, answer)| answer));
                    let Some(Answer::Granted { token, .. }) = answer else {
                        continue;
                    };
                    assert_eq!(held[at].swap(thread + 1, Ordering::SeqCst), 0);
                    assert!(newest[at].swap(token.0 + 1, Ordering::SeqCst) <= token.0);
                    grants.fetch_add(1, Ordering::Relaxed);
                    std::hint::spin_loop();
                    assert_eq!(held[at].swap(0, Ordering::SeqCst), thread + 1);
                    let outcome = table.request(ticket, &key, &release(&owner), clock(), &mut out);
                    assert_eq!(outcome, Some(Ok(Answer::Released)));
                }
            });
        }
    });
    assert!(grants.load(Ordering::Relaxed) > ROUNDS / 2);
    assert!(table.locks() <= 3);
}
