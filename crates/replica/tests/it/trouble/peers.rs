//! Faulty peers: they send messages that no member sends, have another secret, or are an old copy
//! of a member.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use base::codec::put_count;
use fabric::frame::{NONCE, TransportSet};
use fabric::handshake::{ConnectionTerms, Handshake, Identity};
use fabric::{Peer, Secret};
use kumiki_replica::{MembershipChange, ReplicatedPartition, Role};

use crate::support::members::PATIENCE;
use crate::trouble::group::Group;
use testkit::{eventually, eventually_some};

/// Kinds of messages of Raft, as the library numbers them.
const APPEND: u8 = 3;
const APPEND_RESPONSE: u8 = 4;
const REQUEST_VOTE: u8 = 5;
const HEARTBEAT: u8 = 8;

/// The fields of a message of Raft that these tests set.
#[derive(Clone, Copy, Default)]
struct Said {
    kind: u8,
    term: u64,
    log_term: u64,
    index: u64,
    commit: u64,
}

/// Returns the id of a member with which a node was founded.
fn id(node: usize) -> u64 {
    1 << 16 | (node as u64 + 1)
}

/// Encodes a message between the first members of two nodes; see the module `wire::message`.
fn encode(said: Said, to: usize, from: usize) -> Vec<u8> {
    let mut bytes = vec![1, 1, 1, said.kind, 0];
    for number in [
        id(to),
        id(from),
        said.term,
        said.log_term,
        said.index,
        said.commit,
    ] {
        put_count(&mut bytes, number);
    }
    // Commit term, request of a snapshot, hint, entries.
    bytes.extend([0; 4]);
    bytes
}

/// Connects as a node that knows the secret, and sends one message.
fn say(group: &Group, to: usize, from: usize, message: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(group.address(to)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let identity = Identity {
        me: Peer::Node(NodeId(from as u16 + 1)),
        cluster: Some(0),
        secret: Secret::new(""),
        clients: None,
        ways: TransportSet::NONE,
    };
    let (mut out, mut arrived) = (Vec::new(), Vec::new());
    let terms = ConnectionTerms {
        nonce: [4; NONCE],
        encrypt: false,
    };
    let mut handshake = Handshake::initiate(&identity, None, terms, &mut out);
    loop {
        stream.write_all(&out).unwrap();
        out.clear();
        let mut buffer = [0; 100];
        let read = stream.read(&mut buffer).unwrap();
        arrived.extend(&buffer[..read]);
        let (used, proved) = handshake.advance(&identity, &arrived, &mut out).unwrap();
        arrived.drain(..used);
        if proved.is_some() {
            break;
        }
    }
    let mut frame = (message.len() as u32).to_le_bytes().to_vec();
    frame.extend(message);
    stream.write_all(&frame).unwrap();
    stream
}

/// Waits until the other end closes the link.
fn assert_closed(mut stream: TcpStream) {
    let ended = stream.read_to_end(&mut Vec::new());
    assert!(
        ended
            .as_ref()
            .map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true),
        "the link is still up: {ended:?}"
    );
}

#[test]
fn no_message_ends_a_member_or_keeps_it_from_starting() {
    let mut group = Group::start(3);
    group.fill(0..20);
    let leader = group.leader();
    let (follower, gone) = ((leader + 1) % 3, (leader + 2) % 3);
    group.stop(gone);
    let term = group.member(leader).status().term;
    let far = 1 << 40;
    let said = |kind| Said {
        kind,
        term,
        ..Said::default()
    };
    let malformed = [
        Said {
            commit: far,
            ..said(HEARTBEAT)
        },
        Said {
            index: far,
            commit: far,
            ..said(APPEND)
        },
        Said {
            index: far,
            ..said(APPEND_RESPONSE)
        },
        Said {
            term: u64::MAX,
            ..said(REQUEST_VOTE)
        },
        Said {
            term: u64::MAX,
            ..said(HEARTBEAT)
        },
        Said {
            kind: 200,
            ..said(HEARTBEAT)
        },
    ];
    for (at, malformed) in malformed.into_iter().enumerate() {
        for to in [follower, leader] {
            // A leader takes no heartbeats of its own term, and a follower no responses.
            let is_for = match malformed.kind {
                APPEND_RESPONSE => to == leader,
                HEARTBEAT if malformed.term == term => to == follower,
                _ => true,
            };
            if is_for {
                let message = encode(malformed, to, gone);
                assert_closed(say(&group, to, gone, &message));
            }
            assert_eq!(group.member(to).failed(), None, "message {at}");
        }
    }
    group.fill(20..40);
    assert_eq!(group.member(leader).status().term, term);
    for at in [follower, leader] {
        group.stop(at);
        group.restart(at).unwrap();
    }
    group.restart(gone).unwrap();
    group.fill(40..50);
    group.agree();
}

