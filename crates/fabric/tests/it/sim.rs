//! The simulated network: its promises under faults, and the same run for the same seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::NodeId;
use kumiki_fabric as fabric;

use fabric::sim::{Endpoint, Network, NetworkHost, Options};
use fabric::{Event, Inbox, Link, Messages};
use fastrand::Rng;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

/// A text that is longer than any number of a message.
const PROBE: &[u8] = b"are you there?";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns the events of an endpoint: `up`, messages, or the reason why it is down.
fn receive(end: &mut Endpoint) -> Vec<(Link, String)> {
    let mut inbox = Inbox::default();
    end.receive(&mut inbox);
    let text = |event: Event<'_>| match event {
        Event::Up(_) => "up".to_owned(),
        Event::Message(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Event::Drained => "drained".to_owned(),
        Event::Down(why) => format!("down: {why}"),
    };
    inbox
        .iter()
        .map(|(link, event)| (link, text(event)))
        .collect()
}

/// Returns the texts alone.
fn texts(end: &mut Endpoint) -> Vec<String> {
    receive(end).into_iter().map(|(_, text)| text).collect()
}

/// Returns two nodes with a link, and its ends.
fn pair(seed: u64, options: Options) -> (Network, Endpoint, Endpoint, [Link; 2]) {
    let network = Network::new(seed, options);
    let (mut a, mut b) = (network.endpoint(A), network.endpoint(B));
    let at_a = a.connect(B);
    network.advance(ms(100));
    assert_eq!(receive(&mut a), [(at_a, "up".to_owned())]);
    let at_b = receive(&mut b)[0].0;
    (network, a, b, [at_a, at_b])
}

fn say(end: &mut Endpoint, on: Link, texts: &[&str]) {
    for text in texts {
        end.send(on, text.as_bytes()).unwrap();
    }
    end.flush();
}

#[test]
fn messages_leave_when_they_are_flushed() {
    let (network, mut a, mut b, [at_a, _]) = pair(1, Options::default());
    a.send(at_a, b"unflushed").unwrap();
    network.advance(ms(200));
    assert!(!b.is_ready());
    a.flush();
    network.advance(ms(300));
    assert_eq!(texts(&mut b), ["unflushed"]);
}

#[test]
fn links_overtake_each_other() {
    let mut overtaken = 0;
    for seed in 0..50 {
        let (network, mut a, mut b, [first, at_b]) = pair(seed, Options::default());
        let second = a.connect(B);
        network.advance(ms(200));
        receive(&mut b);
        say(&mut a, first, &["first"]);
        say(&mut a, second, &["second"]);
        network.advance(ms(300));
        let order = receive(&mut b);
        overtaken += usize::from(order[0].0 != at_b);
    }
    assert!((5..45).contains(&overtaken), "{overtaken} of 50");
}

#[test]
fn a_partition_delays_and_loses_nothing_when_it_heals() {
    let (network, mut a, mut b, [at_a, at_b]) = pair(2, Options::default());
    network.partition_one_way(A, B);
    say(&mut a, at_a, &["1", "2"]);
    say(&mut b, at_b, &["back"]);
    network.advance(ms(5000));
    assert_eq!(texts(&mut a), ["back"], "the other direction is open");
    assert!(!b.is_ready());
    say(&mut a, at_a, &["3"]);
    network.heal_between(B, A);
    network.advance(ms(5001));
    assert_eq!(texts(&mut b), ["1", "2", "3"]);
    // The links that would have been given up live on.
    network.advance(ms(60_000));
    assert!(!a.is_ready() && !b.is_ready());
    say(&mut a, at_a, &["4"]);
    network.advance(ms(60_001));
    assert_eq!(texts(&mut b), ["4"]);
}

