//! The versions that a read has to fetch in a second round: RAMP-Fast, algorithm 1, lines 24–33 of the
//! paper.
//!
//! A row that was read must be at least as new as every transaction that another row's tag shows to have
//! written it. One second round suffices: the fetched version is of a transaction that another row of the
//! first round names, and that row lists the same siblings.

use std::collections::HashMap;

use super::record::{RowKey, VersionTag};
use super::transaction_id::{AtomicTransactionId, Owner};

/// A version that is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MissingVersion {
    /// The place of its key among those of the read.
    pub(crate) place: usize,
    /// The transaction that wrote it.
    pub(crate) id: AtomicTransactionId,
    pub(crate) owner: Owner,
}

/// Returns the versions that are missing. `tags` are those of the rows of `keys`; `None`: there is no
/// row, or one from before the table was read atomic.
pub(crate) fn missing(keys: &[RowKey], tags: &[Option<VersionTag>]) -> Vec<MissingVersion> {
    assert_eq!(keys.len(), tags.len(), "a tag for each key");
    let mut wanted: HashMap<&RowKey, (AtomicTransactionId, Owner)> = HashMap::new();
    for tag in tags.iter().flatten() {
        for sibling in &tag.siblings {
            let newest = wanted.entry(sibling).or_insert((tag.id, tag.owner));
            *newest = (*newest).max((tag.id, tag.owner));
        }
    }
    let places = keys.iter().zip(tags).enumerate();
    let missing = places.filter_map(|(place, (key, tag))| {
        let &(id, owner) = wanted.get(key)?;
        let is_older = tag.as_ref().is_none_or(|tag| tag.id < id);
        is_older.then_some(MissingVersion { place, id, owner })
    });
    missing.collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{key, record};
    use super::super::record::{RowWrite, TransactionRecord};
    use super::*;

    fn keys(names: &[&str]) -> Vec<RowKey> {
        names.iter().map(|name| key("t", &[name])).collect()
    }

    /// A transaction that writes these rows.
    fn transaction(id: i64, names: &[&str]) -> TransactionRecord {
        let writes = keys(names).into_iter().map(|key| RowWrite {
            key,
            columns: Some(Vec::new()),
        });
        record(id, writes.collect())
    }

    fn tag(transaction: &TransactionRecord, name: &str) -> Option<VersionTag> {
        let key = key("t", &[name]);
        let write = transaction.writes.iter().find(|write| write.key == key);
        Some(transaction.tag(write.expect("it writes that")))
    }

    fn found(missing: &[MissingVersion]) -> Vec<(usize, i64)> {
        missing.iter().map(|it| (it.place, it.id.0)).collect()
    }

    #[test]
    fn a_row_that_is_older_than_its_sibling_is_missing() {
        let (old, new) = (transaction(1, &["x", "y"]), transaction(2, &["x", "y"]));
        let keys = keys(&["x", "y"]);
        let of = |x: &TransactionRecord, y: Option<&TransactionRecord>| {
            let tags = [tag(x, "x"), y.and_then(|y| tag(y, "y"))];
            found(&missing(&keys, &tags))
        };
        assert_eq!(of(&new, Some(&new)), []);
        assert_eq!(of(&new, Some(&old)), [(1, 2)]);
        assert_eq!(of(&old, Some(&new)), [(0, 2)]);
        assert_eq!(of(&old, None), [(1, 1)]);
    }

    #[test]
    fn the_newest_of_several_transactions_counts() {
        let (one, two) = (transaction(1, &["x", "z"]), transaction(2, &["y", "z"]));
        let keys = keys(&["x", "y", "z"]);
        let tags = [tag(&one, "x"), tag(&two, "y"), None];
        assert_eq!(found(&missing(&keys, &tags)), [(2, 2)]);
        // A newer row of a single write is enough.
        let three = transaction(3, &["z"]);
        let tags = [tag(&one, "x"), tag(&two, "y"), tag(&three, "z")];
        assert_eq!(missing(&keys, &tags), []);
    }

    #[test]
    fn rows_that_are_not_read_are_not_missing() {
        let both = transaction(1, &["x", "y"]);
        assert_eq!(missing(&keys(&["x"]), &[tag(&both, "x")]), []);
        let other = RowKey {
            table: "u".to_owned(),
            ..key("t", &["y"])
        };
        let keys = [key("t", &["x"]), other];
        assert_eq!(missing(&keys, &[tag(&both, "x"), None]), []);
    }
}
