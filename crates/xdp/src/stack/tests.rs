//! Two stacks with a line between them that loses, repeats and reorders frames, in virtual time.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use super::*;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 6390;
const LISTENER: usize = 7;
const STREAM: usize = 11;
const CALLER: usize = 13;

/// What happens to every nth frame of a direction.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    Lost(usize),
    /// It arrives after the next one.
    Late(usize),
    Twice(usize),
    /// A bit of it is changed.
    Damaged(usize),
}

/// One direction of a line.
struct Line {
    frames: VecDeque<Vec<u8>>,
    fault: Fault,
    count: usize,
    late: Option<Vec<u8>>,
    room: usize,
}

impl Line {
    fn new(fault: Fault) -> Line {
        Line {
            frames: VecDeque::new(),
            fault,
            count: 0,
            late: None,
            room: 64,
        }
    }
}

impl FrameSink for Line {
    fn has_room(&mut self) -> bool {
        self.frames.len() < self.room
    }

    fn push<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut frame = vec![0; len];
        let result = write(&mut frame);
        self.count += 1;
        let hits = |every: usize| self.count.is_multiple_of(every);
        match self.fault {
            Fault::Lost(every) if hits(every) => {}
            Fault::Late(every) if hits(every) => {
                let before = self.late.replace(frame);
                self.frames.extend(before);
            }
            Fault::Twice(every) if hits(every) => self.frames.extend([frame.clone(), frame]),
            Fault::Damaged(every) if hits(every) => {
                let at = self.count % len;
                frame[at] ^= 1 << (self.count % 8);
                self.frames.push_back(frame);
            }
            _ => {
                self.frames.push_back(frame);
                self.frames.extend(self.late.take());
            }
        }
        result
    }
}

/// A server and a client.
struct World {
    server: TcpStack,
    client: TcpStack,
    to_server: Line,
    to_client: Line,
    now: Instant,
    happened: Vec<SocketEvent>,
    listening: Option<Arc<()>>,
    leases: [PortLease; 2],
}

impl World {
    fn new(to_server: Fault, to_client: Fault) -> World {
        let stack = |address| {
            let options = StackOptions {
                address,
                hardware: [2, 0, 0, 0, 0, address.octets()[3]],
                mtu: 1500,
            };
            TcpStack::new(options).expect("randomness")
        };
        let leases: [PortLease; 2] = [Arc::new(()), Arc::new(())];
        let (mut server, client) = (stack(SERVER), stack(CLIENT));
        let listening = Some(server.listen(PORT, LISTENER, Arc::clone(&leases[0])));
        World {
            server,
            client,
            to_server: Line::new(to_server),
            to_client: Line::new(to_client),
            now: Instant::from_secs(1),
            happened: Vec::new(),
            listening,
            leases,
        }
    }

    /// Lets the frames on the way arrive, and a tenth of a millisecond pass.
    fn step(&mut self) {
        for frame in std::mem::take(&mut self.to_server.frames) {
            self.server.receive(&frame, self.now, &mut self.to_client);
        }
        self.server.transmit(self.now, &mut self.to_client);
        for frame in std::mem::take(&mut self.to_client.frames) {
            self.client.receive(&frame, self.now, &mut self.to_server);
        }
        self.client.transmit(self.now, &mut self.to_server);
        self.server.take_events(&mut self.happened);
        self.client.take_events(&mut self.happened);
        // When nothing moves, time goes on to the next timer.
        let is_idle = self.to_server.frames.is_empty() && self.to_client.frames.is_empty();
        let timers = [
            self.server.next_timer(self.now),
            self.client.next_timer(self.now),
        ];
        let least = Duration::from_micros(100);
        let pause = match is_idle {
            true => timers
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(least)
                .max(least),
            false => least,
        };
        self.now += pause.into();
    }

    /// Steps until `done` returns something.
    fn until<T>(&mut self, mut done: impl FnMut(&mut World) -> Option<T>) -> T {
        for _ in 0..200_000 {
            if let Some(value) = done(self) {
                return value;
            }
            self.step();
        }
        panic!("it does not happen; {:?} have passed", self.now);
    }

    fn saw(&mut self, token: usize, wanted: impl Fn(&SocketEvent) -> bool) -> Option<()> {
        let mut all = self.happened.drain(..);
        all.any(|event| event.token == token && wanted(&event))
            .then_some(())
    }

    fn call(&mut self, port: u16) -> usize {
        let to = SocketAddrV4::new(SERVER, PORT);
        let lease = Arc::clone(&self.leases[1]);
        let place = self
            .client
            .connect(to, port, lease, CALLER)
            .expect("an attempt");
        self.client.set_next_hop(place, [2, 0, 0, 0, 0, 1]);
        place
    }

