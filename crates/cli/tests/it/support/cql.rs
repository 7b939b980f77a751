//! A connection that speaks CQL, waits for each reply, and checks nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use cql::request::{Execute, Parameters, Prepare, Query, Request};
use cql::{
    Bound, BoundValues, Consistency, CqlValue, Direction, Envelope, ErrorKind, Flags, Framing,
    HEADER_LEN, Limits, Packer, Response, ResponseMessage, ResultBody, StreamId, Unpacker,
    ValueList, Version,
};

/// See the module's page.
pub(crate) struct Connection {
    stream: TcpStream,
    version: Version,
    framing: Framing,
    unpacker: Unpacker,
    input: Vec<u8>,
}

/// The answer to a statement.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Received {
    /// Rows, each with the names of its columns.
    Rows(Vec<Vec<(String, CqlValue)>>),
    /// Success without rows.
    Done,
    /// A code, and words.
    Error(i32, String),
}

/// A statement that was prepared.
pub(crate) struct Prepared {
    id: Vec<u8>,
    metadata_id: Option<Vec<u8>>,
}

impl Received {
    /// Returns `true` if the statement was applied; `None` if the answer does not say.
    pub(crate) fn applied(&self) -> Option<bool> {
        let Received::Rows(rows) = self else {
            return None;
        };
        match rows.first()?.first()? {
            (name, CqlValue::Boolean(applied)) if name == "[applied]" => Some(*applied),
            _ => None,
        }
    }

    /// Returns the code of the error, or 0.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Received::Error(code, _) => *code,
            _ => 0,
        }
    }

    /// Returns the words of the error.
    pub(crate) fn words(&self) -> &str {
        match self {
            Received::Error(_, words) => words,
            _ => "",
        }
    }
}

