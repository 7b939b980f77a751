//! The values that a request binds to a statement's markers.
//!
//! | length (`[int]`) | value |
//! |---|---|
//! | *n* ≥ 0 | *n* bytes |
//! | −1 | null |
//! | −2 | not set: the column stays as it is (from version 4 on) |
//!
//! A list of them is a `[short]` count and the values, each after its name (`[string]`) if they
//! are named.
//!
//! Invariant: a [`BoundValues`] has been read through once, so that reading it again cannot fail.

use crate::envelope::Version;
use crate::notation::{Malformed, NotationReader, put_bytes, put_int, put_short_len, put_string};

/// A value for a marker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bound<'a> {
    /// A value's bytes, which are in the format of its type.
    Bytes(&'a [u8]),
    /// Null.
    Null,
    /// Not set.
    Unset,
}

impl<'a> Bound<'a> {
    fn read(reader: &mut NotationReader<'a>, version: Version) -> Result<Bound<'a>, Malformed> {
        let error = reader.malformed("a value whose length is below -2");
        match reader.int()? {
            -1 => Ok(Bound::Null),
            // Before version 4 every negative length was null.
            len if len < 0 && version < Version::V4 => Ok(Bound::Null),
            -2 => Ok(Bound::Unset),
            len => match usize::try_from(len) {
                Ok(len) => reader.take(len).map(Bound::Bytes),
                Err(_) => Err(error),
            },
        }
    }

    /// Returns the bytes, if it has any.
    #[must_use]
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Bound::Bytes(bytes) => Some(bytes),
            Bound::Null | Bound::Unset => None,
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            Bound::Bytes(bytes) => put_bytes(out, Some(bytes)),
            Bound::Null => put_int(out, -1),
            Bound::Unset => put_int(out, -2),
        }
    }
}

/// The values of a request, in place in its body. Nothing is allocated for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoundValues<'a> {
    count: u16,
    named: bool,
    version: Version,
    bytes: &'a [u8],
}

impl<'a> BoundValues<'a> {
    /// Returns an empty list of values.
    #[must_use]
    pub fn none(version: Version) -> BoundValues<'a> {
        BoundValues {
            count: 0,
            named: false,
            version,
            bytes: &[],
        }
    }

    /// Reads a list of values.
    ///
    /// # Errors
    /// The bytes are no such list, or end too early.
    pub fn read(
        reader: &mut NotationReader<'a>,
        named: bool,
        version: Version,
    ) -> Result<BoundValues<'a>, Malformed> {
        let count = reader.short()?;
        let start = reader.position();
        for _ in 0..count {
            if named {
                reader.string()?;
            }
            Bound::read(reader, version)?;
        }
        Ok(BoundValues {
            count,
            // Empty lists are equal, with names or without.
            named: named && count > 0,
            version,
            bytes: reader.since(start),
        })
    }

    /// Writes the list.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_short_len(out, self.len());
        out.extend_from_slice(self.bytes);
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// Returns `true` if there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns `true` if they have names.
    #[must_use]
    pub fn are_named(&self) -> bool {
        self.named
    }

    /// Returns the values in order, with their names if they have any.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&'a str>, Bound<'a>)> + use<'a> {
        let BoundValues {
            count,
            named,
            version,
            bytes,
        } = *self;
        let mut reader = NotationReader::new(bytes);
        (0..count).map_while(move |_| {
            let name = if named {
                Some(reader.string().ok()?)
            } else {
                None
            };
            Some((name, Bound::read(&mut reader, version).ok()?))
        })
    }

    /// Returns the value at `index`. The values before it are skipped one by one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Bound<'a>> {
        self.iter().nth(index).map(|(_, value)| value)
    }

    /// Returns the value with this name; the first one if there are several.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<Bound<'a>> {
        self.iter()
            .find(|(named, _)| *named == Some(name))
            .map(|(_, value)| value)
    }
}

/// Values that a program collects for a request of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ValueList {
    count: u16,
    named: bool,
    bytes: Vec<u8>,
}

