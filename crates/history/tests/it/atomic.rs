//! Hand-written histories for the checkers of read atomicity: each anomaly must be found and named,
//! and allowed histories must be accepted.

use kumiki_history::Anomaly;
use kumiki_history::check::{Guarantee, read_atomic, strictly_read_atomic, strictly_serializable};

use crate::support::notation::history;
use crate::support::violation;

/// Checks that a history is not read atomic, for this reason and with these transactions as
/// evidence, with and without respect to time.
#[track_caller]
fn broken(text: &str, anomaly: Anomaly, transactions: &[u64]) {
    let history = history(text);
    for verdict in [read_atomic(&history), strictly_read_atomic(&history)] {
        let mut found = violation(verdict);
        assert_eq!(found.anomaly, anomaly, "{found}");
        assert!(found.certain, "{found}");
        found.transactions.sort_unstable();
        assert_eq!(found.transactions, transactions, "{found}");
    }
}

/// Checks that a history is read atomic, but that some key is not linearizable.
#[track_caller]
fn late(text: &str, anomaly: Anomaly, transactions: &[u64]) {
    let history = history(text);
    assert_eq!(read_atomic(&history).to_string(), "accepted");
    let mut found = violation(strictly_read_atomic(&history));
    assert_eq!(found.anomaly, anomaly, "{found}");
    assert!(found.certain, "{found}");
    found.transactions.sort_unstable();
    assert_eq!(found.transactions, transactions, "{found}");
}

#[track_caller]
fn accepted(text: &str) {
    let history = history(text);
    assert_eq!(strictly_read_atomic(&history).to_string(), "accepted");
    assert_eq!(read_atomic(&history).to_string(), "accepted");
}

#[test]
fn a_fractured_read_over_two_keys() {
    let text = "1 0-9: w x 1 10, w y 1 10
                2 0-9: w x 2 20, w y 2 20
                3 2-8: r x 1, r y 2";
    broken(text, Anomaly::FracturedRead, &[1, 2, 3]);
}

#[test]
fn a_mixture_of_two_writers_is_fractured_whichever_was_first() {
    let text = "1 0-9: w x 1, w y 1
                2 0-9: w x 2, w y 2
                3 2-8: r x 1, r y 2";
    broken(text, Anomaly::FracturedRead, &[1, 2, 3]);
}

#[test]
fn a_fractured_read_over_three_keys_with_a_later_overwrite() {
    // z shows nothing: 4 wrote it alone. But x and y were seen mixed.
    let text = "1 0-5: w x 1, w y 1, w z 1
                2 0-5: w x 2, w y 2, w z 2
                4 6-7: w z 4
                3 1-9: r x 2, r y 1, r z 4";
    broken(text, Anomaly::FracturedRead, &[1, 2, 3]);
    accepted(
        "1 0-5: w x 1, w y 1, w z 1
         2 0-5: w x 2, w y 2, w z 2
         4 6-7: w z 4
         3 1-9: r x 2, r y 2, r z 4",
    );
}

#[test]
fn a_fracture_that_two_readers_show_together() {
    // Each reader alone can be explained, but not by one order of 1 and 2.
    let text = "1 0-9: w x 1, w y 1, w a 1
                2 0-9: w x 2, w y 2, w b 2
                3 2-8: r a 1, r x 2
                4 2-8: r b 2, r y 1";
    broken(text, Anomaly::FracturedRead, &[1, 2, 3, 4]);
}

#[test]
fn half_of_the_first_write_of_two_keys() {
    let text = "1 0-9: w x 1, w y 1
                2 2-8: r x 1, r y -";
    broken(text, Anomaly::FracturedRead, &[1, 2]);
}

#[test]
fn half_of_a_write_of_unknown_outcome() {
    let text = "1 0-1: w x 1, w y 1
                2 2-3 unknown: w x 2, w y 2
                3 4-5: r x 2, r y 1";
    broken(text, Anomaly::FracturedRead, &[1, 2, 3]);
}

#[test]
fn a_fractured_read_by_time() {
    let text = "1 0-1: w x 1
                2 2-3: w x 2, w y 2
                3 2-8: r x 1, r y 2";
    let history = history(text);
    let found = violation(read_atomic(&history));
    assert_eq!(
        (found.anomaly, found.certain),
        (Anomaly::FracturedRead, false),
        "{found}"
    );
    let found = violation(strictly_read_atomic(&history));
    assert_eq!(
        (found.anomaly, found.certain),
        (Anomaly::FracturedRead, true),
        "{found}"
    );
    accepted(
        "1 0-3: w x 1
         2 2-3: w x 2, w y 2
         3 2-8: r x 1, r y 2",
    );
}

