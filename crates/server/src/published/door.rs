//! How peers reach the memory in which versions are published: as memory of this machine, or
//! through an RDMA device.

use std::collections::VecDeque;
use std::sync::Arc;

use cluster::ramp::RegionAccess;
use fabric::memory::{Grant, Region};
use fabric::shm::ShmRegion;
use fabric::verbs;
use parking_lot::Mutex;

/// The most visitors through the device at a time. Beyond it, the one that came first must come
/// again: each of a client's threads that read at a time is one.
const GUESTS: usize = 1024;

/// Both ways; each is there or not.
pub(super) struct Doors {
    /// For memory of this machine.
    shm: Option<Vec<u8>>,
    verbs: Option<Reception>,
}

/// Lets visitors in through the device.
struct Reception {
    domain: verbs::Domain,
    region: Arc<verbs::VerbsRegion>,
    guests: Mutex<VecDeque<verbs::AdmittedVisit>>,
}

impl Doors {
    pub(super) fn new(
        shm: Option<&Arc<ShmRegion>>,
        registered: Option<(&verbs::Domain, Arc<verbs::VerbsRegion>)>,
    ) -> Doors {
        Doors {
            shm: shm.map(|region| encoded(region.grant())),
            verbs: registered.map(|(domain, region)| Reception {
                domain: domain.clone(),
                region,
                guests: Mutex::default(),
            }),
        }
    }
}

impl RegionAccess for Doors {
    fn open(&self, offer: &[u8]) -> Option<Vec<u8>> {
        match offer {
            [] => self.shm.clone(),
            visitor => self.verbs.as_ref()?.admit(visitor),
        }
    }
}

impl Reception {
    fn admit(&self, visitor: &[u8]) -> Option<Vec<u8>> {
        let (grant, guest) = match self.domain.admit(self.region.grant(), visitor) {
            Ok(admitted) => admitted,
            Err(error) => {
                tracing::warn!(%error, "a client cannot read what is published");
                return None;
            }
        };
        let mut guests = self.guests.lock();
        // Guests do not announce when they go.
        guests.retain_mut(|guest| {
            let stays = !guest.has_gone();
            if stays {
                guest.ask();
            }
            stays
        });
        if guests.len() >= GUESTS {
            guests.pop_front();
        }
        guests.push_back(guest);
        Some(encoded(&grant))
    }
}

fn encoded(grant: &Grant) -> Vec<u8> {
    let mut bytes = Vec::new();
    grant.encode(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use fabric::memory::{Access, Memory, RegionKind};
    use fabric::shm::Shm;

    use super::*;

    #[test]
    fn who_offers_what_there_is_not_is_not_let_in() {
        let region = Shm::default().register(8, Access::Read).unwrap();
        let doors = Doors::new(Some(&Arc::new(region)), None);
        let grant = doors.open(&[]).and_then(|bytes| Grant::decode(&bytes));
        let grant = grant.expect("memory of this machine");
        assert_eq!(
            (grant.kind(), grant.access()),
            (RegionKind::Shm, Access::Read)
        );
        assert_eq!(doors.open(&[1; 40]), None);
        assert_eq!(Doors::new(None, None).open(&[]), None);
    }
}
