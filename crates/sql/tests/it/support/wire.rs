//! A client of PostgreSQL's protocol that is small enough to see what it sends and receives.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

/// The first message of a client that asks for TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// The time after which a test that waits for a message fails.
const PATIENCE: Duration = Duration::from_secs(600);

/// The bytes of a connection, encrypted or not.
trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// A connection.
pub(crate) struct Client {
    socket: TcpStream,
    stream: Box<dyn Stream>,
    pub(crate) pid: i32,
    pub(crate) key: i32,
}

/// A message of the server: its kind and its contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message(pub(crate) u8, pub(crate) Vec<u8>);

impl Message {
    /// Returns a field of an error: `C` is its SQLSTATE, `M` its text.
    pub(crate) fn field(&self, which: u8) -> String {
        let fields = self.1.split(|byte| *byte == 0);
        let mut found = fields.filter(|field| field.first() == Some(&which));
        let field = found
            .next()
            .unwrap_or_else(|| panic!("{self:?} has no {}", which as char));
        String::from_utf8(field[1..].to_vec()).unwrap()
    }

    /// Returns the values of a row; null as `None`.
    pub(crate) fn cells(&self) -> Vec<Option<Vec<u8>>> {
        assert_eq!(self.0, b'D', "{self:?}");
        let count = u16::from_be_bytes([self.1[0], self.1[1]]);
        let mut rest = &self.1[2..];
        let cells = (0..count).map(|_| {
            let length = i32::from_be_bytes(rest[..4].try_into().unwrap());
            rest = &rest[4..];
            let length = usize::try_from(length).ok()?;
            let (cell, behind) = rest.split_at(length);
            rest = behind;
            Some(cell.to_vec())
        });
        cells.collect()
    }
}

/// The messages until the server was ready again.
pub(crate) struct Answer(pub(crate) Vec<Message>);

impl Answer {
    /// Returns the rows, as texts.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let rows = self.0.iter().filter(|message| message.0 == b'D');
        let text = |cell: Option<Vec<u8>>| {
            cell.map_or("NULL".to_owned(), |cell| String::from_utf8(cell).unwrap())
        };
        rows.map(|row| row.cells().into_iter().map(text).collect())
            .collect()
    }

    /// Returns the SQLSTATE and the text of the error.
    pub(crate) fn error(&self) -> (String, String) {
        let error = self.0.iter().find(|message| message.0 == b'E');
        let error = error.unwrap_or_else(|| panic!("no error: {:?}", self.0));
        (error.field(b'C'), error.field(b'M'))
    }

    /// Returns the tags of completed statements.
    pub(crate) fn tags(&self) -> Vec<String> {
        let tags = self.0.iter().filter(|message| message.0 == b'C');
        tags.map(|tag| String::from_utf8(tag.1[..tag.1.len() - 1].to_vec()).unwrap())
            .collect()
    }
}

/// Returns a message without a kind: its length, and its contents.
fn with_length(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&length.to_be_bytes()[..], body].concat()
}

/// Returns the message with which a client says its user's name.
fn startup() -> Vec<u8> {
    let version = 196_608u32.to_be_bytes();
    with_length(&[&version[..], b"user\0tester\0database\0kumiki\0\0"].concat())
}

impl Client {
    /// Opens a connection, and sends nothing.
    pub(crate) fn open(address: SocketAddr) -> Client {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let stream = Box::new(socket.try_clone().unwrap());
        Client {
            socket,
            stream,
            pid: 0,
            key: 0,
        }
    }

    /// Connects with TLS, asked for as most clients do, and sends the user's name; the server's answer is not
    /// read yet. Fails if the client refuses the server's certificate, or the server at once the client's.
    pub(crate) fn greet_by(address: SocketAddr, session: ClientConnection) -> io::Result<Client> {
        let mut client = Client::open(address);
        client.socket.write_all(&SSL_REQUEST)?;
        let mut answer = [0];
        client.socket.read_exact(&mut answer)?;
        assert_eq!(&answer, b"S", "the server speaks TLS");
        client.encrypt(session)
    }

