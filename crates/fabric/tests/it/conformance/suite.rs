//! The cases. Each takes a network of any implementation.

use base::NodeId;
use kumiki_fabric as fabric;

use fabric::{Link, Messages, Peer, SendError};

use crate::conformance::net::{Happened, Net, Pair, Party, linger, until};

/// Returns a message that differs from others in length and content.
fn message(seed: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed as u64).fill(&mut bytes);
    bytes
}

pub(crate) fn peers_learn_who_the_other_is<N: Net>(mut net: N) {
    let mut pair = Pair::new(&mut net);
    let at_a = Happened::Up(Peer::Node(NodeId(2)));
    assert_eq!(pair.a.log, [(pair.links[0], at_a)]);
    let at_b = Happened::Up(Peer::Node(NodeId(1)));
    assert_eq!(pair.b.log, [(pair.links[1], at_b)]);
    let mut client = Party::new(net.client());
    client.end.connect(NodeId(2));
    let b = &mut pair.b;
    until(
        &mut net,
        &mut [&mut client, b],
        "a client's link",
        |parties| parties[0].up().len() == 1 && parties[1].up().len() == 2,
    );
    assert_eq!(
        b.up()
            .into_values()
            .filter(|&peer| peer == Peer::Client)
            .count(),
        1
    );
    assert_eq!(client.up()[&client.only()], Peer::Node(NodeId(2)));
}

pub(crate) fn messages_of_all_sizes_arrive_whole_and_in_order<N: Net>(mut net: N) {
    let Pair {
        mut a,
        mut b,
        links,
    } = Pair::new(&mut net);
    let k = 1024;
    let mut sizes: Vec<usize> = (0..40).collect();
    for around in [4 * k, 16 * k, 64 * k, 128 * k, 1024 * k] {
        sizes.extend([around - 5, around - 4, around - 1, around, around + 1, 0]);
    }
    for (seed, &len) in sizes.iter().enumerate() {
        let message = message(seed, len);
        // Messages that fit travel together.
        until(
            &mut net,
            &mut [&mut a, &mut b],
            "room",
            |parties| match parties[0].end.send(links[0], &message) {
                Ok(()) => true,
                Err(error) => {
                    assert_eq!(error, SendError::Full);
                    false
                }
            },
        );
    }
    until(&mut net, &mut [&mut a, &mut b], "arrival", |parties| {
        parties[1].count() == sizes.len()
    });
    for (seed, got) in b.messages(links[1]).into_iter().enumerate() {
        assert!(
            got == message(seed, sizes[seed]),
            "message {seed} of {}",
            sizes[seed]
        );
    }
}

