//! The networks while system calls fail.
//!
//! Each test runs one scenario again and again, each time with one error of one system call. A call that a network
//! makes and that [`FAULTS`] and [`UNTOUCHED`] do not list fails the test.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use kumiki_reactor::{Network, SocketEvent, Sockets, Uring, Wake};
use libc::{
    EAGAIN, EBADF, EBUSY, ECONNABORTED, ECONNRESET, EINTR, EINVAL, EMFILE, ENETUNREACH, ENFILE,
    ENOBUFS, ENOMEM, ENOSPC, ENOTCONN, EPIPE, ETIME,
};
use mio::unix::SourceFd;
use mio::{Interest, Token};
use testkit::own_process::run_alone;
use testkit::peers::{Group, program};

use crate::conformance::echo_server::{EchoServer, PAUSE};
use crate::conformance::{PATIENCE, SuiteNetwork, carries_data, wait_until};
use crate::strace::Strace;

/// The effect of an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// An operation returns it, or a peer loses its connection.
    Reported,
    /// The call is repeated, or its result does not matter.
    Hidden,
}

use Effect::{Hidden, Reported};

/// A system call, a part of its arguments as strace prints them, its errors, and their effect.
const FAULTS: &[(&str, &str, &[i32], Effect)] = &[
    ("accept4", "", &[EINTR], Hidden),
    (
        "accept4",
        "",
        &[EMFILE, ENFILE, ENOMEM, ECONNABORTED],
        Reported,
    ),
    ("clone", "", &[EAGAIN], Reported),
    ("clone3", "", &[EAGAIN], Reported),
    ("connect", "", &[ENETUNREACH], Reported),
    ("epoll_create1", "", &[EMFILE], Reported),
    ("epoll_ctl", "EPOLL_CTL_DEL", &[ENOMEM], Hidden),
    ("epoll_ctl", "EPOLL_CTL_ADD", &[ENOMEM, ENOSPC], Reported),
    ("epoll_pwait", "", &[EINTR], Hidden),
    ("epoll_wait", "", &[EINTR], Hidden),
    ("eventfd2", "", &[EMFILE], Reported),
    ("fcntl", "F_DUPFD", &[EMFILE], Reported),
    ("getpeername", "", &[ENOTCONN], Reported),
    ("getsockname", "", &[ENOBUFS], Reported),
    ("getsockopt", "", &[ENOBUFS], Reported),
    ("io_uring_enter", "", &[EAGAIN, EINTR, EBUSY, ETIME], Hidden),
    ("io_uring_register", "", &[ENOMEM], Reported),
    ("ioctl", "FIONBIO", &[EBADF], Reported),
    ("read", "", &[EINTR], Hidden),
    ("read", "", &[ECONNRESET], Reported),
    ("recvfrom", "", &[EINTR], Hidden),
    ("recvfrom", "", &[ECONNRESET], Reported),
    ("sendmsg", "", &[EINTR], Hidden),
    ("sendmsg", "", &[ECONNRESET, EPIPE], Reported),
    ("sendto", "", &[EINTR], Hidden),
    ("sendto", "", &[ECONNRESET, EPIPE], Reported),
    ("setsockopt", "", &[EINVAL, EBADF], Reported),
    ("socket", "", &[EMFILE], Reported),
    ("write", "", &[EINTR], Hidden),
    ("writev", "", &[EINTR], Hidden),
    ("writev", "", &[ECONNRESET, EPIPE], Reported),
];

/// System calls that no error is made for, and the reason.
const UNTOUCHED: &[(&str, &str)] = &[
    ("brk", "memory"),
    (
        "close",
        "its error is ignored, and a call that is not made keeps the descriptor",
    ),
    ("futex", "locks, and the end of a thread"),
    ("madvise", "memory"),
    ("mmap", "memory"),
    ("mprotect", "memory"),
    ("mremap", "memory"),
    ("munmap", "memory"),
    ("rt_sigprocmask", "the start of a thread"),
    ("sched_yield", "it does not fail"),
    (
        "shutdown",
        "it fails for a socket that is not connected, whose requests end by themselves",
    ),
];