#[test]
fn a_long_partition_takes_links_down_at_both_ends() {
    for one_way in [true, false] {
        let (network, mut a, mut b, [at_a, _]) = pair(3, Options::default());
        let begun = network.now();
        if one_way {
            network.partition_one_way(A, B);
        } else {
            network.partition(A, B);
        }
        say(&mut a, at_a, &["lost"]);
        network.advance(begun + ms(9_999));
        assert!(!a.is_ready() && !b.is_ready());
        network.advance(begun + ms(12_001));
        for end in [&mut a, &mut b] {
            let told = texts(end);
            assert!(told.len() == 1 && told[0].starts_with("down: "), "{told:?}");
        }
        // An endpoint that connects meanwhile gives up.
        let link = a.connect(B);
        network.advance(begun + ms(20_000));
        assert_eq!(
            receive(&mut a),
            [(link, "down: no process answers".to_owned())]
        );
        network.heal();
        receive(&mut b);
        let link = a.connect(B);
        network.advance(begun + ms(30_000));
        assert!(receive(&mut a).contains(&(link, "up".to_owned())));
    }
}

/// A connection that breaks, or an end that crashes, delivers a prefix: sometimes nothing,
/// sometimes all.
#[test]
fn a_beginning_arrives_of_what_is_on_its_way() {
    for crash in [false, true] {
        let mut arrived = [0; 11];
        for seed in 0..200 {
            let options = Options {
                silent_crashes: 0.5,
                ..Options::default()
            };
            let (network, mut a, mut b, [at_a, _]) = pair(seed, options);
            let all: Vec<String> = (0..10).map(|n| n.to_string()).collect();
            say(
                &mut a,
                at_a,
                &all.iter().map(String::as_str).collect::<Vec<_>>(),
            );
            a.send(at_a, b"not flushed").unwrap();
            if crash {
                network.crash(A);
                a.flush();
            } else {
                network.break_link(at_a);
                say(&mut a, at_a, &["after the break"]);
            }
            network.advance(ms(60_000));
            let told = texts(&mut b);
            let (last, messages) = told.split_last().unwrap();
            assert!(last.starts_with("down: "));
            assert_eq!(messages, &all[..messages.len()]);
            arrived[messages.len()] += 1;
            if !crash {
                assert_eq!(texts(&mut a), ["down: the connection broke"]);
            }
        }
        assert!(arrived.iter().all(|&count| count > 0), "{arrived:?}");
    }
}

#[test]
fn a_crashed_node_refuses_or_keeps_silent_and_comes_back() {
    let limit = Options::default().connect_limit;
    for silent in [0.0, 1.0] {
        let options = Options {
            silent_crashes: silent,
            ..Options::default()
        };
        let (network, mut a, mut b, [at_a, at_b]) = pair(4, options);
        say(&mut b, at_b, &["on its way"]);
        network.crash(B);
        assert!(!network.is_alive(B) && network.is_alive(A));
        let begun = network.now();
        let link = a.connect(B);
        network.advance(begun + ms(100));
        let refused = receive(&mut a).iter().any(|(on, _)| *on == link);
        assert_eq!(refused, silent == 0.0);
        network.advance(begun + limit);
        // The crashed endpoint is of no use any more.
        assert!(b.send(at_b, b"?").is_err() && !b.is_ready());
        b.connect(A);
        let mut b = network.restart(B);
        network.advance(begun + limit + ms(100));
        let told = receive(&mut a);
        // A machine that comes back says that it knows nothing.
        assert_eq!(told.iter().any(|(on, _)| *on == at_a), silent == 1.0);
        assert!(!told.iter().any(|(_, text)| text == "up"), "{told:?}");
        let link = a.connect(B);
        say(&mut a, link, &["again"]);
        network.advance(begun + limit + ms(200));
        assert_eq!(texts(&mut b), ["up", "again"]);
    }
}

