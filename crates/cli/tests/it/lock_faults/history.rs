//! The history of clients of locks, and the check that it is allowed.
//!
//! All times are of one clock, that of the test's process. A client counts a lease from when it
//! sent the request that was granted, and counts on nothing any more once it has requested its
//! release.
//!
//! 1. **One holder.** The times in which clients count on grants of one key with different tokens
//!    do not overlap; no token of a key has two owners.
//! 2. **Growing tokens.** A grant that was requested after another one had been answered has a
//!    token that is not below it.
//! 3. **Nothing is lost.** A client that counts on a lock during all of a request gets no answer to
//!    it that says that the client does not hold the lock.
//! 4. **Fencing.** A guarded write takes effect only if no write with a newer token had been
//!    reported successful before it was sent. It is refused only if a write with a newer token had
//!    been sent before the refusal. The final value has no older token than any write that has
//!    taken effect.

use std::collections::BTreeMap;
use std::time::Instant;

/// A client got the answer that it holds a lock.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) key: usize,
    pub(crate) owner: String,
    pub(crate) token: i64,
    pub(crate) asked: Instant,
    pub(crate) told: Instant,
    /// The client counts on it until then.
    pub(crate) until: Instant,
}

/// A client to which a lock was once granted got the answer that it does not hold it.
#[derive(Clone, Debug)]
pub(crate) struct Denial {
    pub(crate) key: usize,
    pub(crate) owner: String,
    pub(crate) token: i64,
    /// The client has counted on the lock from the first time to the second.
    pub(crate) counted: (Instant, Instant),
    pub(crate) asked: Instant,
    pub(crate) told: Instant,
    pub(crate) what: String,
}

/// The outcome of a guarded write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    Applied,
    Fenced,
    Unknown,
}

/// A write under a guard with this token.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) key: usize,
    pub(crate) token: i64,
    pub(crate) asked: Instant,
    pub(crate) told: Instant,
    pub(crate) effect: Effect,
}

/// A request about a lock and its answer, for people who look for the cause of a failure.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) asked: Instant,
    pub(crate) told: Instant,
    pub(crate) text: String,
}

/// The observations of all clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) notes: Vec<Note>,
    pub(crate) grants: Vec<Grant>,
    /// When the release of a grant was requested: its key and token. From then on its owner counts
    /// on nothing, however often it was granted and renewed.
    pub(crate) releases: Vec<(usize, i64, Instant)>,
    pub(crate) denials: Vec<Denial>,
    pub(crate) writes: Vec<Write>,
    /// For each key that has a value in the end, the token with which it was written.
    pub(crate) values: BTreeMap<usize, i64>,
}

impl History {
    /// Adds the history of another client.
    pub(crate) fn append(&mut self, mut other: History) {
        self.notes.append(&mut other.notes);
        self.grants.append(&mut other.grants);
        self.releases.append(&mut other.releases);
        self.denials.append(&mut other.denials);
        self.writes.append(&mut other.writes);
        self.values.append(&mut other.values);
    }

    /// Returns an error that describes what is wrong, if anything is.
    pub(crate) fn judge(&self) -> Result<(), String> {
        let mut released: BTreeMap<(usize, i64), Instant> = BTreeMap::new();
        for &(key, token, asked) in &self.releases {
            let first = released.entry((key, token)).or_insert(asked);
            *first = asked.min(*first);
        }
        let mut by_key: BTreeMap<usize, Vec<Grant>> = BTreeMap::new();
        for grant in &self.grants {
            let mut grant = grant.clone();
            if let Some(released) = released.get(&(grant.key, grant.token)) {
                grant.until = grant.until.min(*released);
            }
            by_key.entry(grant.key).or_default().push(grant);
        }
        for grants in by_key.values_mut() {
            grants.sort_by_key(|grant| grant.told);
            one_holder(grants)?;
            growing_tokens(grants)?;
        }
        for denial in &self.denials {
            let Denial {
                key,
                owner,
                token,
                what,
                ..
            } = denial;
            let (from, until) = denial.counted;
            if from <= denial.asked && denial.told < until {
                return Err(format!(
                    "lost: {owner} had {key} with {token}, and heard: {what}; {denial:?}"
                ));
            }
        }
        self.fencing()
    }

    /// Returns all notes in the order in which the requests were sent.
    pub(crate) fn protocol(&self) -> String {
        let mut notes: Vec<&Note> = self.notes.iter().collect();
        notes.sort_by_key(|note| note.asked);
        let lines = notes.into_iter();
        let lines =
            lines.map(|note| format!("{:?} … {:?}: {}\n", note.asked, note.told, note.text));
        lines.collect()
    }

