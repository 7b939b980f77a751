//! The protocol, message by message: the messages, the node that decides, and the end of attempts whose
//! coordinator dies between any two messages.

mod bottle;
mod guards;
mod model;
mod ramp;
mod renewals;
mod replicas;
mod versions;

use std::time::Duration;

use base::participant::State;
use base::partition::OwnedReply;
use base::{Abort, Op};
use fabric::Peer;
use kumiki_cluster::message::{Message, Notice, ParticipantList, Request};

use bottle::Bottle;

fn put<'a>(key: &'a str, value: &'a str) -> Op<'a> {
    Op::put(key.as_bytes(), value.as_bytes())
}

fn get(key: &str) -> Op<'_> {
    Op::Get {
        key: key.as_bytes(),
    }
}

fn bytes(value: &str) -> OwnedReply {
    OwnedReply::Bytes(value.as_bytes().to_vec())
}

fn is_prepare(message: &Message<'_>) -> bool {
    let Message::Request { request, .. } = message else {
        return false;
    };
    matches!(request, Request::Prepare { .. })
}

fn is_reply(message: &Message<'_>) -> bool {
    matches!(message, Message::Reply { .. })
}

fn is_decision(message: &Message<'_>) -> bool {
    match message {
        Message::Request { request, .. } => matches!(request, Request::Commit { .. }),
        Message::Notice(notice) => matches!(notice, Notice::Abort { .. }),
        Message::Reply { .. } | Message::Introduction(_) | Message::Publication(_) => false,
    }
}

fn is_forget(message: &Message<'_>) -> bool {
    matches!(message, Message::Notice(Notice::Forget { .. }))
}

/// Checks that no node holds anything or remembers anything but refusals, after notices that can wait
/// were sent.
fn assert_clean(bottle: &mut Bottle) {
    bottle.wait(Duration::from_millis(3));
    for (at, model) in bottle.models.iter().enumerate() {
        assert_eq!(model.holds(), 0, "node {}", at + 1);
        let left = model.attempts();
        assert!(
            left.iter().all(|state| *state == State::Refused),
            "node {}: {left:?}",
            at + 1
        );
    }
    for node in bottle.nodes.iter().flatten() {
        assert_eq!(node.under_way(), (0, 0));
    }
}

/// Returns three nodes, and a key of each.
fn three() -> (Bottle, [String; 3]) {
    let bottle = Bottle::new(3);
    let keys = [0, 1, 2].map(|at| bottle.key(at, "k"));
    (bottle, keys)
}

#[test]
fn a_transaction_takes_one_round_trip_to_its_commit_point() {
    let (mut bottle, [a, b, c]) = three();
    bottle.begin(0, 1, &[put(&a, "1"), put(&b, "2"), put(&c, "3"), get(&b)]);
    bottle.pass(is_decision);
    let outcome = bottle.outcome(1).expect("it has committed").clone();
    assert_eq!(
        outcome.unwrap()[3],
        OwnedReply::Nil,
        "the model reads before it writes"
    );
    assert_eq!(
        bottle.passed,
        ["2 prepare", "1 reply", "3 prepare", "1 reply"]
    );
    assert_eq!(bottle.models[1].value(&b), None, "not before the decision");
    bottle.pass_all();
    for (at, (key, value)) in [(&a, "1"), (&b, "2"), (&c, "3")].into_iter().enumerate() {
        assert_eq!(bottle.models[at].value(key), Some(value));
    }
    assert_clean(&mut bottle);
}

#[test]
fn no_vote_leaves_before_its_part_is_durable() {
    for slow in [0, 1] {
        let (mut bottle, [a, b, _]) = three();
        bottle.models[slow].synced = false;
        bottle.begin(0, 1, &[put(&a, "1"), put(&b, "2")]);
        bottle.pass_all();
        assert!(
            bottle.outcome(1).is_none(),
            "node {} has not synced",
            slow + 1
        );
        bottle.models[slow].durable = u64::MAX;
        bottle.settle(slow);
        bottle.pass_all();
        assert!(bottle.outcome(1).unwrap().is_ok());
    }
}

