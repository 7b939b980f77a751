//! The proof of identity: a challenge and its answer, in both directions.
//!
//! | step | from | frame | says |
//! |---|---|---|---|
//! | 1 | initiator | hello | its identity, its cluster, its nonce |
//! | 2 | acceptor | challenge | its identity, its cluster, its nonce |
//! | 3 | initiator | proof | the first message of the Noise protocol, pattern `NNpsk0` |
//! | 4 | acceptor | welcome | the second message |
//!
//! The key of the pattern is derived from the secret, and its prologue is hello and challenge. So after
//! step 4 both peers have proved that they know the secret. The proof holds for this connection (the
//! nonces are new) and for the identities that they claimed. The initiator proves first, so that a
//! stranger that connects gets nothing against which it could try secrets.
//!
//! If one of the peers asks for it, everything that follows on the connection is encrypted, with keys that
//! exist for this connection only (`cipher`). The wish is part of hello and challenge: no one in between can
//! take it away.
//!
//! Clients have a secret of their own ([`client_secret`]): a peer that knows only this secret
//! cannot act as a node. The secret of nodes is accepted from clients, too.
//!
//! Both peers state the ways for messages that they know besides the connection, as part of the
//! proof. The choice of a way follows the handshake.
//!
//! Either peer may refuse at any step: with a refusal frame that says why and what to do, and in
//! its log.
//!
//! **What this does not give.** If neither peer asks for encryption, an attacker that can read or change the
//! traffic of the network can read and change messages. Messages and one-sided operations through an RDMA
//! device are never encrypted. A peer that knows the secret of nodes can claim to be any node. An empty secret
//! proves nothing: then an attacker in between can take part in both handshakes.

use std::sync::Arc;

use base::NodeId;
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::RwLock;
use sha2::Sha256;

use snow::HandshakeState;

use crate::cipher::Cipher;
use crate::frame::{Frame, FrameFlaw, Greeting, NONCE, RefusalCode, TransportSet, VERSION};
use crate::link::Peer;
use crate::noise::{self, HandshakeRole};

/// The secret that only the nodes of a cluster know, or only its clients. It may be empty, which
/// proves nothing.
///
/// While a secret is exchanged for another one, peers may prove either: a secret has one or several texts,
/// of which this side proves the first, and accepts all. Clones share them, so that [`Secret::replace`] holds for
/// all connections that are made afterwards.
#[derive(Clone)]
pub struct Secret(Arc<RwLock<Vec<Key>>>);

type Key = [u8; noise::KEY];

impl Secret {
    /// Makes a secret of these bytes.
    #[must_use]
    pub fn new(bytes: impl AsRef<[u8]>) -> Secret {
        Secret::of([bytes])
    }

