//! Entries of a snapshot as rows of a table.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use clap::ValueEnum;
use pages::PageSize;

use crate::snapshot::Entry;

/// The end of the year 9999, in milliseconds since the Unix epoch. A later deadline becomes this
/// one, because other programs do not know later times.
const LATEST_MS: i64 = 253_402_300_799_999;
/// Bytes of a key that an error shows.
const SHOWN: usize = 100;

/// What becomes of a value that is too long for a page.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(super) enum LongValues {
    /// The export ends with an error that names the key.
    Refuse,
    /// It is null.
    Null,
}

/// Converts entries to rows.
pub(super) struct Rows {
    schema: SchemaRef,
    binary: bool,
    page_size: PageSize,
    long_values: LongValues,
    left_out: u64,
}

impl Rows {
    pub(super) fn new(binary: bool, page_size: PageSize, long_values: LongValues) -> Rows {
        let bytes = match binary {
            true => DataType::Binary,
            false => DataType::Utf8,
        };
        let time = DataType::Timestamp(TimeUnit::Millisecond, None);
        let schema = Schema::new(vec![
            Field::new("key", bytes.clone(), false),
            Field::new("value", bytes, long_values == LongValues::Null),
            Field::new("type", DataType::Utf8, false),
            Field::new("expires_at", time, true),
            Field::new("version", DataType::Int64, false),
        ]);
        Rows {
            schema: Arc::new(schema),
            binary,
            page_size,
            long_values,
            left_out: 0,
        }
    }

    /// Returns the columns.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the number of values that were too long, and are null.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns a row for each entry.
    pub(super) fn batch(&mut self, entries: &[Entry]) -> Result<RecordBatch, String> {
        let most = self.page_size.longest_value();
        let mut values = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = &entry.key;
            if key.len() > most {
                return Err(too_long("key", key, key.len(), self.page_size));
            }
            let value = entry.value.as_deref();
            let shown_value = value.filter(|value| value.len() <= most);
            if shown_value.is_none() && self.long_values == LongValues::Refuse {
                return Err(match value {
                    Some(value) => too_long("the value of key", key, value.len(), self.page_size),
                    None => not_exported(entry),
                });
            }
            self.left_out += u64::from(shown_value.is_none());
            values.push(shown_value);
        }
        let kinds = entries
            .iter()
            .map(|entry| String::from_utf8_lossy(&entry.kind));
        let kinds: StringArray = kinds.map(Some).collect();
        let expires = entries
            .iter()
            .map(|entry| entry.expires_ms.map(|ms| ms.min(LATEST_MS)));
        let expires: TimestampMillisecondArray = expires.collect();
        let versions = entries.iter().map(|entry| entry.version);
        let columns: Vec<ArrayRef> = vec![
            self.keys(entries)?,
            self.values(entries, &values)?,
            Arc::new(kinds),
            Arc::new(expires),
            Arc::new(Int64Array::from_iter_values(versions)),
        ];
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|error| error.to_string())
    }

    fn keys(&self, entries: &[Entry]) -> Result<ArrayRef, String> {
        let keys = || entries.iter().map(|entry| entry.key.as_slice());
        if self.binary {
            return Ok(binary(keys().map(Some)));
        }
        let mut texts = StringBuilder::new();
        for key in keys() {
            let text = std::str::from_utf8(key);
            texts.append_value(text.map_err(|_| no_text("key", key))?);
        }
        Ok(Arc::new(texts.finish()))
    }

    fn values(&self, entries: &[Entry], values: &[Option<&[u8]>]) -> Result<ArrayRef, String> {
        if self.binary {
            return Ok(binary(values.iter().copied()));
        }
        let mut texts = StringBuilder::new();
        for (entry, value) in entries.iter().zip(values) {
            let text = value.map(std::str::from_utf8).transpose();
            let text = text.map_err(|_| no_text("the value of key", &entry.key));
            texts.append_option(text?);
        }
        Ok(Arc::new(texts.finish()))
    }
}

fn binary<'v>(values: impl Iterator<Item = Option<&'v [u8]>>) -> ArrayRef {
    let mut bytes = BinaryBuilder::new();
    values.for_each(|value| bytes.append_option(value));
    Arc::new(bytes.finish())
}

/// Returns a key in the form that errors show.
fn shown(key: &[u8]) -> String {
    let rest = if key.len() > SHOWN { "…" } else { "" };
    format!("\"{}\"{rest}", key[..key.len().min(SHOWN)].escape_ascii())
}

fn no_text(what: &str, key: &[u8]) -> String {
    format!(
        "{what} {} is not UTF-8: export bytes as they are with --binary",
        shown(key)
    )
}

/// Returns the error for a value of which an earlier server has no payload.
fn not_exported(entry: &Entry) -> String {
    format!(
        "the value of key {}, a {}, cannot be exported yet: --long-values null leaves such values out",
        shown(&entry.key),
        String::from_utf8_lossy(&entry.kind)
    )
}