#[test]
fn a_vote_against_ends_the_attempt_everywhere() {
    let (mut bottle, [a, b, _]) = three();
    let check = |key| Op::Check {
        key,
        version: base::Version::absent(base::Tid::from_bits(64)),
    };
    for (caller, ops) in [
        (1, [put(&a, "1"), check(b.as_bytes())]),
        (2, [check(a.as_bytes()), put(&b, "2")]),
    ] {
        bottle.begin(0, caller, &ops);
        bottle.pass_all();
        let op = if caller == 1 { 1 } else { 0 };
        let aborted = Err(Abort::Precondition { op });
        assert_eq!(bottle.outcome(caller), Some(&aborted));
    }
    // If the coordinator's own part votes against, the others are not asked.
    assert_eq!(bottle.passed, ["2 prepare", "1 reply"]);
    assert_clean(&mut bottle);
}

#[test]
fn a_dead_coordinators_attempt_is_decided_by_its_home() {
    // How far it came before it died, and the outcome.
    type Stop = fn(&Message<'_>) -> bool;
    let stops: [(Stop, bool); 4] = [
        (is_prepare, false),
        (is_reply, true),
        (is_decision, true),
        (is_forget, true),
    ];
    for (stop, commits) in stops {
        let (mut bottle, [_, b, c]) = three();
        // Node 1 coordinates, but takes no part: node 2 is the home.
        bottle.begin(0, 1, &[put(&b, "2"), put(&c, "3")]);
        bottle.pass(stop);
        bottle.kill(0);
        bottle.wait(Duration::from_secs(60));
        let value = |at: usize, key| bottle.models[at].value(key).is_some();
        assert_eq!((value(1, &b), value(2, &c)), (commits, commits));
        assert_clean(&mut bottle);
    }
}

#[test]
fn a_part_that_never_came_is_refused_and_the_others_undone() {
    let (mut bottle, [_, b, c]) = three();
    bottle.sever(0, 2);
    bottle.begin(0, 1, &[put(&b, "2"), put(&c, "3")]);
    bottle.pass_all();
    bottle.wait(Duration::from_secs(5));
    let outcome = bottle.outcome(1).expect("told in time");
    assert!(
        matches!(outcome, Err(Abort::Unavailable { .. })),
        "{outcome:?}"
    );
    assert_clean(&mut bottle);
    bottle.mend();
    bottle.begin(0, 2, &[put(&b, "2"), put(&c, "3")]);
    bottle.wait(Duration::from_secs(2));
    assert!(bottle.outcome(2).unwrap().is_ok());
}

#[test]
fn a_lost_vote_is_not_taken_for_one_against() {
    for home_is_own in [false, true] {
        let (mut bottle, [a, b, c]) = three();
        let first = if home_is_own { &a } else { &b };
        bottle.begin(0, 1, &[put(first, "x"), put(&c, "3")]);
        bottle.pass(is_reply);
        assert!(matches!(
            bottle.models[2].attempts()[..],
            [State::Prepared(_)]
        ));
        bottle.cut_between(0, 2);
        bottle.wait(Duration::from_secs(6));
        // The attempt was abandoned and tried again.
        assert!(bottle.outcome(1).expect("told in time").is_ok());
        assert_eq!(bottle.models[2].value(&c), Some("3"));
        let counters = bottle.nodes[0].as_ref().unwrap().counters();
        assert!(counters.retried >= 1, "{counters:?}");
        assert_clean(&mut bottle);
    }
}

#[test]
fn with_home_and_coordinator_gone_a_part_stays_in_doubt_until_they_are_back() {
    let (mut bottle, [a, b, _]) = three();
    bottle.begin(0, 1, &[put(&a, "1"), put(&b, "2")]);
    bottle.pass(is_reply);
    bottle.kill(0);
    bottle.wait(Duration::from_secs(20));
    assert_eq!(
        bottle.models[1].holds(),
        1,
        "no server can tell what was decided"
    );
    bottle.start(0);
    bottle.wait(Duration::from_secs(60));
    // All parts were prepared: that is the commit point.
    assert_eq!(bottle.models[0].value(&a), Some("1"));
    assert_eq!(bottle.models[1].value(&b), Some("2"));
    assert_clean(&mut bottle);
}

#[test]
fn reads_are_validated_without_holds() {
    let (mut bottle, [a, b, c]) = three();
    bottle.begin(0, 1, &[put(&a, "1"), put(&b, "2"), put(&c, "3")]);
    bottle.pass_all();
    bottle.wait(Duration::from_millis(3));
    bottle.passed.clear();
    bottle.begin(0, 2, &[get(&b), get(&a)]);
    bottle.pass_all();
    assert_eq!(bottle.outcome(2), Some(&Ok(vec![bytes("2"), bytes("1")])));
    assert_eq!(bottle.passed, ["2 read", "1 reply"], "one round trip");
    bottle.begin(0, 3, &[get(&b), get(&c)]);
    // Between the two rounds another transaction writes.
    bottle.pass(is_reply);
    bottle.begin(1, 4, &[put(&b, "4")]);
    bottle.wait(Duration::from_secs(1));
    assert_eq!(bottle.outcome(3), Some(&Ok(vec![bytes("4"), bytes("3")])));
    assert_clean(&mut bottle);
}

#[test]
fn what_was_there_before_a_read_began_needs_no_comparison() {
    let (mut bottle, [a, b, c]) = three();
    bottle.begin(0, 1, &[put(&a, "1"), put(&b, "2"), put(&c, "3")]);
    bottle.pass_all();
    let all = [get(&a), get(&b), get(&c)];
    let rounds = |bottle: &Bottle| bottle.passed.iter().filter(|m| m.ends_with("read")).count();
    let compared = |bottle: &Bottle| bottle.nodes[0].as_ref().unwrap().counters().compared;
    for caller in 2..5 {
        bottle.passed.clear();
        bottle.begin(0, caller, &all);
        bottle.pass_all();
        let values = vec![bytes("1"), bytes("2"), bytes("3")];
        assert_eq!(bottle.outcome(caller), Some(&Ok(values)));
        assert_eq!(rounds(&bottle), 2);
    }
    assert_eq!(
        compared(&bottle),
        1,
        "the first one did not know the others' epochs"
    );
    // Versions that are newer than the last message are compared, and so are absences.
    bottle.begin(1, 5, &[put(&b, "4")]);
    bottle.begin(0, 6, &all);
    bottle.pass_all();
    assert_eq!(bottle.outcome(6).unwrap().as_ref().unwrap()[1], bytes("4"));
    assert_eq!(compared(&bottle), 2);
    let absent = bottle.key(2, "absent");
    bottle.begin(0, 7, &[get(&a), get(&b), get(&absent)]);
    bottle.pass_all();
    assert_eq!(compared(&bottle), 3);
    // A new life of a node may number its epochs anew.
    bottle.kill(1);
    bottle.start(1);
    bottle.begin(0, 8, &all);
    bottle.pass_all();
    assert_eq!(compared(&bottle), 4);
}

#[test]
fn the_older_waits_and_the_younger_gives_way() {
    let (mut bottle, [a, b, c]) = three();
    // The older one, of node 1, has not arrived at node 2 when the younger one holds there.
    bottle.begin(0, 1, &[put(&a, "old"), put(&b, "old")]);
    bottle.models[0].time_ms += 1000;
    bottle.models[2].time_ms += 2000;
    bottle.begin(
        2,
        2,
        &[put(&c, "young"), put(&b, "young"), put(&a, "young")],
    );
    bottle.pass(|message| match message {
        Message::Request {
            request: Request::Prepare { id, .. },
            ..
        } => id.timestamp.ms() < 1_001_500,
        _ => false,
    });
    bottle.wait(Duration::from_secs(5));
    for caller in [1, 2] {
        assert!(
            bottle
                .outcome(caller)
                .expect("no thread waits for ever")
                .is_ok()
        );
    }
    // The younger one came later in the end.
    assert_eq!(bottle.models[0].value(&a), Some("young"));
    assert_eq!(bottle.models[1].value(&b), Some("young"));
    assert_clean(&mut bottle);
}

#[test]
fn a_transaction_of_one_other_partition_is_executed_there() {
    let (mut bottle, [_, b, _]) = three();
    bottle.begin(0, 1, &[put(&b, "2"), get(&b)]);
    bottle.pass_all();
    assert!(bottle.outcome(1).unwrap().is_ok());
    assert_eq!(bottle.passed, ["2 execute", "1 reply"]);
    // If its answer is lost, the outcome is unknown; if it only reads, it is asked again.
    for (caller, op, unknown) in [(2, put(&b, "3"), true), (3, get(&b), false)] {
        bottle.begin(0, caller, &[op]);
        bottle.pass(is_reply);
        bottle.cut_between(0, 1);
        bottle.wait(Duration::from_secs(1));
        let outcome = bottle.outcome(caller).unwrap();
        assert_eq!(
            matches!(outcome, Err(Abort::Unknown { .. })),
            unknown,
            "{outcome:?}"
        );
        assert_eq!(outcome.is_ok(), !unknown);
    }
}

#[test]
fn a_participant_whose_log_has_failed_says_so() {
    for slow in [0, 1] {
        let (mut bottle, [a, b, _]) = three();
        bottle.models[slow].broken = true;
        bottle.begin(0, 1, &[put(&a, "1"), put(&b, "2")]);
        bottle.pass_all();
        bottle.wait(Duration::from_secs(3));
        assert!(bottle.outcome(1).expect("told at once").is_err());
    }
}

#[test]
fn a_clock_that_is_far_ahead_is_named() {
    let (mut bottle, [_, b, c]) = three();
    bottle.models[0].time_ms += 3_600_000;
    bottle.begin(0, 1, &[put(&b, "2"), put(&c, "3")]);
    bottle.wait(Duration::from_secs(3));
    let outcome = bottle.outcome(1).expect("told in time").clone();
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("clock"), "{error}");
    // It has left nothing that blocks other transactions.
    bottle.begin(1, 2, &[put(&b, "2"), put(&c, "3")]);
    bottle.pass_all();
    assert!(bottle.outcome(2).unwrap().is_ok());
    assert_clean(&mut bottle);
}

