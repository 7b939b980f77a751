//! The queries of read-atomic transactions to the nodes.

use bytes::Bytes;
use cql::request::{Parameters, Query as CqlQuery, Request};
use cql::token::Token;
use cql::{Bound, Consistency, Flags, StreamId, ValueList, Version};

use super::super::lock_table::schema::Schema;
use super::super::node_connection::quoted;
use super::record::{RowKey, RowWrite, TransactionRecord};
use super::transaction_id::{AtomicTransactionId, Bucket, Owner};
use super::{RECORD_TABLE, TAG_COLUMN};

/// How long the tag of a deleted row stays, in seconds. After that there is no row, which reads as the
/// same.
const DELETED_TTL: i32 = 24 * 60 * 60;

/// A query with values, and its place.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PlacedQuery {
    pub(crate) text: String,
    pub(crate) values: ValueList,
    /// The token of its partition.
    pub(crate) token: Token,
}

impl PlacedQuery {
    /// Returns about how many bytes it takes.
    pub(crate) fn len(&self) -> usize {
        let values = self.values.values(Version::V4);
        let values = values
            .iter()
            .map(|(_, value)| value.bytes().map_or(4, <[u8]>::len) + 4);
        self.text.len() + values.sum::<usize>()
    }

    /// Returns the request as an envelope, with stream 0.
    pub(crate) fn bytes(&self, version: Version, consistency: Consistency) -> Bytes {
        let mut bytes = Vec::new();
        self.request(version, consistency).into_message().write(
            &mut bytes,
            version,
            StreamId(0),
            Flags::default(),
        );
        bytes.into()
    }

    /// Returns the request.
    pub(crate) fn request(&self, version: Version, consistency: Consistency) -> Request<'_> {
        let parameters = Parameters::new(consistency, self.values.values(version));
        Request::Query(CqlQuery {
            text: &self.text,
            parameters,
        })
    }
}

/// Returns the token of a partition key with these values.
fn token(values: &[&[u8]]) -> Token {
    if let [only] = values {
        return Token::of_key(only);
    }
    let mut key = Vec::new();
    for value in values {
        key.extend_from_slice(&(value.len() as u16).to_be_bytes());
        key.extend_from_slice(value);
        key.push(0);
    }
    Token::of_key(&key)
}