/// A faulty leader sends a change of the members that the library refuses.
#[test]
fn an_impossible_change_of_the_members_is_passed_over() {
    let mut group = Group::start(3);
    group.fill(0..20);
    group.caught_up();
    let leader = group.leader();
    let (follower, gone) = ((leader + 1) % 3, (leader + 2) % 3);
    group.stop(gone);
    let status = group.member(follower).status();
    let mut message = encode(
        Said {
            kind: APPEND,
            term: status.term + 1,
            log_term: status.term,
            index: status.last,
            commit: status.last + 1,
        },
        follower,
        gone,
    );
    // One entry replaces none: a change that removes all members.
    *message.last_mut().unwrap() = 1;
    message.push(2);
    put_count(&mut message, status.term + 1);
    put_count(&mut message, status.last + 1);
    message.extend([0, 3]);
    for node in 0..3 {
        message.push(1);
        put_count(&mut message, id(node));
    }
    message.extend([0, 0]);
    let _link = say(&group, follower, gone, &message);
    eventually("it is passed over", || {
        group.member(follower).status().applied > status.last
    });
    assert_eq!(group.member(follower).failed(), None);
    group.fill(20..40);
    group.stop(follower);
    group.restart(follower).unwrap();
    group.fill(40..60);
    assert_eq!(group.member(follower).failed(), None);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Puts a member back to an old copy of its directory while the same leader goes on. Returns the
/// reason why the member has stopped. Returns `None` if another member leads meanwhile, which does
/// not know what was acknowledged.
fn put_back(group: &mut Group, old: usize, keys: std::ops::Range<u32>) -> Option<String> {
    group.caught_up();
    let leader = group.leader();
    let term = group.member(leader).status().term;
    group.stop(old);
    let kept = tempfile::tempdir().unwrap();
    copy(&group.data(old), kept.path());
    group.restart(old).unwrap();
    group.fill(keys);
    group.caught_up();
    group.stop(old);
    std::fs::remove_dir_all(group.data(old)).unwrap();
    copy(kept.path(), &group.data(old));
    group.restart(old).unwrap();
    eventually_some("it stops", || {
        let failed = group.member(old).failed();
        let is_same = group.member(leader).status().term == term;
        (failed.is_some() || !is_same).then_some(failed)
    })
}

#[test]
fn an_old_copy_of_a_member_says_what_to_do() {
    let mut group = Group::start(3);
    group.fill(0..20);
    let old = (group.leader() + 1) % 3;
    // If the machine stands still, another leader is elected.
    let failed = (1..)
        .find_map(|round| put_back(&mut group, old, round * 20..round * 20 + 20))
        .unwrap();
    let node = group.nodes[old];
    for words in [
        "older than what this member has acknowledged",
        "delete its data directory",
        &format!("kumiki cluster add --node {node}"),
    ] {
        assert!(failed.contains(words), "{failed}");
    }
    let status = group.member(old).status();
    assert_eq!(status.role, Role::Stopped);
    assert_eq!(status.note, Some(failed));
    // The others go on, and the advice helps.
    group.execute(&[base::Op::put(b"key", b"value")]);
    group.stop(old);
    std::fs::remove_dir_all(group.data(old)).unwrap();
    group.restart(old).unwrap();
    eventually("it is added", || {
        let leader = group.member(group.leader());
        leader.change(MembershipChange::Add(node), PATIENCE).is_ok()
    });
    group.agree();
}

#[test]
fn a_member_with_another_secret_is_named_with_the_cause() {
    let mut group = Group::start(3);
    group.fill(0..3);
    let leader = group.leader();
    let other = (leader + 1) % 3;
    group.stop(other);
    group.restart_with_secret(other, "another one");
    let says = |member: Arc<ReplicatedPartition>, node: NodeId| {
        let note = member.status().note.unwrap_or_default();
        note.contains(&format!("no link to node {node}:")) && note.contains("the secrets differ")
    };
    let (this, that) = (group.nodes[leader], group.nodes[other]);
    eventually("both name the cause", || {
        says(group.member(leader), that) && says(group.member(other), this)
    });
    // The note disappears with its cause.
    group.stop(other);
    group.restart(other).unwrap();
    eventually("there is no note", || {
        group
            .alive()
            .all(|(_, member)| member.status().note.is_none())
    });
    group.agree();
}

/// Both processes have the same data and number; the second would acknowledge and vote once more.
#[test]
fn a_second_copy_of_a_member_is_refused_by_its_group() {
    let mut group = Group::start(3);
    group.fill(0..20);
    let of = (group.leader() + 1) % 3;
    group.stop(of);
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(group.data(of)).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    group.restart(of).unwrap();
    group.fill(20..40);
    group.agree();
    let second = group.start_copy(of, copy.path().to_owned());
    let note = format!("two processes take part as node {}", group.nodes[of]);
    eventually_some("the leader says so", || {
        let said = group.member(group.leader()).status().note?;
        (said.contains(&note) && said.contains("delete its data directory")).then_some(())
    });
    // The group goes on with the first process.
    group.fill(40..60);
    group.agree();
    assert!(!second.is_leader());
    second.close(Duration::ZERO);
    eventually_some("it says no more", || {
        let said = group.member(group.leader()).status().note;
        said.is_none_or(|said| !said.contains(&note)).then_some(())
    });
}
