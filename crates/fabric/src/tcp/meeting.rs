//! The beginning of a connection: peers authenticate, and then agree on the way of messages.
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

use super::link_memory::{LinkRings, Mailbox, way};
use super::options::{Limits, Transport};
use crate::frame::{Frame, PROOF, Ways};
use crate::handshake::{Handshake, Identity, Proved, Refused};
use crate::memory::{Grant, Kind};
use crate::ring::CONTROL;
use crate::shm::Shm;
use crate::verbs::Domain;

/// The abilities of this side besides TCP.
#[derive(Clone, Debug)]
pub(super) struct Means {
    transport: Transport,
    shm: Shm,
    verbs: Option<Domain>,
    /// The number of words of a mailbox.
    mailbox: usize,
}

impl Means {
    pub(super) fn new(
        transport: Transport,
        shm: &Shm,
        verbs: Option<&Domain>,
        limits: &Limits,
    ) -> Means {
        Means {
            transport,
            shm: shm.clone(),
            verbs: verbs.cloned(),
            mailbox: CONTROL + limits.ring / WORD / 2 * 2,
        }
    }

    /// Returns the ways besides TCP on which messages may travel.
    pub(super) fn ways(&self) -> Ways {
        let verbs = match self.verbs {
            Some(_) => Ways::VERBS,
            None => Ways::NONE,
        };
        match self.transport {
            Transport::Tcp => Ways::NONE,
            Transport::Auto | Transport::Shm | Transport::Verbs => Ways::SHM.or(verbs),
        }
    }

    /// Returns the kinds of memory that are tried for a link made here, in reverse order.
    fn kinds(&self, known: Ways) -> Vec<Kind> {
        let wanted: &[Kind] = match self.transport {
            Transport::Tcp => &[],
            Transport::Auto => &[Kind::Verbs, Kind::Shm],
            Transport::Shm => &[Kind::Shm],
            Transport::Verbs => &[Kind::Verbs],
        };
        let is_known = |kind: &&Kind| known.and(way(**kind)) != Ways::NONE;
        wanted.iter().filter(is_known).copied().collect()
    }

    fn mailbox(&self, kind: Kind) -> Result<Mailbox, String> {
        let made = match (kind, &self.verbs) {
            (Kind::Shm, _) => Mailbox::shm(&self.shm, self.mailbox),
            (Kind::Verbs, Some(domain)) => Mailbox::verbs(domain, self.mailbox),
            (Kind::Verbs, None) => return Err("there is no RDMA device here".into()),
        };
        made.map_err(|error| error.to_string())
    }

    /// Makes rings over the mailbox that the peer has named and one of this side. Returns them with
    /// the grant for the latter.
    fn accept(&self, peer: &Grant) -> Result<(LinkRings, Grant), String> {
        let near = self.mailbox(peer.kind())?;
        let own = near.grant();
        Ok((near.meet(peer)?, own))
    }
}

/// One side of the beginning: it takes the bytes that arrive, and returns those to be sent.
#[derive(Debug)]
pub(super) struct Meeting {
    initiates: bool,
    stage: Stage,
    /// Kinds of memory that the initiator has not tried yet; the last one is the next.
    untried: Vec<Kind>,
}

#[derive(Debug)]
enum Stage {
    Handshake(Handshake),
    /// The initiator has sent the grant for its mailbox.
    Offered(Proved, Box<Mailbox>),
    /// The acceptor waits for that.
    Waiting(Proved),
    /// The acceptor has answered, possibly with a mailbox of its own.
    Answered(Proved, Option<Box<LinkRings>>),
}

/// The result of a meeting: the identity of the peer, and rings if messages travel through them.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) proved: Proved,
    pub(super) rings: Option<Box<LinkRings>>,
}

impl Meeting {
    /// See [`Handshake::initiate`].
    pub(super) fn initiate(
        identity: &Identity,
        wanted: Option<NodeId>,
        nonce: [u8; PROOF],
        out: &mut Vec<u8>,
    ) -> Meeting {
        Meeting {
            initiates: true,
            stage: Stage::Handshake(Handshake::initiate(identity, wanted, nonce, out)),
            untried: Vec::new(),
        }
    }

    /// Waits for a peer to begin a connection.
    pub(super) fn accept(nonce: [u8; PROOF]) -> Meeting {
        Meeting {
            initiates: false,
            stage: Stage::Handshake(Handshake::accept(nonce)),
            untried: Vec::new(),
        }
    }

