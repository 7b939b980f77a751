//! Read-atomic transactions, message by message.

use std::time::Duration;

use base::participant::State;
use base::partition::OwnedReply;
use base::transaction::Holder;
use base::{Abort, Op, Timestamp, TransactionId};
use fabric::Peer;
use kumiki_cluster::message::{Answer, Message, Request};
use kumiki_cluster::ramp::Algorithm;

use crate::protocol::bottle::Bottle;
use crate::protocol::{
    assert_clean, bytes, get, is_decision, is_forget, is_prepare, is_reply, put,
};

/// Returns three nodes, and a read-atomic key of each.
fn three_with(algorithm: Algorithm) -> (Bottle, [String; 3]) {
    let mut bottle = Bottle::new(3);
    bottle.algorithm = algorithm;
    (0..3).for_each(|at| bottle.start(at));
    let keys = [0, 1, 2].map(|at| bottle.key(at, "ra:"));
    (bottle, keys)
}

fn three() -> (Bottle, [String; 3]) {
    three_with(Algorithm::Fast)
}

fn put_all<'a>(keys: &'a [String; 3], value: &'a str) -> [Op<'a>; 3] {
    [0, 1, 2].map(|at| put(&keys[at], value))
}

fn get_all(keys: &[String; 3]) -> [Op<'_>; 3] {
    [0, 1, 2].map(|at| get(&keys[at]))
}

fn all(value: &str) -> Result<Vec<OwnedReply>, Abort> {
    Ok(vec![bytes(value); 3])
}

fn is_vote(message: &Message<'_>) -> bool {
    let Message::Reply { reply, .. } = message else {
        return false;
    };
    matches!(reply, Answer::Replies(_))
}

fn another_holder() -> Holder {
    Holder {
        id: TransactionId {
            timestamp: Timestamp::at_ms(1),
            unique: 99,
        },
        age: Timestamp::ZERO,
    }
}

#[test]
fn a_write_is_told_when_all_partitions_show_it() {
    let (mut bottle, keys) = three();
    bottle.begin(0, 1, &put_all(&keys, "1"));
    bottle.pass(is_decision);
    assert_eq!(
        bottle.passed,
        ["2 prepare", "1 reply", "3 prepare", "1 reply"]
    );
    assert!(bottle.models.iter().all(|model| model.holds() == 0));
    assert_eq!(bottle.outcome(1), None, "it is prepared everywhere");
    bottle.passed.clear();
    bottle.pass(is_reply);
    assert_eq!(bottle.models[2].value(&keys[2]), Some("1"));
    assert_eq!(bottle.outcome(1), None, "no server has said so");
    bottle.pass_all();
    assert_eq!(bottle.outcome(1), Some(&Ok(vec![OwnedReply::Ok; 3])));
    assert_clean(&mut bottle);
    assert_eq!(
        bottle.models[0].attempts(),
        [],
        "and everybody has forgotten it"
    );
}

#[test]
fn a_commit_is_acknowledged_when_it_is_durable() {
    let (mut bottle, keys) = three();
    bottle.begin(0, 1, &put_all(&keys, "1"));
    bottle.pass(is_decision);
    bottle.models[2].synced = false;
    bottle.pass_all();
    assert_eq!(bottle.models[2].value(&keys[2]), Some("1"));
    assert_eq!(bottle.outcome(1), None, "node 3 has not synced");
    let wants = bottle.nodes[2].as_ref().unwrap().wake_conditions();
    assert!(wants.epoch.is_some(), "but is to, at once: {wants:?}");
    bottle.models[2].durable = u64::MAX;
    bottle.settle(2);
    bottle.pass_all();
    assert!(bottle.outcome(1).unwrap().is_ok());
}

#[test]
fn prepared_writes_are_not_seen_and_no_read_waits_for_them() {
    for algorithm in Algorithm::ALL {
        let (mut bottle, keys) = three_with(algorithm);
        bottle.begin(0, 1, &put_all(&keys, "old"));
        bottle.pass_all();
        bottle.begin(0, 2, &put_all(&keys, "new"));
        bottle.pass(is_vote);
        bottle.begin(1, 3, &get_all(&keys));
        bottle.pass(is_vote);
        assert_eq!(bottle.outcome(3), Some(&all("old")), "{algorithm}");
        bottle.pass_all();
        assert!(bottle.outcome(2).unwrap().is_ok());
    }
}

