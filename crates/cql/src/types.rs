//! The types of columns, in the form that results and prepared statements have.
//!
//! A type is an `[option]`: a `[short]` id and, for some, its components.
//!
//! | id | type | what follows |
//! |---|---|---|
//! | 0x00 | custom | `[string]` name of a Java class |
//! | 0x01–0x15 | the simple ones, see [`DataType::SIMPLE`] | – |
//! | 0x20, 0x22 | list, set | type of the elements |
//! | 0x21 | map | type of the keys, type of the values |
//! | 0x30 | user's type | `[string]` keyspace, `[string]` name, `[short]` *n*, *n* × (`[string]` field, type) |
//! | 0x31 | tuple | `[short]` *n*, *n* × type |

use crate::notation::{Malformed, NotationReader, put_short_len, put_string};

/// The deepest nesting of types. Cassandra's own types are written by people.
const MAX_DEPTH: usize = 32;

/// The type of a column.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // The names are those of CQL.
pub enum DataType {
    Custom(String),
    Ascii,
    Bigint,
    Blob,
    Boolean,
    Counter,
    Decimal,
    Double,
    Float,
    Int,
    Timestamp,
    Uuid,
    /// Also called `varchar`.
    Text,
    Varint,
    Timeuuid,
    Inet,
    Date,
    Time,
    Smallint,
    Tinyint,
    Duration,
    List(Box<DataType>),
    Map(Box<DataType>, Box<DataType>),
    Set(Box<DataType>),
    UserDefined(Box<UserType>),
    Tuple(Vec<DataType>),
}

/// A type that a user has defined with fields.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct UserType {
    /// The keyspace in which it lies.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// The names and types of its fields.
    pub fields: Vec<(String, DataType)>,
}

impl DataType {
    /// The types that are only a number, with that number.
    pub const SIMPLE: [(u16, DataType); 20] = [
        (0x01, DataType::Ascii),
        (0x02, DataType::Bigint),
        (0x03, DataType::Blob),
        (0x04, DataType::Boolean),
        (0x05, DataType::Counter),
        (0x06, DataType::Decimal),
        (0x07, DataType::Double),
        (0x08, DataType::Float),
        (0x09, DataType::Int),
        (0x0b, DataType::Timestamp),
        (0x0c, DataType::Uuid),
        (0x0d, DataType::Text),
        (0x0e, DataType::Varint),
        (0x0f, DataType::Timeuuid),
        (0x10, DataType::Inet),
        (0x11, DataType::Date),
        (0x12, DataType::Time),
        (0x13, DataType::Smallint),
        (0x14, DataType::Tinyint),
        (0x15, DataType::Duration),
    ];

    /// Returns a list of `element`s.
    #[must_use]
    pub fn list(element: DataType) -> DataType {
        DataType::List(Box::new(element))
    }

    /// Returns a set of `element`s.
    #[must_use]
    pub fn set(element: DataType) -> DataType {
        DataType::Set(Box::new(element))
    }

    /// Returns a map from `key`s to `value`s.
    #[must_use]
    pub fn map(key: DataType, value: DataType) -> DataType {
        DataType::Map(Box::new(key), Box::new(value))
    }

    /// Reads a type.
    ///
    /// # Errors
    /// There is none, or it is nested too deeply.
    pub fn read(reader: &mut NotationReader<'_>) -> Result<DataType, Malformed> {
        read_at(reader, MAX_DEPTH)
    }

    /// Writes the type.
    ///
    /// # Panics
    /// Panics if a name is longer than 65,535 bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut id = |id: u16| out.extend_from_slice(&id.to_be_bytes());
        match self {
            DataType::Custom(class) => {
                id(0x00);
                put_string(out, class);
            }
            DataType::List(element) => {
                id(0x20);
                element.write(out);
            }
            DataType::Map(key, value) => {
                id(0x21);
                key.write(out);
                value.write(out);
            }
            DataType::Set(element) => {
                id(0x22);
                element.write(out);
            }
            DataType::UserDefined(user_type) => {
                id(0x30);
                user_type.write(out);
            }
            DataType::Tuple(elements) => {
                id(0x31);
                put_short_len(out, elements.len());
                elements.iter().for_each(|element| element.write(out));
            }
            simple => {
                let found = DataType::SIMPLE.iter().find(|(_, known)| known == simple);
                id(found.expect("all others have been named").0);
            }
        }
    }
}

impl UserType {
    fn write(&self, out: &mut Vec<u8>) {
        put_string(out, &self.keyspace);
        put_string(out, &self.name);
        put_short_len(out, self.fields.len());
        for (name, data_type) in &self.fields {
            put_string(out, name);
            data_type.write(out);
        }
    }
}

fn read_at(reader: &mut NotationReader<'_>, depth: usize) -> Result<DataType, Malformed> {
    let unknown = reader.malformed("a type that there is not");
    let Some(depth) = depth.checked_sub(1) else {
        return Err(reader.malformed("types that lie too deep in each other"));
    };
    let inner = |reader: &mut NotationReader<'_>| read_at(reader, depth);
    Ok(match reader.short()? {
        0x00 => DataType::Custom(reader.string()?.to_owned()),
        0x20 => DataType::list(inner(reader)?),
        0x21 => DataType::map(inner(reader)?, inner(reader)?),
        0x22 => DataType::set(inner(reader)?),
        0x30 => DataType::UserDefined(Box::new(UserType {
            keyspace: reader.string()?.to_owned(),
            name: reader.string()?.to_owned(),
            fields: reader.list(|reader| {
                let name = reader.string()?.to_owned();
                Ok((name, read_at(reader, depth)?))
            })?,
        })),
        0x31 => DataType::Tuple(reader.list(|reader| read_at(reader, depth))?),
        id => {
            let found = DataType::SIMPLE.iter().find(|(known, _)| *known == id);
            found.ok_or(unknown)?.1.clone()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_they_are_written() {
        let address = UserType {
            keyspace: "app".into(),
            name: "address".into(),
            fields: vec![
                ("street".into(), DataType::Text),
                ("flats".into(), DataType::set(DataType::Int)),
            ],
        };
        let composed = [
            DataType::Custom("org.apache.cassandra.db.marshal.VectorType".into()),
            DataType::list(DataType::Uuid),
            DataType::map(DataType::Text, DataType::list(DataType::Inet)),
            DataType::UserDefined(Box::new(address)),
            DataType::Tuple(vec![DataType::Duration, DataType::Tuple(vec![])]),
        ];
        let simple = DataType::SIMPLE.into_iter().map(|(_, data_type)| data_type);
        for data_type in simple.chain(composed) {
            let mut out = Vec::new();
            data_type.write(&mut out);
            let mut reader = NotationReader::new(&out);
            assert_eq!(DataType::read(&mut reader), Ok(data_type));
            assert_eq!(reader.rest(), b"");
        }
    }

    #[test]
    fn a_map_of_sets_on_the_wire() {
        let mut out = Vec::new();
        DataType::map(DataType::Text, DataType::set(DataType::Int)).write(&mut out);
        assert_eq!(out, b"\0\x21\0\x0d\0\x22\0\x09");
    }

    #[test]
    fn depth_is_bounded_and_unknown_ids_are_refused() {
        let what = |bytes: &[u8]| {
            DataType::read(&mut NotationReader::new(bytes))
                .unwrap_err()
                .what
        };
        let nested = b"\0\x20".repeat(100_000);
        assert_eq!(what(&nested), "types that lie too deep in each other");
        assert_eq!(what(b"\0\x0a"), "a type that there is not");
        assert_eq!(what(b"\0\x31\xff\xff"), "it ends too early");
    }
}
