//! The beginning of a connection: peers authenticate, and then agree on the way of messages. If the connection is
//! encrypted, the bytes from step 5 on are contents of records, which the caller seals and opens.
//!
//! | step | from | frame | says |
//! |---|---|---|---|
//! | 1–4 | | | the [`handshake`](crate::handshake); if no way besides TCP is known to both, this is all |
//! | 5 | initiator | mailbox | where the acceptor can write to it |
//! | 6 | acceptor | mailbox | it could open that, and where the initiator can write; empty: it could not |
//! | 7 | initiator | ready | 1: it could open that, too, and messages go that way from here on; else 0 |
//!
//! After an empty mailbox frame, the initiator tries the next way that both know, from step 5 on;
//! after the last one it sends 0. The peers find out by trying if they see the same memory: a file
//! of a random name that has the right key in it can be no other. The acceptor writes nothing
//! before step 7: a device of the initiator may not be ready.

use base::NodeId;
use base::memory::WORD;

use super::link_error::MailboxError;
use super::link_memory::{LinkOffer, LinkStream, ways_for};
use super::options::{Transport, TransportLimits};
use crate::cipher::Cipher;
use crate::frame::{Frame, TransportSet};
use crate::handshake::{AuthenticatedPeer, ConnectionTerms, Handshake, HandshakeRefusal, Identity};
use crate::memory::{Grant, RegionKind};
use crate::ring::CONTROL;
use crate::send_receive::ReceiveDepth;
use crate::shm::Shm;
use crate::verbs::Domain;

/// The abilities of this side besides TCP.
#[derive(Clone, Debug)]
pub(super) struct LocalTransports {
    transport: Transport,
    shm: Shm,
    verbs: Option<Domain>,
    /// The number of words of a mailbox.
    mailbox: usize,
    /// The places of a link by Send and Receive.
    receives: ReceiveDepth,
}

impl LocalTransports {
    pub(super) fn new(
        transport: Transport,
        shm: &Shm,
        verbs: Option<&Domain>,
        limits: &TransportLimits,
    ) -> LocalTransports {
        LocalTransports {
            transport,
            shm: shm.clone(),
            verbs: verbs.cloned(),
            mailbox: CONTROL + limits.ring / WORD / 2 * 2,
            receives: ReceiveDepth::of(limits.ring),
        }
    }

    /// Returns the ways besides TCP on which messages may travel.
    pub(super) fn ways(&self) -> TransportSet {
        let verbs = match self.verbs {
            Some(_) => TransportSet::VERBS,
            None => TransportSet::NONE,
        };
        match self.transport {
            Transport::Tcp => TransportSet::NONE,
            Transport::Auto
            | Transport::Shm
            | Transport::Verbs
            | Transport::ShmSend
            | Transport::VerbsSend => {
                let memory = TransportSet::SHM.or(verbs);
                memory.or(TransportSet::SEND_RECEIVE)
            }
        }
    }

    /// Returns the kinds of memory that are tried for a link made here, in reverse order.
    fn kinds(&self, known: TransportSet) -> Vec<RegionKind> {
        let wanted: &[RegionKind] = match self.transport {
            Transport::Tcp => &[],
            Transport::Auto => &[RegionKind::Verbs, RegionKind::Shm],
            Transport::Shm => &[RegionKind::Shm],
            Transport::Verbs => &[RegionKind::Verbs],
            Transport::ShmSend => &[RegionKind::ShmReceives],
            Transport::VerbsSend => &[RegionKind::VerbsReceives],
        };
        let is_known = |kind: &&RegionKind| known.contains(ways_for(**kind));
        wanted.iter().filter(is_known).copied().collect()
    }

    fn mailbox(&self, kind: RegionKind) -> Result<LinkOffer, MailboxError> {
        let made = match (kind, &self.verbs) {
            (RegionKind::Shm, _) => LinkOffer::shm(&self.shm, self.mailbox),
            (RegionKind::ShmReceives, _) => LinkOffer::shm_receives(&self.shm, self.receives),
            (RegionKind::Verbs, Some(domain)) => LinkOffer::verbs(domain, self.mailbox),
            (RegionKind::VerbsReceives, Some(domain)) => {
                LinkOffer::verbs_receives(domain, self.receives)
            }
            (RegionKind::Verbs | RegionKind::VerbsReceives, None) => {
                return Err(MailboxError::NoDevice);
            }
        };
        Ok(made?)
    }

    /// Makes rings over the mailbox that the peer has named and one of this side. Returns them with
    /// the grant for the latter.
    fn accept(&self, peer: &Grant) -> Result<(LinkStream, Grant), MailboxError> {
        let near = self.mailbox(peer.kind())?;
        let own = near.grant();
        Ok((near.connect(peer)?, own))
    }
}

/// One side of the beginning: it takes the bytes that arrive, and returns those to be sent.
#[derive(Debug)]
pub(super) struct Negotiation {
    initiates: bool,
    stage: NegotiationStage,
    /// Kinds of memory that the initiator has not tried yet; the last one is the next.
    untried: Vec<RegionKind>,
}

