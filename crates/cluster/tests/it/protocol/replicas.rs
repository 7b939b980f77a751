//! Partitions that several nodes hold: the node that is asked, and the end of what a leader could not
//! finish. Nodes 1 to 3 hold the first partition and node 1 leads it; node 4 holds the second one; node
//! 5 holds none.

use std::time::Duration;

use base::participant::State;
use base::{Abort, NodeId};
use kumiki_cluster::message::{Message, Notice, Request};

use crate::protocol::bottle::Bottle;
use crate::protocol::{assert_clean, bytes, get, is_decision, is_prepare, is_reply, put};

/// Returns the nodes, and a key of each partition.
fn cluster() -> (Bottle, String, String) {
    let bottle = Bottle::holding(5, &[vec![1, 2, 3], vec![4]]);
    let (a, b) = (bottle.key(0, "k"), bottle.key(1, "k"));
    (bottle, a, b)
}

/// Sets what the members that do not lead say of the leader.
fn followers_say(bottle: &mut Bottle, leader: Option<u16>) {
    for model in &mut bottle.models[..3] {
        if model.elsewhere.is_some() {
            model.elsewhere = Some(leader.map(NodeId));
        }
    }
}

fn passed(bottle: &Bottle, what: &str) -> usize {
    let is_it = |message: &&String| message.ends_with(what);
    bottle.passed.iter().filter(is_it).count()
}

#[test]
fn a_member_names_the_leader_which_is_asked_from_then_on() {
    let (mut bottle, a, _) = cluster();
    bottle.hand_over(0, 2, true);
    followers_say(&mut bottle, Some(3));
    bottle.begin(4, 1, &[put(&a, "1")]);
    bottle.pass_all();
    bottle.wait(Duration::from_millis(40));
    assert!(bottle.outcome(1).expect("found").is_ok());
    assert_eq!(
        bottle.passed,
        ["1 execute", "5 reply", "3 execute", "5 reply"]
    );
    bottle.passed.clear();
    bottle.begin(4, 2, &[get(&a)]);
    bottle.pass_all();
    assert_eq!(bottle.outcome(2), Some(&Ok(vec![bytes("1")])));
    assert_eq!(bottle.passed, ["3 execute", "5 reply"]);
    let counters = bottle.nodes[0].as_ref().unwrap().counters();
    assert_eq!(counters.redirected, 1);
}

#[test]
fn a_search_for_a_leader_pauses_and_ends() {
    let (mut bottle, a, _) = cluster();
    bottle.models[0].elsewhere = Some(None);
    bottle.begin(4, 1, &[put(&a, "1")]);
    bottle.wait(Duration::from_secs(1));
    assert_eq!(bottle.outcome(1), None, "a leader may still come");
    let asked = passed(&bottle, "execute");
    assert!((10..=60).contains(&asked), "{asked} questions in a second");
    bottle.begin(4, 2, &[put(&a, "2")]);
    bottle.models[1].elsewhere = None;
    bottle.wait(Duration::from_millis(100));
    for caller in [1, 2] {
        assert!(bottle.outcome(caller).expect("found").is_ok());
    }
    // This time there is no new leader.
    bottle.models[1].elsewhere = Some(None);
    bottle.begin(4, 3, &[put(&a, "3")]);
    bottle.wait(Duration::from_secs(6));
    let no_leader = Err(Abort::Elsewhere { leader: None });
    assert_eq!(bottle.outcome(3), Some(&no_leader));
}

#[test]
fn a_leader_that_is_gone_is_not_asked_for_ever() {
    let (mut bottle, a, _) = cluster();
    bottle.begin(4, 1, &[put(&a, "1")]);
    bottle.pass_all();
    bottle.hand_over(0, 1, true);
    bottle.kill(0);
    // The third one has not heard of it yet.
    bottle.models[2].elsewhere = Some(Some(NodeId(1)));
    bottle.begin(4, 2, &[put(&a, "2")]);
    bottle.wait(Duration::from_secs(2));
    assert!(bottle.outcome(2).expect("told in time").is_ok());
    assert_eq!(bottle.models[1].value(&a), Some("2"));
}

