//! Regions that are read through a connection of the reader's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::memory::{RemoteError, Words};
use kumiki_fabric as fabric;

use fabric::memory::{Access, Grant, Memory, Region as _};
use fabric::shm::Shm;
use fabric::verbs::{AdmittedVisit, Domain, VerbsRegion, VerbsRemote};

use crate::verbs::net::{device, domain, options, read, try_read};

/// The greatest time of any step: far more than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a visitor of a region, and the owner's side of the visit.
fn visit(domain: &Domain, region: &VerbsRegion) -> (VerbsRemote, AdmittedVisit) {
    let visit = domain.visit().unwrap();
    let (grant, guest) = domain.admit(region.grant(), &visit.address()).unwrap();
    let mut bytes = Vec::new();
    grant.encode(&mut bytes);
    let grant = Grant::decode(&bytes).unwrap();
    (visit.enter(&grant, || true).unwrap(), guest)
}

#[test]
fn a_visitor_s_refusal_is_his_alone() {
    let Some(domain) = domain() else {
        return;
    };
    let [first, second] = [1, 2].map(|word| {
        let region = domain.register(10, Access::Read).unwrap();
        region.words()[9].store(word, Ordering::Release);
        region
    });
    let (mut one, _one) = visit(&domain, &first);
    let (mut two, _two) = visit(&domain, &second);
    assert_eq!(read(&mut one, 9, 1), [1]);
    assert_eq!(read(&mut two, 9, 1), [2]);
    drop(first);
    let error = try_read(&mut one, 9, 1).expect_err("it was withdrawn");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
    assert_eq!(read(&mut two, 9, 1), [2]);
}

#[test]
fn no_visitor_is_admitted_without_an_address_or_to_write() {
    let Some(domain) = domain() else {
        return;
    };
    let region = domain.register(10, Access::Read).unwrap();
    let visit = domain.visit().unwrap();
    let address = visit.address();
    for wrong in [&b""[..], b"x", &address[1..], &[0; 40]] {
        let error = domain.admit(region.grant(), wrong).expect_err("no address");
        assert!(matches!(error, RemoteError::Refused(_)), "{error}");
    }
    let open = domain.register(10, Access::Write).unwrap();
    let error = domain.admit(open.grant(), &address).expect_err("to write");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
    // This grant names no queue pair.
    let error = visit.enter(region.grant(), || true).expect_err("no visit");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
}

#[test]
fn a_shared_region_is_read_both_ways() {
    let Some(domain) = domain() else {
        return;
    };
    let shm = Shm::default();
    let shared = Arc::new(shm.register(1000, Access::Read).unwrap());
    let region = domain.register_shared(&shared).unwrap();
    let (mut through, _guest) = visit(&domain, &region);
    let mut mapped = shm.reach(shared.grant()).unwrap();
    for (at, value) in [(0, 3), (999, 4)] {
        shared.words()[at].store(value, Ordering::Release);
        assert_eq!(region.words()[at].load(Ordering::Acquire), value);
        assert_eq!(read(&mut through, at, 1), [value]);
        assert_eq!(read(&mut mapped, at, 1), [value]);
    }
    // The device has the access rights of the region.
    let error = fabric::memory::Remote::write(&mut through, 0, &[1]);
    assert!(matches!(error, Err(RemoteError::Refused(_))), "{error:?}");
    // The memory stays as long as the device may be asked for it.
    drop(shared);
    assert_eq!(read(&mut through, 999, 1), [4]);
    assert_eq!(read(&mut mapped, 999, 1), [4]);
    drop(region);
    let error = try_read(&mut through, 0, 1).expect_err("it was withdrawn");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
}

#[test]
fn a_guest_that_has_gone_is_noticed_when_asked() {
    let Some(domain) = domain() else {
        return;
    };
    let region = domain.register(10, Access::Read).unwrap();
    let (here, mut stays) = visit(&domain, &region);
    let (gone, mut goes) = visit(&domain, &region);
    drop(gone);
    let begun = Instant::now();
    while !goes.has_gone() {
        goes.ask();
        stays.ask();
        assert!(begun.elapsed() < PATIENCE, "the death is not noticed");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!stays.has_gone(), "the other one is here");
    drop(here);
}

/// The device would take a minute for that.
#[test]
fn an_owner_that_is_known_to_have_ended_is_not_waited_for() {
    let mut options = options();
    options.dead_after = PATIENCE;
    let Some(device) = device(&options) else {
        return;
    };
    let domain = device.domain().unwrap();
    let region = domain.register(10, Access::Read).unwrap();
    let visit = domain.visit().unwrap();
    let (grant, guest) = domain.admit(region.grant(), &visit.address()).unwrap();
    let lives = Arc::new(AtomicBool::new(true));
    let alive = Arc::clone(&lives);
    let asked = move || alive.load(Ordering::Relaxed);
    let mut remote = visit.enter(&grant, asked).unwrap();
    assert_eq!(read(&mut remote, 0, 1), [0]);
    drop(guest);
    lives.store(false, Ordering::Relaxed);
    let begun = Instant::now();
    let error = try_read(&mut remote, 0, 1).expect_err("no process is there");
    assert!(matches!(error, RemoteError::Lost(_)), "{error}");
    assert!(begun.elapsed() < PATIENCE / 4, "{:?}", begun.elapsed());
}

/// Nothing shows that the owner's side has gone, and the device would take a minute.
#[test]
fn a_visitor_waits_for_a_second_or_so() {
    let mut options = options();
    options.dead_after = PATIENCE;
    let Some(device) = device(&options) else {
        return;
    };
    let domain = device.domain().unwrap();
    let region = domain.register(10, Access::Read).unwrap();
    let (mut remote, guest) = visit(&domain, &region);
    assert_eq!(read(&mut remote, 0, 1), [0]);
    drop(guest);
    let begun = Instant::now();
    let error = try_read(&mut remote, 0, 1).expect_err("no process is there");
    assert!(matches!(error, RemoteError::Lost(_)), "{error}");
    assert!(begun.elapsed() < PATIENCE / 4, "{:?}", begun.elapsed());
}

/// Memory of another domain is out of reach, even for a peer that knows its address.
#[test]
fn a_domain_apart_is_out_of_reach() {
    let Some(domain) = domain() else {
        return;
    };
    let apart = domain.apart().unwrap();
    let region = domain.register(10, Access::Read).unwrap();
    let visit = domain.visit().unwrap();
    let (grant, _guest) = apart.admit(region.grant(), &visit.address()).unwrap();
    let error = visit.enter(&grant, || true).expect_err("another domain");
    assert!(matches!(error, RemoteError::Refused(_)), "{error}");
}