#[test]
fn a_read_between_the_commits_of_a_write_sees_all_of_it() {
    for algorithm in Algorithm::ALL {
        let (mut bottle, keys) = three_with(algorithm);
        bottle.begin(0, 1, &put_all(&keys, "old"));
        bottle.pass_all();
        bottle.begin(0, 2, &put_all(&keys, "new"));
        bottle.models[2].busy = Some(another_holder());
        bottle.pass_all();
        assert_eq!(bottle.models[1].value(&keys[1]), Some("new"));
        assert_eq!(bottle.models[2].value(&keys[2]), Some("old"));
        assert_eq!(bottle.outcome(2), None);
        bottle.passed.clear();
        bottle.begin(1, 3, &get_all(&keys));
        bottle.pass_all();
        assert_eq!(bottle.outcome(3), Some(&all("new")), "{algorithm}");
        let asked = bottle.passed.iter().filter(|m| m.ends_with("versions"));
        let expected = if algorithm == Algorithm::Small { 4 } else { 3 };
        assert_eq!(asked.count(), expected, "{algorithm}");
        let counters = bottle.nodes[1].as_ref().unwrap().counters();
        assert_eq!((counters.ramp_reads, counters.ramp_second_rounds), (1, 1));
        // The commit goes on by itself when nothing is in its way any more.
        bottle.models[2].make_way();
        bottle.settle(2);
        bottle.pass_all();
        assert!(bottle.outcome(2).unwrap().is_ok());
        assert_eq!(bottle.models[2].value(&keys[2]), Some("new"));
        assert_clean(&mut bottle);
    }
}

/// A later read of a key alone sees what an earlier read has seen of it: another partition shows the
/// write, so that it has committed, although this partition does not know yet.
#[test]
fn a_key_by_itself_is_never_older_than_it_was_seen() {
    for algorithm in Algorithm::ALL {
        let (mut bottle, keys) = three_with(algorithm);
        bottle.begin(0, 1, &put_all(&keys, "old"));
        bottle.pass_all();
        bottle.begin(0, 2, &put_all(&keys, "new"));
        bottle.pass(is_decision);
        bottle.sever(0, 2);
        bottle.pass_all();
        assert_eq!(bottle.models[1].value(&keys[1]), Some("new"));
        assert_eq!(bottle.models[2].value(&keys[2]), Some("old"));
        bottle.begin(1, 3, &get_all(&keys)[1..]);
        bottle.pass_all();
        let both = Ok(vec![bytes("new"); 2]);
        assert_eq!(bottle.outcome(3), Some(&both), "{algorithm}");
        assert_eq!(bottle.models[2].value(&keys[2]), Some("new"), "{algorithm}");
        bottle.begin(1, 4, &get_all(&keys)[2..]);
        bottle.pass_all();
        assert_eq!(
            bottle.outcome(4),
            Some(&Ok(vec![bytes("new")])),
            "{algorithm}"
        );
        bottle.mend();
        bottle.wait(Duration::from_secs(10));
        assert!(bottle.outcome(2).expect("it is told").is_ok());
        assert_clean(&mut bottle);
    }
}

#[test]
fn a_read_that_meets_no_writer_takes_one_round_by_fast_and_hybrid() {
    for algorithm in Algorithm::ALL {
        let (mut bottle, keys) = three_with(algorithm);
        bottle.begin(0, 1, &put_all(&keys, "1"));
        bottle.pass_all();
        bottle.passed.clear();
        let exists = Op::Exists {
            key: keys[1].as_bytes(),
        };
        bottle.begin(1, 2, &[get(&keys[0]), exists, get(&keys[0])]);
        bottle.pass_all();
        let replies = vec![bytes("1"), OwnedReply::Int(1), bytes("1")];
        assert_eq!(bottle.outcome(2), Some(&Ok(replies)));
        let rounds = if algorithm == Algorithm::Small { 2 } else { 1 };
        assert_eq!(bottle.passed, ["1 versions", "2 reply"].repeat(rounds));
    }
}

#[test]
fn deletions_are_seen_whole_too() {
    let (mut bottle, keys) = three();
    bottle.begin(0, 1, &put_all(&keys, "1"));
    bottle.pass_all();
    let delete = |at: usize| Op::Delete {
        key: keys[at].as_bytes(),
    };
    bottle.begin(0, 2, &[delete(0), delete(2), put(&keys[1], "2")]);
    bottle.models[2].busy = Some(another_holder());
    bottle.pass_all();
    bottle.begin(1, 3, &get_all(&keys));
    bottle.pass_all();
    let replies = vec![OwnedReply::Nil, bytes("2"), OwnedReply::Nil];
    assert_eq!(bottle.outcome(3), Some(&Ok(replies)));
}

