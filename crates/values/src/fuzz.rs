//! An entry point for fuzzing the reader of payloads. It panics when a guarantee is broken.

use base::transaction::Kind;

use crate::call::StoredBlock;
use crate::collection_editor::canonical;
use crate::dump::{self, DecodeContext};
use crate::packed::{BlockForm, PackedView};

/// The time of the reader, and the longest value.
const CONTEXT: DecodeContext = DecodeContext {
    longest: 1 << 16,
    time_ms: 1_700_000_000_000,
};

/// Reads `bytes` as a payload without its footer.
///
/// # Panics
/// Panics if the reader panics, or accepts bytes that are no value.
pub fn fuzz_payload(bytes: &[u8]) {
    let Ok(Some(value)) = dump::decode(&dump::signed(bytes), CONTEXT) else {
        return;
    };
    assert!(value.bytes.len() <= CONTEXT.longest, "it is too long");
    let view = PackedView::new(&value.bytes);
    if value.kind != Kind::String {
        let is_block = view.form().is_some_and(|form| view.check(form));
        assert!(is_block, "it is no block");
    }
    let stored = StoredBlock {
        kind: value.kind,
        bytes: &value.bytes,
    };
    let payload = dump::encode(stored).expect("it has a payload");
    let again = dump::decode(&payload, CONTEXT);
    if view.form() != Some(BlockForm::ExpiringPairs) {
        return assert_eq!(again, Ok(Some(value)));
    }
    // Its fields are written in the order of their deadlines.
    let again = again.ok().flatten().expect("it has fields");
    let [one, other] = [&value, &again].map(|value| canonical(value.kind, &value.bytes));
    assert_eq!(one, other);
}
