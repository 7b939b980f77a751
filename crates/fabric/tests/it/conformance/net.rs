//! The interface of an implementation for the suite, and the participants of a case.

use std::collections::{BTreeMap, HashSet};

use base::NodeId;
use kumiki_fabric as fabric;

use fabric::{Event, Inbox, Link, Messages, Peer, SendError};

/// A network of one implementation.
pub(crate) trait Net {
    /// A participant.
    type End: End;
    /// The number of bytes of a large message.
    const LARGE: usize;
    /// The number of bytes that may wait on a link; tests fill it.
    const QUEUE: usize;
    /// Bytes of the longest message.
    const LIMIT: usize;

    /// Makes a node; the same number can be used again after the node was killed.
    fn node(&mut self, id: u16) -> Self::End;
    /// Makes a client.
    fn client(&mut self) -> Self::End;
    /// Ends a participant, as the end of its process does.
    fn kill(&mut self, end: Self::End);
    /// Lets some time pass. Returns `false` when nothing more can happen by waiting.
    fn pass(&mut self) -> bool;
}

/// A participant whose turns the suite takes.
pub(crate) trait End: Messages {
    /// Sends the messages that were taken.
    fn flush(&mut self);
    /// Appends the events since the last call.
    fn receive(&mut self, inbox: &mut Inbox);
}

/// An event that outlives its inbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Happened {
    Up(Peer),
    Message(Vec<u8>),
    Drained,
    Down(String),
}

/// A participant, and all its events. Checks on the way that links behave.
pub(crate) struct Party<E> {
    pub(crate) end: E,
    pub(crate) log: Vec<(Link, Happened)>,
    /// `true` if it receives; if not, messages pile up.
    pub(crate) receives: bool,
    inbox: Inbox,
    count: usize,
    up: HashSet<Link>,
    down: HashSet<Link>,
}

impl<E: End> Party<E> {
    pub(crate) fn new(end: E) -> Party<E> {
        Party {
            end,
            log: Vec::new(),
            receives: true,
            inbox: Inbox::default(),
            count: 0,
            up: HashSet::new(),
            down: HashSet::new(),
        }
    }

    /// Receives, and flushes.
    pub(crate) fn turn(&mut self) {
        if self.receives {
            self.end.receive(&mut self.inbox);
            for (link, event) in self.inbox.iter() {
                let happened = match event {
                    Event::Up(peer) => Happened::Up(peer),
                    Event::Message(bytes) => Happened::Message(bytes.to_vec()),
                    Event::Drained => Happened::Drained,
                    Event::Down(why) => Happened::Down(why.to_owned()),
                };
                assert!(!self.down.contains(&link), "{happened:?} after Down");
                match happened {
                    Happened::Up(_) => assert!(self.up.insert(link), "up twice"),
                    Happened::Message(_) => {
                        assert!(self.up.contains(&link), "before Up");
                        self.count += 1;
                    }
                    Happened::Down(_) => assert!(self.down.insert(link), "down twice"),
                    Happened::Drained => {}
                }
                self.log.push((link, happened));
            }
            self.inbox.clear();
        }
        self.end.flush();
    }

    /// Returns the messages that came on a link.
    pub(crate) fn messages(&self, on: Link) -> Vec<&[u8]> {
        let of_link = self.log.iter().filter(|(link, _)| *link == on);
        of_link
            .filter_map(|(_, happened)| match happened {
                Happened::Message(bytes) => Some(&bytes[..]),
                _ => None,
            })
            .collect()
    }

    /// Returns the number of messages on all links.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the reason why a link is down, if it is.
    pub(crate) fn why_down(&self, on: Link) -> Option<&str> {
        self.log.iter().find_map(|(link, happened)| match happened {
            Happened::Down(why) if *link == on => Some(&why[..]),
            _ => None,
        })
    }

    pub(crate) fn is_up(&self, on: Link) -> bool {
        self.up.contains(&on) && !self.down.contains(&on)
    }

    /// Returns the links that are up, and their peers.
    pub(crate) fn up(&self) -> BTreeMap<Link, Peer> {
        let up = self
            .log
            .iter()
            .filter_map(|(link, happened)| match happened {
                Happened::Up(peer) if !self.down.contains(link) => Some((*link, *peer)),
                _ => None,
            });
        up.collect()
    }

    /// Returns the only link that is up.
    pub(crate) fn only(&self) -> Link {
        let up = self.up();
        assert_eq!(up.len(), 1, "one link should be up");
        *up.keys().next().unwrap()
    }

    /// Returns all links that ever existed.
    pub(crate) fn links(&self) -> HashSet<Link> {
        self.up.union(&self.down).copied().collect()
    }

    pub(crate) fn send(&mut self, on: Link, message: &[u8]) {
        assert_eq!(self.end.send(on, message), Ok(()));
    }

    /// Sends as many of these messages as the link takes. Returns their number.
    pub(crate) fn send_until_full(&mut self, on: Link, message: &[u8]) -> usize {
        for count in 0..1_000_000 {
            match self.end.send(on, message) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error, SendError::Full);
                    return count;
                }
            }
        }
        panic!("the link is never full");
    }
}

/// Lets time pass until a condition holds.
pub(crate) fn until<N: Net>(
    net: &mut N,
    parties: &mut [&mut Party<N::End>],
    what: &str,
    mut is_so: impl FnMut(&mut [&mut Party<N::End>]) -> bool,
) {
    loop {
        parties.iter_mut().for_each(|party| party.turn());
        if is_so(parties) {
            return;
        }
        if !net.pass() {
            let logs: Vec<_> = parties
                .iter()
                .map(|party| &party.log[party.log.len().saturating_sub(5)..])
                .collect();
            panic!("{what} does not happen; last events: {logs:?}");
        }
    }
}

/// Lets time pass without waiting for an event.
pub(crate) fn linger<N: Net>(net: &mut N, parties: &mut [&mut Party<N::End>]) {
    for _ in 0..50 {
        parties.iter_mut().for_each(|party| party.turn());
        net.pass();
    }
}

/// Two nodes with a link between them: the first made it, and `links` are its ends.
pub(crate) struct Pair<E> {
    pub(crate) a: Party<E>,
    pub(crate) b: Party<E>,
    pub(crate) links: [Link; 2],
}

impl<E: End> Pair<E> {
    pub(crate) fn new<N: Net<End = E>>(net: &mut N) -> Pair<E> {
        let mut a = Party::new(net.node(1));
        let mut b = Party::new(net.node(2));
        let at_a = a.end.connect(NodeId(2));
        until(net, &mut [&mut a, &mut b], "a link", |parties| {
            parties.iter().all(|party| party.up().len() == 1)
        });
        let links = [at_a, b.only()];
        Pair { a, b, links }
    }
}
