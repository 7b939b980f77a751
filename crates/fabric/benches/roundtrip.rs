//! Measures the cost of a message: the time of a round trip, and processor time on both sides, over
//! TCP, through shared memory, and by Send and Receive that are emulated there, beside a bare TCP
//! connection.
//!
//! `cargo bench --package kumiki-fabric --bench roundtrip -- [ROUNDS]`: the transports take turns,
//! batch by batch, so that other work of the machine affects all of them alike. Each is used by a
//! runtime (links in a poll) and by a client that blocks, with one message in flight, and with
//! several. The output has the median and the 99th percentile of the time until an answer, and the
//! processor time that a message takes on the asking side and on the answering side.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::NodeId;
use kumiki_fabric as fabric;

use fabric::tcp::{Caller, CallerOptions, Encryption, Tcp, TcpOptions, Transport, listen};
use fabric::{Event, Inbox, Link, Messages, Peer, Secret};
use reactor::{Network, SocketEvent, Sockets};
use rustix::time::{ClockId, clock_gettime};

const SIZES: [usize; 3] = [64, 1024, 8192];
/// The numbers of messages in flight.
const DEPTHS: [usize; 2] = [1, 16];
/// The number of round trips over one transport before the next one has its turn.
const BATCH: usize = 200;
/// The interval at which the node publishes its processor time.
const TELL: Duration = Duration::from_millis(1);

fn main() {
    let rounds = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    let rounds = rounds.unwrap_or(20_000);
    println!("{rounds} round trips each; µs");
    println!(
        "{:>6} {:>6} | {:>18} | {:>8} {:>8} | {:>10} {:>10}",
        "bytes", "depth", "way", "median", "p99", "cpu asks", "cpu answers"
    );
    for size in SIZES {
        for depth in DEPTHS {
            compare(size, depth, rounds);
        }
    }
}

/// Measures all transports with messages of one size.
fn compare(size: usize, depth: usize, rounds: usize) {
    let mut ways: Vec<Measured> = vec![
        Measured::new("bare tcp", serve_bare(size), |at, _| {
            Box::new(Bare::new(at))
        }),
        Measured::node("tcp", Transport::Tcp, |at, way| {
            Box::new(End::client(at, way, Encryption::Never))
        }),
        Measured::node("tcp, encrypted", Transport::Tcp, |at, way| {
            Box::new(End::client(at, way, Encryption::Always))
        }),
        Measured::node("shm", Transport::Shm, |at, way| {
            Box::new(End::client(at, way, Encryption::Never))
        }),
        Measured::node("shm-send", Transport::ShmSend, |at, way| {
            Box::new(End::client(at, way, Encryption::Never))
        }),
        Measured::node("tcp, blocking", Transport::Tcp, call),
        Measured::node("shm, blocking", Transport::Shm, call),
        Measured::node("shm-send, blocking", Transport::ShmSend, call),
    ];
    for _ in 0..rounds.div_ceil(BATCH) {
        for way in &mut ways {
            way.batch(size, depth);
        }
    }
    for way in ways {
        way.tell(size, depth);
    }
}

/// A client that sends questions, and takes answers in the order of its questions.
trait Asks {
    fn ask(&mut self, message: &[u8]);
    fn take(&mut self, size: usize);
}

/// A thread that answers, and its processor time.
struct Server {
    address: SocketAddr,
    time: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A transport, and its measurements.
struct Measured {
    name: &'static str,
    server: Server,
    asks: Box<dyn Asks>,
    times: Vec<Duration>,
    asking: Duration,
    answering: Duration,
}

impl Measured {
    fn new(
        name: &'static str,
        server: Server,
        asks: impl FnOnce(SocketAddr, Transport) -> Box<dyn Asks>,
    ) -> Measured {
        Measured::over(name, Transport::Tcp, server, asks)
    }

    fn node(
        name: &'static str,
        way: Transport,
        asks: impl FnOnce(SocketAddr, Transport) -> Box<dyn Asks>,
    ) -> Measured {
        Measured::over(name, way, serve_node(), asks)
    }

