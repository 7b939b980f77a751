//! The replicas of the simulation: they understand the proxy's statements, and answer as a random quorum does.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Replicas of each row and record.
pub(super) const REPLICAS: usize = 3;

/// A version of a row: the timestamp, and the columns by name.
pub(super) type RowVersion = (i64, BTreeMap<String, Option<Vec<u8>>>);

/// The data of a replica. The newest timestamp wins, and a removal wins against a write of its own.
#[derive(Clone, Default, Debug)]
pub(super) struct Replica {
    pub(super) rows: BTreeMap<Vec<u8>, RowVersion>,
    /// Records by partition and id, with their timestamps.
    pub(super) records: BTreeMap<([i64; 2], i64), (i64, Vec<u8>)>,
    pub(super) removed_partitions: BTreeMap<[i64; 2], i64>,
    pub(super) removed_records: BTreeSet<([i64; 2], i64)>,
}

/// A query, as a replica sees it.
pub(super) enum ReplicaStatement {
    PutRow(Vec<u8>, RowVersion),
    ReadRow(Vec<u8>, Vec<String>),
    PutRecord([i64; 2], i64, Vec<u8>),
    ReadRecord([i64; 2], i64),
    ReadRecords([i64; 2], i64),
    ReadBuckets,
    RemoveRecords([i64; 2], Vec<i64>),
    RemovePartition([i64; 2], i64),
}

pub(super) fn names(text: &str, from: &str, to: &str) -> Vec<String> {
    let list = text.split_once(from).expect(from).1;
    let list = list.split_once(to).expect(to).0;
    let names = list.split(", ");
    names
        .map(|name| name.trim_matches('"').to_owned())
        .collect()
}

pub(super) fn timestamp(text: &str) -> i64 {
    let after = text.split_once("USING TIMESTAMP ").expect("a timestamp").1;
    let digits = after.split(' ').next().expect("a word");
    digits.parse().expect("a number")
}

pub(super) fn understood(text: &str, values: &BoundValues<'_>) -> ReplicaStatement {
    let value = |at| match values.get(at) {
        Some(Bound::Bytes(bytes)) => bytes.to_vec(),
        other => panic!("{text}: {other:?}"),
    };
    let long = |at| i64::from_be_bytes(value(at).try_into().expect("8 bytes"));
    let partition = || [long(0), long(1)];
    let of_records = text.contains("kumiki_transactions");
    match text.split(' ').next().expect("a word") {
        "INSERT" if of_records => {
            assert_eq!(long(2), long(4), "the timestamp is the id");
            ReplicaStatement::PutRecord(partition(), long(2), value(3))
        }
        "INSERT" => {
            let names = names(text, "(", ")").into_iter().enumerate();
            let columns = names.map(|(at, name)| (name, values.get(at).and_then(Bound::bytes)));
            let columns = columns.map(|(name, value)| (name, value.map(<[u8]>::to_vec)));
            ReplicaStatement::PutRow(value(0), (timestamp(text), columns.collect()))
        }
        "SELECT" if text.contains("DISTINCT") => ReplicaStatement::ReadBuckets,
        "SELECT" if text.contains("id > ?") => ReplicaStatement::ReadRecords(partition(), long(2)),
        "SELECT" if of_records => ReplicaStatement::ReadRecord(partition(), long(2)),
        "SELECT" => ReplicaStatement::ReadRow(value(0), names(text, "SELECT ", " FROM")),
        "DELETE" if text.contains("id IN") => {
            let ids = (2..values.len()).map(long).collect();
            ReplicaStatement::RemoveRecords(partition(), ids)
        }
        "DELETE" => ReplicaStatement::RemovePartition(partition(), timestamp(text)),
        _ => panic!("{text}"),
    }
}

/// Returns the statements of a text, which may be a batch.
pub(super) fn all_understood(text: &str, values: &BoundValues<'_>) -> Vec<ReplicaStatement> {
    let Some(batch) = text.strip_prefix("BEGIN UNLOGGED BATCH ") else {
        return vec![understood(text, values)];
    };
    let batch = batch.strip_suffix("; APPLY BATCH").expect("its end");
    let mut values = values.iter().map(|(_, value)| value);
    let one = |text: &str| {
        let mut own = ValueList::new();
        let count = text.matches('?').count();
        values
            .by_ref()
            .take(count)
            .for_each(|value| own.push(value));
        understood(text, &own.values(Version::V4))
    };
    batch.split("; ").map(one).collect()
}

