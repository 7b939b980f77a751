//! Links between machines, with a delay and a rate, for programs that all run on this machine.
//!
//! Each machine has a port, which sends at the given rate: the bytes of all links that leave the
//! machine pass it one after the other, as with one network card. A piece of bytes arrives at the
//! other end one delay after its last byte has left the port. Both directions of a connection are
//! independent. A connection itself is made at once.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use super::forwarder::{ForwardedAddress, Forwarder};
use super::link_figures::DelayedLinkFigures;
use super::link_quality::LinkQuality;

/// See the module's description. They end when this is dropped.
#[derive(Debug)]
pub struct DelayedLinks(Forwarder);

impl DelayedLinks {
    /// Starts the thread that all links share.
    ///
    /// # Errors
    /// Returns the system's errors.
    pub fn start(quality: LinkQuality) -> io::Result<DelayedLinks> {
        Forwarder::start(quality).map(DelayedLinks)
    }

    /// Adds a link between two machines, which are numbers from 0 on. Returns the address at which
    /// `from` reaches what listens at `target`, on `to`.
    ///
    /// # Errors
    /// Returns the system's errors.
    pub fn add(&self, from: usize, to: usize, target: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        self.0.add(ForwardedAddress {
            listener,
            target,
            machines: [from, to],
            change: None,
        })?;
        Ok(address)
    }

    /// Returns what the links have done.
    #[must_use]
    pub fn figures(&self) -> DelayedLinkFigures {
        self.0.figures()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Returns links of this quality, and a connection over one of them: both of its ends.
    fn connected(quality: LinkQuality) -> (DelayedLinks, TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let links = DelayedLinks::start(quality).unwrap();
        let address = links.add(0, 1, listener.local_addr().unwrap()).unwrap();
        let near = TcpStream::connect(address).unwrap();
        let (far, _) = listener.accept().unwrap();
        (links, near, far)
    }

    fn delayed(delay: Duration) -> LinkQuality {
        LinkQuality {
            delay,
            bytes_per_second: None,
        }
    }

    /// Returns bytes that show their place.
    fn pattern(len: usize) -> Vec<u8> {
        (0..len)
            .map(|place| (place * 31 + (place >> 8) * 7) as u8)
            .collect()
    }

    #[test]
    fn bytes_take_the_delay_in_each_direction() {
        let delay = Duration::from_millis(30);
        let (links, mut near, mut far) = connected(delayed(delay));
        let mut begun = Instant::now();
        for (from, into) in [(0, 1), (1, 0), (0, 1)] {
            let ends = [&mut near, &mut far];
            ends[from].write_all(b"hello").unwrap();
            let mut got = [0; 5];
            ends[into].read_exact(&mut got).unwrap();
            assert_eq!(&got, b"hello");
            assert!(begun.elapsed() >= delay);
            begun = Instant::now();
        }
        let figures = links.figures();
        assert_eq!(figures.sent, [10, 5]);
        assert!(figures.cpu > 0.0);
    }

    #[test]
    fn what_is_under_way_does_not_wait_for_what_was_sent_before() {
        let delay = Duration::from_millis(50);
        let (_links, mut near, mut far) = connected(delayed(delay));
        near.set_nodelay(true).unwrap();
        let begun = Instant::now();
        let count = 200;
        for number in 0..count {
            near.write_all(&[number]).unwrap();
            thread::sleep(Duration::from_micros(100));
        }
        let mut got = vec![0; usize::from(count)];
        far.read_exact(&mut got).unwrap();
        assert_eq!(got, (0..count).collect::<Vec<u8>>());
        let took = begun.elapsed();
        assert!(took >= delay && took < delay * u32::from(count), "{took:?}");
    }

    #[test]
    fn all_bytes_arrive_in_order_at_no_more_than_the_rate_which_links_share() {
        let quality = LinkQuality {
            delay: Duration::from_millis(5),
            bytes_per_second: Some(40_000_000),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = listener.local_addr().unwrap();
        let links = DelayedLinks::start(quality).unwrap();
        let sent = pattern(4 << 20);
        let begun = Instant::now();
        thread::scope(|scope| {
            for other in [1, 2] {
                let address = links.add(0, other, target).unwrap();
                let mut near = TcpStream::connect(address).unwrap();
                let (mut far, _) = listener.accept().unwrap();
                let sent = &sent;
                scope.spawn(move || near.write_all(sent).unwrap());
                scope.spawn(move || {
                    let mut got = Vec::new();
                    far.read_to_end(&mut got).unwrap();
                    assert!(got == *sent, "{} bytes", got.len());
                });
            }
        });
        let both = quality.sending_time(2 * sent.len()) + quality.delay;
        assert!(begun.elapsed() >= both, "{:?}", begun.elapsed());
        assert_eq!(links.figures().sent[0], 2 * sent.len() as u64);
    }

    #[test]
    fn one_direction_ends_before_the_other() {
        let delay = Duration::from_millis(20);
        let (_links, mut near, mut far) = connected(delayed(delay));
        let begun = Instant::now();
        near.write_all(b"question").unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let mut question = String::new();
        far.read_to_string(&mut question).unwrap();
        assert!(begun.elapsed() >= delay);
        far.write_all(question.to_uppercase().as_bytes()).unwrap();
        drop(far);
        let mut answer = String::new();
        near.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "QUESTION");
        assert!(begun.elapsed() >= delay * 2);
    }

    #[test]
    fn a_peer_that_is_not_there_ends_the_connection() {
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = gone.local_addr().unwrap();
        drop(gone);
        let links = DelayedLinks::start(LinkQuality::default()).unwrap();
        let address = links.add(0, 1, target).unwrap();
        let mut near = TcpStream::connect(address).unwrap();
        assert!(matches!(near.read(&mut [0]), Ok(0) | Err(_)));
        drop(links);
        assert!(TcpStream::connect(address).is_err());
    }
}
