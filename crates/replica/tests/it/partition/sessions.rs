//! Sessions: a transaction that is sent again is executed once.

use std::time::Duration;

use base::Abort;
use base::partition::OwnedReply;
use kumiki_replica::{Grouping, Sequenced};
use testkit::eventually_some;

use super::{Group, add, at_the_leader, once, open_session};

#[test]
fn a_transaction_that_is_sent_again_is_executed_once() {
    let mut group = Group::start(3);
    let first = Sequenced {
        session: open_session(&group).unwrap(),
        sequence: 1,
    };
    let once = |group: &Group| once(group, &[add(b"n")], first);
    assert_eq!(once(&group), Ok(vec![OwnedReply::Int(1)]));
    assert_eq!(once(&group), Ok(vec![OwnedReply::Int(1)]));
    let leader = group.leader();
    group.stop(leader);
    let again = once(&group);
    assert_eq!(again, Ok(vec![OwnedReply::Int(1)]), "another leader knows");
    assert_eq!(at_the_leader(&group, &[add(b"n")])[0], OwnedReply::Int(2));
}

/// The first transaction of a session that has ended is like any other: nothing shows that it was
/// not executed, so that it must not be executed now.
fn nothing_of_a_forgotten_session_is_executed(grouping: Grouping) {
    let sessions = (Duration::from_millis(100), 1000);
    let group = Group::start_with(3, grouping, false, sessions);
    let session = open_session(&group).unwrap();
    let of = |sequence| Sequenced { session, sequence };
    let first = once(&group, &[add(b"n")], of(1));
    assert_eq!(first, Ok(vec![OwnedReply::Int(1)]));
    eventually_some("the session has ended", || {
        // A proposal makes the leader look through the sessions.
        open_session(&group).unwrap();
        let again = once(&group, &[add(b"n")], of(1));
        assert!(
            again == first || again == Err(Abort::Forgotten),
            "{again:?}"
        );
        again.is_err().then_some(())
    });
    assert_eq!(
        once(&group, &[add(b"n")], of(2)),
        Err(Abort::Forgotten),
        "nor anything else of it"
    );
    let never = Sequenced {
        session: u64::MAX,
        sequence: 1,
    };
    assert_eq!(once(&group, &[add(b"n")], never), Err(Abort::Forgotten));
    let next = Sequenced {
        session: open_session(&group).unwrap(),
        sequence: 1,
    };
    let added = once(&group, &[add(b"n")], next);
    assert_eq!(added, Ok(vec![OwnedReply::Int(2)]), "once before");
    let hashes = group.hashes();
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[test]
fn a_first_transaction_is_not_executed_again_when_its_session_has_ended() {
    nothing_of_a_forgotten_session_is_executed(Grouping::Group(64));
}

#[test]
fn nor_is_it_where_entries_are_executed_after_consensus() {
    nothing_of_a_forgotten_session_is_executed(Grouping::Naive);
}

#[test]
fn there_are_so_many_sessions_and_then_room_again() {
    let grouping = Grouping::Group(64);
    let group = Group::start_with(3, grouping, false, (Duration::from_millis(500), 2));
    let first = open_session(&group).unwrap();
    let second = open_session(&group).unwrap();
    assert_ne!(first, second);
    let refused = eventually_some("there are too many", || open_session(&group).err());
    assert!(matches!(refused, Abort::Unavailable { .. }), "{refused}");
    let third = eventually_some("the silent ones have ended", || open_session(&group).ok());
    assert!(third > second, "no id comes back");
}
