//! The handshake of a client: it asks for options, names a version, and authenticates if nodes require
//! it.
//!
//! A client that requests an unknown version or compression is refused with an error from which drivers
//! see that they can try an older version, or no compression.

use bytes::{Bytes, BytesMut};
use cql::request::{Request, RequestMessage};
use cql::response::PROTOCOL_ERROR;
use cql::{
    Compression, Direction, Envelope, EnvelopeError, Framing, HEADER_LEN, Header, Limits, Opcode,
    Response, StreamError, StreamId, Version,
};

use super::client::{CqlClient, HandshakeStage};
use super::connection_key;
use super::credentials::Credential;
use super::frames::{self, header_of};
use super::protocol::{CqlProtocol, RequestProgress, Task};
use super::reply_time_limit::ReplyTimeLimit;
use super::route::envelope;
use crate::runtime::protocol::{Dispatch, InputProgress, RequestContext};
use crate::runtime::query::{BackendQuery, ConnectionKey, NodeIndex};

/// Limit of clients of one thread that authenticate with nodes at a time: each has a connection of its
/// own to the node for that, and checking passwords is slow on purpose.
pub(super) const MOST_LOGINS: usize = 64;

/// Returns the next request of a client's input.
pub(crate) fn next(
    client: &mut CqlClient,
    input: &mut BytesMut,
    limits: &Limits,
) -> Result<Option<(Header, Bytes)>, StreamError> {
    if let Some(request) = client.put_back.take() {
        return Ok(Some(request));
    }
    if client.stage == HandshakeStage::New {
        // Input after STARTUP may be in frames.
        let envelope = Envelope::split(input, Direction::Request, limits)?;
        let header = envelope.map(|envelope| envelope.header);
        return Ok(header.map(|header| (header, input.split_to(header.envelope_len()).freeze())));
    }
    loop {
        if let Some(request) = frames::next(&mut client.envelopes, Direction::Request) {
            return frames::expand(request, client.compression, limits).map(Some);
        }
        match frames::take(&mut client.unpacker, input)? {
            Some(envelopes) => client.envelopes = envelopes,
            None => return Ok(None),
        }
    }
}

/// Returns the compressions of a version.
fn compressions(version: Version) -> &'static [&'static str] {
    match version {
        Version::V5 => &["lz4"],
        _ => &["snappy", "lz4"],
    }
}

