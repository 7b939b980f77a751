//! A proxy in this process, and a plain client.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use cql::request::{Execute, Parameters, Prepare, Query, Request};
use cql::{
    Bound, BoundValues, Consistency, Direction, Envelope, Flags, Framing, HEADER_LEN, Header,
    Limits, Packer, Response, ResponseMessage, ResultBody, StreamId, Unpacker, ValueList, Version,
};
use kumiki_proxy::{Config, Running};

use crate::cassandra::node::Nodes;

/// The longest time that anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy in this process. It is stopped when this is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    running: Option<Running>,
}

impl Proxy {
    pub(crate) fn start(nodes: &Nodes, change: impl FnOnce(&mut Config)) -> Proxy {
        let mut config = Config::new(kumiki_proxy::Nodes::Cassandra(
            nodes.addresses().into_iter().map(Into::into).collect(),
        ));
        config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.drain = Duration::from_millis(100);
        change(&mut config);
        let running = kumiki_proxy::start(&config).expect("the proxy starts");
        Proxy {
            address: running.address(),
            running: Some(running),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stopper().stop();
            running.wait().expect("no thread is lost");
        }
    }
}

/// A reply to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// One row: the statement that the node got, and the user that sent it.
    Echo(String, String),
    /// An error's code and message.
    Error(i32, String),
    /// Any other reply.
    Other(String),
}

/// A connection that speaks CQL.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) version: Version,
    pub(crate) framing: Framing,
    unpacker: Unpacker,
    input: Vec<u8>,
    envelopes: VecDeque<(Header, Vec<u8>)>,
}

impl Client {
    /// Opens a connection and sends nothing.
    pub(crate) fn connect(address: SocketAddr, version: Version) -> Client {
        let stream = TcpStream::connect(address).expect("the proxy listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream.set_nodelay(true).expect("no delay");
        Client {
            stream,
            version,
            framing: Framing::Plain,
            unpacker: Unpacker::new(Direction::Response, Limits::default()),
            input: Vec::new(),
            envelopes: VecDeque::new(),
        }
    }

    /// Opens a connection and begins.
    pub(crate) fn open(address: SocketAddr, version: Version) -> Client {
        let mut client = Client::connect(address, version);
        assert_eq!(client.start(), Received::Other("Ready".to_owned()));
        client
    }

    /// Opens a connection of a user, or returns the refusal.
    pub(crate) fn of_user(
        address: SocketAddr,
        version: Version,
        user: &str,
        password: &str,
    ) -> Result<Client, Received> {
        let mut client = Client::connect(address, version);
        assert_eq!(client.start(), Received::Other("Authenticate".to_owned()));
        let token = format!("\0{user}\0{password}");
        client.send(1, Request::AuthResponse(Some(token.as_bytes())));
        match client.receive().1 {
            Received::Other(opcode) if opcode == "AuthSuccess" => Ok(client),
            other => Err(other),
        }
    }

    pub(crate) fn start(&mut self) -> Received {
        self.send(0, Request::Startup(vec![("CQL_VERSION", "3.0.0")]));
        let (stream, told) = self.receive();
        assert_eq!(stream, 0);
        if self.version >= Version::V5 {
            self.framing = Framing::Frames;
            self.unpacker.expect_frames();
        }
        told
    }

    /// Returns the bytes of a request.
    pub(crate) fn packed(&self, stream: i16, request: Request<'_>) -> Vec<u8> {
        let (mut envelope, mut out) = (Vec::new(), Vec::new());
        let message = request.into_message();
        let none = Flags::default();
        message.write(&mut envelope, self.version, StreamId(stream), none);
        Packer::new(&mut out, self.framing).push(&envelope);
        out
    }

    pub(crate) fn send(&mut self, stream: i16, request: Request<'_>) {
        let bytes = self.packed(stream, request);
        self.stream.write_all(&bytes).expect("the proxy reads");
    }

    /// Sends a text.
    pub(crate) fn ask(&mut self, stream: i16, text: &str) {
        let none = BoundValues::none(self.version);
        let parameters = Parameters::new(Consistency::Quorum, none);
        self.send(stream, Request::Query(Query { text, parameters }));
    }

    pub(crate) fn prepare(&mut self, text: &str) {
        let keyspace = None;
        self.send(1, Request::Prepare(Prepare { text, keyspace }));
        assert_eq!(self.receive(), (1, Received::Other("Result".to_owned())));
    }

    /// Executes a prepared statement with a key.
    pub(crate) fn execute(&mut self, stream: i16, text: &str, key: &str) {
        let mut values = ValueList::new();
        values.push(Bound::Bytes(key.as_bytes()));
        let values = values.values(self.version);
        let execute = Execute {
            id: text.as_bytes(),
            result_metadata_id: (self.version >= Version::V5).then_some(b"metadata"),
            parameters: Parameters::new(Consistency::Quorum, values),
        };
        self.send(stream, Request::Execute(execute));
    }

    /// Returns the next reply and its stream.
    pub(crate) fn receive(&mut self) -> (i16, Received) {
        self.try_receive().expect("the proxy answers")
    }

    /// Returns the next reply; an error at the connection's end.
    pub(crate) fn try_receive(&mut self) -> std::io::Result<(i16, Received)> {
        loop {
            if let Some((header, body)) = self.envelopes.pop_front() {
                return Ok((header.stream.0, told(header, &body)));
            }
            let mut consumed = None;
            if let Some(unpacked) = self.unpacker.next(&mut self.input).expect("CQL") {
                let mut rest = &*unpacked.envelopes;
                while !rest.is_empty() {
                    let whole = Envelope::split(rest, Direction::Response, &Limits::default());
                    let whole = whole.expect("CQL").expect("a whole envelope");
                    self.envelopes
                        .push_back((whole.header, whole.body.to_vec()));
                    rest = &rest[HEADER_LEN + whole.body.len()..];
                }
                consumed = Some(unpacked.consumed);
            }
            if let Some(consumed) = consumed {
                self.input.drain(..consumed);
                continue;
            }
            let mut piece = vec![0; 64 * 1024];
            match self.stream.read(&mut piece)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => self.input.extend_from_slice(&piece[..count]),
            }
        }
    }
}

fn told(header: Header, body: &[u8]) -> Received {
    let message = ResponseMessage::decode(Envelope { header, body });
    match message.expect("CQL").response {
        Response::Error(error) => Received::Error(error.kind.code(), error.message.to_owned()),
        Response::Result(ResultBody::Rows(rows)) if rows.len() == 1 => {
            let row = rows.iter().next().expect("one row");
            let text = |at: usize| {
                let bytes: Option<&[u8]> = row.get(at).copied().flatten();
                String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
            };
            Received::Echo(text(0), text(1))
        }
        other => Received::Other(format!("{:?}", other.opcode())),
    }
}