    /// Makes a secret of several texts; of none it is empty.
    #[must_use]
    pub fn of(texts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Secret {
        let keys = texts.into_iter().map(|text| derive(text.as_ref(), LINK));
        let mut keys: Vec<Key> = keys.collect();
        if keys.is_empty() {
            keys.push(derive(&[], LINK));
        }
        Secret(Arc::new(RwLock::new(keys)))
    }

    /// Takes the texts of another secret. Connections that are made already continue.
    pub fn replace(&self, other: &Secret) {
        let keys = other.keys();
        *self.0.write() = keys;
    }

    fn own(&self) -> Key {
        self.0.read()[0]
    }

    fn keys(&self) -> Vec<Key> {
        self.0.read().clone()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Returns the secret that clients of nodes with `secret` prove, as 64 hexadecimal digits. It does
/// not reveal `secret`. For an empty secret it is empty.
#[must_use]
pub fn client_secret(secret: &str) -> String {
    if secret.is_empty() {
        return String::new();
    }
    hexadecimal(&derive(secret.as_bytes(), CLIENT))
}

/// Returns 16 hexadecimal digits by which a secret is recognised. They do not reveal it.
#[must_use]
pub fn secret_fingerprint(secret: &str) -> String {
    hexadecimal(&derive(secret.as_bytes(), FINGERPRINT)[..8])
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns HMAC-SHA256 of the label under the secret.
fn derive(secret: &[u8], label: &str) -> Key {
    let key = Hmac::<Sha256>::new_from_slice(secret);
    let mut mac = key.expect("HMAC takes keys of any length");
    mac.update(label.as_bytes());
    mac.finalize().into_bytes().into()
}

const CLIENT: &str = "kumiki fabric client secret";
const FINGERPRINT: &str = "kumiki fabric secret fingerprint";
const LINK: &str = "kumiki fabric link";

/// The identity of a peer, and the means to prove it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// A node, or a client.
    pub me: Peer,
    /// The cluster's fingerprint; `None` for a client that accepts any.
    pub cluster: Option<u64>,
    /// The secret that is proved.
    pub secret: Secret,
    /// The secret that clients may prove instead when they connect; they are not taken for nodes.
    pub clients: Option<Secret>,
    /// Ways for messages that the peer knows besides the connection.
    pub ways: TransportSet,
}

/// The reason why there is no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{text}", if *.here { "" } else { "refused by the peer: " })]
pub struct HandshakeRefusal {
    /// The reason for programs.
    pub code: RefusalCode,
    /// The reason for people: what is wrong, and what to do.
    pub text: String,
    /// `true` if it was refused here, `false` if the peer refused it.
    pub here: bool,
}

impl HandshakeRefusal {
    pub(crate) fn here(code: RefusalCode, text: impl Into<String>) -> HandshakeRefusal {
        HandshakeRefusal {
            code,
            text: text.into(),
            here: true,
        }
    }

    /// Returns the frame that tells the peer.
    pub(crate) fn frame(&self) -> Frame {
        Frame::Refusal(self.code, self.text.clone())
    }

    pub(crate) fn garbage() -> HandshakeRefusal {
        let text = "this is the fabric of a Kumiki node, and something else was said to it; \
                    use the address for nodes and Rust clients on both sides";
        HandshakeRefusal::here(RefusalCode::Garbage, text)
    }

    pub(crate) fn flaw(flaw: FrameFlaw) -> HandshakeRefusal {
        let theirs = match flaw {
            FrameFlaw::Version(theirs) => theirs,
            FrameFlaw::MemoryKind(kind) => {
                let text = format!(
                    "memory of kind {kind} was offered for messages, which this version does not \
                     know; run one version of Kumiki on all nodes and clients"
                );
                return HandshakeRefusal::here(RefusalCode::Transport, text);
            }
            FrameFlaw::Magic | FrameFlaw::Meaning => return HandshakeRefusal::garbage(),
        };
        let text = format!(
            "version {theirs} of the fabric's protocol was offered and version {VERSION} is spoken \
             here; run one version of Kumiki on all nodes and clients"
        );
        HandshakeRefusal::here(RefusalCode::Version, text)
    }

    fn secret() -> HandshakeRefusal {
        let text = "the secrets differ; give all nodes the same one, that of one cluster file, and clients \
                    that one or what \"kumiki cluster client-secret\" prints; for storage nodes give all \
                    the same --secret-file";
        HandshakeRefusal::here(RefusalCode::Secret, text)
    }

    fn no_randomness(error: snow::Error) -> HandshakeRefusal {
        HandshakeRefusal::here(RefusalCode::Other, format!("no random bytes: {error}"))
    }

    pub(crate) fn late() -> HandshakeRefusal {
        let text = "the handshake took too long; look whether the peer is alive and reachable";
        HandshakeRefusal::here(RefusalCode::Late, text)
    }

    /// Makes the refusal for a way that the options require and that is not available.
    pub(crate) fn transport(asked: &str, why: &dyn std::fmt::Display) -> HandshakeRefusal {
        let text = format!(
            "{asked} was asked for and cannot be used: {why}; ask for auto or tcp where peers have \
             not got it in common"
        );
        HandshakeRefusal::here(RefusalCode::Transport, text)
    }

    pub(crate) fn busy() -> HandshakeRefusal {
        let text = "too many connections here have not proved yet who they are; try again later";
        HandshakeRefusal::here(RefusalCode::Busy, text)
    }
}

/// The identity that the peer has proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticatedPeer {
    /// A node, or a client.
    pub peer: Peer,
    /// The fingerprint of its cluster; `None` if it accepts any.
    pub cluster: Option<u64>,
    /// Ways for messages that both know besides the connection.
    pub ways: TransportSet,
    /// `true` if everything that follows on the connection is encrypted.
    pub encrypted: bool,
}

/// The part of a greeting that belongs to one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionTerms {
    /// Random bytes that distinguish the handshake from all others.
    pub nonce: [u8; NONCE],
    /// `true` if this side asks for encryption.
    pub encrypt: bool,
}

/// One side of a handshake: it takes the bytes that arrive, and returns those to be sent.
#[derive(Debug)]
pub struct Handshake {
    side: HandshakeSide,
    terms: ConnectionTerms,
    /// The frames of steps 1 and 2, as far as they were sent.
    transcript: Vec<u8>,
    /// The peer's greeting.
    greeting: Option<Greeting>,
    /// The exchange of steps 3 and 4, once it has begun.
    noise: Option<Box<HandshakeState>>,
}

#[derive(Debug)]
enum HandshakeSide {
    /// Wants this node; `None` accepts any.
    Initiator(Option<NodeId>),
    Acceptor,
}

impl Handshake {
    /// Begins a handshake as the initiator; `wanted` is the node that should answer.
    pub fn initiate(
        identity: &Identity,
        wanted: Option<NodeId>,
        terms: ConnectionTerms,
        out: &mut Vec<u8>,
    ) -> Handshake {
        let mut transcript = Vec::new();
        Frame::Hello(identity.greeting(terms)).encode(&mut transcript);
        out.extend(&transcript);
        Handshake {
            side: HandshakeSide::Initiator(wanted),
            terms,
            transcript,
            greeting: None,
            noise: None,
        }
    }