    /// Returns the places of both ends of a new connection.
    fn connected(&mut self) -> (usize, usize) {
        let client = self.call(40_000);
        let (server, peer) = self.until(|world| world.server.accept(PORT));
        assert_eq!(peer, SocketAddrV4::new(CLIENT, 40_000));
        self.server.watch(server, STREAM);
        self.until(|world| world.client.connection(client).connected().ok());
        (server, client)
    }
}

/// Writes as much as there is room for. Returns how much that was.
fn write(stack: &mut TcpStack, place: usize, bytes: &[u8]) -> usize {
    match stack.write(place, &[IoSlice::new(bytes)]) {
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    }
}

/// Reads what is there. Returns `true` if the peer has ended.
fn read(stack: &mut TcpStack, place: usize, all: &mut Vec<u8>) -> bool {
    let mut room = [0; 5000];
    loop {
        match stack.read(place, &mut room) {
            Ok(0) => return true,
            Ok(count) => all.extend_from_slice(&room[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{error}"),
        }
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

/// Sends bytes in both directions at once, closes both ends, and checks that everything came as it was sent.
fn carries(to_server: Fault, to_client: Fault) {
    let mut world = World::new(to_server, to_client);
    let (server, client) = world.connected();
    let (question, answer) = (bytes(300_000), bytes(200_000));
    let (mut asked, mut answered, mut ended) = (0, 0, [false; 2]);
    let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
    world.until(|world| {
        if asked < question.len() {
            asked += write(&mut world.client, client, &question[asked..]);
            if asked == question.len() {
                world.client.end_output(client);
            }
        }
        if answered < answer.len() {
            answered += write(&mut world.server, server, &answer[answered..]);
            if answered == answer.len() {
                world.server.end_output(server);
            }
        }
        ended[0] |= read(&mut world.server, server, &mut at_server);
        ended[1] |= read(&mut world.client, client, &mut at_client);
        (ended == [true; 2]).then_some(())
    });
    assert!(
        at_server == question && at_client == answer,
        "{to_server:?} {to_client:?}"
    );
    world.server.close(server, world.now);
    world.client.close(client, world.now);
    world.until(|world| (world.server.is_settled() && world.client.is_settled()).then_some(()));
    world.until(|world| {
        (world.server.connections() + world.client.connections() == 0).then_some(())
    });
    for stack in [&world.server, &world.client] {
        assert!(stack.flows.is_empty() && stack.timers.is_empty());
    }
}

#[test]
fn bytes_arrive_over_any_line() {
    use Fault::{Damaged, Late, Lost, None, Twice};
    let faults = [
        (None, None),
        (Lost(7), None),
        (None, Lost(11)),
        (Lost(5), Lost(13)),
        (Late(3), Late(5)),
        (Twice(4), Twice(3)),
        (Damaged(9), Damaged(10)),
        (Late(2), Lost(17)),
    ];
    for (to_server, to_client) in faults {
        carries(to_server, to_client);
    }
}

#[test]
fn a_slow_reader_holds_its_peer_up_and_gets_everything() {
    let mut world = World::new(Fault::None, Fault::None);
    let (server, client) = world.connected();
    let all = bytes(1_000_000);
    let mut sent = 0;
    for _ in 0..3000 {
        sent += write(&mut world.client, client, &all[sent..]);
        world.step();
    }
    // Both buffers are full, and no more is taken.
    assert!(
        (100_000..=2 * 65_536).contains(&sent),
        "{sent} bytes are not read"
    );
    world.happened.clear();
    let mut received = Vec::new();
    world.until(|world| {
        read(&mut world.server, server, &mut received);
        world.saw(CALLER, |event| event.writable)
    });
    world.until(|world| {
        read(&mut world.server, server, &mut received);
        sent += write(&mut world.client, client, &all[sent..]);
        (received.len() == all.len()).then_some(())
    });
    assert!(received == all, "other bytes");
}

#[test]
fn a_half_closed_peer_gets_its_answer() {
    let mut world = World::new(Fault::Lost(4), Fault::Lost(4));
    let (server, client) = world.connected();
    assert_eq!(write(&mut world.client, client, b"question"), 8);
    world.client.end_output(client);
    let mut question = Vec::new();
    world.until(|world| read(&mut world.server, server, &mut question).then_some(()));
    assert_eq!(question, b"question");
    assert_eq!(write(&mut world.server, server, b"answer"), 6);
    world.server.close(server, world.now);
    let mut answer = Vec::new();
    world.until(|world| read(&mut world.client, client, &mut answer).then_some(()));
    assert_eq!(answer, b"answer");
}

#[test]
fn a_port_without_listener_refuses() {
    let mut world = World::new(Fault::None, Fault::None);
    world.listening = None;
    let client = world.call(40_000);
    world.until(|world| world.saw(CALLER, |event| event.ended && event.writable));
    let refused = world.client.connection(client).connected();
    assert_eq!(
        refused.map_err(|error| error.kind()),
        Err(ErrorKind::ConnectionRefused)
    );
    world.client.close(client, world.now);
    world.until(|world| (world.client.connections() == 0).then_some(()));
}

#[test]
fn a_listener_that_is_gone_breaks_what_it_has_not_accepted() {
    let mut world = World::new(Fault::None, Fault::None);
    let client = world.call(40_000);
    world.until(|world| world.client.connection(client).connected().ok());
    world.until(|world| world.saw(LISTENER, |event| event.readable));
    world.listening = None;
    world.until(|world| world.saw(CALLER, |event| event.ended));
    let broken = world.client.read(client, &mut [0; 10]);
    assert_eq!(
        broken.map_err(|error| error.kind()),
        Err(ErrorKind::ConnectionReset)
    );
    assert_eq!(
        (world.server.connections(), world.server.accept(PORT)),
        (0, None)
    );
}

#[test]
fn a_peer_that_vanishes_is_noticed() {
    let mut world = World::new(Fault::None, Fault::None);
    let (server, client) = world.connected();
    let dead_after = Duration::from_secs(20);
    world.server.connection(server).set_dead_after(dead_after);
    // An idle peer that answers is kept.
    let begin = world.now;
    world.happened.clear();
    world.until(|world| (world.now > begin + (dead_after * 5).into()).then_some(()));
    assert_eq!(world.saw(STREAM, |event| event.ended), None);
    world.to_client.fault = Fault::Lost(1);
    let begin = world.now;
    world.until(|world| world.saw(STREAM, |event| event.ended));
    let passed = world.now - begin;
    assert!(passed <= (dead_after * 2).into(), "{passed}");
    let gone = world.server.read(server, &mut [0; 10]);
    assert_eq!(gone.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
    let _ = client;
}

#[test]
fn a_closed_connection_is_broken_when_its_peer_takes_nothing() {
    let mut world = World::new(Fault::None, Fault::None);
    let (server, _client) = world.connected();
    // The client does not read, and its window is full.
    let all = bytes(300_000);
    let mut sent = 0;
    for _ in 0..3000 {
        sent += write(&mut world.server, server, &all[sent..]);
        world.step();
    }
    world.server.close(server, world.now);
    assert!(!world.server.is_settled());
    let begin = world.now;
    world.until(|world| (world.server.connections() == 0).then_some(()));
    let passed = world.now - begin;
    assert!(passed >= reactor::buffered::LINGER.into(), "{passed}");
    assert!(passed < Duration::from_secs(15).into(), "{passed}");
}

#[test]
fn a_flood_of_handshakes_takes_bounded_room() {
    let mut world = World::new(Fault::None, Fault::None);
    // The answers get lost, so that no handshake ends.
    world.to_client.room = usize::MAX;
    for port in 1..2000 {
        world.call(port);
        let before = world.client.connections();
        world.client.transmit(world.now, &mut world.to_server);
        for frame in std::mem::take(&mut world.to_server.frames) {
            world
                .server
                .receive(&frame, world.now, &mut world.to_client);
        }
        world.server.transmit(world.now, &mut world.to_client);
        world.to_client.frames.clear();
        assert_eq!(before, usize::from(port));
        assert!(world.server.connections() <= HALF_OPEN);
    }
    assert_eq!(world.server.connections(), HALF_OPEN);
    assert_eq!(world.server.flows.len(), HALF_OPEN);
    // A peer that finishes its handshake is served in spite of them.
    let late = world.call(3000);
    world.until(|world| world.client.connection(late).connected().ok());
    assert!(world.until(|world| world.server.accept(PORT)).1.port() > 0);
}

#[test]
fn a_packet_of_no_connection_is_answered_by_a_reset_and_a_reset_by_nothing() {
    let mut world = World::new(Fault::None, Fault::None);
    let (_, client) = world.connected();
    // Another server has the address now.
    world.server = World::new(Fault::None, Fault::None).server;
    assert_eq!(write(&mut world.client, client, b"anything"), 8);
    world.until(|world| world.saw(CALLER, |event| event.ended));
    let broken = world.client.read(client, &mut [0; 10]);
    assert_eq!(
        broken.map_err(|error| error.kind()),
        Err(ErrorKind::ConnectionReset)
    );
    assert_eq!(world.server.connections(), 0);
    for _ in 0..100 {
        world.step();
    }
    assert!(world.to_client.frames.is_empty() && world.to_server.frames.is_empty());
}

#[test]
fn first_sequence_numbers_differ() {
    let mut world = World::new(Fault::None, Fault::None);
    let mut seen = std::collections::HashSet::new();
    for port in 1..200 {
        world.call(port);
        world.client.transmit(world.now, &mut world.to_server);
        let frame = world.to_server.frames.pop_back().expect("a SYN");
        seen.insert(frame[38..42].to_vec());
        world.to_server.frames.clear();
    }
    assert!(seen.len() > 195, "{} of 199", seen.len());
}