    /// Speaks TLS from now on, and sends the user's name.
    pub(crate) fn encrypt(mut self, session: ClientConnection) -> io::Result<Client> {
        let mut stream = StreamOwned::new(session, self.socket.try_clone()?);
        stream.write_all(&startup())?;
        self.stream = Box::new(stream);
        Ok(self)
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        // A server that has closed the connection need not read them.
        let _ = self.stream.write_all(bytes);
    }

    /// Ends the stream of its messages.
    pub(crate) fn end(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Connects and sends the user's name; the server's answer is not read yet.
    pub(crate) fn greet(address: SocketAddr) -> Client {
        let mut client = Client::open(address);
        client.stream.write_all(&startup()).unwrap();
        client
    }

    /// Connects to a server that requires no password.
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let mut client = Client::greet(address);
        for message in client.until_ready().0 {
            if message.0 == b'K' {
                client.pid = i32::from_be_bytes(message.1[..4].try_into().unwrap());
                client.key = i32::from_be_bytes(message.1[4..8].try_into().unwrap());
            }
        }
        client
    }

    /// Asks the server to cancel the query of another connection.
    pub(crate) fn cancel(address: SocketAddr, pid: i32, key: i32) {
        let words = [80_877_102i32, pid, key];
        let message = with_length(&words.map(i32::to_be_bytes).concat());
        Client::open(address).stream.write_all(&message).unwrap();
    }

    /// Sets how long it waits for messages.
    pub(crate) fn wait_for(&mut self, time: Duration) {
        self.socket.set_read_timeout(Some(time)).unwrap();
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, kind: u8, body: &[u8]) {
        let message = [&[kind][..], &with_length(body)].concat();
        self.stream.write_all(&message).unwrap();
    }

    /// Returns the next message; `None` if the connection is closed.
    pub(crate) fn receive(&mut self) -> Option<Message> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body).ok()?;
        Some(Message(head[0], body))
    }

    /// Returns all messages until the server is ready, or has closed the connection.
    pub(crate) fn until_ready(&mut self) -> Answer {
        let mut messages = Vec::new();
        while let Some(message) = self.receive() {
            let ready = message.0 == b'Z';
            messages.push(message);
            if ready {
                break;
            }
        }
        Answer(messages)
    }

    /// Runs a statement by the simple protocol.
    pub(crate) fn ask(&mut self, sql: &str) -> Answer {
        self.send(b'Q', format!("{sql}\0").as_bytes());
        self.until_ready()
    }

    /// Runs a statement by the extended protocol, with parameters as texts, for values in binary form
    /// or as text, and for at most so many rows; 0 for all.
    pub(crate) fn prepared(
        &mut self,
        sql: &str,
        values: &[&str],
        binary: bool,
        most: u32,
    ) -> Answer {
        self.declared(sql, &[], values, binary, most)
    }

    /// Runs a statement as [`Client::prepared`], with the types of parameters, as PostgreSQL numbers
    /// them.
    pub(crate) fn declared(
        &mut self,
        sql: &str,
        types: &[u32],
        values: &[&str],
        binary: bool,
        most: u32,
    ) -> Answer {
        let count = u16::try_from(types.len()).unwrap().to_be_bytes();
        let types: Vec<u8> = types.iter().flat_map(|of| of.to_be_bytes()).collect();
        let parse = [&b"\0"[..], sql.as_bytes(), b"\0", &count, &types].concat();
        self.send(b'P', &parse);
        self.send(b'D', b"S\0");
        let mut bind = b"\0\0\0\0".to_vec();
        bind.extend(u16::try_from(values.len()).unwrap().to_be_bytes());
        for value in values {
            bind.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
            bind.extend(value.as_bytes());
        }
        bind.extend([0, 1, 0, u8::from(binary)]);
        self.send(b'B', &bind);
        self.send(b'E', &[&b"\0"[..], &most.to_be_bytes()].concat());
        self.send(b'S', b"");
        self.until_ready()
    }
}
