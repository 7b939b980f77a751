//! The suite's network over TCP, on loopback.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use base::NodeId;
use kumiki_fabric as fabric;

use fabric::shm::Shm;
use fabric::tcp::{Encryption, Tcp, TcpOptions, Transport, TransportLimits, listen};
use fabric::verbs::{Device, Domain, VerbsOptions};
use fabric::{Inbox, Link, Messages, Peer, Secret, SendError};
use reactor::{Network, SocketEvent, Sockets};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::conformance::net::{End, Net};

/// The greatest time of a case: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The suite's network over the kernel's sockets.
pub(crate) type Loopback = LoopbackOver<Sockets>;
/// A participant with the kernel's sockets.
pub(crate) type TcpEnd = EndOver<Sockets>;

pub(crate) struct LoopbackOver<N> {
    network: PhantomData<fn() -> N>,
    started: Instant,
    transport: Transport,
    encryption: Encryption,
    /// The shared memory of this network alone.
    memory: tempfile::TempDir,
    verbs: Option<Domain>,
    addresses: HashMap<NodeId, SocketAddr>,
}

/// A participant with a poll of its own, which is polled whenever it receives.
pub(crate) struct EndOver<N: Network> {
    pub(crate) network: N,
    events: Vec<SocketEvent>,
    pub(crate) tcp: Tcp<N>,
    started: Instant,
}

impl<N: Network> LoopbackOver<N> {
    pub(crate) fn new() -> LoopbackOver<N> {
        LoopbackOver::over(Transport::Tcp)
    }

    pub(crate) fn over(transport: Transport) -> LoopbackOver<N> {
        // All participants know the addresses of all.
        let address = |id| (NodeId(id), testkit::free_address().unwrap());
        let addresses = (1..=2).map(address);
        let mut memory = tempfile::Builder::new();
        let memory = memory.prefix("kumiki-test-").tempdir_in("/dev/shm");
        LoopbackOver {
            network: PhantomData,
            started: Instant::now(),
            transport,
            encryption: Encryption::Auto,
            memory: memory.unwrap(),
            verbs: None,
            addresses: addresses.collect(),
        }
    }

    /// Returns a network whose connections are encrypted; memory of this machine can be used besides.
    pub(crate) fn encrypted(transport: Transport) -> LoopbackOver<N> {
        LoopbackOver {
            encryption: Encryption::Always,
            ..LoopbackOver::over(transport)
        }
    }

    /// Returns the transport of its participants.
    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns the option of callers.
    pub(crate) fn encryption(&self) -> Encryption {
        self.encryption
    }

    /// Returns a network of links through an RDMA device. Prints a line and returns `None` if there
    /// is no device and none is required.
    pub(crate) fn over_verbs(transport: Transport) -> Option<LoopbackOver<N>> {
        // A link by Send and Receive needs a descriptor more.
        let limit = getrlimit(Resource::Nofile);
        let all = Rlimit {
            current: limit.maximum,
            ..limit
        };
        setrlimit(Resource::Nofile, all).unwrap();
        match Device::open(&VerbsOptions::default()) {
            Ok(device) => Some(LoopbackOver {
                verbs: Some(device.domain().unwrap()),
                ..LoopbackOver::over(transport)
            }),
            Err(error) if std::env::var_os("KUMIKI_REQUIRE_RDMA").is_some() => panic!("{error}"),
            Err(error) => {
                println!("skipped: {error}");
                None
            }
        }
    }

    /// Returns the directory of its shared memory.
    pub(crate) fn memory(&self) -> &std::path::Path {
        self.memory.path()
    }

    /// Returns its shared memory.
    pub(crate) fn shm(&self) -> Shm {
        Shm::in_dir(self.memory.path())
    }

    /// Returns its RDMA device's domain.
    pub(crate) fn domain(&self) -> Option<Domain> {
        self.verbs.clone()
    }

