//! The order of each key's versions, as far as it is known.
//!
//! A version whose writer had read the one before follows it at once; such chains are *segments*.
//! A key whose versions form one segment has a known order. So has one whose segments can be put
//! in order by recorded versions.
//!
//! When two writers had read the same version, both claim to follow it at once. One of them is put
//! behind the other: whichever it is, that one's read then gives a cycle.

use crate::verdict::Verdict;

use super::facts::{HistoryFacts, INITIAL, ReadFact, ReadResult, Replaces};

/// The mark of a read of which it is not known which absence it saw.
pub(super) const UNDECIDED: u32 = u32::MAX - 1;
/// The mark of a version that no version follows, as far as is known.
pub(super) const LAST: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct VersionOrders {
    /// The first version of every segment, for each key. One segment: the order is known.
    pub heads: Vec<Vec<u32>>,
    /// The version that follows each version in its segment, or [`LAST`].
    pub next: Vec<u32>,
    /// The version that each read saw: [`INITIAL`] if it saw that nothing was ever written,
    /// [`UNDECIDED`] if it is not known.
    pub saw: Vec<u32>,
}

impl VersionOrders {
    /// Returns the orders that follow from the recorded facts. The error is
    /// [`Verdict::Unjudgeable`].
    pub(super) fn known(facts: &HistoryFacts<'_>) -> Result<VersionOrders, Verdict> {
        let count = facts.versions.len();
        let mut orders = VersionOrders {
            heads: vec![Vec::new(); facts.by_key.len()],
            next: vec![LAST; count],
            saw: Vec::with_capacity(facts.reads.len()),
        };
        let followers = VersionFollowers::collect(facts);
        for (key, versions) in facts.by_key.iter().enumerate() {
            orders.segment(facts, &followers, key, versions)?;
        }
        let before = orders.before();
        let marks = AbsenceMarks::collect(facts, &orders);
        for read in &facts.reads {
            let saw = match read.saw {
                ReadResult::Version(version) => version,
                ReadResult::Absence(_) if !facts.deleted[read.key as usize] => INITIAL,
                ReadResult::Absence(floor) => orders.absence(facts, read, floor, &before, &marks),
            };
            orders.saw.push(saw);
        }
        Ok(orders)
    }

    /// Returns `true` if nothing has to be inferred.
    pub(super) fn are_complete(&self, facts: &HistoryFacts<'_>) -> bool {
        debug_assert_eq!(self.saw.len(), facts.reads.len());
        self.heads.iter().all(|heads| heads.len() <= 1) && !self.saw.contains(&UNDECIDED)
    }

    /// Returns the first version of a key whose order is known.
    pub(super) fn first(&self, key: u32) -> u32 {
        match self.heads[key as usize][..] {
            [first] => first,
            _ => LAST,
        }
    }

    /// Returns the version that follows the version which a read of `key` saw.
    pub(super) fn follows(&self, key: u32, saw: u32) -> u32 {
        match saw {
            INITIAL => self.first(key),
            UNDECIDED => LAST,
            version => self.next[version as usize],
        }
    }

    /// Makes one segment of several, in this order.
    pub(super) fn join(&mut self, key: u32, heads: &[u32]) {
        for pair in heads.windows(2) {
            let tail = self.tail(pair[0]);
            self.next[tail as usize] = pair[1];
        }
        self.heads[key as usize] = heads.first().copied().into_iter().collect();
    }

    fn tail(&self, mut version: u32) -> u32 {
        while self.next[version as usize] != LAST {
            version = self.next[version as usize];
        }
        version
    }

