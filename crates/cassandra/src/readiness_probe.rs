//! The part of Cassandra's native protocol that shows whether a node serves: version 4, one request
//! at a time.
//!
//! | bytes of a frame | what |
//! |---|---|
//! | 1 | version: 4 in a request, 0x84 in a response |
//! | 1 | flags: none |
//! | 2 | stream: 0 |
//! | 1 | opcode |
//! | 4 | length of the body, big endian |
//!
//! | opcode | body |
//! |---|---|
//! | 1 STARTUP | a map of strings |
//! | 2 READY | none |
//! | 3 AUTHENTICATE | not looked at |
//! | 5 OPTIONS | none |
//! | 6 SUPPORTED | not looked at |
//! | 7 QUERY | a long string, two bytes of consistency, one of flags |
//! | 8 RESULT | for rows: kind 2, flags of the metadata, columns, metadata, rows |
//! | 15 AUTH_RESPONSE | bytes: a zero, a name, a zero, a password |
//! | 16 AUTH_SUCCESS | not looked at |
//!
//! The rows themselves are not read, only their number; so requests ask to leave out the metadata,
//! which stands before it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a node may take for one answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// No answer to these questions is nearly as long.
const MAX_BODY: u32 = 1 << 20;

const STARTUP: u8 = 1;
const READY: u8 = 2;
const AUTHENTICATE: u8 = 3;
const OPTIONS: u8 = 5;
const SUPPORTED: u8 = 6;
const QUERY: u8 = 7;
const RESULT: u8 = 8;
const AUTH_RESPONSE: u8 = 15;
const AUTH_SUCCESS: u8 = 16;

/// The first user's name and password.
const FIRST_USER: &[u8] = b"\0cassandra\0cassandra";

/// A result that has rows.
const ROWS: u32 = 2;
/// In a query: without metadata. In a result: there is none.
const SKIP_METADATA: u8 = 2;
const NO_METADATA: u32 = 4;
const CONSISTENCY_ONE: u16 = 1;

/// Returns `true` if the node at `address` answers clients.
pub(super) fn answers(address: SocketAddr) -> bool {
    let answer = || {
        let mut stream = connect(address)?;
        ask(&mut stream, OPTIONS, &[])
    };
    answer().is_ok_and(|(opcode, _)| opcode == SUPPORTED)
}

/// Returns the number of other nodes that the one at `address` knows.
pub(super) fn peers(address: SocketAddr) -> io::Result<usize> {
    let mut stream = connect(address)?;
    let mut body = 1_u16.to_be_bytes().to_vec();
    for word in ["CQL_VERSION", "3.0.0"] {
        body.extend((word.len() as u16).to_be_bytes());
        body.extend(word.as_bytes());
    }
    match ask(&mut stream, STARTUP, &body)? {
        (AUTHENTICATE, _) => {
            let mut body = (FIRST_USER.len() as u32).to_be_bytes().to_vec();
            body.extend(FIRST_USER);
            expect(ask(&mut stream, AUTH_RESPONSE, &body)?, AUTH_SUCCESS)?;
        }
        other => drop(expect(other, READY)?),
    }
    let statement = "SELECT peer FROM system.peers_v2";
    let mut body = (statement.len() as u32).to_be_bytes().to_vec();
    body.extend(statement.as_bytes());
    body.extend(CONSISTENCY_ONE.to_be_bytes());
    body.push(SKIP_METADATA);
    count(&expect(ask(&mut stream, QUERY, &body)?, RESULT)?)
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends a request and returns its response: opcode and body.
fn ask(stream: &mut (impl Read + Write), opcode: u8, body: &[u8]) -> io::Result<(u8, Vec<u8>)> {
    let mut frame = vec![4, 0, 0, 0, opcode];
    frame.extend((body.len() as u32).to_be_bytes());
    frame.extend(body);
    stream.write_all(&frame)?;
    let mut header = [0; 9];
    stream.read_exact(&mut header)?;
    let length = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
    if header[0] != 0x84 || length > MAX_BODY {
        return Err(unexpected("this is not Cassandra's protocol, version 4"));
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body)?;
    Ok((header[4], body))
}

fn expect((opcode, body): (u8, Vec<u8>), wanted: u8) -> io::Result<Vec<u8>> {
    match opcode == wanted {
        true => Ok(body),
        false => Err(unexpected(&format!("opcode {opcode} in place of {wanted}"))),
    }
}

/// Returns the number of rows of a result without metadata.
fn count(body: &[u8]) -> io::Result<usize> {
    let mut words = body
        .chunks_exact(4)
        .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    let (kind, flags, _columns) = (words.next(), words.next(), words.next());
    match (kind, flags, words.next()) {
        (Some(ROWS), Some(flags), Some(rows)) if flags & NO_METADATA != 0 => Ok(rows as usize),
        _ => Err(unexpected("a result that has no rows, or has metadata")),
    }
}

fn unexpected(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A connection with prepared input and recorded output.
    struct Wire(Cursor<Vec<u8>>, Vec<u8>);

    impl Read for Wire {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Wire {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn answer(bytes: &[u8]) -> (io::Result<(u8, Vec<u8>)>, Vec<u8>) {
        let mut wire = Wire(Cursor::new(bytes.to_vec()), Vec::new());
        (ask(&mut wire, OPTIONS, b"ab"), wire.1)
    }

    #[test]
    fn a_question_is_a_frame_and_so_is_the_answer() {
        let (found, sent) = answer(&[0x84, 0, 0, 0, SUPPORTED, 0, 0, 0, 1, 7, 9]);
        assert_eq!(found.unwrap(), (SUPPORTED, vec![7]));
        assert_eq!(sent, [4, 0, 0, 0, OPTIONS, 0, 0, 0, 2, b'a', b'b']);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request"[..],
            &[0x84, 0, 0, 0, 6, 0x7f, 0, 0, 0],
            &[0x84, 0, 0, 0, 6, 0, 0, 0, 2, 1],
            &[0x84, 0, 0],
            &[],
        ] {
            assert!(answer(bytes).0.is_err(), "{bytes:?}");
        }
        assert!(expect((0, vec![]), READY).is_err());
    }

    #[test]
    fn rows_are_counted() {
        let body = |words: [u32; 4]| words.map(u32::to_be_bytes).concat();
        assert_eq!(count(&body([2, 4, 1, 3])).unwrap(), 3);
        // An answer to USE, one with metadata, one that is cut.
        assert!(count(&body([3, 4, 1, 3])).is_err());
        assert!(count(&body([2, 1, 1, 3])).is_err());
        assert!(count(&body([2, 4, 1, 3])[..15]).is_err());
    }
}
