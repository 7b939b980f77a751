//! Connections: queue pairs whose two sides know each other's address.
//!
//! | step | here | there |
//! |---|---|---|
//! | 1 | [`Domain::open`] | the same |
//! | 2 | sends its [`QueuePairAddress`] over a link whose peer has proved its identity | the same |
//! | 3 | [`Opening::connect`] with the peer's address | the same |
//! | 4 | says so over that link, and waits until the peer does | the same |
//!
//! Operations that are begun before step 4 may have to be repeated by the device, which takes some
//! time.
//!
//! A connection has one-sided reads and writes ([`Memory`](crate::memory::Memory)). It is lost when
//! the peer's device does not answer, or when its queue pair is gone. On an idle connection this is
//! not noticed: the link of step 2 stays, and shows it. When a process dies, its regions go before
//! its queue pairs, so that a read at that moment may be *refused* before the connection is lost.
//!
//! A queue pair with memory for messages is one for messages alone: its peer can Send, and can
//! neither read nor write memory.

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::memory::{RemoteError, WORD};

use super::active_pair::ActivePair;
use super::address::{AddressKind, QueuePairAddress};
use super::ffi::{Gid, PairAttributes, Path, access, change, state};
use super::memory::{Domain, VerbsRegion, VerbsRemote};
use super::options::{Depths, ReceiveQueue, TRIES};
use super::resources::{Pair, Registered};
use crate::memory::{Access, Grant, Memory};

/// The number of times that a packet without acknowledgement is sent again.
const RETRIES: u8 = (TRIES - 1) as u8;
/// No side sends a message for which there is no memory, so that repeating one would hide an error.
const NOT_READY_RETRIES: u8 = 0;
/// The number of routers that a packet may pass.
const HOPS: u8 = 64;
/// The time beyond that after which the device gives a peer up, for machines that hardly run.
const PATIENCE: Duration = Duration::from_secs(30);

/// A queue pair that has no peer yet.
pub struct Opening {
    domain: Domain,
    line: ActivePair,
    inbox: Option<Arc<Registered>>,
    address: QueuePairAddress,
}

/// A queue pair that is connected to one of a peer.
#[derive(Clone)]
pub struct VerbsConnection {
    pub(super) domain: Domain,
    pub(super) line: Arc<Mutex<ActivePair>>,
}

impl Domain {
    /// Makes a queue pair.
    ///
    /// # Errors
    /// Returns an error if the device has no more, or if the system does not lock so much memory.
    pub fn open(&self) -> io::Result<Opening> {
        self.open_with(&self.device.options.depths, true)
    }

    /// Does the same with queues and buffers of these sizes, and with events or without.
    pub(super) fn open_with(&self, depths: &Depths, events: bool) -> io::Result<Opening> {
        self.open_receiving(depths, ReceiveQueue::NONE, events)
    }

    /// Does the same, and posts memory for messages.
    pub(super) fn open_receiving(
        &self,
        depths: &Depths,
        receives: ReceiveQueue,
        events: bool,
    ) -> io::Result<Opening> {
        let (port, options) = (&self.device.port, &self.device.options);
        let pair = Pair::new(&self.raw, depths.sends, receives.places, events)?;
        let one_sided = access::REMOTE_READ | access::REMOTE_WRITE;
        let allowed = if receives.places == 0 { one_sided } else { 0 };
        initialise(&pair, port.number, allowed)?;
        let staging = Registered::new(&self.raw, depths.staging_words, access::LOCAL_WRITE)?;
        let patience = options.dead_after * 4 + PATIENCE;
        let mut line = ActivePair::new(pair, Arc::new(staging), depths, patience);
        let inbox = self.post_receives(receives, &mut line)?;
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let address = QueuePairAddress {
            naming: port.naming,
            mtu: port.mtu,
            reads: port.peer_reads,
            pair: line.pair.number(),
            first_packet: u32::from_le_bytes(random) >> 8,
            lid: port.lid,
            receives: receives.places as u16,
            receive_bytes: receives.bytes,
            gid: port.gid,
        };
        Ok(Opening {
            domain: self.clone(),
            line,
            inbox,
            address,
        })
    }
}

impl Domain {
    /// Posts memory for messages; `None` if there are none.
    fn post_receives(
        &self,
        receives: ReceiveQueue,
        line: &mut ActivePair,
    ) -> io::Result<Option<Arc<Registered>>> {
        if receives.places == 0 {
            return Ok(None);
        }
        let bytes = receives.bytes as usize;
        let words = receives.places as usize * bytes / WORD;
        let inbox = Arc::new(Registered::new(&self.raw, words, access::LOCAL_WRITE)?);
        for place in 0..u64::from(receives.places) {
            let posted = line.expect(place, &inbox, bytes);
            posted.map_err(io::Error::other)?;
        }
        Ok(Some(inbox))
    }
}

