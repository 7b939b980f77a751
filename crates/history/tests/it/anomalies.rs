//! Hand-written histories with one planted anomaly each: every one must be found and named.

use kumiki_history::check::{read_atomic, serializable, strictly_serializable};
use kumiki_history::{Anomaly, Verdict};

use crate::support::notation::history;
use crate::support::violation;

/// Checks that a history is not serializable, for this reason and with these transactions as
/// evidence.
#[track_caller]
fn not_serializable(text: &str, anomaly: Anomaly, transactions: &[u64]) {
    let history = history(text);
    for verdict in [serializable(&history), strictly_serializable(&history)] {
        let mut found = violation(verdict);
        assert_eq!(found.anomaly, anomaly, "{found}");
        assert!(found.certain, "{found}");
        found.transactions.sort_unstable();
        assert_eq!(found.transactions, transactions, "{found}");
    }
}

#[track_caller]
fn accepted(text: &str) {
    let history = history(text);
    assert_eq!(strictly_serializable(&history).to_string(), "accepted");
    assert_eq!(serializable(&history).to_string(), "accepted");
    assert_eq!(read_atomic(&history).to_string(), "accepted");
}

#[test]
fn a_read_of_an_aborted_write() {
    let text = "1 0-9 aborted: w x 1
                2 2-8: r x 1";
    not_serializable(text, Anomaly::AbortedRead, &[1, 2]);
    assert_eq!(
        read_atomic(&history(text)).anomaly(),
        Some(Anomaly::AbortedRead)
    );
}

#[test]
fn an_intermediate_read() {
    let text = "1 0-9: w x 1, w x 2
                2 2-8: r x 1";
    not_serializable(text, Anomaly::IntermediateRead, &[1, 2]);
    assert_eq!(
        read_atomic(&history(text)).anomaly(),
        Some(Anomaly::IntermediateRead)
    );
}

#[test]
fn an_intermediate_read_of_what_its_writer_deleted() {
    let text = "1 0-9: w x 1, d x
                2 2-8: r x 1";
    not_serializable(text, Anomaly::IntermediateRead, &[1, 2]);
}

#[test]
fn a_value_from_nowhere() {
    not_serializable("1 0-9: r x 7", Anomaly::GarbageRead, &[1]);
}

#[test]
fn an_own_write_that_is_not_seen() {
    not_serializable("1 0-9: w x 1, r x -", Anomaly::OwnWriteMissed, &[1]);
    not_serializable("1 0-9: w x 1, s a z", Anomaly::OwnWriteMissed, &[1]);
    not_serializable(
        "1 0-9: w x 1, d x, s a z x=1",
        Anomaly::OwnWriteMissed,
        &[1],
    );
}

#[test]
fn a_read_that_does_not_repeat() {
    let text = "1 0-1: w x 1
                2 2-9: r x 1, r x 2
                3 3-4: r x 1, w x 2";
    not_serializable(text, Anomaly::NonRepeatableRead, &[2]);
    let text = "1 0-9: s a z, s a z x=1
                2 2-3: w x 1";
    not_serializable(text, Anomaly::NonRepeatableRead, &[1]);
}

#[test]
fn a_scan_out_of_order_or_range() {
    for scan in [
        "s a z y=2 x=1",
        "s a z x=1 x=1",
        "s a y x=1 y=2",
        "s y z x=1 y=2",
    ] {
        let text = format!("1 0-1: w x 1, w y 2\n2 2-3: {scan}");
        not_serializable(&text, Anomaly::MalformedScan, &[2]);
    }
}

#[test]
fn a_dirty_write() {
    // The versions determine both orders of the writes: x says 1 before 2, y says 2 before 1.
    let text = "1 0-9: w x 1 1, w y 1 2
                2 0-9: w x 2 2, w y 2 1";
    not_serializable(text, Anomaly::DirtyWrite, &[1, 2]);
}

#[test]
fn a_dirty_read() {
    let text = "1 0-9: w x 1, r y 2
                2 0-9: w y 2, r x 1";
    not_serializable(text, Anomaly::DirtyRead, &[1, 2]);
}

