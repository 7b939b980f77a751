//! Records of transactions and tags of rows, as bytes. The notation is that of CQL's protocol.
//!
//! | record (`writes`) | |
//! |---|---|
//! | `[byte]` | format: 1 |
//! | `[int]` *n* | rows |
//! | *n* × row | key, `[byte]` 0: deleted, or 1 and `[int]` *m*, *m* × (`[string]` column, `[bytes]`) |
//!
//! | tag (`kumiki_txn`) | |
//! |---|---|
//! | `[byte]` | format: 1 |
//! | `[long]`, `[long]` | the transaction's id and owner |
//! | `[byte]` | 1: the row is deleted; 0: it is not |
//! | `[int]` *n* | the other rows that the transaction wrote |
//! | *n* × key | |
//!
//! A key is `[string]` table, `[int]` *k*, *k* × `[bytes]`, the values of the primary key's columns in
//! the order of the table. The keyspace is that of the table of records.

use cql::Malformed;
use cql::notation::{NotationReader, put_bytes, put_int, put_int_len, put_long, put_string};

use super::transaction_id::{AtomicTransactionId, Owner};

const FORMAT: u8 = 1;

/// A row of a keyspace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct RowKey {
    pub(crate) table: String,
    /// The values of the primary key's columns.
    pub(crate) values: Vec<Vec<u8>>,
}

/// Columns by name; a value `None` is null.
pub(crate) type NamedColumns = Vec<(String, Option<Vec<u8>>)>;

/// A version of a row that a transaction writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RowWrite {
    pub(crate) key: RowKey,
    /// All columns besides those of the key and the tag. `None`: the row is deleted.
    pub(crate) columns: Option<NamedColumns>,
}

/// A transaction that writes several rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TransactionRecord {
    pub(crate) id: AtomicTransactionId,
    pub(crate) owner: Owner,
    pub(crate) writes: Vec<RowWrite>,
}

/// The tag of a row's version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VersionTag {
    pub(crate) id: AtomicTransactionId,
    pub(crate) owner: Owner,
    pub(crate) is_deleted: bool,
    /// The other rows that the transaction wrote.
    pub(crate) siblings: Vec<RowKey>,
}

impl RowKey {
    fn write(&self, out: &mut Vec<u8>) {
        put_string(out, &self.table);
        put_int_len(out, self.values.len());
        self.values
            .iter()
            .for_each(|value| put_bytes(out, Some(value)));
    }

    fn read(reader: &mut NotationReader<'_>) -> Result<RowKey, Malformed> {
        let table = reader.string()?.to_owned();
        let mut values = Vec::new();
        for _ in 0..reader.count("a negative number of key columns")? {
            let null = reader.malformed("a key that is null");
            values.push(reader.bytes()?.ok_or(null)?.to_vec());
        }
        Ok(RowKey { table, values })
    }
}

impl TransactionRecord {
    /// Returns the bytes of its writes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_int_len(&mut out, self.writes.len());
        for write in &self.writes {
            write.key.write(&mut out);
            out.push(write.columns.is_some().into());
            if let Some(columns) = &write.columns {
                put_int_len(&mut out, columns.len());
                for (name, value) in columns {
                    put_string(&mut out, name);
                    put_bytes(&mut out, value.as_deref());
                }
            }
        }
        out
    }

    /// Reads the bytes of a record's writes.
    ///
    /// # Errors
    /// They are none.
    pub(crate) fn decode(
        id: AtomicTransactionId,
        owner: Owner,
        bytes: &[u8],
    ) -> Result<TransactionRecord, Malformed> {
        let mut reader = NotationReader::new(bytes);
        let reader = &mut reader;
        format(reader)?;
        let mut writes = Vec::new();
        for _ in 0..reader.count("a negative number of rows")? {
            let key = RowKey::read(reader)?;
            let mut columns = None;
            if reader.byte()? != 0 {
                let mut all = Vec::new();
                for _ in 0..reader.count("a negative number of columns")? {
                    let name = reader.string()?.to_owned();
                    all.push((name, reader.bytes()?.map(<[u8]>::to_vec)));
                }
                columns = Some(all);
            }
            writes.push(RowWrite { key, columns });
        }
        end(reader)?;
        Ok(TransactionRecord { id, owner, writes })
    }

    /// Returns the tag of one of its rows.
    pub(crate) fn tag(&self, write: &RowWrite) -> VersionTag {
        let keys = self.writes.iter().map(|other| &other.key);
        VersionTag {
            id: self.id,
            owner: self.owner,
            is_deleted: write.columns.is_none(),
            siblings: keys.filter(|key| **key != write.key).cloned().collect(),
        }
    }
}

