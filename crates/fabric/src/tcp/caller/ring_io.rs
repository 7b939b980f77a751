//! Reads and writes of a caller whose messages travel through memory, and its sleep between them.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::time::Instant;

use super::memory_link::has_ended;
use super::{CallError, Caller, READING};
use crate::ring::Until;
use crate::verbs::wait_for_either;

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
        if let Some(events) = through.rings.events() {
            let left = deadline.saturating_duration_since(Instant::now());
            let readable = wait_for_either([self.stream.as_raw_fd(), events], left);
            through.ended |= readable[0] && has_ended(&self.stream);
            through.spin_policy.called(begun.elapsed());
            through.ended |= through.rings.wake().is_err();
            return Ok(());
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
