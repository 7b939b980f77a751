//! Transactions that are staged one after another on a key.

use base::partition::OwnedReply;
use base::transaction::{Observed, ValueCall};
use base::{Op, Reply};
use kumiki_replica::{Grouping, Worker};
use testkit::eventually_some;
use values::lists;

use super::{Group, add, at_the_leader, execute, wait};

/// Returns the list operation `command` on the key `list`.
fn on_list<'a>(command: u16, args: &[&'a [u8]]) -> Op<'a> {
    Op::Call {
        key: b"list",
        call: ValueCall {
            command,
            seed: 0,
            args: args.into(),
        },
    }
}

/// With a lease and without one, the replies to what was staged before are seen by what comes later, in one turn.
#[test]
fn a_client_that_waits_for_no_reply_sees_its_own_writes() {
    for leases in [false, true] {
        let group = Group::start_as(3, Grouping::Group(64), leases);
        at_the_leader(&group, &[Op::put(b"n", b"0")]);
        let at = group.leader();
        let (member, mut worker) = (group.member(at), group.worker(at));
        worker.gather();
        let mut tickets = Vec::new();
        for round in 1..=100 {
            let replies = |worker: &mut Worker, op: Op<'_>| {
                let see = |replies: &[Reply<'_>], observed: Observed| {
                    (OwnedReply::from(&replies[0]), observed.epoch)
                };
                worker.execute(&[op], see).unwrap()
            };
            let (sum, written) = replies(&mut worker, add(b"n"));
            let (read, ticket) = replies(&mut worker, Op::Get { key: b"n" });
            assert_eq!(sum, OwnedReply::Int(round));
            assert_eq!(read, OwnedReply::Bytes(round.to_string().into_bytes()));
            assert!(ticket >= written, "the read waits for what it has seen");
            tickets.push(ticket);
        }
        let (followed, _) = member.engine().staged_counts();
        assert!(followed >= 99, "{followed} transactions came after others");
        worker.announce();
        assert!(tickets.into_iter().all(|ticket| wait(&member, ticket)));
        let read = at_the_leader(&group, &[Op::Get { key: b"n" }]);
        assert_eq!(read, [OwnedReply::Bytes(b"100".into())]);
    }
}

/// Several threads push to one list, which becomes large: each length is answered once.
#[test]
fn many_threads_push_to_one_list() {
    const THREADS: usize = 4;
    const PUSHES: usize = 150;
    let group = Group::start(3);
    at_the_leader(&group, &[Op::put(b"warm", b"")]);
    let at = group.leader();
    let member = group.member(at);
    let lengths = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (member, mut worker) = (&member, group.worker(at));
                scope.spawn(move || {
                    let push = on_list(lists::RPUSH, &[b"some element of the list"]);
                    let one = || {
                        eventually_some("a push", || {
                            let done = execute(member, &mut worker, std::slice::from_ref(&push));
                            done.ok().map(|replies| replies[0].clone())
                        })
                    };
                    std::iter::repeat_with(one).take(PUSHES).collect::<Vec<_>>()
                })
            })
            .collect();
        let lengths = threads.into_iter().flat_map(|one| one.join().unwrap());
        lengths
            .map(|length| match length {
                OwnedReply::Int(length) => length,
                other => panic!("{other:?}"),
            })
            .collect::<Vec<i64>>()
    });
    let mut sorted = lengths.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=(THREADS * PUSHES) as i64).collect::<Vec<_>>());
    let length = at_the_leader(&group, &[on_list(lists::LLEN, &[])]);
    assert_eq!(length, [OwnedReply::Int((THREADS * PUSHES) as i64)]);
    let hashes = group.hashes();
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}
