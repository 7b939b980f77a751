//! A connection to a node that speaks CQL: replies come in any order, each with its stream.
//!
//! A connection begins with STARTUP and, as its connection key requires, authenticates and uses a
//! keyspace; queries wait for that. Clients get a node's error from this phase only if all nodes would
//! give the same: a wrong password, or, if all of them have reported it, a missing keyspace. Any other
//! error concerns this node alone, and another node is asked.
//!
//! Invariants:
//! 1. A stream belongs to one request at a time, and is free when its reply has come; not before, even
//!    if no client waits for the reply any more.
//! 2. A node that answers OPTIONS has more time for a request than its own limits allow: its own
//!    timeout error is more precise than any that the proxy can give.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cql::request::Request;
use cql::response::{AUTHENTICATION_ERROR, INVALID, ResultKind, peek_result_kind};
use cql::{
    Direction, Envelope, Flags, Framing, HEADER_LEN, Header, Limits, Opcode, Response,
    ResponseMessage, StreamId, Unpacker, Version,
};
use slab::Slab;

use super::connection_key::KeyMeaning;
use super::frames::{self, EnvelopeBatch};
use super::merge::{self, Outgoing};
use super::node_connection::{Options, plain_query, quoted, startup};
use crate::runtime::out_batch::OutBatch;
use crate::runtime::query::{BackendAnswer, BackendQuery, ConnectionKey, NodeError};
use crate::runtime::wire::{Wire, WireError};

/// Bytes gathered for one batch to the socket, after which nothing is added: about a frame.
const MOST: usize = 64 * 1024;

/// The start of a node's message that it could not check a password.
const CANNOT_JUDGE: &str = "Unable to perform authentication";

/// Limit of streams for whose replies no client waits any more; beyond it the connection is given up,
/// because there would soon be no streams left for requests.
const MOST_FORGOTTEN: usize = StreamId::COUNT / 2;

/// A request that is under way.
enum InflightRequest {
    /// A query, and the time at which it was put.
    Query(BackendQuery, Duration),
    /// A CQL batch of these queries, and the time at which it was put.
    Merged(Vec<BackendQuery>, Duration),
    /// A request of the proxy's own.
    Own,
    /// Its client has got a timeout.
    Forgotten,
}

/// The request of the greeting that has been sent and not yet been answered, before queries can be put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnectionSetup {
    Startup,
    Login,
    Keyspace,
    Over,
}

/// See the module documentation.
pub(crate) struct CqlWire {
    version: Version,
    meaning: KeyMeaning,
    greeting: ConnectionSetup,
    framing: Framing,
    unpacker: Unpacker,
    /// Requests under way, by stream.
    flights: Slab<InflightRequest>,
    forgotten: usize,
    /// Writes that may be merged; `put` is the time of the last one.
    writes: Vec<BackendQuery>,
    put: Duration,
    /// How many queries there are beyond one for each flight.
    merged: usize,
    /// The time since which too many streams are forgotten.
    spent: Option<Duration>,
    gathered: EnvelopeBatch,
    /// The time at which the unanswered request of the proxy's own was put.
    asked: Option<Duration>,
}

impl Wire for CqlWire {
    type Options = Options;
    const SHARED: bool = true;

    fn open(
        options: &Options,
        connection_key: ConnectionKey,
        _: &mut OutBatch,
        now: Duration,
    ) -> CqlWire {
        let meaning = options.connection_keys.meaning(connection_key);
        let version = match &meaning {
            KeyMeaning::Shared(name) => name.version,
            KeyMeaning::Login(version) => *version,
        };
        let mut wire = CqlWire {
            version,
            meaning,
            greeting: ConnectionSetup::Startup,
            framing: Framing::Plain,
            unpacker: Unpacker::new(Direction::Response, Limits::default()),
            flights: Slab::new(),
            forgotten: 0,
            writes: Vec::new(),
            put: now,
            merged: 0,
            spent: None,
            gathered: EnvelopeBatch::default(),
            asked: Some(now),
        };
        wire.queue_request(Request::Startup(startup()));
        wire
    }

    fn has_room(&self) -> bool {
        self.greeting == ConnectionSetup::Over
            // Writes that were merged may have to be sent one by one.
            && self.flights.len() + self.merged + self.writes.len() < StreamId::COUNT
            && self.gathered.len() < MOST
    }

    fn is_welcome(&self) -> bool {
        self.greeting == ConnectionSetup::Over
    }

    fn put(&mut self, query: BackendQuery, _: &mut OutBatch, now: Duration) {
        if merge::may_merge(&query) {
            self.put = now;
            return self.writes.push(query);
        }
        self.put_alone(query, now);
    }

    fn seal(&mut self, pack: &mut OutBatch) {
        self.put_writes();
        self.gathered.seal(self.framing, None, pack);
    }

