//! Grants that wait for a ledger, and what the next table does with the ledger.

use super::*;

#[test]
fn what_waits_for_a_ledger_is_told_when_the_table_stops() {
    let mut out = Vec::new();
    let table = Authority::new(&small(), None, 0, at(0), &mut out);
    out.clear();
    let request = acquire("a", 1000, 0);
    assert_eq!(
        table.request(Ticket(1), b"k", &request, at(1), &mut out),
        None
    );
    table.stop(at(2), &mut out);
    let stopping = |ticket| AuthorityCommand::Answer {
        ticket: Ticket(ticket),
        outcome: Err(LockError::Stopping),
    };
    assert_eq!(out, [stopping(1)]);
    out.clear();
    table.ledger_kept(Ok(()), at(3), &mut out);
    assert_eq!(out, []);
}

#[test]
fn a_ledger_that_was_under_way_does_not_keep_what_has_ended() {
    let last = Ledger {
        reserved: FencingToken(0),
        longest: ms(40_000),
        clean: false,
    };
    let mut out = Vec::new();
    let table = Authority::new(&small(), Some(last), 0, at(0), &mut out);
    let opens = table.next_due().expect("it opens");
    // The first ledger takes so long that the leases from before end meanwhile.
    out.clear();
    table.expire(opens, &mut out);
    assert_eq!(out, [], "one is under way");
    table.ledger_kept(Ok(()), opens, &mut out);
    let [AuthorityCommand::KeepLedger(ledger)] = out[..] else {
        panic!("{out:?}")
    };
    assert_eq!(ledger.longest, ms(10_000));
}

#[test]
fn nothing_is_granted_before_a_ledger_is_kept() {
    let mut out = Vec::new();
    let table = Authority::new(&small(), None, 0, at(0), &mut out);
    let [AuthorityCommand::KeepLedger(ledger)] = out[..] else {
        panic!("{out:?}")
    };
    assert_eq!((ledger.reserved, ledger.clean), (FencingToken(4), false));
    let ask = |ticket, now: MonotonicTime, out: &mut Vec<AuthorityCommand>| {
        table.request(Ticket(ticket), b"k", &acquire("a", 1000, 0), now, out)
    };
    let mut out = Vec::new();
    assert_eq!(ask(1, at(1), &mut out), None);
    assert_eq!(out, [], "the ledger is on its way already");
    let full = LockError::Unavailable {
        what: "a full disk".to_owned(),
    };
    table.ledger_kept(Err(full), at(2), &mut out);
    let what = "a full disk".to_owned();
    let outcome = Err(LockError::Unavailable { what });
    let ticket = Ticket(1);
    assert_eq!(out, [AuthorityCommand::Answer { ticket, outcome }]);
    // The next request asks for a ledger again.
    let mut out = Vec::new();
    assert_eq!(ask(2, at(3), &mut out), None);
    assert_eq!(out, [AuthorityCommand::KeepLedger(ledger)]);
    let mut out = Vec::new();
    table.ledger_kept(Ok(()), at(4), &mut out);
    let [AuthorityCommand::Answer { outcome, .. }] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!(token(outcome), FencingToken(0));
}

#[test]
fn a_longer_lease_waits_for_a_ledger_that_tells_of_it() {
    let mut table = Kept::new(&small(), None, 0);
    assert_eq!(table.ledger.unwrap().longest, ms(10_000));
    table.ask("k", &acquire("a", 20_000, 0), at(0));
    assert_eq!(table.ledger.unwrap().longest, ms(32_768));
    // A renewal waits, too.
    table.ask("k", &renew("a", 40_000), at(0));
    assert_eq!(table.ledger.unwrap().longest, ms(65_536));
    assert_eq!(table.answers.len(), 2);
}

#[test]
fn the_ledger_tells_of_no_lease_longer_than_any_may_be() {
    let limits = LockLimits {
        lease: ms(40_000),
        ..LockLimits::default()
    };
    let mut table = Kept::new(&Options { limits, ..small() }, None, 0);
    table.ask("k", &acquire("a", 40_000, 0), at(0));
    assert_eq!(table.ledger.unwrap().longest, ms(40_000));
    let limits = LockLimits {
        lease: ms(4_000),
        ..LockLimits::default()
    };
    let table = Kept::new(&Options { limits, ..small() }, None, 0);
    assert_eq!(table.ledger.unwrap().longest, ms(4_000));
}

#[test]
fn the_ledger_forgets_a_long_lease_when_it_has_ended() {
    let mut table = Kept::new(&small(), None, 0);
    table.ask("long", &acquire("a", 31_000, 0), at(0));
    // Until 20 s the second request may get a lease as long, which would last for 32 s.
    table.ask("k", &acquire("a", 9_000, 0), at(10_000));
    let waiting = table.ask("k", &acquire("b", 31_000, 10_000), at(10_000));
    table.expire(at(19_500));
    token(&table.answers[&waiting]);
    table.ask("k", &release("b"), at(19_600));
    for now in [40_000, 51_000] {
        table.expire(at(now));
        assert_eq!(table.ledger.unwrap().longest, ms(32_768), "{now}");
    }
    let due = table.table.next_due().expect("the ledger is to say less");
    assert_eq!(due, at(52_000));
    table.expire(due);
    assert_eq!(table.ledger.unwrap().longest, ms(10_000));
    assert_eq!(table.table.next_due(), None);
    // The next long lease waits for a ledger again.
    table.ask("long", &acquire("a", 20_000, 0), due);
    assert_eq!(table.ledger.unwrap().longest, ms(32_768));
}

#[test]
fn a_table_that_lost_its_memory_waits_for_the_longest_lease() {
    let mut table = Kept::new(&small(), None, 5);
    let mut last = token(&table.now("k", &acquire("a", 20_000, 0), at(0)));
    // The table has crashed. Its wall clock stands still; its tokens do not.
    let mut next = Kept::new(&small(), table.ledger, 5);
    let left = Duration::from_nanos(32_768_000_000 * 32 / 31) + ms(100);
    let left = Duration::from_micros(left.as_micros() as u64);
    for request in [acquire("b", 10, 1000), Request::Info, release("a")] {
        assert_eq!(
            next.now("k", &request, at(0)),
            Err(LockError::Settling { left })
        );
    }
    let opens = MonotonicTime::default() + left;
    assert_eq!(next.table.next_due(), Some(opens));
    assert_eq!(next.ledger.unwrap().longest, ms(32_768), "they still run");
    next.expire(opens);
    assert_eq!(next.ledger.unwrap().longest, ms(10_000));
    let granted = token(&next.now("k", &acquire("b", 10, 0), opens));
    assert!(granted > last);
    last = granted;
    // A stop with a lock is not clean; one without a lock is.
    for clean in [false, true] {
        let mut table = Kept::new(&small(), next.ledger, 5);
        table.expire(at(60_000));
        let granted = token(&table.now("k", &acquire("c", 1000, 0), at(60_000)));
        assert!(granted > last);
        last = granted;
        if clean {
            table.ask("k", &release("c"), at(60_001));
        }
        let mut out = Vec::new();
        table.table.stop(at(60_002), &mut out);
        table.carry_out(out, at(60_002));
        assert_eq!(table.ledger.unwrap().clean, clean);
        let refused = table.now("k", &acquire("d", 10, 0), at(60_003));
        assert_eq!(refused, Err(LockError::Stopping));
        next = table;
    }
    let mut after_clean = Kept::new(&small(), next.ledger, 5);
    assert!(token(&after_clean.now("k", &acquire("e", 10, 0), at(0))) > last);
}
