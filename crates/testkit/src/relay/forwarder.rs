//! A thread that forwards connections: it accepts them, connects each to its target, and passes
//! bytes in both directions, each at its time.
//!
//! A piece of bytes is what one read returned. Its sending begins when it has arrived and its
//! machine's port has sent all earlier pieces; it is due when it has been sent and the delay has
//! passed. The thread waits for the next due piece with a timer of the kernel that counts
//! nanoseconds, and spins for the last microseconds.
//!
//! Invariants:
//! 1. A piece is never written before it is due, and never before an earlier piece of its direction.
//! 2. A direction holds at most as many bytes as a link's delay and rate have under way, and
//!    [`SPARE`] and one read more; beyond it nothing is read.
//! 3. The end of a stream takes the same delay as bytes. An error of a socket ends both directions
//!    at once.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::link_figures::DelayedLinkFigures;
use super::link_quality::LinkQuality;

/// Bytes of one read. A piece arrives as a whole, so that it must not be much longer than a message.
const READ: usize = 16 << 10;
/// Bytes that a direction holds beyond those that are under way.
const SPARE: usize = 1 << 20;
/// A piece that is due within this time is not worth a sleep.
const SPIN: Duration = Duration::from_micros(5);
/// Events of one wait.
const EVENTS: usize = 64;

/// Tokens of epoll: the command's wake-up, the timer, routes, and sides of connections.
const WAKE_UP: u64 = 0;
const TIMER: u64 = 1;
const ROUTES: u64 = 1 << 32;
const CONNECTIONS: u64 = 1 << 33;

/// Bytes that pass a relay.
#[derive(Debug)]
pub struct Passing<'a> {
    /// The number of the connection, from 0 on.
    pub connection: usize,
    /// `true` if they go to the peer that listens.
    pub to_listener: bool,
    /// The number of bytes that have passed in this direction before.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a mut [u8],
}

/// Sees and changes the bytes that pass.
pub(super) type ChangeBytes = Box<dyn FnMut(Passing<'_>) + Send>;

/// An address, and where its connections go.
pub(super) struct ForwardedAddress {
    pub(super) listener: TcpListener,
    pub(super) target: SocketAddr,
    /// The machines of the peer that connects and of the one that listens.
    pub(super) machines: [usize; 2],
    /// Sees and changes all bytes.
    pub(super) change: Option<ChangeBytes>,
}

/// What the thread shares with its owner.
struct ForwarderState {
    stop: AtomicBool,
    added: Mutex<Vec<ForwardedAddress>>,
    figures: Mutex<DelayedLinkFigures>,
    wake_up: OwnedFd,
}

impl ForwarderState {
    fn figures(&self) -> MutexGuard<'_, DelayedLinkFigures> {
        self.figures.lock().unwrap_or_else(|held| held.into_inner())
    }

    fn added(&self) -> MutexGuard<'_, Vec<ForwardedAddress>> {
        self.added.lock().unwrap_or_else(|held| held.into_inner())
    }
}

/// See the module's description. It stops when this is dropped, and closes all connections.
pub(super) struct Forwarder {
    state: Arc<ForwarderState>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").finish_non_exhaustive()
    }
}

