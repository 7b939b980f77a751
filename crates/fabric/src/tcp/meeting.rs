//! How a connection begins: peers prove who they are, and then agree on the way of messages.
//!
//! | step | from | frame | says |
//! |---|---|---|---|
//! | 1–4 | | | the [`handshake`](crate::handshake); if no way besides TCP is known to both, this is all |
//! | 5 | initiator | mailbox | where the acceptor can write to it; empty: it has no shared memory |
//! | 6 | acceptor | mailbox | it could open that, and where the initiator can write; empty: it could not |
//! | 7 | initiator | ready | 1: it could open that, too, and messages go that way from here on; else 0 |
//!
//! After an empty one, step 7 follows at once. Whether two processes see the same memory is found
//! out by trying: a file of a random name that has the right key in it can be no other.

use base::NodeId;
use base::memory::WORD;

use super::options::{Limits, Transport};
use crate::frame::{Frame, PROOF, Ways};
use crate::handshake::{Handshake, Identity, Proved, Refused};
use crate::memory::{Access, Grant, Memory, Region};
use crate::ring::{CONTROL, Rings};
use crate::shm::{Shm, ShmRegion, ShmRemote};

/// Both directions of a connection through shared memory.
pub(super) type ShmRings = Rings<ShmRegion, ShmRemote>;

/// What this side can do besides TCP.
#[derive(Clone, Debug)]
pub(super) struct Means {
    transport: Transport,
    shm: Shm,
    /// Words of a mailbox.
    mailbox: usize,
}

impl Means {
    pub(super) fn new(transport: Transport, shm: &Shm, limits: &Limits) -> Means {
        Means {
            transport,
            shm: shm.clone(),
            mailbox: CONTROL + limits.ring / WORD / 2 * 2,
        }
    }

    /// Whether it can do nothing else.
    pub(super) fn is_tcp(&self) -> bool {
        self.transport == Transport::Tcp
    }

    fn mailbox(&self) -> Result<ShmRegion, String> {
        let made = self.shm.register(self.mailbox, Access::Write);
        made.map_err(|error| error.to_string())
    }

    /// Rings over one's own mailbox and the one that the peer has named.
    fn rings(&self, near: ShmRegion, grant: &Grant) -> Result<ShmRings, String> {
        if grant.access() != Access::Write {
            return Err("the peer's mailbox is not for writing".into());
        }
        let mut far = self.shm.reach(grant).map_err(|error| error.to_string())?;
        // The connection tells when the peer is gone.
        far.trust_owner();
        Rings::new(near, far).map_err(|error| error.to_string())
    }
}

/// One side of the beginning: it is given the bytes that arrive, and gives those to be sent.
#[derive(Debug)]
pub(super) struct Meeting {
    initiates: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Handshake(Handshake),
    /// The initiator has said where its mailbox is.
    Offered(Proved, ShmRegion),
    /// The acceptor waits for that.
    Waiting(Proved),
    /// The acceptor has answered it; with a mailbox of its own, maybe.
    Answered(Proved, Option<Box<ShmRings>>),
}

/// What a meeting has come to: who the peer is, and rings if messages travel through them.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) proved: Proved,
    pub(super) rings: Option<Box<ShmRings>>,
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
        }
    }

    /// Waits for somebody to begin one.
    pub(super) fn accept(nonce: [u8; PROOF]) -> Meeting {
        Meeting {
            initiates: false,
            stage: Stage::Handshake(Handshake::accept(nonce)),
        }
    }

    /// Goes on with what has arrived, and tells how much of it was used. Once it has come to
    /// something, what follows is messages.
    ///
    /// # Errors
    /// There will be no link; what is to be sent ends with the refusal if it was refused here.
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

    /// The peer has proved who it is.
    fn proved(
        &mut self,
        proved: Proved,
        means: &Means,
        out: &mut Vec<u8>,
    ) -> Result<Option<Met>, Refused> {
        let known = proved.ways.and(Ways::SHM) == Ways::SHM;
        if !self.initiates {
            self.stage = Stage::Waiting(proved);
            return Ok((!known).then_some(Met {
                proved,
                rings: None,
            }));
        }
        if !known {
            return self
                .over_tcp(proved, means, "the peer does not use it")
                .map(Some);
        }
        match means.mailbox() {
            Ok(mailbox) => {
                Frame::Mailbox(Some(mailbox.grant().clone())).encode(out);
                self.stage = Stage::Offered(proved, mailbox);
                Ok(None)
            }
            Err(why) => {
                let met = self.over_tcp(proved, means, &why)?;
                Frame::Ready(false).encode(out);
                Ok(Some(met))
            }
        }
    }

    /// What comes of it for the initiator when there is no shared memory.
    fn over_tcp(&self, proved: Proved, means: &Means, why: &str) -> Result<Met, Refused> {
        if means.transport == Transport::Shm {
            return Err(Refused::way(why));
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
            (Stage::Waiting(_), Frame::Mailbox(Some(grant))) => {
                let rings = means.mailbox().and_then(|near| means.rings(near, &grant));
                if let Err(why) = &rings {
                    tracing::debug!(peer = ?proved.peer, why, "no shared memory with a peer");
                }
                let rings = rings.ok().map(Box::new);
                let own = rings.as_ref().map(|rings| rings.mailbox().grant().clone());
                Frame::Mailbox(own).encode(out);
                self.stage = Stage::Answered(proved, rings);
                Ok(None)
            }
            (Stage::Offered(_, near), Frame::Mailbox(grant)) => {
                let grant = grant.ok_or("the peer does not see the same memory".to_owned());
                match grant.and_then(|grant| means.rings(near, &grant)) {
                    Ok(rings) => {
                        Frame::Ready(true).encode(out);
                        Ok(Some(through(proved, Box::new(rings))))
                    }
                    Err(why) => {
                        let met = self.over_tcp(proved, means, &why)?;
                        Frame::Ready(false).encode(out);
                        Ok(Some(met))
                    }
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

/// Both have what they need of each other: nobody else is to find the mailbox.
fn through(proved: Proved, mut rings: Box<ShmRings>) -> Met {
    rings.mailbox_mut().close_to_others();
    Met {
        proved,
        rings: Some(rings),
    }
}

/// Tells the peer of a refusal.
fn told<T>(outcome: Result<T, Refused>, out: &mut Vec<u8>) -> Result<T, Refused> {
    if let Err(refused) = &outcome
        && refused.here
    {
        refused.frame().encode(out);
    }
    outcome
}
