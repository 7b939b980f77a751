//! Cases for links through shared memory, and for links by Send and Receive: peers that are killed,
//! stopped, dishonest, of an older version, or on another machine.

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use base::NodeId;
use kumiki_fabric as fabric;

use fabric::frame::{Frame, FrameFlaw, NONCE, TransportSet};
use fabric::handshake::{ConnectionTerms, Handshake, Identity};
use fabric::memory::{Access, Grant, Memory, Region, RegionKind, Remote};
use fabric::ring::CONTROL;
use fabric::shm::Shm;
use fabric::tcp::{TcpOptions, Transport};
use fabric::verbs::{Device, VerbsOptions};
use fabric::{Link, Messages, Peer, Secret, SendError};
use reactor::budget::Budget;
use rustix::process::{Pid, Signal, kill_process};
use testkit::own_process::test_as_process;

use crate::conformance::net::{Happened, Net, Party, linger, until};
use crate::conformance::tcp::{Loopback, TcpEnd};

/// The variable that makes the test below a peer: the node's address, and the place of the memory.
const PEER: &str = "KUMIKI_TEST_PEER_OF";
/// The time within which an end is noticed, on a machine that is busy with other tests.
const AT_ONCE: Duration = Duration::from_secs(2);

/// A process that is a client of node 1, and sends it numbered messages as fast as they are taken.
struct Flooder(Child);