impl Forwarder {
    pub(super) fn start(quality: LinkQuality) -> io::Result<Forwarder> {
        let state = Arc::new(ForwarderState {
            stop: AtomicBool::new(false),
            added: Mutex::default(),
            figures: Mutex::default(),
            wake_up: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let forwarding = Forwarding::new(quality, Arc::clone(&state))?;
        let thread = std::thread::Builder::new().name("forwarder".to_owned());
        let thread = thread.spawn(move || forwarding.run())?;
        Ok(Forwarder {
            state,
            thread: Some(thread),
        })
    }

    /// Accepts connections on a route from now on.
    pub(super) fn add(&self, route: ForwardedAddress) -> io::Result<()> {
        route.listener.set_nonblocking(true)?;
        self.state.added().push(route);
        self.wake()
    }

    pub(super) fn figures(&self) -> DelayedLinkFigures {
        self.state.figures().clone()
    }

    fn wake(&self) -> io::Result<()> {
        rustix::io::write(&self.state.wake_up, &1_u64.to_ne_bytes())?;
        Ok(())
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        let woken = self.wake();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            let is_well = woken.is_ok() && matches!(ended, Ok(Ok(())));
            assert!(is_well || std::thread::panicking(), "the relay failed");
        }
    }
}

/// What a machine sends passes its port, one piece after the other.
#[derive(Default)]
struct MachinePort {
    free_at: Option<Instant>,
}

impl MachinePort {
    /// Returns the time at which a piece arrives at the other end that leaves the machine now.
    fn due(&mut self, now: Instant, bytes: usize, quality: LinkQuality) -> Instant {
        let begins = self.free_at.map_or(now, |free_at| free_at.max(now));
        let sent = begins + quality.sending_time(bytes);
        self.free_at = Some(sent);
        sent + quality.delay
    }
}

struct DelayedPiece {
    due: Instant,
    /// No bytes are the end of the stream.
    bytes: Vec<u8>,
    written: usize,
}

/// One direction of a connection.
#[derive(Default)]
struct ForwardedDirection {
    pieces: VecDeque<DelayedPiece>,
    held: usize,
    /// Bytes that were read.
    offset: u64,
    /// The end of the stream was read.
    is_read: bool,
    /// The end of the stream was passed on.
    is_over: bool,
    /// The receiver takes nothing at the moment.
    is_blocked: bool,
}

/// A connection: side 0 is the peer that has connected. ForwardedDirection 0 begins there.
struct ForwardedConnection {
    sides: [TcpStream; 2],
    directions: [ForwardedDirection; 2],
    /// What epoll watches each side for; nothing: the side is not registered.
    watched: [EventFlags; 2],
    route: usize,
    /// Its number among the connections of its route.
    number: usize,
}

impl ForwardedConnection {
    /// Writes what is due. Returns `true` while the connection is to be kept.
    fn send(&mut self, now: Instant, figures: &mut DelayedLinkFigures) -> io::Result<bool> {
        for from in [0, 1] {
            let (direction, mut into) = (&mut self.directions[from], &self.sides[1 - from]);
            while let Some(piece) = direction.pieces.front_mut()
                && piece.due <= now
                && !direction.is_blocked
            {
                if piece.written == 0 {
                    figures.note_lateness(now - piece.due);
                }
                if piece.bytes.is_empty() {
                    into.shutdown(Shutdown::Write)?;
                    direction.is_over = true;
                } else {
                    match into.write(&piece.bytes[piece.written..]) {
                        Ok(count) => piece.written += count,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            direction.is_blocked = true;
                            continue;
                        }
                        Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                        Err(error) => return Err(error),
                    }
                    if piece.written < piece.bytes.len() {
                        continue;
                    }
                    direction.held -= piece.bytes.len();
                }
                direction.pieces.pop_front();
            }
        }
        Ok(self.directions.iter().any(|direction| !direction.is_over))
    }

    fn next_due(&self) -> Option<Instant> {
        let waiting = self.directions.iter().filter(|one| !one.is_blocked);
        let next = waiting.filter_map(|one| one.pieces.front());
        next.map(|piece| piece.due).min()
    }

    /// Returns what a side is to be watched for.
    fn wanted(&self, side: usize, most: usize) -> EventFlags {
        let mut wanted = EventFlags::empty();
        let reads = &self.directions[side];
        if !reads.is_read && reads.held < most {
            wanted |= EventFlags::IN;
        }
        if self.directions[1 - side].is_blocked {
            wanted |= EventFlags::OUT;
        }
        wanted
    }