/// The error at one call of a kind is tried for so many calls from the first.
const MOST_CALLS: usize = 12;
/// Tokens above those of the server.
const OUTGOING: usize = usize::MAX / 2;
const PIPE: usize = OUTGOING + 1;

/// The parts of a run that are made before strace is attached.
struct World {
    /// Sockets for attempts to make a server.
    listeners: Vec<(TcpListener, SocketAddr)>,
    /// A descriptor that is readable.
    readable: UnixStream,
    _writer: UnixStream,
    address: mpsc::Sender<SocketAddr>,
    /// Clients; they count the connections that they lost.
    clients: thread::JoinHandle<usize>,
}

/// The result of a run.
struct Run<N: SuiteNetwork> {
    server: EchoServer<N>,
    errors: Vec<io::Error>,
    lost: usize,
    calls: Vec<String>,
}

impl World {
    fn new() -> World {
        let listeners = (0..4).map(|_| {
            let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
            let address = listener.local_addr().expect("an address");
            (listener, address)
        });
        let (readable, mut writer) = UnixStream::pair().expect("a pair");
        writer.write_all(b"!").expect("it is sent");
        let (address, served) = mpsc::channel();
        World {
            listeners: listeners.collect(),
            readable,
            _writer: writer,
            address,
            clients: thread::spawn(move || {
                let server = served.recv().expect("a server");
                let lengths = [100, 100, 40_000, 40_000].into_iter();
                lengths.map(|len| lost_connections(server, len)).sum()
            }),
        }
    }
}

/// Has a server send back some bytes, with another connection if one is lost. Returns how many were lost.
fn lost_connections(server: SocketAddr, len: usize) -> usize {
    let request = vec![7; len];
    let attempt = || -> io::Result<bool> {
        let mut peer = TcpStream::connect(server)?;
        peer.set_read_timeout(Some(PATIENCE))?;
        peer.write_all(&request)?;
        peer.shutdown(Shutdown::Write)?;
        let mut reply = Vec::new();
        peer.read_to_end(&mut reply)?;
        Ok(reply == request)
    };
    let is_lost = |attempt: io::Result<bool>| match attempt {
        Ok(served) => !served,
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "the server hangs");
            true
        }
    };
    let lost = (0..20).take_while(|_| is_lost(attempt())).count();
    assert!(lost < 20, "a server that works no more");
    lost
}

/// Repeats an operation that fails, and notes its errors.
fn retried<T>(errors: &mut Vec<io::Error>, mut operation: impl FnMut() -> io::Result<T>) -> T {
    for _ in 0..3 {
        match operation() {
            Ok(value) => return value,
            Err(error) => errors.push(error),
        }
    }
    panic!("one call has failed: {errors:?}");
}

/// Makes a server, which serves clients and itself, watches another descriptor, and is woken. All operations of
/// the network are used.
fn run<N: SuiteNetwork>(options: &[String], strace: &Path) -> Run<N> {
    let mut world = World::new();
    let traced = Strace::attach(strace, options);
    let mut errors = Vec::new();
    let (mut server, waker, address) = retried(&mut errors, || {
        let (socket, address) = world.listeners.pop().expect("enough sockets");
        let mut server = EchoServer::<N>::new(socket)?;
        let waker = server.network.waker()?;
        Ok((server, waker, address))
    });
    world.address.send(address).expect("it listens");
    retried(&mut errors, || {
        let fd = world.readable.as_raw_fd();
        let registry = server.network.registry()?;
        registry.register(&mut SourceFd(&fd), Token(PIPE), Interest::READABLE)
    });
    server.turn_until(|event| event.is_some_and(|event| event.token == PIPE));
    let lost = server.serve_until(world.clients);
    retried(&mut errors, || calls_itself(&mut server, address));
    server.serve_all();
    let begin = Instant::now();
    waker.wake();
    server.turn(PATIENCE);
    assert!(begin.elapsed() < PATIENCE, "it is not woken");
    let calls = traced.end();
    errors.append(&mut server.errors);
    Run {
        server,
        errors,
        lost,
        calls,
    }
}