#[test]
fn a_dirty_read_in_a_longer_circle() {
    let text = "1 0-9: w x 1, r z 3
                2 0-9: w y 2, r x 1
                3 0-9: w z 3, r y 2";
    not_serializable(text, Anomaly::DirtyRead, &[1, 2, 3]);
}

#[test]
fn a_lost_update() {
    let text = "1 0-1: w x 1
                2 2-9: r x 1, w x 2
                3 2-9: r x 1, w x 3
                4 10-11: r x 3";
    not_serializable(text, Anomaly::LostUpdate, &[2, 3]);
}

#[test]
fn a_lost_update_behind_others() {
    let text = "1 0-1: w x 1
                2 2-9: r x 1, w x 2
                3 3-4: r x 1, w x 3
                4 5-6: r x 3, w x 4";
    let found = violation(serializable(&history(text)));
    assert_eq!(found.anomaly, Anomaly::LostUpdate, "{found}");
    assert!(found.certain && found.transactions.contains(&2), "{found}");
}

#[test]
fn two_first_writers_of_a_key() {
    let text = "1 0-9: r x -, w x 1
                2 0-9: r x -, w x 2";
    not_serializable(text, Anomaly::LostUpdate, &[1, 2]);
}

#[test]
fn a_lost_delete() {
    let text = "1 0-1: w x 1
                2 2-9: r x 1, d x
                3 2-9: r x 1, w x 3";
    not_serializable(text, Anomaly::LostUpdate, &[2, 3]);
}

#[test]
fn read_skew() {
    let text = "1 0-1: w x 1, w y 1
                2 2-9: r x 1, r y 2
                3 3-4: r x 1, w x 2, r y 1, w y 2";
    not_serializable(text, Anomaly::ReadSkew, &[2, 3]);
    assert_eq!(
        read_atomic(&history(text)).anomaly(),
        Some(Anomaly::FracturedRead)
    );
}

#[test]
fn write_skew() {
    let text = "1 0-1: w x 1, w y 1
                2 2-9: r x 1, r y 1, w x 2
                3 2-9: r x 1, r y 1, w y 3";
    not_serializable(text, Anomaly::WriteSkew, &[2, 3]);
    assert!(read_atomic(&history(text)).is_accepted());
}

#[test]
fn write_skew_on_absent_keys() {
    let text = "2 2-9: r x -, w y 3
                3 2-9: r y -, w x 2";
    not_serializable(text, Anomaly::WriteSkew, &[2, 3]);
}

#[test]
fn a_phantom() {
    // Each transaction counts the guests, finds room for one more, and lets one in.
    let text = "1 0-1: w guest1 1
                2 2-9: s guest guesu guest1=1, w guest2 2
                3 2-9: s guest guesu guest1=1, w guest3 3";
    not_serializable(text, Anomaly::Phantom, &[2, 3]);
}

#[test]
fn a_phantom_that_was_deleted() {
    // The scan misses only a key that the delete removed, which saw a write of the scan's
    // transaction.
    let text = "1 0-1: w a 1, w b 1
                2 2-9: s a z a=1, w c 2
                3 2-9: r b 1, r c 2, d b";
    let found = violation(serializable(&history(text)));
    assert_eq!(found.anomaly, Anomaly::DirtyRead, "{found}");
    let text = "1 0-1: w a 1, w b 1
                2 2-9: s a z a=1 b=1, w b2 2
                3 2-9: s b c b=1, r b 1, d b";
    not_serializable(text, Anomaly::Phantom, &[2, 3]);
}

#[test]
fn a_half_seen_insert() {
    let text = "1 0-9: w k1 1, w k2 1
                2 2-8: s k1 k2 k1=1, s k2 k3";
    not_serializable(text, Anomaly::Phantom, &[1, 2]);
    assert_eq!(
        read_atomic(&history(text)).anomaly(),
        Some(Anomaly::FracturedRead)
    );
}

