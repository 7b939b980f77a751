//! Three members in one process, over TCP on loopback.

mod popular_keys;
mod sessions;

use std::net::TcpListener;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::partition::OwnedReply;
use base::transaction::{Observed, ValueCall};
use base::{Abort, Epoch, Op, Reply};
use disk::RealDisk;
use kumiki_replica::{
    Grouping, MemberOptions, MembershipChange, Now, Options, ReplicatedPartition, Role, Sequenced,
    SystemTime, Time, Worker,
};

use crate::support::members::{Members, PATIENCE};
use testkit::eventually_some;
use values::{hash_deadlines, hashes};

/// A partition of several members with these options.
struct Group {
    inner: Members,
    grouping: Grouping,
    leases: bool,
    session: Duration,
    sessions: usize,
    /// The milliseconds by which each member's clock is ahead.
    ahead_ms: Vec<u64>,
}

impl Deref for Group {
    type Target = Members;

    fn deref(&self) -> &Members {
        &self.inner
    }
}

impl DerefMut for Group {
    fn deref_mut(&mut self) -> &mut Members {
        &mut self.inner
    }
}

/// The machine's clocks, with the wall clock ahead by this many milliseconds.
struct Ahead(u64, SystemTime);

impl Time for Ahead {
    fn now(&self) -> Now {
        let mut now = self.1.now();
        now.wall_ms += self.0;
        now
    }
}

impl Group {
    fn start(count: u16) -> Group {
        Group::start_as(count, Grouping::Group(64), false)
    }

    fn start_as(count: u16, grouping: Grouping, leases: bool) -> Group {
        let (session, sessions) = (Duration::from_secs(600), 1000);
        Group::start_with(count, grouping, leases, (session, sessions))
    }

    /// Starts members with sessions that end after a time and are limited in number.
    fn start_with(
        count: u16,
        grouping: Grouping,
        leases: bool,
        (session, sessions): (Duration, usize),
    ) -> Group {
        let (inner, listeners) = Members::new(count);
        let mut group = Group {
            inner,
            grouping,
            leases,
            session,
            sessions,
            ahead_ms: vec![0; count.into()],
        };
        for (at, listener) in listeners.into_iter().enumerate() {
            group.open(at, listener);
        }
        group
    }

    fn open(&mut self, at: usize, listener: TcpListener) {
        let member = MemberOptions {
            grouping: self.grouping,
            leases: self.leases,
            session: self.session,
            sessions: self.sessions,
            ..self.member_options(at)
        };
        let options = Options {
            disk: Arc::new(RealDisk),
            time: Arc::new(Ahead(self.ahead_ms[at], SystemTime::default())),
            ..self.options(at, member, listener)
        };
        self.inner.open(at, options).unwrap();
    }

    fn restart(&mut self, at: usize) {
        let listener = self.listen(at);
        self.open(at, listener);
    }

    fn worker(&self, at: usize) -> Worker {
        self.members[at].as_ref().unwrap().worker().unwrap()
    }
}

/// Waits for a ticket. Returns `true` if it has resolved.
fn wait(member: &ReplicatedPartition, ticket: Epoch) -> bool {
    eventually_some("a ticket", || {
        if member.is_lost(ticket) {
            return Some(false);
        }
        (member.durable() >= ticket).then_some(true)
    })
}

