//! Results of commands that are stored as sorted sets.

use base::key_event::KeyEvent;
use base::transaction::Kind;
use resp::Writer;

use crate::refusal::write_op_error;
use crate::working_set::{WorkingSet, WorkingValue};

/// Stores a sorted set and the number of its members as the value of a key, or deletes the key if there are none.
/// Writes the number.
pub(super) fn store(
    set: &mut WorkingSet,
    to: &[u8],
    stored: Option<(Vec<u8>, usize)>,
    event: KeyEvent,
    writer: &mut Writer<'_>,
) {
    let (value, count, event) = match stored {
        Some((bytes, count)) => {
            let value = WorkingValue {
                kind: Kind::SortedSet,
                bytes,
                deadline: None,
            };
            (Some(value), count, event)
        }
        None => (None, 0, KeyEvent::Del),
    };
    if value.is_some() || set.value(to).is_some() {
        if let Err(error) = set.set(to, value) {
            return write_op_error(error, event.name(), writer);
        }
        set.note(to, event);
    }
    writer.int(count as i64);
}
