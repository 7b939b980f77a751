//! A caller whose messages travel through memory. It looks for a while, and then sleeps in a read
//! from the socket, on which bells come.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::time::Instant;

use socket2::SockRef;

use super::{CallError, Caller, READING};
use crate::ring::Until;
use crate::tcp::meeting::ShmRings;
use crate::tcp::patience::Patience;

/// What messages travel through.
#[derive(Debug)]
pub(super) struct Through {
    rings: ShmRings,
    patience: Patience,
    /// The socket has ended.
    ended: bool,
}

impl Through {
    pub(super) fn new(rings: ShmRings) -> Through {
        Through {
            rings,
            patience: Patience::default(),
            ended: false,
        }
    }

    /// Whether the peer lives and has said nothing. Bells that nobody needed are taken away.
    pub(super) fn is_quiet(&self, stream: &TcpStream) -> bool {
        let mut bells = [MaybeUninit::uninit(); 64];
        loop {
            let flags = libc::MSG_DONTWAIT;
            match SockRef::from(stream).recv_with_flags(&mut bells, flags) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        !self.ended && !self.rings.has_come()
    }

    fn is_there(&self, until: Until) -> bool {
        match until {
            Until::Come => self.rings.has_come(),
            Until::Room => self.rings.has_room(),
            Until::Either => self.rings.has_come() || self.rings.has_room(),
        }
    }

    /// Looks for a while. Returns whether it is there.
    fn look(&mut self, until: Until) -> bool {
        let begun = Instant::now();
        loop {
            let looked = begun.elapsed();
            if self.is_there(until) {
                self.patience.came(looked);
                return true;
            }
            if self.patience.is_over(looked) {
                return false;
            }
            // Who is waited for may want this processor: where there are few, it is at once that
            // giving way to it pays.
            std::thread::yield_now();
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

impl Caller {
    /// Reads once.
    pub(super) fn read_ring(&mut self, deadline: Instant) -> Result<(), CallError> {
        while let Some(through) = &mut self.rings {
            let ended = through.ended;
            match through.rings.read(&mut self.input[self.filled..]) {
                Ok(n) => {
                    self.filled += n;
                    return through
                        .ring(&self.stream)
                        .map_err(|error| self.broken(error));
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(self.broken(error));
                }
                Err(_) if ended => {
                    let text = "the peer closed it";
                    return Err(self.broken(io::Error::new(ErrorKind::UnexpectedEof, text)));
                }
                Err(_) => self.wait(Until::Come, deadline)?,
            }
        }
        Ok(())
    }

    /// Writes all of this.
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
                Err(_) => self.wait(Until::Room, deadline)?,
            }
        }
        Ok(())
    }

    /// Waits until it is there, or a bell has rung, or the socket has ended.
    fn wait(&mut self, until: Until, deadline: Instant) -> Result<(), CallError> {
        let Some(through) = &mut self.rings else {
            return Ok(());
        };
        if through.look(until) {
            return Ok(());
        }
        match through.rings.sleep(until) {
            Ok(true) => through.patience.slept(),
            Ok(false) => return Ok(()),
            Err(error) => return Err(self.broken(error.into())),
        }
        let asleep = Instant::now();
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
        through.patience.called(asleep.elapsed());
        match through.rings.wake() {
            // What has come is read first.
            Err(_) if through.ended => Ok(()),
            woken => woken.map_err(|error| self.broken(error.into())),
        }
    }
}
