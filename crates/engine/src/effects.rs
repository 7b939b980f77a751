//! Writes that were decided before: from the changes of a log or snapshot, and from the effects in a
//! system record, to versions.

use std::sync::Arc;

use base::Change;

use crate::engine::Engine;
use crate::log::RecordWrite;
use crate::origin::{OwnedOrigin, RecentOrigin};
use crate::record::{VersionContent, VersionRef};
use crate::system_record::PreparedEffect;
use crate::thread_context::ThreadContext;

/// Returns the write of a change.
pub(crate) fn write_of_change(
    thread: &ThreadContext,
    change: &Change<'_>,
    recent: &mut RecentOrigin,
) -> RecordWrite {
    let origins = &thread.engine.origins;
    match *change {
        Change::Put {
            key,
            value,
            kind,
            generation,
            deadline,
            origin,
        } => {
            let content = VersionContent {
                parts: &[value],
                kind,
                deadline,
            };
            let origin = recent.share(origins, origin);
            RecordWrite {
                record: thread.record_of(key),
                version: VersionRef::new(generation, Some(content), origin),
            }
        }
        Change::Edit { .. } => unreachable!("only a restorer meets edits"),
        Change::Delete { key, origin } => RecordWrite {
            record: thread.record_of(key),
            version: VersionRef::new(0, None, recent.share(origins, origin)),
        },
        Change::Flush { generation } => RecordWrite {
            record: thread.engine.generation,
            version: Engine::generation_version(generation),
        },
    }
}

/// Returns the write of a prepared transaction's effect.
pub(crate) fn write_of_effect(
    thread: &ThreadContext,
    effect: &PreparedEffect<'_>,
    origin: &Arc<OwnedOrigin>,
) -> RecordWrite {
    let mut recent = RecentOrigin::of(origin);
    let origin = Some(origin.get());
    let change = match *effect {
        PreparedEffect::Put {
            key,
            value,
            kind,
            generation,
            deadline,
        } => Change::Put {
            key,
            value,
            kind,
            generation,
            deadline,
            origin,
        },
        PreparedEffect::Delete { key } => Change::Delete { key, origin },
        PreparedEffect::Flush { generation } => Change::Flush { generation },
    };
    write_of_change(thread, &change, &mut recent)
}

/// Keeps the last write of each key, the keys being told apart and put in order by `order`.
pub(crate) fn keep_last<K: Ord>(writes: &mut Vec<RecordWrite>, order: impl Fn(&RecordWrite) -> K) {
    writes.sort_by_key(&order);
    writes.dedup_by(|later, kept| {
        let same = order(later) == order(kept);
        if same {
            std::mem::swap(&mut later.version, &mut kept.version);
            later.version.free_unpublished();
        }
        same
    });
}
