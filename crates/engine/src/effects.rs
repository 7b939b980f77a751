//! Writes that were decided before: from the changes of a log or snapshot, and from the effects in a
//! system record, to versions.

use std::sync::Arc;

use base::Change;

use crate::engine::Engine;
use crate::log::Write;
use crate::origin::{OwnedOrigin, Recent};
use crate::record::{Content, VersionRef};
use crate::system::Effect;
use crate::thread_context::ThreadContext;

/// Returns the write of a change.
pub(crate) fn write_of_change(
    thread: &ThreadContext,
    change: &Change<'_>,
    recent: &mut Recent,
) -> Write {
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
            let content = Content {
                parts: &[value],
                kind,
                deadline,
            };
            let origin = recent.share(origins, origin);
            Write {
                record: thread.record_of(key),
                version: VersionRef::new(generation, Some(content), origin),
            }
        }
        Change::Edit { .. } => unreachable!("only a restorer meets edits"),
        Change::Delete { key, origin } => Write {
            record: thread.record_of(key),
            version: VersionRef::new(0, None, recent.share(origins, origin)),
        },
        Change::Flush { generation } => Write {
            record: thread.engine.generation,
            version: Engine::generation_version(generation),
        },
    }
}

/// Returns the write of a prepared transaction's effect.
pub(crate) fn write_of_effect(
    thread: &ThreadContext,
    effect: &Effect<'_>,
    origin: &Arc<OwnedOrigin>,
) -> Write {
    let mut recent = Recent::of(origin);
    let origin = Some(origin.get());
    let change = match *effect {
        Effect::Put {
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
        Effect::Delete { key } => Change::Delete { key, origin },
        Effect::Flush { generation } => Change::Flush { generation },
    };
    write_of_change(thread, &change, &mut recent)
}

/// Keeps the last write of each key, the keys being told apart and put in order by `order`.
pub(crate) fn keep_last<K: Ord>(writes: &mut Vec<Write>, order: impl Fn(&Write) -> K) {
    writes.sort_by(|a, b| order(a).cmp(&order(b)));
    writes.dedup_by(|later, kept| {
        let same = order(later) == order(kept);
        if same {
            std::mem::swap(&mut later.version, &mut kept.version);
            later.version.free_unpublished();
        }
        same
    });
}
