//! TLS around a network: encrypted streams that look like plain ones to their owners.
//!
//! Protocols know nothing of it. An event loop without TLS does not use this module at all, so plain
//! connections cost nothing more.
//!
//! The way of the bytes: input of the inner network is decrypted where it was received, in memory that all
//! streams of a thread share (`records`), and plain text is copied to its owner; output is encrypted
//! at once, and ciphertext that the socket does not take waits here. Sessions belong to the network,
//! not to the owners of streams, so that handshakes go on and ciphertext is flushed in
//! [`Network::wait`] even while the owner of the stream waits for something else.
//!
//! Invariants:
//! 1. The owner of a stream gets events of it only when the handshake is over: then as readable and
//!    writable, or, when it has failed, as ended.
//! 2. A read that returns less than there is room for has emptied the socket and the session, as
//!    invariant 1 of [`crate::network`] requires.
//! 3. No more plain text is taken while ciphertext waits for the socket: the bytes that wait for one
//!    stream are the ciphertext of at most `session::MOST_WAITING` bytes. An idle stream holds no buffer.
//! 4. A handshake that takes longer than `LIMIT` fails. A stream that was closed while ciphertext
//!    waited is kept as long, and no longer.
//! 5. Inner streams have numbers of their own, from `BASE` on, so that a number which the owner uses
//!    again is never mistaken for a stream that lingers.

mod blocking;
mod certificates;
mod records;
mod session;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::log_limit::LogLimit;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use slab::Slab;

use crate::network::{Network, SocketEvent, read_spare};
use records::TlsRecords;
use session::{Phase, Session, SessionMemory, SessionNetwork};

pub use blocking::BlockingStream;
pub use certificates::{
    AuthorityFiles, CertificateError, CertificateFiles, ClientCertificates, ClientTls, ServerTls,
    handshake_error,
};

/// How long a handshake may take, and how long a closed stream may take to send its ciphertext.
const LIMIT: Duration = Duration::from_secs(10);
/// Inner streams' numbers begin here; numbers of owners and of listeners are outside
/// [`BASE`]`..2 * BASE`.
const BASE: usize = 1 << (usize::BITS - 2);
/// Each thread logs failed connections of clients at most once in this time, for each reason.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// An encrypted stream, or a plain one.
pub enum Stream<S> {
    /// A stream of the inner network.
    Plain(S),
    /// The place of the stream's session.
    Tls(usize),
}

/// See the module documentation.
pub struct Tls<N: Network> {
    inner: N,
    settings: TlsSettings,
    sessions: Slab<Session<N::Stream>>,
    /// Sessions with a deadline, the earliest first.
    deadlines: VecDeque<(Instant, usize, u64)>,
    serial: u64,
    /// Sessions to be checked without an event.
    fresh: Vec<usize>,
    /// Events that the next wait reports.
    events: Vec<SocketEvent>,
    raw: Vec<SocketEvent>,
    memory: SessionMemory,
    /// Limits log lines about connections that fail before they are encrypted, by the reason.
    logged: LogLimit<String>,
    started: Instant,
}

/// The connections that are encrypted, and by which certificates.
#[derive(Clone, Default)]
pub struct TlsSettings {
    /// For connections that are accepted; `None`: they are not encrypted.
    pub server: Option<Arc<ServerTls>>,
    /// The tokens of listeners whose connections are not encrypted in spite of `server`.
    pub unencrypted_listeners: &'static [usize],
    /// For connections that are made; `None`: they are not encrypted.
    pub client: Option<Arc<ClientTls>>,
}

impl TlsSettings {
    /// Returns `true` if nothing is encrypted.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.server.is_none() && self.client.is_none()
    }
}

/// A socket that accepts connections.
pub struct TlsListener<L> {
    inner: L,
    encrypted: bool,
}

