//! The notations that messages consist of, read from slices and written to the end of a buffer.
//!
//! | notation | bytes (all numbers big-endian) |
//! |---|---|
//! | `[byte]` `[short]` `[int]` `[long]` | 1, 2, 4, 8; bytes and shorts are unsigned |
//! | `[string]` | `[short]` *n*, *n* bytes of UTF-8 |
//! | `[long string]` | `[int]` *n*, *n* bytes of UTF-8 |
//! | `[bytes]` | `[int]` *n*, *n* bytes; a negative *n* is null and has no bytes |
//! | `[short bytes]` | `[short]` *n*, *n* bytes |
//! | `[uuid]` | 16 bytes |
//! | `[inetaddr]` | `[byte]` 4 or 16, that many bytes |
//! | `[inet]` | `[inetaddr]`, `[int]` port |
//! | `[string list]` | `[short]` *n*, *n* × `[string]` |
//! | `[string map]` | `[short]` *n*, *n* × (`[string]`, `[string]`) |
//! | `[string multimap]` | `[short]` *n*, *n* × (`[string]`, `[string list]`) |
//! | `[bytes map]` | `[short]` *n*, *n* × (`[string]`, `[bytes]`) |
//!
//! Invariants:
//! 1. Reading never looks beyond its slice, and never panics.
//! 2. Nothing is allocated for a count that has only been announced: lists grow as their elements
//!    are found.

use std::net::{IpAddr, SocketAddr};

/// The bytes are not a message of the protocol. The envelope around them was whole, so that the
/// connection can continue: a server answers with an error of code
/// [`PROTOCOL_ERROR`](crate::response::PROTOCOL_ERROR).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed CQL message: {what}, at byte {at} of the body")]
pub struct Malformed {
    /// The place in the body.
    pub at: usize,
    /// The fault at that place.
    pub what: &'static str,
}

/// 16 bytes that name something.
pub type Uuid = [u8; 16];

/// A `[string map]` in the order of the wire.
pub type StringMap<'a> = Vec<(&'a str, &'a str)>;
/// A `[string multimap]` in the order of the wire.
pub type StringMultimap<'a> = Vec<(&'a str, Vec<&'a str>)>;
/// A `[bytes map]` in the order of the wire.
pub type BytesMap<'a> = Vec<(&'a str, Option<&'a [u8]>)>;