impl Replica {
    pub(super) fn write(&mut self, statement: &ReplicaStatement) {
        match statement {
            ReplicaStatement::PutRow(key, version) => {
                let newest = self.rows.entry(key.clone()).or_default();
                assert!(
                    version.0 != newest.0 || *version == *newest,
                    "two versions with one timestamp"
                );
                if version.0 > newest.0 {
                    newest.clone_from(version);
                }
            }
            ReplicaStatement::PutRecord(partition, id, writes) => {
                let removed = self.removed_partitions.get(partition);
                if removed.is_none_or(|until| until < id)
                    && !self.removed_records.contains(&(*partition, *id))
                {
                    self.records
                        .insert((*partition, *id), (*id, writes.clone()));
                }
            }
            ReplicaStatement::RemoveRecords(partition, ids) => {
                for id in ids {
                    self.records.remove(&(*partition, *id));
                    self.removed_records.insert((*partition, *id));
                }
            }
            ReplicaStatement::RemovePartition(partition, until) => {
                self.removed_partitions.insert(*partition, *until);
                let is_kept = |at: &[i64; 2], id: i64| at != partition || id > *until;
                self.records.retain(|(at, id), _| is_kept(at, *id));
            }
            _ => {}
        }
    }
}

/// The replicas, and the chance.
pub(super) struct SimulatedReplicas {
    pub(super) replicas: [Replica; REPLICAS],
    pub(super) random: fastrand::Rng,
}

impl SimulatedReplicas {
    /// Executes a statement at a random quorum.
    pub(super) fn execute(
        &mut self,
        statement: &ReplicaStatement,
    ) -> (Vec<(&'static str, DataType)>, Vec<Vec<CqlValue>>) {
        let count = self.random.usize(2..=REPLICAS);
        let mut chosen: Vec<usize> = (0..REPLICAS).collect();
        self.random.shuffle(&mut chosen);
        chosen.truncate(count);
        chosen
            .iter()
            .for_each(|&at| self.replicas[at].write(statement));
        let read = chosen.iter().map(|&at| &self.replicas[at]);
        let blob =
            |bytes: Option<&Vec<u8>>| bytes.map_or(CqlValue::Null, |it| CqlValue::Blob(it.clone()));
        // A record that one replica has removed is removed.
        let mut records: BTreeMap<([i64; 2], i64), &Vec<u8>> = BTreeMap::new();
        for replica in read.clone() {
            records.extend(
                replica
                    .records
                    .iter()
                    .map(|(at, (_, writes))| (*at, writes)),
            );
        }
        for replica in read.clone() {
            records.retain(|(partition, id), _| {
                let removed = replica.removed_partitions.get(partition);
                removed.is_none_or(|until| until < id)
                    && !replica.removed_records.contains(&(*partition, *id))
            });
        }
        match statement {
            ReplicaStatement::ReadRow(key, names) => {
                let found = read.filter_map(|replica| replica.rows.get(key));
                let newest = found.max_by_key(|version| version.0);
                let row = newest.map(|(_, columns)| {
                    let values = names.iter().map(|name| blob(columns[name].as_ref()));
                    values.collect()
                });
                let columns = names.iter().map(|_| ("", DataType::Blob));
                (columns.collect(), row.into_iter().collect())
            }
            ReplicaStatement::ReadRecord(partition, id) => {
                let found = records.get(&(*partition, *id));
                let rows = found.map(|writes| vec![CqlValue::Blob(writes.to_vec())]);
                (vec![("", DataType::Blob)], rows.into_iter().collect())
            }
            ReplicaStatement::ReadRecords(partition, after) => {
                let found = records.iter();
                let found = found.filter(|((at, id), _)| at == partition && id > after);
                let rows = found.map(|((_, id), writes)| {
                    vec![CqlValue::Bigint(*id), CqlValue::Blob(writes.to_vec())]
                });
                (
                    vec![("", DataType::Bigint), ("", DataType::Blob)],
                    rows.collect(),
                )
            }
            ReplicaStatement::ReadBuckets => {
                let partitions: BTreeSet<[i64; 2]> = records.keys().map(|(at, _)| *at).collect();
                let rows = partitions.iter();
                let rows = rows.map(|at| at.map(CqlValue::Bigint).to_vec()).collect();
                (vec![("", DataType::Bigint); 2], rows)
            }
            _ => (Vec::new(), Vec::new()),
        }
    }

    /// Executes a statement at some replicas, perhaps at none: its answer gets lost.
    pub(super) fn lose(&mut self, statement: &ReplicaStatement) {
        for replica in &mut self.replicas {
            if self.random.bool() {
                replica.write(statement);
            }
        }
    }
}
