//! Replicas that apply the same entries are the same at every index, regardless of which one led,
//! what was held, lost or restored on the way, and what their janitors did.

use std::collections::VecDeque;

use base::participant::State;
use base::transaction::{Expiry, ScanContents, When};
use base::{Abort, Op, Reply, TransactionId};
use fastrand::Rng;

use crate::support::replica::{Entry, Replica, stager};
use crate::support::{Logged, holder};

/// Entries that were staged and not applied, and the holds to release when they are.
type Pending = VecDeque<(Entry, Option<TransactionId>)>;

struct Group {
    replicas: Vec<Replica>,
    /// A replica that was left out for a while.
    behind: Replica,
    leader: usize,
    pending: Pending,
    random: Rng,
    next: u64,
    time_ms: u64,
    /// The times at which keys expire that entries, applied or not, have written.
    deadlines: Vec<u64>,
    /// The number of parts that were prepared, have aborted, have met a hold, or were lost.
    counts: [u32; 4],
}

const KEYS: u8 = 8;

impl Group {
    fn new(seed: u64) -> Group {
        let replicas: Vec<Replica> = (0..3).map(|_| Replica::new()).collect();
        replicas[0].engine.set_time_ms(1_000);
        Group {
            replicas,
            behind: Replica::new(),
            leader: 0,
            pending: Pending::new(),
            random: Rng::with_seed(seed),
            next: 1,
            time_ms: 1_000,
            deadlines: Vec::new(),
            counts: [0; 4],
        }
    }

    fn leader(&self) -> &Replica {
        &self.replicas[self.leader]
    }

    fn submit(&mut self, release: Option<TransactionId>) {
        let entry = self.leader().entry();
        for change in &entry.changes {
            if let Logged::Put { deadline, .. } = change {
                self.deadlines.extend(*deadline);
            }
        }
        self.pending.push_back((entry, release));
    }

    fn key(&mut self) -> [u8; 1] {
        [self.random.u8(..KEYS)]
    }