impl<N: Network> Tls<N> {
    /// Creates TLS over `inner`.
    pub fn around(inner: N, settings: TlsSettings) -> Tls<N> {
        Tls {
            inner,
            settings,
            sessions: Slab::new(),
            deadlines: VecDeque::new(),
            serial: 0,
            fresh: Vec::new(),
            events: Vec::new(),
            raw: Vec::new(),
            memory: SessionMemory::default(),
            logged: LogLimit::new(LOG_INTERVAL),
            started: Instant::now(),
        }
    }

    fn inner_stream<'a>(&'a self, stream: &'a Stream<N::Stream>) -> &'a N::Stream {
        match stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(key) => &self.sessions[*key].stream,
        }
    }

    /// Creates a session and starts its deadline.
    fn begin(&mut self, stream: N::Stream, tls: TlsRecords, phase: Phase) -> usize {
        self.serial += 1;
        let session = Session::new(stream, tls, phase, self.serial);
        let key = self.sessions.insert(session);
        self.let_time_run(key);
        key
    }

    fn let_time_run(&mut self, key: usize) {
        let serial = self.sessions[key].serial;
        self.deadlines
            .push_back((Instant::now() + LIMIT, key, serial));
    }

    fn with<R>(
        &mut self,
        key: usize,
        use_it: impl FnOnce(&mut Session<N::Stream>, &mut SessionNetwork<'_, N>) -> R,
    ) -> R {
        let mut around = SessionNetwork {
            inner: &mut self.inner,
            memory: &mut self.memory,
        };
        use_it(&mut self.sessions[key], &mut around)
    }

    /// Advances a session after the event `happened`, and notes the events for its owner.
    fn go_on(&mut self, key: usize, happened: SocketEvent) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.note(happened);
        if session.phase == Phase::Closing {
            let over = self.with(key, |session, around| session.flush(around));
            if !matches!(over, Ok(false)) {
                self.forget(key);
            }
            return;
        }
        let was_open = session.phase == Phase::Open;
        let token = session.token;
        let done = self.with(key, |session, around| session.advance(around));
        let event = match done {
            Ok(open) if open && was_open => {
                let waits = self.sessions[key].has_ciphertext();
                SocketEvent {
                    writable: happened.writable && !waits,
                    ..happened
                }
            }
            Ok(true) => SocketEvent {
                token: 0,
                readable: true,
                writable: true,
                ended: self.sessions[key].ended,
            },
            Ok(false) => return,
            Err(error) => {
                self.log_failure(key, &error);
                self.sessions[key].fail(error);
                SocketEvent {
                    token: 0,
                    readable: true,
                    writable: true,
                    ended: true,
                }
            }
        };
        if let Some(token) = token
            && (event.readable || event.writable || event.ended)
        {
            self.events.push(SocketEvent { token, ..event });
        }
    }

    /// Logs why a client's connection failed; links to nodes log their failures themselves.
    fn log_failure(&mut self, key: usize, error: &io::Error) {
        let session = &self.sessions[key];
        let Some(peer) = session.client else {
            return;
        };
        if session.phase == Phase::Open {
            tracing::debug!(%peer, %error, "TLS with a client");
            return;
        }
        match self.logged.count(error.to_string(), self.started.elapsed()) {
            Some(left_out) => tracing::warn!(%peer, %error, "TLS with a client{left_out}"),
            None => tracing::debug!(%peer, %error, "TLS with a client"),
        }
    }

    fn forget(&mut self, key: usize) {
        let session = self.sessions.remove(key);
        self.inner.close(session.stream);
    }

    /// Ends sessions whose deadline has passed.
    fn expire(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(&(due, key, serial)) = self.deadlines.front()
            && (due <= now || self.is_over(key, serial))
        {
            self.deadlines.pop_front();
            if self.is_over(key, serial) {
                continue;
            }
            if self.sessions[key].phase == Phase::Closing {
                self.forget(key);
                continue;
            }
            let error = io::Error::new(ErrorKind::TimedOut, "the handshake took too long");
            self.log_failure(key, &error);
            self.sessions[key].fail(error);
            if let Some(token) = self.sessions[key].token {
                self.events.push(SocketEvent {
                    token,
                    readable: true,
                    writable: true,
                    ended: true,
                });
            }
        }
    }

    /// Returns `true` if the session's deadline no longer applies.
    fn is_over(&self, key: usize, serial: u64) -> bool {
        let session = self.sessions.get(key);
        session.is_none_or(|session| session.serial != serial || !session.has_deadline())
    }

    fn timeout(&self, wanted: Option<Duration>) -> Option<Duration> {
        if !self.events.is_empty() {
            return Some(Duration::ZERO);
        }
        let due = self.deadlines.front().map(|(due, ..)| *due);
        let due = due.map(|due| due.saturating_duration_since(Instant::now()));
        [wanted, due].into_iter().flatten().min()
    }
}