    fn fencing(&self) -> Result<(), String> {
        let of = |key| self.writes.iter().filter(move |write| write.key == key);
        for write in &self.writes {
            let mut newer = of(write.key).filter(|other| other.token > write.token);
            let before =
                |other: &&Write| other.effect == Effect::Applied && other.told < write.asked;
            match write.effect {
                Effect::Applied => {
                    if let Some(other) = newer.find(before) {
                        return Err(format!("a stale write passed: {write:?} after {other:?}"));
                    }
                }
                Effect::Fenced => {
                    if !newer.any(|other| other.asked < write.told) {
                        return Err(format!("refused without reason: {write:?}"));
                    }
                }
                Effect::Unknown => {}
            }
            let value = self.values.get(&write.key);
            if write.effect == Effect::Applied && value.is_none_or(|value| *value < write.token) {
                return Err(format!("{write:?} is gone: the last one has {value:?}"));
            }
        }
        let unheard = self.values.iter().find(|&(&key, &token)| {
            !of(key).any(|write| write.token == token && write.effect != Effect::Fenced)
        });
        unheard.map_or(Ok(()), |value| {
            Err(format!(
                "no client has written what is there in the end: {value:?}"
            ))
        })
    }
}

/// Checks that grants of one key, in the order in which they were answered, have one holder.
fn one_holder(grants: &[Grant]) -> Result<(), String> {
    let mut owners: BTreeMap<i64, &Grant> = BTreeMap::new();
    let mut running: Vec<&Grant> = Vec::new();
    for grant in grants {
        let first = owners.entry(grant.token).or_insert(grant);
        if first.owner != grant.owner {
            return Err(format!("a token of two owners: {first:?}, {grant:?}"));
        }
        if grant.until <= grant.told {
            continue;
        }
        running.retain(|other| other.until > grant.told);
        if let Some(other) = running.iter().find(|other| other.token != grant.token) {
            return Err(format!("two holders: {other:?}, {grant:?}"));
        }
        running.push(grant);
    }
    Ok(())
}

