//! The sockets of a ring. Each is open as long as requests name it: its place holds it, and is freed
//! when it was removed and no request is under way.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use io_uring::types::Fd;
use rustix::net::Shutdown;
use slab::Slab;

/// A socket of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketId(pub(crate) usize);

struct Socket {
    socket: OwnedFd,
    key: usize,
    /// Requests that are not over.
    under_way: u32,
    /// A send is among them.
    sending: bool,
    removed: bool,
}

/// See the module's page.
#[derive(Default)]
pub(crate) struct Sockets(Slab<Socket>);

impl Sockets {
    pub(crate) fn add(&mut self, socket: OwnedFd, key: usize) -> SocketId {
        SocketId(self.0.insert(Socket {
            socket,
            key,
            under_way: 0,
            sending: false,
            removed: false,
        }))
    }

    pub(crate) fn socket(&self, id: SocketId) -> BorrowedFd<'_> {
        self.0[id.0].socket.as_fd()
    }

    /// As requests name it.
    pub(crate) fn fd(&self, id: SocketId) -> Fd {
        Fd(self.0[id.0].socket.as_raw_fd())
    }

    /// What the socket at a place was added with, unless it was removed.
    pub(crate) fn key(&self, place: usize) -> Option<usize> {
        let socket = self.0.get(place)?;
        (!socket.removed).then_some(socket.key)
    }

    pub(crate) fn remove(&mut self, id: SocketId) {
        let socket = &mut self.0[id.0];
        assert!(!socket.removed, "a socket is removed once");
        socket.removed = true;
        if socket.under_way > 0 {
            // Requests hold on to the socket; this ends it for the peer at once, and them with it.
            // What was never connected is told of by an error, and need not be ended.
            let _ = rustix::net::shutdown(&socket.socket, Shutdown::Both);
        } else {
            self.0.remove(id.0);
        }
    }

    /// Nothing more is told of any of them.
    pub(crate) fn remove_all(&mut self) {
        for (_, socket) in &mut self.0 {
            socket.removed = true;
        }
    }

    /// A request is made that names the socket.
    pub(crate) fn asked(&mut self, id: SocketId) {
        self.0[id.0].under_way += 1;
    }

    /// A request of the socket at this place may be over, and the socket with it.
    pub(crate) fn release(&mut self, place: usize, over: bool) {
        let socket = &mut self.0[place];
        socket.under_way -= u32::from(over);
        if socket.under_way == 0 && socket.removed {
            self.0.remove(place);
        }
    }

    /// The one send of a wait is made.
    pub(crate) fn begin_send(&mut self, id: SocketId) {
        let sending = &mut self.0[id.0].sending;
        assert!(!std::mem::replace(sending, true), "two sends");
    }

    /// It is over.
    pub(crate) fn end_send(&mut self, place: usize) {
        self.0[place].sending = false;
        self.release(place, true);
    }
}