    /// Lets epoll watch for what is wanted now.
    fn watch(&mut self, epoll: &OwnedFd, id: u64, most: usize) -> io::Result<()> {
        for side in [0, 1] {
            let (wanted, watched) = (self.wanted(side, most), self.watched[side]);
            if wanted == watched {
                continue;
            }
            let socket = &self.sides[side];
            let data = EventData::new_u64(CONNECTIONS | id << 1 | side as u64);
            // A side that is not waited for must not report that its peer has gone: that does not
            // end the bytes which are under way.
            match (watched.is_empty(), wanted.is_empty()) {
                (true, _) => epoll::add(epoll, socket, data, wanted)?,
                (_, true) => epoll::delete(epoll, socket)?,
                _ => epoll::modify(epoll, socket, data, wanted)?,
            }
            self.watched[side] = wanted;
        }
        Ok(())
    }
}

/// The thread's own state.
struct Forwarding {
    quality: LinkQuality,
    state: Arc<ForwarderState>,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// With the number of connections that each has accepted.
    routes: Vec<(ForwardedAddress, usize)>,
    connections: BTreeMap<u64, ForwardedConnection>,
    accepted: u64,
    ports: Vec<MachinePort>,
    buffer: Vec<u8>,
    /// Bytes that a direction holds at most.
    most: usize,
}