/// Reads notations one after the other.
#[derive(Clone, Debug)]
pub struct NotationReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> NotationReader<'a> {
    /// Creates a reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> NotationReader<'a> {
        NotationReader { bytes, at: 0 }
    }

    /// Returns the number of bytes that have been read.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the bytes that have not been read.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Returns the bytes that were read since the reader was at `start`.
    ///
    /// # Panics
    /// Panics if the reader has not been there.
    #[must_use]
    pub fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.at]
    }

    /// Returns an error about the reader's place.
    #[must_use]
    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { at: self.at, what }
    }

    /// Returns the next `len` bytes.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let Some(taken) = self.bytes[self.at..].get(..len) else {
            return Err(self.malformed("it ends too early"));
        };
        self.at += len;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("as many as were asked for"))
    }

    /// Returns a `[byte]`.
    ///
    /// # Errors
    /// The body ends too early.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    /// Returns a `[short]`.
    ///
    /// # Errors
    /// As [`NotationReader::byte`].
    #[inline]
    pub fn short(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// Returns an `[int]`.
    ///
    /// # Errors
    /// As [`NotationReader::byte`].
    #[inline]
    pub fn int(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    /// Returns a `[long]`.
    ///
    /// # Errors
    /// As [`NotationReader::byte`].
    pub fn long(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    /// Returns a `[uuid]`.
    ///
    /// # Errors
    /// As [`NotationReader::byte`].
    pub fn uuid(&mut self) -> Result<Uuid, Malformed> {
        self.array()
    }

    fn text(&mut self, len: usize) -> Result<&'a str, Malformed> {
        let at = self.at;
        let what = "a text that is not UTF-8";
        std::str::from_utf8(self.take(len)?).map_err(|_| Malformed { at, what })
    }

    /// Returns a `[string]`.
    ///
    /// # Errors
    /// As [`NotationReader::byte`], and for bytes that are not UTF-8.
    pub fn string(&mut self) -> Result<&'a str, Malformed> {
        let len = self.short()?;
        self.text(len.into())
    }

    /// Returns a `[long string]`.
    ///
    /// # Errors
    /// As [`NotationReader::string`], and for a negative length.
    pub fn long_string(&mut self) -> Result<&'a str, Malformed> {
        let len = self.count("a text of negative length")?;
        self.text(len)
    }

    /// Returns an `[int]` that must not be negative; `what` is the text of the error if it is.
    ///
    /// # Errors
    /// The number is negative, or the body ends too early.
    pub fn count(&mut self, what: &'static str) -> Result<usize, Malformed> {
        let at = self.at;
        usize::try_from(self.int()?).map_err(|_| Malformed { at, what })
    }

    /// Returns `[bytes]`; `None` is null.
    ///
    /// # Errors
    /// As [`NotationReader::byte`].
    #[inline]
    pub fn bytes(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match usize::try_from(self.int()?) {
            Ok(len) => self.take(len).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Returns `[short bytes]`.
    ///
    /// # Errors
    /// As [`NotationReader::byte`].
    #[inline]
    pub fn short_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.short()?;
        self.take(len.into())
    }

    /// Returns an `[inetaddr]`.
    ///
    /// # Errors
    /// As [`NotationReader::byte`], and for a length that is neither 4 nor 16.
    pub fn ip_address(&mut self) -> Result<IpAddr, Malformed> {
        match self.byte()? {
            4 => Ok(IpAddr::from(self.array::<4>()?)),
            16 => Ok(IpAddr::from(self.array::<16>()?)),
            _ => Err(self.malformed("an address of neither 4 nor 16 bytes")),
        }
    }

    /// Returns an `[inet]`.
    ///
    /// # Errors
    /// As [`NotationReader::ip_address`], and for a port above 65,535.
    pub fn socket_address(&mut self) -> Result<SocketAddr, Malformed> {
        let ip = self.ip_address()?;
        let at = self.at;
        let what = "a port that is none";
        let port = u16::try_from(self.int()?).map_err(|_| Malformed { at, what })?;
        Ok(SocketAddr::new(ip, port))
    }

    /// Returns as many elements as a `[short]` says.
    ///
    /// # Errors
    /// Those of the elements.
    pub fn list<T>(
        &mut self,
        mut element: impl FnMut(&mut NotationReader<'a>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.short()?;
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// Returns a `[string list]`.
    ///
    /// # Errors
    /// As [`NotationReader::string`].
    pub fn string_list(&mut self) -> Result<Vec<&'a str>, Malformed> {
        self.list(NotationReader::string)
    }

    /// Returns a `[string map]`.
    ///
    /// # Errors
    /// As [`NotationReader::string`].
    pub fn string_map(&mut self) -> Result<StringMap<'a>, Malformed> {
        self.list(|reader| Ok((reader.string()?, reader.string()?)))
    }

    /// Returns a `[string multimap]`.
    ///
    /// # Errors
    /// As [`NotationReader::string`].
    pub fn string_multimap(&mut self) -> Result<StringMultimap<'a>, Malformed> {
        self.list(|reader| Ok((reader.string()?, reader.string_list()?)))
    }

    /// Returns a `[bytes map]`.
    ///
    /// # Errors
    /// As [`NotationReader::string`].
    pub fn bytes_map(&mut self) -> Result<BytesMap<'a>, Malformed> {
        self.list(|reader| Ok((reader.string()?, reader.bytes()?)))
    }

    /// Skips a `[bytes map]`.
    ///
    /// # Errors
    /// As [`NotationReader::bytes_map`].
    pub fn skip_bytes_map(&mut self) -> Result<(), Malformed> {
        for _ in 0..self.short()? {
            self.string()?;
            self.bytes()?;
        }
        Ok(())
    }
}

/// Writes a `[short]` that is the count or length of what follows.
///
/// # Panics
/// Panics if it is above 65,535: lengths read from the wire are not, and a program must not make up
/// greater ones.
pub fn put_short_len(out: &mut Vec<u8>, len: usize) {
    let len = u16::try_from(len).expect("a length or count that fits 16 bits");
    out.extend_from_slice(&len.to_be_bytes());
}

/// Writes an `[int]` that is the count or length of what follows.
///
/// # Panics
/// Panics if it is 2 GiB or more.
pub fn put_int_len(out: &mut Vec<u8>, len: usize) {
    let len = i32::try_from(len).expect("a length or count below 2 GiB");
    put_int(out, len);
}

/// Writes an `[int]`.
pub fn put_int(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Writes a `[long]`.
pub fn put_long(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Writes a `[string]`.
///
/// # Panics
/// Panics if it is longer than 65,535 bytes.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    put_short_bytes(out, text.as_bytes());
}

/// Writes a `[long string]`.
///
/// # Panics
/// Panics if it is 2 GiB long or longer.
pub fn put_long_string(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, Some(text.as_bytes()));
}

/// Writes `[bytes]`, or null.
///
/// # Panics
/// Panics if they are 2 GiB or more.
pub fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_int_len(out, bytes.len());
            out.extend_from_slice(bytes);
        }
        None => put_int(out, -1),
    }
}