fn execute(
    member: &ReplicatedPartition,
    worker: &mut Worker,
    ops: &[Op<'_>],
) -> Result<Vec<OwnedReply>, Abort> {
    let see = |replies: &[Reply<'_>], observed: Observed| {
        let replies: Vec<_> = replies.iter().map(OwnedReply::from).collect();
        (replies, observed.epoch)
    };
    let (replies, ticket) = worker.execute(ops, see)?;
    if wait(member, ticket) {
        Ok(replies)
    } else {
        Err(Abort::Unknown {
            what: "the leadership was lost".to_owned(),
        })
    }
}

/// Executes at the leader, and tries again until it succeeds.
fn at_the_leader(group: &Group, ops: &[Op<'_>]) -> Vec<OwnedReply> {
    eventually_some("a transaction", || {
        let at = group.leader();
        let member = group.members[at].as_ref().unwrap();
        execute(member, &mut group.worker(at), ops).ok()
    })
}

/// Opens a session at the leader, and tries again until it succeeds.
fn open_session(group: &Group) -> Result<u64, Abort> {
    eventually_some("an answer", || {
        let at = group.leader();
        let mut worker = group.worker(at);
        let number = worker.open_session().ok()?;
        let member = group.members[at].as_ref().unwrap();
        wait(member, worker.observed().epoch).then_some(())?;
        worker.opened(number)
    })
}

/// Executes one of a session's transactions at the leader, until it is answered.
fn once(group: &Group, ops: &[Op<'_>], sequenced: Sequenced) -> Result<Vec<OwnedReply>, Abort> {
    eventually_some("an answer", || {
        let at = group.leader();
        let member = group.members[at].as_ref().unwrap();
        let mut worker = group.worker(at);
        let naive = worker.is_naive();
        let proposed = naive.then(|| worker.propose(ops, sequenced));
        let executed = match &proposed {
            Some(proposed) => proposed.clone().map(|_| Vec::new()),
            None => worker.execute_once(ops, sequenced),
        };
        let again =
            |abort: &Abort| matches!(abort, Abort::Elsewhere { .. } | Abort::Unknown { .. });
        if executed.as_ref().is_err_and(again) || !wait(member, worker.observed().epoch) {
            return None;
        }
        match proposed {
            Some(number) => worker.outcome(number.ok()?),
            None => Some(executed),
        }
    })
}

const NO_SESSION: Sequenced = Sequenced {
    session: 0,
    sequence: 0,
};

fn add(key: &[u8]) -> Op<'_> {
    Op::Add { key, delta: 1 }
}

#[test]
fn what_the_leader_acknowledges_is_everywhere_and_others_send_there() {
    let group = Group::start(3);
    for n in 1..=20 {
        let replies = at_the_leader(&group, &[add(b"n"), Op::put(b"k", b"v")]);
        assert_eq!(replies[0], OwnedReply::Int(n));
    }
    let leader = group.leader();
    assert_eq!(
        at_the_leader(&group, &[Op::Get { key: b"n" }])[0],
        OwnedReply::Bytes(b"20".into())
    );
    let follower = (leader + 1) % 3;
    let refused = group
        .worker(follower)
        .execute(&[Op::Get { key: b"n" }], |_, _| ());
    let to = Some(group.nodes[leader]);
    assert_eq!(refused, Err(Abort::Elsewhere { leader: to }));
    let hashes = group.hashes();
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

/// Appends and overwrites, from several threads, in a large value: entries have the operations, and every
/// member executes them, after a restart as well.
#[test]
fn a_small_change_to_a_large_value_is_a_small_entry() {
    const LARGE: usize = 1 << 20;
    let mut group = Group::start(3);
    let large = vec![b'.'; LARGE];
    at_the_leader(&group, &[Op::put(b"large", &large)]);
    let session = open_session(&group).unwrap();
    let logged = |group: &Group| group.member(group.leader()).status().log_bytes;
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let group = &group;
            scope.spawn(move || {
                for at in 0..20_u8 {
                    let value = [thread, at];
                    let (key, offset) = (b"large", usize::from(thread) * 20 + usize::from(at));
                    let op = match at % 2 {
                        0 => Op::Append { key, value: &value },
                        _ => Op::SetRange {
                            key,
                            offset,
                            value: &value[1..],
                        },
                    };
                    let length = at_the_leader(group, &[op])[0].clone();
                    let OwnedReply::Int(length) = length else {
                        panic!("{length:?}")
                    };
                    assert!(length as usize > LARGE && length as usize <= LARGE + 80);
                    at_the_leader(group, &[add(b"n")]);
                }
            });
        }
    });
    let append = [Op::Append {
        key: b"large",
        value: b"end",
    }];
    let sequenced = Sequenced {
        session,
        sequence: 1,
    };
    for _ in 0..2 {
        let replies = once(&group, &append, sequenced).unwrap();
        assert_eq!(replies, [OwnedReply::Int(LARGE as i64 + 83)]);
    }
    // The value has been logged once.
    let written = logged(&group);
    assert!(written < 2 * LARGE as u64, "{written} bytes were logged");

    let read = at_the_leader(&group, &[Op::Get { key: b"large" }]);
    let OwnedReply::Bytes(value) = &read[0] else {
        panic!("{read:?}")
    };
    assert_eq!(value.len(), LARGE + 83);
    assert!(value.ends_with(b"end"));
    for thread in 0..4_u8 {
        for at in 0..20_u8 {
            let offset = usize::from(thread) * 20 + usize::from(at);
            match at % 2 {
                0 => assert!(value[LARGE..].chunks(2).any(|pair| pair == [thread, at])),
                _ => assert_eq!(value[offset], at),
            }
        }
    }
    let hashes = group.hashes();
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    for at in 0..3 {
        group.stop(at);
    }
    for at in 0..3 {
        group.restart(at);
    }
    assert_eq!(at_the_leader(&group, &[Op::Get { key: b"large" }]), read);
    assert_eq!(group.hashes(), hashes);
}