impl VersionTag {
    /// Returns its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_long(&mut out, self.id.0);
        put_long(&mut out, self.owner.0);
        out.push(self.is_deleted.into());
        put_int(&mut out, self.siblings.len() as i32);
        self.siblings.iter().for_each(|key| key.write(&mut out));
        out
    }

    /// Reads a tag.
    ///
    /// # Errors
    /// The bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Result<VersionTag, Malformed> {
        let mut reader = NotationReader::new(bytes);
        let reader = &mut reader;
        format(reader)?;
        let (id, owner) = (AtomicTransactionId(reader.long()?), Owner(reader.long()?));
        let is_deleted = reader.byte()? != 0;
        let mut siblings = Vec::new();
        for _ in 0..reader.count("a negative number of rows")? {
            siblings.push(RowKey::read(reader)?);
        }
        end(reader)?;
        Ok(VersionTag {
            id,
            owner,
            is_deleted,
            siblings,
        })
    }
}

fn format(reader: &mut NotationReader<'_>) -> Result<(), Malformed> {
    let unknown = reader.malformed("a format that a newer proxy may know");
    match reader.byte()? {
        FORMAT => Ok(()),
        _ => Err(unknown),
    }
}

fn end(reader: &NotationReader<'_>) -> Result<(), Malformed> {
    match reader.rest().is_empty() {
        true => Ok(()),
        false => Err(reader.malformed("bytes behind the end")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn key(table: &str, values: &[&str]) -> RowKey {
        RowKey {
            table: table.to_owned(),
            values: values.iter().map(|it| it.as_bytes().to_vec()).collect(),
        }
    }

    pub(crate) fn record(id: i64, writes: Vec<RowWrite>) -> TransactionRecord {
        TransactionRecord {
            id: AtomicTransactionId(id),
            owner: Owner(-5),
            writes,
        }
    }

    fn some() -> TransactionRecord {
        let columns = vec![
            ("a".to_owned(), Some(b"1".to_vec())),
            ("b".to_owned(), Some(Vec::new())),
            ("c".to_owned(), None),
        ];
        let set = RowWrite {
            key: key("t", &["k", ""]),
            columns: Some(columns),
        };
        let deleted = RowWrite {
            key: key("Other", &["k"]),
            columns: None,
        };
        record(1 << 50, vec![set, deleted])
    }

    #[test]
    fn records_and_tags_are_read_as_they_are_written() {
        let record = some();
        let decoded = TransactionRecord::decode(record.id, record.owner, &record.encode());
        assert_eq!(decoded, Ok(record.clone()));
        for (write, deleted) in record.writes.iter().zip([false, true]) {
            let tag = record.tag(write);
            assert_eq!(VersionTag::decode(&tag.encode()), Ok(tag.clone()));
            assert_eq!(tag.is_deleted, deleted);
            assert_eq!(tag.siblings.len(), 1);
            assert_ne!(tag.siblings[0], write.key);
        }
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let record = some();
        let (writes, tag) = (record.encode(), record.tag(&record.writes[0]).encode());
        for len in 0..writes.len() {
            let found = TransactionRecord::decode(record.id, record.owner, &writes[..len]);
            assert!(found.is_err(), "{len}");
        }
        for len in 0..tag.len() {
            assert!(VersionTag::decode(&tag[..len]).is_err(), "{len}");
        }
        let longer = [&tag[..], b"\0"].concat();
        assert_eq!(
            VersionTag::decode(&longer).map_err(|it| it.what),
            Err("bytes behind the end")
        );
        let newer = [&[2], &tag[1..]].concat();
        let error = VersionTag::decode(&newer).expect_err("another format");
        assert_eq!(error.what, "a format that a newer proxy may know");
    }
}