    fn may_ask(&self) -> bool {
        self.asked.is_none() && self.flights.len() < StreamId::COUNT
    }

    fn probe(&mut self, _: &mut OutBatch, now: Duration) {
        self.asked = Some(now);
        self.queue_request(Request::Options);
    }

    fn receive(
        &mut self,
        input: &mut BytesMut,
        told: &mut dyn FnMut(BackendQuery, BackendAnswer),
    ) -> Result<(), WireError> {
        let nonsense = |error: cql::StreamError| WireError::Nonsense(error.to_string());
        while let Some(mut envelopes) = frames::take(&mut self.unpacker, input).map_err(nonsense)? {
            while let Some((header, envelope)) = frames::next(&mut envelopes, Direction::Response) {
                self.one(header, envelope, told)?;
            }
        }
        Ok(())
    }

    fn under_way(&self) -> usize {
        self.flights.len() - self.forgotten + self.merged + self.writes.len()
    }

    fn oldest(&self) -> Option<Duration> {
        [self.asked, self.spent].into_iter().flatten().min()
    }

    fn give_up_late(
        &mut self,
        now: Duration,
        timeout: Duration,
        given_up: &mut dyn FnMut(BackendQuery, NodeError),
    ) {
        for (_, flight) in &mut self.flights {
            let (first, since) = match flight {
                InflightRequest::Query(query, since) => (&*query, *since),
                InflightRequest::Merged(queries, since) => (&queries[0], *since),
                InflightRequest::Own | InflightRequest::Forgotten => continue,
            };
            let limit = timeout.saturating_mul(first.route);
            if now < since + limit {
                continue;
            }
            self.forgotten += 1;
            match std::mem::replace(flight, InflightRequest::Forgotten) {
                InflightRequest::Query(query, _) => given_up(query, NodeError::Unanswered(limit)),
                InflightRequest::Merged(queries, _) => {
                    self.merged -= queries.len() - 1;
                    for query in queries {
                        given_up(query, NodeError::Unanswered(limit));
                    }
                }
                InflightRequest::Own | InflightRequest::Forgotten => {}
            }
        }
        if self.forgotten >= MOST_FORGOTTEN {
            self.spent.get_or_insert(now);
        }
    }

    fn abandon(&mut self, given_up: &mut dyn FnMut(BackendQuery)) {
        for flight in self.flights.drain() {
            match flight {
                InflightRequest::Query(query, _) => given_up(query),
                InflightRequest::Merged(queries, _) => queries.into_iter().for_each(&mut *given_up),
                InflightRequest::Own | InflightRequest::Forgotten => {}
            }
        }
        self.merged = 0;
        self.writes.drain(..).for_each(given_up);
    }
}

impl CqlWire {
    /// Gathers a request of the proxy's own.
    fn queue_request(&mut self, request: Request<'_>) {
        let stream = StreamId(self.flights.insert(InflightRequest::Own) as i16);
        let mut envelope = Vec::new();
        let message = request.into_message();
        message.write(&mut envelope, self.version, stream, Flags::default());
        self.gathered.put(stream, envelope.into());
    }

    /// Handles one envelope of the node.
    fn one(
        &mut self,
        header: Header,
        envelope: Bytes,
        told: &mut dyn FnMut(BackendQuery, BackendAnswer),
    ) -> Result<(), WireError> {
        if header.stream == StreamId::EVENTS {
            return Ok(());
        }
        let stream = usize::try_from(header.stream.0).ok();
        let Some(flight) = stream.and_then(|stream| self.flights.try_remove(stream)) else {
            let what = format!(
                "a reply on stream {}, which no request waits for",
                header.stream
            );
            return Err(WireError::Nonsense(what));
        };
        let body = &envelope[HEADER_LEN..];
        if let InflightRequest::Own = flight {
            return self.setup_reply(Envelope { header, body });
        }
        // A connection that uses another keyspace from now on must not be used by other clients.
        let spoilt = header.opcode == Opcode::Result
            && peek_result_kind(&Envelope { header, body }) == Ok(ResultKind::SetKeyspace);
        match flight {
            InflightRequest::Query(query, _) => {
                let answer = BackendAnswer {
                    bytes: envelope,
                    earlier_error: None,
                };
                told(query, answer);
            }
            InflightRequest::Merged(queries, since) => {
                self.merged_reply(header, &envelope, queries, since, told)
            }
            _ => self.drop_late_reply(),
        }
        match spoilt {
            true => Err(WireError::Spoilt("it uses another keyspace".to_owned())),
            false => Ok(()),
        }
    }

    /// Puts a query that is not merged.
    fn put_alone(&mut self, query: BackendQuery, now: Duration) {
        let envelope = query.bytes.clone();
        let stream = self.flights.insert(InflightRequest::Query(query, now));
        self.gathered.put(StreamId(stream as i16), envelope);
    }

