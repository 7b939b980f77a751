//! The states of several nodes in a backup are those of one moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use base::planted::{self, Bug};
use kumiki_backup::{CreationOptions, RestorePoint};
use store::Db;
use testkit::SetOnDrop;

use crate::support::{Place, restored_contents};

const KEY: &str = "key";
const BACKUPS: usize = 4;
/// The time that a client has between the holds of two nodes.
const PAUSE: Duration = Duration::from_millis(100);
/// The rounds of writes after which it need not have more time.
const ROUNDS: u64 = 3;

/// Counts in both databases until it is stopped: each number is durable in the first one before it is written to the
/// second one.
fn count(databases: [&Db; 2], rounds: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(SeqCst) {
        let number = (rounds.load(SeqCst) + 1).to_string();
        for database in databases {
            let commit = database.transact(|txn| txn.put(KEY.as_bytes(), number.as_bytes()));
            commit.unwrap().wait_durable().unwrap();
        }
        rounds.fetch_add(1, SeqCst);
    }
}

/// Makes backups of two nodes while a client counts, on node `first` first. Returns the numbers that each of them has,
/// of the first node and of the second one.
fn numbers(first: usize) -> Vec<(u64, u64)> {
    let mut place = Place::new();
    let (mut one, mut two) = (place.node(1), place.node(2));
    let databases = [one.db.clone(), two.db.clone()];
    let rounds = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&rounds);
    two.before_hold = Box::new(move || {
        let (before, until) = (seen.load(SeqCst), Instant::now() + PAUSE);
        while seen.load(SeqCst) < before + ROUNDS && Instant::now() < until {
            thread::yield_now();
        }
    });
    let stop = AtomicBool::new(false);
    let options = CreationOptions {
        hold: Duration::from_secs(60),
        ..CreationOptions::default()
    };
    let made = thread::scope(|scope| {
        let _stopped = SetOnDrop(&stop);
        let order = [&databases[first], &databases[1 - first]];
        let (rounds, stop) = (&rounds, &stop);
        scope.spawn(move || count(order, rounds, stop));
        let await_rounds = |_| {
            let before = rounds.load(SeqCst);
            testkit::eventually("the client counts", || rounds.load(SeqCst) > before + 1);
        };
        await_rounds(0);
        place.back_up_with(&mut [&mut one, &mut two], options, BACKUPS, await_rounds)
    });
    let restored = made.unwrap().into_iter().map(|backup| {
        let to = backup.name();
        place
            .restore(&RestorePoint::Backup(to.clone()), &to)
            .unwrap();
        let number = |node: usize| {
            let dir = place.path(&format!("{to}/node{}", node + 1));
            restored_contents(&dir)[KEY].parse().unwrap()
        };
        (number(first), number(1 - first))
    });
    restored.collect()
}

/// With the planted bug the holds do not hold, and a backup shows that.
#[test]
fn what_was_written_to_one_node_after_another_is_in_a_backup_in_that_order() {
    let all: Vec<(u64, u64)> = [0, 1].into_iter().flat_map(numbers).collect();
    let is_one_moment = |&(first, second): &(u64, u64)| first == second || first == second + 1;
    let are_moments = all.iter().all(is_one_moment);
    assert_eq!(are_moments, !planted::is(Bug::ForgottenHold), "{all:?}");
}
