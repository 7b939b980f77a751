//! A client's connection to Cassandra, or to another server with its protocol: one request at a
//! time, with as little work as a client can do. So it measures the server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use cql::request::{Execute, Parameters, Prepare, Query, Request};
use cql::{
    BoundValues, Consistency, Direction, Envelope, Flags, Framing, Limits, Packer, Response,
    ResponseMessage, ResultBody, StreamId, Unpacker, ValueList, Version,
};

/// How long an answer may take. Changing a schema takes seconds if processors are short.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that are read at once.
const PIECE: usize = 16 * 1024;
/// The only stream: there is one request at a time.
const STREAM: StreamId = StreamId(1);

/// Why a request on a connection failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// No server listens there, or the connection could not be set up. Another node, or the same one later,
    /// may be asked.
    #[error("{address}: {what}")]
    Connect {
        /// The server's address.
        address: SocketAddr,
        /// The error of the system.
        what: String,
    },
    /// The connection has failed or was closed: whether the request was carried out is unknown.
    #[error("{0}")]
    Broken(String),
    /// The server sent something that is no answer to the request.
    #[error("{0}")]
    Protocol(String),
    /// The server refused the request.
    #[error("{0}")]
    Refused(String),
    /// The server refused a statement, or did not answer it.
    #[error("{text}: {error}")]
    Statement {
        /// The statement.
        text: String,
        /// The reason.
        error: Box<ConnectionError>,
    },
    /// The nodes have different schemas after a minute.
    #[error("the nodes do not agree on the schema")]
    Disagreement,
}

impl ConnectionError {
    fn of(self, text: &str) -> ConnectionError {
        ConnectionError::Statement {
            text: text.to_owned(),
            error: Box::new(self),
        }
    }

    fn broken(error: std::io::Error) -> ConnectionError {
        ConnectionError::Broken(error.to_string())
    }

    /// Returns the error of an answer that is not understood.
    fn protocol(why: impl std::fmt::Display) -> ConnectionError {
        ConnectionError::Protocol(why.to_string())
    }
}

impl From<ConnectionError> for String {
    /// Returns the text, for callers that only report it.
    fn from(error: ConnectionError) -> String {
        error.to_string()
    }
}

/// A connection. It must not be used after an error.
#[derive(Debug)]
pub struct CqlConnection {
    stream: TcpStream,
    version: Version,
    framing: Framing,
    unpacker: Unpacker,
    envelope: Vec<u8>,
    output: Vec<u8>,
    input: Vec<u8>,
}

/// A statement that was prepared on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedStatement {
    id: Vec<u8>,
    result_metadata_id: Option<Vec<u8>>,
}

impl CqlConnection {
    /// Connects, and agrees on the protocol's version.
    ///
    /// # Errors
    /// Returns an error if no server listens, or the server does not speak this version or asks for
    /// a password.
    pub fn connect(
        address: SocketAddr,
        version: Version,
    ) -> Result<CqlConnection, ConnectionError> {
        let open = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let stream = open().map_err(|error: std::io::Error| ConnectionError::Connect {
            address,
            what: error.to_string(),
        })?;
        let mut connection = CqlConnection {
            stream,
            version,
            framing: Framing::Plain,
            unpacker: Unpacker::new(Direction::Response, Limits::default()),
            envelope: Vec::new(),
            output: Vec::new(),
            input: Vec::new(),
        };
        let options = vec![("CQL_VERSION", "3.0.0")];
        connection.ask(Request::Startup(options), |response| match response {
            Response::Ready => Ok(()),
            other => Err(ConnectionError::protocol(format_args!(
                "STARTUP was answered with {other:?}"
            ))),
        })?;
        if version >= Version::V5 {
            connection.framing = Framing::Frames;
            connection.unpacker.expect_frames();
        }
        Ok(connection)
    }

