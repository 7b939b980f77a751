//! Responses: the messages of servers.
//!
//! | opcode | body |
//! |---|---|
//! | ERROR | see [`ErrorBody`] |
//! | READY | – |
//! | AUTHENTICATE | `[string]` name of a Java class |
//! | SUPPORTED | `[string multimap]` options of STARTUP |
//! | RESULT | see [`ResultBody`] |
//! | EVENT | see [`Event`] |
//! | AUTH_CHALLENGE, AUTH_SUCCESS | `[bytes]` token |
//!
//! Before any of these there is, according to the envelope's flags and in this order: the `[uuid]`
//! of a trace, a `[string list]` of warnings, a `[bytes map]`. Bytes behind a message are ignored,
//! as the protocol demands.

mod error;
mod prepared;
mod result;
mod rows;

pub use error::{
    ALREADY_EXISTS, AUTHENTICATION_ERROR, CAS_WRITE_UNKNOWN, CDC_WRITE_FAILURE, CONFIG_ERROR,
    ErrorBody, ErrorKind, FUNCTION_FAILURE, Failures, INVALID, IS_BOOTSTRAPPING, OVERLOADED,
    PROTOCOL_ERROR, READ_FAILURE, READ_TIMEOUT, SERVER_ERROR, SYNTAX_ERROR, TRUNCATE_ERROR,
    UNAUTHORIZED, UNAVAILABLE, UNPREPARED, WRITE_FAILURE, WRITE_TIMEOUT,
};
pub use prepared::{Prepared, PreparedMetadata};
pub use result::ResultBody;
pub use rows::{ColumnSpec, Columns, Row, Rows, RowsBuilder, RowsMetadata};

use crate::envelope::{Envelope, Flags, Header, Opcode, StreamId, Version, write_envelope};
use crate::event::Event;
use crate::notation::{
    BytesMap, Malformed, NotationReader, StringMultimap, Uuid, put_bytes, put_bytes_map,
    put_string, put_string_list, put_string_multimap,
};
use crate::request::refuse_compression;

