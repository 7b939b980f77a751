//! Asking nodes, by the protocol and at the address of their clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use resp::command::write_command;
use resp::{ReplyParser, Value};
use server::replication::Report;

/// How long a node may take to be reached, and to say how it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is said of a node that has closed the connection before it has answered.
pub(crate) const CLOSED: &str = "it has closed the connection";

/// The password of nodes' clients: the one that is given, or that in the environment variable
/// `KUMIKI_PASSWORD`, if there is one.
pub(crate) fn password(given: Option<&str>) -> Option<String> {
    let given = given.map(str::to_owned);
    given.or_else(|| std::env::var("KUMIKI_PASSWORD").ok())
}

/// A connection to a node.
pub(crate) struct Asked {
    stream: TcpStream,
    buffer: Vec<u8>,
    parser: ReplyParser,
}

impl Asked {
    /// Connects, and gives the password if there is one.
    ///
    /// # Errors
    /// Says why not.
    pub(crate) fn connect(address: SocketAddr, password: Option<&str>) -> Result<Asked, String> {
        let told = |error: std::io::Error| format!("{address} does not answer: {error}");
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(told)?;
        stream.set_nodelay(true).map_err(told)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(told)?;
        let mut asked = Asked {
            stream,
            buffer: Vec::new(),
            parser: ReplyParser::new(),
        };
        if let Some(password) = password {
            let greeted = asked.ask(&["AUTH", password], PATIENCE);
            greeted.map_err(|error| format!("{address} refuses the password: {error}"))?;
        }
        Ok(asked)
    }

    /// What the node says of its partition.
    ///
    /// # Errors
    /// Says why it says nothing.
    pub(crate) fn report(&mut self) -> Result<Report, String> {
        Report::parse(&self.ask(&["CLUSTER", "REPLICATION", "STATUS"], PATIENCE)?)
    }

    /// Gives a command and waits for its reply, which is a text, that long.
    ///
    /// # Errors
    /// The error that the node has answered with, or why there is no answer.
    pub(crate) fn ask(&mut self, args: &[&str], patience: Duration) -> Result<String, String> {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        self.send(&args)?;
        match self.reply(patience)? {
            Value::Status(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => {
                Ok(String::from_utf8_lossy(&text).into_owned())
            }
            other => Err(format!("its answer makes no sense: {other:?}")),
        }
    }

    /// Gives a command, whose reply comes behind those of the ones before.
    ///
    /// # Errors
    /// The node is gone.
    pub(crate) fn send(&mut self, args: &[&[u8]]) -> Result<(), String> {
        let mut request = Vec::new();
        write_command(&mut request, args);
        self.stream.write_all(&request).map_err(silent)
    }

    /// The next reply; waits that long for more of it to come.
    ///
    /// # Errors
    /// The error that the node has answered with, or why there is no answer.
    pub(crate) fn reply(&mut self, patience: Duration) -> Result<Value, String> {
        self.stream
            .set_read_timeout(Some(patience))
            .map_err(silent)?;
        match self.value()? {
            Value::Error(text) => Err(advised(&String::from_utf8_lossy(&text))),
            value => Ok(value),
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        loop {
            let parsed = self.parser.parse(&self.buffer);
            if let Some(end) = parsed.map_err(|error| error.to_string())? {
                let value = Value::decode(&self.buffer[..end]).map_err(|error| error.to_string());
                self.buffer.drain(..end);
                return value;
            }
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(CLOSED.to_owned()),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Err("it does not answer in time".to_owned());
                }
                Err(error) => return Err(silent(error)),
            }
        }
    }
}

fn silent(error: std::io::Error) -> String {
    format!("it does not answer: {error}")
}

/// An error of a node, with what to do about it where that is known here alone.
fn advised(error: &str) -> String {
    match error.split(' ').next() {
        Some("NOAUTH") => "it wants a password: give --password, or KUMIKI_PASSWORD".to_owned(),
        Some("ERR") => error["ERR ".len()..].to_owned(),
        _ => error.to_owned(),
    }
}
