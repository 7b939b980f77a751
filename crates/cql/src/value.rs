//! Values in the formats of their types: those that a proxy must read or make.
//!
//! | type | bytes |
//! |---|---|
//! | ascii, text | UTF-8 |
//! | int, bigint, smallint, tinyint, counter | two's complement, 4, 8, 2, 1, 8 |
//! | boolean | 1; zero is false |
//! | uuid, timeuuid | 16 |
//! | inet | 4 or 16 |
//! | timestamp | 8: milliseconds since 1970 |
//! | double | 8 (IEEE 754) |
//! | blob, and every type that is not named here | as they are |
//! | list, set | `[int]` *n*, *n* × `[bytes]` |
//! | map | `[int]` *n*, *n* × (`[bytes]` key, `[bytes]` value) |
//!
//! An empty value of a type that has no empty values is kept as [`CqlValue::Blob`]: Cassandra allows
//! it for nearly all types.

use std::net::IpAddr;

use crate::notation::{Malformed, NotationReader, Uuid, put_bytes, put_int, put_int_len};
use crate::types::DataType;

/// A value of a column.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)] // The names are those of CQL.
pub enum CqlValue {
    Null,
    Text(String),
    Tinyint(i8),
    Smallint(i16),
    Int(i32),
    Bigint(i64),
    Boolean(bool),
    Double(f64),
    Uuid(Uuid),
    Inet(IpAddr),
    /// Milliseconds since 1970.
    Timestamp(i64),
    /// Bytes, and values of types that are not decoded.
    Blob(Vec<u8>),
    List(Vec<CqlValue>),
    Set(Vec<CqlValue>),
    Map(Vec<(CqlValue, CqlValue)>),
}

impl CqlValue {
    /// Returns a value of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> CqlValue {
        CqlValue::Text(text.into())
    }

    /// Returns a set of texts.
    #[must_use]
    pub fn text_set<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> CqlValue {
        CqlValue::Set(texts.into_iter().map(CqlValue::text).collect())
    }

    /// Returns `true` if it is a value of `data_type`.
    #[must_use]
    pub fn is_of(&self, data_type: &DataType) -> bool {
        let all_of =
            |values: &[CqlValue], element: &DataType| values.iter().all(|v| v.is_of(element));
        match (self, data_type) {
            (CqlValue::Null | CqlValue::Blob(_), _)
            | (CqlValue::Text(_), DataType::Text | DataType::Ascii)
            | (CqlValue::Tinyint(_), DataType::Tinyint)
            | (CqlValue::Smallint(_), DataType::Smallint)
            | (CqlValue::Int(_), DataType::Int)
            | (CqlValue::Bigint(_), DataType::Bigint | DataType::Counter)
            | (CqlValue::Boolean(_), DataType::Boolean)
            | (CqlValue::Double(_), DataType::Double)
            | (CqlValue::Uuid(_), DataType::Uuid | DataType::Timeuuid)
            | (CqlValue::Inet(_), DataType::Inet)
            | (CqlValue::Timestamp(_), DataType::Timestamp) => true,
            (CqlValue::List(values), DataType::List(element))
            | (CqlValue::Set(values), DataType::Set(element)) => all_of(values, element),
            (CqlValue::Map(pairs), DataType::Map(key, value)) => {
                pairs.iter().all(|(k, v)| k.is_of(key) && v.is_of(value))
            }
            _ => false,
        }
    }

    /// Decodes a value; `None` is null.
    ///
    /// # Errors
    /// The bytes are no value of that type. The place is counted from the value's start.
    pub fn decode(data_type: &DataType, bytes: Option<&[u8]>) -> Result<CqlValue, Malformed> {
        let Some(bytes) = bytes else {
            return Ok(CqlValue::Null);
        };
        let text = matches!(data_type, DataType::Text | DataType::Ascii);
        if bytes.is_empty() && !text {
            return Ok(CqlValue::Blob(Vec::new()));
        }
        let mut reader = NotationReader::new(bytes);
        let value = decode_from(data_type, &mut reader)?;
        if reader.rest().is_empty() {
            Ok(value)
        } else {
            Err(reader.malformed("a value with more behind it"))
        }
    }

    /// Writes the value as `[bytes]`.
    ///
    /// # Panics
    /// Panics if it is 2 GiB long or longer.
    pub fn write(&self, out: &mut Vec<u8>) {
        if *self == CqlValue::Null {
            return put_bytes(out, None);
        }
        let start = out.len();
        put_int(out, 0);
        self.write_content(out);
        let len = i32::try_from(out.len() - start - 4).expect("a value below 2 GiB");
        out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    }

    /// Returns the value's bytes; `None` is null.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.write_content(&mut out);
        (*self != CqlValue::Null).then_some(out)
    }

    fn write_content(&self, out: &mut Vec<u8>) {
        match self {
            CqlValue::Null => {}
            CqlValue::Text(text) => out.extend_from_slice(text.as_bytes()),
            CqlValue::Tinyint(number) => out.extend_from_slice(&number.to_be_bytes()),
            CqlValue::Smallint(number) => out.extend_from_slice(&number.to_be_bytes()),
            CqlValue::Int(number) => out.extend_from_slice(&number.to_be_bytes()),
            CqlValue::Bigint(number) | CqlValue::Timestamp(number) => {
                out.extend_from_slice(&number.to_be_bytes());
            }
            CqlValue::Boolean(truth) => out.push((*truth).into()),
            CqlValue::Double(number) => out.extend_from_slice(&number.to_be_bytes()),
            CqlValue::Uuid(bytes) => out.extend_from_slice(bytes),
            CqlValue::Inet(IpAddr::V4(address)) => out.extend_from_slice(&address.octets()),
            CqlValue::Inet(IpAddr::V6(address)) => out.extend_from_slice(&address.octets()),
            CqlValue::Blob(bytes) => out.extend_from_slice(bytes),
            CqlValue::List(values) | CqlValue::Set(values) => {
                put_int_len(out, values.len());
                values.iter().for_each(|value| value.write(out));
            }
            CqlValue::Map(pairs) => {
                put_int_len(out, pairs.len());
                for (key, value) in pairs {
                    key.write(out);
                    value.write(out);
                }
            }
        }
    }
}

