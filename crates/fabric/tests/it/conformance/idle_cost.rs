//! The cost of links through shared memory, and by Send and Receive: a thread that sleeps costs
//! nothing, and is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::NodeId;
use kumiki_fabric as fabric;

use fabric::tcp::Transport;
use fabric::{Inbox, Link, Messages, SendError};
use rustix::time::{ClockId, clock_gettime};

use crate::conformance::net::{End, Happened, Net, Party};
use crate::conformance::tcp::{Loopback, TcpEnd};

/// Two ends of many links, each on a thread of its own that waits as a program does.
struct Two {
    a: Party<Waiting>,
    b: std::thread::JoinHandle<Duration>,
    links: Vec<Link>,
    stop: Arc<AtomicBool>,
    _net: Loopback,
}

/// An end that sleeps in its poll, for a while at most, when it receives.
struct Waiting(TcpEnd);

/// The longest sleep.
const NAP: Duration = Duration::from_secs(2);

impl Messages for Waiting {
    fn connect(&mut self, to: NodeId) -> Link {
        self.0.connect(to)
    }

    fn send(&mut self, on: Link, message: &[u8]) -> Result<(), SendError> {
        self.0.send(on, message)
    }

    fn close(&mut self, link: Link) {
        self.0.close(link);
    }
}

impl End for Waiting {
    fn flush(&mut self) {
        self.0.flush();
    }

    fn receive(&mut self, inbox: &mut Inbox) {
        self.0.receive_within(NAP, inbox);
    }
}

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Two {
    /// Starts the other end, which answers each message with the same after a pause. At its end it
    /// returns the processor time that it has taken since the links were up.
    fn new(count: usize, pause: Duration) -> Two {
        Two::over(Loopback::over(Transport::Shm), count, pause)
    }

    fn over(mut net: Loopback, count: usize, pause: Duration) -> Two {
        let mut b = Party::new(Waiting(net.node(2)));
        let mut a = Party::new(Waiting(net.client()));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let other = std::thread::spawn(move || {
            while b.up().len() < count {
                b.turn();
            }
            let begun = thread_time();
            while !stopped.load(Ordering::Relaxed) {
                b.turn();
                for (link, happened) in std::mem::take(&mut b.log) {
                    if let Happened::Message(message) = happened {
                        std::thread::sleep(pause);
                        b.send(link, &message);
                    }
                }
            }
            thread_time() - begun
        });
        let links: Vec<Link> = (0..count).map(|_| a.end.connect(NodeId(2))).collect();
        while a.up().len() < count {
            a.turn();
        }
        Two {
            a,
            b: other,
            links,
            stop,
            _net: net,
        }
    }

    /// Sends a message, and waits for the answer.
    fn trip(&mut self, on: usize) -> Duration {
        let (begun, before) = (Instant::now(), self.a.count());
        self.a.send(self.links[on], b"hello");
        while self.a.count() == before {
            self.a.turn();
        }
        begun.elapsed()
    }

    fn end(mut self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.a.send(self.links[0], b"the end");
        self.a.end.flush();
        self.b.join().unwrap()
    }
}

#[test]
fn idle_links_cost_no_processor_time() {
    idle(Two::new(50, Duration::ZERO));
}

#[test]
fn idle_links_by_send_and_receive_cost_no_processor_time() {
    let net = Loopback::over(Transport::ShmSend);
    idle(Two::over(net, 50, Duration::ZERO));
}

fn idle(mut two: Two) {
    for on in 0..50 {
        two.trip(on);
    }
    let (begun, time) = (Instant::now(), thread_time());
    while begun.elapsed() < Duration::from_secs(2) {
        two.a.turn();
    }
    let (ours, passed) = (thread_time() - time, begun.elapsed());
    let theirs = two.end();
    // The cost of the trips and of the end is included.
    println!("{ours:?} and {theirs:?} of {passed:?}");
    assert!(ours + theirs < passed / 100, "{ours:?} and {theirs:?}");
}

#[test]
fn who_sleeps_is_woken_by_a_message() {
    woken(Two::new(2, Duration::ZERO), 30);
}

#[test]
fn who_sleeps_is_woken_by_an_emulated_receive() {
    let net = Loopback::over(Transport::ShmSend);
    woken(Two::over(net, 2, Duration::ZERO), 30);
}

/// The event of a device wakes it, in the poll of its sockets.
#[test]
fn who_sleeps_is_woken_by_a_receive_of_verbs() {
    if let Some(net) = Loopback::over_verbs(Transport::VerbsSend) {
        woken(Two::over(net, 2, Duration::ZERO), 10);
    }
}

fn woken(mut two: Two, rounds: usize) {
    let mut slowest = Duration::ZERO;
    for round in 0..rounds {
        // Long enough for the other end to be asleep.
        std::thread::sleep(Duration::from_millis(5));
        slowest = slowest.max(two.trip(round % 2));
    }
    println!("{slowest:?} at most");
    assert!(slowest < NAP / 2, "{slowest:?}: no thread was woken");
    two.end();
}

/// Looking does not pay with a peer that takes its time: the thread gives it up.
#[test]
fn a_slow_peer_is_not_looked_for_all_the_time() {
    let mut two = Two::new(1, Duration::from_millis(2));
    two.trip(0);
    let (begun, time) = (Instant::now(), thread_time());
    for _ in 0..200 {
        two.trip(0);
    }
    let (ours, passed) = (thread_time() - time, begun.elapsed());
    println!("{ours:?} of {passed:?}");
    assert!(ours < passed / 5, "{ours:?} of {passed:?}");
    two.end();
}