impl Flooder {
    fn start(net: &Loopback) -> Flooder {
        let way = match net.transport() {
            Transport::ShmSend => "shm-send",
            Transport::VerbsSend => "verbs-send",
            _ => "shm",
        };
        let told = format!("{way} {} {}", net.address(1), net.memory().display());
        let process = test_as_process(module_path!(), "plays_a_peer_if_told_to")
            .env(PEER, told)
            .stdout(Stdio::null())
            .spawn();
        Flooder(process.unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The process of a [`Flooder`]; does nothing when run as a test.
#[test]
fn plays_a_peer_if_told_to() {
    let Ok(told) = std::env::var(PEER) else {
        return;
    };
    let (way, told) = told.split_once(' ').unwrap();
    let (address, memory) = told.split_once(' ').unwrap();
    let mut options = TcpOptions::new(Peer::Client, Secret::new("the suite's"), 7);
    options.peers.insert(NodeId(1), address.parse().unwrap());
    options.transport = match way {
        "shm-send" => Transport::ShmSend,
        "verbs-send" => Transport::VerbsSend,
        _ => Transport::Shm,
    };
    if options.transport.needs_device() {
        let device = Device::open(&VerbsOptions::default()).unwrap();
        options.verbs = Some(device.domain().unwrap());
        options.limits.handshake = Duration::from_secs(60);
    }
    options.shm = Shm::in_dir(memory);
    let mut me = Party::new(TcpEnd::new(options, Instant::now()));
    let (link, begun) = (me.end.connect(NodeId(1)), Instant::now());
    let mut number = 0;
    while begun.elapsed() < Duration::from_secs(60) && me.why_down(link).is_none() {
        while me.end.send(link, &numbered(number)) == Ok(()) {
            number += 1;
        }
        me.turn();
    }
}

/// Returns message `number` of a flooder: between a few bytes and many records long.
fn numbered(number: u64) -> Vec<u8> {
    let mut message = number.to_le_bytes().to_vec();
    let longer = 1 << (number % 17);
    message.resize(8 + (number * 31 % longer) as usize, number as u8);
    message
}

/// Checks that the messages from a flooder are a prefix of those that it sends. Returns their
/// number.
fn count(node: &Party<TcpEnd>, on: Link) -> usize {
    let messages = node.messages(on);
    for (number, message) in messages.iter().enumerate() {
        assert!(*message == numbered(number as u64), "message {number}");
    }
    messages.len()
}

#[test]
fn a_killed_peer_is_noticed_at_once_and_leaves_nothing() {
    killed(Loopback::over(Transport::Auto), (15, 100), AT_ONCE);
}

#[test]
fn a_killed_peer_by_send_and_receive_is_noticed_at_once() {
    killed(Loopback::over(Transport::ShmSend), (15, 100), AT_ONCE);
}

#[test]
fn a_killed_peer_by_send_and_receive_of_verbs_is_noticed_at_once() {
    if let Some(net) = Loopback::over_verbs(Transport::VerbsSend) {
        // The machine is emulated.
        killed(net, (3, 3), AT_ONCE * 10);
    }
}

/// Kills peers at random moments: in so many rounds, and more if no more than so many messages came.
fn killed(mut net: Loopback, (least, enough): (usize, usize), noticed: Duration) {
    let mut node = Party::new(net.node(1));
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut came, mut rounds) = (0, 0);
    // There are more rounds if the peers hardly get to send anything.
    while rounds < least || came <= enough && rounds < 200 {
        rounds += 1;
        let flooder = Flooder::start(&net);
        until(&mut net, &mut [&mut node], "a link", |parties| {
            parties[0].up().len() == 1
        });
        let link = node.only();
        assert_eq!(node.end.tcp.links_through_memory(), 1);
        let (begun, life) = (Instant::now(), Duration::from_micros(rng.u64(..20_000)));
        until(&mut net, &mut [&mut node], "messages", |_| {
            begun.elapsed() > life
        });
        let killed = Instant::now();
        flooder.signal(Signal::KILL);
        until(&mut net, &mut [&mut node], "its end", |parties| {
            parties[0].why_down(link).is_some()
        });
        assert!(killed.elapsed() < noticed, "{:?}", killed.elapsed());
        came += count(&node, link);
        assert_eq!((net.files(), node.end.tcp.connections()), (0, 0));
        node.log.clear();
    }
    assert!(came > enough, "{came} messages");
}

/// While a link is made, the initiator's mailbox has a name.
#[test]
fn what_a_peer_leaves_that_is_killed_while_a_link_is_made_is_removed() {
    let mut net = Loopback::over(Transport::Auto);
    let mut node = Party::new(net.node(1));
    let mut flooder = Flooder::start(&net);
    while net.files() == 0 {
        node.turn();
        if !node.up().is_empty() {
            // The link was made between two looks.
            drop(flooder);
            until(&mut net, &mut [&mut node], "its end", |parties| {
                parties[0].end.tcp.connections() == 0
            });
            node.log.clear();
            flooder = Flooder::start(&net);
        }
        // The peer has time to make its mailbox before the node answers.
        std::thread::sleep(Duration::from_millis(5));
        assert!(net.pass(), "it makes no link");
    }
    drop(flooder);
    until(&mut net, &mut [&mut node], "its end", |parties| {
        parties[0].end.tcp.connections() == 0
    });
    // The node has found a mailbox without an owner.
    assert_eq!(net.files(), 0);
}

#[test]
fn a_stopped_peer_holds_up_no_other() {
    stopped(Loopback::over(Transport::Shm), AT_ONCE * 5);
}

#[test]
fn a_stopped_peer_by_send_and_receive_holds_up_no_other() {
    stopped(Loopback::over(Transport::ShmSend), AT_ONCE * 5);
}

#[test]
fn a_stopped_peer_by_send_and_receive_of_verbs_holds_up_no_other() {
    if let Some(net) = Loopback::over_verbs(Transport::VerbsSend) {
        stopped(net, AT_ONCE * 60);
    }
}

/// A peer that is stopped takes nothing, and others are served.
fn stopped(mut net: Loopback, patience: Duration) {
    let mut node = Party::new(net.node(1));
    let flooder = Flooder::start(&net);
    until(&mut net, &mut [&mut node], "messages", |parties| {
        parties[0].count() > 50
    });
    let stopped = node.only();
    flooder.signal(Signal::STOP);
    linger(&mut net, &mut [&mut node]);
    let so_far = count(&node, stopped);
    // The peer gets more than its ring holds, and others are served as before.
    assert!(node.send_until_full(stopped, &[1; 10_000]) > 0);
    linger(&mut net, &mut [&mut node]);
    node.send_until_full(stopped, &[1; 10_000]);
    let mut other = Party::new(net.client());
    let link = other.end.connect(NodeId(1));
    let begun = Instant::now();
    for _ in 0..100 {
        let before = node.count();
        other.send(link, b"?");
        until(
            &mut net,
            &mut [&mut node, &mut other],
            "a message",
            |parties| parties[0].count() > before,
        );
    }
    assert!(begun.elapsed() < patience, "{:?}", begun.elapsed());
    assert_eq!(count(&node, stopped), so_far, "it is stopped");
    assert_eq!(node.end.send(stopped, &[1; 10_000]), Err(SendError::Full));
    // The node does not go on checking if the peer has woken up, either.
    drop(other);
    until(&mut net, &mut [&mut node], "rest", |parties| {
        parties[0].end.tcp.timeout(Duration::ZERO) != Some(Duration::ZERO)
    });
    flooder.signal(Signal::CONT);
    until(&mut net, &mut [&mut node], "more messages", |parties| {
        let drained = (stopped, Happened::Drained);
        parties[0].log.contains(&drained) && parties[0].messages(stopped).len() > so_far
    });
    count(&node, stopped);
}

#[test]
fn peers_that_do_not_see_the_same_memory_talk_over_tcp_or_not_at_all() {
    let elsewhere = Loopback::new();
    let nowhere = || Shm::in_dir("/nowhere");
    type TransportAndMemory = (Transport, Shm);
    let meet = |net: &Loopback, ours: TransportAndMemory, theirs: TransportAndMemory| {
        let end = |me, (transport, shm)| {
            let end = net.end(me, |options| {
                options.transport = transport;
                options.shm = shm;
            });
            Party::new(end)
        };
        let mut a = end(Peer::Client, ours);
        let mut b = end(Peer::Node(NodeId(2)), theirs);
        let link = a.end.connect(NodeId(2));
        let mut net = Loopback::new();
        until(&mut net, &mut [&mut a, &mut b], "an outcome", |parties| {
            parties[0].why_down(link).is_some()
                || (parties[0].is_up(link) && !parties[1].up().is_empty())
        });
        let why = a.why_down(link).map(str::to_owned);
        if why.is_none() {
            a.send(link, b"hello");
            until(&mut net, &mut [&mut a, &mut b], "a message", |parties| {
                parties[1].count() == 1
            });
        }
        (a.end.tcp.links_through_memory(), why)
    };
    let net = Loopback::new();
    let here = |transport| (transport, net.shm());
    let there = |transport| (transport, elsewhere.shm());
    assert_eq!(
        meet(&net, here(Transport::Auto), here(Transport::Auto)),
        (1, None)
    );
    assert_eq!(
        meet(&net, here(Transport::Shm), here(Transport::Auto)),
        (1, None)
    );
    assert_eq!(
        meet(&net, here(Transport::Tcp), here(Transport::Shm)),
        (0, None)
    );
    for theirs in [
        here(Transport::Tcp),
        there(Transport::Auto),
        (Transport::Auto, nowhere()),
    ] {
        let without = meet(&net, here(Transport::Auto), theirs.clone());
        assert_eq!(without, (0, None), "{theirs:?}");
        let (_, why) = meet(&net, here(Transport::Shm), theirs.clone());
        let why = why.expect("it is insisted on");
        assert!(why.contains("shared memory was asked for"), "{why}");
    }
    assert_eq!(
        meet(&net, (Transport::Auto, nowhere()), here(Transport::Auto)),
        (0, None)
    );
    assert_eq!((net.files(), elsewhere.files()), (0, 0));
}

/// A node of a version without Send and Receive is reached through rings, and refuses nothing else.
#[test]
fn an_older_node_is_reached_in_the_ways_that_it_knows() {
    let net = Loopback::over(Transport::Auto);
    for (transport, offers) in [
        (Transport::Auto, true),
        (Transport::Shm, true),
        (Transport::ShmSend, false),
    ] {
        let mut client = Party::new(net.end(Peer::Client, |options| options.transport = transport));
        let listener = fabric::tcp::listen(net.address(2), 1).unwrap().remove(0);
        let link = client.end.connect(NodeId(2));
        let offered = serve_as_older(&listener, &mut client, link);
        assert_eq!(offered.is_some(), offers, "{transport:?}");
        if let Some(kind) = offered {
            assert_eq!(kind, RegionKind::Shm);
            continue;
        }
        let why = client.why_down(link).expect("it insists");
        assert!(why.contains("Send and Receive in shared memory"), "{why}");
        assert!(why.contains("the peer does not use it"), "{why}");
    }
}

/// Plays a node that knows shared memory alone. Returns the kind of memory that the client offers;
/// `None` if the client ends the link.
fn serve_as_older(
    listener: &std::net::TcpListener,
    client: &mut Party<TcpEnd>,
    link: Link,
) -> Option<RegionKind> {
    let identity = Identity {
        me: Peer::Node(NodeId(2)),
        cluster: Some(7),
        secret: Secret::new("the suite's"),
        clients: None,
        ways: TransportSet::SHM,
    };
    let terms = ConnectionTerms {
        nonce: [5; NONCE],
        encrypt: false,
    };
    let mut handshake = Handshake::accept(terms);
    let (mut stream, mut arrived, mut proved) = (None, Vec::new(), false);
    let begun = Instant::now();
    while client.why_down(link).is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no outcome");
        client.turn();
        let stream = match &mut stream {
            Some(stream) => stream,
            None => match listener.accept() {
                Ok((accepted, _)) => {
                    accepted.set_nonblocking(true).unwrap();
                    stream.insert(accepted)
                }
                Err(_) => continue,
            },
        };
        let mut buffer = [0; 500];
        let n = stream.read(&mut buffer).unwrap_or(0);
        arrived.extend(&buffer[..n]);
        if !proved {
            let mut out = Vec::new();
            let (used, met) = handshake.advance(&identity, &arrived, &mut out).unwrap();
            arrived.drain(..used);
            stream.write_all(&out).unwrap();
            proved = met.is_some();
        } else if let Ok(Some((Frame::Mailbox(grant), _))) = Frame::decode(&arrived) {
            return grant.map(|grant| grant.kind());
        }
    }
    None
}

/// The memory that links post for Receives counts as memory that they hold.
#[test]
fn links_that_post_more_than_the_limit_go_down() {
    let mut net = Loopback::over(Transport::ShmSend);
    let mut node = Party::new(net.end(Peer::Node(NodeId(1)), |options| {
        options.budget = Budget::new(100 << 10);
    }));
    let mut client = Party::new(net.client());
    let first = client.end.connect(NodeId(1));
    client.send(first, b"hello");
    until(
        &mut net,
        &mut [&mut node, &mut client],
        "a message",
        |parties| parties[0].count() == 1,
    );
    // A second one would post 64 KiB more.
    let second = client.end.connect(NodeId(1));
    until(
        &mut net,
        &mut [&mut node, &mut client],
        "its end",
        |parties| parties[1].why_down(second).is_some(),
    );
    client.send(first, b"still here");
    until(
        &mut net,
        &mut [&mut node, &mut client],
        "a message",
        |parties| parties[0].count() == 2,
    );
    assert_eq!(node.end.tcp.links_by_send_receive(), 1);
    client.end.close(first);
    until(
        &mut net,
        &mut [&mut node, &mut client],
        "the end",
        |parties| parties[0].end.tcp.connections() == 0,
    );
    // What it posted has been given back.
    let third = client.end.connect(NodeId(1));
    client.send(third, b"again");
    until(
        &mut net,
        &mut [&mut node, &mut client],
        "a message",
        |parties| parties[0].count() == 3,
    );
}

/// Memory of a kind that this version does not know is refused by name.
#[test]
fn unknown_memory_is_refused_with_a_reason() {
    let mut bytes = Vec::new();
    let grant = Grant::new(RegionKind::Shm, Access::Write, 9, [3; 16], b"somewhere");
    Frame::Mailbox(Some(grant)).encode(&mut bytes);
    bytes[fabric::frame::HEADER] = 9;
    let flaw = Frame::decode(&bytes).unwrap_err();
    assert_eq!(flaw, FrameFlaw::MemoryKind(9));
    assert!(flaw.to_string().contains("kind 9"), "{flaw}");
}

/// A peer authenticates, and then writes garbage: only its own link ends.
#[test]
fn garbage_in_a_ring_ends_the_link() {
    let mut net = Loopback::over(Transport::Auto);
    let mut node = Party::new(net.node(1));
    let mut good = Party::new(net.client());
    let to_node = good.end.connect(NodeId(1));
    until(&mut net, &mut [&mut node, &mut good], "a link", |parties| {
        parties[0].up().len() == 1
    });
    let other = node.only();
    let spoilt: [(usize, &[u64]); 4] = [
        (CONTROL, &[u64::MAX, 1]),
        (CONTROL, &[5, 0xff]),
        // This message is longer than the limit.
        (
            CONTROL,
            &[4, u64::from_le_bytes(*b"\x01\xff\xff\xff\xff\x01\0\0")],
        ),
        (0, &[1 << 60]),
    ];
    for (place, words) in spoilt {
        let mut liar = Liar::meet(&mut net, &mut node);
        let link = *node.up().keys().find(|link| **link != other).unwrap();
        liar.mailbox.write(place, words).unwrap();
        // The node finds wrong counts when it needs room.
        node.send(link, &vec![1; 100_000]);
        until(
            &mut net,
            &mut [&mut node, &mut good],
            "its end",
            |parties| parties[0].why_down(link).is_some(),
        );
        assert!(node.is_up(other));
    }
    good.send(to_node, b"still here");
    until(
        &mut net,
        &mut [&mut node, &mut good],
        "a message",
        |parties| parties[0].messages(other) == [b"still here"],
    );
}

/// A client that the test plays by hand.
struct Liar {
    mailbox: <Shm as Memory>::Remote,
    _own: <Shm as Memory>::Region,
    _stream: std::net::TcpStream,
}

impl Liar {
    fn meet(net: &mut Loopback, node: &mut Party<TcpEnd>) -> Liar {
        let identity = Identity {
            me: Peer::Client,
            cluster: Some(7),
            secret: Secret::new("the suite's"),
            clients: None,
            ways: TransportSet::SHM,
        };
        let mut stream = std::net::TcpStream::connect(net.address(1)).unwrap();
        stream.set_nonblocking(true).unwrap();
        let shm = net.shm();
        let own = shm.register(CONTROL + 64, Access::Write).unwrap();
        let (mut out, mut arrived) = (Vec::new(), Vec::new());
        let terms = ConnectionTerms {
            nonce: [4; NONCE],
            encrypt: false,
        };
        let mut handshake = Handshake::initiate(&identity, None, terms, &mut out);
        let (mut proved, mut mailbox) = (false, None);
        let links = node.up().len();
        until(net, &mut [node], "a handshake", |parties| {
            stream.write_all(&std::mem::take(&mut out)).unwrap();
            let mut buffer = [0; 500];
            let n = stream.read(&mut buffer).unwrap_or(0);
            arrived.extend(&buffer[..n]);
            if !proved {
                let (used, met) = handshake.advance(&identity, &arrived, &mut out).unwrap();
                arrived.drain(..used);
                if met.is_some() {
                    proved = true;
                    Frame::Mailbox(Some(own.grant().clone())).encode(&mut out);
                }
            } else if let Ok(Some((Frame::Mailbox(grant), used))) = Frame::decode(&arrived) {
                arrived.drain(..used);
                mailbox = Some(shm.reach(&grant.unwrap()).unwrap());
                Frame::Ready(true).encode(&mut out);
            }
            parties[0].up().len() > links
        });
        Liar {
            mailbox: mailbox.unwrap(),
            _own: own,
            _stream: stream,
        }
    }
}
