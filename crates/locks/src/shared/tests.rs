//! Hand-written cases: proxies and a model of the partition. The simulation covers faults in all
//! orders.

use std::collections::BTreeMap;

use super::era::{LENGTH_MS, TOMBSTONE_MS};
use super::*;
use crate::limits::LockLimits;
use crate::lock::{Change, ChangeEffect, ChangeVerdict, FencingToken, Lock, LockLease};
use crate::model::Partition;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What the partition does with a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mood {
    Obeys,
    /// Executes nothing, and says so.
    Refuses,
    /// Executes it, but the outcome is unknown.
    Forgets,
    /// Does not execute it, and the outcome is unknown.
    Loses,
    /// Keeps it for later, without an answer.
    Delays,
    /// Refuses it for good.
    Forbids,
}

type Late = (usize, TransactionNumber, Vec<Operation>);

/// Some proxies and their partition. Their clocks differ; time passes for all.
struct Rig {
    proxies: Vec<Shared>,
    partition: Partition,
    /// It only affects transactions that write locks, except `Refuses` and `Forbids`.
    mood: Mood,
    now: Duration,
    wall_ms: u64,
    late: Vec<Late>,
    /// Operations of each transaction.
    sent: Vec<Vec<Operation>>,
    answers: BTreeMap<Ticket, Result<Answer, LockError>>,
    tickets: u64,
}

fn writes_locks(operations: &[Operation]) -> bool {
    let put = |one: &Operation| matches!(one, Operation::Put { value, .. } if !value.is_empty());
    operations.iter().any(put)
}

impl Rig {
    fn new(proxies: u64) -> Rig {
        let proxy = |number| {
            let begin = MonotonicTime::from_us(number * 1_000_000_000);
            Shared::new(Options::default(), number + 77, begin)
        };
        Rig {
            proxies: (0..proxies).map(proxy).collect(),
            partition: Partition::default(),
            mood: Mood::Obeys,
            now: Duration::ZERO,
            wall_ms: 1_000_000,
            late: Vec::new(),
            sent: Vec::new(),
            answers: BTreeMap::new(),
            tickets: 0,
        }
    }

    fn local(&self, proxy: usize) -> MonotonicTime {
        MonotonicTime::from_us(proxy as u64 * 1_000_000_000) + self.now
    }

    /// Lets a proxy run until it has nothing to do.
    fn settle(&mut self, proxy: usize) {
        loop {
            let (local, mut out) = (self.local(proxy), Vec::new());
            self.proxies[proxy].step(local, &mut out);
            if out.is_empty() {
                return;
            }
            for command in out {
                match command {
                    SharedCommand::Answer { ticket, outcome } => {
                        let before = self.answers.insert(ticket, outcome);
                        assert_eq!(before, None, "two answers to {ticket:?}");
                    }
                    SharedCommand::Transact { number, operations } => {
                        self.transact(proxy, number, operations);
                    }
                }
            }
        }
    }

    fn transact(&mut self, proxy: usize, number: TransactionNumber, operations: Vec<Operation>) {
        self.sent.push(operations.clone());
        let mood =
            if writes_locks(&operations) || matches!(self.mood, Mood::Refuses | Mood::Forbids) {
                self.mood
            } else {
                Mood::Obeys
            };
        let what = "a test".to_owned();
        let result = match mood {
            Mood::Delays => {
                self.late.push((proxy, number, operations));
                return;
            }
            Mood::Refuses => Err(Abort::Unavailable { what }),
            Mood::Loses => Err(Abort::Unknown { what }),
            Mood::Forbids => Err(Abort::Cancelled),
            Mood::Obeys => self.partition.execute(&operations, self.wall_ms),
            Mood::Forgets => {
                let done = self.partition.execute(&operations, self.wall_ms);
                done.and(Err(Abort::Unknown { what }))
            }
        };
        let local = self.local(proxy);
        self.proxies[proxy].transacted(number, result, local);
    }

