//! A blocking connection to a node for a few requests of the proxy's own, one after another.

use std::collections::VecDeque;
use std::io::{ErrorKind as Failed, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use cql::request::Request;
use cql::response::{Columns, ErrorKind};
use cql::{
    CqlValue, Direction, Envelope, Flags, HEADER_LEN, Header, Limits, Response, ResponseMessage,
    ResultBody, StreamId, Unpacker, Version,
};

use super::credentials::Credential;
use super::frames;
use super::node_connection::{Options, plain_query, startup};
use crate::error::ProxyError;
use reactor::tls::BlockingStream;

/// How long a node may take to answer, from the first byte of the request to the last byte of the
/// answer. Of several requests that are sent together each answer may take so long.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module documentation.
pub(crate) struct ControlConnection {
    stream: BlockingStream,
    unpacker: Unpacker,
    input: BytesMut,
    envelopes: Bytes,
    /// Events that came while an answer was awaited.
    events: VecDeque<Bytes>,
    /// The class by which nodes authenticate clients, if they do.
    pub(crate) authenticator: Option<String>,
}

/// The rows of an answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct TableInfo {
    pub(crate) columns: Columns,
    pub(crate) rows: Vec<Vec<CqlValue>>,
}

impl TableInfo {
    /// Returns the value of a row's column.
    pub(crate) fn value<'a>(&self, row: &'a [CqlValue], name: &str) -> Option<&'a CqlValue> {
        row.get(self.columns.position(name)?)
    }

    /// Returns the text of a row's column.
    pub(crate) fn text<'a>(&self, row: &'a [CqlValue], name: &str) -> Option<&'a str> {
        match self.value(row, name)? {
            CqlValue::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl ControlConnection {
    /// Connects, and authenticates as the proxy.
    ///
    /// # Errors
    /// Returns the fault of the node.
    pub(crate) fn connect(
        address: SocketAddr,
        options: &Options,
    ) -> Result<ControlConnection, ProxyError> {
        let failed =
            |error: std::io::Error| ProxyError::unavailable(format!("cannot be reached ({error})"));
        let stream =
            BlockingStream::connect(address, options.tls.as_deref(), PATIENCE).map_err(failed)?;
        let mut asked = ControlConnection {
            stream,
            unpacker: Unpacker::new(Direction::Response, Limits::default()),
            input: BytesMut::new(),
            envelopes: Bytes::new(),
            events: VecDeque::new(),
            authenticator: None,
        };
        asked.greet(options.own.as_ref())?;
        Ok(asked)
    }

    fn greet(&mut self, own: Option<&Credential>) -> Result<(), ProxyError> {
        let class = self.ask(Request::Startup(startup()), |response| match response {
            Response::Ready => Ok(None),
            Response::Authenticate(class) => Ok(Some(class.to_owned())),
            other => Err(ProxyError::refused(format!(
                "refuses the proxy: {}",
                words(&other)
            ))),
        })?;
        if class.is_some() {
            let Some(own) = own else {
                let how = "give --node-user and --node-password";
                return Err(ProxyError::refused(format!(
                    "wants to know who the proxy is: {how}"
                )));
            };
            let answer = Request::AuthResponse(Some(own.token()));
            self.ask(answer, |response| match response {
                Response::AuthSuccess(_) => Ok(()),
                other => Err(ProxyError::refused(format!(
                    "refuses the proxy: {}",
                    words(&other)
                ))),
            })?;
        }
        self.authenticator = class;
        Ok(())
    }

    /// Sends one request, and returns what `read` makes of its answer.
    ///
    /// # Errors
    /// Returns an error if the node does not answer, or that of `read`.
    pub(crate) fn ask<T>(
        &mut self,
        request: Request<'_>,
        read: impl FnOnce(Response<'_>) -> Result<T, ProxyError>,
    ) -> Result<T, ProxyError> {
        self.send([request])?;
        let (header, envelope) = self.next_answer()?;
        read(decode(header, &envelope)?)
    }

    /// Sends requests, with their places as their streams.
    fn send<'a>(
        &mut self,
        requests: impl IntoIterator<Item = Request<'a>>,
    ) -> Result<(), ProxyError> {
        let mut out = Vec::new();
        for (stream, request) in (0..).zip(requests) {
            let message = request.into_message();
            let flags = Flags::default();
            message.write(&mut out, Version::V4, StreamId(stream), flags);
        }
        self.stream.write_all(&out).map_err(no_answer)
    }

    /// Returns the next envelope that is no event.
    fn next_answer(&mut self) -> Result<(Header, Bytes), ProxyError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(no_answer(Failed::TimedOut.into()));
            }
            self.stream.set_timeout(left).map_err(no_answer)?;
            let Some((header, envelope)) = self.receive().map_err(no_answer)? else {
                continue;
            };
            if header.stream == StreamId::EVENTS {
                self.events.push_back(frames::body(&envelope));
                continue;
            }
            return Ok((header, envelope));
        }
    }

    /// Returns the rows of a query.
    ///
    /// # Errors
    /// Returns an error if the node does not answer with rows.
    pub(crate) fn query(&mut self, text: &str) -> Result<TableInfo, ProxyError> {
        self.rows(plain_query(text, Version::V4), text)
    }

    /// Returns the rows of a request; none if it is answered without rows. `text` describes the request
    /// in errors.
    ///
    /// # Errors
    /// Returns an error if the node does not answer, or answers with an error.
    pub(crate) fn rows(
        &mut self,
        request: Request<'_>,
        text: &str,
    ) -> Result<TableInfo, ProxyError> {
        self.ask(request, |response| rows_of(response, text))
    }

    /// Sends requests together, and returns the rows of each, in their order; the error of a request that
    /// the node refuses. The texts describe the requests in errors.
    ///
    /// # Errors
    /// Returns an error if the node does not answer all of them. The connection is of no use then.
    ///
    /// # Panics
    /// Panics if there are more requests than a connection has streams.
    pub(crate) fn rows_of_each<'a>(
        &mut self,
        requests: impl IntoIterator<Item = Request<'a>>,
        texts: &[&str],
    ) -> Result<Vec<Result<TableInfo, ProxyError>>, ProxyError> {
        assert!(texts.len() <= i16::MAX as usize, "{} requests", texts.len());
        self.send(requests)?;
        let mut found: Vec<Option<Result<TableInfo, ProxyError>>> = vec![None; texts.len()];
        for _ in texts {
            let (header, envelope) = self.next_answer()?;
            let place = usize::try_from(header.stream.0).ok();
            let free = place.filter(|place| found.get(*place).is_some_and(Option::is_none));
            let place = free.ok_or_else(|| {
                ProxyError::malformed(format!("answers stream {} twice", header.stream.0))
            })?;
            found[place] = Some(rows_of(decode(header, &envelope)?, texts[place]));
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns the body of the next event; `None` if none comes within `patience`.
    ///
    /// # Errors
    /// Returns an error if the connection is of no use any more.
    pub(crate) fn event(&mut self, patience: Duration) -> std::io::Result<Option<Bytes>> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        self.stream.set_timeout(patience)?;
        match self.receive() {
            Ok(Some((header, envelope))) if header.stream == StreamId::EVENTS => {
                Ok(Some(frames::body(&envelope)))
            }
            Ok(_) => Ok(None),
            Err(error) if [Failed::WouldBlock, Failed::TimedOut].contains(&error.kind()) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the next envelope, or `None` after a read that completed none.
    fn receive(&mut self) -> std::io::Result<Option<(Header, Bytes)>> {
        if let Some(next) = frames::next(&mut self.envelopes, Direction::Response) {
            return Ok(Some(next));
        }
        if let Some(envelopes) = frames::take(&mut self.unpacker, &mut self.input)
            .map_err(|error| std::io::Error::new(Failed::InvalidData, error))?
        {
            self.envelopes = envelopes;
            return Ok(frames::next(&mut self.envelopes, Direction::Response));
        }
        let mut piece = vec![0; 16 * 1024];
        match self.stream.read(&mut piece)? {
            0 => Err(Failed::UnexpectedEof.into()),
            count => {
                self.input.extend_from_slice(&piece[..count]);
                Ok(None)
            }
        }
    }
}

fn no_answer(error: std::io::Error) -> ProxyError {
    ProxyError::unavailable(format!("does not answer ({error})"))
}

/// Returns the rows of a response; none if it is one without rows. `text` describes the request.
fn rows_of(response: Response<'_>, text: &str) -> Result<TableInfo, ProxyError> {
    let rows = match response {
        Response::Result(ResultBody::Rows(rows)) => rows,
        Response::Result(ResultBody::Void) => return Ok(TableInfo::default()),
        other => {
            return Err(ProxyError::refused(format!(
                "refuses {text:?}: {}",
                words(&other)
            )));
        }
    };
    let columns = rows.metadata.columns.clone().unwrap_or_default();
    let decoded = rows.iter().map(|row| {
        let values = columns.0.iter().zip(row);
        values
            .map(|(column, value)| CqlValue::decode(&column.data_type, value))
            .collect::<Result<Vec<CqlValue>, _>>()
    });
    let decoded = decoded.collect::<Result<Vec<_>, _>>();
    let rows = decoded
        .map_err(|error| ProxyError::malformed(format!("answers {text:?} wrongly: {error}")))?;
    Ok(TableInfo { columns, rows })
}

fn decode(header: Header, envelope: &Bytes) -> Result<Response<'_>, ProxyError> {
    let body = &envelope[HEADER_LEN..];
    let message = ResponseMessage::decode(Envelope { header, body });
    let message =
        message.map_err(|error| ProxyError::malformed(format!("does not speak CQL: {error}")))?;
    Ok(message.response)
}

/// Describes a response in words.
fn words(response: &Response<'_>) -> String {
    match response {
        Response::Error(error) => match error.kind {
            ErrorKind::Plain(_) => error.message.to_owned(),
            _ => format!("{} ({:#06x})", error.message, error.kind.code()),
        },
        other => format!("{:?}", other.opcode()),
    }
}
