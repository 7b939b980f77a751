//! Writes that were decided before: from the changes of a log or snapshot, and from the effects in a
//! system record, to versions.

use std::sync::Arc;

use base::transaction::Kind;
use base::{Change, Tid};

use crate::engine::Engine;
use crate::log::RecordWrite;
use crate::origin::{OwnedOrigin, RecentOrigin};
use crate::record::{RecordRef, VersionContent, VersionRef};
use crate::system_record::PreparedEffect;
use crate::thread_context::ThreadContext;
use crate::version_tree::VersionTree;

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
            let origin = recent.share(origins, origin);
            RecordWrite {
                record: thread.record_of(key),
                version: stored_version(generation, (kind, value), deadline, origin),
            }
        }
        Change::Edit { .. } => unreachable!("only a restorer meets edits"),
        Change::Elements {
            key,
            base,
            deadline,
            changes,
        } => {
            let record = thread.record_of(key);
            let current = RecordRef::version(record.word().load());
            // An entry that was staged after another one does not know the index of that.
            assert!(
                !current.is_absent() && (current.tid() == base || base == Tid::ZERO),
                "the elements of a version are changed that is not the current one"
            );
            let version = edited_version(current, deadline, [changes].into_iter());
            RecordWrite {
                record,
                version: version.expect("a log's changes fit the versions that they name"),
            }
        }
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

/// Returns a version of a value as it is stored in logs and snapshots.
pub(crate) fn stored_version(
    generation: u16,
    (kind, value): (Kind, &[u8]),
    deadline: Option<u64>,
    origin: Option<&Arc<OwnedOrigin>>,
) -> VersionRef {
    if values::is_large(kind, value) {
        let tree = VersionTree::of_packed(kind, value);
        return VersionRef::with_tree(generation, (kind, deadline), tree, origin);
    }
    let content = VersionContent {
        parts: &[value],
        kind,
        deadline,
    };
    VersionRef::new(generation, Some(content), origin)
}

/// Returns the version after `current`, a collection, with changes of its elements, which are in the format of
/// crate `values`; `None` if they are malformed.
pub(crate) fn edited_version<'c>(
    current: VersionRef,
    deadline: Option<u64>,
    mut changes: impl Iterator<Item = &'c [u8]>,
) -> Option<VersionRef> {
    let kind = current.kind();
    let tree = match current.tree() {
        Some(tree) => {
            let mut editor = tree.edit();
            let fit = changes.all(|changes| editor.apply(changes));
            fit.then(|| tree.next((current.address(), current.tid()), editor))?
        }
        // A snapshot had it as a block.
        None => {
            let tree = VersionTree::of_packed(kind, current.value());
            let editor = tree.editor()?;
            changes
                .all(|changes| editor.apply(changes))
                .then_some(tree)?
        }
    };
    let (generation, of) = (current.generation(), (kind, deadline));
    Some(VersionRef::with_tree(generation, of, tree, None))
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