    /// Lets time pass, a few milliseconds at a time.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = end.min(self.now + ms(5));
            self.wall_ms = self.wall_ms.max(1_000_000 + self.now.as_millis() as u64);
            for proxy in 0..self.proxies.len() {
                self.settle(proxy);
            }
        }
    }

    fn ask(&mut self, proxy: usize, key: &str, request: &Request<'_>) -> Ticket {
        self.tickets += 1;
        let (ticket, local) = (Ticket(self.tickets), self.local(proxy));
        self.proxies[proxy]
            .request(ticket, key.as_bytes(), request, local)
            .expect("it is taken");
        self.settle(proxy);
        ticket
    }

    fn now(&mut self, proxy: usize, key: &str, request: &Request<'_>) -> Answer {
        let ticket = self.ask(proxy, key, request);
        let outcome = self.answers.remove(&ticket).expect("an answer at once");
        outcome.expect("it was carried out")
    }

    fn acquire(&mut self, proxy: usize, key: &str, owner: &str, lease: u64) -> FencingToken {
        token(&self.now(proxy, key, &acquire(owner, lease, 0)))
    }

    fn info(&mut self, proxy: usize, key: &str) -> Option<Lock> {
        match self.now(proxy, key, &Request::Info) {
            Answer::Info(lock) => lock,
            other => panic!("{other:?}"),
        }
    }

    /// Executes the delayed transactions after all.
    fn late_ones_come(&mut self) -> Vec<Result<Vec<OwnedReply>, Abort>> {
        let late = std::mem::take(&mut self.late);
        let execute = |(proxy, number, operations): Late| {
            let result = self.partition.execute(&operations, self.wall_ms);
            let local = MonotonicTime::from_us(proxy as u64 * 1_000_000_000) + self.now;
            self.proxies[proxy].transacted(number, result.clone(), local);
            result
        };
        late.into_iter().map(execute).collect()
    }
}

fn acquire(owner: &str, lease: u64, wait: u64) -> Request<'_> {
    Request::Acquire {
        owner: owner.as_bytes(),
        lease: LockLease::For(ms(lease)),
        wait: ms(wait),
    }
}

fn release(owner: &str) -> Request<'_> {
    let owner = owner.as_bytes();
    Request::Release { owner }
}