#[test]
fn a_slow_direction_takes_its_time_and_fills_up() {
    let options = Options {
        queue: 10_000,
        ..Options::default()
    };
    let (network, mut a, mut b, [at_a, at_b]) = pair(5, options);
    network.slow(A, B, Some(10_000));
    let begun = network.now();
    let kilobyte = "x".repeat(1000);
    let mut sent = 0;
    while a.send(at_a, kilobyte.as_bytes()).is_ok() {
        sent += 1;
    }
    a.flush();
    assert_eq!(sent, 9);
    say(&mut b, at_b, &["the other direction is as fast as ever"]);
    network.advance(begun + ms(450));
    assert_eq!(texts(&mut a).len(), 1);
    assert_eq!(texts(&mut b).len(), 4);
    network.advance(begun + ms(550));
    assert!(
        a.send(at_a, kilobyte.as_bytes()).is_ok(),
        "some have been taken"
    );
    network.advance(begun + ms(950));
    assert_eq!(texts(&mut b).len(), 5);
    network.advance(begun + ms(960));
    assert_eq!(texts(&mut a), ["drained"]);
    network.slow(A, B, None);
    say(&mut a, at_a, &["fast again"]);
    network.advance(begun + ms(970));
    assert_eq!(texts(&mut b).len(), 2);
}