#[test]
fn a_long_fork() {
    let text = "1 0-9: w x 1
                2 0-9: w y 1
                3 2-8: r x 1, r y -
                4 2-8: r x -, r y 1";
    not_serializable(text, Anomaly::LongFork, &[1, 2, 3, 4]);
    assert!(read_atomic(&history(text)).is_accepted());
}

#[test]
fn three_in_a_circle() {
    let text = "1 0-1: w x 1, w y 1, w z 1
                2 2-9: r x 1, r y 1, w x 2
                3 2-9: r y 1, r z 1, w y 3
                4 2-9: r z 1, r x 1, w z 4";
    not_serializable(text, Anomaly::AntiDependencyCycle, &[2, 3, 4]);
}

#[test]
fn a_stale_read_is_serializable_but_not_strictly() {
    let text = "1 0-1: w x 1
                2 2-3: r x 1, w x 2
                3 4-5: r x 1";
    let history = history(text);
    assert!(serializable(&history).is_accepted());
    let found = violation(strictly_serializable(&history));
    assert_eq!(found.anomaly, Anomaly::RealTimeViolation, "{found}");
    assert_eq!(
        (found.transactions.len(), found.certain),
        (2, true),
        "{found}"
    );
}

#[test]
fn a_read_from_the_future() {
    let history = history(
        "1 0-1: r x 5
         2 2-3: w x 5",
    );
    assert!(serializable(&history).is_accepted());
    let found = violation(strictly_serializable(&history));
    assert_eq!(found.anomaly, Anomaly::RealTimeViolation, "{found}");
}

#[test]
fn a_write_that_vanishes() {
    let history = history(
        "1 0-1: w x 1
         2 2-3: r x -",
    );
    assert!(serializable(&history).is_accepted());
    assert_eq!(
        strictly_serializable(&history).anomaly(),
        Some(Anomaly::RealTimeViolation)
    );
}

#[test]
fn a_deleted_key_that_comes_back() {
    let history = history(
        "1 0-1: w x 1
         2 2-3: r x 1, d x
         3 4-5: r x -
         4 6-7: r x 1",
    );
    assert!(serializable(&history).is_accepted());
    assert_eq!(
        strictly_serializable(&history).anomaly(),
        Some(Anomaly::RealTimeViolation)
    );
}

#[test]
fn a_newer_sibling_is_not_fractured() {
    accepted(
        "1 0-1: w x 1, w y 1
         2 2-3: r x 1, r y 1, w y 2
         3 4-5: r x 1, r y 2",
    );
    accepted(
        "1 0-1: w x 1, w y 1
         2 2-3: r y 1, d y
         3 4-5: r x 1, r y -",
    );
}

#[test]
fn a_history_that_can_be_explained() {
    accepted("");
    accepted("1 0-1: r x -, s a z");
    accepted(
        "1 0-5: w x 1, w y 1
         2 1-6: r x 1, r y 1, w x 2
         3 2-7: r x 2, r y 1
         4 0-9: s a z x=1 y=1
         5 7-9: r y 1, d y
         6 8-9: s a z x=2
         7 8-9: r y -, w y 7, r y 7
         8 9-9 aborted: w x 9, d y
         9 9-9: s a z x=2 y=7",
    );
}

#[test]
fn a_transaction_of_unknown_outcome_counts_if_it_was_seen() {
    accepted(
        "1 0-1 unknown: w x 1
         2 2-3: r x -
         3 4-5: r x 1, r y -",
    );
    // It took effect before its client gave up, or long after.
    let text = "1 0-1 unknown: w x 1, w y 1
                2 2-3: r x 1, r y -";
    not_serializable(text, Anomaly::ReadSkew, &[1, 2]);
}

#[test]
fn a_delete_of_unknown_outcome_counts_if_that_explains_more() {
    accepted(
        "1 0-1: w x 1
         2 2-3 unknown: d x
         3 4-5: r x 1
         4 6-7: r x -",
    );
    accepted(
        "1 0-1: w x 1
         2 2-3 unknown: d x
         3 4-5: r x 1, w x 2
         4 6-7: r x 2",
    );
    let text = "1 0-1: w x 1
                2 2-3 unknown: d x
                3 4-5: r x -
                4 6-7: r x 1";
    assert_eq!(
        strictly_serializable(&history(text)).anomaly(),
        Some(Anomaly::RealTimeViolation)
    );
}