    fn over(
        name: &'static str,
        way: Transport,
        server: Server,
        asks: impl FnOnce(SocketAddr, Transport) -> Box<dyn Asks>,
    ) -> Measured {
        Measured {
            name,
            asks: asks(server.address, way),
            server,
            times: Vec::new(),
            asking: Duration::ZERO,
            answering: Duration::ZERO,
        }
    }

    fn batch(&mut self, size: usize, depth: usize) {
        let message = vec![1; size];
        let (ours, theirs) = (thread_time(), self.server.rest());
        let mut begun = VecDeque::new();
        for _ in 0..BATCH {
            if begun.len() == depth {
                self.answer(&mut begun, size);
            }
            begun.push_back(Instant::now());
            self.asks.ask(&message);
        }
        while !begun.is_empty() {
            self.answer(&mut begun, size);
        }
        self.asking += thread_time() - ours;
        self.answering += self.server.rest() - theirs;
    }

    fn answer(&mut self, begun: &mut VecDeque<Instant>, size: usize) {
        self.asks.take(size);
        self.times.extend(begun.pop_front().map(|at| at.elapsed()));
    }

    fn tell(mut self, size: usize, depth: usize) {
        self.times.sort_unstable();
        let count = self.times.len();
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        println!(
            "{size:>6} {depth:>6} | {:>18} | {:>8.2} {:>8.2} | {:>10.2} {:>10.2}",
            self.name,
            micros(self.times[count / 2]),
            micros(self.times[count * 99 / 100]),
            micros(self.asking) / count as f64,
            micros(self.answering) / count as f64,
        );
    }
}

impl Server {
    fn start(address: SocketAddr, serve: impl FnOnce(&Meter) + Send + 'static) -> Server {
        let meter = Meter {
            time: Arc::default(),
            stop: Arc::default(),
        };
        let (time, stop) = (Arc::clone(&meter.time), Arc::clone(&meter.stop));
        Server {
            address,
            time,
            stop,
            thread: Some(std::thread::spawn(move || serve(&meter))),
        }
    }

    /// Waits until the server has published its processor time, and returns it.
    fn rest(&self) -> Duration {
        std::thread::sleep(TELL * 5);
        Duration::from_nanos(self.time.load(Ordering::Relaxed))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))), "the node has failed");
    }
}