    /// Waits for a peer to begin a handshake.
    #[must_use]
    pub fn accept(terms: ConnectionTerms) -> Handshake {
        Handshake {
            side: HandshakeSide::Acceptor,
            terms,
            transcript: Vec::new(),
            greeting: None,
            noise: None,
        }
    }

    /// Returns the keys for the bytes that follow. [`Handshake::advance`] has returned the peer before, which
    /// says that they are encrypted.
    #[must_use]
    pub(crate) fn into_cipher(self) -> Option<Cipher> {
        Some(Cipher::new(*self.noise?))
    }

    /// Goes on with the bytes that have arrived, and returns how many of them were used. Once the
    /// peer is known, the bytes that follow are messages.
    ///
    /// # Errors
    /// Returns an error if there will be no link. If it was refused here, the output ends with the
    /// refusal.
    pub fn advance(
        &mut self,
        identity: &Identity,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<AuthenticatedPeer>), HandshakeRefusal> {
        let mut used = 0;
        loop {
            let refuse = |refused: HandshakeRefusal, out: &mut Vec<u8>| {
                if refused.here {
                    refused.frame().encode(out);
                }
                Err(refused)
            };
            let (frame, len) = match Frame::decode(&input[used..]) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok((used, None)),
                Err(flaw) => return refuse(HandshakeRefusal::flaw(flaw), out),
            };
            let bytes = &input[used..used + len];
            used += len;
            match self.take(identity, frame, bytes, out) {
                Ok(None) => {}
                Ok(proved) => return Ok((used, proved)),
                Err(refused) => return refuse(refused, out),
            }
        }
    }

