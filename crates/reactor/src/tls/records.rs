//! The records of one encrypted stream, by `rustls` without buffers of its own: ciphertext is decrypted where
//! it lies, and an idle stream keeps only its keys.
//!
//! Invariants:
//! 1. Between calls everything that `rustls` wants to be sent (answers of the handshake, session tickets,
//!    alerts) has been appended to the output.
//! 2. After an error no method is called any more: the library does not expect it.

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};

/// Most bytes of plain text in one record (RFC 8446, section 5.1).
const RECORD: usize = 16 * 1024;
/// Room for what encryption adds to one record: header, nonce, type, authentication tag.
const RECORD_OVERHEAD: usize = 64;
/// Room for most records of a handshake.
const HANDSHAKE: usize = 4 * 1024;

/// The keys and the state of one stream.
pub(super) enum TlsRecords {
    /// Of a connection that was accepted.
    Server(Box<UnbufferedServerConnection>),
    /// Of a connection that was made.
    Client(Box<UnbufferedClientConnection>),
}

/// Decrypted bytes: first they fill the owner's memory, the rest is kept.
pub(super) struct PlainText<'a> {
    into: &'a mut [u8],
    count: usize,
    /// The bytes that had no room.
    pub(super) rest: Vec<u8>,
}

impl PlainText<'_> {
    /// Returns an owner's memory, into which nothing was written yet.
    pub(super) fn new(into: &mut [u8]) -> PlainText<'_> {
        let rest = Vec::new();
        PlainText {
            into,
            count: 0,
            rest,
        }
    }

    /// Returns plain text that is only kept.
    pub(super) fn nowhere() -> PlainText<'static> {
        PlainText::new(&mut [])
    }

    /// Returns the number of bytes in the owner's memory.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of bytes for which the owner has room.
    pub(super) fn room(&self) -> usize {
        self.into.len() - self.count
    }

    /// Returns `true` if no more should be decrypted.
    pub(super) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Fills the owner's memory from plain text that was kept.
    pub(super) fn refill(&mut self, kept: &mut Vec<u8>) {
        let fits = self.fill(kept);
        kept.drain(..fits);
        if kept.is_empty() {
            *kept = Vec::new();
        }
    }

    fn fill(&mut self, bytes: &[u8]) -> usize {
        let fits = bytes.len().min(self.room());
        self.into[self.count..self.count + fits].copy_from_slice(&bytes[..fits]);
        self.count += fits;
        fits
    }

    fn take(&mut self, bytes: &[u8]) {
        let fits = self.fill(bytes);
        self.rest.extend_from_slice(&bytes[fits..]);
    }
}

/// The state in which a step has left the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Another step is to be made.
    Again,
    /// Plain text was decrypted.
    Decrypted,
    /// The handshake waits for more input.
    Handshake,
    /// All whole records of the input are processed, and plain text can be sent.
    Idle,
    /// The peer has announced that it sends nothing more.
    PeerClosed,
    /// Both sides have announced the end.
    Closed,
}

/// Bytes or an announcement that a stream sends.
pub(super) enum Send<'a> {
    Nothing,
    PlainText(&'a [u8]),
    /// The announcement that nothing more will come.
    CloseNotify,
}

impl TlsRecords {
    /// Returns `true` while the peers agree on keys.
    pub(super) fn is_handshaking(&self) -> bool {
        match self {
            TlsRecords::Server(tls) => tls.is_handshaking(),
            TlsRecords::Client(tls) => tls.is_handshaking(),
        }
    }

    /// Processes records of `input` until there is no whole one any more, or `plain` is full, and appends answers
    /// to `out`. Returns the number of bytes of `input` that are processed, and `true` if the peer has announced
    /// the end behind them.
    ///
    /// # Errors
    /// Returns the library's error beside that number; `out` then holds the alert that reports it to the peer.
    pub(super) fn decrypt(
        &mut self,
        input: &mut [u8],
        plain: &mut PlainText<'_>,
        out: &mut Ciphertext,
    ) -> (usize, Result<bool, rustls::Error>) {
        let (mut done, mut over) = (0, false);
        loop {
            match self.step(input, &mut done, plain, out, &Send::Nothing) {
                Ok(Step::Decrypted) if plain.is_full() => return (done, Ok(over)),
                Ok(Step::Again | Step::Decrypted) => {}
                Ok(Step::PeerClosed) => over = true,
                Ok(Step::Handshake | Step::Idle | Step::Closed) => return (done, Ok(over)),
                Err(error) => return (done, Err(error)),
            }
        }
    }