/// The means by which a thread publishes its processor time.
struct Meter {
    time: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Meter {
    /// Publishes the processor time. Returns `true` if the thread is to go on.
    fn tell(&self) -> bool {
        let nanos = thread_time().as_nanos() as u64;
        self.time.store(nanos, Ordering::Relaxed);
        !self.stop.load(Ordering::Relaxed)
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sends back everything that comes on one connection.
fn serve_bare(size: usize) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("has an address");
    Server::start(address, move |meter| {
        let (mut stream, _) = listener.accept().expect("accepts");
        stream.set_nodelay(true).expect("sets an option");
        stream.set_read_timeout(Some(TELL)).expect("sets an option");
        let mut buffer = vec![0; size * 16];
        while meter.tell() {
            if let Ok(n) = stream.read(&mut buffer) {
                stream.write_all(&buffer[..n]).expect("writes");
            }
        }
    })
}

/// A bare connection.
struct Bare {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Bare {
    fn new(at: SocketAddr) -> Bare {
        let stream = TcpStream::connect(at).expect("connects");
        stream.set_nodelay(true).expect("sets an option");
        Bare {
            stream,
            buffer: Vec::new(),
        }
    }
}

impl Asks for Bare {
    fn ask(&mut self, message: &[u8]) {
        self.stream.write_all(message).expect("writes");
    }

    fn take(&mut self, size: usize) {
        self.buffer.resize(size, 0);
        self.stream.read_exact(&mut self.buffer).expect("reads");
    }
}

fn serve_node() -> Server {
    let listener = listen("127.0.0.1:0".parse().expect("an address"), 1).expect("listens");
    let address = listener[0].local_addr().expect("has an address");
    Server::start(address, move |meter| {
        let mut options = TcpOptions::new(Peer::Node(NodeId(1)), Secret::new("secret"), 1);
        options.transport = Transport::Auto;
        options.listener = listener.into_iter().next();
        End::new(options).echo(meter);
    })
}

/// A participant with a poll of its own.
struct End {
    network: Sockets,
    events: Vec<SocketEvent>,
    tcp: Tcp<Sockets>,
    inbox: Inbox,
    started: Instant,
    link: Option<Link>,
    /// The number of messages that have come and were not taken yet.
    come: usize,
}

impl End {
    fn new(options: TcpOptions) -> End {
        let mut network = Sockets::open().expect("a network");
        let tcp = Tcp::new(options, &mut network, 0).expect("starts");
        End {
            network,
            events: Vec::new(),
            tcp,
            inbox: Inbox::default(),
            started: Instant::now(),
            link: None,
            come: 0,
        }
    }

    fn client(at: SocketAddr, way: Transport, encryption: Encryption) -> End {
        let mut options = TcpOptions::new(Peer::Client, Secret::new("secret"), 1);
        options.transport = way;
        options.encryption = encryption;
        options.peers = HashMap::from([(NodeId(1), at)]);
        let mut end = End::new(options);
        end.link = Some(end.tcp.connect(NodeId(1)));
        let is_up = |(_, event): (Link, Event<'_>)| matches!(event, Event::Up(_));
        while !end.inbox.iter().any(is_up) {
            end.tcp.flush(&mut end.network);
            end.turn(None);
        }
        end
    }

    /// Waits for messages as a runtime does.
    fn turn(&mut self, patience: Option<Duration>) {
        let timeout = self.tcp.timeout(self.started.elapsed());
        let timeout = timeout.into_iter().chain(patience).min();
        let waited = self.tcp.wait(&mut self.network, &mut self.events, timeout);
        waited.expect("waits");
        for event in self.events.drain(..) {
            self.tcp.on_event(event);
        }
        self.tcp.tick(&mut self.network, self.started.elapsed());
        self.inbox.clear();
        self.tcp.receive(&mut self.network, &mut self.inbox);
    }

    fn echo(mut self, meter: &Meter) {
        let mut told = Instant::now();
        loop {
            self.turn(Some(TELL));
            for (link, event) in self.inbox.iter() {
                if let Event::Message(message) = event {
                    self.tcp.send(link, message).expect("there is room");
                }
            }
            self.tcp.flush(&mut self.network);
            if told.elapsed() > TELL {
                told = Instant::now();
                if !meter.tell() {
                    return;
                }
            }
        }
    }
}

impl Asks for End {
    fn ask(&mut self, message: &[u8]) {
        let link = self.link.expect("it has one");
        self.tcp.send(link, message).expect("there is room");
        self.tcp.flush(&mut self.network);
    }

    fn take(&mut self, _: usize) {
        while self.come == 0 {
            // Output may wait for room.
            self.tcp.flush(&mut self.network);
            self.turn(None);
            let is_message = |(_, event): &(Link, Event<'_>)| matches!(event, Event::Message(_));
            self.come = self.inbox.iter().filter(is_message).count();
        }
        self.come -= 1;
    }
}

fn call(at: SocketAddr, way: Transport) -> Box<dyn Asks> {
    let mut options = CallerOptions::new(Secret::new("secret"));
    options.transport = way;
    Box::new(Caller::connect(at, &options).expect("connects"))
}

impl Asks for Caller {
    fn ask(&mut self, message: &[u8]) {
        let soon = Instant::now() + Duration::from_secs(10);
        self.send(message, soon).expect("sends");
    }

    fn take(&mut self, size: usize) {
        let soon = Instant::now() + Duration::from_secs(10);
        let message = self.receive(soon).expect("receives");
        assert_eq!(message.len(), size);
    }
}
