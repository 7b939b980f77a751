//! One encrypted stream: its phase, and the bytes that it holds.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;

use rustls::{AlertDescription, CertificateError, Connection, InvalidMessage};

use crate::network::{Network, SocketEvent};

/// Bytes of ciphertext that wait for a socket.
pub(super) const MOST_WAITING: usize = 64 * 1024;
/// Bytes of ciphertext read at a time.
const READ: usize = 64 * 1024;

/// The phase of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The inner connection is not made yet.
    Connecting,
    /// The peers agree on keys.
    Handshake,
    /// Plain text goes in both directions.
    Open,
    /// It is of no use any more; the next operation returns the reason.
    Failed,
    /// Its owner has closed it, and ciphertext waits for the socket.
    Closing,
}

/// The parts of its network that a session uses.
pub(super) struct SessionNetwork<'a, N: Network> {
    pub(super) inner: &'a mut N,
    /// Memory for ciphertext.
    pub(super) spare: &'a mut Vec<u8>,
}

/// Ciphertext that was read and not yet decrypted: a buffer, and the range of it.
struct Input {
    memory: Vec<u8>,
    from: usize,
    to: usize,
}

/// See the module documentation.
pub(super) struct Session<S> {
    pub(super) stream: S,
    tls: Connection,
    pub(super) phase: Phase,
    /// Distinguishes sessions that use the same place, and identifies the session of a deadline.
    pub(super) serial: u64,
    /// The owner's number for it.
    pub(super) token: Option<usize>,
    /// The client's address, if the peer is a client.
    pub(super) client: Option<SocketAddr>,
    failure: Option<(ErrorKind, String)>,
    input: Option<Input>,
    /// The socket has no more to give until the next event.
    drained: bool,
    /// The socket's peer will send nothing more.
    pub(super) ended: bool,
    /// All plain text was given, and the peer has announced the end.
    over: bool,
}

impl<S: Send> Session<S> {
    pub(super) fn new(stream: S, mut tls: Connection, phase: Phase, serial: u64) -> Session<S> {
        tls.set_buffer_limit(Some(MOST_WAITING));
        Session {
            stream,
            tls,
            phase,
            serial,
            token: None,
            client: None,
            failure: None,
            input: None,
            drained: false,
            ended: false,
            over: false,
        }
    }

    pub(super) fn note(&mut self, happened: SocketEvent) {
        self.drained &= !(happened.readable || happened.ended);
        self.ended |= happened.ended;
    }

    pub(super) fn has_deadline(&self) -> bool {
        matches!(
            self.phase,
            Phase::Connecting | Phase::Handshake | Phase::Closing
        )
    }

    pub(super) fn has_ciphertext(&self) -> bool {
        self.tls.wants_write()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.over
    }

    pub(super) fn fail(&mut self, error: io::Error) {
        self.phase = Phase::Failed;
        self.failure = Some((error.kind(), error.to_string()));
    }

    fn failure(&self) -> io::Error {
        match &self.failure {
            Some((kind, what)) => io::Error::new(*kind, what.clone()),
            None => ErrorKind::NotConnected.into(),
        }
    }