    fn stage(&mut self) {
        let keys: Vec<[u8; 1]> = (0..3).map(|_| self.key()).collect();
        let [a, b, c] = [&keys[0][..], &keys[1], &keys[2]];
        let id = self.next;
        self.next += 1;
        let value = id.to_string();
        let in_ms = Expiry::InMs(self.random.i64(1..100));
        let expiring = Op::Put {
            key: c,
            value: value.as_bytes(),
            when: When::Always,
            expiry: in_ms,
            get: false,
        };
        let scan = Op::Scan {
            from: a,
            to: None,
            limit: 2,
            contents: ScanContents::Values,
        };
        let add = Op::Add { key: a, delta: 1 };
        let ops = match self.random.u8(..20) {
            0 => vec![Op::Flush, Op::put(a, b"0")],
            1..5 => vec![Op::put(a, b"5"), Op::Get { key: b }],
            5..9 => vec![expiring, Op::Delete { key: b }],
            9..13 => vec![scan, Op::put(c, b"7")],
            13..17 => vec![add, Op::Delete { key: c }],
            _ => vec![Op::Get { key: a }, scan],
        };
        let part = self.random.u8(..3) == 0;
        let outcome = if part {
            self.leader().stage_prepare(id, &ops).map(|_| true)
        } else {
            self.leader().stage(id, &ops).map(|done| done.writes > 0)
        };
        match outcome {
            Ok(true) => self.submit((!part).then(|| stager(id).id)),
            Ok(false) => {}
            Err(Abort::Held { .. }) => self.counts[1] += 1,
            Err(Abort::Overtaken { .. } | Abort::Refused) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn decide(&mut self) {
        let undecided = self.leader().with(|w| w.undecided());
        let unknown = holder(self.random.u64(..self.next) + 5).id;
        let at = self.random.usize(..undecided.len() + 1);
        let id = undecided.get(at).map_or(unknown, |(id, _)| *id);
        let state = undecided
            .get(at)
            .map_or(&State::Unknown, |(_, state)| state);
        let until = self.time_ms + 50;
        let commit = self.random.bool();
        let outcome = self.leader().with(|w| match state {
            State::Prepared(_) if commit => w.stage_commit(id),
            State::Prepared(_) => w.stage_abort(id),
            State::Committed(_) => w.stage_forget(id),
            _ => w.stage_refuse(id, until),
        });
        let decides = matches!(state, State::Prepared(_));
        match outcome {
            Ok((_, true)) => {
                self.counts[0] += u32::from(decides && !commit);
                self.submit(decides.then_some(id));
            }
            Ok((_, false)) => {}
            Err(Abort::Held { by }) => assert_eq!(by.id, id),
            Err(other) => panic!("{other}"),
        }
    }

    /// Moves the leader's time on, but never past a deadline before the log has got there.
    fn pass_time(&mut self) {
        let to = self.time_ms + self.random.u64(..20);
        let passes = |deadline: &u64| (self.time_ms + 1..=to).contains(deadline);
        if self.deadlines.iter().any(passes) {
            self.apply(usize::MAX);
            self.replicas.iter().for_each(|replica| replica.tick(to));
            self.compare();
        }
        self.time_ms = to;
        self.leader().engine.set_time_ms(to);
    }

    fn apply(&mut self, entries: usize) {
        for _ in 0..entries.min(self.pending.len()) {
            let (entry, release) = self.pending.pop_front().unwrap();
            self.replicas
                .iter()
                .for_each(|replica| replica.apply(&entry));
            if let Some(id) = release {
                self.leader().engine.release(id);
            }
            self.compare();
        }
    }

    fn compare(&mut self) {
        let hashes: Vec<u64> = self.replicas.iter().map(Replica::hash).collect();
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
        let follower = (self.leader + 1) % 3;
        for key in 0..KEYS {
            // A key that is held here is not held on a follower.
            let [here, there] = [self.leader, follower].map(|at| {
                self.replicas[at].with(|w| {
                    let done = w.execute(&[Op::Watch { key: &[key] }]);
                    done.ok().map(|done| match done.replies()[0] {
                        Reply::Version(version) => version,
                        ref other => panic!("{other:?}"),
                    })
                })
            });
            let present = |v: &base::Version| v.to_bits() & 1 == 0;
            if here.is_some() {
                assert_eq!(here.filter(present), there.filter(present));
            }
        }
        for replica in &self.replicas {
            if self.random.u8(..4) == 0 {
                replica.tidy();
            }
        }
    }

    /// Makes another replica the leader, with some of the entries under way.
    fn elect(&mut self) {
        self.leader().engine.drop_holds();
        let kept = self.random.usize(..=self.pending.len());
        self.counts[2] += (self.pending.len() - kept) as u32;
        self.pending.truncate(kept);
        self.apply(usize::MAX);
        self.leader = self.random.usize(..3);
        let prepared = self.leader().engine.restore_prepared().unwrap();
        self.counts[3] += prepared as u32;
        self.leader().engine.set_time_ms(self.time_ms);
    }

    /// Loads a snapshot into a replica that is behind, or empty, and has it take another one's
    /// place.
    fn load(&mut self) {
        let at = (self.leader + self.random.usize(1..3)) % 3;
        if self.random.u8(..4) == 0 {
            self.behind = Replica::new();
        }
        self.behind.load(&self.replicas[at]);
        std::mem::swap(&mut self.behind, &mut self.replicas[at]);
        self.compare();
    }
}

#[test]
fn replicas_agree_at_every_index() {
    let mut counts = [0; 4];
    for seed in 0..30 {
        let mut group = Group::new(seed);
        for _ in 0..400 {
            match group.random.u8(..100) {
                0..45 => group.stage(),
                45..65 => group.decide(),
                65..85 => group.apply(1),
                85..95 => group.pass_time(),
                95..98 => group.elect(),
                _ => group.load(),
            }
        }
        group.apply(usize::MAX);
        // Nothing is under way any more: every undecided part can be decided, and then every
        // operation succeeds.
        group.elect();
        for (id, state) in group.leader().with(|w| w.undecided()) {
            let decides = matches!(state, State::Prepared(_));
            group.leader().with(|w| match decides {
                true => w.stage_abort(id).unwrap(),
                false => w.stage_forget(id).unwrap(),
            });
            group.submit(decides.then_some(id));
        }
        group.apply(usize::MAX);
        group.leader().stage(0, &[Op::Flush]).unwrap();
        group.submit(Some(stager(0).id));
        group.apply(usize::MAX);
        for replica in &group.replicas {
            replica.tidy();
            assert_eq!(replica.engine.stats().keys, 0);
        }
        for (sum, count) in counts.iter_mut().zip(group.counts) {
            *sum += count;
        }
    }
    assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
}