/// Returns the error for bytes that do not fit into a page, with what to do.
fn too_long(what: &str, key: &[u8], bytes: usize, page_size: PageSize) -> String {
    let most = page_size.longest_value();
    let page = base::size::Size(page_size.bytes() as u64);
    let larger = PageSize::ALL.into_iter();
    let larger = larger.filter(|size| size.longest_value() >= bytes).min();
    let advice = match larger {
        Some(size) => format!(
            "choose --page-size {}",
            base::size::Size(size.bytes() as u64)
        ),
        None => "no page holds that: --long-values null leaves such values out".to_owned(),
    };
    format!(
        "{what} {} has {bytes} bytes, and a page of {page} holds {most}: {advice}",
        shown(key)
    )
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::TimestampMillisecondType;

    use super::*;

    fn rows(binary: bool, long_values: LongValues) -> Rows {
        Rows::new(binary, PageSize::new(4096).expect("a size"), long_values)
    }

    fn entry(key: &[u8], value: &[u8]) -> Entry {
        Entry {
            key: key.to_vec(),
            kind: b"string".to_vec(),
            value: Some(value.to_vec()),
            ..Entry::default()
        }
    }

    #[test]
    fn what_is_no_text_is_named() {
        let mut texts = rows(false, LongValues::Refuse);
        let said = texts.batch(&[entry(b"a", b"1"), entry(b"b\xff", b"")]);
        let said = said.expect_err("it is no text");
        assert!(
            said.contains("key \"b\\xff\" is not UTF-8") && said.contains("--binary"),
            "{said}"
        );
        let said = texts
            .batch(&[entry("ä".as_bytes(), b"\xe4")])
            .expect_err("no text");
        assert!(said.contains("the value of key \"\\xc3\\xa4\""), "{said}");
        let bytes = rows(true, LongValues::Refuse).batch(&[entry(b"b\xff", b"\xe4")]);
        let bytes = bytes.expect("bytes are any");
        assert_eq!(bytes.column(0).as_binary::<i32>().value(0), b"b\xff");
        assert_eq!(bytes.column(1).as_binary::<i32>().value(0), b"\xe4");
    }

    #[test]
    fn what_does_not_fit_is_named_with_a_page_that_would_do() {
        let most = PageSize::ALL[0].longest_value();
        let (fits, long) = (vec![b'x'; most], vec![b'x'; most + 1]);
        let mut refusing = rows(false, LongValues::Refuse);
        assert!(refusing.batch(&[entry(b"a", &fits)]).is_ok());
        let said = refusing
            .batch(&[entry(b"a", &long)])
            .expect_err("it is long");
        assert!(
            said.contains("the value of key \"a\"") && said.contains("--page-size 8"),
            "{said}"
        );
        let huge = vec![b'x'; 1 << 20];
        let said = refusing.batch(&[entry(b"a", &huge)]);
        let said = said.expect_err("it is long");
        assert!(said.contains("--long-values null"), "{said}");
        for mut rows in [refusing, rows(true, LongValues::Null)] {
            let said = rows.batch(&[entry(&long, b"")]).expect_err("it is long");
            assert!(
                said.starts_with("key \"xxx") && said.contains("…") && said.len() < 300,
                "{said}"
            );
        }
        let mut null = rows(false, LongValues::Null);
        let batch = null.batch(&[entry(b"a", &long), entry(b"b", &fits), entry(b"c", &huge)]);
        let batch = batch.expect("they are null");
        assert_eq!(null.left_out(), 2);
        let nulls: Vec<bool> = (0..3).map(|row| batch.column(1).is_null(row)).collect();
        assert_eq!(nulls, [true, false, true]);
    }

    #[test]
    fn values_without_a_payload_are_named() {
        let entry = Entry {
            kind: b"stream".to_vec(),
            value: None,
            ..entry(b"events", b"")
        };
        let said = rows(true, LongValues::Refuse).batch(std::slice::from_ref(&entry));
        let said = said.expect_err("it has no payload");
        assert!(said.contains("key \"events\", a stream, cannot"), "{said}");
        let mut null = rows(true, LongValues::Null);
        let batch = null.batch(&[entry]).expect("it is null");
        assert!(batch.column(1).is_null(0) && null.left_out() == 1);
    }

    #[test]
    fn times_are_such_that_others_know() {
        let ages = [None, Some(5), Some(LATEST_MS), Some(i64::MAX)];
        let entries: Vec<Entry> = ages
            .map(|expires_ms| Entry {
                expires_ms,
                ..entry(b"k", b"v")
            })
            .to_vec();
        let batch = rows(false, LongValues::Refuse)
            .batch(&entries)
            .expect("rows");
        let times: Vec<Option<i64>> = batch
            .column(3)
            .as_primitive::<TimestampMillisecondType>()
            .iter()
            .collect();
        assert_eq!(times, [None, Some(5), Some(LATEST_MS), Some(LATEST_MS)]);
    }
}