/// A message of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response<'a> {
    /// The request failed.
    Error(ErrorBody<'a>),
    /// The connection can be used, or events will come.
    Ready,
    /// The client must authenticate, to a Java class of this name.
    Authenticate(&'a str),
    /// The options that STARTUP can have.
    Supported(StringMultimap<'a>),
    /// The request was executed.
    Result(ResultBody<'a>),
    /// An event that the client has registered for.
    Event(Event<'a>),
    /// The client must answer this token.
    AuthChallenge(Option<&'a [u8]>),
    /// The client is authenticated.
    AuthSuccess(Option<&'a [u8]>),
}

/// A response with the parts that may stand before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResponseMessage<'a> {
    /// The trace of a request that asked for tracing.
    pub tracing_id: Option<Uuid>,
    /// The warnings of the server. `None`: there is no list.
    pub warnings: Option<Vec<&'a str>>,
    /// From a query handler other than Cassandra's own.
    pub custom_payload: Option<BytesMap<'a>>,
    /// The response.
    pub response: Response<'a>,
}

impl<'a> ResponseMessage<'a> {
    /// Decodes a response.
    ///
    /// # Errors
    /// The body does not match its header.
    pub fn decode(envelope: Envelope<'a>) -> Result<ResponseMessage<'a>, Malformed> {
        let mut reader = NotationReader::new(envelope.body);
        refuse_compression(&envelope.header, &reader)?;
        let version = envelope.header.version;
        let has = |flag| envelope.header.flags.has(flag);
        let reader = &mut reader;
        let tracing_id = has(Flags::TRACING).then(|| reader.uuid()).transpose()?;
        let warnings = has(Flags::WARNING).then(|| reader.string_list());
        let warnings = warnings.transpose()?;
        let custom_payload = has(Flags::CUSTOM_PAYLOAD).then(|| reader.bytes_map());
        let custom_payload = custom_payload.transpose()?;
        let response = match envelope.header.opcode {
            Opcode::Error => Response::Error(ErrorBody::read(reader, version)?),
            Opcode::Ready => Response::Ready,
            Opcode::Authenticate => Response::Authenticate(reader.string()?),
            Opcode::Supported => Response::Supported(reader.string_multimap()?),
            Opcode::Result => Response::Result(ResultBody::read(reader, version)?),
            Opcode::Event => Response::Event(Event::read(reader)?),
            Opcode::AuthChallenge => Response::AuthChallenge(reader.bytes()?),
            Opcode::AuthSuccess => Response::AuthSuccess(reader.bytes()?),
            _ => return Err(reader.malformed("a request's opcode in a response")),
        };
        Ok(ResponseMessage {
            tracing_id,
            warnings,
            custom_payload,
            response,
        })
    }

    /// Writes the response as an envelope, with the flags of its parts.
    ///
    /// # Panics
    /// Panics if it contains something that cannot be written: strings above 65,535 bytes, more
    /// than 65,535 elements of a list, a feature that this version does not have.
    pub fn write(&self, out: &mut Vec<u8>, version: Version, stream: StreamId) {
        let header = Header {
            version,
            flags: self.flags(),
            stream,
            opcode: self.response.opcode(),
            body_len: 0,
        };
        write_envelope(out, header, |out| {
            if let Some(id) = &self.tracing_id {
                out.extend_from_slice(id);
            }
            if let Some(warnings) = &self.warnings {
                put_string_list(out, warnings);
            }
            if let Some(payload) = &self.custom_payload {
                put_bytes_map(out, payload);
            }
            self.response.write_body(out, version);
        });
    }

    fn flags(&self) -> Flags {
        let parts = [
            (self.tracing_id.is_some(), Flags::TRACING),
            (self.warnings.is_some(), Flags::WARNING),
            (self.custom_payload.is_some(), Flags::CUSTOM_PAYLOAD),
        ];
        let set = parts.into_iter().filter(|(is_there, _)| *is_there);
        set.fold(Flags::default(), |flags, (_, flag)| flags.with(flag))
    }
}

impl<'a> Response<'a> {
    /// Returns the response as a message without further parts.
    #[must_use]
    pub fn into_message(self) -> ResponseMessage<'a> {
        ResponseMessage {
            tracing_id: None,
            warnings: None,
            custom_payload: None,
            response: self,
        }
    }

    /// Writes the response as an envelope without further parts.
    ///
    /// # Panics
    /// As [`ResponseMessage::write`].
    pub fn write(self, out: &mut Vec<u8>, version: Version, stream: StreamId) {
        self.into_message().write(out, version, stream);
    }

    /// Returns its opcode.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        match self {
            Response::Error(_) => Opcode::Error,
            Response::Ready => Opcode::Ready,
            Response::Authenticate(_) => Opcode::Authenticate,
            Response::Supported(_) => Opcode::Supported,
            Response::Result(_) => Opcode::Result,
            Response::Event(_) => Opcode::Event,
            Response::AuthChallenge(_) => Opcode::AuthChallenge,
            Response::AuthSuccess(_) => Opcode::AuthSuccess,
        }
    }

    fn write_body(&self, out: &mut Vec<u8>, version: Version) {
        match self {
            Response::Error(error) => error.write(out, version),
            Response::Ready => {}
            Response::Authenticate(class) => put_string(out, class),
            Response::Supported(options) => put_string_multimap(out, options),
            Response::Result(result) => result.write(out, version),
            Response::Event(event) => event.write(out),
            Response::AuthChallenge(token) | Response::AuthSuccess(token) => {
                put_bytes(out, *token);
            }
        }
    }
}

/// The kind of a RESULT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // They are those of [`ResultBody`].
pub enum ResultKind {
    Void,
    Rows,
    SetKeyspace,
    Prepared,
    SchemaChange,
}

/// Returns the kind of a RESULT, without decoding the rest.
///
/// # Errors
/// The body is malformed.
///
/// # Panics
/// Panics if the envelope is no RESULT.
pub fn peek_result_kind(envelope: &Envelope<'_>) -> Result<ResultKind, Malformed> {
    assert_eq!(envelope.header.opcode, Opcode::Result);
    let mut reader = message_reader(envelope)?;
    let no_kind = reader.malformed("a result of a kind that there is not");
    Ok(match reader.int()? {
        1 => ResultKind::Void,
        2 => ResultKind::Rows,
        3 => ResultKind::SetKeyspace,
        4 => ResultKind::Prepared,
        5 => ResultKind::SchemaChange,
        _ => return Err(no_kind),
    })
}

/// Returns the code of an ERROR, without decoding the rest.
///
/// # Errors
/// The body is malformed.
///
/// # Panics
/// Panics if the envelope is no ERROR.
pub fn peek_error_code(envelope: &Envelope<'_>) -> Result<i32, Malformed> {
    assert_eq!(envelope.header.opcode, Opcode::Error);
    message_reader(envelope)?.int()
}

/// Returns a reader at the start of the message proper.
fn message_reader<'a>(envelope: &Envelope<'a>) -> Result<NotationReader<'a>, Malformed> {
    let mut reader = NotationReader::new(envelope.body);
    refuse_compression(&envelope.header, &reader)?;
    let has = |flag| envelope.header.flags.has(flag);
    if has(Flags::TRACING) {
        reader.uuid()?;
    }
    if has(Flags::WARNING) {
        for _ in 0..reader.short()? {
            reader.string()?;
        }
    }
    if has(Flags::CUSTOM_PAYLOAD) {
        reader.skip_bytes_map()?;
    }
    Ok(reader)
}

#[cfg(test)]
mod tests;
