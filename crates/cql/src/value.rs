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
//! An empty value of a type that has no empty values is kept as [`Value::Blob`]: Cassandra allows
//! it for nearly all types.

use std::net::IpAddr;

use crate::notation::{Malformed, Reader, Uuid, put_bytes, put_int, put_int_len};
use crate::types::DataType;

/// A value of a column.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)] // The names are those of CQL.
pub enum Value {
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
    List(Vec<Value>),
    Set(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// Returns a value of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    /// Returns a set of texts.
    #[must_use]
    pub fn text_set<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Value {
        Value::Set(texts.into_iter().map(Value::text).collect())
    }

    /// Returns `true` if it is a value of `data_type`.
    #[must_use]
    pub fn is_of(&self, data_type: &DataType) -> bool {
        let all_of = |values: &[Value], element: &DataType| values.iter().all(|v| v.is_of(element));
        match (self, data_type) {
            (Value::Null | Value::Blob(_), _)
            | (Value::Text(_), DataType::Text | DataType::Ascii)
            | (Value::Tinyint(_), DataType::Tinyint)
            | (Value::Smallint(_), DataType::Smallint)
            | (Value::Int(_), DataType::Int)
            | (Value::Bigint(_), DataType::Bigint | DataType::Counter)
            | (Value::Boolean(_), DataType::Boolean)
            | (Value::Double(_), DataType::Double)
            | (Value::Uuid(_), DataType::Uuid | DataType::Timeuuid)
            | (Value::Inet(_), DataType::Inet)
            | (Value::Timestamp(_), DataType::Timestamp) => true,
            (Value::List(values), DataType::List(element))
            | (Value::Set(values), DataType::Set(element)) => all_of(values, element),
            (Value::Map(pairs), DataType::Map(key, value)) => {
                pairs.iter().all(|(k, v)| k.is_of(key) && v.is_of(value))
            }
            _ => false,
        }
    }

    /// Decodes a value; `None` is null.
    ///
    /// # Errors
    /// The bytes are no value of that type. The place is counted from the value's start.
    pub fn decode(data_type: &DataType, bytes: Option<&[u8]>) -> Result<Value, Malformed> {
        let Some(bytes) = bytes else {
            return Ok(Value::Null);
        };
        let text = matches!(data_type, DataType::Text | DataType::Ascii);
        if bytes.is_empty() && !text {
            return Ok(Value::Blob(Vec::new()));
        }
        let mut reader = Reader::new(bytes);
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
        if *self == Value::Null {
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
        (*self != Value::Null).then_some(out)
    }

    fn write_content(&self, out: &mut Vec<u8>) {
        match self {
            Value::Null => {}
            Value::Text(text) => out.extend_from_slice(text.as_bytes()),
            Value::Tinyint(number) => out.extend_from_slice(&number.to_be_bytes()),
            Value::Smallint(number) => out.extend_from_slice(&number.to_be_bytes()),
            Value::Int(number) => out.extend_from_slice(&number.to_be_bytes()),
            Value::Bigint(number) | Value::Timestamp(number) => {
                out.extend_from_slice(&number.to_be_bytes());
            }
            Value::Boolean(truth) => out.push((*truth).into()),
            Value::Double(number) => out.extend_from_slice(&number.to_be_bytes()),
            Value::Uuid(bytes) => out.extend_from_slice(bytes),
            Value::Inet(IpAddr::V4(address)) => out.extend_from_slice(&address.octets()),
            Value::Inet(IpAddr::V6(address)) => out.extend_from_slice(&address.octets()),
            Value::Blob(bytes) => out.extend_from_slice(bytes),
            Value::List(values) | Value::Set(values) => {
                put_int_len(out, values.len());
                values.iter().for_each(|value| value.write(out));
            }
            Value::Map(pairs) => {
                put_int_len(out, pairs.len());
                for (key, value) in pairs {
                    key.write(out);
                    value.write(out);
                }
            }
        }
    }
}

fn decode_from(data_type: &DataType, reader: &mut Reader<'_>) -> Result<Value, Malformed> {
    let wrong = reader.malformed("a value of another length than its type's");
    let all = reader.rest();
    Ok(match data_type {
        DataType::Text | DataType::Ascii => {
            let error = reader.malformed("a text that is not UTF-8");
            let bytes = reader.take(all.len())?;
            Value::Text(std::str::from_utf8(bytes).map_err(|_| error)?.to_owned())
        }
        DataType::Tinyint => Value::Tinyint(reader.byte()? as i8),
        DataType::Smallint => Value::Smallint(reader.short()? as i16),
        DataType::Int => Value::Int(reader.int()?),
        DataType::Bigint | DataType::Counter => Value::Bigint(reader.long()?),
        DataType::Boolean => Value::Boolean(reader.byte()? != 0),
        DataType::Double => Value::Double(f64::from_bits(reader.long()? as u64)),
        DataType::Uuid | DataType::Timeuuid => Value::Uuid(reader.uuid()?),
        DataType::Timestamp => Value::Timestamp(reader.long()?),
        DataType::Inet => {
            let bytes = reader.take(all.len())?;
            Value::Inet(match bytes.len() {
                4 => IpAddr::from(*bytes.first_chunk::<4>().ok_or(wrong)?),
                16 => IpAddr::from(*bytes.first_chunk::<16>().ok_or(wrong)?),
                _ => return Err(wrong),
            })
        }
        DataType::List(element) => Value::List(elements(element, reader)?),
        DataType::Set(element) => Value::Set(elements(element, reader)?),
        DataType::Map(key, value) => {
            let mut pairs = Vec::new();
            for _ in 0..reader.count("a negative number of elements")? {
                let key = element(key, reader)?;
                pairs.push((key, element(value, reader)?));
            }
            Value::Map(pairs)
        }
        _ => Value::Blob(reader.take(all.len())?.to_vec()),
    })
}

fn elements(data_type: &DataType, reader: &mut Reader<'_>) -> Result<Vec<Value>, Malformed> {
    let mut elements = Vec::new();
    for _ in 0..reader.count("a negative number of elements")? {
        elements.push(element(data_type, reader)?);
    }
    Ok(elements)
}

fn element(data_type: &DataType, reader: &mut Reader<'_>) -> Result<Value, Malformed> {
    let bytes = reader.bytes()?;
    let start = reader.position() - bytes.map_or(0, <[u8]>::len);
    Value::decode(data_type, bytes).map_err(|error| Malformed {
        at: start + error.at,
        ..error
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(data_type: &DataType, value: &Value, bytes: &[u8]) {
        assert!(value.is_of(data_type), "{value:?}");
        assert_eq!(value.to_bytes().as_deref(), Some(bytes));
        assert_eq!(Value::decode(data_type, Some(bytes)).as_ref(), Ok(value));
        let mut out = Vec::new();
        value.write(&mut out);
        assert_eq!(Reader::new(&out).bytes(), Ok(Some(bytes)));
    }

    #[test]
    fn values_have_the_formats_of_their_types() {
        check(&DataType::Text, &Value::text("é"), "é".as_bytes());
        check(&DataType::Text, &Value::text(""), b"");
        check(&DataType::Int, &Value::Int(-2), b"\xff\xff\xff\xfe");
        check(&DataType::Bigint, &Value::Bigint(1), b"\0\0\0\0\0\0\0\x01");
        check(&DataType::Smallint, &Value::Smallint(-1), b"\xff\xff");
        check(&DataType::Tinyint, &Value::Tinyint(-1), b"\xff");
        check(&DataType::Boolean, &Value::Boolean(true), b"\x01");
        check(
            &DataType::Double,
            &Value::Double(1.0),
            b"\x3f\xf0\0\0\0\0\0\0",
        );
        check(&DataType::Uuid, &Value::Uuid([7; 16]), &[7; 16]);
        let address = IpAddr::from([127, 0, 0, 1]);
        check(&DataType::Inet, &Value::Inet(address), b"\x7f\0\0\x01");
        check(
            &DataType::Timestamp,
            &Value::Timestamp(256),
            b"\0\0\0\0\0\0\x01\0",
        );
        check(&DataType::Blob, &Value::Blob(vec![1, 2]), b"\x01\x02");
        check(&DataType::Int, &Value::Blob(vec![]), b"");
    }

    #[test]
    fn collections_count_and_measure_their_elements() {
        let set = DataType::set(DataType::Text);
        check(
            &set,
            &Value::text_set(["-1", "2"]),
            b"\0\0\0\x02\0\0\0\x02-1\0\0\0\x012",
        );
        let map = DataType::map(DataType::Text, DataType::Int);
        let pairs = vec![
            (Value::text("a"), Value::Int(1)),
            (Value::text("b"), Value::Null),
        ];
        check(
            &map,
            &Value::Map(pairs),
            b"\0\0\0\x02\0\0\0\x01a\0\0\0\x04\0\0\0\x01\0\0\0\x01b\xff\xff\xff\xff",
        );
        assert!(!Value::text_set(["a"]).is_of(&DataType::set(DataType::Int)));
    }

    #[test]
    fn null_has_no_bytes() {
        assert_eq!(Value::decode(&DataType::Int, None), Ok(Value::Null));
        assert_eq!(Value::Null.to_bytes(), None);
        let mut out = Vec::new();
        Value::Null.write(&mut out);
        assert_eq!(out, b"\xff\xff\xff\xff");
    }

    #[test]
    fn wrong_bytes_are_refused() {
        let error = |data_type, bytes: &[u8]| Value::decode(&data_type, Some(bytes)).unwrap_err();
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