fn growing_tokens(grants: &[Grant]) -> Result<(), String> {
    let mut newest: Vec<&Grant> = Vec::new();
    for grant in grants {
        let last = newest.last().copied();
        let last = last.filter(|last| last.token > grant.token);
        newest.push(last.unwrap_or(grant));
    }
    for grant in grants {
        let known = grants.partition_point(|other| other.told < grant.asked);
        if let Some(floor) = known.checked_sub(1).map(|at| newest[at])
            && floor.token > grant.token
        {
            return Err(format!("tokens fall: {floor:?}, then {grant:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the milliseconds after a beginning.
    fn at(begin: Instant, ms: u64) -> Instant {
        begin + Duration::from_millis(ms)
    }

    /// Returns grants of owners with tokens: requested, answered, until.
    fn grants(all: &[(&str, i64, [u64; 3])]) -> History {
        let begin = Instant::now();
        let grant = |&(owner, token, [asked, told, until]): &(&str, i64, [u64; 3])| Grant {
            key: 0,
            owner: owner.to_owned(),
            token,
            asked: at(begin, asked),
            told: at(begin, told),
            until: at(begin, until),
        };
        History {
            grants: all.iter().map(grant).collect(),
            ..History::default()
        }
    }

    #[track_caller]
    fn refused(history: &History, why: &str) {
        let judged = history.judge();
        assert!(
            judged.as_ref().is_err_and(|text| text.contains(why)),
            "{why}: {judged:?}"
        );
    }

    #[test]
    fn what_may_be_is_accepted() {
        let good = grants(&[
            ("ann", 1, [0, 2, 10]),
            // A renewal, requested while no other client could have it.
            ("ann", 1, [5, 6, 20]),
            // Answered late, when its lease had ended: no client counted on it.
            ("bob", 2, [21, 90, 60]),
            ("cid", 3, [61, 62, 80]),
            // Requested before a newer one was answered.
            ("dot", 4, [100, 130, 140]),
            ("eve", 5, [101, 110, 120]),
        ]);
        assert_eq!(good.judge(), Ok(()));
        // Other keys are other locks.
        let mut two = grants(&[("ann", 2, [0, 1, 10]), ("bob", 1, [2, 3, 10])]);
        two.grants[1].key = 1;
        assert_eq!(two.judge(), Ok(()));
    }

    #[test]
    fn two_holders_are_seen() {
        refused(
            &grants(&[("ann", 1, [0, 1, 10]), ("bob", 2, [0, 9, 20])]),
            "two holders",
        );
        // The longest of several that run, not the last one.
        let hidden = [
            ("ann", 1, [0, 1, 100]),
            ("ann", 1, [2, 3, 5]),
            ("bob", 2, [4, 50, 60]),
        ];
        refused(&grants(&hidden), "two holders");
        // The holder gets the same token again.
        refused(
            &grants(&[("ann", 1, [0, 1, 10]), ("ann", 2, [2, 3, 10])]),
            "two holders",
        );
        refused(
            &grants(&[("ann", 1, [0, 1, 2]), ("bob", 1, [3, 4, 5])]),
            "two owners",
        );
    }

    #[test]
    fn a_release_ends_all_that_was_granted_and_nothing_else() {
        let overlapping = [
            ("ann", 1, [0, 1, 100]),
            ("ann", 1, [2, 3, 50]),
            ("bob", 2, [4, 12, 60]),
        ];
        let mut history = grants(&overlapping);
        refused(&history, "two holders");
        let begin = history.grants[0].asked;
        for (key, token, ms, is_good) in [
            (0, 1, 12, true),
            (0, 1, 13, false),
            (0, 2, 12, true),
            (1, 1, 5, false),
            (0, 3, 5, false),
        ] {
            history.releases = vec![(key, token, at(begin, ms))];
            assert_eq!(history.judge().is_ok(), is_good, "{key} {token} {ms}");
        }
    }

    #[test]
    fn tokens_that_fall_are_seen() {
        refused(
            &grants(&[("ann", 2, [0, 1, 2]), ("bob", 1, [3, 4, 5])]),
            "tokens fall",
        );
        let later = [
            ("ann", 7, [0, 1, 2]),
            ("bob", 8, [0, 3, 4]),
            ("cid", 5, [0, 5, 6]),
            ("dot", 6, [4, 7, 8]),
        ];
        refused(&grants(&later), "tokens fall");
    }

    #[test]
    fn a_lock_that_is_lost_is_seen() {
        let begin = Instant::now();
        let denial = |counted: [u64; 2], asked, told| History {
            denials: vec![Denial {
                key: 0,
                owner: "ann".to_owned(),
                token: 1,
                counted: (at(begin, counted[0]), at(begin, counted[1])),
                asked: at(begin, asked),
                told: at(begin, told),
                what: "it is not held".to_owned(),
            }],
            ..History::default()
        };
        refused(&denial([0, 10], 1, 9), "lost");
        // The lease may have ended before the answer was given, or not begun when it was requested.
        assert_eq!(denial([0, 10], 1, 10).judge(), Ok(()));
        assert_eq!(denial([5, 10], 4, 9).judge(), Ok(()));
    }

    /// Returns writes: token, requested, answered, effect. The final value has this token.
    fn writes(all: &[(i64, u64, u64, Effect)], value: Option<i64>) -> History {
        let begin = Instant::now();
        let write = |&(token, asked, told, effect): &(i64, u64, u64, Effect)| Write {
            key: 0,
            token,
            asked: at(begin, asked),
            told: at(begin, told),
            effect,
        };
        History {
            writes: all.iter().map(write).collect(),
            values: value.map(|token| (0, token)).into_iter().collect(),
            ..History::default()
        }
    }

    #[test]
    fn fencing_that_fails_is_seen() {
        use Effect::{Applied, Fenced, Unknown};
        let good = writes(
            &[
                (1, 0, 1, Applied),
                (2, 2, 4, Applied),
                (1, 3, 5, Applied),
                (1, 5, 6, Fenced),
                // It has taken effect, though the client does not know.
                (4, 6, 7, Unknown),
                (2, 7, 8, Fenced),
            ],
            Some(4),
        );
        assert_eq!(good.judge(), Ok(()));
        let stale = [(2, 0, 1, Applied), (1, 2, 3, Applied)];
        refused(&writes(&stale, Some(2)), "a stale write passed");
        let alone = [(2, 0, 1, Fenced), (1, 2, 3, Applied)];
        refused(&writes(&alone, Some(1)), "refused without reason");
        let future = [(1, 0, 1, Fenced), (2, 2, 3, Applied)];
        refused(&writes(&future, Some(2)), "refused without reason");
        refused(&writes(&[(2, 0, 1, Applied)], Some(1)), "is gone");
        refused(&writes(&[(2, 0, 1, Applied)], None), "is gone");
        refused(
            &writes(&[(2, 0, 1, Applied)], Some(3)),
            "no client has written",
        );
        refused(
            &writes(&[(3, 0, 1, Unknown), (2, 0, 1, Fenced)], Some(2)),
            "no client has written",
        );
    }
}