    /// Goes on with the bytes that have arrived, and returns how many of them were used. Once there
    /// is a result, the bytes that follow are messages.
    ///
    /// # Errors
    /// Returns an error if there will be no link. If it was refused here, the output ends with the
    /// refusal.
    pub(super) fn advance(
        &mut self,
        identity: &Identity,
        means: &Means,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Met>), Refused> {
        let mut used = 0;
        if let Stage::Handshake(handshake) = &mut self.stage {
            let (len, proved) = handshake.advance(identity, input, out)?;
            used = len;
            let Some(proved) = proved else {
                return Ok((used, None));
            };
            if let Some(met) = told(self.proved(proved, means, out), out)? {
                return Ok((used, Some(met)));
            }
        }
        loop {
            let (frame, len) = match Frame::decode(&input[used..]) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok((used, None)),
                Err(flaw) => return told(Err(Refused::flaw(flaw)), out),
            };
            used += len;
            if let Some(met) = told(self.agree(frame, means, out), out)? {
                return Ok((used, Some(met)));
            }
        }
    }

    /// Goes on after the peer has authenticated.
    fn proved(
        &mut self,
        proved: Proved,
        means: &Means,
        out: &mut Vec<u8>,
    ) -> Result<Option<Met>, Refused> {
        let agrees = proved.ways != Ways::NONE;
        if !self.initiates {
            self.stage = Stage::Waiting(proved);
            return Ok((!agrees).then_some(Met {
                proved,
                rings: None,
            }));
        }
        if !agrees {
            let met = self.over_tcp(proved, means, "the peer does not use it");
            return met.map(Some);
        }
        self.untried = means.kinds(proved.ways);
        self.offer(proved, means, "the peer does not use it".into(), out)
    }

    /// Offers the next way; `why` is the reason why the previous one has failed.
    fn offer(
        &mut self,
        proved: Proved,
        means: &Means,
        mut why: String,
        out: &mut Vec<u8>,
    ) -> Result<Option<Met>, Refused> {
        while let Some(kind) = self.untried.pop() {
            match means.mailbox(kind) {
                Ok(mailbox) => {
                    Frame::Mailbox(Some(mailbox.grant())).encode(out);
                    self.stage = Stage::Offered(proved, Box::new(mailbox));
                    return Ok(None);
                }
                Err(error) => why = error,
            }
        }
        let met = self.over_tcp(proved, means, &why)?;
        Frame::Ready(false).encode(out);
        Ok(Some(met))
    }

    /// Returns the initiator's result if there is no shared memory.
    fn over_tcp(&self, proved: Proved, means: &Means, why: &str) -> Result<Met, Refused> {
        match means.transport {
            Transport::Verbs if means.verbs.is_none() => {
                let why = "none was opened on this side";
                return Err(Refused::way("an RDMA device", why));
            }
            Transport::Shm => return Err(Refused::way("shared memory", why)),
            Transport::Verbs => return Err(Refused::way("an RDMA device", why)),
            Transport::Auto | Transport::Tcp => {}
        }
        if means.transport == Transport::Auto {
            tracing::debug!(peer = ?proved.peer, why, "no shared memory with a peer");
        }
        Ok(Met {
            proved,
            rings: None,
        })
    }

    fn agree(
        &mut self,
        frame: Frame,
        means: &Means,
        out: &mut Vec<u8>,
    ) -> Result<Option<Met>, Refused> {
        let proved = match self.stage {
            Stage::Offered(proved, _) | Stage::Waiting(proved) | Stage::Answered(proved, _) => {
                proved
            }
            Stage::Handshake(_) => unreachable!("it has ended"),
        };
        let stage = std::mem::replace(&mut self.stage, Stage::Waiting(proved));
        match (stage, frame) {
            (_, Frame::Refusal(code, text)) => Err(Refused {
                code,
                text,
                here: false,
            }),
            (Stage::Waiting(_) | Stage::Answered(..), Frame::Mailbox(Some(grant))) => {
                let accepted = means.accept(&grant);
                if let Err(why) = &accepted {
                    tracing::debug!(peer = ?proved.peer, why, "no memory is shared with a peer");
                }
                let (rings, own) = accepted.ok().unzip();
                Frame::Mailbox(own).encode(out);
                self.stage = Stage::Answered(proved, rings.map(Box::new));
                Ok(None)
            }
            (Stage::Offered(_, near), Frame::Mailbox(grant)) => {
                let grant = grant.ok_or("the peer does not see the same memory".to_owned());
                match grant.and_then(|grant| near.meet(&grant)) {
                    Ok(rings) => {
                        Frame::Ready(true).encode(out);
                        Ok(Some(through(proved, Box::new(rings))))
                    }
                    Err(why) => self.offer(proved, means, why, out),
                }
            }
            (Stage::Answered(_, Some(rings)), Frame::Ready(true)) => {
                Ok(Some(through(proved, rings)))
            }
            (Stage::Waiting(_) | Stage::Answered(..), Frame::Ready(false)) => Ok(Some(Met {
                proved,
                rings: None,
            })),
            _ => Err(Refused::garbage()),
        }
    }
}

/// Closes the mailboxes to other processes: both sides have what they need of each other.
fn through(proved: Proved, mut rings: Box<LinkRings>) -> Met {
    rings.close_to_others();
    Met {
        proved,
        rings: Some(rings),
    }
}

/// Sends a refusal to the peer.
fn told<T>(outcome: Result<T, Refused>, out: &mut Vec<u8>) -> Result<T, Refused> {
    if let Err(refused) = &outcome
        && refused.here
    {
        refused.frame().encode(out);
    }
    outcome
}
