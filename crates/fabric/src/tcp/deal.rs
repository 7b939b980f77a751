//! One listener for several threads: the thread that has the listener deals out its connections,
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
pub struct Deal {
    places: Vec<Place>,
}

#[derive(Debug, Default)]
struct Place {
    /// The waker of the thread that sits there, if there is one.
    waker: OnceLock<Arc<Waker>>,
    /// The number of connections that it has, or will have in a moment.
    connections: AtomicUsize,
    /// Connections that it has not taken yet; and their number.
    dealt: Mutex<Vec<Dealt>>,
    waiting: AtomicUsize,
}

impl Deal {
    /// Makes a deal among this many threads.
    #[must_use]
    pub fn among(threads: usize) -> Arc<Deal> {
        let places = (0..threads).map(|_| Place::default()).collect();
        Arc::new(Deal { places })
    }

    /// Gives a thread its seat: it gets connections from now on, and is woken for them.
    ///
    /// # Panics
    /// Panics if there is no such seat, or if it is taken.
    #[must_use]
    pub fn seat(self: &Arc<Deal>, number: usize, waker: Arc<Waker>) -> Seat {
        let taken = self.places[number].waker.set(waker);
        assert!(taken.is_ok(), "seat {number} is taken");
        Seat {
            deal: Arc::clone(self),
            number,
        }
    }
}

/// A thread's part in a deal.
#[derive(Debug)]
pub struct Seat {
    deal: Arc<Deal>,
    number: usize,
}

impl Seat {
    /// Deals a connection out. Returns it if it is this thread's own.
    pub(super) fn deal(&self, stream: TcpStream, address: SocketAddr) -> Option<Dealt> {
        let places = self.deal.places.iter().enumerate();
        let taken = places.filter(|(_, place)| place.waker.get().is_some());
        // Among equals, threads other than the dealer come first: the dealer has the listener to
        // serve.
        let key = |&(number, place): &(usize, &Place)| {
            let connections = place.connections.load(Ordering::Relaxed);
            (connections, number == self.number)
        };
        let (number, place) = taken.min_by_key(key)?;
        place.connections.fetch_add(1, Ordering::Relaxed);
        let dealt = Dealt {
            stream,
            address,
            counted: Counted(Arc::clone(&self.deal), number),
        };
        if number == self.number {
            return Some(dealt);
        }
        place.dealt.lock().push(dealt);
        place.waiting.fetch_add(1, Ordering::Release);
        let waker = place.waker.get().expect("the seat is taken");
        if let Err(error) = waker.wake() {
            tracing::error!(%error, "a thread cannot be woken for a connection");
        }
        None
    }

    /// Takes the connections that were dealt to this thread.
    #[inline]
    pub(super) fn take(&self) -> Vec<Dealt> {
        let place = &self.deal.places[self.number];
        if place.waiting.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let dealt = std::mem::take(&mut *place.dealt.lock());
        place.waiting.fetch_sub(dealt.len(), Ordering::Relaxed);
        dealt
    }
}

/// A connection that was dealt out.
#[derive(Debug)]
pub(super) struct Dealt {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) counted: Counted,
}

/// Counts a connection as long as this value exists.
#[derive(Debug)]
pub(super) struct Counted(Arc<Deal>, usize);

impl Drop for Counted {
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
        let deal = Deal::among(3);
        let mut polls: Vec<Poll> = (0..3).map(|_| Poll::new().unwrap()).collect();
        let waker = |poll: &Poll| Arc::new(Waker::new(poll.registry(), Token(0)).unwrap());
        let dealer = deal.seat(0, waker(&polls[0]));
        let one = || {
            let (stream, address) = stream(&listener);
            dealer.deal(stream, address)
        };
        // The other threads have not sat down yet.
        let own = one().expect("it is the dealer's own");
        let second = deal.seat(1, waker(&polls[1]));
        let third = deal.seat(2, waker(&polls[2]));
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
        // All have one connection: the others came first, then the dealer.
        assert!(one().is_none() && one().is_none());
        assert!(one().is_some_and(|dealt| dealt.counted.1 == 0));
        drop((own, of_third, third.take()));
        assert!(one().is_none());
        assert_eq!((second.take().len(), third.take().len()), (1, 1));
    }
}
