//! One listener for several threads: the thread that has the listener assigns its connections,
//! each to the thread that has the fewest.
//!
//! If several listeners share a port, chance decides which one gets a connection. That is good
//! enough for many connections. If there are few long-lived ones, one thread may get two while
//! another has nothing to do.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use reactor::{Network, Wake};

/// See the module's description.
pub struct ConnectionBalancer<N: Network> {
    places: Vec<ThreadQueue<N>>,
}

struct ThreadQueue<N: Network> {
    /// The waker of the thread, once it is registered.
    waker: OnceLock<Arc<N::Waker>>,
    /// The number of connections that it has, or will have in a moment.
    connections: AtomicUsize,
    /// Connections that it has not taken yet; and their number.
    assigned: Mutex<Vec<AssignedConnection<N>>>,
    waiting: AtomicUsize,
}

impl<N: Network> ConnectionBalancer<N> {
    /// Makes a balancer for this many threads.
    #[must_use]
    pub fn new(threads: usize) -> Arc<ConnectionBalancer<N>> {
        let places = (0..threads)
            .map(|_| ThreadQueue {
                waker: OnceLock::new(),
                connections: AtomicUsize::new(0),
                assigned: Mutex::new(Vec::new()),
                waiting: AtomicUsize::new(0),
            })
            .collect();
        Arc::new(ConnectionBalancer { places })
    }

    /// Registers a thread: it gets connections from now on, and is woken for them.
    ///
    /// # Panics
    /// Panics if there is no such thread, or if it is registered.
    #[must_use]
    pub fn register(
        self: &Arc<ConnectionBalancer<N>>,
        number: usize,
        waker: Arc<N::Waker>,
    ) -> BalancerSlot<N> {
        let taken = self.places[number].waker.set(waker);
        assert!(taken.is_ok(), "thread {number} is registered already");
        BalancerSlot {
            balancer: Arc::clone(self),
            number,
        }
    }
}

/// A thread's part in a balancer.
pub struct BalancerSlot<N: Network> {
    balancer: Arc<ConnectionBalancer<N>>,
    number: usize,
}

impl<N: Network> BalancerSlot<N> {
    /// Assigns a connection to a thread. Returns it if it is this thread's own.
    pub(super) fn assign(
        &self,
        stream: N::Stream,
        address: SocketAddr,
    ) -> Option<AssignedConnection<N>> {
        let places = self.balancer.places.iter().enumerate();
        let taken = places.filter(|(_, place)| place.waker.get().is_some());
        // Among equals, threads other than the accepting one come first: that one has the listener to
        // serve.
        let key = |&(number, place): &(usize, &ThreadQueue<N>)| {
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
        waker.wake();
        None
    }

    /// Takes the connections that were assigned to this thread.
    #[inline]
    pub(super) fn take(&self) -> Vec<AssignedConnection<N>> {
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
pub(super) struct AssignedConnection<N: Network> {
    pub(super) stream: N::Stream,
    pub(super) address: SocketAddr,
    pub(super) counted: ConnectionCount<N>,
}

/// Counts a connection as long as this value exists.
pub(super) struct ConnectionCount<N: Network>(Arc<ConnectionBalancer<N>>, usize);

impl<N: Network> Drop for ConnectionCount<N> {
    fn drop(&mut self) {
        let place = &self.0.places[self.1];
        place.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use mio::net::TcpStream;
    use reactor::Sockets;

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
        let balancer = ConnectionBalancer::<Sockets>::new(3);
        let mut networks: Vec<_> = (0..3).map(|_| Sockets::open().unwrap()).collect();
        let wakers: Vec<_> = networks
            .iter_mut()
            .map(|network| Arc::new(network.waker().unwrap()))
            .collect();
        let acceptor = balancer.register(0, Arc::clone(&wakers[0]));
        let one = || {
            let (stream, address) = stream(&listener);
            acceptor.assign(stream, address)
        };
        // The other threads are not registered yet.
        let own = one().expect("it is the acceptor's own");
        let second = balancer.register(1, Arc::clone(&wakers[1]));
        let third = balancer.register(2, Arc::clone(&wakers[2]));
        assert!(one().is_none() && one().is_none());
        let (of_second, of_third) = (second.take(), third.take());
        assert_eq!((of_second.len(), of_third.len()), (1, 1));
        assert!(second.take().is_empty());
        for network in &mut networks[1..] {
            let (begun, limit) = (Instant::now(), Duration::from_secs(30));
            network.wait(&mut Vec::new(), Some(limit)).unwrap();
            assert!(begun.elapsed() < limit, "no thread was woken");
        }
        // All have one connection: the others came first, then the acceptor.
        assert!(one().is_none() && one().is_none());
        assert!(one().is_some_and(|assigned| assigned.counted.1 == 0));
        drop((own, of_third, third.take()));
        assert!(one().is_none());
        assert_eq!((second.take().len(), third.take().len()), (1, 1));
    }
}
