//! A separate thread does the network input and output of each proxy thread (paper 3, section 4.3,
//! figure 4).
//!
//! The proxy thread has the interface of sockets, and never calls the kernel for a connection. The
//! network's thread reads the input, which waits in a queue and is copied out of it; output is
//! copied into a queue, and the network's thread writes it. Every access to a queue takes a mutex,
//! and both threads wake each other.
//!
//! Invariants:
//! 1. A connection holds at most [`MOST`] bytes in each direction, and as many more as one write of
//!    the network's thread has taken over. Beyond it the network's thread stops reading, and the
//!    proxy thread's writes report that there is no room.
//! 2. Each thread locks one mutex at a time, so that neither can wait for the other forever.
//! 3. For each connection there is at most one order to send, one to read on, one to watch and one
//!    to close, and one event: queues are bounded by the number of connections.
//! 4. Output that was written before a connection was closed is sent, as the kernel does it, unless
//!    the peer takes nothing for [`LINGER`](reactor::buffered::LINGER).

use std::io::{self, ErrorKind, IoSlice};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Buf;
use mio::net::TcpStream;
use parking_lot::{Condvar, Mutex};

use reactor::buffered::MOST;
use reactor::{Network, SocketEvent, Sockets, Wake};

use super::relay::Relay;
use super::relay_queues::{
    AcceptQueue, ConnectionState, RelayCommand, RelayQueues, RelayedConnection,
};

/// See the module's page.
pub struct RelayedNetwork {
    shared: Arc<RelayQueues>,
    thread: Option<JoinHandle<()>>,
}

/// A connection.
pub struct RelayedStream {
    line: Arc<RelayedConnection>,
    /// The socket, until it is watched.
    accepted: Option<TcpStream>,
}

/// The listener.
pub struct RelayedListener {
    queue: Arc<AcceptQueue>,
    shared: Arc<RelayQueues>,
}

impl Drop for RelayedListener {
    fn drop(&mut self) {
        self.shared
            .order(RelayCommand::Unlisten(Arc::clone(&self.queue)));
    }
}

/// Wakes the proxy thread.
pub struct RelayedWaker(Arc<RelayQueues>);

impl Wake for RelayedWaker {
    fn wake(&self) {
        self.0.mailbox.lock().woken = true;
        self.0.arrived.notify_one();
    }
}

impl Network for RelayedNetwork {
    type Stream = RelayedStream;
    type Listener = RelayedListener;
    type Waker = RelayedWaker;

    fn open() -> io::Result<RelayedNetwork> {
        let mut sockets = Sockets::open()?;
        let shared = Arc::new(RelayQueues {
            mailbox: Mutex::default(),
            arrived: Condvar::new(),
            waker: sockets.waker()?,
        });
        let theirs = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("proxy-network".to_owned());
        let thread = builder.spawn(move || Relay::new(sockets, theirs).run())?;
        Ok(RelayedNetwork {
            shared,
            thread: Some(thread),
        })
    }

    fn waker(&mut self) -> io::Result<RelayedWaker> {
        Ok(RelayedWaker(Arc::clone(&self.shared)))
    }

    fn listen(
        &mut self,
        socket: std::net::TcpListener,
        token: usize,
    ) -> io::Result<RelayedListener> {
        let queue = Arc::new(AcceptQueue {
            token,
            state: Mutex::default(),
        });
        self.shared
            .order(RelayCommand::Listen(socket, Arc::clone(&queue)));
        Ok(RelayedListener {
            queue,
            shared: Arc::clone(&self.shared),
        })
    }