#[test]
fn a_dead_writers_attempt_is_decided_as_a_whole() {
    type Stop = fn(&Message<'_>) -> bool;
    let stops: [(Stop, bool); 4] = [
        (is_prepare, false),
        (is_reply, true),
        (is_decision, true),
        (is_forget, true),
    ];
    for (stop, commits) in stops {
        let (mut bottle, keys) = three();
        bottle.begin(0, 1, &[put(&keys[1], "1"), put(&keys[2], "1")]);
        bottle.pass(stop);
        bottle.kill(0);
        bottle.wait(Duration::from_secs(60));
        let value = |at: usize| bottle.models[at].value(&keys[at]).is_some();
        assert_eq!((value(1), value(2)), (commits, commits));
        assert_clean(&mut bottle);
    }
}

#[test]
fn a_write_that_a_participant_does_not_acknowledge_has_committed_and_its_caller_learns_that() {
    let (mut bottle, keys) = three();
    bottle.begin(0, 1, &put_all(&keys, "1"));
    bottle.pass(is_decision);
    bottle.kill(2);
    bottle.wait(Duration::from_secs(15));
    assert_eq!(bottle.outcome(1), None, "it may come back");
    bottle.wait(Duration::from_secs(10));
    let partitions = vec![3];
    let unacknowledged = Abort::Unacknowledged { partitions };
    let text = unacknowledged.to_string();
    assert!(text.contains("has committed") && !text.contains("not known"));
    assert_eq!(bottle.outcome(1), Some(&Err(unacknowledged)));
    assert_eq!(bottle.models[1].value(&keys[1]), Some("1"));
    bottle.start(2);
    bottle.wait(Duration::from_secs(60));
    assert_eq!(bottle.models[2].value(&keys[2]), Some("1"));
    assert_clean(&mut bottle);
}

#[test]
fn a_write_whose_timestamp_was_overtaken_is_tried_again_with_a_greater_one() {
    let (mut bottle, keys) = three();
    bottle.models[2].time_ms += 5000;
    bottle.begin(2, 1, &[put(&keys[2], "ahead")]);
    bottle.pass_all();
    bottle.begin(0, 2, &put_all(&keys, "behind"));
    bottle.wait(Duration::from_millis(100));
    assert!(bottle.outcome(2).expect("it was tried again").is_ok());
    assert_eq!(bottle.models[2].value(&keys[2]), Some("behind"));
    let counters = bottle.nodes[0].as_ref().unwrap().counters();
    assert_eq!((counters.ramp_writes, counters.ramp_overtaken), (1, 1));
    assert_clean(&mut bottle);
}

#[test]
fn of_concurrent_writes_the_one_with_the_greater_id_stays_everywhere() {
    let (mut bottle, keys) = three();
    bottle.models[1].time_ms += 100;
    bottle.begin(0, 1, &put_all(&keys, "first"));
    bottle.begin(1, 2, &put_all(&keys, "second"));
    bottle.pass_all();
    assert!(bottle.outcome(1).unwrap().is_ok() && bottle.outcome(2).unwrap().is_ok());
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(bottle.models[at].value(key), Some("second"));
    }
    assert_clean(&mut bottle);
}

#[test]
fn a_read_that_is_told_that_versions_are_gone_begins_again() {
    let (mut bottle, keys) = three_with(Algorithm::Small);
    bottle.begin(0, 1, &put_all(&keys, "1"));
    bottle.pass_all();
    bottle.models[2].versions.gone = 1;
    bottle.begin(0, 2, &get_all(&keys));
    bottle.pass_all();
    assert_eq!(bottle.outcome(2), Some(&all("1")));
    let restarts = |bottle: &Bottle| bottle.nodes[0].as_ref().unwrap().counters().ramp_restarts;
    assert_eq!(restarts(&bottle), 1);
    bottle.models[2].versions.gone = usize::MAX;
    bottle.begin(0, 3, &get_all(&keys));
    bottle.pass_all();
    let outcome = bottle.outcome(3);
    assert!(
        matches!(outcome, Some(Err(Abort::Conflict { attempts: 9 }))),
        "{outcome:?}"
    );
}

