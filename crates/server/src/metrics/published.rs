//! Figures of what is published for clients to read by themselves.

use cluster::ramp::slots;

use super::{Family, Samples, counter, gauge};
use crate::figures::Figures;

/// Adds a figure if this is a node of a cluster.
fn of(figures: &Figures<'_>, out: &mut Samples<'_>, value: fn(&slots::Figures) -> u64) {
    if let Some(published) = &figures.published {
        out.add(value(published));
    }
}

pub(super) const FAMILIES: &[Family] = &[
    gauge(
        "kumiki_published_bytes",
        "Bytes of the region that clients read by themselves.",
        |f, out| of(f, out, |published| published.bytes),
    ),
    gauge(
        "kumiki_published_slots",
        "Keys that have a slot there.",
        |f, out| of(f, out, |published| published.slots),
    ),
    counter(
        "kumiki_published_versions_total",
        "Versions that were put into slots.",
        |f, out| of(f, out, |published| published.published),
    ),
    counter(
        "kumiki_published_refused_total",
        "Versions that were not put into a slot, by why.",
        |f, out| {
            if let Some(published) = &f.published {
                out.labelled(&[("reason", "overtaken")], published.overtaken);
                out.labelled(&[("reason", "full")], published.full);
                out.labelled(&[("reason", "too_large")], published.too_large);
            }
        },
    ),
    counter(
        "kumiki_published_evicted_total",
        "Slots that gave way to other keys.",
        |f, out| of(f, out, |published| published.evicted),
    ),
];