    /// Appends the ciphertext of `what` to `out`. Records of `input` are processed before and removed; their plain
    /// text is appended to `rest`.
    ///
    /// # Errors
    /// Returns the library's error; `out` then holds the alert that reports it to the peer.
    pub(super) fn encrypt(
        &mut self,
        what: &Send<'_>,
        input: &mut Vec<u8>,
        rest: &mut Vec<u8>,
        out: &mut Ciphertext,
    ) -> Result<(), rustls::Error> {
        let (mut done, mut plain) = (0, PlainText::nowhere());
        let result = loop {
            match self.step(input, &mut done, &mut plain, out, what) {
                Ok(Step::Again | Step::Decrypted | Step::PeerClosed) => {}
                Ok(Step::Handshake | Step::Idle | Step::Closed) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        input.drain(..done);
        rest.append(&mut plain.rest);
        result
    }

    fn wants_write(&self) -> bool {
        match self {
            TlsRecords::Server(tls) => tls.wants_write(),
            TlsRecords::Client(tls) => tls.wants_write(),
        }
    }

    /// Processes `input` from `done` on up to the next state.
    fn step(
        &mut self,
        input: &mut [u8],
        done: &mut usize,
        plain: &mut PlainText<'_>,
        out: &mut Ciphertext,
        send: &Send<'_>,
    ) -> Result<Step, rustls::Error> {
        let mut one = |records: &mut TlsRecords, send: &Send<'_>| {
            let input = &mut input[*done..];
            let (discard, step) = match records {
                TlsRecords::Server(tls) => take(tls.process_tls_records(input), plain, out, send),
                TlsRecords::Client(tls) => take(tls.process_tls_records(input), plain, out, send),
            };
            *done += discard;
            step
        };
        let step = one(self, send);
        // Behind an error come only answers, the last of them the alert that reports it; input must not be
        // processed any more.
        while step.is_err() && self.wants_write() {
            let _ = one(self, &Send::Nothing);
        }
        step
    }
}

/// Ciphertext to be sent. Its memory is kept from one use to the next, so that room is cleared only once.
#[derive(Default)]
pub(super) struct Ciphertext {
    memory: Vec<u8>,
    len: usize,
}

impl Ciphertext {
    /// Returns the ciphertext.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// Forgets the ciphertext.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns `room` bytes behind the ciphertext.
    fn room(&mut self, room: usize) -> &mut [u8] {
        let end = self.len + room;
        if self.memory.len() < end {
            self.memory.resize(end, 0);
        }
        &mut self.memory[self.len..end]
    }

    /// Appends what `encode` writes, with at least as much room as it asks for.
    fn append(
        &mut self,
        mut room: usize,
        mut encode: impl FnMut(&mut [u8]) -> Result<Result<usize, rustls::Error>, InsufficientSizeError>,
    ) -> Result<(), rustls::Error> {
        loop {
            match encode(self.room(room)) {
                Ok(written) => {
                    self.len += written?;
                    return Ok(());
                }
                Err(size) => room = size.required_size,
            }
        }
    }
}

/// Does what the library asks for. Returns how many bytes of the input are consumed.
fn take<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    plain: &mut PlainText<'_>,
    out: &mut Ciphertext,
    send: &Send<'_>,
) -> (usize, Result<Step, rustls::Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => {
            let mut read = Ok(Step::Decrypted);
            while let Some(record) = traffic.next_record() {
                match record {
                    Ok(record) => {
                        discard += record.discard;
                        plain.take(record.payload);
                    }
                    Err(error) => read = Err(error),
                }
            }
            read
        }
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let encoded = out.append(HANDSHAKE, |room| match data.encode(room) {
                Err(EncodeError::InsufficientSize(size)) => Err(size),
                Ok(count) => Ok(Ok(count)),
                Err(EncodeError::AlreadyEncoded) => Ok(Ok(0)),
            });
            encoded.map(|()| Step::Again)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Step::Again)
        }
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            write(&mut traffic, send, out).map(|()| Step::Idle)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Handshake),
        Ok(ConnectionState::PeerClosed) => Ok(Step::PeerClosed),
        Ok(ConnectionState::Closed) => Ok(Step::Closed),
        // Early data is never offered, and other states do not exist.
        Ok(_) => Err(rustls::Error::General(
            "a state of TLS that is not known here".to_owned(),
        )),
    };
    (discard, step)
}

