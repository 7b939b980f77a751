//! Encrypted links, and an attacker between the peers who reads and changes their bytes.

use std::sync::{Arc, Mutex};

use base::NodeId;
use kumiki_fabric as fabric;

use fabric::tcp::{Encryption, Transport};
use fabric::{Link, Messages, Peer};
use testkit::relay::{Passing, Relay};

use crate::conformance::net::{End, Party, linger, until};
use crate::conformance::tcp::{Loopback, TcpEnd};

const SECRET: &[u8] = b"the balance of alice is 10";

/// Two nodes with an attacker in between: node 1 connects to node 2 through a relay.
struct Attacked {
    net: Loopback,
    nodes: [Party<TcpEnd>; 2],
    link: Link,
    _relay: Relay,
}

impl Attacked {
    /// Starts both nodes; each asks for encryption as `encryption` says.
    fn new(
        encryption: [Encryption; 2],
        change: impl FnMut(Passing<'_>) + Send + 'static,
    ) -> Attacked {
        let net = Loopback::over(Transport::Tcp);
        let relay = Relay::start(net.address(2), change).unwrap();
        let node = |id: u16| {
            Party::new(net.end(Peer::Node(NodeId(id)), |options| {
                options.encryption = encryption[usize::from(id) - 1];
                options.peers.insert(NodeId(2), relay.address());
            }))
        };
        let mut nodes = [node(1), node(2)];
        let link = nodes[0].end.connect(NodeId(2));
        Attacked {
            net,
            nodes,
            link,
            _relay: relay,
        }
    }

    /// Lets time pass until the condition holds.
    fn until(&mut self, what: &str, is_so: impl Fn(&[&mut Party<TcpEnd>]) -> bool) {
        let [one, two] = &mut self.nodes;
        until(&mut self.net, &mut [one, two], what, |parties| {
            is_so(parties)
        });
    }

    /// Returns the messages that the second node has.
    fn received(&self) -> Vec<Vec<u8>> {
        let two = &self.nodes[1];
        let links = two.links();
        let messages = links.iter().flat_map(|&link| two.messages(link));
        messages.map(<[u8]>::to_vec).collect()
    }
}

/// Returns `true` if the bytes have the secret in them.
fn contains_secret(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|window| window == SECRET)
}

/// Sends the secret, and returns what the attacker has read.
fn overheard(encryption: [Encryption; 2]) -> Vec<u8> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    let mut attacked = Attacked::new(encryption, move |passing| {
        if passing.to_listener {
            ear.lock().unwrap().extend_from_slice(passing.bytes);
        }
    });
    let link = attacked.link;
    attacked.nodes[0].send(link, SECRET);
    attacked.until("the message", |parties| {
        let links = parties[1].links();
        links
            .iter()
            .any(|&link| !parties[1].messages(link).is_empty())
    });
    assert_eq!(attacked.received(), [SECRET]);
    let is_encrypted = encryption.contains(&Encryption::Always);
    for node in &attacked.nodes {
        assert_eq!(node.end.tcp.links_encrypted(), usize::from(is_encrypted));
    }
    drop(attacked);
    Arc::try_unwrap(heard).unwrap().into_inner().unwrap()
}

#[test]
fn an_encrypted_link_cannot_be_overheard() {
    let [auto, always, never] = [Encryption::Auto, Encryption::Always, Encryption::Never];
    // Between loopback addresses, automatic links are not encrypted.
    for encryption in [[auto, auto], [never, never], [auto, never]] {
        assert!(contains_secret(&overheard(encryption)), "{encryption:?}");
    }
    for encryption in [
        [always, always],
        [always, never],
        [never, always],
        [auto, always],
    ] {
        assert!(!contains_secret(&overheard(encryption)), "{encryption:?}");
    }
}

/// Sends some messages, of which the attacker changes a bit of the third. Returns what has arrived.
fn altered(encryption: Encryption) -> (Vec<Vec<u8>>, Option<String>) {
    let armed = Arc::new(Mutex::new(false));
    let trigger = Arc::clone(&armed);
    let mut attacked = Attacked::new([encryption; 2], move |passing| {
        let mut armed = trigger.lock().unwrap();
        if passing.to_listener && std::mem::take(&mut *armed) {
            let middle = passing.bytes.len() / 2;
            passing.bytes[middle] ^= 4;
        }
    });
    let link = attacked.link;
    for number in 1..=2 {
        attacked.nodes[0].send(link, SECRET);
        attacked.until("a message", |parties| {
            let links = parties[1].links();
            let count = |link| parties[1].messages(link).len();
            links.iter().any(|&link| count(link) == number)
        });
    }
    *armed.lock().unwrap() = true;
    attacked.nodes[0].send(link, SECRET);
    attacked.nodes[0].end.flush();
    match encryption {
        Encryption::Always => attacked.until("the end of the link", |parties| {
            let links = parties[1].links();
            links
                .iter()
                .all(|&link| parties[1].why_down(link).is_some())
        }),
        _ => {
            let [one, two] = &mut attacked.nodes;
            linger(&mut attacked.net, &mut [one, two]);
        }
    }
    let two = &attacked.nodes[1];
    let links = two.links();
    let why = links.iter().find_map(|&link| two.why_down(link));
    (attacked.received(), why.map(str::to_owned))
}

/// A message that was altered ends an encrypted link, and is not delivered. Without encryption it is delivered
/// as it was altered: the attack is real.
#[test]
fn an_altered_message_ends_an_encrypted_link() {
    let (received, why) = altered(Encryption::Always);
    assert_eq!(received, [SECRET, SECRET]);
    let why = why.expect("the link has ended");
    assert!(why.contains("a message was altered on its way"), "{why}");
    let (received, why) = altered(Encryption::Auto);
    assert_eq!((received.len(), why), (3, None));
    assert_ne!(received[2], SECRET);
}

/// An attacker cannot take away the wish for encryption.
#[test]
fn encryption_cannot_be_negotiated_away() {
    use fabric::frame::HEADER;
    let mut attacked = Attacked::new([Encryption::Always; 2], |passing| {
        // The byte of the greeting in which the wish is.
        let at = HEADER + 5;
        if passing.offset == 0 && passing.bytes.len() > at {
            passing.bytes[at] = 0;
        }
    });
    let link = attacked.link;
    attacked.until("the refusal", |parties| parties[0].why_down(link).is_some());
    let why = attacked.nodes[0].why_down(link).unwrap();
    assert!(why.contains("the secrets differ"), "{why}");
}

/// The devices of peers send messages as they are: an encrypted link does not use them.
#[test]
fn a_link_through_a_device_is_not_encrypted() {
    for transport in [Transport::Verbs, Transport::VerbsSend] {
        let Some(mut net) = Loopback::over_verbs(transport) else {
            return;
        };
        let node = |net: &Loopback, id: u16| {
            Party::new(net.end(Peer::Node(NodeId(id)), |options| {
                options.encryption = Encryption::Always;
            }))
        };
        let (mut one, mut two) = (node(&net, 1), node(&net, 2));
        let link = one.end.connect(NodeId(2));
        until(
            &mut net,
            &mut [&mut one, &mut two],
            "the refusal",
            |parties| parties[0].why_down(link).is_some(),
        );
        let why = one.why_down(link).unwrap();
        assert!(why.contains("encrypted"), "{why}");
    }
}
