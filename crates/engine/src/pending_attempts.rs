//! The attempts that are prepared without holds, as their system records name them (module
//! [`crate::read_atomic`]).

use base::limits::RESERVED;
use base::{Timestamp, TransactionId};

use crate::engine::Engine;
use crate::record::RecordRef;
use crate::system_record::{self, SystemRecord};

impl Engine {
    /// Returns the least id of the attempts that are prepared without holds. The caller is in an
    /// epoch.
    pub(crate) fn least_pending(&self) -> Option<TransactionId> {
        self.find_pending(Timestamp(u64::MAX), |_| true)
    }

    /// Returns the least id, with a timestamp until this one, of the attempts that are prepared
    /// without holds and write this key. The caller is in an epoch.
    pub(crate) fn least_pending_of(&self, key: &[u8], until: Timestamp) -> Option<TransactionId> {
        self.find_pending(until, |value| writes(value, key))
    }

    /// Returns the least id, with a timestamp until this one, of which the value of the system record
    /// satisfies `is_sought`.
    fn find_pending(
        &self,
        until: Timestamp,
        is_sought: impl Fn(&[u8]) -> bool,
    ) -> Option<TransactionId> {
        let mut least = None;
        self.index.range(
            &RESERVED,
            Some(&system_record::BEHIND_TRANSACTIONS),
            |record| {
                let Ok(id) = system_record::id(record.key()) else {
                    return true;
                };
                if id.timestamp > until {
                    return false;
                }
                let version = RecordRef::version(record.word().load());
                let is_pending = !version.is_absent() && system_record::is_unheld(version.value());
                least = (is_pending && is_sought(version.value())).then_some(id);
                least.is_none()
            },
        );
        least
    }
}

/// Returns `true` if a prepared attempt writes this key.
fn writes(prepared: &[u8], key: &[u8]) -> bool {
    let entry = system_record::decode(prepared).expect(system_record::WELL_FORMED);
    let SystemRecord::Pending { effects, .. } = entry else {
        return false;
    };
    effects.iter().any(|effect| effect.is_of(key))
}