    fn take(
        &mut self,
        identity: &Identity,
        frame: Frame,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<AuthenticatedPeer>, HandshakeRefusal> {
        match (&self.side, frame, self.greeting) {
            (_, Frame::Refusal(code, text), _) => Err(HandshakeRefusal {
                code,
                text,
                here: false,
            }),
            (HandshakeSide::Acceptor, Frame::Hello(greeting), None) => {
                judge_initiator(identity, &greeting)?;
                self.note(greeting, bytes);
                let from = out.len();
                Frame::Challenge(identity.greeting(self.terms)).encode(out);
                self.transcript.extend(&out[from..]);
                Ok(None)
            }
            (&HandshakeSide::Initiator(wanted), Frame::Challenge(greeting), None) => {
                judge_acceptor(identity, wanted, &greeting)?;
                self.note(greeting, bytes);
                let mut state = self.begin(HandshakeRole::Initiator, &identity.secret.own());
                let proof = noise::prove(&mut state).map_err(HandshakeRefusal::no_randomness)?;
                Frame::Proof(proof).encode(out);
                self.noise = Some(Box::new(state));
                Ok(None)
            }
            (HandshakeSide::Acceptor, Frame::Proof(proof), Some(greeting)) => {
                let of_clients = identity.clients.as_ref();
                let of_clients = of_clients.filter(|_| greeting.peer == Peer::Client);
                let accepted = [Some(&identity.secret), of_clients].into_iter().flatten();
                let proved = accepted.flat_map(Secret::keys).find_map(|key| {
                    let mut state = self.begin(HandshakeRole::Acceptor, &key);
                    noise::verify(&mut state, &proof).then_some(state)
                });
                let mut state = proved.ok_or_else(HandshakeRefusal::secret)?;
                let welcome = noise::prove(&mut state).map_err(HandshakeRefusal::no_randomness)?;
                Frame::Welcome(welcome).encode(out);
                self.noise = Some(Box::new(state));
                Ok(Some(self.proved(identity, &greeting)))
            }
            (HandshakeSide::Initiator(_), Frame::Welcome(welcome), Some(greeting)) => {
                let state = self.noise.as_mut();
                if !state.is_some_and(|state| noise::verify(state, &welcome)) {
                    return Err(HandshakeRefusal::secret());
                }
                Ok(Some(self.proved(identity, &greeting)))
            }
            _ => Err(HandshakeRefusal::garbage()),
        }
    }

    fn begin(&self, role: HandshakeRole, key: &Key) -> HandshakeState {
        noise::begin(role, key, &self.transcript)
    }

    fn proved(&self, identity: &Identity, greeting: &Greeting) -> AuthenticatedPeer {
        AuthenticatedPeer {
            peer: greeting.peer,
            cluster: greeting.cluster,
            ways: greeting.ways.and(identity.ways),
            encrypted: greeting.encrypt || self.terms.encrypt,
        }
    }

    fn note(&mut self, greeting: Greeting, bytes: &[u8]) {
        self.greeting = Some(greeting);
        self.transcript.extend(bytes);
    }
}

impl Identity {
    fn greeting(&self, terms: ConnectionTerms) -> Greeting {
        Greeting {
            peer: self.me,
            cluster: self.cluster,
            ways: self.ways,
            encrypt: terms.encrypt,
            nonce: terms.nonce,
        }
    }
}

fn judge_initiator(identity: &Identity, greeting: &Greeting) -> Result<(), HandshakeRefusal> {
    judge_cluster(identity.cluster, greeting.cluster)?;
    match (identity.me, greeting.peer) {
        (Peer::Node(me), Peer::Node(id)) if me == id => {
            let text = format!(
                "this is node {id} itself; give each node a number and an address of its own"
            );
            Err(HandshakeRefusal::here(RefusalCode::Node, text))
        }
        _ => Ok(()),
    }
}

fn judge_acceptor(
    identity: &Identity,
    wanted: Option<NodeId>,
    greeting: &Greeting,
) -> Result<(), HandshakeRefusal> {
    judge_cluster(identity.cluster, greeting.cluster)?;
    match (wanted, greeting.peer) {
        (_, Peer::Client) => Err(HandshakeRefusal::garbage()),
        (Some(wanted), Peer::Node(id)) if wanted != id => {
            let text = format!(
                "node {wanted} was expected where node {id} is; correct the addresses in the \
                 cluster file"
            );
            Err(HandshakeRefusal::here(RefusalCode::Node, text))
        }
        _ => Ok(()),
    }
}

fn judge_cluster(ours: Option<u64>, theirs: Option<u64>) -> Result<(), HandshakeRefusal> {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours != theirs => {
            let text = format!(
                "the clusters differ: fingerprint {theirs:016x} was offered and {ours:016x} is \
                 served here; give all nodes the same cluster file"
            );
            Err(HandshakeRefusal::here(RefusalCode::Cluster, text))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cipher::ALL;
    use crate::frame::HEADER;

    fn identity(me: Peer, cluster: Option<u64>, secret: &str) -> Identity {
        Identity {
            me,
            cluster,
            secret: Secret::new(secret),
            clients: None,
            ways: TransportSet::NONE,
        }
    }

    fn terms(number: u8, encrypt: bool) -> ConnectionTerms {
        ConnectionTerms {
            nonce: [number; NONCE],
            encrypt,
        }
    }

    fn node(id: u16) -> Peer {
        Peer::Node(NodeId(id))
    }

    type Outcome = Result<Option<AuthenticatedPeer>, HandshakeRefusal>;

    /// Lets both talk until neither has anything to send, in pieces of `piece` bytes. `tamper`
    /// changes the bytes in transit.
    fn talk(
        a: &Identity,
        wanted: Option<NodeId>,
        b: &Identity,
        piece: usize,
        tamper: &mut dyn FnMut(bool, &mut Vec<u8>),
    ) -> (Outcome, Outcome) {
        let mut to_b = Vec::new();
        let initiator = Handshake::initiate(a, wanted, terms(1, false), &mut to_b);
        let mut sides = [
            (initiator, a, Ok(None)),
            (Handshake::accept(terms(2, false)), b, Ok(None)),
        ];
        let mut wires = [Vec::new(), to_b];
        let mut inputs = [Vec::new(), Vec::new()];
        while wires.iter().any(|wire| !wire.is_empty()) {
            for to in [1, 0] {
                let mut arriving = std::mem::take(&mut wires[to]);
                tamper(to == 1, &mut arriving);
                for part in arriving.chunks(piece) {
                    let (handshake, identity, outcome) = &mut sides[to];
                    if *outcome != Ok(None) {
                        continue;
                    }
                    let input: &mut Vec<u8> = &mut inputs[to];
                    input.extend(part);
                    *outcome = handshake.advance(identity, input, &mut wires[1 - to]).map(
                        |(used, proved)| {
                            input.drain(..used);
                            proved
                        },
                    );
                }
            }
        }
        let [(.., a), (.., b)] = sides;
        (a, b)
    }

    fn plain(a: &Identity, wanted: u16, b: &Identity) -> (Outcome, Outcome) {
        talk(a, Some(NodeId(wanted)), b, usize::MAX, &mut |_, _| {})
    }

    #[test]
    fn both_learn_who_the_other_is() {
        let mut a = identity(node(1), Some(5), "s");
        let mut b = identity(node(2), Some(5), "s");
        a.ways = TransportSet::SHM;
        b.ways = TransportSet::SHM.or(TransportSet::VERBS);
        for piece in [1, 7, usize::MAX] {
            let (at_a, at_b) = talk(&a, Some(NodeId(2)), &b, piece, &mut |_, _| {});
            let proved = |peer| {
                Ok(Some(AuthenticatedPeer {
                    peer,
                    cluster: Some(5),
                    ways: TransportSet::SHM,
                    encrypted: false,
                }))
            };
            assert_eq!((at_a, at_b), (proved(node(2)), proved(node(1))));
        }
    }

    #[test]
    fn a_client_learns_the_cluster() {
        let a = identity(Peer::Client, None, "s");
        let b = identity(node(2), Some(5), "s");
        let (at_a, at_b) = talk(&a, None, &b, usize::MAX, &mut |_, _| {});
        assert_eq!(at_a.unwrap().unwrap().cluster, Some(5));
        assert_eq!(at_b.unwrap().unwrap().peer, Peer::Client);
    }

    #[test]
    fn the_secret_of_clients_makes_no_node() {
        let of_clients = client_secret("s");
        assert_eq!(of_clients.len(), 64);
        assert_ne!(of_clients, client_secret("t"));
        assert_eq!(client_secret(""), "");
        let fingerprint = secret_fingerprint("s");
        assert!(fingerprint.len() == 16 && !of_clients.starts_with(&fingerprint));
        assert_ne!(fingerprint, secret_fingerprint("t"));
        let mut b = identity(node(2), Some(5), "s");
        let client = identity(Peer::Client, None, &of_clients);
        assert_refused(plain(&client, 2, &b), RefusalCode::Secret, "client-secret");
        b.clients = Some(Secret::new(&of_clients));
        for secret in ["s", &of_clients] {
            let client = identity(Peer::Client, None, secret);
            let (at_client, at_b) = talk(&client, None, &b, usize::MAX, &mut |_, _| {});
            assert_eq!(at_client.unwrap().unwrap().peer, node(2));
            assert_eq!(at_b.unwrap().unwrap().peer, Peer::Client);
        }
        let impostor = identity(node(1), Some(5), &of_clients);
        assert_refused(plain(&impostor, 2, &b), RefusalCode::Secret, "secret");
        let fake = identity(node(2), Some(5), &of_clients);
        let real = identity(node(1), Some(5), "s");
        assert_refused(plain(&real, 2, &fake), RefusalCode::Secret, "secret");
    }

    /// Checks that both sides are refused with this code, one of them by the other.
    fn assert_refused((a, b): (Outcome, Outcome), code: RefusalCode, about: &str) {
        let (a, b) = (a.unwrap_err(), b.unwrap_err());
        assert_eq!((a.code, b.code), (code, code));
        assert!(a.here != b.here && a.text == b.text && a.text.contains(about));
    }

    #[test]
    fn strangers_are_refused_at_both_ends() {
        let a = identity(node(1), Some(5), "s");
        let other_cluster = identity(node(2), Some(6), "s");
        assert_refused(
            plain(&a, 2, &other_cluster),
            RefusalCode::Cluster,
            "cluster file",
        );
        let other_secret = identity(node(2), Some(5), "t");
        assert_refused(plain(&a, 2, &other_secret), RefusalCode::Secret, "secret");
        let b = identity(node(2), Some(5), "s");
        assert_refused(plain(&a, 3, &b), RefusalCode::Node, "node 3 was expected");
        assert_refused(plain(&a, 1, &a), RefusalCode::Node, "itself");
    }

    #[test]
    fn another_version_is_refused_and_understands_why() {
        let a = identity(node(1), Some(5), "s");
        let b = identity(node(2), Some(5), "s");
        for at_b in [false, true] {
            let mut tamper = |to_b: bool, bytes: &mut Vec<u8>| {
                if to_b == at_b && bytes.get(8) == Some(&(VERSION as u8)) {
                    bytes[8] = 9;
                }
            };
            let outcome = talk(&a, Some(NodeId(2)), &b, usize::MAX, &mut tamper);
            assert_refused(outcome, RefusalCode::Version, "version 9");
        }
    }

    /// Every bit of the handshake is proved: changing one ends the handshake.
    #[test]
    fn a_changed_handshake_is_refused() {
        let a = identity(node(1), Some(5), "s");
        let b = identity(node(2), Some(5), "s");
        for at in 0..HEADER + 16 + NONCE + HEADER + noise::PROOF {
            for at_b in [false, true] {
                let mut seen = 0;
                let mut tamper = |to_b: bool, bytes: &mut Vec<u8>| {
                    if to_b == at_b && (seen..seen + bytes.len()).contains(&at) {
                        bytes[at - seen] ^= 1;
                    }
                    seen += if to_b == at_b { bytes.len() } else { 0 };
                };
                let (at_a, _) = talk(&a, Some(NodeId(2)), &b, usize::MAX, &mut tamper);
                // A length that was increased makes it wait for ever, as a lost connection does.
                assert!(!matches!(at_a, Ok(Some(_))), "byte {at}, to b: {at_b}");
            }
        }
    }

    /// A secret is exchanged while nodes connect: first all accept the next one, then all prove it, then all
    /// forget the former one.
    #[test]
    fn a_secret_is_exchanged_step_by_step() {
        let with = |id, texts: &[&str]| {
            let secret = Secret::of(texts);
            let me = identity(node(id), Some(5), "");
            Identity { secret, ..me }
        };
        let steps = [&["old"][..], &["old", "new"], &["new", "old"], &["new"]];
        for pair in steps.windows(2) {
            for (one, two) in [(pair[0], pair[1]), (pair[1], pair[0])] {
                let (at_a, at_b) = plain(&with(1, one), 2, &with(2, two));
                assert!(
                    at_a.unwrap().is_some() && at_b.unwrap().is_some(),
                    "{one:?} {two:?}"
                );
            }
        }
        let (a, b) = (with(1, &["old"]), with(2, &["new"]));
        assert_refused(plain(&a, 2, &b), RefusalCode::Secret, "the secrets differ");
        // The clone of a secret is replaced with it.
        let held = a.secret.clone();
        held.replace(&Secret::new("new"));
        assert!(plain(&a, 2, &b).0.unwrap().is_some());
    }

    /// A link is encrypted if one side asks for it.
    #[test]
    fn one_wish_for_encryption_is_enough() {
        let a = identity(node(1), Some(5), "s");
        let b = identity(node(2), Some(5), "s");
        for (at_a, at_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut wire = Vec::new();
            let mut initiator = Handshake::initiate(&a, None, terms(1, at_a), &mut wire);
            let mut acceptor = Handshake::accept(terms(2, at_b));
            let mut back = Vec::new();
            let mut proved = (None, None);
            while proved.0.is_none() {
                proved.1 = acceptor.advance(&b, &wire, &mut back).unwrap().1;
                wire.clear();
                proved.0 = initiator.advance(&a, &back, &mut wire).unwrap().1;
                back.clear();
            }
            let encrypted = at_a || at_b;
            assert_eq!(proved.0.unwrap().encrypted, encrypted);
            assert_eq!(proved.1.unwrap().encrypted, encrypted);
            let [mut a, mut b] = [initiator, acceptor].map(|side| side.into_cipher().unwrap());
            let (record, mut into) = (a.seal(b"hello").unwrap(), [0; 64]);
            let read = b.read(&mut &record[..], &mut into, &mut Default::default(), ALL);
            assert_eq!(&into[..read.unwrap()], b"hello");
        }
    }

    /// A recorded handshake cannot be replayed to a peer with another nonce.
    #[test]
    fn a_replay_is_refused() {
        let a = identity(node(1), Some(5), "s");
        let b = identity(node(2), Some(5), "s");
        let mut recorded = Vec::new();
        talk(&a, Some(NodeId(2)), &b, usize::MAX, &mut |to_b, bytes| {
            if to_b {
                recorded.extend_from_slice(bytes);
            }
        })
        .1
        .unwrap();
        let mut out = Vec::new();
        let again = Handshake::accept(terms(3, false)).advance(&b, &recorded, &mut out);
        assert_eq!(again.unwrap_err().code, RefusalCode::Secret);
    }
}