impl CqlProtocol {
    /// Returns the versions that the proxy speaks, in the form in which drivers look for them.
    fn versions(&self) -> &'static str {
        match self.state.nature.newest {
            Version::V5 => "4/v4, 5/v5",
            _ => "4/v4",
        }
    }

    /// Answers input that is not of the protocol; nothing after it can be understood.
    pub(crate) fn refuse_malformed(&self, client: &mut CqlClient, error: StreamError) {
        let stream = match error {
            StreamError::Envelope(EnvelopeError::Version(number)) => {
                return self.refuse_version(client, number);
            }
            StreamError::Envelope(error) => error.stream(),
            StreamError::Frame(_) | StreamError::Compression(_) => StreamId(0),
        };
        client.refuse(stream, PROTOCOL_ERROR, &error.to_string());
    }

    fn refuse_version(&self, client: &mut CqlClient, number: u8) {
        if client.stage == HandshakeStage::New {
            // A client that knows only newer versions can read this one as well.
            client.version = self.state.nature.newest;
        }
        self.unsupported(client, StreamId(0), number);
    }

    fn unsupported(&self, client: &mut CqlClient, stream: StreamId, number: u8) {
        let versions = self.versions();
        let text = format!(
            "Invalid or unsupported protocol version ({number}); supported versions are ({versions})"
        );
        client.refuse(stream, PROTOCOL_ERROR, &text);
    }

    /// Handles a request of a client that has not begun.
    pub(crate) fn begin(
        &self,
        client: &mut CqlClient,
        header: Header,
        bytes: &Bytes,
    ) -> RequestProgress {
        let (stream, version) = (header.stream, header.version);
        client.version = version;
        if version == Version::V3 || version > self.state.nature.newest {
            if version > self.state.nature.newest {
                client.version = self.state.nature.newest;
            }
            self.unsupported(client, stream, version.number());
            return RequestProgress::Close;
        }
        let body = &bytes[HEADER_LEN..];
        let request = match RequestMessage::decode(Envelope { header, body }) {
            Ok(message) => message.request,
            Err(error) => {
                client.refuse(stream, PROTOCOL_ERROR, &error.to_string());
                return RequestProgress::Close;
            }
        };
        match request {
            Request::Options => {
                self.supported(client, stream);
                RequestProgress::Handled
            }
            Request::Startup(options) => {
                let compression = options
                    .iter()
                    .find(|(name, value)| *name == "COMPRESSION" && !value.is_empty());
                if let Some((_, name)) = compression {
                    client.compression = Compression::of_name(&name.to_ascii_lowercase());
                    if !compressions(version)
                        .iter()
                        .any(|one| one.eq_ignore_ascii_case(name))
                    {
                        let text = format!("Unknown compression algorithm: {name}");
                        client.refuse(stream, PROTOCOL_ERROR, &text);
                        return RequestProgress::Close;
                    }
                }
                self.started(client, stream);
                RequestProgress::Handled
            }
            other => {
                let text = format!(
                    "Unexpected message {:?}, expecting STARTUP or OPTIONS",
                    other.opcode()
                );
                client.refuse(stream, PROTOCOL_ERROR, &text);
                RequestProgress::Close
            }
        }
    }

    fn started(&self, client: &mut CqlClient, stream: StreamId) {
        client.stage = match &self.state.nature.authenticator {
            Some(class) => {
                client.answer(stream, Response::Authenticate(class));
                HandshakeStage::Authenticating
            }
            None => {
                client.answer(stream, Response::Ready);
                client.set_ready(self.limits_of(HandshakeStage::Ready));
                HandshakeStage::Ready
            }
        };
    }

    /// Switches to frames, if the answer to STARTUP has just been sealed.
    pub(crate) fn switch_to_frames(client: &mut CqlClient) {
        if client.stage != HandshakeStage::New
            && client.version >= Version::V5
            && client.framing == Framing::Plain
        {
            client.framing = match client.compression {
                Some(_) => Framing::CompressedFrames,
                None => Framing::Frames,
            };
            client.unpacker.expect(client.framing);
        }
    }

    /// Answers OPTIONS.
    pub(crate) fn supported(&self, client: &mut CqlClient, stream: StreamId) {
        let local = &self.known.local;
        let row = local.rows.first();
        let cql = row.and_then(|row| local.text(row, "cql_version"));
        let options = vec![
            ("COMPRESSION", compressions(client.version).to_vec()),
            ("CQL_VERSION", vec![cql.unwrap_or("3.4.5")]),
            ("PROTOCOL_VERSIONS", self.versions().split(", ").collect()),
        ];
        client.answer(stream, Response::Supported(options));
    }

    /// Handles a request of a client that must authenticate.
    pub(crate) fn identify(
        &mut self,
        client: &mut CqlClient,
        header: Header,
        bytes: Bytes,
        context: &mut RequestContext<'_>,
    ) -> RequestProgress {
        match header.opcode {
            Opcode::Options => {
                self.supported(client, header.stream);
                return RequestProgress::Handled;
            }
            Opcode::AuthResponse => {}
            other => {
                let text = format!("Unexpected message {other:?}, expecting AUTH_RESPONSE");
                client.refuse(header.stream, PROTOCOL_ERROR, &text);
                return RequestProgress::Close;
            }
        }
        if let Err(error) = RequestMessage::decode(envelope(header, &bytes)) {
            client.refuse(header.stream, PROTOCOL_ERROR, &error.to_string());
            return RequestProgress::Close;
        }
        if self.logins >= MOST_LOGINS {
            return RequestProgress::PutBack(header, bytes, InputProgress::AwaitsRoom);
        }
        let Some(node) = self.any_node(context) else {
            return RequestProgress::PutBack(header, bytes, InputProgress::AwaitsRoom);
        };
        // A connection of the client's own: no client authenticates on a shared one.
        let connection_key = connection_key::login(client.version, client.id);
        self.begin_login(client, node, connection_key);
        client.awaits_reply = true;
        let dispatch = Dispatch {
            sequence: Task::Login.sequence(header.stream),
            part: 0,
            node,
            connection_key,
            replies: 1,
            safe: true,
            route: ReplyTimeLimit::Rows.timeouts(),
            connection: None,
        };
        context.send(dispatch, bytes);
        RequestProgress::Handled
    }

    /// Handles a node's answer to a client that authenticates.
    pub(crate) fn logged_in(
        &mut self,
        client: &mut CqlClient,
        query: &BackendQuery,
        header: Header,
        bytes: Bytes,
        context: &mut RequestContext<'_>,
    ) {
        let (_, stream) = Task::of(query.sequence);
        client.awaits_reply = false;
        self.end_login(client, context);
        match header.opcode {
            Opcode::AuthSuccess => {
                let request = header_of(&query.bytes, Direction::Request)
                    .map(|header| RequestMessage::decode(envelope(header, &query.bytes)));
                if let Some(Ok(message)) = request
                    && let Request::AuthResponse(token) = message.request
                {
                    let class = self.state.nature.authenticator.as_deref();
                    let token = token.unwrap_or_default();
                    let credential = Credential::accepted(token, class.unwrap_or_default());
                    self.state.options.connection_keys.hold(&credential);
                    client.set_credential(credential);
                    client.set_ready(self.limits_of(HandshakeStage::Ready));
                }
                client.gathered.put(stream, bytes);
            }
            Opcode::AuthChallenge => {
                let text = "the proxy passes on one answer to a node, and the node asks for more: \
                            use PasswordAuthenticator";
                client.refuse(stream, cql::response::AUTHENTICATION_ERROR, text);
            }
            _ => client.gathered.put(stream, bytes),
        }
    }

    /// Gives a client a connection of its own on which it authenticates.
    pub(crate) fn begin_login(
        &mut self,
        client: &mut CqlClient,
        node: NodeIndex,
        connection_key: ConnectionKey,
    ) {
        client.login = Some((node, connection_key));
        self.logins += 1;
    }

    /// Closes the connection on which a client has authenticated.
    pub(crate) fn end_login(&mut self, client: &mut CqlClient, context: &mut RequestContext<'_>) {
        if let Some((node, connection_key)) = client.login.take() {
            self.logins -= 1;
            context.hang_up(node, connection_key);
        }
    }
}