fn decode_from(
    data_type: &DataType,
    reader: &mut NotationReader<'_>,
) -> Result<CqlValue, Malformed> {
    let wrong = reader.malformed("a value of another length than its type's");
    let all = reader.rest();
    Ok(match data_type {
        DataType::Text | DataType::Ascii => {
            let error = reader.malformed("a text that is not UTF-8");
            let bytes = reader.take(all.len())?;
            CqlValue::Text(std::str::from_utf8(bytes).map_err(|_| error)?.to_owned())
        }
        DataType::Tinyint => CqlValue::Tinyint(reader.byte()? as i8),
        DataType::Smallint => CqlValue::Smallint(reader.short()? as i16),
        DataType::Int => CqlValue::Int(reader.int()?),
        DataType::Bigint | DataType::Counter => CqlValue::Bigint(reader.long()?),
        DataType::Boolean => CqlValue::Boolean(reader.byte()? != 0),
        DataType::Double => CqlValue::Double(f64::from_bits(reader.long()? as u64)),
        DataType::Uuid | DataType::Timeuuid => CqlValue::Uuid(reader.uuid()?),
        DataType::Timestamp => CqlValue::Timestamp(reader.long()?),
        DataType::Inet => {
            let bytes = reader.take(all.len())?;
            CqlValue::Inet(match bytes.len() {
                4 => IpAddr::from(*bytes.first_chunk::<4>().ok_or(wrong)?),
                16 => IpAddr::from(*bytes.first_chunk::<16>().ok_or(wrong)?),
                _ => return Err(wrong),
            })
        }
        DataType::List(element) => CqlValue::List(elements(element, reader)?),
        DataType::Set(element) => CqlValue::Set(elements(element, reader)?),
        DataType::Map(key, value) => {
            let mut pairs = Vec::new();
            for _ in 0..reader.count("a negative number of elements")? {
                let key = element(key, reader)?;
                pairs.push((key, element(value, reader)?));
            }
            CqlValue::Map(pairs)
        }
        _ => CqlValue::Blob(reader.take(all.len())?.to_vec()),
    })
}

fn elements(
    data_type: &DataType,
    reader: &mut NotationReader<'_>,
) -> Result<Vec<CqlValue>, Malformed> {
    let mut elements = Vec::new();
    for _ in 0..reader.count("a negative number of elements")? {
        elements.push(element(data_type, reader)?);
    }
    Ok(elements)
}

