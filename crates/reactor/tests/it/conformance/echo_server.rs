//! A server that sends back what it receives, over any network.

use std::io::{self, ErrorKind, IoSlice};
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reactor::SocketEvent;

use super::{PATIENCE, SuiteNetwork};

/// Connections' tokens are below.
const LISTENER: usize = 1 << 20;
/// How long the server waits for events in one turn.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// Bytes that are read and not written of a connection before nothing more is read.
const UNSENT: usize = 200_000;
/// Bytes read at a time.
const READ: usize = 50_000;

struct EchoedConnection<N: SuiteNetwork> {
    stream: N::Stream,
    unsent: Vec<u8>,
    readable: bool,
    writable: bool,
    ended: bool,
}

pub(crate) struct EchoServer<N: SuiteNetwork> {
    pub(crate) network: N,
    listener: N::Listener,
    accepting: bool,
    connections: Vec<Option<EchoedConnection<N>>>,
    /// Connections that have had their share of the last turn, and can go on.
    unfinished: Vec<usize>,
    happened: Vec<SocketEvent>,
    /// The errors that the network's operations returned.
    pub(crate) errors: Vec<io::Error>,
}

impl<N: SuiteNetwork> EchoServer<N> {
    pub(crate) fn new(socket: TcpListener) -> io::Result<EchoServer<N>> {
        let mut network = N::opened()?;
        Ok(EchoServer {
            listener: network.listen(socket, LISTENER)?,
            network,
            accepting: false,
            connections: Vec::new(),
            unfinished: Vec::new(),
            happened: Vec::new(),
            errors: Vec::new(),
        })
    }

    /// Serves until the thread ends. Returns its result.
    pub(crate) fn serve_until<T>(&mut self, peers: JoinHandle<T>) -> T {
        self.turn_until(|_| peers.is_finished());
        peers.join().expect("no panic")
    }

    /// Serves until `enough`, which gets the events of tokens that are not the server's.
    pub(crate) fn turn_until(&mut self, mut enough: impl FnMut(Option<SocketEvent>) -> bool) {
        let begin = Instant::now();
        while !enough(None) {
            assert!(begin.elapsed() < PATIENCE * 3, "{:?}", self.errors);
            if self
                .turn(PAUSE)
                .into_iter()
                .any(|event| enough(Some(event)))
            {
                return;
            }
        }
    }

    /// Serves until all peers have ended.
    pub(crate) fn serve_all(&mut self) {
        let begin = Instant::now();
        while self.accepting || self.connections.iter().any(Option::is_some) {
            assert!(begin.elapsed() < PATIENCE, "a connection is not closed");
            self.turn(PAUSE);
        }
    }

    /// Waits once, at most for `pause`, and serves the connections that have events. Returns the events of other tokens.
    pub(crate) fn turn(&mut self, pause: Duration) -> Vec<SocketEvent> {
        let is_idle = !self.accepting && self.unfinished.is_empty();
        let pause = if is_idle { pause } else { Duration::ZERO };
        if let Err(error) = self.network.wait(&mut self.happened, Some(pause)) {
            self.errors.push(error);
        }
        let (mut others, mut touched) = (Vec::new(), std::mem::take(&mut self.unfinished));
        for event in self.happened.drain(..) {
            if event.token == LISTENER {
                self.accepting = true;
            } else if event.token > LISTENER {
                others.push(event);
            } else if let Some(Some(connection)) = self.connections.get_mut(event.token) {
                connection.readable |= event.readable;
                connection.writable |= event.writable;
                touched.push(event.token);
            }
        }
        self.accepting = self.accepting && self.accept(&mut touched);
        for token in touched {
            self.serve(token);
        }
        others
    }

    /// Accepts connections. Returns `true` if there may be more.
    fn accept(&mut self, touched: &mut Vec<usize>) -> bool {
        loop {
            let token = self.connections.len();
            let accepted = self.network.accept(&self.listener);
            let watched = accepted.and_then(|(mut stream, _)| {
                let watched = self.network.local_address(&stream).map(drop);
                let unsupported = |error: &io::Error| error.kind() == ErrorKind::Unsupported;
                let watched = watched.or_else(|error| match unsupported(&error) {
                    true => Ok(()),
                    false => Err(error),
                });
                match watched.and_then(|()| self.network.watch(&mut stream, token)) {
                    Ok(()) => Ok(stream),
                    Err(error) => {
                        self.network.close(stream);
                        Err(error)
                    }
                }
            });
            match watched {
                Ok(stream) => self.connections.push(Some(EchoedConnection {
                    stream,
                    unsent: Vec::new(),
                    readable: true,
                    writable: true,
                    ended: false,
                })),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => {
                    self.errors.push(error);
                    return true;
                }
            }
            touched.push(token);
        }
    }

    /// Reads and writes as much as is possible; closes a connection that has ended or is broken.
    fn serve(&mut self, token: usize) {
        let Some(mut connection) = self.connections[token].take() else {
            return;
        };
        match exchange(&mut self.network, &mut connection, token.is_multiple_of(2)) {
            Ok(true) => self.network.close(connection.stream),
            Ok(false) => {
                if connection.may_read() {
                    self.unfinished.push(token);
                }
                self.connections[token] = Some(connection);
            }
            Err(error) => {
                self.errors.push(error);
                self.network.close(connection.stream);
            }
        }
    }
}

impl<N: SuiteNetwork> EchoedConnection<N> {
    fn may_read(&self) -> bool {
        self.readable && !self.ended && self.unsent.len() < UNSENT
    }
}

/// Reads until there is enough, and sends it back. Returns `true` if the peer has ended and has everything. `behind`
/// selects one of the two ways to read, and of the two ways to write.
fn exchange<N: SuiteNetwork>(
    network: &mut N,
    connection: &mut EchoedConnection<N>,
    behind: bool,
) -> io::Result<bool> {
    while connection.may_read() {
        let unsent = &mut connection.unsent;
        let before = unsent.len();
        let read = if behind {
            unsent.reserve(READ);
            network.read_behind(&mut connection.stream, unsent)
        } else {
            unsent.resize(before + READ, 0);
            let read = network.read(&mut connection.stream, &mut unsent[before..]);
            unsent.truncate(before + *read.as_ref().unwrap_or(&0));
            read
        };
        let count = or_blocked(read.map(Some), None)?;
        connection.readable = count.is_some();
        connection.ended = count == Some(0);
    }
    while connection.writable && !connection.unsent.is_empty() {
        let (first, second) = connection.unsent.split_at(connection.unsent.len() / 2);
        let pieces = [IoSlice::new(first), IoSlice::new(second)];
        let whole = [IoSlice::new(&connection.unsent)];
        let written = network.write(
            &mut connection.stream,
            if behind { &whole } else { &pieces },
        );
        let count = or_blocked(written.map(Some), None)?;
        connection.writable = count.is_some();
        connection.unsent.drain(..count.unwrap_or(0));
    }
    Ok(connection.ended && connection.unsent.is_empty())
}

/// Replaces [`ErrorKind::WouldBlock`] by a value.
fn or_blocked<T>(result: io::Result<T>, blocked: T) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(blocked),
        result => result,
    }
}