    /// Executes a text, and ignores its result.
    ///
    /// # Errors
    /// Returns Cassandra's error, or that of the connection.
    pub fn query(&mut self, text: &str, consistency: Consistency) -> Result<(), ConnectionError> {
        let values = BoundValues::none(self.version);
        let parameters = Parameters::new(consistency, values);
        let request = Request::Query(Query { text, parameters });
        let answer = self.ask(request, |response| result(response).map(|_| ()));
        answer.map_err(|error| error.of(text))
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// Returns the errors of [`CqlConnection::query`].
    pub fn prepare(&mut self, text: &str) -> Result<PreparedStatement, ConnectionError> {
        let keyspace = None;
        let request = Request::Prepare(Prepare { text, keyspace });
        let answer = self.ask(request, |response| match result(response)? {
            ResultBody::Prepared(prepared) => Ok(PreparedStatement {
                id: prepared.id.to_vec(),
                result_metadata_id: prepared.result_metadata_id.map(<[u8]>::to_vec),
            }),
            other => Err(ConnectionError::protocol(format_args!(
                "PREPARE was answered with {other:?}"
            ))),
        });
        answer.map_err(|error| error.of(text))
    }

    /// Executes a statement, and calls `look` with its result.
    ///
    /// # Errors
    /// Returns the errors of [`CqlConnection::query`], and those of `look`.
    pub fn execute<T, E: From<ConnectionError>>(
        &mut self,
        statement: &PreparedStatement,
        values: &ValueList,
        consistency: Consistency,
        look: impl FnOnce(ResultBody<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let values = values.values(self.version);
        let request = Request::Execute(Execute {
            id: &statement.id,
            result_metadata_id: statement.result_metadata_id.as_deref(),
            parameters: Parameters::new(consistency, values),
        });
        self.ask(request, |response| look(result(response)?))
    }

    fn ask<T, E: From<ConnectionError>>(
        &mut self,
        request: Request<'_>,
        look: impl FnOnce(Response<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let message = request.into_message();
        self.envelope.clear();
        message.write(&mut self.envelope, self.version, STREAM, Flags::default());
        self.output.clear();
        Packer::new(&mut self.output, self.framing).push(&self.envelope);
        let sent = self.stream.write_all(&self.output);
        sent.map_err(ConnectionError::broken)?;
        loop {
            let next = self.unpacker.next(&mut self.input);
            match next.map_err(ConnectionError::protocol)? {
                Some(unpacked) if unpacked.envelopes.is_empty() => {
                    let consumed = unpacked.consumed;
                    self.input.drain(..consumed);
                }
                Some(unpacked) => {
                    let consumed = unpacked.consumed;
                    let answer = read(unpacked.envelopes, look);
                    self.input.drain(..consumed);
                    return answer;
                }
                None => self.receive()?,
            }
        }
    }

    fn receive(&mut self) -> Result<(), ConnectionError> {
        let end = self.input.len();
        self.input.resize(end + PIECE, 0);
        let count = self.stream.read(&mut self.input[end..]);
        let count = count.map_err(ConnectionError::broken)?;
        self.input.truncate(end + count);
        match count {
            0 => Err(ConnectionError::Broken(
                "the connection was closed".to_owned(),
            )),
            _ => Ok(()),
        }
    }
}

/// Calls `look` with the only response.
fn read<T, E: From<ConnectionError>>(
    envelopes: &[u8],
    look: impl FnOnce(Response<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let envelope = Envelope::split(envelopes, Direction::Response, &Limits::default());
    let envelope = envelope.map_err(ConnectionError::protocol)?;
    let envelope = envelope.ok_or_else(|| ConnectionError::protocol("an envelope that is cut"))?;
    let header = envelope.header;
    if header.stream != STREAM || header.envelope_len() != envelopes.len() {
        let what = format_args!("an answer to something else: {header:?}");
        return Err(ConnectionError::protocol(what).into());
    }
    let message = ResponseMessage::decode(envelope);
    look(message.map_err(ConnectionError::protocol)?.response)
}

fn result(response: Response<'_>) -> Result<ResultBody<'_>, ConnectionError> {
    match response {
        Response::Result(body) => Ok(body),
        Response::Error(error) => Err(ConnectionError::Refused(error.message.to_owned())),
        other => Err(ConnectionError::protocol(format_args!(
            "a request was answered with {other:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Returns a node that gives these answers to any requests.
    fn node(answers: Vec<Vec<u8>>) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut room = [0; 1024];
            for answer in answers {
                assert_ne!(stream.read(&mut room).unwrap(), 0);
                // In pieces, as the network may bring it.
                let (first, second) = answer.split_at(answer.len() / 2);
                stream.write_all(first).unwrap();
                stream.write_all(second).unwrap();
            }
        });
        address
    }

    fn answer(
        version: Version,
        framing: Framing,
        stream: StreamId,
        body: ResultBody<'_>,
    ) -> Vec<u8> {
        let (mut envelope, mut out) = (Vec::new(), Vec::new());
        Response::Result(body).write(&mut envelope, version, stream);
        Packer::new(&mut out, framing).push(&envelope);
        out
    }

    fn ready(version: Version) -> Vec<u8> {
        let mut out = Vec::new();
        Response::Ready.write(&mut out, version, STREAM);
        out
    }

    #[test]
    fn both_versions_are_spoken() {
        for (version, framing) in [
            (Version::V4, Framing::Plain),
            (Version::V5, Framing::Frames),
        ] {
            let void = answer(version, framing, STREAM, ResultBody::Void);
            let address = node(vec![ready(version), void.clone(), void]);
            let mut connection = CqlConnection::connect(address, version).unwrap();
            for _ in 0..2 {
                assert_eq!(connection.query("USE a", Consistency::One), Ok(()));
            }
            assert!(connection.query("USE a", Consistency::One).is_err());
        }
    }

    #[test]
    fn an_answer_to_something_else_is_refused() {
        let version = Version::V4;
        let wrong = answer(version, Framing::Plain, StreamId(2), ResultBody::Void);
        let address = node(vec![ready(version), wrong]);
        let mut connection = CqlConnection::connect(address, version).unwrap();
        let refused = connection.query("USE a", Consistency::One).unwrap_err();
        assert!(refused.to_string().contains("something else"), "{refused}");
    }
}