#[derive(Debug)]
enum NegotiationStage {
    Handshake(Handshake),
    /// The peer has authenticated, and nothing has followed.
    Authenticated(AuthenticatedPeer),
    /// The initiator has sent the grant for its mailbox.
    Offered(AuthenticatedPeer, Box<LinkOffer>),
    /// The acceptor waits for that.
    Waiting(AuthenticatedPeer),
    /// The acceptor has answered, possibly with a mailbox of its own.
    Answered(AuthenticatedPeer, Option<Box<LinkStream>>),
}

/// What follows in a negotiation.
#[derive(Debug)]
pub(super) enum NegotiationStep {
    /// More bytes are needed.
    Incomplete,
    /// The bytes that follow are records, in both directions. The caller goes on with their contents, and at
    /// first with none.
    Encrypted(Box<Cipher>),
    /// The bytes that follow are messages.
    Complete(Negotiated),
}

/// The result of a negotiation: the identity of the peer, and rings if messages travel through them.
#[derive(Debug)]
pub(super) struct Negotiated {
    pub(super) proved: AuthenticatedPeer,
    pub(super) rings: Option<Box<LinkStream>>,
}

impl Negotiation {
    /// See [`Handshake::initiate`].
    pub(super) fn initiate(
        identity: &Identity,
        wanted: Option<NodeId>,
        terms: ConnectionTerms,
        out: &mut Vec<u8>,
    ) -> Negotiation {
        Negotiation {
            initiates: true,
            stage: NegotiationStage::Handshake(Handshake::initiate(identity, wanted, terms, out)),
            untried: Vec::new(),
        }
    }

    /// Waits for a peer to begin a connection.
    pub(super) fn accept(terms: ConnectionTerms) -> Negotiation {
        Negotiation {
            initiates: false,
            stage: NegotiationStage::Handshake(Handshake::accept(terms)),
            untried: Vec::new(),
        }
    }

