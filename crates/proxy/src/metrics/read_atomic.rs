//! The figures of read-atomic transactions over Cassandra. They are 0 where no table is read atomic.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use admin::exposition::{Family, Kind};

use super::snapshot::{Figures, Fill, family};
use crate::figures::ReadAtomicFigures;

impl Figures<'_> {
    fn of_read_atomic(&self, value: impl Fn(&ReadAtomicFigures) -> &AtomicU64) -> u64 {
        value(&self.told.about.read_atomic).load(Relaxed)
    }
}

/// See the module documentation.
pub(super) const FAMILIES: &[Family<Fill>] = &[
    family(
        "kumiki_proxy_read_atomic_transactions_total",
        Kind::Counter,
        "Read-atomic transactions over Cassandra that were begun, by their kind.",
        |f, out| {
            out.labelled(&[("kind", "write")], f.of_read_atomic(|it| &it.writes));
            out.labelled(&[("kind", "read")], f.of_read_atomic(|it| &it.reads));
        },
    ),
    family(
        "kumiki_proxy_read_atomic_second_rounds_total",
        Kind::Counter,
        "Read-atomic reads over Cassandra that needed a second round.",
        |f, out| out.add(f.of_read_atomic(|it| &it.second_rounds)),
    ),
    family(
        "kumiki_proxy_read_atomic_completed_total",
        Kind::Counter,
        "Transactions that recovery has completed: of this proxy, or of others that are gone.",
        |f, out| {
            out.labelled(&[("of", "own")], f.of_read_atomic(|it| &it.completed_own));
            out.labelled(
                &[("of", "others")],
                f.of_read_atomic(|it| &it.completed_others),
            );
        },
    ),
    family(
        "kumiki_proxy_read_atomic_unfinished",
        Kind::Gauge,
        "Transactions of this proxy that recovery has still to complete.",
        |f, out| out.add(f.of_read_atomic(|it| &it.unfinished)),
    ),
    family(
        "kumiki_proxy_read_atomic_left_partitions",
        Kind::Gauge,
        "Partitions with records of other proxies which these should have removed.",
        |f, out| out.add(f.of_read_atomic(|it| &it.left_partitions)),
    ),
];