fn token(answer: &Answer) -> FencingToken {
    match answer {
        Answer::Granted { token, .. } => *token,
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn proxies_agree_about_who_holds_a_lock() {
    let mut rig = Rig::new(2);
    let first = rig.acquire(0, "k", "a", 1000);
    for proxy in 0..2 {
        let held = rig.now(proxy, "k", &acquire("b", 1000, 0));
        assert!(
            matches!(&held, Answer::Held(lock) if *lock.value == *b"a"),
            "{held:?}"
        );
        assert!(matches!(
            rig.now(proxy, "k", &release("b")),
            Answer::NotHeld(Some(_))
        ));
    }
    // The holder may go on at the other proxy: its token stays.
    assert_eq!(rig.acquire(1, "k", "a", 1000), first);
    assert_eq!(rig.info(0, "k").map(|lock| lock.token), Some(first));
    assert_eq!(rig.now(1, "k", &release("a")), Answer::Released);
    assert_eq!(rig.info(0, "k"), None);
    assert_eq!(rig.now(0, "k", &release("a")), Answer::NotHeld(None));
    // The partition's time stands still, and the token grows nevertheless.
    assert!(rig.acquire(0, "k", "b", 1000) > first);
    assert_eq!(rig.proxies[0].counters().tombstones, 1);
}

#[test]
fn a_free_lock_takes_one_transaction_and_many_share_one() {
    let mut rig = Rig::new(1);
    rig.acquire(0, "first", "a", 1000);
    let before = rig.sent.len();
    let local = rig.local(0);
    for number in 0..10 {
        let (ticket, key) = (Ticket(100 + number), format!("k{number}"));
        let request = acquire("a", 1000, 0);
        let taken = rig.proxies[0].request(ticket, key.as_bytes(), &request, local);
        assert_eq!(taken, Ok(()));
    }
    rig.settle(0);
    assert_eq!(rig.sent.len() - before, 1);
    for number in 0..10 {
        token(rig.answers[&Ticket(100 + number)].as_ref().unwrap());
    }
}

#[test]
fn the_lock_of_a_dead_proxy_ends_a_lease_after_it_is_first_seen() {
    let mut rig = Rig::new(2);
    let first = rig.acquire(0, "k", "a", 320);
    // Its proxy dies, and the wall clock jumps far ahead.
    rig.wall_ms += 60_000;
    let dead = rig.proxies.remove(0);
    rig.proxies.insert(
        0,
        Shared::new(Options::default(), 1, MonotonicTime::default()),
    );
    drop(dead);
    rig.now += ms(200);
    let waiting = rig.ask(1, "k", &acquire("b", 1000, 2000));
    rig.pass(ms(320 + 10 + 45));
    assert!(!rig.answers.contains_key(&waiting), "it is too early");
    rig.pass(ms(50));
    let granted = rig.answers[&waiting].clone().unwrap();
    assert!(token(&granted) > first);
    let counters = rig.proxies[1].counters();
    assert_eq!((counters.takeovers, counters.waited), (1, 1));
}

#[test]
fn the_lease_of_who_has_waited_begins_with_the_grant() {
    let mut rig = Rig::new(1);
    rig.acquire(0, "k", "a", 5000);
    let waiting = rig.ask(0, "k", &acquire("b", 320, 3000));
    rig.pass(ms(640));
    assert_eq!(rig.now(0, "k", &release("a")), Answer::Released);
    rig.pass(ms(100));
    let told = rig.answers[&waiting].clone();
    // The request has waited 640 ms, which are 620 by the slowest clock, and then for the
    // transaction.
    let (least, most) = (LockLease::For(ms(320 + 620)), ms(320 + 620 + 100));
    assert!(
        matches!(&told, Ok(Answer::Granted { lease, .. })
            if lease.max(least) == *lease && lease.max(LockLease::For(most)) == LockLease::For(most)),
        "{told:?}"
    );
    // It is held for the requested lease from then on.
    assert!(rig.info(0, "k").is_some_and(|lock| *lock.value == *b"b"));
}

#[test]
fn a_refusal_does_not_prolong_a_lease() {
    let mut rig = Rig::new(2);
    rig.acquire(0, "k", "a", 1000);
    rig.now += ms(10);
    assert!(rig.info(1, "k").is_some());
    // The other proxy has begun to measure the lease, and goes on.
    rig.now += ms(800);
    rig.mood = Mood::Forbids;
    let refused = rig.ask(1, "k", &Request::Info);
    let outcome = rig.answers[&refused].clone();
    assert!(
        matches!(outcome, Err(LockError::Refused { .. })),
        "{outcome:?}"
    );
    rig.mood = Mood::Obeys;
    let left = rig.info(1, "k").map(|lock| lock.left);
    assert!(
        matches!(left, Some(LockLease::For(left)) if left <= ms(230)),
        "{left:?}"
    );
}

#[test]
fn an_unused_lock_is_released_by_its_proxy_or_by_a_sweep() {
    let mut rig = Rig::new(1);
    rig.acquire(0, "k", "a", 320);
    rig.pass(ms(500));
    assert_eq!(rig.partition.held(), 0);
    assert_eq!(rig.proxies[0].counters().expired, 1);
    rig.pass(ms(TOMBSTONE_MS as u64 + 100));
    assert_eq!(rig.proxies[0].load(), (0, 0), "nothing is remembered");
    // Another life of the proxy does not know the locks that this one grants.
    rig.acquire(0, "k", "a", 320);
    rig.proxies[0] = Shared::new(Options::default(), 5, rig.local(0));
    rig.pass(Options::default().sweep + ms(3_000));
    assert_eq!(rig.partition.held(), 0);
    let counters = rig.proxies[0].counters();
    assert_eq!((counters.swept, counters.expired), (1, 1));
}

#[test]
fn what_took_effect_unknown_to_anybody_is_found() {
    let mut rig = Rig::new(1);
    rig.acquire(0, "other", "a", 1000);
    rig.mood = Mood::Forgets;
    let first = rig.ask(0, "k", &acquire("a", 5000, 0));
    rig.pass(ms(20));
    let granted = token(rig.answers[&first].as_ref().unwrap());
    let released = rig.ask(0, "k", &release("a"));
    rig.pass(ms(50));
    assert_eq!(rig.answers[&released], Ok(Answer::Released));
    assert_eq!(rig.proxies[0].counters().found, 2);
    rig.mood = Mood::Obeys;
    assert!(rig.acquire(0, "k", "b", 1000) > granted);
}

#[test]
fn what_did_not_take_effect_is_repeated() {
    let mut rig = Rig::new(1);
    let first = rig.acquire(0, "k", "a", 5000);
    rig.mood = Mood::Loses;
    let released = rig.ask(0, "k", &release("a"));
    let acquired = rig.ask(0, "new", &acquire("a", 5000, 0));
    rig.pass(ms(20));
    assert!(!rig.answers.contains_key(&released) && !rig.answers.contains_key(&acquired));
    rig.mood = Mood::Obeys;
    rig.pass(ms(300));
    assert_eq!(rig.answers[&released], Ok(Answer::Released));
    token(rig.answers[&acquired].as_ref().unwrap());
    assert!(rig.proxies[0].counters().repeated >= 2);
    assert!(rig.acquire(0, "k", "b", 5000) > first);
}

#[test]
fn a_change_with_an_unknown_outcome_is_not_made_twice() {
    let mut rig = Rig::new(1);
    rig.acquire(0, "other", "a", 1000);
    rig.mood = Mood::Forgets;
    let insert = Change::new(|lock| match lock {
        Some(_) => ChangeVerdict::Keep,
        None => ChangeVerdict::Set {
            value: b"row".to_vec(),
            lease: LockLease::Endless,
        },
    });
    // The second change finds its own write, and answers what that had found.
    let found = rig.ask(0, "k", &Request::Change(&insert));
    rig.pass(ms(20));
    let answer = rig.answers[&found].clone();
    assert!(
        matches!(
            answer,
            Ok(Answer::Changed {
                found: None,
                effect: ChangeEffect::Set(_)
            })
        ),
        "{answer:?}"
    );
    // It does not find its write, and cannot know whether another owner has removed it meanwhile.
    rig.mood = Mood::Loses;
    let lost = rig.ask(0, "l", &Request::Change(&insert));
    rig.pass(ms(20));
    assert!(matches!(
        rig.answers[&lost],
        Err(LockError::Uncertain { .. })
    ));
    rig.mood = Mood::Obeys;
    let endless = rig.info(0, "k").expect("it is held");
    assert_eq!(endless.left, LockLease::Endless);
    rig.pass(ms(60_000));
    assert_eq!(rig.info(0, "k"), Some(endless));
    let removed = rig.now(
        0,
        "k",
        &Request::Change(&Change::new(|_| ChangeVerdict::Remove)),
    );
    assert!(matches!(
        removed,
        Answer::Changed {
            found: Some(_),
            effect: ChangeEffect::Removed
        }
    ));
    assert_eq!(rig.info(0, "k"), None);
}

#[test]
fn a_write_that_comes_late_changes_nothing() {
    let mut rig = Rig::new(2);
    let held = rig.acquire(0, "held", "a", 30_000);
    rig.mood = Mood::Delays;
    rig.ask(0, "k", &acquire("late", 1000, 0));
    rig.ask(0, "held", &release("a"));
    // Its proxy dies. The owner goes on at the other proxy, and another owner takes and releases the
    // other key.
    rig.proxies[0] = Shared::new(Options::default(), 9, MonotonicTime::default());
    rig.mood = Mood::Obeys;
    assert_eq!(rig.acquire(1, "held", "a", 30_000), held);
    rig.acquire(1, "k", "b", 1000);
    rig.now(1, "k", &release("b"));
    let results = rig.late_ones_come();
    let [Ok(created), replaced] = &results[..] else {
        panic!("{results:?}")
    };
    assert_eq!(created[1], OwnedReply::Nil);
    assert_eq!(*replaced, Err(Abort::Precondition { op: 0 }));
    assert_eq!(rig.info(1, "k"), None);
    assert_eq!(rig.info(1, "held").map(|lock| lock.token), Some(held));
}

#[test]
fn a_creation_that_comes_after_its_era_changes_nothing() {
    let mut rig = Rig::new(1);
    rig.acquire(0, "other", "a", 1000);
    rig.mood = Mood::Delays;
    let created = rig.ask(0, "k", &acquire("late", 1000, 0));
    rig.now += Duration::from_secs(20);
    rig.wall_ms += LENGTH_MS as u64;
    let results = rig.late_ones_come();
    assert_eq!(results, [Err(Abort::Precondition { op: 0 })]);
    rig.mood = Mood::Obeys;
    rig.settle(0);
    assert!(rig.answers[&created].is_err(), "its time had passed");
    assert_eq!(rig.partition.held(), 0);
}

#[test]
fn tokens_grow_where_nothing_is_left_of_the_last_lock() {
    let mut rig = Rig::new(3);
    let mut last = FencingToken(0);
    for round in 0..12 {
        let proxy = round % 3;
        let granted = rig.acquire(proxy, "k", "a", 1000);
        assert!(granted > last, "round {round}");
        assert!(granted.ms() <= rig.wall_ms);
        last = granted;
        rig.now(proxy, "k", &release("a"));
        // The record is gone in some rounds and there in others; the era may be an old one.
        rig.wall_ms += [0, 1, 4_900, 6_100][round % 4];
    }
}

#[test]
fn who_waits_gets_a_lock_that_another_proxy_releases() {
    let mut rig = Rig::new(2);
    rig.acquire(0, "k", "a", 60_000);
    let waiting = rig.ask(1, "k", &acquire("b", 1000, 5_000));
    let second = rig.ask(1, "k", &acquire("c", 1000, 5_000));
    let short = rig.ask(1, "k", &acquire("d", 1000, 100));
    let gone = rig.ask(1, "k", &acquire("e", 1000, 5_000));
    let local = rig.local(1);
    assert!(rig.proxies[1].cancel(b"k", gone, local));
    rig.pass(ms(200));
    assert!(matches!(rig.answers[&short], Ok(Answer::Held(_))));
    assert_eq!(rig.info(1, "k").map(|lock| lock.waiters), Some(2));
    rig.now(0, "k", &release("a"));
    rig.pass(ms(400));
    let first = token(rig.answers[&waiting].as_ref().unwrap());
    assert!(!rig.answers.contains_key(&second));
    rig.pass(ms(1_500));
    assert!(token(rig.answers[&second].as_ref().unwrap()) > first);
    assert!(!rig.answers.contains_key(&gone));
}

#[test]
fn requests_end_in_time_without_a_partition() {
    let mut rig = Rig::new(1);
    rig.mood = Mood::Refuses;
    let refused = rig.ask(0, "k", &acquire("a", 1000, 0));
    let listed = Ticket(1000);
    rig.proxies[0].scan(listed, b"", 10, MonotonicTime::default());
    rig.pass(Options::default().request_timeout + ms(10));
    for ticket in [refused, listed] {
        let outcome = rig.answers.remove(&ticket);
        assert!(
            matches!(outcome, Some(Err(LockError::Unavailable { .. }))),
            "{outcome:?}"
        );
    }
    rig.mood = Mood::Obeys;
    rig.pass(ms(300));
    rig.acquire(0, "k", "b", 30_000);
    rig.mood = Mood::Delays;
    let delayed = rig.ask(0, "k", &release("b"));
    rig.pass(Options::default().request_timeout + ms(10));
    assert!(matches!(
        rig.answers[&delayed],
        Err(LockError::Uncertain { .. })
    ));
    // The delayed transactions leave no lock behind.
    rig.late_ones_come();
    rig.mood = Mood::Obeys;
    rig.pass(ms(30_000));
    assert_eq!(rig.partition.held(), 0);
}

#[test]
fn what_was_acquired_for_a_client_that_has_gone_is_released() {
    let mut rig = Rig::new(1);
    rig.acquire(0, "other", "a", 60_000);
    rig.mood = Mood::Delays;
    let gone = rig.ask(0, "k", &acquire("a", 60_000, 0));
    let again = rig.ask(0, "other", &acquire("a", 60_000, 0));
    let local = rig.local(0);
    assert!(rig.proxies[0].cancel(b"k", gone, local));
    assert!(rig.proxies[0].cancel(b"other", again, local));
    rig.mood = Mood::Obeys;
    rig.late_ones_come();
    rig.settle(0);
    assert_eq!(rig.info(0, "k"), None);
    assert!(rig.info(0, "other").is_some(), "it was held before");
    assert_eq!(rig.proxies[0].counters().undone, 1);
    assert!(!rig.answers.contains_key(&gone) && !rig.answers.contains_key(&again));
}

#[test]
fn a_record_of_another_kind_is_left_alone() {
    let mut rig = Rig::new(1);
    let put = Operation::Put {
        key: b"lock/rk".to_vec(),
        value: b"not a record".to_vec(),
        when: base::transaction::When::Always,
        expires_in_ms: None,
    };
    rig.partition.execute(&[put], 0).unwrap();
    let damaged = rig.ask(0, "k", &acquire("a", 1000, 0));
    assert_eq!(rig.answers[&damaged], Err(LockError::Damaged));
}

#[test]
fn a_listing_has_what_is_held_in_order() {
    let mut rig = Rig::new(2);
    for key in ["b/2", "a", "b/1", "b/0"] {
        rig.acquire(0, key, "x", 5_000);
    }
    rig.now(0, "b/0", &release("x"));
    let local = rig.local(1);
    rig.proxies[1].scan(Ticket(500), b"b/", 10, local);
    rig.settle(1);
    let Ok(Answer::Listing(locks)) = &rig.answers[&Ticket(500)] else {
        panic!("{:?}", rig.answers)
    };
    let keys: Vec<&[u8]> = locks.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(keys, [b"b/1", b"b/2"]);
}

#[test]
fn requests_beyond_the_limits_are_not_taken() {
    let limits = LockLimits {
        key: 3,
        owner: 3,
        lease: ms(1000),
        locks: 1,
        waiters: 1,
        all_waiters: 100,
        ..LockLimits::default()
    };
    let options = Options {
        limits,
        ..Options::default()
    };
    let mut table = Shared::new(options, 1, MonotonicTime::default());
    let mut ask = |key: &str, request: &Request<'_>| {
        table.request(Ticket(1), key.as_bytes(), request, MonotonicTime::default())
    };
    let error = ask("1234", &Request::Info);
    assert_eq!(error, Err(LockError::KeyLength { limit: 3 }));
    let error = ask("k", &acquire("1234", 1, 0));
    assert_eq!(error, Err(LockError::ValueLength { limit: 3 }));
    let error = ask("k", &acquire("a", 1001, 0));
    assert_eq!(error, Err(LockError::LeaseLength { limit: ms(1000) }));
    assert_eq!(ask("k", &acquire("a", 1000, 0)), Ok(()));
    let error = ask("k", &acquire("b", 1000, 1));
    assert_eq!(error, Err(LockError::TooManyWaiters { limit: 1 }));
    // As many again may come that do not wait, and as many again that release locks.
    assert_eq!(ask("k", &Request::Info), Ok(()));
    let error = ask("k", &Request::Info);
    assert_eq!(error, Err(LockError::TooManyWaiters { limit: 2 }));
    assert_eq!(ask("k", &release("a")), Ok(()));
    let error = ask("k", &release("a"));
    assert_eq!(error, Err(LockError::TooManyWaiters { limit: 3 }));
    let error = ask("l", &acquire("b", 1000, 0));
    assert_eq!(error, Err(LockError::TooManyLocks { limit: 1 }));
}

#[test]
fn who_holds_a_lock_can_release_it_however_many_wait() {
    let mut rig = Rig::new(1);
    rig.proxies[0].options.limits.waiters = 4;
    rig.proxies[0].options.limits.all_waiters = 5;
    rig.acquire(0, "k", "a", 60_000);
    rig.acquire(0, "l", "a", 60_000);
    let names = ["b", "c", "d", "e"];
    let mut waiting: Vec<Ticket> = names
        .iter()
        .map(|name| rig.ask(0, "k", &acquire(name, 60_000, 50_000)))
        .collect();
    assert_eq!((rig.proxies[0].held(), rig.proxies[0].open()), (2, 4));
    let local = rig.local(0);
    let request = acquire("z", 1000, 1000);
    let taken = rig.proxies[0].request(Ticket(999), b"k", &request, local);
    assert_eq!(taken, Err(LockError::TooManyWaiters { limit: 4 }));
    let other = rig.ask(0, "l", &acquire("b", 1000, 50_000));
    let taken = rig.proxies[0].request(Ticket(999), b"m", &request, local);
    assert_eq!(taken, Err(LockError::TooManyWaiters { limit: 5 }));
    // One of them has gone; the others get the lock in their order.
    assert!(rig.proxies[0].cancel(b"k", waiting.remove(1), local));
    for (owner, ticket) in ["a", "b", "d"].into_iter().zip(&waiting) {
        assert!(!rig.answers.contains_key(ticket));
        assert_eq!(rig.now(0, "k", &release(owner)), Answer::Released);
        rig.pass(ms(20));
        token(rig.answers[ticket].as_ref().expect("it is granted"));
    }
    assert_eq!(rig.now(0, "k", &release("e")), Answer::Released);
    assert_eq!(rig.now(0, "l", &release("a")), Answer::Released);
    rig.pass(ms(20));
    token(rig.answers[&other].as_ref().expect("it is granted"));
    assert_eq!((rig.proxies[0].held(), rig.proxies[0].open()), (1, 0));
    rig.pass(ms(10_000));
    assert_eq!((rig.proxies[0].held(), rig.proxies[0].load()), (0, (0, 0)));
    assert_eq!(rig.proxies[0].counters().expired, 1);
}

#[test]
fn who_holds_a_lock_can_give_it_up_however_many_ask() {
    let limits = LockLimits {
        locks: 2,
        waiters: 2,
        ..LockLimits::default()
    };
    let options = Options {
        limits,
        ..Options::default()
    };
    let mut rig = Rig::new(1);
    rig.proxies[0] = Shared::new(options, 1, rig.local(0));
    rig.acquire(0, "k", "a", 60_000);
    // No result comes back, and the queue of the key fills.
    let local = rig.local(0);
    let mut ask = |key: &[u8], request: &Request<'_>| {
        rig.tickets += 1;
        let ticket = Ticket(rig.tickets);
        rig.proxies[0].request(ticket, key, request, local)
    };
    for wait in [1_000, 1_000, 0, 0] {
        assert_eq!(ask(b"k", &acquire("b", 1000, wait)), Ok(()));
    }
    let full = |limit| Err(LockError::TooManyWaiters { limit });
    assert_eq!(ask(b"k", &acquire("b", 1000, 1_000)), full(2));
    assert_eq!(ask(b"k", &acquire("b", 1000, 0)), full(4));
    assert_eq!(ask(b"k", &Request::Info), full(4));
    assert_eq!(ask(b"k", &release("a")), Ok(()));
    // The table is full, too: another proxy may have granted the lock that is released here.
    assert_eq!(ask(b"l", &acquire("b", 1000, 0)), Ok(()));
    let limit = 2;
    let full = Err(LockError::TooManyLocks { limit });
    assert_eq!(ask(b"m", &acquire("b", 1000, 0)), full);
    assert_eq!(ask(b"m", &release("a")), Ok(()));
}
