//! The sockets of a ring. A socket stays open as long as requests name it: its place holds it, and
//! is freed when the socket was removed and no request is under way.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use io_uring::types::Fd;
use rustix::net::Shutdown;
use slab::Slab;

/// A socket of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketId(pub(super) usize);

struct Socket {
    socket: OwnedFd,
    key: usize,
    /// The number of requests that are not over.
    under_way: u32,
    /// A send is among them.
    sending: bool,
    removed: bool,
}

/// See the module's page.
#[derive(Default)]
pub(super) struct Sockets(Slab<Socket>);

impl Sockets {
    pub(super) fn add(&mut self, socket: OwnedFd, key: usize) -> SocketId {
        SocketId(self.0.insert(Socket {
            socket,
            key,
            under_way: 0,
            sending: false,
            removed: false,
        }))
    }

    pub(super) fn socket(&self, id: SocketId) -> BorrowedFd<'_> {
        self.0[id.0].socket.as_fd()
    }

    /// Returns the descriptor by which requests name the socket.
    pub(super) fn fd(&self, id: SocketId) -> Fd {
        Fd(self.0[id.0].socket.as_raw_fd())
    }

    /// Returns the key with which the socket at a place was added, unless the socket was removed.
    pub(super) fn key(&self, place: usize) -> Option<usize> {
        let socket = self.0.get(place)?;
        (!socket.removed).then_some(socket.key)
    }

    pub(super) fn remove(&mut self, id: SocketId) {
        let socket = &mut self.0[id.0];
        assert!(!socket.removed, "a socket is removed once");
        socket.removed = true;
        if socket.under_way > 0 {
            // Requests keep the socket open; this ends it for the peer at once, and the requests
            // with it. A socket that was never connected is reported by an error, and need not be
            // ended.
            let _ = rustix::net::shutdown(&socket.socket, Shutdown::Both);
        } else {
            self.0.remove(id.0);
        }
    }

    /// Removes all sockets: no outcome of them is reported any more.
    pub(super) fn remove_all(&mut self) {
        for (_, socket) in &mut self.0 {
            socket.removed = true;
        }
    }

    /// Counts a request that names the socket.
    pub(super) fn asked(&mut self, id: SocketId) {
        self.0[id.0].under_way += 1;
    }

    /// Counts the end of a request of the socket at this place, if it is `over`, and frees the
    /// socket with the last one.
    pub(super) fn release(&mut self, place: usize, over: bool) {
        let socket = &mut self.0[place];
        socket.under_way -= u32::from(over);
        if socket.under_way == 0 && socket.removed {
            self.0.remove(place);
        }
    }

    /// Notes the one send of a wait.
    pub(super) fn begin_send(&mut self, id: SocketId) {
        let sending = &mut self.0[id.0].sending;
        assert!(!std::mem::replace(sending, true), "two sends");
    }

    /// Notes that the send is over.
    pub(super) fn end_send(&mut self, place: usize) {
        self.0[place].sending = false;
        self.release(place, true);
    }
}