impl Forwarding {
    fn new(quality: LinkQuality, state: Arc<ForwarderState>) -> io::Result<Forwarding> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        for (token, source) in [(WAKE_UP, state.wake_up.as_fd()), (TIMER, timer.as_fd())] {
            epoll::add(&epoll, source, EventData::new_u64(token), EventFlags::IN)?;
        }
        let under_way = usize::try_from(quality.bytes_under_way()).unwrap_or(usize::MAX);
        Ok(Forwarding {
            quality,
            state,
            epoll,
            timer,
            routes: Vec::new(),
            connections: BTreeMap::new(),
            accepted: 0,
            ports: Vec::new(),
            buffer: vec![0; READ],
            most: under_way.saturating_add(SPARE),
        })
    }

    fn run(mut self) -> io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        while !self.state.stop.load(Ordering::SeqCst) {
            let timeout = self.set_timer()?;
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                self.on_event(event.data.u64(), event.flags)?;
            }
            self.send();
        }
        Ok(())
    }

    /// Sets the timer to the next piece. Returns how long to wait for events instead, if not until
    /// one comes.
    fn set_timer(&self) -> io::Result<Option<Timespec>> {
        let next = self
            .connections
            .values()
            .filter_map(ForwardedConnection::next_due);
        let left = next
            .min()
            .map(|due| due.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left <= SPIN) {
            return Ok(Some(Timespec::default()));
        }
        // Setting it takes back that it has expired; zero turns it off.
        let left = left.unwrap_or_default();
        let value = Timespec::try_from(left).map_err(io::Error::other)?;
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(None)
    }

    fn on_event(&mut self, token: u64, flags: EventFlags) -> io::Result<()> {
        match token {
            WAKE_UP => {
                let mut count = [0; 8];
                // A wake-up that came twice is read once.
                let _ = rustix::io::read(&self.state.wake_up, &mut count);
                self.add_routes()
            }
            TIMER => Ok(()),
            token if token & CONNECTIONS != 0 => {
                let (id, side) = ((token & !CONNECTIONS) >> 1, (token & 1) as usize);
                self.on_side(id, side, flags);
                Ok(())
            }
            token => {
                self.accept((token & !ROUTES) as usize);
                Ok(())
            }
        }
    }

    fn add_routes(&mut self) -> io::Result<()> {
        let added = std::mem::take(&mut *self.state.added());
        for route in added {
            let data = EventData::new_u64(ROUTES | self.routes.len() as u64);
            epoll::add(&self.epoll, &route.listener, data, EventFlags::IN)?;
            let greatest = route.machines.into_iter().max().unwrap_or_default();
            if self.ports.len() <= greatest {
                self.ports.resize_with(greatest + 1, MachinePort::default);
            }
            self.routes.push((route, 0));
        }
        Ok(())
    }

    fn accept(&mut self, route: usize) {
        let (of, count) = &mut self.routes[route];
        let Ok((near, _)) = of.listener.accept() else {
            return;
        };
        // If the target does not listen, the peer's connection ends, too.
        let connected = TcpStream::connect(of.target).and_then(|far| {
            for side in [&near, &far] {
                side.set_nonblocking(true)?;
                side.set_nodelay(true)?;
            }
            Ok(far)
        });
        let Ok(far) = connected else {
            return;
        };
        let mut connection = ForwardedConnection {
            sides: [near, far],
            directions: Default::default(),
            watched: [EventFlags::empty(); 2],
            route,
            number: *count,
        };
        *count += 1;
        self.accepted += 1;
        if connection
            .watch(&self.epoll, self.accepted, self.most)
            .is_ok()
        {
            self.connections.insert(self.accepted, connection);
        }
    }

    fn on_side(&mut self, id: u64, side: usize, flags: EventFlags) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
            connection.directions[1 - side].is_blocked = false;
        }
        if connection.directions[side].is_read {
            return;
        }
        if self.read(id, side).is_err() {
            self.connections.remove(&id);
        }
    }

    /// Reads a piece.
    fn read(&mut self, id: u64, side: usize) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        let bytes = match (&connection.sides[side]).read(&mut self.buffer) {
            Ok(count) => &mut self.buffer[..count],
            Err(error) => {
                let kind = error.kind();
                let is_later = matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted);
                return if is_later { Ok(()) } else { Err(error) };
            }
        };
        let (route, _) = &mut self.routes[connection.route];
        let direction = &mut connection.directions[side];
        direction.is_read = bytes.is_empty();
        if let Some(change) = route.change.as_mut().filter(|_| !bytes.is_empty()) {
            change(Passing {
                connection: connection.number,
                to_listener: side == 0,
                offset: direction.offset,
                bytes,
            });
        }
        let machine = route.machines[side];
        let due = self.ports[machine].due(Instant::now(), bytes.len(), self.quality);
        direction.offset += bytes.len() as u64;
        direction.held += bytes.len();
        direction.pieces.push_back(DelayedPiece {
            due,
            bytes: bytes.to_vec(),
            written: 0,
        });
        self.state.figures().note_sent(machine, bytes.len());
        Ok(())
    }

    /// Writes what is due, and looks for what is wanted next.
    fn send(&mut self) {
        let mut figures = self.state.figures();
        let (epoll, most) = (&self.epoll, self.most);
        let now = Instant::now();
        self.connections.retain(|&id, connection| {
            let sent = connection.send(now, &mut figures);
            matches!(sent, Ok(true)) && connection.watch(epoll, id, most).is_ok()
        });
        let time = clock_gettime(ClockId::ThreadCPUTime);
        figures.cpu = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_sends_one_piece_after_the_other_and_each_takes_the_delay() {
        let quality = LinkQuality {
            delay: Duration::from_micros(500),
            bytes_per_second: Some(125_000_000),
        };
        let mut port = MachinePort::default();
        let start = Instant::now();
        let micros = |due: Instant| (due - start).as_micros();
        assert_eq!(micros(port.due(start, 12_500, quality)), 600);
        assert_eq!(
            micros(port.due(start, 12_500, quality)),
            700,
            "it waits for the first"
        );
        let later = start + Duration::from_micros(150);
        assert_eq!(
            micros(port.due(later, 0, quality)),
            700,
            "the end of a stream waits too"
        );
        let idle = start + Duration::from_millis(1);
        assert_eq!(micros(port.due(idle, 1250, quality)), 1510);
        let unlimited = LinkQuality {
            bytes_per_second: None,
            ..quality
        };
        assert_eq!(
            micros(MachinePort::default().due(start, 1 << 30, unlimited)),
            500
        );
    }
}