#[test]
fn a_delete_of_two_keys_that_was_seen_at_one() {
    let text = "1 0-1: w x 1, w y 1
                2 2-9: d x, d y
                3 3-8: r x 1, r y -";
    broken(text, Anomaly::FracturedRead, &[1, 3]);
    accepted(
        "1 0-1: w x 1, w y 1
         2 2-9: d x, d y
         3 3-8: r x -, r y -
         4 3-8: r x 1, r y 1",
    );
    // Another transaction deleted the other key, or the first key was written again.
    accepted(
        "1 0-1: w x 1, w y 1
         2 2-9: d y
         3 3-8: r x 1, r y -",
    );
    accepted(
        "1 0-1: w x 1, w y 1
         2 2-9: d x, d y
         4 2-9: w x 4
         3 3-8: r x 4, r y -",
    );
}

#[test]
fn reads_of_what_did_not_commit() {
    let text = "1 0-9 aborted: w x 1, w y 1
                2 2-8: r x 1, r y 1";
    broken(text, Anomaly::AbortedRead, &[1, 2]);
    let text = "1 0-9: w x 1, w x 2
                2 2-8: r x 1, r y -";
    broken(text, Anomaly::IntermediateRead, &[1, 2]);
    broken("1 0-9: r x 7, r y -", Anomaly::GarbageRead, &[1]);
}

#[test]
fn circles_of_writers() {
    let text = "1 0-9: w x 1 1, w y 1 2
                2 0-9: w x 2 2, w y 2 1";
    broken(text, Anomaly::DirtyWrite, &[1, 2]);
    let text = "1 0-9: w x 1, r y 2
                2 0-9: w y 2, r x 1";
    broken(text, Anomaly::DirtyRead, &[1, 2]);
}

#[test]
fn a_stale_read_of_one_key() {
    let text = "1 0-1: w x 1
                2 2-3: w x 2
                3 4-5: r x 2
                4 6-7: r x 1";
    late(text, Anomaly::StaleRead, &[1, 2, 4]);
}

#[test]
fn a_stale_read_of_several_keys() {
    // 3 wrote both and was acknowledged; a transaction that begins later sees neither.
    let text = "1 0-1: w x 1, w y 1
                3 2-3: w x 3, w y 3
                4 4-5: r x 1, r y 1
                5 6-7: r x 3, r y 3";
    late(text, Anomaly::StaleRead, &[1, 3, 4]);
}

#[test]
fn a_value_that_was_seen_vanishes() {
    // The writer has not ended, but a reader of this key alone has seen its write.
    let text = "1 0-1: w x 1
                2 2-20: w x 2, w y 2
                3 4-5: r x 2
                4 6-7: r x 1";
    late(text, Anomaly::StaleRead, &[1, 2, 4]);
    // Readers of several keys may be ahead of others.
    accepted(
        "1 0-1: w x 1
         2 2-20: w x 2, w y 2
         3 4-5: r x 2, r y 2
         4 6-7: r x 1",
    );
}

#[test]
fn a_lost_write() {
    let text = "1 0-1: w x 1, w y 1
                2 2-3: w x 2, w y 2
                3 4-5: r x 1
                4 6-7: r x 1, r y 1";
    let found = violation(strictly_read_atomic(&history(text)));
    assert_eq!(found.anomaly, Anomaly::LostWrite, "{found}");
    let text = "1 0-1: w x 1, w y 1
                2 2-3: r x -, r y -";
    late(text, Anomaly::LostWrite, &[1, 2]);
    // A later write may have replaced it.
    accepted(
        "1 0-1: w x 1, w y 1
         2 2-9: w x 2, w y 2
         3 3-8: w x 3, w y 3
         4 10-11: r x 2, r y 2",
    );
}

#[test]
fn a_deletion_that_no_client_requested() {
    let text = "1 0-1: w x 1
                2 2-3: r x 1, d x
                3 4-5: w x 3
                4 6-7: r x -";
    late(text, Anomaly::StaleRead, &[3, 4]);
}

#[test]
fn a_read_from_the_future() {
    let text = "1 0-1: r x 5
                2 2-3: w x 5";
    late(text, Anomaly::RealTimeViolation, &[2]);
}

#[test]
fn updates_of_one_key_are_not_lost() {
    let text = "1 0-1: w x 1
                2 2-9: r x 1, w x 2
                3 2-9: r x 1, w x 3";
    late(text, Anomaly::LostUpdate, &[2, 3]);
    // The write of 4 lies between the version that 3 read and the one that it wrote.
    let text = "1 0-1: w x 1 1
                3 2-9: r x 1, w x 3 3
                4 2-9: w x 4 2, w y 4 2";
    let found = violation(strictly_read_atomic(&history(text)));
    assert_eq!(found.anomaly, Anomaly::LostUpdate, "{found}");
    assert!(read_atomic(&history(text)).is_accepted());
    accepted(
        "1 0-1: w x 1 1
         3 2-9: r x 1, w x 3 2
         4 2-9: w x 4 3, w y 4 3",
    );
}