    /// Puts the writes that may be merged.
    fn put_writes(&mut self) {
        if self.writes.is_empty() {
            return;
        }
        let now = self.put;
        for parcel in merge::parcels(std::mem::take(&mut self.writes), self.version) {
            match parcel {
                Outgoing::Alone(query) => self.put_alone(query, now),
                Outgoing::Together(queries, batch) => {
                    self.merged += queries.len() - 1;
                    let stream = self.flights.insert(InflightRequest::Merged(queries, now));
                    self.gathered.put(StreamId(stream as i16), batch);
                }
            }
        }
    }

    /// Handles the reply to a batch of merged writes.
    fn merged_reply(
        &mut self,
        header: Header,
        envelope: &Bytes,
        queries: Vec<BackendQuery>,
        since: Duration,
        told: &mut dyn FnMut(BackendQuery, BackendAnswer),
    ) {
        self.merged -= queries.len() - 1;
        let body = &envelope[HEADER_LEN..];
        match merge::meaning(Envelope { header, body }, envelope) {
            merge::BatchOutcome::Each(bytes) => {
                for query in queries {
                    let answer = BackendAnswer {
                        bytes: bytes.clone(),
                        earlier_error: None,
                    };
                    told(query, answer);
                }
            }
            merge::BatchOutcome::Again => {
                for query in queries {
                    self.put_alone(query, since);
                }
            }
        }
    }

    /// Handles a reply for which no client waits: its stream is free.
    fn drop_late_reply(&mut self) {
        self.forgotten -= 1;
        if self.forgotten < MOST_FORGOTTEN {
            self.spent = None;
        }
    }

    /// Handles a reply to a request of the proxy's own.
    fn setup_reply(&mut self, envelope: Envelope<'_>) -> Result<(), WireError> {
        if self.greeting == ConnectionSetup::Over {
            // Any reply shows that the node lives.
            self.asked = None;
            return Ok(());
        }
        let message = ResponseMessage::decode(envelope);
        let response = message
            .map_err(|error| WireError::Nonsense(error.to_string()))?
            .response;
        if let Response::Error(error) = response {
            return Err(self.setup_refused(error.kind.code(), error.message));
        }
        match (self.greeting, &response) {
            (ConnectionSetup::Startup, Response::Ready | Response::Authenticate(_)) => {
                if self.version >= Version::V5 {
                    self.framing = Framing::Frames;
                    self.unpacker.expect_frames();
                }
                self.go_on(matches!(response, Response::Authenticate(_)))
            }
            (ConnectionSetup::Login, Response::AuthSuccess(_)) => self.go_on(false),
            (ConnectionSetup::Keyspace, Response::Result(_)) => {
                self.is_over();
                Ok(())
            }
            (_, other) => Err(WireError::Unready(format!(
                "it answers {:?}",
                other.opcode()
            ))),
        }
    }

    /// Returns the meaning of an error in the greeting.
    fn setup_refused(&self, code: i32, message: &str) -> WireError {
        // Nodes that cannot read their own table of users report that with the same code.
        let is_judged = !message.starts_with(CANNOT_JUDGE);
        match (self.greeting, code) {
            (ConnectionSetup::Login, AUTHENTICATION_ERROR) if is_judged => {
                WireError::Refused(message.to_owned())
            }
            (ConnectionSetup::Keyspace, INVALID) => WireError::Lacks(message.to_owned()),
            _ => WireError::Unready(format!("{message} ({code:#06x})")),
        }
    }

    /// Sends the next request of the greeting, after the node has accepted one.
    fn go_on(&mut self, asks_who: bool) -> Result<(), WireError> {
        let name = match (&self.meaning, asks_who) {
            (KeyMeaning::Login(_), true) => {
                self.is_over();
                return Ok(());
            }
            (KeyMeaning::Login(_), false) => {
                return Err(WireError::Unready("it asks for no password".to_owned()));
            }
            (KeyMeaning::Shared(name), _) => name.clone(),
        };
        if asks_who {
            let Some(credential) = &name.credential else {
                return Err(WireError::Unready("it asks for a password".to_owned()));
            };
            self.greeting = ConnectionSetup::Login;
            self.queue_request(Request::AuthResponse(Some(credential.token())));
        } else if let Some(keyspace) = &name.keyspace {
            self.greeting = ConnectionSetup::Keyspace;
            let text = format!("USE {}", quoted(keyspace));
            self.queue_request(plain_query(&text, self.version));
        } else {
            self.is_over();
        }
        Ok(())
    }

    fn is_over(&mut self) {
        self.greeting = ConnectionSetup::Over;
        self.asked = None;
    }
}

#[cfg(test)]
mod tests;