#[test]
fn what_no_node_of_this_cluster_says_does_no_harm() {
    let (mut bottle, [a, _, _]) = three();
    let prepare = |participants: &[u16], siblings: &'static [u8]| Message::Request {
        number: 1,
        request: Request::Prepare {
            id: base::TransactionId {
                timestamp: base::Timestamp::at_ms(1_000_000),
                unique: 7,
            },
            age: base::Timestamp::ZERO,
            participant_list: ParticipantList {
                home: base::PartitionId(participants[0]),
                participants: participants
                    .iter()
                    .map(|of| base::PartitionId(*of))
                    .collect(),
            },
            siblings,
            isolation: base::participant::Isolation::Serializable,
            ops: vec![put(&a, "1")],
        },
    };
    let node = Peer::Node(base::NodeId(2));
    for (who, message) in [
        (node, prepare(&[1, 99], b"")),
        (node, prepare(&[2, 3], b"")),
        (node, prepare(&[1, 2], b"no keys")),
        (Peer::Client, prepare(&[1, 2], b"")),
    ] {
        bottle.say(0, who, &message);
        bottle.wait(Duration::from_secs(5));
        assert_clean(&mut bottle);
        assert!(bottle.models[0].attempts().is_empty(), "{message:?}");
    }
    bottle.say(0, node, &prepare(&[1, 2], b""));
    assert_eq!(
        bottle.models[0].attempts().len(),
        1,
        "else this proves nothing"
    );
}

#[test]
fn who_may_forget_is_told_with_the_next_message() {
    let (mut bottle, [a, b, c]) = three();
    bottle.begin(0, 1, &[put(&a, "1"), put(&b, "2"), put(&c, "3")]);
    bottle.pass_all();
    bottle.passed.clear();
    bottle.begin(0, 2, &[get(&b), get(&a)]);
    bottle.pass_all();
    assert_eq!(bottle.passed, ["2 read", "1 reply", "2 forget!"]);
    bottle.wait(Duration::from_millis(3));
    assert_eq!(
        bottle.passed[3..],
        ["3 forget!"],
        "nothing else was sent there"
    );
}