    fn accept(&mut self, listener: &RelayedListener) -> io::Result<(RelayedStream, SocketAddr)> {
        let queue = &listener.queue;
        let mut state = queue.state.lock();
        let next = state.waiting.pop_front();
        let held = next.is_none() && mem::take(&mut state.held);
        drop(state);
        if held {
            self.shared.order(RelayCommand::Accept(Arc::clone(queue)));
        }
        let (stream, address) = next.unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))?;
        let line = RelayedConnection {
            state: Mutex::new(ConnectionState {
                made: true,
                ..ConnectionState::default()
            }),
        };
        let stream = RelayedStream {
            line: Arc::new(line),
            accepted: Some(stream),
        };
        Ok((stream, address))
    }

    fn watch(&mut self, stream: &mut RelayedStream, token: usize) -> io::Result<()> {
        stream.line.state.lock().token = token;
        if let Some(accepted) = stream.accepted.take() {
            let line = Arc::clone(&stream.line);
            self.shared.order(RelayCommand::Watch(line, accepted));
        }
        Ok(())
    }

    fn connect(&mut self, address: SocketAddr, token: usize) -> io::Result<RelayedStream> {
        let line = Arc::new(RelayedConnection {
            state: Mutex::new(ConnectionState {
                token,
                ..ConnectionState::default()
            }),
        });
        self.shared
            .order(RelayCommand::Connect(Arc::clone(&line), address));
        Ok(RelayedStream {
            line,
            accepted: None,
        })
    }

    fn connected(&mut self, stream: &RelayedStream) -> io::Result<()> {
        let state = stream.line.state.lock();
        match &state.failed {
            Some(failure) => Err(failure.error()),
            None if state.made => Ok(()),
            None => Err(ErrorKind::NotConnected.into()),
        }
    }

    fn read(&mut self, stream: &mut RelayedStream, into: &mut [u8]) -> io::Result<usize> {
        let mut state = stream.line.state.lock();
        let mut count = 0;
        while count < into.len()
            && let Some(first) = state.incoming.front_mut()
        {
            let some = first.len().min(into.len() - count);
            first.copy_to_slice(&mut into[count..count + some]);
            if first.is_empty() {
                state.incoming.pop_front();
            }
            count += some;
        }
        state.incoming_len -= count;
        if count == 0 {
            return match &state.failed {
                Some(failure) => Err(failure.error()),
                None if state.ended => Ok(0),
                None => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let goes_on = mem::take(&mut state.held);
        drop(state);
        if goes_on {
            self.shared
                .order(RelayCommand::Receive(Arc::clone(&stream.line)));
        }
        Ok(count)
    }

    fn write(&mut self, stream: &mut RelayedStream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(accepted) = &mut stream.accepted {
            // No thread watches it, so that it is written to directly.
            return io::Write::write_vectored(accepted, pieces);
        }
        let mut state = stream.line.state.lock();
        if let Some(failure) = &state.failed {
            return Err(failure.error());
        }
        let mut count = 0;
        for piece in pieces {
            let some = piece.len().min(MOST.saturating_sub(state.unsent));
            state.outgoing.extend_from_slice(&piece[..some]);
            state.unsent += some;
            count += some;
        }
        if count == 0 && pieces.iter().any(|piece| !piece.is_empty()) {
            state.wanted = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let asks = !mem::replace(&mut state.asked, true);
        drop(state);
        if asks {
            self.shared
                .order(RelayCommand::Send(Arc::clone(&stream.line)));
        }
        Ok(count)
    }

    fn close(&mut self, stream: RelayedStream) {
        if stream.accepted.is_some() {
            return;
        }
        let token = stream.line.state.lock().token;
        // The next connection with this number must not get this event.
        self.shared.mailbox.lock().happened.remove(&token);
        self.shared.order(RelayCommand::Close(stream.line));
    }

    fn wait(
        &mut self,
        happened: &mut Vec<SocketEvent>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut mailbox = self.shared.mailbox.lock();
        while mailbox.happened.is_empty() && !mailbox.woken {
            match until {
                None => self.shared.arrived.wait(&mut mailbox),
                Some(until) if until <= Instant::now() => break,
                Some(until) => {
                    self.shared.arrived.wait_until(&mut mailbox, until);
                }
            }
        }
        mailbox.woken = false;
        happened.extend(mailbox.happened.drain().map(|(_, happened)| happened));
        Ok(())
    }
}

impl Drop for RelayedNetwork {
    fn drop(&mut self) {
        self.shared.order(RelayCommand::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread of the network has panicked");
        }
    }
}