/// Writes `[short bytes]`.
///
/// # Panics
/// Panics if they are more than 65,535.
pub fn put_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_short_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes an `[inetaddr]`.
pub fn put_ip_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            out.push(4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(16);
            out.extend_from_slice(&address.octets());
        }
    }
}

/// Writes an `[inet]`.
pub fn put_socket_address(out: &mut Vec<u8>, address: SocketAddr) {
    put_ip_address(out, address.ip());
    put_int(out, address.port().into());
}

/// Writes a `[string list]`.
///
/// # Panics
/// Panics if it has more than 65,535 strings, or one that is longer than that.
pub fn put_string_list(out: &mut Vec<u8>, list: &[&str]) {
    put_short_len(out, list.len());
    for text in list {
        put_string(out, text);
    }
}

/// Writes a `[string map]`.
///
/// # Panics
/// As [`put_string_list`].
pub fn put_string_map(out: &mut Vec<u8>, map: &[(&str, &str)]) {
    put_short_len(out, map.len());
    for (key, value) in map {
        put_string(out, key);
        put_string(out, value);
    }
}

/// Writes a `[string multimap]`.
///
/// # Panics
/// As [`put_string_list`].
pub fn put_string_multimap(out: &mut Vec<u8>, map: &[(&str, Vec<&str>)]) {
    put_short_len(out, map.len());
    for (key, values) in map {
        put_string(out, key);
        put_string_list(out, values);
    }
}

/// Writes a `[bytes map]`.
///
/// # Panics
/// As [`put_string_list`].
pub fn put_bytes_map(out: &mut Vec<u8>, map: &[(&str, Option<&[u8]>)]) {
    put_short_len(out, map.len());
    for (key, value) in map {
        put_string(out, key);
        put_bytes(out, *value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = Vec::new();
        put_string(&mut out, "é");
        put_long_string(&mut out, "SELECT");
        put_bytes(&mut out, None);
        put_bytes(&mut out, Some(b""));
        put_short_bytes(&mut out, b"id");
        let v4: SocketAddr = "127.0.0.1:9042".parse().unwrap();
        let v6: SocketAddr = "[::1]:65535".parse().unwrap();
        put_socket_address(&mut out, v4);
        put_socket_address(&mut out, v6);
        let multimap = vec![("a", vec!["b", "c"]), ("d", vec![])];
        put_string_multimap(&mut out, &multimap);
        let map: BytesMap<'_> = vec![("k", None), ("l", Some(b"v"))];
        put_bytes_map(&mut out, &map);
        put_bytes_map(&mut out, &map);
        put_long(&mut out, -2);
        let mut reader = NotationReader::new(&out);
        assert_eq!(reader.string(), Ok("é"));
        assert_eq!(reader.long_string(), Ok("SELECT"));
        assert_eq!(reader.bytes(), Ok(None));
        assert_eq!(reader.bytes(), Ok(Some(&b""[..])));
        assert_eq!(reader.short_bytes(), Ok(&b"id"[..]));
        assert_eq!(reader.socket_address(), Ok(v4));
        assert_eq!(reader.socket_address(), Ok(v6));
        assert_eq!(reader.string_multimap(), Ok(multimap));
        assert_eq!(reader.bytes_map(), Ok(map));
        assert_eq!(reader.skip_bytes_map(), Ok(()));
        assert_eq!(reader.long(), Ok(-2));
        assert_eq!(reader.rest(), b"");
    }

    #[test]
    fn what_is_malformed_says_where() {
        let error = |bytes: &[u8], read: fn(&mut NotationReader<'_>) -> Result<(), Malformed>| {
            let mut reader = NotationReader::new(bytes);
            read(&mut reader).unwrap_err()
        };
        let early = error(b"\0\x05abcd", |reader| reader.string().map(drop));
        assert_eq!((early.at, early.what), (2, "it ends too early"));
        let utf8 = error(b"\0\x01\xff", |reader| reader.string().map(drop));
        assert_eq!((utf8.at, utf8.what), (2, "a text that is not UTF-8"));
        let negative = error(b"\xff\xff\xff\xff", |reader| reader.long_string().map(drop));
        assert_eq!(negative.what, "a text of negative length");
        let address = error(b"\x05aaaaa", |reader| reader.ip_address().map(drop));
        assert_eq!(address.what, "an address of neither 4 nor 16 bytes");
        let port = error(b"\x04aaaa\0\x01\0\0", |reader| {
            reader.socket_address().map(drop)
        });
        assert_eq!((port.at, port.what), (5, "a port that is none"));
        // A count of 65,535 with nothing behind it allocates nothing, and fails at once.
        let list = error(b"\xff\xff", |reader| reader.string_list().map(drop));
        assert_eq!(list.at, 2);
        let text = "malformed CQL message: it ends too early, at byte 2 of the body";
        assert_eq!(list.to_string(), text);
    }
}
