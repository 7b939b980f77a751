//! The state of a thread for its clients, and the steps in which it serves them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cql::envelope::write_envelope;
use cql::{Flags, Header, Limits, Opcode, StreamId};

use super::client::{Client, Step};
use super::handshake;
use super::suspect_nodes::SuspectNodes;
use super::topology::Topology;
use super::topology_refresher::State;
use crate::locks::pending_requests::PendingRequests;
use crate::runtime::out_batch::OutBatch;
use crate::runtime::protocol::{ClientProtocol, LockReply, Progress, RequestContext};
use crate::runtime::query::{ClientId, NodeIndex, Reply};

/// The limit, in bytes, of replies that a client has not taken; beyond it the client is not read from.
/// Drivers read all the time, and bound how many requests are under way: a client that does not read is
/// broken, or hostile.
const UNREAD: usize = 1 << 20;

/// The longest body of a request in the handshake.
const STRANGERS: usize = 16 * 1024;

/// See the module documentation.
pub(crate) struct CqlProtocol {
    pub(crate) state: Arc<State>,
    pub(crate) known: Arc<Topology>,
    version: u64,
    /// The agreements and the changes of the schema that this thread has seen.
    agreements: u64,
    seen: u64,
    /// Changes of the schema that clients are to be told.
    changes: Vec<Bytes>,
    agreed: u64,
    pub(crate) avoided: SuspectNodes,
    /// Clients that are authenticating with a node, on connections of their own.
    pub(crate) logins: usize,
    /// Chooses nodes in turn.
    pub(crate) turn: usize,
    /// The nodes for the current request; empty: any node.
    pub(crate) replicas: Vec<NodeIndex>,
    /// Requests that wait for the locks.
    pub(crate) lock_replies: PendingRequests,
}

/// The result of one request.
pub(crate) enum Done {
    /// It is answered, or on its way.
    Taken,
    /// It is put back, and read again later.
    Not(Header, Bytes, Progress),
    /// It is answered, and later requests are not.
    Last,
}

/// The purpose of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Its reply is the client's reply.
    Request,
    /// Its reply is the client's reply, and the statement is to be remembered.
    Prepare,
    /// It prepares the statement of a parked request with a node.
    PrepareAgain,
    /// It checks if a keyspace exists.
    Use,
    /// The client authenticates.
    Login,
}

impl Task {
    /// Returns the number of a query with this task whose reply has this stream.
    pub(crate) fn sequence(self, stream: StreamId) -> u64 {
        u64::from(stream.0.cast_unsigned()) | (self as u64) << 16
    }

    /// Returns the task and the stream of a number.
    pub(crate) fn of(sequence: u64) -> (Task, StreamId) {
        let tasks = [
            Task::Request,
            Task::Prepare,
            Task::PrepareAgain,
            Task::Use,
            Task::Login,
        ];
        let task = tasks[(sequence >> 16) as usize];
        (task, StreamId((sequence as u16).cast_signed()))
    }
}

impl ClientProtocol for CqlProtocol {
    type Client = Client;

