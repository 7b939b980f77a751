//! A small blocking RESP2 client, independent of the workspace's own parser.
//!
//! Requests are arrays of bulk strings; a reply is one [`Reply`]. Requests may be written ahead
//! of their replies (pipelining): [`Client::push`] collects, [`Client::flush`] sends.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+…`
    Simple(String),
    /// `-…`
    Error(String),
    /// `:…`
    Int(i64),
    /// `$…`; `None` is the null.
    Bulk(Option<Vec<u8>>),
    /// `*…`; `None` is the null.
    Array(Option<Vec<Reply>>),
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    pending: Vec<u8>,
}

impl Client {
    /// Connects; reads give up after ten seconds of silence.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn connect(addr: SocketAddr) -> io::Result<Client> {
        Client::over(TcpStream::connect(addr)?, Duration::from_secs(10))
    }

    /// As [`Client::connect`], where neither connecting nor any reply may take longer than
    /// `patience`.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn connect_within(addr: SocketAddr, patience: Duration) -> io::Result<Client> {
        Client::over(TcpStream::connect_timeout(&addr, patience)?, patience)
    }

    fn over(writer: TcpStream, patience: Duration) -> io::Result<Client> {
        writer.set_nodelay(true)?;
        writer.set_read_timeout(Some(patience))?;
        writer.set_write_timeout(Some(Duration::from_secs(10)))?;
        let reader = BufReader::with_capacity(64 * 1024, writer.try_clone()?);
        Ok(Client {
            reader,
            writer,
            pending: Vec::new(),
        })
    }

    /// Lets reads wait for so long before they give up.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.writer.set_read_timeout(Some(patience))
    }

    /// This end's address.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.writer.local_addr()
    }

    /// Adds a request to what the next [`Client::flush`] sends.
    pub fn push<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        // Writing to a vector does not fail.
        let _ = write!(self.pending, "*{}\r\n", args.len());
        for arg in args {
            let arg = arg.as_ref();
            let _ = write!(self.pending, "${}\r\n", arg.len());
            self.pending.extend_from_slice(arg);
            self.pending.extend_from_slice(b"\r\n");
        }
    }

    /// Sends what was pushed.
    ///
    /// # Errors
    /// Whatever the system says; what was pushed may have been sent in part.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.writer.write_all(&self.pending);
        self.pending.clear();
        sent
    }

    /// Whether a reply, or a part of one, or the end of the connection, is there within `wait`,
    /// which is [`Client::set_patience`]'s afterwards.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn has_reply(&mut self, wait: Duration) -> io::Result<bool> {
        self.set_patience(wait)?;
        match self.reader.fill_buf() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads one reply.
    ///
    /// # Errors
    /// When the connection ends, and with [`io::ErrorKind::InvalidData`] when it speaks no RESP.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let Some((&kind, rest)) = line.as_bytes().split_first() else {
            return Err(invalid("an empty line"));
        };
        let text = String::from_utf8_lossy(rest).into_owned();
        match kind {
            b'+' => Ok(Reply::Simple(text)),
            b'-' => Ok(Reply::Error(text)),
            b':' => Ok(Reply::Int(number(&text)?)),
            b'$' => self.bulk(number(&text)?),
            b'*' => self.array(number(&text)?),
            _ => Err(invalid(&line)),
        }
    }

    /// One request and its reply.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Reply> {
        self.push(args);
        self.flush().context("cannot send a request")?;
        self.reply().context("cannot read a reply")
    }

    /// One request whose reply must not be an error.
    ///
    /// # Errors
    /// When the connection ends and when the reply is an error.
    pub fn expect<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Reply> {
        match self.call(args)? {
            Reply::Error(text) => {
                let name = args
                    .first()
                    .map_or("".into(), |a| String::from_utf8_lossy(a.as_ref()));
                bail!("{name} was answered with an error: {text}")
            }
            reply => Ok(reply),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.len() - 2);
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn bulk(&mut self, len: i64) -> io::Result<Reply> {
        let Ok(len) = usize::try_from(len) else {
            return Ok(Reply::Bulk(None));
        };
        let mut bytes = vec![0; len + 2];
        self.reader.read_exact(&mut bytes)?;
        if !bytes.ends_with(b"\r\n") {
            return Err(invalid("a bulk string without its end"));
        }
        bytes.truncate(len);
        Ok(Reply::Bulk(Some(bytes)))
    }

    fn array(&mut self, len: i64) -> io::Result<Reply> {
        let Ok(len) = usize::try_from(len) else {
            return Ok(Reply::Array(None));
        };
        let items = (0..len).map(|_| self.reply()).collect::<io::Result<_>>()?;
        Ok(Reply::Array(Some(items)))
    }
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| invalid(text))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no RESP: {what:?}"))
}