fn initialise(pair: &Pair, port: u8, allowed: c_int) -> io::Result<()> {
    let attributes = PairAttributes {
        state: state::INIT,
        port,
        access: allowed as u32,
        ..PairAttributes::default()
    };
    let mask = change::STATE | change::PARTITION | change::PORT | change::ACCESS;
    pair.change(&attributes, mask)
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Opening {
    /// Returns the address to which the peer connects.
    #[must_use]
    pub fn address(&self) -> &QueuePairAddress {
        &self.address
    }

    /// Connects to the peer's queue pair.
    ///
    /// # Errors
    /// Returns an error if the two do not fit together, or if the device does not accept the
    /// address.
    pub fn connect(self, peer: &QueuePairAddress) -> io::Result<VerbsConnection> {
        self.meet(peer)?;
        Ok(VerbsConnection {
            domain: self.domain,
            line: Arc::new(Mutex::new(self.line)),
        })
    }

    /// Does the same as [`Opening::connect`], for a connection that this side does not use.
    pub(super) fn connect_line(self, peer: &QueuePairAddress) -> io::Result<ActivePair> {
        self.meet(peer)?;
        Ok(self.line)
    }

    /// Does the same, for a connection of messages; returns the memory that was posted, too.
    pub(super) fn connect_receiving(
        self,
        peer: &QueuePairAddress,
    ) -> io::Result<(ActivePair, Option<Arc<Registered>>)> {
        self.meet(peer)?;
        Ok((self.line, self.inbox))
    }

    fn meet(&self, peer: &QueuePairAddress) -> io::Result<()> {
        if self.address.naming != peer.naming {
            let text = format!(
                "ports are named as {} here and as {} by the peer; choose one kind on both sides \
                 by the index of the GID",
                called(self.address.naming),
                called(peer.naming)
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.receive_from(peer)?;
        self.send_to(peer)
    }

    fn receive_from(&self, peer: &QueuePairAddress) -> io::Result<()> {
        let port = &self.domain.device.port;
        let attributes = PairAttributes {
            state: state::READY_TO_RECEIVE,
            mtu: u32::from(port.mtu.min(peer.mtu)),
            peer: peer.pair,
            receive_number: peer.first_packet,
            peer_reads: port.peer_reads,
            // This code stands for 0.64 ms.
            not_ready_timer: 12,
            path: Path {
                gid: Gid(peer.gid),
                from_gid: port.gid_index,
                hops: HOPS,
                lid: peer.lid,
                level: port.level,
                is_global: u8::from(peer.naming != AddressKind::Local),
                port: port.number,
                ..Path::default()
            },
            ..PairAttributes::default()
        };
        let mask = change::STATE
            | change::PATH
            | change::MTU
            | change::PEER
            | change::RECEIVE_NUMBER
            | change::PEER_READS
            | change::NOT_READY_TIMER;
        self.line.pair.change(&attributes, mask)
    }

    fn send_to(&self, peer: &QueuePairAddress) -> io::Result<()> {
        let device = &self.domain.device;
        let attributes = PairAttributes {
            state: state::READY_TO_SEND,
            send_number: self.address.first_packet,
            timeout: device.options.timeout_code(),
            retries: RETRIES,
            not_ready_retries: NOT_READY_RETRIES,
            reads: device.port.reads.min(peer.reads),
            ..PairAttributes::default()
        };
        let mask = change::STATE
            | change::SEND_NUMBER
            | change::TIMEOUT
            | change::RETRIES
            | change::NOT_READY_RETRIES
            | change::READS;
        self.line.pair.change(&attributes, mask)
    }
}

fn called(naming: AddressKind) -> &'static str {
    match naming {
        AddressKind::Local => "InfiniBand by LID",
        AddressKind::Global => "InfiniBand by GID",
        AddressKind::RoceV1 => "RoCE v1",
        AddressKind::RoceV2 => "RoCE v2",
    }
}

impl fmt::Debug for VerbsConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line().pair.number();
        f.debug_struct("Connection")
            .field("pair", &number)
            .finish_non_exhaustive()
    }
}

impl VerbsConnection {
    /// Checks that the connection still exists, as far as is known here.
    ///
    /// # Errors
    /// Returns an error if the connection has ended, as far as is known here.
    pub fn check(&self) -> Result<(), RemoteError> {
        let mut line = self.line();
        line.poll();
        line.check()
    }

    /// Reaches a region without a look at its key, for which it would have to wait. `landing` words
    /// can be in transit to here at a time.
    pub(super) fn reach_untried(
        &self,
        grant: &Grant,
        landing: usize,
    ) -> Result<VerbsRemote, RemoteError> {
        VerbsRemote::untried(&self.domain, &self.line, grant, landing)
    }

    pub(super) fn line(&self) -> MutexGuard<'_, ActivePair> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory for VerbsConnection {
    type Region = VerbsRegion;
    type Remote = VerbsRemote;

    fn register(&self, words: usize, access: Access) -> io::Result<VerbsRegion> {
        self.domain.register(words, access)
    }

    fn reach(&self, grant: &Grant) -> Result<VerbsRemote, RemoteError> {
        let landing = self.domain.device.options.depths.landing_words;
        let mut remote = self.reach_untried(grant, landing)?;
        match remote.key()? == grant.key() {
            true => Ok(remote),
            false => Err(RemoteError::Refused(
                "the region has another key".to_owned(),
            )),
        }
    }
}
