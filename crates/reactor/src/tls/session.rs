//! One encrypted stream: its phase, and the bytes that it holds.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;

use rustls::{AlertDescription, CertificateError, InvalidMessage};

use super::records::{Ciphertext, PlainText, Send as ToSend, TlsRecords};
use crate::network::{Network, SocketEvent};

/// Bytes of plain text whose ciphertext may wait for a socket.
pub(super) const MOST_WAITING: usize = 64 * 1024;
/// The least and the most bytes of ciphertext that one read asks for; between them it asks for as many bytes as the
/// owner has room for.
const READ: std::ops::RangeInclusive<usize> = 4 * 1024..=64 * 1024;

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
    pub(super) memory: &'a mut SessionMemory,
}

/// Memory that the sessions of a thread use one after another. Its content means nothing between uses.
#[derive(Default)]
pub(super) struct SessionMemory {
    /// For received ciphertext.
    input: Vec<u8>,
    /// For ciphertext to be sent.
    out: Ciphertext,
    /// For plain text that came in pieces.
    joined: Vec<u8>,
}

/// See the module documentation. An idle session holds no bytes but its keys.
pub(super) struct Session<S> {
    pub(super) stream: S,
    tls: TlsRecords,
    pub(super) phase: Phase,
    /// Distinguishes sessions that use the same place, and identifies the session of a deadline.
    pub(super) serial: u64,
    /// The owner's number for it.
    pub(super) token: Option<usize>,
    /// The client's address, if the peer is a client.
    pub(super) client: Option<SocketAddr>,
    failure: Option<(ErrorKind, String)>,
    /// Ciphertext that was received and not decrypted: the beginning of a record, or records for which the owner
    /// had no room.
    input: Vec<u8>,
    /// Plain text for which the owner had no room.
    rest: Vec<u8>,
    /// Ciphertext that waits for the socket.
    waiting: Vec<u8>,
    /// The socket has no more to give until the next event.
    drained: bool,
    /// The socket's peer will send nothing more.
    pub(super) ended: bool,
    /// All plain text was given, and the peer has announced the end.
    over: bool,
}

