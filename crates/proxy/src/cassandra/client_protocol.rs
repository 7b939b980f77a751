//! The steps in which a thread serves its clients, for the runtime.
//!
//! | call of the runtime | module that does the work |
//! |---|---|
//! | `read`: a client's bytes | [`handshake`](super::handshake) finds requests; [`requests`](super::requests) |
//! | `reply`: a node's answer | [`replies`](super::replies) |
//! | `deliver`: a reply of the locks | [`lock_requests`](super::lock_requests) |
//! | `refresh`, `deliver_notices`: news of the topology and the schema | this |

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use cql::envelope::write_envelope;
use cql::{Flags, Header, Opcode, StreamId};

use super::client::{CqlClient, HandshakeStage};
use super::handshake;
use super::protocol::{CqlProtocol, RequestProgress};
use crate::locks::LockOutcome;
use crate::locks::pending_requests::LockReply;
use crate::runtime::out_batch::OutBatch;
use crate::runtime::protocol::{ClientProtocol, InputProgress, RequestContext};
use crate::runtime::query::{BackendReply, ClientId};

/// The limit, in bytes, of replies that a client has not taken; beyond it the client is not read from.
/// Drivers read all the time, and bound how many requests are under way: a client that does not read is
/// broken, or hostile.
const UNREAD: usize = 1 << 20;

impl ClientProtocol for CqlProtocol {
    type Client = CqlClient;
    type Outcome = LockOutcome;

    fn admit(&mut self, id: ClientId, _: SocketAddr) -> CqlClient {
        self.lock_replies.are_of(id.thread);
        CqlClient::new(id, self.limits_of(HandshakeStage::New))
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.state.setting.limits.greeting)
    }

    fn has_begun(&self, client: &CqlClient) -> bool {
        client.stage == HandshakeStage::Ready
    }

    fn is_midway(&self, client: &CqlClient, rest: &BytesMut) -> bool {
        !rest.is_empty() || client.unpacker.in_large_envelope()
    }

    fn read(
        &mut self,
        client: &mut CqlClient,
        input: &mut BytesMut,
        context: &mut RequestContext<'_>,
    ) -> InputProgress {
        loop {
            if client.awaits_reply {
                return InputProgress::AwaitsReply;
            }
            let limits = self.limits_of(client.stage);
            let (header, bytes) = match handshake::next(client, input, &limits) {
                Ok(Some(request)) => request,
                Ok(None) => return InputProgress::Done,
                Err(error) => {
                    self.refuse_malformed(client, error);
                    return InputProgress::Close;
                }
            };
            let done = match client.stage {
                HandshakeStage::New => {
                    let done = self.begin(client, header, &bytes);
                    self.seal(client, context.out);
                    done
                }
                HandshakeStage::Authenticating => self.identify(client, header, bytes, context),
                HandshakeStage::Ready => self.request(client, header, bytes, context),
            };
            match done {
                RequestProgress::Handled => {}
                RequestProgress::PutBack(header, bytes, progress) => {
                    client.put_back = Some((header, bytes));
                    return progress;
                }
                RequestProgress::Close => return InputProgress::Close,
            }
        }
    }

    fn reply(
        &mut self,
        client: &mut CqlClient,
        reply: BackendReply,
        context: &mut RequestContext<'_>,
    ) {
        match reply.result {
            Ok(answer) => self.answered(client, reply.query, answer.bytes, context),
            Err(failure) => self.failed(client, reply.query, &failure, context),
        }
    }

    fn gone(&mut self, client: &mut CqlClient, context: &mut RequestContext<'_>) {
        self.end_login(client, context);
        if let Some(credential) = client.credential.take() {
            self.state.options.connection_keys.release(&credential);
        }
        self.forget_locks(client);
    }

    fn collect(&mut self, _: Duration, into: &mut Vec<LockReply>) {
        let locks = self.state.setting.lock_tables.locks.as_deref();
        self.lock_replies.collect(locks, into);
    }

    fn has_deferred_replies(&self) -> bool {
        let locks = self.state.setting.lock_tables.locks.as_deref();
        self.lock_replies.has_some(locks)
    }

    fn deliver(
        &mut self,
        client: &mut CqlClient,
        lock_reply: LockReply,
        _: &mut RequestContext<'_>,
    ) {
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

    fn has_notices(&self) -> bool {
        self.state.agreements() != self.agreements
    }

    fn deliver_notices(&mut self, client: &mut CqlClient, context: &mut RequestContext<'_>) {
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

    fn seal(&mut self, client: &mut CqlClient, out: &mut OutBatch) {
        let compression = client.compression;
        client.gathered.seal(client.framing, compression, out);
        CqlProtocol::switch_to_frames(client);
    }

    fn unread(&self) -> usize {
        UNREAD
    }

    fn refusal(&self) -> &'static [u8] {
        // ERROR of version 4, stream 0: overloaded.
        b"\x84\0\0\0\0\0\0\0\x20\0\0\x10\x01\0\x1atoo many clients connected"
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod tests;
