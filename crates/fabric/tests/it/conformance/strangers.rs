//! Input that nodes get on an open port, and in the middle of a conversation.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::NodeId;
use kumiki_fabric as fabric;
use reactor::budget::Budget;

use fabric::frame::{Frame, NONCE, RefusalCode, TransportSet};
use fabric::handshake::{ConnectionTerms, Handshake, Identity};
use fabric::tcp::{Tcp, TcpOptions, Transport, TransportLimits};
use fabric::{Messages, Peer, Secret};
use reactor::{Network, Sockets};
use socket2::SockRef;

use crate::conformance::net::{Happened, Net, Pair, Party, until};
use crate::conformance::tcp::{Loopback, TcpEnd};

/// Makes a bare connection, which the test drives by hand.
fn raw(net: &Loopback, id: u16) -> TcpStream {
    let stream = TcpStream::connect(net.address(id)).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

/// Returns the bytes that arrive on such a connection until the other side ends it.
fn hear(net: &mut Loopback, node: &mut Party<TcpEnd>, stream: &mut TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    until(net, &mut [node], "the end", |_| {
        match stream.read_to_end(&mut heard) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    });
    heard
}

/// Checks that the bytes end with this refusal.
fn assert_refusal(heard: &[u8], code: RefusalCode, about: &str) {
    let mut rest = heard;
    while let Ok(Some((frame, end))) = Frame::decode(rest) {
        rest = &rest[end..];
        if let Frame::Refusal(got, text) = frame {
            assert_eq!((got, rest.len()), (code, 0));
            assert!(text.contains(about), "{text}");
            return;
        }
    }
    panic!("no refusal in {heard:?}");
}

#[test]
fn garbage_is_refused() {
    let mut net = Loopback::new();
    let mut node = Party::new(net.node(1));
    let mut bits = fastrand::Rng::with_seed(3);
    let noise: Vec<u8> = (0..100_000).map(|_| bits.u8(..)).collect();
    for said in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"x",
        &noise,
    ] {
        let mut stream = raw(&net, 1);
        // Only a part is written if the system takes no more.
        let taken = stream.write(said).unwrap();
        let heard = hear(&mut net, &mut node, &mut stream);
        assert_refusal(&heard, RefusalCode::Garbage, "the fabric of a Kumiki node");
        drop((stream, taken));
    }
    until(&mut net, &mut [&mut node], "the end of all", |parties| {
        parties[0].end.tcp.connections() == 0
    });
    assert!(node.log.is_empty(), "strangers are no links");
}

#[test]
fn another_version_is_refused_politely() {
    let mut net = Loopback::new();
    let mut node = Party::new(net.node(1));
    let mut hello = b"\x89kumiki\n\x07\x02\x01\0".to_vec();
    hello.extend(1000_u32.to_le_bytes());
    // Only its version knows the meaning of its body.
    hello.extend([7; 1000]);
    let mut stream = raw(&net, 1);
    stream.write_all(&hello).unwrap();
    let heard = hear(&mut net, &mut node, &mut stream);
    assert_refusal(&heard, RefusalCode::Version, "version 519 ");
}

#[test]
fn the_initiator_learns_of_another_version() {
    let mut net = Loopback::new();
    let listener = TcpListener::bind(net.address(2)).unwrap();
    let mut node = Party::new(net.node(1));
    let link = node.end.connect(NodeId(2));
    node.turn();
    let (mut stream, _) = listener.accept().unwrap();
    let mut refusal = b"\x89kumiki\n\x02\x00\x00\0\x0e\0\0\0\x01\0".to_vec();
    refusal.extend(b"come newer\r\n");
    stream.write_all(&refusal).unwrap();
    until(&mut net, &mut [&mut node], "the end", |parties| {
        parties[0].why_down(link).is_some()
    });
    let why = node.why_down(link).unwrap();
    assert!(why.contains("refused by the peer: come newer"), "{why}");
}

#[test]
fn the_initiator_learns_why_it_is_refused() {
    let mut net = Loopback::new();
    let mut b = Party::new(net.node(2));
    let (wrong, others) = (Secret::new("wrong"), "the secrets differ");
    let a = net.end(Peer::Node(NodeId(1)), |options| {
        options.identity.secret = wrong
    });
    assert_refused(&mut net, a, &mut b, others);
    let a = net.end(Peer::Node(NodeId(1)), |options| {
        options.identity.cluster = Some(8)
    });
    assert_refused(&mut net, a, &mut b, "the clusters differ");
    // Node 2 is at the place of node 3.
    let at_2 = net.address(2);
    let a = net.end(Peer::Node(NodeId(1)), |options| {
        options.peers.insert(NodeId(2), net.address(1));
        options.peers.insert(NodeId(3), at_2);
    });
    let mut a = Party::new(a);
    let link = a.end.connect(NodeId(3));
    until(&mut net, &mut [&mut a, &mut b], "the end", |parties| {
        parties[0].why_down(link).is_some()
    });
    let why = a.why_down(link).unwrap();
    assert!(why.contains("node 3 was expected where node 2 is"), "{why}");
    assert!(b.log.is_empty());
}

