//! Prepared transactions are counted on all members.

use base::participant::{Prepare, TransactionExecutor, TwoPhaseCommit};
use base::transaction::Holder;
use base::{Op, Timestamp, TransactionId};

use crate::trouble::group::Group;
use testkit::eventually_some;

#[test]
fn members_count_what_is_prepared() {
    let group = Group::start(3);
    group.execute(&[Op::put(b"k", b"v")]);
    let leader = group.member(group.leader());
    let mut worker = leader.worker().unwrap();
    let timestamp = Timestamp::at_ms(worker.time_ms());
    let id = |unique| TransactionId { timestamp, unique };
    for (unique, key) in [(1, b"one"), (2, b"two")] {
        let age = timestamp;
        let prepare = Prepare {
            holder: Holder {
                id: id(unique),
                age,
            },
            ops: &[Op::put(key, b"v")],
            siblings: b"\x01\0\0\0k",
            note: b"note",
            isolation: base::participant::Isolation::Serializable,
        };
        worker.prepare(&prepare).unwrap();
    }
    let all_count = |count| {
        eventually_some("all count them", || {
            let mut all = group.alive();
            all.all(|(_, member)| member.prepared() == count)
                .then_some(())
        });
    };
    all_count(2);
    worker.commit(id(1)).unwrap();
    all_count(1);
    worker.abort(id(2)).unwrap();
    all_count(0);
}