    /// Goes on with the bytes that have arrived, and returns how many of them were used, and what follows.
    ///
    /// # Errors
    /// Returns an error if there will be no link. If it was refused here, the output ends with the
    /// refusal.
    pub(super) fn advance(
        &mut self,
        identity: &Identity,
        transports: &LocalTransports,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, NegotiationStep), HandshakeRefusal> {
        let mut used = 0;
        if let NegotiationStage::Handshake(handshake) = &mut self.stage {
            let (len, proved) = handshake.advance(identity, input, out)?;
            used = len;
            let Some(proved) = proved else {
                return Ok((used, NegotiationStep::Incomplete));
            };
            let stage = NegotiationStage::Authenticated(proved);
            let before = std::mem::replace(&mut self.stage, stage);
            if let (true, NegotiationStage::Handshake(handshake)) = (proved.encrypted, before) {
                let cipher = handshake.into_cipher().expect("the handshake has ended");
                return Ok((used, NegotiationStep::Encrypted(Box::new(cipher))));
            }
        }
        if let NegotiationStage::Authenticated(proved) = self.stage
            && let Some(negotiated) = with_refusal_frame(self.proved(proved, transports, out), out)?
        {
            return Ok((used, NegotiationStep::Complete(negotiated)));
        }
        loop {
            let (frame, len) = match Frame::decode(&input[used..]) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok((used, NegotiationStep::Incomplete)),
                Err(flaw) => return with_refusal_frame(Err(HandshakeRefusal::flaw(flaw)), out),
            };
            used += len;
            if let Some(negotiated) = with_refusal_frame(self.agree(frame, transports, out), out)? {
                return Ok((used, NegotiationStep::Complete(negotiated)));
            }
        }
    }

    /// Goes on after the peer has authenticated.
    fn proved(
        &mut self,
        proved: AuthenticatedPeer,
        transports: &LocalTransports,
        out: &mut Vec<u8>,
    ) -> Result<Option<Negotiated>, HandshakeRefusal> {
        let agrees = proved.ways != TransportSet::NONE;
        if !self.initiates {
            self.stage = NegotiationStage::Waiting(proved);
            return Ok((!agrees).then_some(Negotiated {
                proved,
                rings: None,
            }));
        }
        if !agrees {
            let negotiated = self.over_tcp(proved, transports, &MailboxError::NotOffered);
            return negotiated.map(Some);
        }
        self.untried = transports.kinds(usable(&proved));
        let why = match proved.encrypted && transports.transport.needs_device() {
            true => MailboxError::Encrypted,
            false => MailboxError::NotOffered,
        };
        self.offer(proved, transports, why, out)
    }

    /// Offers the next way; `why` is the reason why the previous one has failed.
    fn offer(
        &mut self,
        proved: AuthenticatedPeer,
        transports: &LocalTransports,
        mut why: MailboxError,
        out: &mut Vec<u8>,
    ) -> Result<Option<Negotiated>, HandshakeRefusal> {
        while let Some(kind) = self.untried.pop() {
            match transports.mailbox(kind) {
                Ok(mailbox) => {
                    Frame::Mailbox(Some(mailbox.grant())).encode(out);
                    self.stage = NegotiationStage::Offered(proved, Box::new(mailbox));
                    return Ok(None);
                }
                Err(error) => why = error,
            }
        }
        let negotiated = self.over_tcp(proved, transports, &why)?;
        Frame::Ready(false).encode(out);
        Ok(Some(negotiated))
    }

    /// Returns the initiator's result if there is no shared memory.
    fn over_tcp(
        &self,
        proved: AuthenticatedPeer,
        transports: &LocalTransports,
        why: &MailboxError,
    ) -> Result<Negotiated, HandshakeRefusal> {
        match transports.transport {
            transport if transport.needs_device() && transports.verbs.is_none() => {
                let why = &"none was opened on this side";
                return Err(HandshakeRefusal::transport("an RDMA device", why));
            }
            Transport::Shm => return Err(HandshakeRefusal::transport("shared memory", why)),
            Transport::Verbs => return Err(HandshakeRefusal::transport("an RDMA device", why)),
            Transport::ShmSend => {
                let what = "Send and Receive in shared memory";
                return Err(HandshakeRefusal::transport(what, why));
            }
            Transport::VerbsSend => {
                let what = "Send and Receive of an RDMA device";
                return Err(HandshakeRefusal::transport(what, why));
            }
            Transport::Auto | Transport::Tcp => {}
        }
        if transports.transport == Transport::Auto {
            tracing::debug!(peer = ?proved.peer, %why, "no shared memory with a peer");
        }
        Ok(Negotiated {
            proved,
            rings: None,
        })
    }

    fn agree(
        &mut self,
        frame: Frame,
        transports: &LocalTransports,
        out: &mut Vec<u8>,
    ) -> Result<Option<Negotiated>, HandshakeRefusal> {
        let proved = match self.stage {
            NegotiationStage::Offered(proved, _)
            | NegotiationStage::Waiting(proved)
            | NegotiationStage::Answered(proved, _) => proved,
            NegotiationStage::Handshake(_) | NegotiationStage::Authenticated(_) => {
                unreachable!("they have ended")
            }
        };
        let stage = std::mem::replace(&mut self.stage, NegotiationStage::Waiting(proved));
        match (stage, frame) {
            (_, Frame::Refusal(code, text)) => Err(HandshakeRefusal {
                code,
                text,
                here: false,
            }),
            (
                NegotiationStage::Waiting(_) | NegotiationStage::Answered(..),
                Frame::Mailbox(Some(grant)),
            ) => {
                let accepted = match usable(&proved).contains(ways_for(grant.kind())) {
                    false => Err(MailboxError::NotOffered),
                    true => transports.accept(&grant),
                };
                if let Err(why) = &accepted {
                    tracing::debug!(peer = ?proved.peer, %why, "no memory is shared with a peer");
                }
                let (rings, own) = accepted.ok().unzip();
                Frame::Mailbox(own).encode(out);
                self.stage = NegotiationStage::Answered(proved, rings.map(Box::new));
                Ok(None)
            }
            (NegotiationStage::Offered(_, near), Frame::Mailbox(grant)) => {
                let grant = grant.ok_or(MailboxError::NotSeen);
                match grant.and_then(|grant| near.connect(&grant)) {
                    Ok(rings) => {
                        Frame::Ready(true).encode(out);
                        Ok(Some(through(proved, Box::new(rings))))
                    }
                    Err(why) => self.offer(proved, transports, why, out),
                }
            }
            (NegotiationStage::Answered(_, Some(rings)), Frame::Ready(true)) => {
                Ok(Some(through(proved, rings)))
            }
            (
                NegotiationStage::Waiting(_) | NegotiationStage::Answered(..),
                Frame::Ready(false),
            ) => Ok(Some(Negotiated {
                proved,
                rings: None,
            })),
            _ => Err(HandshakeRefusal::garbage()),
        }
    }
}

/// Returns the ways besides TCP on which the peers may exchange messages: a device sends them as they are.
fn usable(proved: &AuthenticatedPeer) -> TransportSet {
    match proved.encrypted {
        true => proved.ways.without(TransportSet::VERBS),
        false => proved.ways,
    }
}

/// Closes the mailboxes to other processes: both sides have what they need of each other.
fn through(proved: AuthenticatedPeer, mut rings: Box<LinkStream>) -> Negotiated {
    rings.close_to_others();
    Negotiated {
        proved,
        rings: Some(rings),
    }
}

/// Sends a refusal to the peer.
fn with_refusal_frame<T>(
    outcome: Result<T, HandshakeRefusal>,
    out: &mut Vec<u8>,
) -> Result<T, HandshakeRefusal> {
    if let Err(refused) = &outcome
        && refused.here
    {
        refused.frame().encode(out);
    }
    outcome
}