    /// Checks that the handshake is over; returns an error if it has failed.
    pub(super) fn connected(&self) -> io::Result<()> {
        match self.phase {
            Phase::Open => Ok(()),
            Phase::Failed => Err(self.failure()),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Advances the parts that are not the owner's: the handshake, and ciphertext that waits. Returns
    /// `true` if the session is open.
    pub(super) fn advance<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
    ) -> io::Result<bool> {
        if self.phase == Phase::Failed {
            return Err(self.failure());
        }
        if self.phase == Phase::Connecting {
            match around.inner.connected(&self.stream) {
                Ok(()) => self.phase = Phase::Handshake,
                Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.flush(around)?;
        while self.tls.is_handshaking() {
            match self.pull(around) {
                Ok(0) => {
                    let what = "the peer has closed the connection in the handshake";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, what));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.phase = Phase::Open;
        Ok(true)
    }

    /// Decrypts some of the input, reading from the socket if none is buffered, and sends the session's
    /// answer to it. Returns the number of bytes of ciphertext; 0: the end.
    fn pull<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
    ) -> io::Result<usize> {
        let mut input = match self.input.take() {
            Some(input) => input,
            None => self.receive(around)?,
        };
        let mut part = &input.memory[input.from..input.to];
        let read = self.tls.read_tls(&mut part);
        input.from = input.to - part.len();
        if input.from == input.to {
            *around.spare = input.memory;
        } else {
            self.input = Some(input);
        }
        let read = read?;
        let processed = self.tls.process_new_packets();
        // An alert tells the peer the error.
        let flushed = self.flush(around);
        let is_early = self.phase == Phase::Handshake;
        processed
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, explain(&error, is_early)))?;
        flushed?;
        Ok(read)
    }

    fn receive<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
    ) -> io::Result<Input> {
        if self.drained {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut memory = std::mem::take(around.spare);
        memory.resize(READ, 0);
        match around.inner.read(&mut self.stream, &mut memory) {
            Ok(count) => {
                self.drained = count < READ && count > 0 && !self.ended;
                Ok(Input {
                    memory,
                    from: 0,
                    to: count,
                })
            }
            Err(error) => {
                *around.spare = memory;
                self.drained = error.kind() == ErrorKind::WouldBlock;
                Err(error)
            }
        }
    }

    pub(super) fn read<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
        into: &mut [u8],
    ) -> io::Result<usize> {
        match self.phase {
            Phase::Open => {}
            Phase::Failed => return Err(self.failure()),
            _ => return Err(ErrorKind::WouldBlock.into()),
        }
        let mut count = 0;
        while count < into.len() {
            match self.tls.reader().read(&mut into[count..]) {
                // Requests and replies mark their own ends, so a connection that was cut can be told
                // from one that has ended without a closing message of TLS.
                Ok(0) => self.over = true,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => self.over = true,
                Ok(more) => {
                    count += more;
                    continue;
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                Err(_) => match self.pull(around) {
                    Ok(_) => continue,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == ErrorKind::WouldBlock && count == 0 => {
                        return Err(error);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => {
                        self.fail(error);
                        // Plain text that came before the failure is given first.
                        self.over = true;
                        if count == 0 {
                            return Err(self.failure());
                        }
                    }
                },
            }
            break;
        }
        Ok(count)
    }

    pub(super) fn write<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
        pieces: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        match self.phase {
            Phase::Open => {}
            Phase::Failed => return Err(self.failure()),
            _ => return Err(ErrorKind::WouldBlock.into()),
        }
        if !self.flush(around)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.tls.writer().write_vectored(pieces)?;
        self.flush(around)?;
        Ok(count)
    }

    /// Writes ciphertext. Returns `true` if none is left.
    pub(super) fn flush<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
    ) -> io::Result<bool> {
        while self.tls.wants_write() {
            let mut socket = Socket {
                inner: around.inner,
                stream: &mut self.stream,
            };
            match self.tls.write_tls(&mut socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Announces that nothing more will come. Returns `true` if everything has been written.
    pub(super) fn say_goodbye<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
    ) -> io::Result<bool> {
        if self.phase != Phase::Open {
            return Ok(true);
        }
        self.tls.send_close_notify();
        self.flush(around)
    }
}

/// The stream to which the session writes.
struct Socket<'a, N: Network> {
    inner: &'a mut N,
    stream: &'a mut N::Stream,
}

impl<N: Network> Write for Socket<'_, N> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(self.stream, &[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.inner.write(self.stream, pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a text that describes the error and where to look.
pub(super) fn explain(error: &rustls::Error, is_early: bool) -> String {
    use rustls::Error::{AlertReceived, InvalidCertificate, NoCertificatesPresented};
    match error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) if is_early => {
            "the peer speaks no TLS".to_owned()
        }
        NoCertificatesPresented => "the peer shows no certificate".to_owned(),
        InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the peer's certificate has expired".to_owned()
        }
        InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the peer's certificate is of an authority that is not known here".to_owned()
        }
        InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("the peer's certificate is for another name: {error}"),
        AlertReceived(AlertDescription::UnknownCA) => {
            "the peer does not know the authority of the certificate that it was shown".to_owned()
        }
        AlertReceived(AlertDescription::CertificateExpired) => {
            "the peer says that the certificate which it was shown has expired".to_owned()
        }
        _ => format!("TLS: {error}"),
    }
}