    fn admit(&mut self, id: ClientId, _: SocketAddr) -> Client {
        self.lock_replies.are_of(id.thread);
        Client::new(id, self.limits_of(Step::New))
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.state.setting.limits.greeting)
    }

    fn has_begun(&self, client: &Client) -> bool {
        client.step == Step::Welcome
    }

    fn is_midway(&self, client: &Client, rest: &BytesMut) -> bool {
        !rest.is_empty() || client.unpacker.in_large_envelope()
    }

    fn read(
        &mut self,
        client: &mut Client,
        input: &mut BytesMut,
        context: &mut RequestContext<'_>,
    ) -> Progress {
        loop {
            if client.alone {
                return Progress::AwaitsReply;
            }
            let limits = self.limits_of(client.step);
            let (header, bytes) = match handshake::next(client, input, &limits) {
                Ok(Some(request)) => request,
                Ok(None) => return Progress::Done,
                Err(error) => {
                    self.not_understood(client, error);
                    return Progress::Close;
                }
            };
            let done = match client.step {
                Step::New => {
                    let done = self.begin(client, header, &bytes);
                    self.seal(client, context.out);
                    done
                }
                Step::Unknown => self.identify(client, header, bytes, context),
                Step::Welcome => self.request(client, header, bytes, context),
            };
            match done {
                Done::Taken => {}
                Done::Not(header, bytes, progress) => {
                    client.put_back = Some((header, bytes));
                    return progress;
                }
                Done::Last => return Progress::Close,
            }
        }
    }

    fn reply(&mut self, client: &mut Client, reply: Reply, context: &mut RequestContext<'_>) {
        match reply.result {
            Ok(answer) => self.answered(client, reply.query, answer.bytes, context),
            Err(failure) => self.failed(client, reply.query, &failure, context),
        }
    }

    fn gone(&mut self, client: &mut Client, context: &mut RequestContext<'_>) {
        self.end_login(client, context);
        if let Some(credential) = client.credential.take() {
            self.state.options.connection_keys.release(&credential);
        }
        self.forget_locks(client);
    }

    fn collect(&mut self, into: &mut Vec<LockReply>) {
        let locks = self.state.setting.keeping.locks.as_deref();
        self.lock_replies.collect(locks, into);
    }

    fn has_lock_replies(&self) -> bool {
        let locks = self.state.setting.keeping.locks.as_deref();
        self.lock_replies.has_some(locks)
    }

    fn deliver(&mut self, client: &mut Client, lock_reply: LockReply, _: &mut RequestContext<'_>) {
        CqlProtocol::deliver_lock_reply(client, &lock_reply);
    }

    fn refresh(&mut self, _: Duration) {
        let version = self
            .state
            .version
            .load(std::sync::atomic::Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.known = self.state.known();
        }
        let agreements = self.state.agreements();
        if agreements != self.agreements {
            self.agreements = agreements;
            self.agreed = self.state.agreed();
            (self.seen, self.changes) = self.state.changes_since(self.seen);
        }
    }

    fn has_news(&self) -> bool {
        self.state.agreements() != self.agreements
    }

    fn tell(&mut self, client: &mut Client, context: &mut RequestContext<'_>) {
        if client.registered {
            for body in &self.changes {
                let header = Header {
                    version: client.version,
                    flags: Flags::default(),
                    stream: StreamId::EVENTS,
                    opcode: Opcode::Event,
                    body_len: 0,
                };
                let mut bytes = Vec::new();
                write_envelope(&mut bytes, header, |out| out.extend_from_slice(body));
                client.gathered.put(StreamId::EVENTS, bytes.into());
            }
        }
        for held in std::mem::take(&mut client.held) {
            if held.number <= self.agreed {
                *context.under_way -= 1;
                client.gathered.put(held.stream, held.envelope);
            } else {
                client.held.push(held);
            }
        }
    }

    fn seal(&mut self, client: &mut Client, out: &mut OutBatch) {
        let compression = client.compression;
        client.gathered.seal(client.framing, compression, out);
        CqlProtocol::frames_follow(client);
    }

    fn unread(&self) -> usize {
        UNREAD
    }

    fn refusal(&self) -> &'static [u8] {
        // ERROR of version 4, stream 0: overloaded.
        b"\x84\0\0\0\0\0\0\0\x20\0\0\x10\x01\0\x1atoo many clients connected"
    }
}

impl CqlProtocol {
    pub(crate) fn new(state: Arc<State>) -> CqlProtocol {
        let agreements = state.agreements();
        CqlProtocol {
            version: state.version.load(std::sync::atomic::Ordering::Acquire),
            known: state.known(),
            agreements,
            seen: state.changes_since(u64::MAX).0,
            changes: Vec::new(),
            agreed: state.agreed(),
            avoided: SuspectNodes::new(Arc::clone(&state.setting.nodes)),
            logins: 0,
            turn: 0,
            replicas: Vec::new(),
            lock_replies: PendingRequests::default(),
            state,
        }
    }

    /// Returns how long a request may be in this stage of the handshake.
    pub(crate) fn limits_of(&self, step: Step) -> Limits {
        let most = self.state.setting.limits.envelope;
        let body = match step {
            Step::Welcome => most,
            Step::New | Step::Unknown => most.min(STRANGERS),
        };
        Limits { body }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod tests;
