//! The origin that a transaction over several partitions leaves with the versions that it writes:
//! one allocation, which all of them share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::TransactionId;
use base::change::Origin;

/// The origins of one engine: counts their memory.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    bytes: Arc<AtomicU64>,
}

/// Id and siblings, see [`Origin`].
#[derive(Debug)]
pub(crate) struct OwnedOrigin {
    id: TransactionId,
    siblings: Box<[u8]>,
    counted: Arc<AtomicU64>,
}

/// The counters of an [`Arc`], and the rounding of allocators.
const OVERHEAD: usize = 32;

impl Origins {
    /// Returns a copy for versions to share.
    pub(crate) fn share(&self, origin: Origin<'_>) -> Arc<OwnedOrigin> {
        let owned = OwnedOrigin {
            id: origin.id,
            siblings: origin.siblings.into(),
            counted: Arc::clone(&self.bytes),
        };
        self.bytes.fetch_add(owned.bytes(), Ordering::Relaxed);
        Arc::new(owned)
    }

    /// Returns the bytes of memory of all origins that are alive.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The origin that was met last: a transaction's changes mostly follow each other.
#[derive(Debug, Default)]
pub(crate) struct RecentOrigin(Option<Arc<OwnedOrigin>>);

impl RecentOrigin {
    pub(crate) fn of(origin: &Arc<OwnedOrigin>) -> RecentOrigin {
        RecentOrigin(Some(Arc::clone(origin)))
    }

    /// Returns the copy for a version with this origin, if it has one.
    pub(crate) fn share(
        &mut self,
        origins: &Origins,
        origin: Option<Origin<'_>>,
    ) -> Option<&Arc<OwnedOrigin>> {
        let origin = origin?;
        if self.0.as_ref().is_none_or(|last| last.get() != origin) {
            self.0 = Some(origins.share(origin));
        }
        self.0.as_ref()
    }
}

impl OwnedOrigin {
    pub(crate) fn get(&self) -> Origin<'_> {
        Origin {
            id: self.id,
            siblings: &self.siblings,
        }
    }

    fn bytes(&self) -> u64 {
        let siblings = self.siblings.len().next_multiple_of(16);
        (OVERHEAD + size_of::<OwnedOrigin>() + siblings) as u64
    }
}

impl Drop for OwnedOrigin {
    fn drop(&mut self) {
        self.counted.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}