/// A storm: nodes and clients that talk while all faults occur. Records all events, and checks the
/// promises of every link.
struct Storm {
    network: Network,
    rng: Rng,
    ends: BTreeMap<NetworkHost, Endpoint>,
    /// The number of messages that were flushed on a link that was made here; each contains the
    /// number of those before it.
    sent: BTreeMap<Link, u32>,
    /// For each link of each incarnation: `true` if it is up, and the number of messages that have
    /// come.
    seen: BTreeMap<Link, (bool, u32)>,
    down: BTreeMap<Link, String>,
    /// Links that are up as far as their owners know.
    live: BTreeMap<Link, NetworkHost>,
    /// Links on which a probe has come.
    probed: BTreeSet<Link>,
    history: Vec<String>,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let options = Options {
            slow_share: 0.1,
            breaks: 0.01,
            silent_crashes: 0.3,
            dead_after: ms(500),
            connect_limit: ms(300),
            queue: 2_000,
            ..Options::default()
        };
        let network = Network::new(seed, options);
        let mut ends = BTreeMap::new();
        for id in 1..=4 {
            ends.insert(NetworkHost::Node(NodeId(id)), network.endpoint(NodeId(id)));
        }
        for _ in 0..3 {
            let client = network.client();
            ends.insert(client.host(), client);
        }
        Storm {
            network,
            rng: Rng::with_seed(seed ^ 0x5707),
            ends,
            sent: BTreeMap::new(),
            seen: BTreeMap::new(),
            down: BTreeMap::new(),
            live: BTreeMap::new(),
            probed: BTreeSet::new(),
            history: Vec::new(),
        }
    }

    fn place(&mut self) -> NetworkHost {
        let nth = self.rng.usize(..self.ends.len());
        *self.ends.keys().nth(nth).unwrap()
    }

    fn node(&mut self) -> NodeId {
        NodeId(self.rng.u16(1..=4))
    }

    /// Lets a participant connect, talk, or hang up.
    fn talk(&mut self) {
        let to = self.node();
        let place = self.place();
        let mine: Vec<Link> = self
            .sent
            .keys()
            .filter(|link| !self.down.contains_key(link))
            .copied()
            .collect();
        let end = self.ends.get_mut(&place).unwrap();
        if mine.is_empty() || self.rng.u8(..) < 20 {
            let link = end.connect(to);
            assert!(self.sent.insert(link, 0).is_none(), "a link's number twice");
            return;
        }
        for _ in 0..self.rng.u32(1..10) {
            let link = mine[self.rng.usize(..mine.len())];
            let sent = self.sent.get_mut(&link).unwrap();
            // The endpoint takes no messages on links of others.
            if end.send(link, &sent.to_le_bytes()).is_ok() {
                *sent += 1;
            }
            if self.rng.u8(..) < 3 {
                end.close(link);
            }
        }
        end.flush();
    }

    fn fault(&mut self) {
        let (a, b) = (self.place(), self.place());
        match self.rng.u8(..6) {
            0 => self.network.partition(a, b),
            1 => self.network.partition_one_way(a, b),
            2 => self.network.heal(),
            3 => self.network.break_links(a, b),
            4 => self.network.slow(a, b, Some(1000)),
            _ => {
                let node = self.node();
                if self.network.is_alive(node) {
                    self.network.crash(node);
                    self.live
                        .retain(|_, place| *place != NetworkHost::Node(node));
                } else {
                    let place = NetworkHost::Node(node);
                    self.ends.insert(place, self.network.restart(node));
                }
            }
        }
    }

    fn receive(&mut self) {
        let mut inbox = Inbox::default();
        for (place, end) in &mut self.ends {
            end.receive(&mut inbox);
            for (link, event) in inbox.iter() {
                self.history.push(format!("{place:?} {link:?} {event:?}"));
                assert!(!self.down.contains_key(&link), "after Down");
                let seen = self.seen.entry(link).or_default();
                match event {
                    Event::Up(_) => {
                        assert!(!std::mem::replace(&mut seen.0, true));
                        self.live.insert(link, *place);
                    }
                    Event::Message(PROBE) => {
                        self.probed.insert(link);
                    }
                    Event::Message(bytes) => {
                        assert!(seen.0, "before Up");
                        assert_eq!(bytes, seen.1.to_le_bytes(), "not in order");
                        seen.1 += 1;
                    }
                    Event::Drained => {}
                    Event::Down(why) => {
                        self.live.remove(&link);
                        self.down.insert(link, why.to_owned());
                    }
                }
            }
            inbox.clear();
        }
    }

    fn run(mut self) -> Vec<String> {
        for _ in 0..600 {
            match self.rng.u8(..100) {
                0..40 => self.talk(),
                40..45 => self.fault(),
                45..70 => self.receive(),
                _ => {
                    for _ in 0..self.rng.u32(1..20) {
                        self.network.step();
                    }
                }
            }
        }
        self.calm_down();
        self.history
    }

    /// Ends the faults. Afterwards no participant is in doubt: links that are up at one end are up
    /// at the other, and new ones can be made.
    fn calm_down(&mut self) {
        self.network.heal();
        for id in (1..=4).map(NodeId) {
            if !self.network.is_alive(id) {
                self.ends
                    .insert(NetworkHost::Node(id), self.network.restart(id));
            }
        }
        let places: Vec<NetworkHost> = self.ends.keys().copied().collect();
        for (&from, &to) in places
            .iter()
            .flat_map(|from| places.iter().map(move |to| (from, to)))
        {
            self.network.slow(from, to, None);
        }
        self.wait();
        for (&link, place) in &self.live {
            let end = self.ends.get_mut(place).unwrap();
            // A link that was closed here takes nothing, and is about to go down.
            let _ = end.send(link, PROBE);
            end.flush();
        }
        let new = self.ends.get_mut(&places[0]).unwrap().connect(NodeId(2));
        self.wait();
        let is_up = self.seen.get(&new).is_some_and(|seen| seen.0);
        assert!(is_up, "{:?}", self.down.get(&new));
        for (link, place) in &self.live {
            let fine = self.probed.contains(link) || *link >= new;
            assert!(fine, "{link:?} of {place:?} leads nowhere");
        }
    }

    fn wait(&mut self) {
        for _ in 0..200 {
            self.receive();
            self.network.advance(self.network.now() + ms(100));
        }
        self.receive();
    }
}

#[test]
fn links_keep_their_promises_in_a_storm() {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..300 {
        for line in Storm::new(seed).run() {
            if let Some((_, why)) = line.split_once("Down(") {
                *reasons.entry(why.to_owned()).or_default() += 1;
            }
        }
    }
    // Every possible failure has happened.
    for why in [
        "closed here",
        "peer closed",
        "connection broke",
        "keeps silent",
        "has given up",
        "no process answers",
        "refused",
        "process ended",
        "started again",
        "itself",
    ] {
        let seen = reasons.keys().any(|reason| reason.contains(why));
        assert!(seen, "{why:?} is missing in {reasons:?}");
    }
}

#[test]
fn a_seed_is_all_there_is() {
    for seed in 0..20 {
        assert_eq!(Storm::new(seed).run(), Storm::new(seed).run());
    }
    assert_ne!(Storm::new(1).run(), Storm::new(2).run());
}