/// Connects the network of a server to the server.
fn calls_itself<N: SuiteNetwork>(
    server: &mut EchoServer<N>,
    address: SocketAddr,
) -> io::Result<()> {
    let mut stream = server.network.connect(address, OUTGOING)?;
    let called = speaks(server, &mut stream);
    server.network.close(stream);
    called
}

fn speaks<N: SuiteNetwork>(server: &mut EchoServer<N>, stream: &mut N::Stream) -> io::Result<()> {
    await_own(server, |event| event.writable);
    server.network.connected(stream)?;
    let written = server.network.write(stream, &[IoSlice::new(b"ping")])?;
    assert_eq!(written, 4, "there is room");
    let mut reply = [0; 4];
    loop {
        match server.network.read(stream, &mut reply) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                await_own(server, |event| event.readable);
            }
            Ok(4) => return Ok(()),
            Ok(_) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) => return Err(error),
        }
    }
}

fn await_own<N: SuiteNetwork>(server: &mut EchoServer<N>, wanted: impl Fn(SocketEvent) -> bool) {
    server.turn_until(|event| event.is_some_and(|event| event.token == OUTGOING && wanted(event)));
}

/// The number of open descriptors.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .expect("the list")
        .count()
}

/// Serves until so many descriptors are open.
fn settle<N: SuiteNetwork>(server: &mut EchoServer<N>, expected: usize, fault: &str) {
    let begin = Instant::now();
    while descriptors() != expected {
        let open = descriptors();
        assert!(
            begin.elapsed() < PATIENCE,
            "{fault}: {open} of {expected} descriptors"
        );
        server.turn(PAUSE);
    }
}

fn name_of(call: &str) -> &str {
    call.split_once('(').map_or("", |(name, _)| name)
}

fn inject(call: &str, error: i32, when: &str) -> String {
    // Strace ignores a call with this mark that the architecture does not have.
    format!("inject=?{call}:error={error}:when={when}")
}

fn options(injected: &[String]) -> Vec<String> {
    let pairs = injected
        .iter()
        .flat_map(|fault| ["-e".to_owned(), fault.clone()]);
    pairs.collect()
}

fn survives<N: SuiteNetwork>() {
    let Some(strace) = program(Group::Redis, "strace") else {
        return;
    };
    let before = descriptors();
    let mut clean = run::<N>(&[], &strace);
    assert!(
        clean.errors.is_empty() && clean.lost == 0,
        "{:?}",
        clean.errors
    );
    let mut counts = BTreeMap::<&str, usize>::new();
    for call in clean.calls.iter().map(|call| name_of(call)) {
        *counts.entry(call).or_default() += 1;
    }
    for call in counts.keys() {
        let is_known = FAULTS.iter().any(|fault| fault.0 == *call);
        let is_untouched = UNTOUCHED.iter().any(|(untouched, _)| untouched == call);
        assert!(
            is_known || is_untouched,
            "{call} is not in the tables: {counts:?}"
        );
    }
    // Closed connections give their descriptors back within some turns.
    for _ in 0..20 {
        clean.server.turn(PAUSE);
    }
    let serving = descriptors();
    drop(clean.server);
    assert_eq!(descriptors(), before);
    for (row, &(call, part, errors, effect)) in FAULTS.iter().enumerate() {
        let count = counts.get(call).copied().unwrap_or(0);
        // Calls that are repeated fail now and then; others fail once, each in turn.
        let (every, most) = match effect == Hidden && part.is_empty() {
            true => ("+3", 2),
            false => ("", MOST_CALLS),
        };
        for &error in errors {
            for nth in 1..=count.min(most) {
                let fault = inject(call, error, &format!("{nth}{every}"));
                let mut run = run::<N>(&options(&[fault]), &strace);
                let text = check_effect(&run, row, error);
                settle(&mut run.server, serving, &text);
                drop(run.server);
                assert_eq!(descriptors(), before, "{text}");
            }
        }
    }
}

