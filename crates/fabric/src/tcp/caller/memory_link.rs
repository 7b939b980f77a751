//! A caller whose messages travel through memory. It looks for a while, and then sleeps in a read
//! from the socket, on which bells come.

use std::io::{self, ErrorKind, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::time::Instant;

use socket2::SockRef;

use crate::ring::Until;
use crate::tcp::link_memory::LinkStream;
use crate::tcp::options::Transport;
use crate::tcp::spin_policy::SpinPolicy;

/// The rings through which messages travel.
#[derive(Debug)]
pub(super) struct CallerMemoryLink {
    pub(super) rings: LinkStream,
    pub(super) spin_policy: SpinPolicy,
    /// The socket has ended.
    pub(super) ended: bool,
}

impl CallerMemoryLink {
    pub(super) fn new(rings: LinkStream) -> CallerMemoryLink {
        CallerMemoryLink {
            rings,
            spin_policy: SpinPolicy::default(),
            ended: false,
        }
    }

    pub(super) fn transport(&self) -> Transport {
        self.rings.transport()
    }

    /// Returns `true` if the peer lives and has sent nothing. Takes away bells that were not
    /// needed.
    pub(super) fn is_quiet(&self, stream: &TcpStream) -> bool {
        !self.ended && !has_ended(stream) && !self.rings.has_input()
    }

    fn is_there(&self, until: Until) -> bool {
        match until {
            Until::Input => self.rings.has_input(),
            Until::Space => self.rings.has_room(),
            Until::Either => self.rings.has_input() || self.rings.has_room(),
        }
    }

    /// Looks for a while: at least until the peer can see what was written, or has ended, or the
    /// deadline has come. Returns `true` if the event has happened.
    pub(super) fn look(
        &mut self,
        until: Until,
        stream: &TcpStream,
        deadline: Instant,
    ) -> io::Result<bool> {
        let begun = Instant::now();
        loop {
            let looked = begun.elapsed();
            if self.is_there(until) {
                self.spin_policy.saw_event();
                return Ok(true);
            }
            self.ring(stream)?;
            if self.spin_policy.is_over(looked) {
                self.ended |= self.rings.is_unsettled() && has_ended(stream);
                if !self.rings.is_unsettled() || self.ended || begun + looked > deadline {
                    return Ok(false);
                }
            }
            // The peer may want this processor. On a machine with few processors, giving way to it
            // pays at once.
            self.spin_policy.give_way();
        }
    }

    /// Rings a bell if the peer needs one.
    pub(super) fn ring(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        if self.rings.must_ring()? {
            stream.write_all(&[0])?;
        }
        Ok(())
    }
}

/// Returns `true` if the socket has ended. Takes its bells away: a thread that is awake needs none.
pub(super) fn has_ended(stream: &TcpStream) -> bool {
    let mut bells = [MaybeUninit::uninit(); 64];
    loop {
        match SockRef::from(stream).recv_with_flags(&mut bells, libc::MSG_DONTWAIT) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return true,
        }
    }
}
