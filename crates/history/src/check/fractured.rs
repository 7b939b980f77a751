//! Read atomicity: whoever sees one of a transaction's writes sees, of the other keys that it
//! wrote, that state or a later one.
//!
//! Needs the order of each key's versions. Of a key whose order is not known, one version is taken
//! to be older than another only if its writer had ended before the other's began.

use crate::verdict::{Anomaly, Verdict, Violation};

use super::facts::{Facts, Map, Read, Saw, versions_of};
use super::order::{LAST, Orders};

pub(super) fn check(facts: &Facts<'_>) -> Verdict {
    let orders = match Orders::known(facts) {
        Ok(orders) => orders,
        Err(verdict) => return verdict,
    };
    let places = Places::collect(facts, &orders);
    let mut seen: Map<u32, &Read> = Map::default();
    for node in 0..facts.nodes.len() as u32 {
        let reads = &facts.reads[facts.reads_of(node)];
        seen.clear();
        seen.extend(reads.iter().map(|read| (read.key, read)));
        for read in reads {
            let Saw::Version(version) = read.saw else {
                continue;
            };
            let writer = facts.versions[version as usize].node;
            if let Some((sibling, other)) = places.missed(facts, writer, &seen) {
                let certain = orders.heads[other.key as usize].len() == 1;
                return fractured(facts, node, version, sibling, certain);
            }
        }
    }
    Verdict::Accepted
}

/// When or where a version begins, and where it does at the latest. Comparable within a key.
#[derive(Clone, Copy, Default)]
struct Place {
    from: u64,
    to: u64,
}

/// Where versions stand among those of their keys.
struct Places {
    places: Vec<Place>,
    /// The latest place of an absence, for keys that have one.
    last_absence: Map<u32, u64>,
    versions_of: Vec<u32>,
}

impl Places {
    fn collect(facts: &Facts<'_>, orders: &Orders) -> Places {
        let mut places = vec![Place::default(); facts.versions.len()];
        for (key, versions) in facts.by_key.iter().enumerate() {
            if orders.heads[key].len() > 1 {
                for &version in versions {
                    let node = facts.versions[version as usize].node;
                    let (from, to) = (facts.transaction(node).start, facts.end(node));
                    places[version as usize] = Place { from, to };
                }
                continue;
            }
            let mut version = orders.first(key as u32);
            let mut count = 0;
            while version != LAST {
                places[version as usize] = Place {
                    from: count,
                    to: count,
                };
                count += 1;
                version = orders.next[version as usize];
            }
        }
        let mut last_absence = Map::default();
        for (version, place) in facts.versions.iter().zip(&places) {
            if version.value.is_none() {
                let last = last_absence.entry(version.key).or_insert(place.to);
                *last = place.to.max(*last);
            }
        }
        Places {
            places,
            last_absence,
            versions_of: versions_of(facts),
        }
    }

    /// A version by `writer` of a key of which something older was seen.
    fn missed<'r>(
        &self,
        facts: &Facts<'_>,
        writer: u32,
        seen: &Map<u32, &'r Read>,
    ) -> Option<(u32, &'r Read)> {
        let at = writer as usize;
        (self.versions_of[at]..self.versions_of[at + 1]).find_map(|sibling| {
            let read = seen.get(&facts.versions[sibling as usize].key)?;
            let begins = self.places[sibling as usize].from;
            let is_older = match read.saw {
                Saw::Version(version) => self.places[version as usize].to < begins,
                // It may have been any absence, so it counts only if all of them are older.
                Saw::Absence(_) => {
                    let last = self.last_absence.get(&read.key);
                    last.is_none_or(|&last| last < begins)
                }
            };
            (is_older && read.node != writer).then_some((sibling, *read))
        })
    }
}

fn fractured(facts: &Facts<'_>, node: u32, seen: u32, missed: u32, certain: bool) -> Verdict {
    let (seen, missed) = (
        &facts.versions[seen as usize],
        &facts.versions[missed as usize],
    );
    let (reader, writer) = (facts.transaction(node).id, facts.transaction(seen.node).id);
    let (key, other) = (facts.name(seen.key), facts.name(missed.key));
    Verdict::Violated(Violation {
        anomaly: Anomaly::FracturedRead,
        transactions: vec![reader, writer],
        evidence: vec![
            format!("{reader} saw what {writer} wrote to {key}"),
            format!("{reader} saw {other} as it was before {writer} wrote it"),
        ],
        certain,
    })
}
