//! Random operations beside a model.

use std::collections::VecDeque;

use super::*;

/// What a table should do, as simply as possible.
#[derive(Default)]
struct Model {
    keys: BTreeMap<String, (String, MonotonicTime)>,
    queues: BTreeMap<String, VecDeque<(Ticket, String, u64, MonotonicTime)>>,
    granted: Vec<(Ticket, bool)>,
}

impl Model {
    fn hold(&mut self, key: &str, owner: &str, lease: u64, now: MonotonicTime) {
        let mut ends = now + (ms(lease) + ms(lease) / 31);
        if let Some((holder, before)) = self.keys.get(key)
            && holder == owner
        {
            ends = ends.max(*before);
        }
        self.keys.insert(key.to_owned(), (owner.to_owned(), ends));
    }

    fn free(&mut self, key: &str, now: MonotonicTime) {
        self.keys.remove(key);
        let queue = self.queues.remove(key).unwrap_or_default();
        let (late, queue): (VecDeque<_>, VecDeque<_>) =
            queue.into_iter().partition(|one| one.3 <= now);
        self.granted
            .extend(late.into_iter().map(|one| (one.0, false)));
        let Some(owner) = queue.front().map(|first| first.1.clone()) else {
            return;
        };
        let (same, others): (VecDeque<_>, _) = queue.into_iter().partition(|one| one.1 == owner);
        for (ticket, owner, lease, _) in same {
            self.hold(key, &owner, lease, now);
            self.granted.push((ticket, true));
        }
        self.queues.insert(key.to_owned(), others);
    }

    /// Ends what has ended, in the order of the ends.
    fn tick(&mut self, now: MonotonicTime) {
        loop {
            let locks = self
                .keys
                .iter()
                .map(|(key, (_, ends))| (*ends, key.clone(), None));
            let waits = self.queues.iter().flat_map(|(key, queue)| {
                let ends = queue.iter();
                ends.map(|(ticket, _, _, until)| (*until, key.clone(), Some(*ticket)))
            });
            let Some((end, key, ticket)) = locks.chain(waits).min() else {
                return;
            };
            if end > now {
                return;
            }
            match ticket {
                None => self.free(&key, now),
                Some(ticket) => {
                    let queue = self.queues.get_mut(&key).expect("it has a queue");
                    queue.retain(|one| one.0 != ticket);
                    self.granted.push((ticket, false));
                }
            }
        }
    }

    /// Acquires a key. Returns `true` if the owner holds it after this.
    fn acquire(
        &mut self,
        ticket: Ticket,
        key: &str,
        owner: &str,
        lease: u64,
        wait: u64,
        now: MonotonicTime,
    ) -> Option<bool> {
        match self.keys.get(key) {
            Some((holder, ..)) if holder != owner => {
                if wait == 0 {
                    return Some(false);
                }
                let queue = self.queues.entry(key.to_owned()).or_default();
                queue.push_back((ticket, owner.to_owned(), lease, now + ms(wait)));
                None
            }
            _ => {
                self.hold(key, owner, lease, now);
                Some(true)
            }
        }
    }
}

#[test]
fn random_requests_do_what_the_model_does() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut table = Kept::new(&small(), None, 0);
        let mut model = Model::default();
        let mut now = at(0);
        for step in 0..300 {
            now = now + ms(rng.u64(0..40));
            model.tick(now);
            table.expire(now);
            let (key, owner) = (format!("k{}", rng.u8(0..3)), format!("o{}", rng.u8(0..4)));
            let (lease, wait) = (rng.u64(1..400), rng.u64(0..2) * rng.u64(1..300));
            let holder = model.keys.get(&key).map(|(holder, ..)| holder.clone());
            let holds = holder.as_ref() == Some(&owner);
            let what = rng.u8(0..10);
            let ticket = match what {
                0..6 => table.ask(&key, &acquire(&owner, lease, wait), now),
                6 => table.ask(&key, &renew(&owner, lease), now),
                7 | 8 => table.ask(&key, &release(&owner), now),
                _ => table.ask(&key, &Request::Info, now),
            };
            let expected = match what {
                0..6 => model.acquire(ticket, &key, &owner, lease, wait, now),
                6 => {
                    if holds {
                        model.hold(&key, &owner, lease, now);
                    }
                    Some(holds)
                }
                7 | 8 => {
                    if holds {
                        model.free(&key, now);
                    }
                    Some(holds)
                }
                _ => Some(holder.is_some()),
            };
            let mut expected: Vec<_> = expected.map(|yes| (ticket, yes)).into_iter().collect();
            expected.append(&mut model.granted);
            expected.sort();
            let answers = std::mem::take(&mut table.answers);
            let answers: Vec<_> = answers
                .into_iter()
                .map(|(ticket, outcome)| {
                    let yes = match outcome.unwrap() {
                        Answer::Granted { .. } | Answer::Released | Answer::Info(Some(_)) => true,
                        Answer::Held(_) | Answer::NotHeld(_) | Answer::Info(None) => false,
                        other => panic!("{other:?}"),
                    };
                    (ticket, yes)
                })
                .collect();
            assert_eq!(answers, expected, "seed {seed}, step {step}");
            assert_eq!(table.table.locks(), model.keys.len());
        }
    }
}