impl Connection {
    /// Connects. Returns an error if no server listens, or if it closes the connection.
    pub(crate) fn open(address: SocketAddr, version: Version) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_nodelay(true)?;
        let mut connection = Connection {
            stream,
            version,
            framing: Framing::Plain,
            unpacker: Unpacker::new(Direction::Response, Limits::default()),
            input: Vec::new(),
        };
        let options = vec![("CQL_VERSION", "3.0.0")];
        connection.ask(Request::Startup(options), |_| ())?;
        if version == Version::V5 {
            connection.framing = Framing::Frames;
            connection.unpacker.expect_frames();
        }
        Ok(connection)
    }

    /// Sends one request and returns the result of `read` for its reply.
    pub(crate) fn ask<T>(
        &mut self,
        request: Request<'_>,
        read: impl FnOnce(Response<'_>) -> T,
    ) -> std::io::Result<T> {
        let (mut envelope, mut out) = (Vec::new(), Vec::new());
        let message = request.into_message();
        message.write(&mut envelope, self.version, StreamId(1), Flags::default());
        Packer::new(&mut out, self.framing).push(&envelope);
        self.stream.write_all(&out)?;
        loop {
            // One request has one reply, which comes in a frame of its own.
            if let Some(unpacked) = self.unpacker.next(&mut self.input).expect("CQL") {
                let whole =
                    Envelope::split(unpacked.envelopes, Direction::Response, &Limits::default());
                let whole = whole.expect("CQL").expect("a whole envelope");
                let message = ResponseMessage::decode(whole).expect("CQL");
                let answer = read(message.response);
                let consumed = unpacked.consumed;
                self.input.drain(..consumed);
                return Ok(answer);
            }
            let mut piece = [0; 16 * 1024];
            match self.stream.read(&mut piece)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => self.input.extend_from_slice(&piece[..count]),
            }
        }
    }

    /// Executes a text.
    pub(crate) fn query(&mut self, text: &str) -> std::io::Result<Received> {
        let none = BoundValues::none(self.version);
        let parameters = Parameters::new(Consistency::One, none);
        self.ask(Request::Query(Query { text, parameters }), told)
    }

    /// Sends texts in one piece, and breaks the connection when the first answer has come.
    pub(crate) fn ask_and_go(mut self, texts: &[&str]) -> std::io::Result<()> {
        let mut out = Vec::new();
        let mut packer = Packer::new(&mut out, self.framing);
        for (text, stream) in texts.iter().zip(0..) {
            let parameters = Parameters::new(Consistency::One, BoundValues::none(self.version));
            let message = Request::Query(Query { text, parameters }).into_message();
            let mut envelope = Vec::new();
            let none = Flags::default();
            message.write(&mut envelope, self.version, StreamId(stream), none);
            packer.push(&envelope);
        }
        drop(packer);
        self.stream.write_all(&out)?;
        // Unread input turns the end into a reset.
        self.stream.peek(&mut [0])?;
        Ok(())
    }

    /// Prepares a text, or returns the node's error.
    pub(crate) fn prepare(&mut self, text: &str) -> std::io::Result<Result<Prepared, Received>> {
        let keyspace = None;
        self.ask(
            Request::Prepare(Prepare { text, keyspace }),
            |response| match response {
                Response::Result(ResultBody::Prepared(prepared)) => Ok(Prepared {
                    id: prepared.id.to_vec(),
                    metadata_id: prepared.result_metadata_id.map(<[u8]>::to_vec),
                }),
                other => Err(told(other)),
            },
        )
    }

    /// Executes a prepared statement with each of these values, all sent in one piece. Returns the
    /// answers.
    pub(crate) fn execute_all(
        &mut self,
        prepared: &Prepared,
        all: &[Vec<Vec<u8>>],
    ) -> std::io::Result<Vec<Received>> {
        let mut out = Vec::new();
        let mut packer = Packer::new(&mut out, self.framing);
        for (values, stream) in all.iter().zip(0..) {
            let mut list = ValueList::new();
            values
                .iter()
                .for_each(|value| list.push(Bound::Bytes(value)));
            let execute = Execute {
                id: &prepared.id,
                result_metadata_id: prepared.metadata_id.as_deref(),
                parameters: Parameters::new(Consistency::One, list.values(self.version)),
            };
            let mut envelope = Vec::new();
            let message = Request::Execute(execute).into_message();
            message.write(
                &mut envelope,
                self.version,
                StreamId(stream),
                Flags::default(),
            );
            packer.push(&envelope);
        }
        drop(packer);
        self.stream.write_all(&out)?;
        let mut answers: Vec<Option<Received>> = vec![None; all.len()];
        while answers.iter().any(Option::is_none) {
            while let Some(unpacked) = self.unpacker.next(&mut self.input).expect("CQL") {
                let mut rest = &*unpacked.envelopes;
                while !rest.is_empty() {
                    let whole = Envelope::split(rest, Direction::Response, &Limits::default());
                    let whole = whole.expect("CQL").expect("a whole envelope");
                    rest = &rest[HEADER_LEN + whole.body.len()..];
                    let message = ResponseMessage::decode(whole).expect("CQL");
                    assert_eq!(message.warnings, None);
                    let answer = &mut answers[whole.header.stream.0 as usize];
                    assert_eq!(*answer, None, "a stream is answered once");
                    *answer = Some(told(message.response));
                }
                let consumed = unpacked.consumed;
                self.input.drain(..consumed);
            }
            if answers.iter().any(Option::is_none) {
                let mut piece = [0; 16 * 1024];
                match self.stream.read(&mut piece)? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    count => self.input.extend_from_slice(&piece[..count]),
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Executes a prepared statement.
    pub(crate) fn execute(
        &mut self,
        prepared: &Prepared,
        values: &[&[u8]],
    ) -> std::io::Result<Received> {
        let mut list = ValueList::new();
        values
            .iter()
            .for_each(|value| list.push(Bound::Bytes(value)));
        let execute = Execute {
            id: &prepared.id,
            result_metadata_id: prepared.metadata_id.as_deref(),
            parameters: Parameters::new(Consistency::One, list.values(self.version)),
        };
        self.ask(Request::Execute(execute), told)
    }
}

/// Returns the contents of a response to a statement.
pub(crate) fn told(response: Response<'_>) -> Received {
    match response {
        Response::Result(ResultBody::Rows(rows)) => {
            let columns = rows.metadata.columns.clone().unwrap_or_default().0;
            let one = |row: Vec<Option<&[u8]>>| {
                let values = columns.iter().zip(row).map(|(column, value)| {
                    let value = CqlValue::decode(&column.data_type, value).expect("of its type");
                    (column.name.clone(), value)
                });
                values.collect()
            };
            Received::Rows(rows.iter().map(one).collect())
        }
        Response::Error(error) => {
            let code = match &error.kind {
                ErrorKind::Plain(code) => *code,
                kind => kind.code(),
            };
            Received::Error(code, error.message.to_owned())
        }
        _ => Received::Done,
    }
}