#[test]
fn which_absence_was_seen_is_inferred() {
    // The reader must stand between the second delete and the third insert, where it sees z.
    accepted(
        "1 0-1: r x -, w x 1
         2 2-3: r x 1, d x
         3 4-5: r x -, w x 2
         4 6-7: r x 2, d x, w z 1
         5 0-20: r x -, r z 1
         6 8-9: r x -, w x 3, r z 1, w z 2",
    );
    // Here it cannot: z came with x.
    let text = "1 0-1: r x -, w x 1
                2 2-3: r x 1, d x
                3 4-5: r x -, w x 2, w z 1
                4 6-7: r x 2, r z 1, d x, w z 2
                5 0-20: r x -, r z 1";
    let found = violation(serializable(&history(text)));
    assert!(!found.certain, "{found}");
    assert!(found.transactions.contains(&5), "{found}");
}

#[test]
fn recorded_versions_decide_which_absence_was_seen() {
    let text = |floor: u32| {
        format!(
            "1 0-1: r x -, w x 1 1
             2 2-3: r x 1, d x 2
             3 4-5: r x -, w x 3 3, w z 1
             4 6-7: r x 3, d x 4
             5 0-20: r x - {floor}, r z 1"
        )
    };
    accepted(&text(4));
    accepted(&text(9));
    let found = violation(serializable(&history(&text(2))));
    assert_eq!(
        (found.anomaly, found.certain),
        (Anomaly::ReadSkew, true),
        "{found}"
    );
}

#[test]
fn the_order_of_blind_writes_is_inferred_or_recorded() {
    accepted(
        "1 0-9: w x 1
         2 0-9: w x 2
         3 0-9: w x 3
         4 2-4: r x 3
         5 5-6: r x 1
         6 7-8: r x 2",
    );
    let text = "1 0-9: w x 1
                2 0-9: w x 2
                3 2-4: r x 2
                4 5-6: r x 1
                5 7-8: r x 2";
    let found = violation(strictly_serializable(&history(text)));
    assert!(!found.certain, "{found}");
    assert!(serializable(&history(text)).is_accepted());
    let text = "1 0-9: w x 1 7
                2 0-9: w x 2 9
                3 2-4: r x 2
                4 5-6: r x 1";
    let found = violation(strictly_serializable(&history(text)));
    assert_eq!(
        (found.anomaly, found.certain),
        (Anomaly::RealTimeViolation, true),
        "{found}"
    );
}

#[test]
fn a_history_that_breaks_the_rules_is_not_judged() {
    let text = "7 0-1: w x 1
                8 2-3: w x 1";
    let Verdict::Unjudgeable(why) = serializable(&history(text)) else {
        panic!("the value is not unique")
    };
    assert_eq!(why, "transactions 7 and 8 both write 1 to x");
    let text = "7 0-1: w x 1 5
                8 2-3: w x 2 5";
    assert!(matches!(
        serializable(&history(text)),
        Verdict::Unjudgeable(_)
    ));
    let text = "7 0-1: w x 1 5
                8 2-3: r x 1, w x 2 4";
    let Verdict::Unjudgeable(why) = serializable(&history(text)) else {
        panic!("versions must grow")
    };
    assert_eq!(why, "version 4 of x replaced version 5");
}

#[test]
fn the_evidence_reads_like_a_story() {
    let text = "1 0-1: w x 1, w y 1
                2 2-9: r x 1, r y 1, w x 2
                3 2-9: r x 1, r y 1, w y 3";
    assert_eq!(
        serializable(&history(text)).to_string(),
        "write skew (G2-item)\n  \
         2 saw y as it was before 3 wrote it\n  \
         3 saw x as it was before 2 wrote it"
    );
}