impl ValueList {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> ValueList {
        ValueList::default()
    }

    /// Adds a value without a name.
    ///
    /// # Panics
    /// Panics if the list has 65,535 values, or values with names.
    pub fn push(&mut self, value: Bound<'_>) {
        assert!(!self.named, "either all values have names or none");
        self.count = self.count.checked_add(1).expect("at most 65,535 values");
        value.write(&mut self.bytes);
    }

    /// Adds a value with a name.
    ///
    /// # Panics
    /// Panics if the list has 65,535 values, or values without names.
    pub fn push_named(&mut self, name: &str, value: Bound<'_>) {
        assert!(
            self.named || self.count == 0,
            "either all have names or none"
        );
        self.named = true;
        self.count = self.count.checked_add(1).expect("at most 65,535 values");
        put_string(&mut self.bytes, name);
        value.write(&mut self.bytes);
    }

    /// Returns the values, for a request of this version.
    ///
    /// # Panics
    /// Panics if one of them is "not set", which version 3 does not have.
    #[must_use]
    pub fn values(&self, version: Version) -> BoundValues<'_> {
        let values = BoundValues {
            count: self.count,
            named: self.named,
            version: version.max(Version::V4),
            bytes: &self.bytes,
        };
        let known = version >= Version::V4 || values.iter().all(|(_, v)| v != Bound::Unset);
        assert!(known, "version 3 has no value that is not set");
        BoundValues { version, ..values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = b"\0\x04\0\0\0\x02ab\xff\xff\xff\xff\xff\xff\xff\xfe\0\0\0\0tail";

    #[test]
    fn values_are_found_where_they_lie() {
        let mut reader = NotationReader::new(LIST);
        let values = BoundValues::read(&mut reader, false, Version::V5).unwrap();
        assert_eq!(reader.rest(), b"tail");
        let all: Vec<_> = values.iter().map(|(_, value)| value).collect();
        let expected = [
            Bound::Bytes(b"ab"),
            Bound::Null,
            Bound::Unset,
            Bound::Bytes(b""),
        ];
        assert_eq!(all, expected);
        assert_eq!(values.get(3), Some(Bound::Bytes(b"")));
        assert_eq!(values.get(4), None);
        let mut out = Vec::new();
        values.write(&mut out);
        assert_eq!(out, LIST[..LIST.len() - 4]);
    }

    #[test]
    fn version_3_knows_null_only() {
        let values = BoundValues::read(&mut NotationReader::new(LIST), false, Version::V3).unwrap();
        assert_eq!(values.get(2), Some(Bound::Null));
        let odd = b"\0\x01\xff\xff\xff\xf0";
        let old = BoundValues::read(&mut NotationReader::new(odd), false, Version::V3).unwrap();
        assert_eq!(old.get(0), Some(Bound::Null));
        let new = BoundValues::read(&mut NotationReader::new(odd), false, Version::V4).unwrap_err();
        assert_eq!((new.at, new.what), (2, "a value whose length is below -2"));
    }

    #[test]
    fn names_come_before_values() {
        let mut list = ValueList::new();
        list.push_named("owner", Bound::Bytes(b"me"));
        list.push_named("b", Bound::Unset);
        let values = list.values(Version::V4);
        assert!(values.are_named());
        assert_eq!(values.by_name("owner"), Some(Bound::Bytes(b"me")));
        assert_eq!(values.by_name("c"), None);
        let mut out = Vec::new();
        values.write(&mut out);
        assert_eq!(out, b"\0\x02\0\x05owner\0\0\0\x02me\0\x01b\xff\xff\xff\xfe");
        let read = BoundValues::read(&mut NotationReader::new(&out), true, Version::V4);
        assert_eq!(read, Ok(values));
    }

    #[test]
    fn an_announced_count_is_not_believed() {
        let error = BoundValues::read(
            &mut NotationReader::new(b"\xff\xff\0\0\0\0"),
            false,
            Version::V4,
        );
        assert_eq!(error.unwrap_err().at, 6);
    }
}