fn assert_refused(net: &mut Loopback, a: TcpEnd, b: &mut Party<TcpEnd>, about: &str) {
    let mut a = Party::new(a);
    let link = a.end.connect(NodeId(2));
    a.send(link, b"never seen");
    until(net, &mut [&mut a, b], "the end", |parties| {
        parties[0].why_down(link).is_some()
    });
    let why = a.why_down(link).unwrap();
    assert!(why.contains(about) && why.contains("cluster file"), "{why}");
    assert!(b.log.is_empty(), "who is refused is no link");
    assert_eq!(a.log.len(), 1, "Down alone");
}

/// Makes a peer of a node by hand, and completes its handshake.
fn peer(net: &mut Loopback, node: &mut Party<TcpEnd>) -> TcpStream {
    let identity = Identity {
        me: Peer::Node(NodeId(2)),
        cluster: Some(7),
        secret: Secret::new("the suite's"),
        clients: None,
        ways: TransportSet::NONE,
    };
    let mut stream = raw(net, 1);
    let (mut out, mut arrived) = (Vec::new(), Vec::new());
    let terms = ConnectionTerms {
        nonce: [4; NONCE],
        encrypt: false,
    };
    let mut handshake = Handshake::initiate(&identity, None, terms, &mut out);
    until(net, &mut [node], "a handshake", |_| {
        stream.write_all(&out).unwrap();
        out.clear();
        let mut buffer = [0; 100];
        match stream.read(&mut buffer) {
            Ok(n) => arrived.extend(&buffer[..n]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let (used, proved) = handshake.advance(&identity, &arrived, &mut out).unwrap();
        arrived.drain(..used);
        proved.is_some()
    });
    stream
}

/// A peer dies within a message: earlier messages arrive, this one does not.
#[test]
fn a_message_that_is_cut_off_does_not_arrive() {
    for (len, there) in [(1000, 0), (1000, 500), (1000, 999), (1 << 20, 100_000)] {
        for reset in [false, true] {
            let mut net = Loopback::new();
            let mut node = Party::new(net.node(1));
            let mut stream = peer(&mut net, &mut node);
            let mut bytes = b"\x05\0\0\0whole".to_vec();
            bytes.extend((len as u32).to_le_bytes());
            bytes.resize(bytes.len() + there, 1);
            stream.write_all(&bytes).unwrap();
            until(&mut net, &mut [&mut node], "the message", |parties| {
                parties[0].count() == 1
            });
            if reset {
                let linger = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                linger.unwrap();
            }
            drop(stream);
            until(&mut net, &mut [&mut node], "the end", |parties| {
                parties[0].up().is_empty()
            });
            let [_, (_, Happened::Message(got)), (_, Happened::Down(why))] = &node.log[..] else {
                panic!("{:?}", node.log);
            };
            assert_eq!(got, b"whole");
            let told = if reset { "reset" } else { "in the middle" };
            assert!(why.contains(told), "{why}");
        }
    }
}

#[test]
fn a_message_beyond_the_receiver_s_limit_ends_the_link() {
    let mut net = Loopback::new();
    let mut node = Party::new(net.node(1));
    let mut stream = peer(&mut net, &mut node);
    let claimed = Loopback::LIMIT as u32 + 1;
    stream.write_all(&claimed.to_le_bytes()).unwrap();
    until(&mut net, &mut [&mut node], "the end", |parties| {
        parties[0].up().is_empty() && parties[0].log.len() == 2
    });
    let (link, _) = node.log[0];
    assert!(node.why_down(link).unwrap().contains("raise the limit"));
}

/// Messages that are never finished, on many links: the memory that they take together is bounded.
#[test]
fn unfinished_messages_are_bounded_together() {
    const MIB: usize = 1 << 20;
    let mut net = Loopback::new();
    let budget = Budget::new(6 * MIB as u64);
    let of_links = Arc::clone(&budget);
    let end = net.end(Peer::Node(NodeId(1)), |options| {
        options.limits.message = 64 * MIB;
        options.budget = of_links;
    });
    let mut node = Party::new(end);
    let mut begun = (8 * MIB as u32).to_le_bytes().to_vec();
    begun.resize(begun.len() + 2 * MIB, 1);
    let mut kept = Vec::new();
    while node
        .log
        .iter()
        .all(|(_, what)| !matches!(what, Happened::Down(_)))
    {
        assert!(kept.len() < 4, "{} links have begun", kept.len());
        let mut stream = peer(&mut net, &mut node);
        stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        let used = budget.used();
        until(
            &mut net,
            &mut [&mut node],
            "its bytes are there",
            |parties| {
                sent += stream.write(&begun[sent..]).unwrap_or(0);
                let is_down = matches!(parties[0].log.last(), Some((_, Happened::Down(_))));
                is_down || budget.used() >= used + 2 * MIB as u64
            },
        );
        kept.push(stream);
    }
    assert!(kept.len() >= 2, "{}", kept.len());
    let Some((_, Happened::Down(why))) = node.log.last() else {
        unreachable!("it was found");
    };
    assert!(why.contains("may have together"), "{why}");
    assert_eq!(node.up().len(), kept.len() - 1, "the others stay");
    drop(kept);
    until(&mut net, &mut [&mut node], "the end", |parties| {
        parties[0].up().is_empty()
    });
    assert_eq!(budget.used(), 0);
}

#[test]
fn who_says_nothing_is_not_waited_for() {
    let mut net = Loopback::new();
    let limit = Duration::from_millis(200);
    let end = net.end(Peer::Node(NodeId(1)), |options| {
        options.limits.handshake = limit
    });
    let mut node = Party::new(end);
    let begun = Instant::now();
    let mut silent = raw(&net, 1);
    let heard = hear(&mut net, &mut node, &mut silent);
    assert_refusal(&heard, RefusalCode::Late, "took too long");
    assert!((limit..limit * 10).contains(&begun.elapsed()));
    drop(silent);
    // A node that connects does not wait for a silent peer, either.
    let _silent = TcpListener::bind(net.address(2)).unwrap();
    let link = node.end.connect(NodeId(2));
    until(&mut net, &mut [&mut node], "the end", |parties| {
        parties[0].why_down(link).is_some()
    });
    assert!(node.why_down(link).unwrap().contains("took too long"));
}

#[test]
fn strangers_are_limited_and_the_oldest_goes_first() {
    let mut net = Loopback::new();
    let end = net.end(Peer::Node(NodeId(1)), |options| {
        options.limits.unauthenticated = 3;
    });
    let mut node = Party::new(end);
    let mut quiet: Vec<TcpStream> = Vec::new();
    for count in 1..=3 {
        quiet.push(raw(&net, 1));
        until(&mut net, &mut [&mut node], "strangers", |parties| {
            parties[0].end.tcp.connections() == count
        });
    }
    let mut one_more = raw(&net, 1);
    let heard = hear(&mut net, &mut node, &mut quiet[0]);
    assert_refusal(&heard, RefusalCode::Busy, "try again later");
    assert_eq!(node.end.tcp.connections(), 3);
    for still_there in quiet[1..].iter_mut().chain([&mut one_more]) {
        let error = still_there.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

/// Half-open connections, however many, keep no peer out, and end no link that is up.
#[test]
fn a_peer_gets_in_among_strangers_who_say_nothing() {
    let mut net = Loopback::new();
    let end = net.end(Peer::Node(NodeId(1)), |options| {
        options.limits.unauthenticated = 16;
    });
    let mut node = Party::new(end);
    let mut earlier = peer(&mut net, &mut node);
    let _quiet: Vec<TcpStream> = (0..100).map(|_| raw(&net, 1)).collect();
    let mut later = peer(&mut net, &mut node);
    assert_eq!(node.up().len(), 2);
    let _more: Vec<TcpStream> = (0..100).map(|_| raw(&net, 1)).collect();
    for stream in [&mut earlier, &mut later] {
        stream.write_all(b"\x05\0\0\0there").unwrap();
    }
    until(&mut net, &mut [&mut node], "both messages", |parties| {
        parties[0].count() == 2
    });
    assert_eq!(node.up().len(), 2);
    assert!(node.end.tcp.connections() <= 2 + 16);
}

/// Programs learn why there is no link to a node, until there is one.
#[test]
fn the_last_refusal_of_a_node_is_known() {
    let mut net = Loopback::new();
    let mut b = Party::new(net.node(2));
    let refused = |net: &mut Loopback, b: &mut Party<TcpEnd>, change: &dyn Fn(&mut TcpOptions)| {
        let mut a = Party::new(net.end(Peer::Node(NodeId(1)), change));
        let link = a.end.connect(NodeId(2));
        until(net, &mut [&mut a, b], "the end", |parties| {
            parties[0].why_down(link).is_some()
        });
        // The rest of a connection that was refused here ends, too.
        until(net, &mut [&mut a, b], "no connection", |parties| {
            parties[0].end.tcp.connections() == 0
        });
        a.end.tcp.refusal(NodeId(2)).map(|refused| refused.code)
    };
    let code = refused(&mut net, &mut b, &|options| {
        options.identity.secret = Secret::new("wrong");
    });
    assert_eq!(code, Some(RefusalCode::Secret));
    let code = refused(&mut net, &mut b, &|options| {
        options.identity.cluster = Some(8);
    });
    assert_eq!(code, Some(RefusalCode::Cluster));
    let mut a = Party::new(net.node(1));
    let link = a.end.connect(NodeId(2));
    until(&mut net, &mut [&mut a, &mut b], "a link", |parties| {
        parties[0].is_up(link)
    });
    assert_eq!(a.end.tcp.refusal(NodeId(2)), None);
}

/// No thread wakes for links on which nothing happens.
#[test]
fn idle_links_cost_nothing() {
    rests(Loopback::new());
    rests(Loopback::over(Transport::Shm));
}

fn rests(mut net: Loopback) {
    let Pair {
        mut a,
        mut b,
        links,
    } = Pair::new(&mut net);
    until(&mut net, &mut [&mut a, &mut b], "rest", |parties| {
        parties
            .iter()
            .all(|party| party.end.tcp.timeout(Duration::ZERO).is_none())
    });
    for party in [&mut a, &mut b] {
        let mut events = Vec::new();
        let patience = Some(Duration::from_millis(50));
        party.end.network.wait(&mut events, patience).unwrap();
        assert!(events.is_empty(), "{events:?}");
    }
    // This also holds for links that no longer exist.
    a.end.close(links[0]);
    until(&mut net, &mut [&mut a, &mut b], "the end", |parties| {
        parties.iter().all(|party| party.up().is_empty())
    });
    for party in [&a, &b] {
        assert_eq!(party.end.tcp.timeout(Duration::ZERO), None);
    }
}

/// For the end of a program: everything is closed, and the messages that were taken are sent.
#[test]
fn closing_all_tells_everybody() {
    let mut net = Loopback::new();
    let Pair {
        mut a,
        mut b,
        links,
    } = Pair::new(&mut net);
    b.send(links[1], b"good-bye");
    let begun = Instant::now();
    b.end.tcp.close_all();
    until(&mut net, &mut [&mut a, &mut b], "the end", |parties| {
        parties.iter().all(|party| party.up().is_empty())
    });
    // Neither side had to wait until the other one is given up.
    assert!(begun.elapsed() < TransportLimits::default().dead_after / 2);
    assert_eq!(a.messages(links[0]), [b"good-bye"]);
    assert_eq!(b.end.tcp.connections(), 0);
    assert!(
        TcpStream::connect(net.address(2)).is_err(),
        "it listens still"
    );
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let refused = |change: &dyn Fn(&mut TcpOptions)| {
        let mut options = TcpOptions::new(Peer::Node(NodeId(1)), Secret::new("s"), 7);
        change(&mut options);
        let made = Tcp::new(options, &mut Sockets::open().unwrap(), 0);
        made.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(refused(&|_| {}), Ok(()));
    let error = refused(&|options| options.identity.cluster = None).unwrap_err();
    assert!(error.contains("one cluster"), "{error}");
    let error = refused(&|options| {
        options.identity.me = Peer::Client;
        options.listener = Some(TcpListener::bind("127.0.0.1:0").unwrap());
    });
    assert!(
        error
            .unwrap_err()
            .contains("a client accepts no connections")
    );
    let error = refused(&|options| options.limits.message = 1 << 32).unwrap_err();
    assert!(error.contains("limit on messages"), "{error}");
    let error = refused(&|options| options.limits.ring = 100).unwrap_err();
    assert!(error.contains("too small"), "{error}");
}

#[test]
fn a_node_that_is_not_known_is_not_reached_until_it_is() {
    let mut net = Loopback::new();
    let end = net.end(Peer::Node(NodeId(1)), |options| options.peers.clear());
    let (mut a, mut b) = (Party::new(end), Party::new(net.node(2)));
    let link = a.end.connect(NodeId(2));
    until(&mut net, &mut [&mut a, &mut b], "the end", |parties| {
        parties[0].why_down(link).is_some()
    });
    assert!(a.why_down(link).unwrap().contains("no node 2 is known"));
    a.end.tcp.set_peer(NodeId(2), net.address(2));
    let link = a.end.connect(NodeId(2));
    until(&mut net, &mut [&mut a, &mut b], "a link", |parties| {
        parties[0].is_up(link)
    });
}
