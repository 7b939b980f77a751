//! Writes of read-atomic keys that the client coordinates.

use std::time::Duration;

use base::{Abort, NodeId, Timestamp};
use cluster::message::{Answer, AttemptOutcome, Notice};
use kumiki_client::{Algorithm, Client, Error, Options, WriteCoordinator};

use crate::nodes::{Cluster, Fault, RA_ON_1, RA_ON_2};

/// A key of each node. Node 2 is the home, because it has the first key in their order.
const BOTH: [&[u8]; 2] = [RA_ON_1[0], RA_ON_2[0]];
const NODES: [NodeId; 2] = [NodeId(1), NodeId(2)];

fn client(cluster: &Cluster, timeout: Duration) -> Client {
    cluster.client_with(Options {
        writes: WriteCoordinator::Client,
        timeout,
        ..Cluster::options()
    })
}

fn patient(cluster: &Cluster) -> Client {
    client(cluster, Duration::from_secs(10))
}

fn put(client: &Client, value: &str) -> Result<(), Error> {
    let pairs = BOTH.map(|key| (key, Some(value.as_bytes())));
    client.put_all(&pairs, Algorithm::Fast)
}

fn assert_has(cluster: &Cluster, value: &str) {
    for key in BOTH {
        assert_eq!(cluster.data.lock().get(key), Some(value.as_bytes()));
    }
}

/// Takes the notices that nodes have got: the nodes, and `true` for notices to forget.
fn notices(cluster: &Cluster) -> Vec<(NodeId, bool)> {
    let notices = std::mem::take(&mut cluster.data.lock().notices);
    let mut notices: Vec<_> = notices
        .into_iter()
        .map(|(node, notice)| (node, matches!(notice, Notice::Forget { .. })))
        .collect();
    notices.sort_unstable();
    notices
}

#[test]
fn each_partition_prepares_and_commits_and_forgets_with_the_next_message() {
    let cluster = Cluster::new();
    let client = patient(&cluster);
    put(&client, "1").unwrap();
    assert_has(&cluster, "1");
    assert!(cluster.data.lock().coordinated.is_empty());
    assert_eq!([1, 2].map(|node| cluster.executed(node)), [2, 2]);
    assert_eq!(notices(&cluster), [], "nothing is sent for them alone");
    put(&client, "2").unwrap();
    assert_has(&cluster, "2");
    assert_eq!(notices(&cluster), NODES.map(|node| (node, true)));
    drop(client);
    // Stopped nodes have served all that was sent.
    let data = std::sync::Arc::clone(&cluster.data);
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while data.lock().notices.len() < 2 {
        assert!(std::time::Instant::now() < until, "the last ones are sent");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_vote_against_aborts_the_others_and_the_next_id_is_greater() {
    let cluster = Cluster::new();
    let client = patient(&cluster);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let newest = Timestamp::at_ms(now.unwrap().as_millis() as u64 + 5000);
    cluster.fault(2, Fault::Say(Answer::Aborted(Abort::Overtaken { newest })));
    put(&client, "1").unwrap();
    assert_has(&cluster, "1");
    assert_eq!(notices(&cluster), [(NODES[0], false)]);
    put(&client, "2").unwrap();
    let data = cluster.data.lock();
    let id = |(_, notice): &(NodeId, Notice)| match notice {
        Notice::Forget { id } | Notice::Abort { id } => *id,
    };
    assert!(data.notices.iter().all(|one| id(one).timestamp > newest));
}

#[test]
fn the_home_is_asked_when_a_vote_is_lost() {
    for lost in [Fault::CloseBefore, Fault::CloseAfter, Fault::Silence] {
        let cluster = Cluster::new();
        let client = patient(&cluster);
        cluster.fault(1, lost.clone());
        put(&client, "1").unwrap();
        assert_has(&cluster, "1");
        let aborted = notices(&cluster);
        assert_eq!(aborted, NODES.map(|node| (node, false)), "after {lost:?}");
        // The home has all votes, and has committed before it was asked.
        let failed = Answer::Failed("its disk is full".to_owned());
        cluster.fault(1, Fault::SayAfter(failed));
        let committed = Answer::AttemptOutcome(AttemptOutcome::Committed);
        for fault in [Fault::None, Fault::Say(committed)] {
            cluster.fault(2, fault);
        }
        put(&client, "2").unwrap();
        assert_has(&cluster, "2");
    }
}

#[test]
fn commits_are_repeated_until_they_are_answered() {
    let cluster = Cluster::new();
    let client = patient(&cluster);
    let elsewhere = Answer::Aborted(Abort::Elsewhere { leader: None });
    for fault in [
        Fault::None,
        Fault::CloseAfter,
        Fault::CloseBefore,
        Fault::Silence,
        Fault::Say(elsewhere),
    ] {
        cluster.fault(1, fault);
    }
    put(&client, "1").unwrap();
    assert_has(&cluster, "1");
    assert_eq!(cluster.executed(2), 2, "it has answered at once");
}

#[test]
fn an_answer_that_does_not_come_in_time_leaves_an_outcome_that_the_error_gives() {
    let short = Duration::from_millis(700);
    // Commits are not answered: the write has committed. Or the home does not say what has become of the
    // attempt.
    for (vote, silent, committed) in [(Fault::None, 1, true), (Fault::Silence, 2, false)] {
        let cluster = Cluster::new();
        let client = client(&cluster, short);
        cluster.fault(1, vote);
        cluster.fault(2, Fault::None);
        for _ in 0..50 {
            cluster.fault(silent, Fault::Silence);
        }
        let error = put(&client, "1").unwrap_err();
        let known = (error.is_committed(), error.is_unknown());
        assert_eq!(known, (committed, !committed), "{error}");
        assert_ne!(committed, error.to_string().contains("not known"));
    }
    // Without an answer to anything but the vote against, nothing has happened.
    let cluster = Cluster::new();
    let client = client(&cluster, short);
    for _ in 0..5000 {
        cluster.fault(2, Fault::Say(Answer::Aborted(Abort::Refused)));
    }
    let error = put(&client, "1").unwrap_err();
    assert!(error.is_retryable(), "{error}");
}