#[test]
fn plain_raft_refuses_what_is_beyond_the_limits_before_it_is_logged() {
    let group = Group::start_as(3, Grouping::Naive, false);
    let at = group.leader();
    let mut worker = group.worker(at);
    for offset in [512 << 20, usize::MAX] {
        let op = Op::SetRange {
            key: b"k",
            offset,
            value: b"v",
        };
        let refused = worker.propose(&[op], NO_SESSION);
        assert!(
            matches!(refused, Err(Abort::TooLarge { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn submissions_that_gather_are_taken_when_they_are_announced() {
    let group = Group::start(3);
    at_the_leader(&group, &[add(b"warm")]);
    let at = group.leader();
    let member = group.member(at);
    let mut worker = group.worker(at);
    worker.gather();
    for round in 1..=20 {
        for key in 0..10_u8 {
            worker.execute(&[add(&[key])], |_, _| ()).unwrap();
        }
        let ticket = worker.observed().epoch;
        assert!(worker.has_unannounced());
        worker.announce();
        assert!(!worker.has_unannounced());
        assert!(wait(&member, ticket), "round {round}");
    }
    let read = at_the_leader(&group, &[Op::Get { key: &[7] }]);
    assert_eq!(read, [OwnedReply::Bytes(b"20".into())]);
}

#[test]
fn a_follower_shows_what_it_has_when_it_is_not_too_old() {
    let group = Group::start(3);
    at_the_leader(&group, &[Op::put(b"k", b"v")]);
    let follower = (group.leader() + 1) % 3;
    let mut worker = group.worker(follower);
    let shown = eventually_some("a fresh follower", || {
        let see = |replies: &[Reply<'_>], _: Observed| replies[0] == Reply::Bytes(b"v");
        let bound = Duration::from_secs(1);
        worker
            .read_stale(&[Op::Get { key: b"k" }], bound, see)
            .ok()
            .filter(|shown| *shown)
    });
    assert!(shown);
}

#[test]
fn a_leader_dies_and_comes_back() {
    let mut group = Group::start(3);
    for _ in 0..10 {
        at_the_leader(&group, &[add(b"n")]);
    }
    let first = group.leader();
    group.stop(first);
    let replies = at_the_leader(&group, &[add(b"n")]);
    assert_eq!(replies[0], OwnedReply::Int(11));
    group.restart(first);
    at_the_leader(&group, &[add(b"n")]);
    let hashes = group.hashes();
    assert_eq!(hashes.len(), 3);
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

/// Executes at the leader, until the outcome is decided.
fn decided(group: &Group, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, Abort> {
    eventually_some("a decision", || {
        let at = group.leader();
        let member = group.members[at].as_ref().unwrap();
        let mut worker = group.worker(at);
        match execute(member, &mut worker, ops) {
            Err(Abort::Elsewhere { .. } | Abort::Unknown { .. } | Abort::Held { .. }) => None,
            Err(abort) if !wait(member, worker.observed().epoch) => {
                drop(abort);
                None
            }
            decided => Some(decided),
        }
    })
}

fn guard(token: u64) -> Op<'static> {
    Op::Guard {
        lock: b"lock",
        token,
    }
}

#[test]
fn tokens_are_remembered_by_later_leaders() {
    let mut group = Group::start(3);
    let write = |group: &Group, token| decided(group, &[guard(token), add(b"n")]);
    let stale = |token, highest| {
        let lock = b"lock".to_vec();
        Err(Abort::Stale {
            lock,
            token,
            highest,
        })
    };
    let count = |group: &Group| at_the_leader(group, &[Op::Get { key: b"n" }]).remove(0);
    for token in [3, 5, 5] {
        write(&group, token).unwrap();
    }
    assert_eq!(write(&group, 4), stale(4, 5));
    for token in 6..9 {
        let leader = group.leader();
        group.stop(leader);
        assert_eq!(write(&group, token - 2), stale(token - 2, token - 1));
        let before = count(&group);
        assert_eq!(write(&group, token - 2), stale(token - 2, token - 1));
        assert_eq!(count(&group), before, "nothing has happened");
        write(&group, token).unwrap();
        at_the_leader(&group, &[Op::Flush]);
        group.restart(leader);
    }
    assert_eq!(write(&group, 7), stale(7, 8));
    let hashes = group.hashes();
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

/// Each leader's clock is behind that of the previous one.
#[test]
fn the_time_does_not_go_back_when_leaders_change() {
    let mut group = Group::start(3);
    let now = |group: &Group| match at_the_leader(group, &[Op::Now])[0] {
        OwnedReply::Int(now) => now,
        ref other => panic!("{other:?}"),
    };
    let first = group.leader();
    let mut told = now(&group);
    // The first leader comes back with a clock that is ahead, and leads again.
    group.stop(first);
    group.leader();
    group.ahead_ms[first] = 60_000;
    group.restart(first);
    eventually_some("it leads again", || {
        let other = group.leader();
        if other != first {
            group.caught_up();
            group.stop(other);
            group.leader();
            group.restart(other);
        }
        (group.leader() == first).then_some(())
    });
    let ahead = now(&group);
    assert!(ahead >= told + 30_000, "{ahead} after {told}");
    told = ahead;
    // Only the time is asked for, and the clock of the next leader is a minute behind.
    for _ in 0..3 {
        group.stop(first);
        let next = now(&group);
        assert!(next >= told, "{next} after {told}");
        told = next;
        group.restart(first);
        group.caught_up();
        if group.leader() == first {
            break;
        }
    }
}

#[test]
fn a_node_that_lost_its_disk_comes_back_as_a_new_member() {
    let mut group = Group::start(3);
    for _ in 0..50 {
        at_the_leader(&group, &[add(b"n")]);
    }
    let lost = (group.leader() + 1) % 3;
    group.stop(lost);
    std::fs::remove_dir_all(group.data(lost)).unwrap();
    group.restart(lost);
    let node = group.nodes[lost];
    eventually_some("it waits", || {
        let status = group.members[lost].as_ref().unwrap().status();
        status
            .note
            .filter(|note| note.contains("kumiki cluster add"))
    });
    let leader = group.members[group.leader()].clone().unwrap();
    eventually_some("the leader has heard it", || {
        let added = leader.change(MembershipChange::Add(node), PATIENCE);
        added
            .inspect_err(|error| eprintln!("{error}; {:?}", leader.status()))
            .ok()
    });
    eventually_some("it follows", || {
        let status = group.members[lost].as_ref().unwrap().status();
        (status.role == Role::Follower && status.raft_id >> 16 == 2).then_some(())
    });
    assert_eq!(leader.status().members.len(), 3);
    let hashes = group.hashes();
    assert_eq!(hashes.len(), 3);
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    assert_eq!(at_the_leader(&group, &[add(b"n")])[0], OwnedReply::Int(51));
}

#[test]
fn leadership_is_handed_over_by_command_and_at_the_end() {
    let mut group = Group::start(3);
    at_the_leader(&group, &[add(b"n")]);
    let first = group.leader();
    let heir = (first + 1) % 3;
    let change = MembershipChange::Transfer(Some(group.nodes[heir]));
    // It is refused as long as the leader has not heard of the heir.
    eventually_some("the leadership is handed over", || {
        let leader = group.members[first].as_ref().unwrap();
        leader.change(change, PATIENCE).ok()
    });
    eventually_some("the heir leads", || {
        group.members[heir]
            .as_ref()
            .unwrap()
            .is_leader()
            .then_some(())
    });
    let begun = Instant::now();
    group.members[heir].take().unwrap().close(PATIENCE);
    assert_eq!(at_the_leader(&group, &[add(b"n")])[0], OwnedReply::Int(2));
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "no client waited for a time-out or two"
    );
}

#[test]
fn plain_raft_executes_after_consensus() {
    let group = Group::start_as(3, Grouping::Naive, false);
    let leader = group.leader();
    let member = Arc::clone(group.members[leader].as_ref().unwrap());
    let mut worker = group.worker(leader);
    assert!(
        worker.execute(&[add(b"n")], |_, _| ()).is_err(),
        "nothing is executed before"
    );
    let session = open_session(&group).unwrap();
    let by = |sequence| Sequenced { session, sequence };
    for n in 1..=5 {
        let number = worker.propose(&[add(b"n")], by(n as u64)).unwrap();
        assert!(wait(&member, worker.observed().epoch));
        assert_eq!(worker.outcome(number), Some(Ok(vec![OwnedReply::Int(n)])));
    }
    let number = worker.propose(&[add(b"n")], by(5)).unwrap();
    assert!(wait(&member, worker.observed().epoch));
    assert_eq!(
        worker.outcome(number),
        Some(Ok(vec![OwnedReply::Int(5)])),
        "sent again"
    );
    let check = Op::Require {
        key: b"n",
        present: false,
    };
    let number = worker.propose(&[check, add(b"n")], by(6)).unwrap();
    assert!(wait(&member, worker.observed().epoch));
    assert_eq!(
        worker.outcome(number),
        Some(Err(Abort::Precondition { op: 0 }))
    );
    let replies = execute(&member, &mut worker, &[Op::Get { key: b"n" }]).unwrap();
    assert_eq!(replies, [OwnedReply::Bytes(b"5".into())]);
    let hashes = group.hashes();
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[test]
fn a_leader_with_a_lease_answers_reads_at_once() {
    let group = Group::start_as(3, Grouping::Group(64), true);
    at_the_leader(&group, &[Op::put(b"k", b"v")]);
    let mut worker = group.worker(group.leader());
    eventually_some("a lease", || {
        let see = |_: &[Reply<'_>], observed: Observed| observed.epoch;
        let ticket = worker.execute(&[Op::Get { key: b"k" }], see).ok()?;
        (ticket == Epoch::ZERO).then_some(())
    });
    // A leader without the others cannot prolong its lease, and must not answer for long.
    let (leader, others) = {
        let leader = group.leader();
        (leader, [(leader + 1) % 3, (leader + 2) % 3])
    };
    let mut group = group;
    for other in others {
        group.stop(other);
    }
    let mut worker = group.worker(leader);
    eventually_some("the lease has ended", || {
        let see = |_: &[Reply<'_>], observed: Observed| observed.epoch;
        match worker.execute(&[Op::Get { key: b"k" }], see) {
            Ok(ticket) => (ticket != Epoch::ZERO).then_some(()),
            Err(_) => Some(()),
        }
    });
}

#[test]
fn a_key_expires_by_an_entry_of_the_log() {
    let group = Group::start(3);
    let expiring = Op::Put {
        key: b"k",
        value: b"v",
        when: base::transaction::When::Always,
        expiry: base::transaction::Expiry::InMs(50),
        get: false,
    };
    at_the_leader(&group, &[expiring]);
    eventually_some("it has expired", || {
        let replies = at_the_leader(&group, &[Op::Get { key: b"k" }]);
        (replies[0] == OwnedReply::Nil).then_some(())
    });
    let leader = group.members[group.leader()].as_ref().unwrap();
    let entries = leader.engine().applied().0;
    assert!(
        entries >= 3,
        "the leader's own, the write, the tick: {entries}"
    );
    let hashes = group.hashes();
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

/// Of a small hash, and of a large one whose deadlines the log has with its elements.
#[test]
fn a_field_expires_by_an_entry_of_the_log() {
    let group = Group::start(3);
    let call = |key, command, args: &[&[u8]]| {
        let args = args.into();
        let seed = 0;
        let call = ValueCall {
            command,
            seed,
            args,
        };
        at_the_leader(&group, &[Op::Call { key, call }])
    };
    for (key, lasting) in [(&b"small"[..], 3), (b"large", 300)] {
        for field in 0..lasting {
            let name = field.to_string();
            call(key, hashes::HSET, &[name.as_bytes(), b"value"]);
        }
        let args = [&b"PX"[..], b"50", b"FIELDS", b"1", b"expiring", b"value"];
        call(key, hash_deadlines::HSETEX, &args);
        let leader = group.members[group.leader()].as_ref().unwrap();
        let written = leader.engine().applied();
        eventually_some("it has expired", || {
            let length = &call(key, hashes::HLEN, &[])[0];
            (*length == OwnedReply::Int(lasting)).then_some(())
        });
        let seen = leader.engine().applied();
        assert!(
            seen > written,
            "{seen:?}: the log says that time has passed"
        );
    }
    let hashes = group.hashes();
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}
