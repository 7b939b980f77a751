//! A connection that speaks HTTP/1.1, as far as stores need it.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};

use reactor::tls::BlockingStream;

/// The longest head of a response, and the longest body.
const LONGEST_HEAD: u64 = 64 << 10;
const LONGEST_BODY: u64 = 256 << 20;

/// A connection.
pub(super) struct HttpConnection {
    stream: BufReader<BlockingStream>,
}

/// A response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// `true` if another request may be sent on the connection.
    pub(super) keeps_connection: bool,
}

impl Response {
    /// Returns `true` if the same request may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self.status, 408 | 429 | 500 | 502 | 503 | 504)
    }

    /// Returns the store's word for an error.
    pub(super) fn code(&self) -> String {
        self.element("Code").unwrap_or_default()
    }

    /// Returns what the store says about an error.
    pub(super) fn explanation(&self) -> String {
        let said = [self.element("Code"), self.element("Message")];
        let said: Vec<String> = said.into_iter().flatten().collect();
        match said.is_empty() {
            true => format!("the store answers with status {}", self.status),
            false => format!("{} (status {})", said.join(": "), self.status),
        }
    }

    fn element(&self, name: &str) -> Option<String> {
        let text = String::from_utf8_lossy(&self.body);
        super::listing::element(&text, name).map(|(text, _)| super::listing::unescape(text))
    }
}

impl HttpConnection {
    pub(super) fn new(stream: BlockingStream) -> HttpConnection {
        HttpConnection {
            stream: BufReader::new(stream),
        }
    }

    /// Sends a request, and waits for the response.
    pub(super) fn exchange(&mut self, head: &[u8], body: &[u8]) -> io::Result<Response> {
        let stream = self.stream.get_mut();
        stream.write_all(head)?;
        stream.write_all(body)?;
        stream.flush()?;
        read_response(&mut self.stream)
    }
}

/// Reads a response of a request that is not a `HEAD`.
fn read_response(from: &mut impl BufRead) -> io::Result<Response> {
    loop {
        let mut head = from.by_ref().take(LONGEST_HEAD);
        let line = read_line(&mut head)?;
        let status = line.strip_prefix("HTTP/1.").and_then(|rest| {
            let status = rest.split(' ').nth(1)?;
            status.parse::<u16>().ok()
        });
        let status = status.ok_or_else(|| malformed("its first line"))?;
        let mut response = Response {
            status,
            keeps_connection: line.starts_with("HTTP/1.1"),
            ..Response::default()
        };
        let (mut length, mut is_chunked) = (None, false);
        loop {
            let line = read_line(&mut head)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| malformed("a header"))?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    let parsed = value.parse::<u64>();
                    length = Some(parsed.map_err(|_| malformed("its length"))?);
                }
                "transfer-encoding" => is_chunked = value.eq_ignore_ascii_case("chunked"),
                "connection" if value.eq_ignore_ascii_case("close") => {
                    response.keeps_connection = false;
                }
                _ => {}
            }
        }
        // 1xx: the response itself follows.
        if (100..200).contains(&status) {
            continue;
        }
        match length {
            _ if is_chunked => read_chunks(from, &mut response.body)?,
            _ if status == 204 || status == 304 => {}
            Some(length) => read_exactly(from, length, &mut response.body)?,
            None => {
                response.keeps_connection = false;
                from.by_ref()
                    .take(LONGEST_BODY)
                    .read_to_end(&mut response.body)?;
            }
        }
        return Ok(response);
    }
}

fn read_chunks(from: &mut impl BufRead, to: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let line = read_line(&mut from.by_ref().take(LONGEST_HEAD))?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| malformed("a chunk"))?;
        if size == 0 {
            // Trailers end with an empty line.
            while !read_line(&mut from.by_ref().take(LONGEST_HEAD))?.is_empty() {}
            return Ok(());
        }
        read_exactly(from, size, to)?;
        read_line(&mut from.by_ref().take(LONGEST_HEAD))?;
    }
}

fn read_exactly(from: &mut impl BufRead, bytes: u64, to: &mut Vec<u8>) -> io::Result<()> {
    if bytes.saturating_add(to.len() as u64) > LONGEST_BODY {
        return Err(malformed("it is too long"));
    }
    let read = from.by_ref().take(bytes).read_to_end(to)?;
    if read as u64 == bytes {
        return Ok(());
    }
    Err(io::Error::new(
        ErrorKind::UnexpectedEof,
        "the store closed the connection within its response",
    ))
}

/// Reads a line, and returns it without its end.
fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::Error::new(
            ErrorKind::UnexpectedEof,
            "the store closed the connection before its response",
        ));
    }
    line.pop_if(|last| *last == b'\r');
    String::from_utf8(line).map_err(|_| malformed("a line"))
}

fn malformed(what: &str) -> io::Error {
    let text = format!("the store's response is malformed: {what}");
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> io::Result<Response> {
        read_response(&mut text.as_bytes())
    }

    #[test]
    fn bodies_have_a_length_or_chunks_or_end_with_the_connection() {
        let of = |text: &str| {
            let response = read(text).unwrap();
            let body = String::from_utf8(response.body).unwrap();
            (response.status, body, response.keeps_connection)
        };
        let is = |status, body: &str, keeps| (status, body.to_owned(), keeps);
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(of(text), is(200, "abc", true));
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n";
        assert_eq!(of(text), is(200, "abcde", true));
        let text = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc";
        assert_eq!(of(text), is(200, "abc", false));
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(of(text), is(204, "", true));
    }

    #[test]
    fn what_is_no_response_is_refused() {
        for text in [
            "",
            "x",
            "SSH-2.0\r\n",
            "HTTP/1.1 abc\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "HTTP/1.1 200 OK\r\nnothing\r\n\r\n",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn errors_are_explained_in_the_words_of_the_store() {
        let body = "<Error><Code>NoSuchBucket</Code><Message>It&apos;s not there</Message></Error>";
        let response = Response {
            status: 404,
            body: body.into(),
            keeps_connection: true,
        };
        assert_eq!(
            response.explanation(),
            "NoSuchBucket: It's not there (status 404)"
        );
        let plain = Response {
            status: 503,
            ..Response::default()
        };
        assert!(plain.is_temporary() && plain.explanation().contains("status 503"));
    }
}
