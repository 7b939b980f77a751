//! Requests: the messages of clients.
//!
//! | opcode | body |
//! |---|---|
//! | STARTUP | `[string map]` options |
//! | OPTIONS | – |
//! | AUTH_RESPONSE | `[bytes]` token |
//! | REGISTER | `[string list]` kinds of events |
//! | QUERY | `[long string]` text, [`Parameters`] |
//! | PREPARE | `[long string]` text; in version 5 `[int]` flags and, with 0x01, `[string]` keyspace |
//! | EXECUTE | `[short bytes]` id; in version 5 `[short bytes]` id of the result's metadata; [`Parameters`] |
//! | BATCH | `[byte]` kind, `[short]` *n*, *n* × statement, [`Parameters`] without values |
//!
//! A statement of a batch is `[byte]` 0 and `[long string]` text, or `[byte]` 1 and `[short bytes]`
//! id, and then a list of values. Before any of these there is a `[bytes map]` if the envelope has
//! the flag of a custom payload. What stands behind a message is ignored, as the protocol wants.
//!
//! Decoding borrows from the body. For the most frequent messages of a proxy, [`Query::decode`] and
//! [`Execute::decode`] allocate nothing.

mod batch;
mod parameters;

pub use batch::{Batch, BatchKind, BatchStatement, Statement};
pub use parameters::Parameters;

use crate::envelope::{Envelope, Flags, Header, Opcode, StreamId, Version, write_envelope};
use crate::event::EventKind;
use crate::notation::{
    BytesMap, Malformed, NotationReader, StringMap, put_bytes, put_bytes_map, put_int,
    put_long_string, put_short_bytes, put_short_len, put_string, put_string_map,
};

/// PREPARE has a keyspace.
const WITH_KEYSPACE: i32 = 0x01;

/// A message of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// The first message of a connection, or the first after OPTIONS.
    Startup(StringMap<'a>),
    /// Asks for the options that STARTUP can have.
    Options,
    /// An answer to a challenge, for example a name and a password.
    AuthResponse(Option<&'a [u8]>),
    /// Asks for events.
    Register(Vec<EventKind>),
    /// Executes a text.
    Query(Query<'a>),
    /// Prepares a text.
    Prepare(Prepare<'a>),
    /// Executes a prepared statement.
    Execute(Execute<'a>),
    /// Executes several statements as one.
    Batch(Batch<'a>),
}

/// A text to execute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query<'a> {
    /// The statement.
    pub text: &'a str,
    /// The parameters, with the values.
    pub parameters: Parameters<'a>,
}

/// A text to prepare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepare<'a> {
    /// The statement.
    pub text: &'a str,
    /// The keyspace of names that have none (version 5), instead of the connection's.
    pub keyspace: Option<&'a str>,
}

/// A prepared statement to execute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Execute<'a> {
    /// The id that PREPARE returned.
    pub id: &'a [u8],
    /// The id of the description of the result's columns that the client has (version 5, always
    /// there).
    pub result_metadata_id: Option<&'a [u8]>,
    /// The parameters, with the values.
    pub parameters: Parameters<'a>,
}

/// A request with the custom payload that may stand before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestMessage<'a> {
    /// For a query handler other than Cassandra's own, which ignores it. `None`: there is none.
    pub custom_payload: Option<BytesMap<'a>>,
    /// The request.
    pub request: Request<'a>,
}

impl<'a> RequestMessage<'a> {
    /// Decodes a request.
    ///
    /// # Errors
    /// The body does not match its header.
    pub fn decode(envelope: Envelope<'a>) -> Result<RequestMessage<'a>, Malformed> {
        let mut reader = NotationReader::new(envelope.body);
        refuse_compression(&envelope.header, &reader)?;
        let custom_payload = envelope.header.flags.has(Flags::CUSTOM_PAYLOAD);
        let custom_payload = custom_payload.then(|| reader.bytes_map()).transpose()?;
        let version = envelope.header.version;
        let reader = &mut reader;
        let request = match envelope.header.opcode {
            Opcode::Startup => Request::Startup(reader.string_map()?),
            Opcode::Options => Request::Options,
            Opcode::AuthResponse => Request::AuthResponse(reader.bytes()?),
            Opcode::Register => Request::Register(reader.list(EventKind::read)?),
            Opcode::Query => Request::Query(Query::read(reader, version)?),
            Opcode::Prepare => Request::Prepare(Prepare::read(reader, version)?),
            Opcode::Execute => Request::Execute(Execute::read(reader, version)?),
            Opcode::Batch => Request::Batch(Batch::read(reader, version)?),
            _ => return Err(reader.malformed("a response's opcode in a request")),
        };
        Ok(RequestMessage {
            custom_payload,
            request,
        })
    }

    /// Writes the request as an envelope. The flag of a custom payload is set as needed.
    ///
    /// # Panics
    /// Panics if it contains something that cannot be written: strings above 65,535 bytes, more
    /// than 65,535 elements of a list, a feature that this version does not have.
    pub fn write(&self, out: &mut Vec<u8>, version: Version, stream: StreamId, flags: Flags) {
        let flags = match self.custom_payload {
            Some(_) => flags.with(Flags::CUSTOM_PAYLOAD),
            None => flags,
        };
        let header = Header {
            version,
            flags,
            stream,
            opcode: self.request.opcode(),
            body_len: 0,
        };
        write_envelope(out, header, |out| {
            if let Some(payload) = &self.custom_payload {
                put_bytes_map(out, payload);
            }
            self.request.write_body(out, version);
        });
    }
}

/// Returns an error if the body is compressed: this connection has not agreed on compression. The
/// flag means nothing in version 5, where frames are compressed.
pub(crate) fn refuse_compression(
    header: &Header,
    reader: &NotationReader<'_>,
) -> Result<(), Malformed> {
    if header.version < Version::V5 && header.flags.has(Flags::COMPRESSED) {
        return Err(reader.malformed("a compressed body, and no compression was agreed on"));
    }
    Ok(())
}

/// Returns a reader at the start of the message proper.
fn message_reader<'a>(envelope: &Envelope<'a>) -> Result<NotationReader<'a>, Malformed> {
    let mut reader = NotationReader::new(envelope.body);
    refuse_compression(&envelope.header, &reader)?;
    if envelope.header.flags.has(Flags::CUSTOM_PAYLOAD) {
        reader.skip_bytes_map()?;
    }
    Ok(reader)
}