#[test]
fn what_serializability_forbids_and_read_atomicity_allows() {
    let write_skew = "1 0-1: w x 1, w y 1
                      2 2-9: r x 1, r y 1, w x 2
                      3 2-9: r x 1, r y 1, w y 3";
    let lost_update = "1 0-1: w x 1, w y 1
                       2 2-9: r x 1, r y 1, w x 2, w y 2
                       3 2-9: r x 1, r y 1, w x 3, w y 3
                       4 10-11: r x 3, r y 3";
    let long_fork = "1 0-9: w x 1
                     2 0-9: w y 1
                     3 2-8: r x 1, r y -
                     4 2-8: r x -, r y 1";
    let overwritten = "1 0-9: w x 1, w y 1
                       2 0-9: w x 2, w z 2
                       3 2-3: r x 2, r y 1
                       4 4-5: r y 1, r x 2, r z 2";
    for text in [write_skew, lost_update, long_fork] {
        accepted(text);
        assert!(!strictly_serializable(&history(text)).is_accepted());
    }
    accepted(overwritten);
}

#[test]
fn recorded_versions_decide_which_absence_was_seen() {
    let text = |mark: u32| {
        format!(
            "1 0-1: w x 1 1, w y 1 1
             2 2-3: d x 2, d y 2
             3 4-5: w x 3 3, w y 3 3
             4 6-7: d x 4, d y 4
             5 0-20: r x - {mark}, r y 3"
        )
    };
    // The absence before 3 would be a fracture, and so would that of 4, which deleted y, too.
    broken(&text(2), Anomaly::FracturedRead, &[3, 5]);
    broken(&text(4), Anomaly::FracturedRead, &[3, 5]);
    let text = "1 0-1: w x 1 1
                2 2-3: d x 2
                3 4-5: w x 3 3
                5 0-20: r x - 2, r y -";
    accepted(text);
}

#[test]
fn a_delete_of_unknown_outcome_may_be_what_was_seen() {
    accepted(
        "1 0-1: w x 1, w y 1
         2 2-3 unknown: d x, d y
         3 4-5: r x -, r y -
         4 4-5: r x 1, r y 1",
    );
    let text = "1 0-1: w x 1, w y 1
                2 2-3 unknown: d x, d y
                3 4-5: r x -, r y 1";
    assert_eq!(
        read_atomic(&history(text)).anomaly(),
        Some(Anomaly::FracturedRead)
    );
}

#[test]
fn keys_of_another_promise_are_left_out() {
    let both = history(
        "1 0-1: w ra:x 1, w ra:y 1
         2 2-9: r x -, w y 3
         3 2-9: r y -, w x 2",
    );
    assert!(!strictly_serializable(&both).is_accepted());
    let atomic = both.of_keys(|key| key.starts_with("ra:"));
    assert_eq!(atomic.transactions.len(), 1);
    assert!(strictly_serializable(&atomic).is_accepted());
    let rest = both.of_keys(|key| !key.starts_with("ra:"));
    assert!(!strictly_serializable(&rest).is_accepted());
}

#[test]
fn guarantees_are_asked_for_by_name() {
    let fractured = history(
        "1 0-9: w x 1, w y 1
         2 2-8: r x 1, r y -",
    );
    for guarantee in Guarantee::ALL {
        assert_eq!(guarantee.name().parse(), Ok(guarantee));
        assert!(!guarantee.judge(&fractured).is_accepted(), "{guarantee:?}");
    }
    let stale = history(
        "1 0-1: w x 1
         2 2-3: r x -",
    );
    let accepts = Guarantee::ALL.map(|guarantee| guarantee.judge(&stale).is_accepted());
    assert_eq!(accepts, [true, false, true, false]);
    assert!("atomic".parse::<Guarantee>().is_err());
}

#[test]
fn the_evidence_reads_like_a_story() {
    let text = "1 0-9: w x 1, w y 1
                2 0-9: w x 2, w y 2
                3 2-8: r x 1, r y 2";
    assert_eq!(
        read_atomic(&history(text)).to_string(),
        "fractured read\n  \
         3 saw what 1 wrote to x, and of y, which that one wrote too, what 2 wrote\n  \
         3 saw what 2 wrote to y, and of x, which that one wrote too, what 1 wrote"
    );
    let text = "1 0-1: w x 1
                2 2-3: w x 2
                4 6-7: r x 1
                5 8-9: r x 2";
    assert_eq!(
        strictly_read_atomic(&history(text)).to_string(),
        "stale read\n  \
         1 ended (at 1 ns) before 2 began (at 2 ns)\n  \
         2 wrote x and ended (at 3 ns) before 4 began (at 6 ns), which saw what 1 left there"
    );
}