/// Checks the effect of an error of a row of [`FAULTS`]. Returns a description of the run.
fn check_effect<N: SuiteNetwork>(run: &Run<N>, row: usize, error: i32) -> String {
    let (_, part, _, effect) = FAULTS[row];
    let injected = |line: &&String| line.contains("(INJECTED)");
    let line = run.calls.iter().find(injected);
    let kind = io::Error::from_raw_os_error(error).kind();
    let is_reported = run.lost > 0 || run.errors.iter().any(|error| error.kind() == kind);
    let text = format!("{line:?}: {:?}, {} lost", run.errors, run.lost);
    // A run makes fewer calls than another now and then, and the call may be one of another row.
    if line.is_some_and(|line| line.contains(part)) {
        assert_eq!(is_reported, effect == Reported, "{text}");
    }
    text
}

/// Checks that a network whose wait fails returns the error, and gives its descriptors back.
fn returns_the_error_of_a_wait<N: SuiteNetwork>(call: &str) {
    let Some(strace) = program(Group::Redis, "strace") else {
        return;
    };
    let before = descriptors();
    let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let mut server = EchoServer::<N>::new(socket).expect("a server");
    let traced = Strace::attach(&strace, &options(&[inject(call, ENOMEM, "1")]));
    server.turn(PATIENCE);
    traced.end();
    let kinds: Vec<_> = server.errors.iter().map(io::Error::kind).collect();
    assert_eq!(kinds, [ErrorKind::OutOfMemory]);
    drop(server);
    assert_eq!(descriptors(), before);
}

/// Checks that a listener that was dropped gives its descriptors back.
fn closes_listeners<N: SuiteNetwork>() {
    let mut network = N::open().expect("a network");
    let before = descriptors();
    for _ in 0..3 {
        let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let listener = network.listen(socket, OUTGOING).expect("it listens");
        // It is watched.
        let waited = network.wait(&mut Vec::new(), Some(PAUSE));
        waited.expect("it waits");
        drop(listener);
    }
    wait_until(&mut network, || descriptors() == before);
}

/// Checks that a ring that the kernel does not make is an error. Another thread makes the ring.
fn returns_the_error_of_a_ring() {
    let Some(strace) = program(Group::Redis, "strace") else {
        return;
    };
    let before = descriptors();
    let mut options = options(&[inject("io_uring_setup", EMFILE, "1")]);
    options.push("-f".to_owned());
    let traced = Strace::attach(&strace, &options);
    let opened = Uring::open();
    traced.end();
    assert_eq!(
        opened.err().and_then(|error| error.raw_os_error()),
        Some(EMFILE)
    );
    assert_eq!(descriptors(), before);
}

/// Runs the scenarios that carry data while system calls are interrupted.
fn carries_data_while_interrupted<N: SuiteNetwork>() {
    let Some(strace) = program(Group::Redis, "strace") else {
        return;
    };
    let hidden = FAULTS
        .iter()
        .filter(|(_, part, _, effect)| *effect == Hidden && part.is_empty());
    let faults: Vec<_> = hidden
        .map(|(call, _, errors, _)| inject(call, errors[0], "2+3"))
        .collect();
    let names: Vec<_> = FAULTS.iter().map(|fault| format!("?{}", fault.0)).collect();
    let mut options = options(&faults);
    options.push(format!("--trace={}", names.join(",")));
    let strace = Strace::attach(&strace, &options);
    carries_data::<N>();
    let calls = strace.end();
    assert!(calls.iter().any(|call| call.contains("(INJECTED)")));
}

#[test]
fn sockets_survive_failing_calls() {
    run_alone("faults::sockets_survive_failing_calls", || {
        survives::<Sockets>();
        returns_the_error_of_a_wait::<Sockets>("epoll_wait,?epoll_pwait");
        closes_listeners::<Sockets>();
    });
}

#[test]
fn rings_survive_failing_calls() {
    run_alone("faults::rings_survive_failing_calls", || {
        survives::<Uring>();
        returns_the_error_of_a_wait::<Uring>("io_uring_enter");
        returns_the_error_of_a_ring();
        closes_listeners::<Uring>();
    });
}

#[test]
fn sockets_carry_data_while_interrupted() {
    carries_data_while_interrupted::<Sockets>();
}

#[test]
fn rings_carry_data_while_interrupted() {
    carries_data_while_interrupted::<Uring>();
}
