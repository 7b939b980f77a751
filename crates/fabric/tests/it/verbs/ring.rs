//! Rings, written by RDMA-Write.

use std::time::{Duration, Instant};

use base::memory::RemoteError;
use fastrand::Rng;
use kumiki_fabric as fabric;

use fabric::memory::{Access, GRANT_MAX, Grant, RegionKind};
use fabric::ring::{Rings, Until};

use crate::verbs::net::options;
use crate::verbs::process::{Peer, Role};

/// The greatest time of any step: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Many times as many bytes as the rings hold, in records of all sizes, through another process and
/// back.
#[test]
fn what_goes_through_another_process_s_ring_comes_back() {
    const LEN: usize = 200_000;
    let Some(peer) = Peer::start(Role::RingEcho, &options()) else {
        return;
    };
    let (mailbox, remote, _process) = peer.into_mailbox();
    let mut rings = Rings::new(mailbox, remote).unwrap();
    let mut rng = Rng::with_seed(5);
    let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(0..3)).take(LEN).collect();
    let (mut sent, mut back) = (0, Vec::new());
    let mut buffer = [0; 4096];
    let begun = Instant::now();
    while back.len() < LEN {
        let end = LEN.min(sent + rng.usize(1..700));
        sent += rings.send(&bytes[sent..end]).unwrap();
        let count = rings.receive(&mut buffer).unwrap();
        back.extend_from_slice(&buffer[..count]);
        assert_eq!(back[..], bytes[..back.len()]);
        assert!(
            begun.elapsed() < PATIENCE,
            "{sent} sent, {} back",
            back.len()
        );
    }
}

/// A side that sleeps announces it in the other's memory, and gets a bell.
#[test]
fn a_bell_is_rung_for_who_sleeps() {
    let Some(domain) = crate::verbs::net::domain() else {
        return;
    };
    let mut ends = rings_within(&domain);
    let begun = Instant::now();
    for round in 0..20 {
        let [near, far] = &mut ends;
        while !far.sleep(Until::Input).unwrap() {
            assert!(begun.elapsed() < PATIENCE, "round {round}");
        }
        assert_eq!(near.send(b"word").unwrap(), 4);
        let mut rung = false;
        while near.is_unsettled() {
            rung |= near.must_ring().unwrap();
            assert!(begun.elapsed() < PATIENCE, "round {round}");
        }
        assert!(rung, "it is not woken in round {round}");
        far.wake().unwrap();
        let mut word = [0; 4];
        while far.receive(&mut word).unwrap() == 0 {
            assert!(begun.elapsed() < PATIENCE, "round {round}");
        }
        assert_eq!(&word, b"word");
    }
}

type Ends = [Rings<fabric::verbs::VerbsRegion, fabric::verbs::VerbsRemote>; 2];

/// Returns rings of two ends that have met by one exchange of offers.
fn rings_within(domain: &fabric::verbs::Domain) -> Ends {
    let initiator = domain.offer(16 + 64).unwrap();
    let acceptor = domain.offer(16 + 64).unwrap();
    let grants = [initiator.grant(), acceptor.grant()].map(sent);
    let acceptor = acceptor.accept(&grants[0]).unwrap();
    let initiator = initiator.accept(&grants[1]).unwrap();
    [initiator, acceptor].map(|met| Rings::new(met.mailbox, met.remote).unwrap())
}

/// Returns a grant, as it comes out of a message.
fn sent(grant: &Grant) -> Grant {
    let mut bytes = Vec::new();
    grant.encode(&mut bytes);
    assert!(bytes.len() <= GRANT_MAX);
    Grant::decode(&bytes).unwrap()
}

/// A grant that is not an offer of a mailbox is not accepted.
#[test]
fn another_kind_of_grant_is_no_offer() {
    let Some(domain) = crate::verbs::net::domain() else {
        return;
    };
    let other = domain.offer(80).unwrap();
    let grant = other.grant();
    let forged = |kind, access, address: &[u8]| Grant::new(kind, access, 80, grant.key(), address);
    let address = grant.address();
    for (what, forged) in [
        (
            "memory of one machine",
            forged(RegionKind::Shm, Access::Write, address),
        ),
        (
            "for reading",
            forged(RegionKind::Verbs, Access::Read, address),
        ),
        (
            "without a queue pair",
            forged(RegionKind::Verbs, Access::Write, &address[..12]),
        ),
        (
            "too short",
            forged(RegionKind::Verbs, Access::Write, &address[..5]),
        ),
        (
            "too long",
            forged(RegionKind::Verbs, Access::Write, &[address, &[0]].concat()),
        ),
    ] {
        let accepted = domain.offer(80).unwrap().accept(&forged);
        let error = accepted.expect_err(what);
        assert!(matches!(error, RemoteError::Refused(_)), "{what}: {error}");
    }
    assert!(domain.offer(80).unwrap().accept(grant).is_ok());
}

/// As much may be in transit as this side's own mailbox holds.
#[test]
fn mailboxes_of_two_sizes_do_not_fit() {
    let Some(domain) = crate::verbs::net::domain() else {
        return;
    };
    for (here, there) in [(80, 82), (82, 80)] {
        let other = domain.offer(there).unwrap();
        let accepted = domain.offer(here).unwrap().accept(other.grant());
        let error = accepted.expect_err("of two sizes");
        assert!(matches!(error, RemoteError::Refused(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("80") && text.contains("82"), "{text}");
    }
}
