//! One listener for several threads: the thread that has the listener assigns its connections,
//! each to the thread that has the fewest.
//!
//! If several listeners share a port, chance decides which one gets a connection. That is good
//! enough for many connections. If there are few long-lived ones, one thread may get two while
//! another has nothing to do.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use mio::Waker;
use mio::net::TcpStream;
use parking_lot::Mutex;

/// See the module's description.
#[derive(Debug)]
pub struct ConnectionBalancer {
    places: Vec<ThreadQueue>,
}

#[derive(Debug, Default)]
struct ThreadQueue {
    /// The waker of the thread, once it is registered.
    waker: OnceLock<Arc<Waker>>,
    /// The number of connections that it has, or will have in a moment.
    connections: AtomicUsize,
    /// Connections that it has not taken yet; and their number.
    assigned: Mutex<Vec<AssignedConnection>>,
    waiting: AtomicUsize,
}

impl ConnectionBalancer {
    /// Makes a balancer for this many threads.
    #[must_use]
    pub fn new(threads: usize) -> Arc<ConnectionBalancer> {
        let places = (0..threads).map(|_| ThreadQueue::default()).collect();
        Arc::new(ConnectionBalancer { places })
    }

    /// Registers a thread: it gets connections from now on, and is woken for them.
    ///
    /// # Panics
    /// Panics if there is no such thread, or if it is registered.
    #[must_use]
    pub fn register(
        self: &Arc<ConnectionBalancer>,
        number: usize,
        waker: Arc<Waker>,
    ) -> BalancerSlot {
        let taken = self.places[number].waker.set(waker);
        assert!(taken.is_ok(), "thread {number} is registered already");
        BalancerSlot {
            balancer: Arc::clone(self),
            number,
        }
    }
}

/// A thread's part in a balancer.
#[derive(Debug)]
pub struct BalancerSlot {
    balancer: Arc<ConnectionBalancer>,
    number: usize,
}

impl BalancerSlot {
    /// Assigns a connection to a thread. Returns it if it is this thread's own.
    pub(super) fn assign(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Option<AssignedConnection> {
        let places = self.balancer.places.iter().enumerate();
        let taken = places.filter(|(_, place)| place.waker.get().is_some());
        // Among equals, threads other than the accepting one come first: that one has the listener to
        // serve.
        let key = |&(number, place): &(usize, &ThreadQueue)| {
            let connections = place.connections.load(Ordering::Relaxed);
            (connections, number == self.number)
        };
        let (number, place) = taken.min_by_key(key)?;
        place.connections.fetch_add(1, Ordering::Relaxed);
        let assigned = AssignedConnection {
            stream,
            address,
            counted: ConnectionCount(Arc::clone(&self.balancer), number),
        };
        if number == self.number {
            return Some(assigned);
        }
        place.assigned.lock().push(assigned);
        place.waiting.fetch_add(1, Ordering::Release);
        let waker = place.waker.get().expect("the thread is registered");
        if let Err(error) = waker.wake() {
            tracing::error!(%error, "a thread cannot be woken for a connection");
        }
        None
    }

    /// Takes the connections that were assigned to this thread.
    #[inline]
    pub(super) fn take(&self) -> Vec<AssignedConnection> {
        let place = &self.balancer.places[self.number];
        if place.waiting.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let assigned = std::mem::take(&mut *place.assigned.lock());
        place.waiting.fetch_sub(assigned.len(), Ordering::Relaxed);
        assigned
    }
}

/// A connection that was assigned to a thread.
#[derive(Debug)]
pub(super) struct AssignedConnection {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) counted: ConnectionCount,
}

/// Counts a connection as long as this value exists.
#[derive(Debug)]
pub(super) struct ConnectionCount(Arc<ConnectionBalancer>, usize);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        let place = &self.0.places[self.1];
        place.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use mio::{Events, Poll, Token};

    use super::*;

    /// Returns a connection to a listener and its address.
    fn stream(listener: &TcpListener) -> (TcpStream, SocketAddr) {
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.set_nonblocking(true).unwrap();
        let address = peer.local_addr().unwrap();
        (TcpStream::from_std(peer), address)
    }

    #[test]
    fn connections_go_to_who_has_the_fewest() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let balancer = ConnectionBalancer::new(3);
        let mut polls: Vec<Poll> = (0..3).map(|_| Poll::new().unwrap()).collect();
        let waker = |poll: &Poll| Arc::new(Waker::new(poll.registry(), Token(0)).unwrap());
        let acceptor = balancer.register(0, waker(&polls[0]));
        let one = || {
            let (stream, address) = stream(&listener);
            acceptor.assign(stream, address)
        };
        // The other threads are not registered yet.
        let own = one().expect("it is the acceptor's own");
        let second = balancer.register(1, waker(&polls[1]));
        let third = balancer.register(2, waker(&polls[2]));
        assert!(one().is_none() && one().is_none());
        let (of_second, of_third) = (second.take(), third.take());
        assert_eq!((of_second.len(), of_third.len()), (1, 1));
        assert!(second.take().is_empty());
        for poll in &mut polls[1..] {
            let mut events = Events::with_capacity(4);
            poll.poll(&mut events, Some(Duration::from_secs(30)))
                .unwrap();
            assert!(!events.is_empty(), "no thread was woken");
        }
        // All have one connection: the others came first, then the acceptor.
        assert!(one().is_none() && one().is_none());
        assert!(one().is_some_and(|assigned| assigned.counted.1 == 0));
        drop((own, of_third, third.take()));
        assert!(one().is_none());
        assert_eq!((second.take().len(), third.take().len()), (1, 1));
    }
}