#[test]
fn a_members_own_partition_is_asked_where_it_is_led() {
    let (mut bottle, a, b) = cluster();
    bottle.hand_over(0, 1, true);
    for (caller, at) in [(10, 0), (20, 2)] {
        bottle.begin(at, caller, &[put(&a, "1"), put(&b, "2")]);
        bottle.wait(Duration::from_secs(1));
        bottle.begin(at, caller + 1, &[get(&a), get(&b)]);
        bottle.wait(Duration::from_secs(1));
        assert!(bottle.outcome(caller).expect("told in time").is_ok());
        let read = Ok(vec![bytes("1"), bytes("2")]);
        assert_eq!(bottle.outcome(caller + 1), Some(&read));
    }
    assert_eq!(bottle.models[1].value(&a), Some("1"));
    assert_clean(&mut bottle);
}

#[test]
fn a_vote_that_is_lost_with_the_leadership_is_asked_for_at_the_home() {
    // Node 4 coordinates with itself as the home, or node 5 with the replicated partition as the home.
    for (at, keeps) in [(3, false), (3, true), (4, false), (4, true)] {
        let (mut bottle, a, b) = cluster();
        bottle.models[0].freeze();
        bottle.begin(at, 1, &[put(&a, "1"), put(&b, "2")]);
        bottle.wait(Duration::from_millis(100));
        assert_eq!(bottle.outcome(1), None, "its vote is not durable");
        bottle.hand_over(0, 1, keeps);
        bottle.wait(Duration::from_secs(30));
        let outcome = bottle.outcome(1).expect("told in time");
        assert!(
            outcome.is_ok(),
            "{at} {keeps} {outcome:?} {:?}",
            bottle.passed
        );
        assert!(passed(&bottle, "abandon") > 0 || at == 3);
        let node = bottle.nodes[at].as_ref().unwrap();
        assert!(node.counters().retried >= 1, "as another attempt");
        assert_eq!(bottle.models[1].value(&a), Some("1"));
        assert_eq!(bottle.models[1].committed, bottle.models[3].committed);
        let lost = bottle.nodes[0].as_ref().unwrap().counters().lost;
        assert!(lost > 0, "else this shows nothing");
        bottle.models[0] = crate::protocol::model::Model::new();
        assert_clean(&mut bottle);
    }
}

#[test]
fn an_acknowledgement_that_is_lost_is_asked_for_at_the_next_leader() {
    for keeps in [false, true] {
        let (mut bottle, a, b) = cluster();
        bottle.begin(3, 1, &[put(&a, "1"), put(&b, "2")]);
        bottle.pass(is_decision);
        assert!(bottle.outcome(1).expect("it has committed").is_ok());
        bottle.models[0].freeze();
        bottle.pass_all();
        bottle.hand_over(0, 1, keeps);
        let known = bottle.models[1].attempts();
        let committed = matches!(known[..], [State::Committed(_)]);
        assert_eq!(committed, keeps, "{known:?} {:?}", bottle.passed);
        bottle.wait(Duration::from_millis(400));
        assert_eq!(bottle.models[1].value(&a), Some("1"), "soon");
        bottle.wait(Duration::from_secs(60));
        assert!(bottle.models[1].attempts().is_empty(), "and forgotten");
        assert_eq!(bottle.models[1].committed, bottle.models[3].committed);
    }
}

#[test]
fn a_write_of_one_partition_may_have_happened_and_a_read_is_asked_again() {
    for (at, keeps) in [(0, false), (0, true), (4, false), (4, true)] {
        let (mut bottle, a, _) = cluster();
        bottle.begin(at, 0, &[get(&a)]);
        bottle.pass_all();
        bottle.models[0].freeze();
        bottle.begin(at, 1, &[put(&a, "1")]);
        bottle.begin(at, 2, &[get(&a)]);
        bottle.pass_all();
        bottle.hand_over(0, 1, keeps);
        bottle.wait(Duration::from_secs(1));
        let outcome = bottle.outcome(1).expect("told at once");
        assert!(matches!(outcome, Err(Abort::Unknown { .. })), "{outcome:?}");
        let there = if keeps {
            bytes("1")
        } else {
            base::partition::OwnedReply::Nil
        };
        assert_eq!(bottle.outcome(2), Some(&Ok(vec![there])));
        assert_eq!(
            passed(&bottle, "2 execute"),
            1,
            "the write is not repeated {at} {keeps} {:?}",
            bottle.passed
        );
    }
}