fn element(data_type: &DataType, reader: &mut NotationReader<'_>) -> Result<CqlValue, Malformed> {
    let bytes = reader.bytes()?;
    let start = reader.position() - bytes.map_or(0, <[u8]>::len);
    CqlValue::decode(data_type, bytes).map_err(|error| Malformed {
        at: start + error.at,
        ..error
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(data_type: &DataType, value: &CqlValue, bytes: &[u8]) {
        assert!(value.is_of(data_type), "{value:?}");
        assert_eq!(value.to_bytes().as_deref(), Some(bytes));
        assert_eq!(CqlValue::decode(data_type, Some(bytes)).as_ref(), Ok(value));
        let mut out = Vec::new();
        value.write(&mut out);
        assert_eq!(NotationReader::new(&out).bytes(), Ok(Some(bytes)));
    }

    #[test]
    fn values_have_the_formats_of_their_types() {
        check(&DataType::Text, &CqlValue::text("é"), "é".as_bytes());
        check(&DataType::Text, &CqlValue::text(""), b"");
        check(&DataType::Int, &CqlValue::Int(-2), b"\xff\xff\xff\xfe");
        check(
            &DataType::Bigint,
            &CqlValue::Bigint(1),
            b"\0\0\0\0\0\0\0\x01",
        );
        check(&DataType::Smallint, &CqlValue::Smallint(-1), b"\xff\xff");
        check(&DataType::Tinyint, &CqlValue::Tinyint(-1), b"\xff");
        check(&DataType::Boolean, &CqlValue::Boolean(true), b"\x01");
        check(
            &DataType::Double,
            &CqlValue::Double(1.0),
            b"\x3f\xf0\0\0\0\0\0\0",
        );
        check(&DataType::Uuid, &CqlValue::Uuid([7; 16]), &[7; 16]);
        let address = IpAddr::from([127, 0, 0, 1]);
        check(&DataType::Inet, &CqlValue::Inet(address), b"\x7f\0\0\x01");
        check(
            &DataType::Timestamp,
            &CqlValue::Timestamp(256),
            b"\0\0\0\0\0\0\x01\0",
        );
        check(&DataType::Blob, &CqlValue::Blob(vec![1, 2]), b"\x01\x02");
        check(&DataType::Int, &CqlValue::Blob(vec![]), b"");
    }

    #[test]
    fn collections_count_and_measure_their_elements() {
        let set = DataType::set(DataType::Text);
        check(
            &set,
            &CqlValue::text_set(["-1", "2"]),
            b"\0\0\0\x02\0\0\0\x02-1\0\0\0\x012",
        );
        let map = DataType::map(DataType::Text, DataType::Int);
        let pairs = vec![
            (CqlValue::text("a"), CqlValue::Int(1)),
            (CqlValue::text("b"), CqlValue::Null),
        ];
        check(
            &map,
            &CqlValue::Map(pairs),
            b"\0\0\0\x02\0\0\0\x01a\0\0\0\x04\0\0\0\x01\0\0\0\x01b\xff\xff\xff\xff",
        );
        assert!(!CqlValue::text_set(["a"]).is_of(&DataType::set(DataType::Int)));
    }

    #[test]
    fn null_has_no_bytes() {
        assert_eq!(CqlValue::decode(&DataType::Int, None), Ok(CqlValue::Null));
        assert_eq!(CqlValue::Null.to_bytes(), None);
        let mut out = Vec::new();
        CqlValue::Null.write(&mut out);
        assert_eq!(out, b"\xff\xff\xff\xff");
    }

    #[test]
    fn wrong_bytes_are_refused() {
        let error =
            |data_type, bytes: &[u8]| CqlValue::decode(&data_type, Some(bytes)).unwrap_err();
        assert_eq!(error(DataType::Int, b"abc").what, "it ends too early");
        let long = error(DataType::Int, b"abcde");
        assert_eq!((long.at, long.what), (4, "a value with more behind it"));
        assert_eq!(
            error(DataType::Inet, b"abcde").what,
            "a value of another length than its type's"
        );
        let inner = error(DataType::list(DataType::Text), b"\0\0\0\x01\0\0\0\x01\xff");
        assert_eq!((inner.at, inner.what), (8, "a text that is not UTF-8"));
        let negative = error(DataType::set(DataType::Int), b"\xff\xff\xff\xff");
        assert_eq!(negative.what, "a negative number of elements");
        let announced = error(DataType::set(DataType::Int), b"\x7f\xff\xff\xff");
        assert_eq!(announced.what, "it ends too early");
    }
}