#[test]
fn a_read_whose_answers_are_lost_is_read_again() {
    let (mut bottle, keys) = three();
    bottle.begin(0, 1, &put_all(&keys, "1"));
    bottle.pass_all();
    bottle.begin(0, 2, &get_all(&keys));
    bottle.pass(is_reply);
    bottle.cut_between(0, 2);
    bottle.wait(Duration::from_millis(500));
    assert_eq!(bottle.outcome(2), Some(&all("1")));
    bottle.sever(0, 2);
    bottle.begin(0, 3, &get_all(&keys));
    bottle.wait(Duration::from_secs(3));
    let outcome = bottle.outcome(3);
    assert!(
        matches!(outcome, Some(Err(Abort::Unavailable { .. }))),
        "{outcome:?}"
    );
    bottle.mend();
    bottle.begin(0, 4, &get_all(&keys));
    bottle.wait(Duration::from_secs(1));
    assert_eq!(bottle.outcome(4), Some(&all("1")));
}

#[test]
fn keys_of_one_partition_are_one_transaction_there() {
    let (mut bottle, keys) = three();
    let other = bottle.key(1, "ra:other");
    let ops = [put(&keys[1], "1"), put(&other, "2")];
    bottle.begin(0, 1, &ops);
    bottle.begin(0, 2, &[get(&keys[1]), get(&other)]);
    bottle.pass_all();
    assert_eq!(bottle.outcome(2), Some(&Ok(vec![bytes("1"), bytes("2")])));
    assert_eq!(
        bottle.passed,
        ["2 execute", "1 reply", "2 versions", "1 reply"]
    );
}

#[test]
fn what_read_atomic_keys_cannot_do_is_refused_wherever_they_lie() {
    let (mut bottle, keys) = three();
    let plain = [bottle.key(0, "plain"), bottle.key(1, "plain")];
    let beside = bottle.key(0, "ra:beside");
    let mut caller = 0;
    for (ops, said) in [
        ([put(&keys[0], "1"), put(&plain[0], "1")], "and others"),
        ([put(&keys[0], "1"), put(&plain[1], "1")], "and others"),
        ([get(&keys[0]), put(&beside, "1")], "read and write"),
        ([get(&keys[0]), put(&keys[1], "1")], "read and write"),
        (
            [
                put(&keys[0], "1"),
                Op::Add {
                    key: beside.as_bytes(),
                    delta: 1,
                },
            ],
            "conditions",
        ),
    ] {
        for at in 0..3 {
            caller += 1;
            bottle.begin(at, caller, &ops);
            let Some(Err(Abort::Unsupported { what })) = bottle.outcome(caller) else {
                panic!("{ops:?}: {:?}", bottle.outcome(caller));
            };
            assert!(what.contains(said), "{what}");
        }
        // The partition itself refuses it, too.
        let request = Request::Execute { ops: ops.to_vec() };
        bottle.say(0, Peer::Client, &Message::Request { number: 1, request });
    }
    assert!(bottle.passed.is_empty());
    assert_eq!(bottle.models[0].value(&keys[0]), None);
    assert_eq!(bottle.models[0].value(&plain[0]), None);
}

/// Sends a request of a client to a node. The node's answers to the client are not heard; its messages
/// are seen.
fn ask(bottle: &mut Bottle, request: Request<'_>) -> Vec<String> {
    bottle.passed.clear();
    bottle.say(0, Peer::Client, &Message::Request { number: 1, request });
    bottle.pass_all();
    std::mem::take(&mut bottle.passed)
}

#[test]
fn clients_choose_the_algorithm_of_a_read() {
    for (algorithm, rounds) in [
        (Algorithm::Fast, 1),
        (Algorithm::Hybrid, 1),
        (Algorithm::Small, 2),
    ] {
        let (mut bottle, keys) = three();
        let ops = put_all(&keys, "1").to_vec();
        ask(&mut bottle, Request::Ramp { algorithm, ops });
        let ops = keys.iter().map(|key| get(key)).collect();
        let passed = ask(&mut bottle, Request::Ramp { algorithm, ops });
        let asked = passed
            .iter()
            .filter(|message| message.ends_with("versions"));
        // The two partitions that are not asked by a call.
        assert_eq!(asked.count(), 2 * rounds, "{algorithm}: {passed:?}");
        let counters = bottle.nodes[0].as_ref().unwrap().counters();
        assert_eq!(counters.ramp_reads, 1);
    }
}