pub(crate) fn both_directions_carry_at_once<N: Net>(mut net: N) {
    let Pair {
        mut a,
        mut b,
        links,
    } = Pair::new(&mut net);
    let (rounds, len) = (40, N::QUEUE / 8);
    let mut sent = [0, 0];
    while sent != [rounds, rounds] || [a.count(), b.count()] != [rounds, rounds] {
        for (side, party) in [&mut a, &mut b].into_iter().enumerate() {
            while sent[side] < rounds {
                match party
                    .end
                    .send(links[side], &message(sent[side] * 2 + side, len))
                {
                    Ok(()) => sent[side] += 1,
                    Err(SendError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            party.turn();
        }
        assert!(
            net.pass() || a.count() + b.count() == 2 * rounds,
            "it stands still"
        );
    }
    for (party, side) in [(&a, 0), (&b, 1)] {
        let all = party.messages(links[side]);
        let as_sent = |(n, got): (usize, &&[u8])| *got == message(n * 2 + 1 - side, len);
        assert!(all.iter().enumerate().all(as_sent));
    }
}

pub(crate) fn many_small_messages_arrive<N: Net>(mut net: N) {
    let Pair {
        mut a,
        mut b,
        links,
    } = Pair::new(&mut net);
    let mut sent: u32 = 0;
    while sent < 20_000 {
        while a.end.send(links[0], &sent.to_le_bytes()).is_ok() {
            sent += 1;
            if sent.is_multiple_of(5_000) {
                break;
            }
        }
        until(&mut net, &mut [&mut a, &mut b], "arrival", |parties| {
            parties[1].count() == sent as usize
        });
    }
    let numbers = b.messages(links[1]).into_iter();
    assert!(numbers.eq((0..sent).map(u32::to_le_bytes).collect::<Vec<_>>().iter()));
}

pub(crate) fn a_large_message_arrives<N: Net>(mut net: N) {
    let Pair {
        mut a,
        mut b,
        links,
    } = Pair::new(&mut net);
    let large = message(1, N::LARGE);
    a.send(links[0], &large);
    assert_eq!(a.end.send(links[0], b"behind"), Err(SendError::Full));
    until(
        &mut net,
        &mut [&mut a, &mut b],
        "room behind it",
        |parties| parties[0].log.contains(&(links[0], Happened::Drained)),
    );
    a.send(links[0], b"behind");
    until(&mut net, &mut [&mut a, &mut b], "arrival", |parties| {
        parties[1].count() == 2
    });
    let got = b.messages(links[1]);
    assert!(got == [&large[..], b"behind"]);
}

pub(crate) fn what_is_sent_before_the_link_is_up_arrives<N: Net>(mut net: N) {
    let mut a = Party::new(net.node(1));
    let mut b = Party::new(net.node(2));
    let link = a.end.connect(NodeId(2));
    a.send(link, b"early");
    a.turn();
    a.send(link, b"and more");
    until(&mut net, &mut [&mut a, &mut b], "arrival", |parties| {
        parties[1].count() == 2
    });
    assert_eq!(b.messages(b.only()), [&b"early"[..], b"and more"]);
}

pub(crate) fn a_full_link_says_so_and_drains<N: Net>(mut net: N) {
    let Pair {
        mut a,
        mut b,
        links,
    } = Pair::new(&mut net);
    b.receives = false;
    let piece = message(3, N::QUEUE / 16);
    let mut sent = 0;
    // The system takes some in between.
    for _ in 0..20 {
        sent += a.send_until_full(links[0], &piece);
        linger(&mut net, &mut [&mut a, &mut b]);
        assert!(
            sent * piece.len() < 100 * N::QUEUE,
            "nothing holds the sender back"
        );
    }
    assert_eq!(a.end.send(links[0], &piece), Err(SendError::Full));
    let drained = |a: &Party<N::End>| {
        let is_drained = |(_, happened): &&(Link, Happened)| *happened == Happened::Drained;
        a.log.iter().filter(is_drained).count()
    };
    let before = drained(&a);
    b.receives = true;
    until(&mut net, &mut [&mut a, &mut b], "room", |parties| {
        drained(parties[0]) > before
    });
    a.send(links[0], b"the last");
    until(&mut net, &mut [&mut a, &mut b], "arrival", |parties| {
        parties[1].count() == sent + 1
    });
    linger(&mut net, &mut [&mut a, &mut b]);
    assert_eq!(drained(&a), before + 1, "it is told once");
    let got = b.messages(links[1]);
    assert!(got[..sent].iter().all(|got| *got == piece) && got[sent] == b"the last");
}

pub(crate) fn a_message_above_the_limit_is_refused<N: Net>(mut net: N) {
    let Pair {
        mut a,
        mut b,
        links,
    } = Pair::new(&mut net);
    let long = vec![0; N::LIMIT + 1];
    assert_eq!(a.end.send(links[0], &long), Err(SendError::TooLong));
    a.send(links[0], &long[1..]);
    until(&mut net, &mut [&mut a, &mut b], "arrival", |parties| {
        parties[1].count() == 1
    });
}

pub(crate) fn closing_sends_what_was_taken<N: Net>(mut net: N) {
    let Pair {
        mut a,
        mut b,
        links,
    } = Pair::new(&mut net);
    let len = N::QUEUE / 32;
    (0..20).for_each(|n| a.send(links[0], &message(n, len)));
    // Messages to the closing side must not damage those that it has sent.
    (0..20).for_each(|n| b.send(links[1], &message(n, len)));
    b.turn();
    a.end.close(links[0]);
    assert_eq!(a.end.send(links[0], b"too late"), Err(SendError::Down));
    until(&mut net, &mut [&mut a, &mut b], "the end", |parties| {
        parties[0].up().is_empty() && parties[1].up().is_empty()
    });
    let got = b.messages(links[1]);
    assert_eq!(got.len(), 20);
    assert!(
        got.iter()
            .enumerate()
            .all(|(n, got)| *got == message(n, len))
    );
    assert!(a.why_down(links[0]).unwrap().contains("closed here"));
    assert!(b.why_down(links[1]).unwrap().contains("peer closed"));
}

pub(crate) fn a_link_closed_before_it_is_up_sends_what_was_taken<N: Net>(mut net: N) {
    let mut a = Party::new(net.node(1));
    let mut b = Party::new(net.node(2));
    let link = a.end.connect(NodeId(2));
    a.send(link, b"and good-bye");
    a.end.close(link);
    assert_eq!(a.end.send(link, b"too late"), Err(SendError::Down));
    until(&mut net, &mut [&mut a, &mut b], "the end", |parties| {
        parties[0].why_down(link).is_some()
            && matches!(parties[1].log.last(), Some((_, Happened::Down(_))))
    });
    assert_eq!(a.log.len(), 1, "it was closed before it was up");
    assert_eq!(b.count(), 1);
}

pub(crate) fn nothing_arrives_on_a_link_that_was_closed_here<N: Net>(mut net: N) {
    let Pair {
        mut a,
        mut b,
        links,
    } = Pair::new(&mut net);
    b.send(links[1], b"on its way");
    b.turn();
    net.pass();
    a.end.close(links[0]);
    b.send(links[1], b"as well");
    until(&mut net, &mut [&mut a, &mut b], "the end", |parties| {
        parties[0].up().is_empty() && parties[1].up().is_empty()
    });
    assert_eq!(a.count(), 0);
    // Closing again does no harm.
    a.end.close(links[0]);
    linger(&mut net, &mut [&mut a, &mut b]);
}

pub(crate) fn a_missing_node_is_not_reached<N: Net>(mut net: N) {
    let mut a = Party::new(net.node(1));
    let b = net.node(2);
    net.kill(b);
    let link = a.end.connect(NodeId(2));
    until(&mut net, &mut [&mut a], "the end", |parties| {
        parties[0].why_down(link).is_some()
    });
    assert_eq!(a.log.len(), 1, "Down alone");
    assert_eq!(a.end.send(link, b"anybody?"), Err(SendError::Down));
}

pub(crate) fn a_node_does_not_connect_to_itself<N: Net>(mut net: N) {
    let mut a = Party::new(net.node(1));
    let link = a.end.connect(NodeId(1));
    until(&mut net, &mut [&mut a], "the end", |parties| {
        parties[0].why_down(link).is_some()
    });
    assert_eq!(a.log.len(), 1, "Down alone");
}

pub(crate) fn a_peer_that_dies_takes_its_links_down<N: Net>(mut net: N) {
    let Pair {
        mut a,
        mut b,
        links,
    } = Pair::new(&mut net);
    (0..50).for_each(|n| a.send(links[0], &message(n, 100)));
    a.turn();
    // Messages that it had not flushed are lost with it.
    a.send(links[0], b"never sent");
    net.kill(a.end);
    until(&mut net, &mut [&mut b], "the end", |parties| {
        parties[0].why_down(links[1]).is_some()
    });
    let got = b.messages(links[1]);
    assert!(got.len() <= 50, "{} messages", got.len());
    assert!(
        got.iter()
            .enumerate()
            .all(|(n, got)| *got == message(n, 100))
    );
    assert_eq!(b.end.send(links[1], b"?"), Err(SendError::Down));
}

pub(crate) fn a_node_that_comes_back_is_reached_again<N: Net>(mut net: N) {
    let Pair { mut a, b, links } = Pair::new(&mut net);
    net.kill(b.end);
    until(&mut net, &mut [&mut a], "the end", |parties| {
        parties[0].why_down(links[0]).is_some()
    });
    for round in 0..10_u8 {
        let mut b = Party::new(net.node(2));
        let link = a.end.connect(NodeId(2));
        a.send(link, &[round]);
        until(&mut net, &mut [&mut a, &mut b], "arrival", |parties| {
            parties[1].count() == 1
        });
        assert_eq!(b.messages(b.only()), [[round]]);
        if round % 2 == 0 {
            net.kill(b.end);
        } else {
            a.end.close(link);
            until(&mut net, &mut [&mut a, &mut b], "the end", |parties| {
                parties[1].up().is_empty()
            });
            net.kill(b.end);
        }
        until(&mut net, &mut [&mut a], "the end", |parties| {
            parties[0].why_down(link).is_some()
        });
    }
    assert_eq!(a.links().len(), 11, "numbers of links are not used twice");
}

pub(crate) fn hundreds_of_connections_carry<N: Net>(mut net: N) {
    const CLIENTS: usize = 100;
    const LINKS: usize = 3;
    let mut node = Party::new(net.node(1));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Party::new(net.client())).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        for nth in 0..LINKS {
            let link = client.end.connect(NodeId(1));
            client.send(link, &message(number * LINKS + nth, 300));
        }
    }
    let mut answered = 0;
    until(
        &mut net,
        &mut all(&mut node, &mut clients),
        "questions",
        |parties| parties[0].count() == CLIENTS * LINKS,
    );
    for (link, happened) in node.log.clone() {
        if let Happened::Message(bytes) = happened {
            node.send(link, &bytes);
            answered += 1;
        }
    }
    assert_eq!(
        (answered, node.up().len()),
        (CLIENTS * LINKS, CLIENTS * LINKS)
    );
    until(
        &mut net,
        &mut all(&mut node, &mut clients),
        "answers",
        |parties| parties[1..].iter().all(|client| client.count() == LINKS),
    );
    for (number, client) in clients.iter().enumerate() {
        let mut links: Vec<Link> = client.up().into_keys().collect();
        links.sort_unstable();
        for (nth, link) in links.into_iter().enumerate() {
            assert_eq!(client.messages(link), [message(number * LINKS + nth, 300)]);
        }
    }
}

fn all<'a, E>(first: &'a mut Party<E>, others: &'a mut [Party<E>]) -> Vec<&'a mut Party<E>> {
    std::iter::once(first).chain(others).collect()
}

pub(crate) fn links_between_two_nodes_are_independent<N: Net>(mut net: N) {
    let Pair {
        mut a,
        mut b,
        links,
    } = Pair::new(&mut net);
    let other = b.end.connect(NodeId(1));
    until(&mut net, &mut [&mut a, &mut b], "another link", |parties| {
        parties[0].up().len() == 2 && parties[1].is_up(other)
    });
    let others_end = a.up().into_keys().find(|&link| link != links[0]).unwrap();
    a.end.close(links[0]);
    b.send(other, b"still here");
    until(&mut net, &mut [&mut a, &mut b], "arrival", |parties| {
        parties[0].count() == 1 && parties[1].why_down(links[1]).is_some()
    });
    assert_eq!(a.messages(others_end), [b"still here"]);
    assert!(a.is_up(others_end) && b.is_up(other));
}
