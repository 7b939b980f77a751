//! A caller whose messages travel through memory. It looks for a while, and then sleeps in a read
//! from the socket, on which bells come.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::time::Instant;

use socket2::SockRef;

use super::{CallError, Caller, READING};
use crate::ring::Until;
use crate::tcp::link_memory::LinkRings;
use crate::tcp::options::Transport;
use crate::tcp::spin_policy::SpinPolicy;

/// The rings through which messages travel.
#[derive(Debug)]
pub(super) struct CallerMemoryLink {
    rings: LinkRings,
    spin_policy: SpinPolicy,
    /// The socket has ended.
    ended: bool,
}

impl CallerMemoryLink {
    pub(super) fn new(rings: LinkRings) -> CallerMemoryLink {
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
    fn look(&mut self, until: Until, stream: &TcpStream, deadline: Instant) -> io::Result<bool> {
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
    fn ring(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        if self.rings.must_ring()? {
            stream.write_all(&[0])?;
        }
        Ok(())
    }
}

/// Returns `true` if the socket has ended. Takes its bells away: a thread that is awake needs none.
fn has_ended(stream: &TcpStream) -> bool {
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

impl Caller {
    /// Reads once.
    pub(super) fn read_ring(&mut self, deadline: Instant) -> Result<(), CallError> {
        while let Some(through) = &mut self.rings {
            let ended = through.ended;
            match through.rings.read(&mut self.input[self.filled..]) {
                Ok(n) => {
                    self.filled += n;
                    // The bytes that have come count, even if the peer has gone since.
                    through.ended |= through.ring(&self.stream).is_err();
                    return self.in_time(deadline);
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(self.broken(error));
                }
                Err(_) if ended => {
                    let text = "the peer closed it";
                    return Err(self.broken(io::Error::new(ErrorKind::UnexpectedEof, text)));
                }
                Err(_) => {
                    self.wait(Until::Input, deadline)?;
                    self.in_time(deadline)?;
                }
            }
        }
        Ok(())
    }

    /// Checks the deadline: a peer that sends a little again and again is late, too.
    fn in_time(&mut self, deadline: Instant) -> Result<(), CallError> {
        match Instant::now() < deadline {
            true => Ok(()),
            false => Err(self.broken(ErrorKind::TimedOut.into())),
        }
    }

    /// Writes all of these bytes.
    pub(super) fn write_ring(
        &mut self,
        mut bytes: &[u8],
        deadline: Instant,
    ) -> Result<(), CallError> {
        while let Some(through) = &mut self.rings
            && !bytes.is_empty()
        {
            let ended = through.ended;
            match through.rings.write(bytes) {
                Ok(n) => {
                    bytes = &bytes[n..];
                    let rung = through.ring(&self.stream);
                    rung.map_err(|error| self.broken(error))?;
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(self.broken(error));
                }
                Err(_) if ended => {
                    let text = "the peer closed it";
                    return Err(self.broken(io::Error::new(ErrorKind::BrokenPipe, text)));
                }
                Err(_) => {
                    self.wait(Until::Space, deadline)?;
                    self.in_time(deadline)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until the event has happened, or a bell has rung, or the peer has ended. An error on
    /// the way means that the peer has ended: the bytes that came before can be read.
    fn wait(&mut self, until: Until, deadline: Instant) -> Result<(), CallError> {
        let begun = Instant::now();
        let Some(through) = &mut self.rings else {
            return Ok(());
        };
        match through.look(until, &self.stream, deadline) {
            Ok(false) if !through.rings.is_unsettled() => {}
            // The caller finds out if the peer has ended.
            Ok(false) if through.ended => return Ok(()),
            Ok(false) => return Err(self.broken(ErrorKind::TimedOut.into())),
            Ok(true) => return Ok(()),
            Err(_) => {
                through.ended = true;
                return Ok(());
            }
        }
        match through.rings.sleep(until) {
            Ok(true) => {}
            Ok(false) => {
                // Something has come, or the announcement is still on its way to a peer that may
                // have ended.
                through.ended |= has_ended(&self.stream);
                return Ok(());
            }
            Err(_) => {
                through.ended = true;
                return Ok(());
            }
        }
        let mut bells = [0; 64];
        let read = self
            .be_patient(READING, deadline)
            .and_then(|()| self.stream.read(&mut bells));
        let ended = match read {
            Ok(n) => n == 0,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
            Err(error) => {
                self.again_or_broken(error, deadline)?;
                false
            }
        };
        let Some(through) = &mut self.rings else {
            return Ok(());
        };
        through.ended |= ended;
        through.spin_policy.called(begun.elapsed());
        through.ended |= through.rings.wake().is_err();
        Ok(())
    }
}
