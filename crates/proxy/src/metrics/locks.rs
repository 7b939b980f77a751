//! The figures of locks, as in `INFO locks`. They are absent where the proxy keeps no locks.

use admin::exposition::{Family, Kind, Samples};

use super::snapshot::{FIRST_CLASS, Figures, Fill, family};
use crate::locks::{LockFigures, SharedFigures};

impl Figures<'_> {
    fn of_locks(&self, out: &mut Samples<'_>, value: impl Fn(&LockFigures) -> u64) {
        if let Some(locks) = &self.locks {
            out.add(value(locks));
        }
    }

    /// Adds a figure that exists only where a partition keeps the locks.
    fn of_partition(&self, out: &mut Samples<'_>, value: impl Fn(&SharedFigures) -> u64) {
        let shared = self.locks.as_ref().and_then(|locks| locks.shared.as_ref());
        if let Some(shared) = shared {
            out.add(value(shared));
        }
    }
}

/// See the module documentation.
pub(super) const FAMILIES: &[Family<Fill>] = &[
    family(
        "kumiki_proxy_locks_info",
        Kind::Gauge,
        "What keeps the locks, as a label; the value is always 1.",
        |f, out| {
            if let Some(locks) = &f.locks {
                out.labelled(&[("keeping", locks.keeping)], 1);
            }
        },
    ),
    family(
        "kumiki_proxy_locks_longest_lease_seconds",
        Kind::Gauge,
        "The longest lease that may be asked for.",
        |f, out| {
            if let Some(locks) = &f.locks {
                out.seconds(locks.longest_lease.as_secs_f64());
            }
        },
    ),
    family(
        "kumiki_proxy_locks_held",
        Kind::Gauge,
        "Locks that are held, as far as this proxy knows.",
        |f, out| f.of_locks(out, |locks| locks.held),
    ),
    family(
        "kumiki_proxy_locks_waiting",
        Kind::Gauge,
        "Requests about locks that wait for their answer.",
        |f, out| f.of_locks(out, |locks| locks.waiting),
    ),
    family(
        "kumiki_proxy_locks_requests_total",
        Kind::Counter,
        "Requests about locks.",
        |f, out| f.of_locks(out, |locks| locks.requests),
    ),
    family(
        "kumiki_proxy_locks_answers_total",
        Kind::Counter,
        "Answers about locks by their outcome, without those that only tell who holds one.",
        |f, out| {
            let Some(locks) = &f.locks else {
                return;
            };
            for (outcome, count) in [
                ("acquired", locks.acquired),
                ("renewed", locks.renewed),
                ("released", locks.released),
                ("refused", locks.refused),
                ("failed", locks.failed),
            ] {
                out.labelled(&[("outcome", outcome)], count);
            }
        },
    ),
    family(
        "kumiki_proxy_locks_deferred_total",
        Kind::Counter,
        "Requests that were not answered at once.",
        |f, out| f.of_locks(out, |locks| locks.waited),
    ),
    family(
        "kumiki_proxy_locks_cancelled_total",
        Kind::Counter,
        "Requests that were given up because their client had gone.",
        |f, out| f.of_locks(out, |locks| locks.cancelled),
    ),
    family(
        "kumiki_proxy_locks_expired_total",
        Kind::Counter,
        "Locks that ended with their lease, as far as this proxy noticed.",
        |f, out| f.of_locks(out, |locks| locks.expired),
    ),
    family(
        "kumiki_proxy_locks_kept_seconds",
        Kind::Histogram,
        "How long what keeps the locks took: for a ledger (in memory) or a transaction.",
        |f, out| {
            if let Some(locks) = &f.locks {
                let kept = &locks.kept;
                out.histogram(&[], FIRST_CLASS, &kept.classes, kept.time);
            }
        },
    ),
    family(
        "kumiki_proxy_locks_transactions_total",
        Kind::Counter,
        "Transactions about locks that were sent to the partition.",
        |f, out| f.of_partition(out, |shared| shared.transactions),
    ),
    family(
        "kumiki_proxy_locks_takeovers_total",
        Kind::Counter,
        "Locks that were taken over from other proxies.",
        |f, out| f.of_partition(out, |shared| shared.takeovers),
    ),
    family(
        "kumiki_proxy_locks_overtaken_total",
        Kind::Counter,
        "Transactions that another proxy was faster than.",
        |f, out| f.of_partition(out, |shared| shared.overtaken),
    ),
    family(
        "kumiki_proxy_locks_uncertain_total",
        Kind::Counter,
        "Requests whose effect is unknown.",
        |f, out| f.of_partition(out, |shared| shared.uncertain),
    ),
];