    /// Returns the number of files in shared memory: none, except while links are made.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(self.memory.path()).unwrap().count()
    }

    /// Returns the address of a node.
    pub(crate) fn address(&self, id: u16) -> SocketAddr {
        self.addresses[&NodeId(id)]
    }

    /// Makes a participant whose options are changed before it begins.
    pub(crate) fn end(&self, me: Peer, change: impl FnOnce(&mut TcpOptions)) -> EndOver<N> {
        let mut options = TcpOptions::new(me, Secret::new("the suite's"), 7);
        options.peers = self.addresses.clone();
        options.transport = self.transport;
        options.encryption = self.encryption;
        options.shm = self.shm();
        options.verbs = self.verbs.clone();
        options.limits = TransportLimits {
            message: Self::LIMIT,
            queue: Self::QUEUE,
            unauthenticated: 1000,
            ..TransportLimits::default()
        };
        if self.verbs.is_some() || self.transport.is_send_receive() {
            // The machine that has a device is emulated, and others may be busy.
            options.limits.handshake = PATIENCE;
        }
        if let Peer::Node(id) = me {
            options.listener = Some(listener(self.addresses[&id]));
        }
        change(&mut options);
        EndOver::new(options, self.started)
    }
}

/// Makes a listener at an address where there may have been one before. A process that another test
/// starts at this moment inherits that one, until it executes its own program.
fn listener(address: SocketAddr) -> TcpListener {
    let begun = Instant::now();
    loop {
        match listen(address, 1) {
            Ok(mut listeners) => return listeners.remove(0),
            Err(error) if error.kind() == ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{address}: {error}"),
        }
    }
}

impl<N: Network> EndOver<N> {
    pub(crate) fn new(options: TcpOptions, started: Instant) -> EndOver<N> {
        let mut network = N::open().unwrap();
        let tcp = Tcp::new(options, &mut network, 10).unwrap();
        EndOver {
            network,
            events: Vec::new(),
            tcp,
            started,
        }
    }

    /// Receives; sleeps for at most `nap` if there is nothing.
    pub(crate) fn receive_within(&mut self, nap: Duration, inbox: &mut Inbox) -> bool {
        let due = self.tcp.timeout(self.started.elapsed());
        self.poll(due.map_or(nap, |due| due.min(nap)), inbox)
    }

    fn poll(&mut self, within: Duration, inbox: &mut Inbox) -> bool {
        let waited = self
            .tcp
            .wait(&mut self.network, &mut self.events, Some(within));
        waited.unwrap();
        for event in self.events.drain(..) {
            assert!(self.tcp.owns(event.token));
            self.tcp.on_event(event);
        }
        self.tcp.tick(&mut self.network, self.started.elapsed());
        self.tcp.receive(&mut self.network, inbox)
    }
}

impl<N: Network> Net for LoopbackOver<N> {
    type End = EndOver<N>;
    const LARGE: usize = 64 << 20;
    const QUEUE: usize = 2 << 20;
    const LIMIT: usize = 64 << 20;

    fn node(&mut self, id: u16) -> EndOver<N> {
        self.end(Peer::Node(NodeId(id)), |_| {})
    }

    fn client(&mut self) -> EndOver<N> {
        self.end(Peer::Client, |_| {})
    }

    fn kill(&mut self, end: EndOver<N>) {
        drop(end);
    }

    fn pass(&mut self) -> bool {
        std::thread::sleep(Duration::from_micros(50));
        self.started.elapsed() < PATIENCE
    }
}

impl<N: Network> Messages for EndOver<N> {
    fn connect(&mut self, to: NodeId) -> Link {
        self.tcp.connect(to)
    }

    fn send(&mut self, on: Link, message: &[u8]) -> Result<(), SendError> {
        self.tcp.send(on, message)
    }

    fn close(&mut self, link: Link) {
        self.tcp.close(link);
    }
}

impl<N: Network> End for EndOver<N> {
    fn flush(&mut self) {
        self.tcp.flush(&mut self.network);
    }

    fn receive(&mut self, inbox: &mut Inbox) {
        self.poll(Duration::ZERO, inbox);
    }
}