impl<N: Network> Network for Tls<N> {
    type Stream = Stream<N::Stream>;
    type Listener = TlsListener<N::Listener>;
    type Waker = N::Waker;

    /// Creates a network that encrypts nothing: it has no certificates.
    fn open() -> io::Result<Tls<N>> {
        Ok(Tls::around(N::open()?, TlsSettings::default()))
    }

    fn waker(&mut self) -> io::Result<N::Waker> {
        self.inner.waker()
    }

    fn listen(
        &mut self,
        socket: std::net::TcpListener,
        token: usize,
    ) -> io::Result<Self::Listener> {
        Ok(TlsListener {
            inner: self.inner.listen(socket, token)?,
            encrypted: !self.settings.unencrypted_listeners.contains(&token),
        })
    }

    fn accept(&mut self, listener: &Self::Listener) -> io::Result<(Self::Stream, SocketAddr)> {
        let (stream, address) = self.inner.accept(&listener.inner)?;
        let server = self.settings.server.as_ref().filter(|_| listener.encrypted);
        let Some(server) = server else {
            return Ok((Stream::Plain(stream), address));
        };
        let tls = UnbufferedServerConnection::new(server.config()).map_err(io::Error::other)?;
        let key = self.begin(stream, TlsRecords::Server(Box::new(tls)), Phase::Handshake);
        self.sessions[key].client = Some(address);
        Ok((Stream::Tls(key), address))
    }

    fn set_keep_alive(&mut self, after: Duration) {
        self.inner.set_keep_alive(after);
    }

    fn watch(&mut self, stream: &mut Self::Stream, token: usize) -> io::Result<()> {
        match stream {
            Stream::Plain(stream) => self.inner.watch(stream, token),
            Stream::Tls(key) => {
                let session = &mut self.sessions[*key];
                session.token = Some(token);
                self.fresh.push(*key);
                self.inner.watch(&mut session.stream, BASE + *key)
            }
        }
    }

    fn connect(&mut self, address: SocketAddr, token: usize) -> io::Result<Self::Stream> {
        let Some(client) = self.settings.client.clone() else {
            return self.inner.connect(address, token).map(Stream::Plain);
        };
        let (config, name) = client.session(address);
        let tls = UnbufferedClientConnection::new(config, name).map_err(io::Error::other)?;
        let key = self.sessions.vacant_key();
        let stream = self.inner.connect(address, BASE + key)?;
        let made = self.begin(stream, TlsRecords::Client(Box::new(tls)), Phase::Connecting);
        debug_assert_eq!(made, key, "the vacant place is the next one");
        self.sessions[key].token = Some(token);
        Ok(Stream::Tls(key))
    }

    fn connected(&mut self, stream: &Self::Stream) -> io::Result<()> {
        match stream {
            Stream::Plain(stream) => self.inner.connected(stream),
            Stream::Tls(key) => self.sessions[*key].connected(),
        }
    }