#[test]
fn clients_choose_the_algorithm_of_a_write() {
    let (mut bottle, keys) = three();
    let ops = put_all(&keys, "1").to_vec();
    let algorithm = Algorithm::Small;
    let passed = ask(&mut bottle, Request::Ramp { algorithm, ops });
    assert!(passed.contains(&"3 commit".to_owned()), "{passed:?}");
    assert_eq!(bottle.models[2].value(&keys[2]), Some("1"));
    let untold = bottle.models[2].versions.siblings(&keys[2]);
    assert_eq!(untold, base::change::siblings::untold());
    let plain = bottle.key(0, "plain");
    let ops = vec![put(&plain, "1")];
    assert!(ask(&mut bottle, Request::Ramp { algorithm, ops }).is_empty());
    assert_eq!(bottle.models[0].value(&plain), None);
    let ops = vec![put(&keys[0], "2"), get(&keys[0])];
    assert!(ask(&mut bottle, Request::Ramp { algorithm, ops }).is_empty());
    assert_eq!(bottle.models[0].value(&keys[0]), Some("1"));
}

#[test]
fn a_read_holds_if_its_client_wants_it_but_not_of_read_atomic_keys() {
    let (mut bottle, keys) = three();
    let plain = [0, 1].map(|at| bottle.key(at, "plain"));
    let read = |bottle: &mut Bottle, keys: &[String; 2], holds| {
        let ops = keys.iter().map(|key| get(key)).collect();
        ask(bottle, Request::Coordinate { holds, ops })
    };
    assert!(read(&mut bottle, &plain, true).contains(&"2 prepare".to_owned()));
    assert!(read(&mut bottle, &plain, false).contains(&"2 read".to_owned()));
    let keys = [keys[0].clone(), keys[1].clone()];
    assert!(read(&mut bottle, &keys, true).is_empty());
    assert!(read(&mut bottle, &keys, false).contains(&"2 versions".to_owned()));
    assert_clean(&mut bottle);
}

#[test]
fn clients_read_versions_of_read_atomic_keys_alone() {
    let (mut bottle, keys) = three();
    bottle.begin(0, 1, &put_all(&keys, "1"));
    bottle.pass(is_reply);
    assert!(matches!(
        bottle.models[2].attempts()[..],
        [State::Prepared(_)]
    ));
    let plain = bottle.key(2, "plain");
    let asks = |key| vec![base::versions::Ask::Newest { key }];
    for (at, key, said) in [
        (2, keys[2].as_bytes(), "Versions([Nothing])"),
        (2, plain.as_bytes(), "Unsupported"),
        (1, keys[2].as_bytes(), "Unavailable"),
    ] {
        let request = Request::Versions { asks: asks(key) };
        let answer = bottle.answer(at, Peer::Client, request);
        assert!(answer.contains(said), "{answer}");
    }
}

#[test]
fn a_writer_that_comes_to_lead_the_home_still_tells_its_caller() {
    for keeps_up in [true, false] {
        let mut bottle = Bottle::holding(5, &[vec![1, 2, 3], vec![4]]);
        let (a, b) = (bottle.key(0, "ra:"), bottle.key(1, "ra:"));
        bottle.begin(1, 1, &[put(&a, "0"), put(&b, "0")]);
        bottle.wait(Duration::from_secs(1));
        assert!(bottle.outcome(1).expect("the leader was found").is_ok());
        bottle.begin(1, 2, &[put(&a, "1"), put(&b, "1")]);
        bottle.pass(is_decision);
        bottle.hand_over(0, 1, true);
        bottle.cut_between(1, 3);
        if !keeps_up {
            bottle.models[1].freeze();
        }
        // It finds the attempt as a new leader does, before its commits arrive anywhere.
        bottle.wait_passing(Duration::from_millis(400), is_decision);
        assert_eq!(bottle.models[1].value(&a), Some("1"));
        let counters = bottle.nodes[1].as_ref().unwrap().counters();
        assert_eq!(counters.resolved_committed, 1);
        if !keeps_up {
            // Its decision as the home's leader is lost with its leadership, and another node leads.
            bottle.hand_over(1, 2, false);
        }
        assert_eq!(bottle.outcome(2), None);
        bottle.wait(Duration::from_secs(10));
        assert!(bottle.outcome(2).expect("it is told").is_ok());
        let leader = if keeps_up { 1 } else { 2 };
        assert_eq!(bottle.models[leader].value(&a), Some("1"));
        assert_eq!(bottle.models[3].value(&b), Some("1"));
    }
}
