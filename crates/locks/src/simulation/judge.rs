//! What clients believe, and a check that it is right.
//!
//! Times are those of the simulated world; a client's clock may run faster or slower, and what it
//! believes ends by its own clock.

use std::collections::BTreeMap;

use crate::lock::FencingToken;
use crate::moment::MonotonicTime;

/// A promise of the table that was broken, in words.
#[derive(Debug)]
pub(super) struct Violation(pub(super) String);

/// What clients believe about all keys.
#[derive(Default)]
pub(super) struct Judge {
    keys: BTreeMap<String, Key>,
}

#[derive(Default)]
struct Key {
    beliefs: Vec<Belief>,
    /// The greatest token that a client has got in an answer.
    newest: FencingToken,
    owners: BTreeMap<FencingToken, String>,
}

/// A client's belief that it holds a key.
#[derive(Clone, Debug)]
pub(super) struct Belief {
    pub(super) owner: String,
    pub(super) token: FencingToken,
    pub(super) from: MonotonicTime,
    pub(super) until: MonotonicTime,
}

/// A grant as its client sees it.
pub(super) struct Grant<'a> {
    pub(super) key: &'a str,
    pub(super) owner: &'a str,
    pub(super) token: FencingToken,
    /// The greatest token that any client had got when the request was sent.
    pub(super) floor: FencingToken,
    /// When the client's belief ends.
    pub(super) until: MonotonicTime,
}

impl Judge {
    /// Returns the greatest token of a key that a client has got.
    pub(super) fn newest(&self, key: &str) -> FencingToken {
        self.keys.get(key).map_or(FencingToken(0), |key| key.newest)
    }

    /// Judges the answer that a client holds a key.
    pub(super) fn granted(
        &mut self,
        grant: &Grant<'_>,
        now: MonotonicTime,
    ) -> Result<(), Violation> {
        let Grant {
            key: name,
            owner,
            token,
            floor,
            until,
        } = *grant;
        let key = self.keys.entry(name.to_owned()).or_default();
        let first = key.owners.entry(token).or_insert_with(|| owner.to_owned());
        if first != owner {
            return Err(Violation(format!(
                "token {token} of {name} was granted to {first} and {owner}"
            )));
        }
        if token < floor {
            return Err(Violation(format!(
                "{owner} got token {token} of {name} after {floor} was known"
            )));
        }
        key.newest = key.newest.max(token);
        if until <= now {
            return Ok(());
        }
        key.beliefs.retain(|belief| belief.until > now);
        if let Some(other) = key.beliefs.iter().find(|belief| belief.owner != owner) {
            return Err(Violation(format!(
                "{owner} got {name} while {other:?} holds it"
            )));
        }
        match key.beliefs.first_mut() {
            Some(belief) => {
                if belief.token != token {
                    let had = belief.token;
                    return Err(Violation(format!(
                        "{owner} holds {name} with {had} and got {token}"
                    )));
                }
                belief.until = belief.until.max(until);
            }
            None => key.beliefs.push(Belief {
                owner: owner.to_owned(),
                token,
                from: now,
                until,
            }),
        }
        Ok(())
    }

    /// Returns what an owner believes about a key.
    pub(super) fn belief(&self, key: &str, owner: &str, now: MonotonicTime) -> Option<&Belief> {
        let beliefs = &self.keys.get(key)?.beliefs;
        let mut own = beliefs.iter().filter(|belief| belief.owner == owner);
        own.find(|belief| belief.until > now)
    }

    /// Notes that the owner does not count on the key any more.
    pub(super) fn ended(&mut self, key: &str, owner: &str) {
        if let Some(key) = self.keys.get_mut(key) {
            key.beliefs.retain(|belief| belief.owner != owner);
        }
    }

    /// Returns `true` if any client believes that it holds a key.
    pub(super) fn is_any_held(&self, now: MonotonicTime) -> bool {
        let mut beliefs = self.keys.values().flat_map(|key| &key.beliefs);
        beliefs.any(|belief| belief.until > now)
    }
}
