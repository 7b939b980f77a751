//! A connection that speaks CQL.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use cql::request::{Parameters, Prepare, Query, Request};
use cql::{
    BoundValues, Consistency, Direction, Envelope, Flags, Framing, HEADER_LEN, Header, Limits,
    Packer, Response, ResponseMessage, ResultBody, StreamId, Unpacker, Version,
};

/// A connection that speaks CQL and checks nothing.
pub(crate) struct Connection {
    stream: TcpStream,
    version: Version,
    framing: Framing,
    unpacker: Unpacker,
    input: Vec<u8>,
    envelopes: VecDeque<(Header, Vec<u8>)>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr, version: Version) -> Connection {
        let mut connection = Connection::begin(address, version);
        let (header, body) = connection.started();
        assert_eq!(decode(header, &body), Response::Ready);
        connection
    }

    /// Returns a connection of a user, or the node's error.
    pub(crate) fn of_user(
        address: SocketAddr,
        version: Version,
        user: &str,
        password: &str,
    ) -> Result<Connection, String> {
        let mut connection = Connection::begin(address, version);
        let (header, body) = connection.started();
        assert!(matches!(decode(header, &body), Response::Authenticate(_)));
        let token = format!("\0{user}\0{password}");
        connection.send(1, Request::AuthResponse(Some(token.as_bytes())));
        let (_, header, body) = connection.receive();
        match decode(header, &body) {
            Response::AuthSuccess(_) => Ok(connection),
            Response::Error(error) => Err(error.message.to_owned()),
            other => panic!("{other:?}"),
        }
    }

    /// Returns a connection that has sent nothing but STARTUP.
    fn begin(address: SocketAddr, version: Version) -> Connection {
        let stream = TcpStream::connect(address).expect("the proxy listens");
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).expect("a time");
        stream.set_nodelay(true).expect("no delay");
        let mut connection = Connection {
            stream,
            version,
            framing: Framing::Plain,
            unpacker: Unpacker::new(Direction::Response, Limits::default()),
            input: Vec::new(),
            envelopes: VecDeque::new(),
        };
        let options = vec![("CQL_VERSION", "3.0.0")];
        connection.send(0, Request::Startup(options));
        connection
    }

    /// Returns the answer to STARTUP.
    fn started(&mut self) -> (Header, Vec<u8>) {
        let (stream, header, body) = self.receive();
        assert_eq!(stream, StreamId(0));
        if self.version == Version::V5 {
            self.framing = Framing::Frames;
            self.unpacker.expect_frames();
        }
        (header, body)
    }

    pub(crate) fn send(&mut self, stream: i16, request: Request<'_>) {
        let (mut envelope, mut out) = (Vec::new(), Vec::new());
        let message = request.into_message();
        message.write(
            &mut envelope,
            self.version,
            StreamId(stream),
            Flags::default(),
        );
        Packer::new(&mut out, self.framing).push(&envelope);
        self.stream.write_all(&out).expect("the proxy reads");
    }

    /// Returns the next reply: its stream, and its header and body.
    pub(crate) fn receive(&mut self) -> (StreamId, Header, Vec<u8>) {
        loop {
            if let Some((header, body)) = self.envelopes.pop_front() {
                return (header.stream, header, body);
            }
            let next = self.unpacker.next(&mut self.input).expect("CQL");
            let consumed = next.map(|unpacked| {
                let mut rest = &*unpacked.envelopes;
                while !rest.is_empty() {
                    let whole = Envelope::split(rest, Direction::Response, &Limits::default());
                    let whole = whole.expect("CQL").expect("a whole envelope");
                    self.envelopes
                        .push_back((whole.header, whole.body.to_vec()));
                    rest = &rest[HEADER_LEN + whole.body.len()..];
                }
                unpacked.consumed
            });
            match consumed {
                Some(consumed) => drop(self.input.drain(..consumed)),
                None => {
                    let mut piece = vec![0; 64 * 1024];
                    let count = self.stream.read(&mut piece).expect("the proxy answers");
                    assert_ne!(count, 0, "the proxy has closed the connection");
                    self.input.extend_from_slice(&piece[..count]);
                }
            }
        }
    }

    /// Executes a text. Returns the node's error if it fails.
    pub(crate) fn execute(&mut self, text: &str) -> Result<(), String> {
        let none = BoundValues::none(self.version);
        let parameters = Parameters::new(Consistency::One, none);
        self.send(7, Request::Query(Query { text, parameters }));
        let (stream, header, body) = self.receive();
        assert_eq!(stream, StreamId(7));
        match decode(header, &body) {
            Response::Error(error) => Err(error.message.to_owned()),
            _ => Ok(()),
        }
    }

    /// Returns the ids of a statement, and of its result's columns.
    pub(crate) fn prepare(&mut self, text: &str) -> (Vec<u8>, Option<Vec<u8>>) {
        let keyspace = None;
        self.send(1, Request::Prepare(Prepare { text, keyspace }));
        let (_, header, body) = self.receive();
        match decode(header, &body) {
            Response::Result(ResultBody::Prepared(prepared)) => (
                prepared.id.to_vec(),
                prepared.result_metadata_id.map(<[u8]>::to_vec),
            ),
            other => panic!("{text}: {other:?}"),
        }
    }
}

pub(crate) fn decode(header: Header, body: &[u8]) -> Response<'_> {
    let message = ResponseMessage::decode(Envelope { header, body });
    message.expect("CQL").response
}