    /// Finds the segments of one key.
    fn segment(
        &mut self,
        facts: &HistoryFacts<'_>,
        followers: &VersionFollowers,
        key: usize,
        versions: &[u32],
    ) -> Result<(), Verdict> {
        let mut heads = Vec::new();
        // The smallest recorded version of each segment.
        let mut recorded = Vec::new();
        let mut blind = false;
        for &version in versions {
            match facts.versions[version as usize].replaces {
                Replaces::Version(_) => continue,
                Replaces::Absence => {}
                Replaces::Unknown => blind = true,
            }
            heads.push(version);
            recorded.push(self.chain(facts, followers, version)?);
        }
        self.heads[key] = heads;
        if !blind && !facts.deleted[key] {
            // All first writers saw that nothing had been written: two of them are a lost update,
            // in either order.
            let heads = self.heads[key].clone();
            self.join(key as u32, &heads);
        } else if let Some(recorded) = recorded.into_iter().collect::<Option<Vec<u64>>>() {
            let mut order: Vec<(u64, u32)> = recorded
                .into_iter()
                .zip(self.heads[key].iter().copied())
                .collect();
            order.sort_unstable();
            if order.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                let name = facts.name(key as u32);
                return Err(Verdict::Unjudgeable(format!(
                    "two versions of {name} are the same"
                )));
            }
            let heads: Vec<u32> = order.into_iter().map(|(_, head)| head).collect();
            self.join(key as u32, &heads);
        }
        Ok(())
    }

    /// Links the versions that follow `head`, and returns the smallest recorded version among them.
    fn chain(
        &mut self,
        facts: &HistoryFacts<'_>,
        followers: &VersionFollowers,
        head: u32,
    ) -> Result<Option<u64>, Verdict> {
        let mut to_visit = vec![head];
        let mut last = LAST;
        let mut recorded = None;
        while let Some(version) = to_visit.pop() {
            if last != LAST {
                self.next[last as usize] = version;
            }
            last = version;
            let mark = facts.versions[version as usize].recorded;
            recorded = match (recorded, mark) {
                (Some(a), Some(b)) => Some(u64::min(a, b)),
                (a, b) => a.or(b),
            };
            for &next in followers.of(version).iter().rev() {
                let follower = &facts.versions[next as usize];
                if let (Some(mark), Some(after)) = (mark, follower.recorded)
                    && after <= mark
                {
                    let name = facts.name(follower.key);
                    return Err(Verdict::Unjudgeable(format!(
                        "version {after} of {name} replaced version {mark}"
                    )));
                }
                to_visit.push(next);
            }
        }
        Ok(recorded)
    }

    /// Returns the version before each version, [`INITIAL`] before the first.
    fn before(&self) -> Vec<u32> {
        let mut before = vec![INITIAL; self.next.len()];
        for (version, &next) in self.next.iter().enumerate() {
            if next != LAST {
                before[next as usize] = version as u32;
            }
        }
        before
    }

    /// Returns the absence that a read saw, for a key that was deleted at times.
    fn absence(
        &self,
        facts: &HistoryFacts<'_>,
        read: &ReadFact,
        floor: Option<u64>,
        before: &[u32],
        marks: &AbsenceMarks,
    ) -> u32 {
        if self.heads[read.key as usize].len() > 1 {
            return UNDECIDED;
        }
        let last_absence = |mut version: u32| {
            while version != INITIAL && facts.versions[version as usize].value.is_some() {
                version = before[version as usize];
            }
            version
        };
        // If the reader wrote the key itself, it saw the state before its own write: any later
        // absence would be its own future.
        let versions = &facts.by_key[read.key as usize];
        let at = versions.partition_point(|&v| facts.versions[v as usize].node < read.node);
        if let Some(&own) = versions.get(at)
            && facts.versions[own as usize].node == read.node
        {
            return last_absence(before[own as usize]);
        }
        match (floor, marks.of(read.key)) {
            (Some(floor), Some(marks)) => {
                match marks[..marks.partition_point(|mark| mark.0 <= floor)].last() {
                    None => INITIAL,
                    Some(&(_, tail)) => last_absence(tail),
                }
            }
            _ => UNDECIDED,
        }
    }
}

/// The versions that claim to follow each version.
struct VersionFollowers {
    starts: Vec<u32>,
    list: Vec<u32>,
}

impl VersionFollowers {
    fn collect(facts: &HistoryFacts<'_>) -> VersionFollowers {
        let replaced = |version: &super::facts::WrittenVersion| match version.replaces {
            Replaces::Version(before) => Some(before as usize),
            Replaces::Absence | Replaces::Unknown => None,
        };
        let mut starts = vec![0u32; facts.versions.len() + 2];
        facts
            .versions
            .iter()
            .filter_map(replaced)
            .for_each(|before| starts[before + 2] += 1);
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut list = vec![0; starts[starts.len() - 1] as usize];
        for (version, facts) in facts.versions.iter().enumerate() {
            if let Some(before) = replaced(facts) {
                list[starts[before + 1] as usize] = version as u32;
                starts[before + 1] += 1;
            }
        }
        VersionFollowers { starts, list }
    }

    fn of(&self, version: u32) -> &[u32] {
        let at = version as usize;
        &self.list[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

/// For keys with a known order and absences that were read with a recorded version: the smallest
/// recorded version in each stretch without absences, and the last version of the stretch.
struct AbsenceMarks(super::facts::FactMap<u32, Option<Vec<(u64, u32)>>>);

impl AbsenceMarks {
    fn collect(facts: &HistoryFacts<'_>, orders: &VersionOrders) -> AbsenceMarks {
        let mut marks = super::facts::FactMap::default();
        for read in &facts.reads {
            if matches!(read.saw, ReadResult::Absence(Some(_))) && facts.deleted[read.key as usize]
            {
                marks
                    .entry(read.key)
                    .or_insert_with(|| AbsenceMarks::of_key(facts, orders, read.key));
            }
        }
        AbsenceMarks(marks)
    }

    /// Returns `None` when the order is not known, or a stretch has no recorded version.
    fn of_key(
        facts: &HistoryFacts<'_>,
        orders: &VersionOrders,
        key: u32,
    ) -> Option<Vec<(u64, u32)>> {
        let mut marks = Vec::new();
        let mut mark: Option<u64> = None;
        let mut version = orders.first(key);
        let mut fresh = true;
        while version != LAST {
            let at = &facts.versions[version as usize];
            mark = match (mark, at.recorded) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let next = orders.next[version as usize];
            // A delete of an absent key belongs to the stretch before it.
            let ends = next == LAST
                || (at.value.is_none() && facts.versions[next as usize].value.is_some());
            fresh = false;
            if ends {
                marks.push((mark.take()?, version));
                fresh = true;
            }
            version = next;
        }
        (fresh && !marks.is_empty()).then_some(marks)
    }

    fn of(&self, key: u32) -> Option<&Vec<(u64, u32)>> {
        self.0.get(&key).and_then(Option::as_ref)
    }
}