/// Returns a query about records of one partition; `more` are the values after the partition's.
fn of_records(text: String, owner: Owner, bucket: Bucket, more: &[Bound<'_>]) -> PlacedQuery {
    let (owner, bucket) = (owner.0.to_be_bytes(), bucket.0.to_be_bytes());
    let mut values = ValueList::new();
    for value in [Bound::Bytes(&owner), Bound::Bytes(&bucket)] {
        values.push(value);
    }
    more.iter().for_each(|value| values.push(*value));
    PlacedQuery {
        text,
        values,
        token: token(&[&owner, &bucket]),
    }
}

fn records(keyspace: &str) -> String {
    format!("{}.{RECORD_TABLE}", quoted(keyspace))
}

/// Returns the PREPARE of a transaction: the INSERT of its record.
pub(crate) fn prepare(keyspace: &str, record: &TransactionRecord) -> PlacedQuery {
    let text = format!(
        "INSERT INTO {} (owner, bucket, id, writes) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
        records(keyspace)
    );
    let (id, writes) = (record.id.0.to_be_bytes(), record.encode());
    let more = [Bound::Bytes(&id), Bound::Bytes(&writes), Bound::Bytes(&id)];
    of_records(text, record.owner, record.id.bucket(), &more)
}

/// Returns the read of a record.
pub(crate) fn read_record(keyspace: &str, owner: Owner, id: AtomicTransactionId) -> PlacedQuery {
    let text = format!(
        "SELECT writes FROM {} WHERE owner = ? AND bucket = ? AND id = ?",
        records(keyspace)
    );
    let value = id.0.to_be_bytes();
    of_records(text, owner, id.bucket(), &[Bound::Bytes(&value)])
}

/// Returns the read of the first records of a partition above `after`.
pub(crate) fn read_records(
    keyspace: &str,
    owner: Owner,
    bucket: Bucket,
    after: AtomicTransactionId,
    most: usize,
) -> PlacedQuery {
    let text = format!(
        "SELECT id, writes FROM {} WHERE owner = ? AND bucket = ? AND id > ? LIMIT {most}",
        records(keyspace)
    );
    let after = after.0.to_be_bytes();
    of_records(text, owner, bucket, &[Bound::Bytes(&after)])
}

/// Returns the DELETE of some records of a partition.
///
/// # Panics
/// Panics if there are none.
pub(crate) fn delete_records(
    keyspace: &str,
    owner: Owner,
    bucket: Bucket,
    ids: &[AtomicTransactionId],
) -> PlacedQuery {
    let newest = ids.iter().max().expect("some records");
    let text = format!(
        "DELETE FROM {} USING TIMESTAMP {} WHERE owner = ? AND bucket = ? AND id IN ({})",
        records(keyspace),
        newest.0,
        vec!["?"; ids.len()].join(", ")
    );
    let ids: Vec<[u8; 8]> = ids.iter().map(|id| id.0.to_be_bytes()).collect();
    let values: Vec<Bound<'_>> = ids.iter().map(|id| Bound::Bytes(id)).collect();
    of_records(text, owner, bucket, &values)
}

/// Returns one query for several writes: an unlogged batch.
pub(crate) fn together(writes: &[PlacedQuery]) -> PlacedQuery {
    let mut values = ValueList::new();
    for write in writes {
        let all = write.values.values(Version::V4);
        all.iter().for_each(|(_, value)| values.push(value));
    }
    let texts: Vec<&str> = writes.iter().map(|write| write.text.as_str()).collect();
    PlacedQuery {
        text: format!("BEGIN UNLOGGED BATCH {}; APPLY BATCH", texts.join("; ")),
        values,
        token: writes.first().map_or(Token(0), |write| write.token),
    }
}

/// Returns the DELETE of all records of a partition.
pub(crate) fn delete_bucket(keyspace: &str, owner: Owner, bucket: Bucket) -> PlacedQuery {
    let text = format!(
        "DELETE FROM {} USING TIMESTAMP {} WHERE owner = ? AND bucket = ?",
        records(keyspace),
        bucket.end_us()
    );
    of_records(text, owner, bucket, &[])
}

/// Returns the read of all partitions with records.
pub(crate) fn read_buckets(keyspace: &str) -> PlacedQuery {
    PlacedQuery {
        text: format!("SELECT DISTINCT owner, bucket FROM {}", records(keyspace)),
        values: ValueList::new(),
        token: Token(0),
    }
}

/// Returns the text of the lightweight transaction that leases a number; see [`lease`].
pub(crate) fn take_lease_text(keyspace: &str, ttl_s: u32) -> String {
    format!(
        "INSERT INTO {} (owner, bucket, id, writes) VALUES (:number, :bucket, 0, :lease) IF NOT EXISTS USING TTL \
         {ttl_s}",
        records(keyspace)
    )
}

/// Returns the text of the one that extends the lease.
pub(crate) fn extend_lease_text(keyspace: &str, ttl_s: u32) -> String {
    format!(
        "UPDATE {} USING TTL {ttl_s} SET writes = :lease WHERE owner = :number AND bucket = :bucket \
         AND id = 0 IF writes = :lease",
        records(keyspace)
    )
}

/// Returns a lightweight transaction about the lease of a number.
pub(crate) fn lease(text: String, owner: Owner, number: u8) -> PlacedQuery {
    let (own, bucket) = (owner.0.to_be_bytes(), Bucket::LEASE.0.to_be_bytes());
    let number = i64::from(number).to_be_bytes();
    let mut values = ValueList::new();
    for (name, value) in [("lease", &own), ("number", &number), ("bucket", &bucket)] {
        values.push_named(name, Bound::Bytes(value));
    }
    PlacedQuery {
        text,
        values,
        token: token(&[&number, &bucket]),
    }
}

/// Returns the COMMIT of one row: the INSERT of its version. Columns that the table no longer has are
/// left out.
pub(crate) fn commit(schema: &Schema, record: &TransactionRecord, write: &RowWrite) -> PlacedQuery {
    let (mut names, mut values) = (Vec::new(), ValueList::new());
    for (&place, value) in schema.key.iter().zip(&write.key.values) {
        names.push(quoted(&schema.columns.0[place].name));
        values.push(Bound::Bytes(value));
    }
    for (place, column) in schema.columns.0.iter().enumerate() {
        if schema.is_key(place) || column.name == TAG_COLUMN {
            continue;
        }
        let value = match &write.columns {
            None => None,
            Some(columns) => match columns.iter().find(|(name, _)| *name == column.name) {
                Some((_, value)) => value.as_deref(),
                None => None,
            },
        };
        names.push(quoted(&column.name));
        values.push(value.map_or(Bound::Null, Bound::Bytes));
    }
    names.push(TAG_COLUMN.to_owned());
    values.push(Bound::Bytes(&record.tag(write).encode()));
    let ttl = match write.columns {
        None => format!(" AND TTL {DELETED_TTL}"),
        Some(_) => String::new(),
    };
    let markers = vec!["?"; names.len()].join(", ");
    let text = format!(
        "INSERT INTO {}.{} ({}) VALUES ({markers}) USING TIMESTAMP {}{ttl}",
        quoted(&schema.name.keyspace),
        quoted(&schema.name.table),
        names.join(", "),
        record.id.0
    );
    PlacedQuery {
        text,
        values,
        token: row_token(schema, &write.key),
    }
}

/// Returns the read of a row, with all columns in the order of the schema.
pub(crate) fn read_row(schema: &Schema, key: &RowKey) -> PlacedQuery {
    let columns = schema.columns.0.iter();
    let columns: Vec<String> = columns.map(|column| quoted(&column.name)).collect();
    let restrictions = schema.key.iter();
    let restrictions: Vec<String> = restrictions
        .map(|&place| format!("{} = ?", quoted(&schema.columns.0[place].name)))
        .collect();
    let mut values = ValueList::new();
    key.values
        .iter()
        .for_each(|value| values.push(Bound::Bytes(value)));
    PlacedQuery {
        text: format!(
            "SELECT {} FROM {}.{} WHERE {}",
            columns.join(", "),
            quoted(&schema.name.keyspace),
            quoted(&schema.name.table),
            restrictions.join(" AND ")
        ),
        values,
        token: row_token(schema, key),
    }
}

fn row_token(schema: &Schema, key: &RowKey) -> Token {
    let partition = key.values.iter().take(schema.partition);
    token(&partition.map(Vec::as_slice).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{key, record};
    use super::super::statement::tests::tables;
    use super::*;
    use cql::token::partition_key;

    fn schema(at: usize) -> std::sync::Arc<Schema> {
        tables()[at].schema.clone().expect("a schema")
    }

    #[test]
    fn a_commit_writes_all_columns_with_the_id_as_timestamp() {
        let columns = vec![
            ("a".to_owned(), Some(b"one".to_vec())),
            ("b".to_owned(), None),
        ];
        let set = RowWrite {
            key: key("t", &["x"]),
            columns: Some(columns),
        };
        let deleted = RowWrite {
            key: key("t", &["y"]),
            columns: None,
        };
        let record = record(77, vec![set.clone(), deleted.clone()]);
        let query = commit(&schema(0), &record, &set);
        let text = "INSERT INTO \"app\".\"t\" (\"k\", \"a\", \"b\", kumiki_txn) VALUES (?, ?, ?, ?) \
                    USING TIMESTAMP 77";
        assert_eq!(query.text, text);
        let values = query.values.values(Version::V4);
        let tag = record.tag(&set).encode();
        let expected = [
            Bound::Bytes(b"x"),
            Bound::Bytes(b"one"),
            Bound::Null,
            Bound::Bytes(&tag),
        ];
        assert!(values.iter().map(|(_, value)| value).eq(expected));
        let query = commit(&schema(0), &record, &deleted);
        assert_eq!(query.text, format!("{text} AND TTL {DELETED_TTL}"));
        assert_eq!(query.values.values(Version::V4).get(1), Some(Bound::Null));
    }

    #[test]
    fn queries_go_to_the_partition_of_their_key() {
        // A key of two columns of which one is the partition's.
        let one = read_row(&schema(1), &key("pair", &["x", "1"]));
        assert_eq!(one.token, Token::of_key(b"x"));
        assert!(
            one.text.ends_with("WHERE \"p\" = ? AND \"c\" = ?"),
            "{}",
            one.text
        );
        let id = AtomicTransactionId(1 << 50);
        let read = read_record("app", Owner(-3), id);
        let mut scratch = Vec::new();
        let values = read.values.values(Version::V4);
        let expected = partition_key(&values, &[0, 1], &mut scratch).expect("a key");
        assert_eq!(read.token, Token::of_key(expected));
        let bucket = delete_bucket("app", Owner(-3), id.bucket());
        assert_eq!(bucket.token, read.token);
        assert!(bucket.text.contains(&id.bucket().end_us().to_string()));
    }
}