    fn read(&mut self, stream: &mut Self::Stream, into: &mut [u8]) -> io::Result<usize> {
        match stream {
            Stream::Plain(stream) => self.inner.read(stream, into),
            Stream::Tls(key) => {
                let key = *key;
                let result = self.with(key, |session, around| session.read(around, into));
                let session = &self.sessions[key];
                if let (Ok(1..), true, Some(token)) = (&result, session.has_ended(), session.token)
                {
                    // An owner that got less than there was room for does not read again by itself.
                    self.events.push(SocketEvent {
                        token,
                        readable: true,
                        writable: false,
                        ended: true,
                    });
                }
                result
            }
        }
    }

    fn write(&mut self, stream: &mut Self::Stream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match stream {
            Stream::Plain(stream) => self.inner.write(stream, pieces),
            Stream::Tls(key) => self.with(*key, |session, around| session.write(around, pieces)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    fn read_behind(&mut self, stream: &mut Self::Stream, into: &mut Vec<u8>) -> io::Result<usize> {
        match stream {
            Stream::Plain(stream) => self.inner.read_behind(stream, into),
            Stream::Tls(_) => read_spare(into, |spare| self.read(stream, spare)),
        }
    }

    fn local_address(&self, stream: &Self::Stream) -> io::Result<SocketAddr> {
        self.inner.local_address(self.inner_stream(stream))
    }

    fn descriptor(&self, stream: &Self::Stream) -> RawFd {
        self.inner.descriptor(self.inner_stream(stream))
    }

    fn registry(&mut self) -> io::Result<&mio::Registry> {
        self.inner.registry()
    }

    fn set_dead_after(&mut self, stream: &Self::Stream, dead_after: Duration) -> io::Result<()> {
        let stream = match stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(key) => &self.sessions[*key].stream,
        };
        self.inner.set_dead_after(stream, dead_after)
    }

    fn end_output(&mut self, stream: &mut Self::Stream) -> io::Result<()> {
        match stream {
            Stream::Plain(stream) => self.inner.end_output(stream),
            Stream::Tls(key) => self
                .with(*key, |session, around| session.say_goodbye(around))
                .map(drop),
        }
    }

    fn close(&mut self, stream: Self::Stream) {
        match stream {
            Stream::Plain(stream) => self.inner.close(stream),
            Stream::Tls(key) => {
                let over = self.with(key, |session, around| session.say_goodbye(around));
                self.serial += 1;
                let session = &mut self.sessions[key];
                // Work in progress has no owner any more.
                let token = session.token.take();
                (session.phase, session.serial) = (Phase::Closing, self.serial);
                self.events.retain(|event| Some(event.token) != token);
                match over {
                    Ok(false) => self.let_time_run(key),
                    Ok(true) | Err(_) => self.forget(key),
                }
            }
        }
    }

    fn wait(
        &mut self,
        happened: &mut Vec<SocketEvent>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        for key in std::mem::take(&mut self.fresh) {
            let nothing = SocketEvent {
                token: 0,
                readable: false,
                writable: false,
                ended: false,
            };
            self.go_on(key, nothing);
        }
        let timeout = self.timeout(timeout);
        let mut raw = std::mem::take(&mut self.raw);
        self.inner.wait(&mut raw, timeout)?;
        for event in raw.drain(..) {
            if (BASE..2 * BASE).contains(&event.token) {
                self.go_on(event.token - BASE, event);
            } else {
                happened.push(event);
            }
        }
        self.raw = raw;
        self.expire();
        happened.append(&mut self.events);
        Ok(())
    }

    fn since_look(&self) -> Duration {
        self.inner.since_look()
    }

    fn has_looked(&self) -> bool {
        self.inner.has_looked()
    }

    fn is_settled(&self) -> bool {
        let mut sessions = self.sessions.iter();
        sessions.all(|(_, session)| session.phase != Phase::Closing)
    }
}