#[test]
fn a_homes_next_leader_decides_what_its_predecessor_and_the_coordinator_left() {
    for (stop, commits) in [
        (is_prepare as fn(&Message<'_>) -> bool, false),
        (is_reply, true),
    ] {
        let (mut bottle, a, b) = cluster();
        // Node 5 takes no part: the replicated partition is the home.
        bottle.begin(4, 1, &[put(&a, "1"), put(&b, "2")]);
        bottle.pass(stop);
        bottle.kill(4);
        bottle.kill(0);
        let [old, new] = bottle.models.get_disjoint_mut([0, 1]).unwrap();
        old.hand_over(new, NodeId(2), true);
        followers_say(&mut bottle, Some(2));
        // This is sooner than anything else is in doubt.
        bottle.wait(Duration::from_millis(500));
        let values = (bottle.models[1].value(&a), bottle.models[3].value(&b));
        let expected = if commits {
            (Some("1"), Some("2"))
        } else {
            (None, None)
        };
        assert_eq!(values, expected);
        bottle.wait(Duration::from_secs(60));
        assert!(
            bottle.models[1]
                .attempts()
                .iter()
                .all(|state| *state == State::Refused)
        );
        assert_eq!(bottle.models[1].holds() + bottle.models[3].holds(), 0);
    }
}

#[test]
fn a_home_that_loses_its_decision_has_not_sent_it() {
    let (mut bottle, a, b) = cluster();
    bottle.begin(4, 1, &[put(&a, "1"), put(&b, "2")]);
    // Both are prepared, and the coordinator cannot hear of it.
    bottle.pass(is_reply);
    for other in 0..4 {
        bottle.sever(other, 4);
    }
    // The home commits in its stead, but not durably.
    bottle.models[0].freeze();
    bottle.wait(Duration::from_secs(2));
    assert_eq!(
        bottle.models[0].committed.len(),
        1,
        "else this shows nothing"
    );
    assert!(bottle.models[3].committed.is_empty(), "told too early");
    // Its successor knows nothing of that, cannot ask for votes, and gets the order to abort.
    bottle.sever(1, 3);
    bottle.hand_over(0, 1, false);
    bottle.mend();
    bottle.sever(1, 3);
    bottle.wait(Duration::from_secs(3));
    // The coordinator has succeeded with another attempt meanwhile, and only with that.
    assert!(bottle.outcome(1).expect("told in time").is_ok());
    assert_eq!(bottle.models[1].committed.len(), 1);
    assert_eq!(bottle.models[1].committed, bottle.models[3].committed);
    bottle.mend();
    bottle.wait(Duration::from_secs(60));
    assert_eq!(bottle.models[1].committed, bottle.models[3].committed);
}

#[test]
fn what_only_a_leader_may_answer_is_answered_by_no_other() {
    let (mut bottle, _, _) = cluster();
    let id = base::TransactionId {
        timestamp: base::Timestamp::at_ms(1_000_000),
        unique: 7,
    };
    let peer = fabric::Peer::Node(NodeId(4));
    for request in [
        Request::Commit { id, awaited: false },
        Request::Vote { id },
        Request::Outcome { id },
        Request::Abandon { id },
        Request::Inquire { id },
        Request::Read { ops: Vec::new() },
    ] {
        bottle.say(1, peer, &Message::Request { number: 1, request });
    }
    for notice in [Notice::Abort { id }, Notice::Forget { id }] {
        bottle.say(1, peer, &Message::Notice(notice));
    }
    let node = bottle.nodes[1].as_ref().unwrap();
    assert_eq!(node.counters().redirected, 6);
    assert!(
        bottle.models[1].attempts().is_empty(),
        "nothing was refused"
    );
}
