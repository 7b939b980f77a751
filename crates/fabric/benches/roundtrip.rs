//! What a message costs: a round trip on loopback beside one on a bare TCP connection, and messages
//! in a second when many are under way.
//!
//! `cargo bench --package kumiki-fabric --bench roundtrip -- [ROUNDS]`: the two ways take turns,
//! batch by batch, so that whatever else the machine does meets both alike. Told are medians and
//! 99th percentiles.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::NodeId;
use kumiki_fabric as fabric;

use fabric::tcp::{Tcp, TcpOptions, listen};
use fabric::{Event, Inbox, Link, Messages, Peer, Secret, SendError};
use mio::{Events, Poll, Token};

const SIZES: [usize; 4] = [16, 128, 1024, 16_384];
/// Round trips of one kind before the other's turn.
const BATCH: usize = 200;
/// Messages under way when they are counted.
const WINDOW: usize = 256;

fn main() {
    let rounds = std::env::args()
        .skip(1)
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(20_000);
    let stop = Arc::new(AtomicBool::new(false));
    let address = listen("127.0.0.1:0".parse().expect("an address"), 1).expect("listens");
    let bare = serve_bare();
    let at = address[0].local_addr().expect("has an address");
    let node = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || End::new(Peer::Node(NodeId(1)), address.into_iter().next(), None).echo(&stop)
    });
    let mut client = End::new(Peer::Client, None, Some(at));
    let link = client.tcp.connect(NodeId(1));
    client.until(1, |event| matches!(event, Event::Up(_)));
    println!("{rounds} round trips each");
    println!("{:>7} | {:>21} | {:>21} |", "bytes", "bare TCP", "fabric");
    for size in SIZES {
        let mut bare_socket = TcpStream::connect(bare).expect("connects");
        bare_socket.set_nodelay(true).expect("sets an option");
        let (mut of_bare, mut of_fabric) = (Vec::new(), Vec::new());
        while of_bare.len() < rounds {
            (0..BATCH).for_each(|_| of_bare.push(bare_trip(&mut bare_socket, size)));
            (0..BATCH).for_each(|_| of_fabric.push(client.trip(link, size)));
        }
        let [bare, fabric] = [of_bare, of_fabric].map(|mut times| {
            times.sort_unstable();
            [times[times.len() / 2], times[times.len() * 99 / 100]]
        });
        let micros = |[median, p99]: [Duration; 2]| {
            format!(
                "{:>6.1} µs, p99 {:>6.1}",
                median.as_secs_f64() * 1e6,
                p99.as_secs_f64() * 1e6
            )
        };
        let ratio = fabric[0].as_secs_f64() / bare[0].as_secs_f64();
        println!(
            "{size:>7} | {:>21} | {:>21} | {ratio:.2}",
            micros(bare),
            micros(fabric)
        );
    }
    for size in SIZES {
        let rate = client.rate(link, size, rounds * 20);
        println!("{size:>7} bytes, {WINDOW} under way: {rate:>9.0} messages/s there and back");
    }
    stop.store(true, Ordering::Relaxed);
    node.join().expect("the node ends");
}

/// Sends everything back that comes.
fn serve_bare() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("has an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            stream.set_nodelay(true).expect("sets an option");
            let mut buffer = vec![0; 65_536];
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                stream.write_all(&buffer[..n]).expect("writes");
            }
        }
    });
    address
}

fn bare_trip(socket: &mut TcpStream, size: usize) -> Duration {
    let mut buffer = vec![1; size];
    let begun = Instant::now();
    socket.write_all(&buffer).expect("writes");
    socket.read_exact(&mut buffer).expect("reads");
    begun.elapsed()
}

/// A participant with a poll of its own.
struct End {
    poll: Poll,
    events: Events,
    tcp: Tcp,
    inbox: Inbox,
    started: Instant,
}

impl End {
    fn new(me: Peer, listener: Option<TcpListener>, node: Option<SocketAddr>) -> End {
        let mut options = TcpOptions::new(me, Secret::new("secret"), 1);
        options.listener = listener;
        options.peers = HashMap::from_iter(node.map(|at| (NodeId(1), at)));
        let poll = Poll::new().expect("a poll");
        let tcp = Tcp::new(options, poll.registry(), Token(0)).expect("starts");
        End {
            poll,
            events: Events::with_capacity(64),
            tcp,
            inbox: Inbox::default(),
            started: Instant::now(),
        }
    }

    /// Waits for what comes, as a runtime does.
    fn turn(&mut self, patience: Option<Duration>) {
        let timeout = self.tcp.timeout(self.started.elapsed());
        let timeout = timeout.into_iter().chain(patience).min();
        self.poll.poll(&mut self.events, timeout).expect("polls");
        for event in &self.events {
            self.tcp.on_event(event);
        }
        self.tcp.tick(self.started.elapsed());
        self.inbox.clear();
        self.tcp.receive(&mut self.inbox);
    }

    fn echo(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.turn(Some(Duration::from_millis(100)));
            for (link, event) in self.inbox.iter() {
                if let Event::Message(message) = event {
                    self.tcp.send(link, message).expect("there is room");
                }
            }
            self.tcp.flush();
        }
    }

    /// Waits until so many events of a kind have come.
    fn until(&mut self, count: usize, is_meant: impl Fn(&Event<'_>) -> bool) {
        let mut seen = 0;
        while seen < count {
            self.tcp.flush();
            self.turn(None);
            seen += self
                .inbox
                .iter()
                .filter(|(_, event)| is_meant(event))
                .count();
        }
    }

    fn trip(&mut self, link: Link, size: usize) -> Duration {
        let message = vec![1; size];
        let begun = Instant::now();
        self.tcp.send(link, &message).expect("there is room");
        self.until(1, |event| matches!(event, Event::Message(_)));
        begun.elapsed()
    }

    /// Messages in a second, there and back.
    fn rate(&mut self, link: Link, size: usize, count: usize) -> f64 {
        let message = vec![1; size];
        let begun = Instant::now();
        let (mut sent, mut got) = (0, 0);
        while got < count {
            while sent < count && sent - got < WINDOW {
                match self.tcp.send(link, &message) {
                    Ok(()) => sent += 1,
                    Err(SendError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            self.tcp.flush();
            self.turn(None);
            let is_message = |event: &Event<'_>| matches!(event, Event::Message(_));
            got += self
                .inbox
                .iter()
                .filter(|(_, event)| is_message(event))
                .count();
        }
        count as f64 / begun.elapsed().as_secs_f64()
    }
}