impl<S: Send> Session<S> {
    pub(super) fn new(stream: S, tls: TlsRecords, phase: Phase, serial: u64) -> Session<S> {
        Session {
            stream,
            tls,
            phase,
            serial,
            token: None,
            client: None,
            failure: None,
            input: Vec::new(),
            rest: Vec::new(),
            waiting: Vec::new(),
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
        !self.waiting.is_empty()
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
        let mut nothing = PlainText::nowhere();
        if self.tls.is_handshaking() {
            // A client begins without input.
            self.process_kept(around, &mut nothing)?;
        }
        while self.tls.is_handshaking() {
            match self.receive(around, &mut nothing) {
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

    /// Receives ciphertext and processes it. Returns its number of bytes; 0: the end.
    fn receive<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
        plain: &mut PlainText<'_>,
    ) -> io::Result<usize> {
        if self.drained {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut memory = std::mem::take(&mut around.memory.input);
        let (kept, room) = (self.input.len(), plain.room());
        let room = room.clamp(*READ.start(), *READ.end());
        if memory.len() < kept + room {
            memory.resize(kept + room, 0);
        }
        memory[..kept].copy_from_slice(&self.input);
        let read = around
            .inner
            .read(&mut self.stream, &mut memory[kept..kept + room]);
        let processed = match &read {
            Ok(count) => {
                self.drained = *count < room && *count > 0 && !self.ended;
                let all = &mut memory[..kept + count];
                let (done, processed) = self.process(around, all, plain);
                self.input.clear();
                self.input.extend_from_slice(&all[done..]);
                if self.input.is_empty() {
                    self.input = Vec::new();
                }
                processed
            }
            Err(error) => {
                self.drained = error.kind() == ErrorKind::WouldBlock;
                Ok(())
            }
        };
        around.memory.input = memory;
        processed?;
        read
    }

    /// Processes the ciphertext that was received before.
    fn process_kept<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
        plain: &mut PlainText<'_>,
    ) -> io::Result<()> {
        let mut input = std::mem::take(&mut self.input);
        let (done, processed) = self.process(around, &mut input, plain);
        if done < input.len() {
            input.drain(..done);
            self.input = input;
        }
        processed
    }

    /// Decrypts `input`, as far as the owner has room, and sends the answers. Returns the number of bytes that are
    /// processed.
    fn process<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
        input: &mut [u8],
        plain: &mut PlainText<'_>,
    ) -> (usize, io::Result<()>) {
        let mut out = std::mem::take(&mut around.memory.out);
        let (done, processed) = self.tls.decrypt(input, plain, &mut out);
        self.rest.append(&mut plain.rest);
        // An alert tells the peer the error.
        let sent = self.send(around, &mut out);
        around.memory.out = out;
        let result = match processed {
            Ok(over) => {
                self.over |= over;
                sent
            }
            Err(error) => {
                let is_early = self.phase == Phase::Handshake;
                Err(io::Error::new(
                    ErrorKind::InvalidData,
                    explain(&error, is_early),
                ))
            }
        };
        (done, result)
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
        let mut plain = PlainText::new(into);
        plain.refill(&mut self.rest);
        let mut result = Ok(());
        if !plain.is_full() && !self.input.is_empty() {
            result = self.process_kept(around, &mut plain);
        }
        while result.is_ok() && !plain.is_full() && !self.over {
            match self.receive(around, &mut plain) {
                // Requests and replies mark their own ends, so a connection that was cut can be told from one
                // that has ended without a closing message of TLS.
                Ok(0) => self.over = true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if plain.count() == 0 {
                        return Err(error);
                    }
                    break;
                }
                Err(error) => result = Err(error),
            }
        }
        if let Err(error) = result {
            self.fail(error);
            // Plain text that came before the failure is given first.
            self.over = true;
            if plain.count() == 0 {
                return Err(self.failure());
            }
        }
        Ok(plain.count())
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
        let mut joined = std::mem::take(&mut around.memory.joined);
        let bytes = match pieces {
            [piece] => &piece[..piece.len().min(MOST_WAITING)],
            _ => {
                joined.clear();
                for piece in pieces {
                    let room = MOST_WAITING - joined.len();
                    joined.extend_from_slice(&piece[..piece.len().min(room)]);
                }
                &joined
            }
        };
        let count = bytes.len();
        let encrypted = self.encrypt(around, &ToSend::PlainText(bytes));
        around.memory.joined = joined;
        encrypted.map(|()| count)
    }

    /// Encrypts and sends.
    fn encrypt<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
        what: &ToSend<'_>,
    ) -> io::Result<()> {
        let mut out = std::mem::take(&mut around.memory.out);
        let encrypted = self
            .tls
            .encrypt(what, &mut self.input, &mut self.rest, &mut out);
        let sent = self.send(around, &mut out);
        around.memory.out = out;
        if let Err(error) = encrypted {
            self.fail(io::Error::new(
                ErrorKind::InvalidData,
                explain(&error, false),
            ));
            return Err(self.failure());
        }
        sent
    }

    /// Writes ciphertext behind that which waits; the part that the socket does not take waits, too. Clears `out`.
    fn send<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
        out: &mut Ciphertext,
    ) -> io::Result<()> {
        let mut sent = Ok(0);
        if self.waiting.is_empty() {
            sent = write_all(around.inner, &mut self.stream, out.bytes());
        }
        let taken = sent.as_ref().copied().unwrap_or(0);
        self.waiting.extend_from_slice(&out.bytes()[taken..]);
        out.clear();
        sent.map(|_| ())
    }

    /// Writes ciphertext that waits. Returns `true` if none is left.
    pub(super) fn flush<N: Network<Stream = S>>(
        &mut self,
        around: &mut SessionNetwork<'_, N>,
    ) -> io::Result<bool> {
        let sent = write_all(around.inner, &mut self.stream, &self.waiting)?;
        if sent < self.waiting.len() {
            self.waiting.drain(..sent);
            return Ok(false);
        }
        self.waiting = Vec::new();
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
        self.encrypt(around, &ToSend::CloseNotify)?;
        self.flush(around)
    }
}

/// Writes as many of the bytes as the stream takes, and returns their number.
fn write_all<N: Network>(
    network: &mut N,
    stream: &mut N::Stream,
    bytes: &[u8],
) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match network.write(stream, &[IoSlice::new(&bytes[sent..])]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
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
        AlertReceived(AlertDescription::CertificateRequired) => {
            "the peer wants a certificate, and was shown none: give --node-cert and --node-key"
                .to_owned()
        }
        AlertReceived(AlertDescription::CertificateExpired) => {
            "the peer says that the certificate which it was shown has expired".to_owned()
        }
        _ => format!("TLS: {error}"),
    }
}