impl<'a> Request<'a> {
    /// Returns the request as a message without a custom payload.
    #[must_use]
    pub fn into_message(self) -> RequestMessage<'a> {
        RequestMessage {
            custom_payload: None,
            request: self,
        }
    }

    /// Returns its opcode.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        match self {
            Request::Startup(_) => Opcode::Startup,
            Request::Options => Opcode::Options,
            Request::AuthResponse(_) => Opcode::AuthResponse,
            Request::Register(_) => Opcode::Register,
            Request::Query(_) => Opcode::Query,
            Request::Prepare(_) => Opcode::Prepare,
            Request::Execute(_) => Opcode::Execute,
            Request::Batch(_) => Opcode::Batch,
        }
    }

    fn write_body(&self, out: &mut Vec<u8>, version: Version) {
        match self {
            Request::Startup(options) => put_string_map(out, options),
            Request::Options => {}
            Request::AuthResponse(token) => put_bytes(out, *token),
            Request::Register(kinds) => {
                put_short_len(out, kinds.len());
                kinds.iter().for_each(|kind| put_string(out, kind.name()));
            }
            Request::Query(query) => {
                put_long_string(out, query.text);
                query.parameters.write(out, version);
            }
            Request::Prepare(prepare) => prepare.write(out, version),
            Request::Execute(execute) => execute.write(out, version),
            Request::Batch(batch) => batch.write(out, version),
        }
    }
}

impl<'a> Query<'a> {
    /// Decodes the body of a QUERY without allocating; a custom payload is skipped.
    ///
    /// # Errors
    /// The body is malformed.
    ///
    /// # Panics
    /// Panics if the envelope is no QUERY.
    pub fn decode(envelope: &Envelope<'a>) -> Result<Query<'a>, Malformed> {
        assert_eq!(envelope.header.opcode, Opcode::Query);
        Query::read(&mut message_reader(envelope)?, envelope.header.version)
    }

    fn read(reader: &mut NotationReader<'a>, version: Version) -> Result<Query<'a>, Malformed> {
        Ok(Query {
            text: reader.long_string()?,
            parameters: Parameters::read(reader, version)?,
        })
    }
}

impl<'a> Prepare<'a> {
    fn read(reader: &mut NotationReader<'a>, version: Version) -> Result<Prepare<'a>, Malformed> {
        let text = reader.long_string()?;
        let keyspace = if version >= Version::V5 && reader.int()? & WITH_KEYSPACE != 0 {
            Some(reader.string()?)
        } else {
            None
        };
        Ok(Prepare { text, keyspace })
    }

    fn write(&self, out: &mut Vec<u8>, version: Version) {
        put_long_string(out, self.text);
        if version >= Version::V5 {
            put_int(out, self.keyspace.map_or(0, |_| WITH_KEYSPACE));
        } else {
            assert_eq!(self.keyspace, None, "a keyspace before version 5");
        }
        if let Some(keyspace) = self.keyspace {
            put_string(out, keyspace);
        }
    }
}

impl<'a> Execute<'a> {
    /// Decodes the body of an EXECUTE without allocating; a custom payload is skipped.
    ///
    /// # Errors
    /// The body is malformed.
    ///
    /// # Panics
    /// Panics if the envelope is no EXECUTE.
    pub fn decode(envelope: &Envelope<'a>) -> Result<Execute<'a>, Malformed> {
        assert_eq!(envelope.header.opcode, Opcode::Execute);
        Execute::read(&mut message_reader(envelope)?, envelope.header.version)
    }

    fn read(reader: &mut NotationReader<'a>, version: Version) -> Result<Execute<'a>, Malformed> {
        let id = reader.short_bytes()?;
        let result_metadata_id = if version >= Version::V5 {
            Some(reader.short_bytes()?)
        } else {
            None
        };
        Ok(Execute {
            id,
            result_metadata_id,
            parameters: Parameters::read(reader, version)?,
        })
    }

    fn write(&self, out: &mut Vec<u8>, version: Version) {
        put_short_bytes(out, self.id);
        let has_metadata_id = self.result_metadata_id.is_some();
        assert_eq!(
            has_metadata_id,
            version >= Version::V5,
            "as version 5 alone"
        );
        if let Some(id) = self.result_metadata_id {
            put_short_bytes(out, id);
        }
        self.parameters.write(out, version);
    }
}

#[cfg(test)]
mod tests;