fn write<Data>(
    traffic: &mut WriteTraffic<'_, Data>,
    send: &Send<'_>,
    out: &mut Ciphertext,
) -> Result<(), rustls::Error> {
    let result = |result| match result {
        Err(EncryptError::InsufficientSize(size)) => Err(size),
        Ok(count) => Ok(Ok(count)),
        Err(EncryptError::EncryptExhausted) => Ok(Err(rustls::Error::EncryptError)),
    };
    match send {
        Send::Nothing => Ok(()),
        Send::PlainText(bytes) => {
            let room = bytes.len() + (bytes.len() / RECORD + 1) * RECORD_OVERHEAD;
            out.append(room, |room| result(traffic.encrypt(bytes, room)))
        }
        Send::CloseNotify => out.append(RECORD_OVERHEAD, |room| {
            result(traffic.queue_close_notify(room))
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
    use testkit::tls::CertificateAuthority;

    use super::super::certificates::{CertificateFiles, ClientCertificates, ServerTls};
    use super::*;

    /// One side of a connection, and the bytes on their way to it.
    struct Side {
        records: TlsRecords,
        /// Ciphertext on its way.
        incoming: Vec<u8>,
        /// The beginning of a record.
        kept: Vec<u8>,
        plain: Vec<u8>,
    }

    impl Side {
        fn new(records: TlsRecords) -> Side {
            Side {
                records,
                incoming: Vec::new(),
                kept: Vec::new(),
                plain: Vec::new(),
            }
        }

        /// Processes at most `most` bytes that have arrived, with room for `room` bytes of plain text, and sends
        /// the answers to `other`.
        fn receive(
            &mut self,
            most: usize,
            room: usize,
            other: &mut Side,
        ) -> Result<(), rustls::Error> {
            let most = most.min(self.incoming.len());
            self.kept.extend(self.incoming.drain(..most));
            let (mut memory, mut out) = (vec![0; room], Ciphertext::default());
            let mut plain = PlainText::new(&mut memory);
            let (done, result) = self.records.decrypt(&mut self.kept, &mut plain, &mut out);
            let (count, rest) = (plain.count(), std::mem::take(&mut plain.rest));
            self.plain.extend_from_slice(&memory[..count]);
            self.plain.extend(rest);
            self.kept.drain(..done);
            other.incoming.extend_from_slice(out.bytes());
            result.map(|_| ())
        }

        fn send(&mut self, what: &Send<'_>, other: &mut Side) {
            let mut out = Ciphertext::default();
            let encrypted = self
                .records
                .encrypt(what, &mut self.kept, &mut self.plain, &mut out);
            encrypted.expect("it is encrypted");
            other.incoming.extend_from_slice(out.bytes());
        }
    }

    /// Returns a client and a server whose handshake is over.
    fn connected(version: &'static SupportedProtocolVersion) -> (Side, Side) {
        let authority = CertificateAuthority::new("one");
        let (cert, key) = authority.sign("server", |_| {});
        let clients = ClientCertificates::None;
        let server = ServerTls::load(CertificateFiles { cert, key, clients }).expect("files");
        let server = UnbufferedServerConnection::new(server.config()).expect("a server");
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(authority.ca()).expect("a certificate");
        roots.add(ca).expect("it is added");
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::IpAddress(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST).into());
        let client = UnbufferedClientConnection::new(Arc::new(client), name).expect("a client");
        let mut client = Side::new(TlsRecords::Client(Box::new(client)));
        let mut server = Side::new(TlsRecords::Server(Box::new(server)));
        for _ in 0..1000 {
            client.receive(100, 0, &mut server).expect("it agrees");
            server.receive(100, 0, &mut client).expect("it agrees");
            if !client.records.is_handshaking() && !server.records.is_handshaking() {
                return (client, server);
            }
        }
        panic!("no end of the handshake");
    }

    #[test]
    fn bytes_pass_however_they_are_cut() {
        for version in [&TLS12, &TLS13] {
            let (mut client, mut server) = connected(version);
            let sent: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
            for length in [
                0,
                1,
                100,
                RECORD - 1,
                RECORD,
                RECORD + 1,
                64 * 1024,
                sent.len(),
            ] {
                for (most, room) in [(7, 3), (1000, 0), (5000, 100_000), (usize::MAX, 20_000)] {
                    client.send(&Send::PlainText(&sent[..length]), &mut server);
                    server.send(&Send::PlainText(&sent[..length]), &mut client);
                    let mut steps = 0;
                    while client.plain.len() < length || server.plain.len() < length {
                        client
                            .receive(most, room, &mut server)
                            .expect("it is decrypted");
                        server
                            .receive(most, room, &mut client)
                            .expect("it is decrypted");
                        steps += 1;
                        assert!(steps < 100_000, "{length} bytes in pieces of {most}");
                    }
                    assert!(client.plain == sent[..length] && server.plain == sent[..length]);
                    client.plain.clear();
                    server.plain.clear();
                }
            }
            client.send(&Send::CloseNotify, &mut server);
            let mut out = Ciphertext::default();
            let (_, over) =
                server
                    .records
                    .decrypt(&mut server.incoming, &mut PlainText::nowhere(), &mut out);
            assert!(over.expect("it is decrypted"), "the end is announced");
        }
    }

    /// The side that finds an altered byte reports it to its peer by an alert, and what was decrypted before it is
    /// good.
    #[test]
    fn an_altered_byte_ends_the_connection_with_an_alert() {
        for at in [5, 10, 60, 100] {
            let (mut client, mut server) = connected(&TLS13);
            while !client.incoming.is_empty() {
                client.receive(usize::MAX, 0, &mut server).expect("tickets");
            }
            client.send(&Send::PlainText(b"whole"), &mut server);
            let whole = server.incoming.len();
            client.send(&Send::PlainText(&[b'x'; 100]), &mut server);
            server.incoming[whole + at] ^= 1;
            let mut result = Ok(());
            for _ in 0..3 {
                result = result.and_then(|()| server.receive(usize::MAX, 1000, &mut client));
            }
            assert_eq!(result, Err(rustls::Error::DecryptError));
            assert_eq!(server.plain, b"whole");
            let alert = client.receive(usize::MAX, 1000, &mut server);
            let alert = alert.expect_err("the server has sent an alert");
            assert!(matches!(alert, rustls::Error::AlertReceived(_)), "{alert}");
        }
    }
}
