//! Entry points for fuzzing the readers of payloads and of files. They panic when a guarantee is broken.

use base::transaction::Kind;

use crate::call::StoredBlock;
use crate::collection_editor::canonical;
use crate::dump::{self, DecodeContext, RdbItem, RdbReader, RdbValue};
use crate::packed::{BlockForm, PackedView};
use crate::stream::StreamView;

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
    match value.kind {
        Kind::String => {}
        Kind::Stream => assert!(StreamView::new(&value.bytes).check(), "it is no stream"),
        _ => {
            let is_block = view.form().is_some_and(|form| view.check(form));
            assert!(is_block, "it is no block");
        }
    }
    let stored = StoredBlock {
        kind: value.kind,
        bytes: &value.bytes,
    };
    let payload = dump::encode(stored);
    let again = dump::decode(&payload, CONTEXT);
    let again = again.expect("it is a payload").expect("no fields expire");
    match value.kind {
        // The times at which consumers got entries last are left out.
        Kind::Stream => {
            let (kind, bytes) = (again.kind, &again.bytes[..]);
            assert_eq!(dump::encode(StoredBlock { kind, bytes }), payload);
        }
        // Its fields are written in the order of their deadlines.
        Kind::Hash if view.form() == Some(BlockForm::ExpiringPairs) => {
            let [one, other] = [&value, &again].map(|value| canonical(value.kind, &value.bytes));
            assert_eq!(one, other);
        }
        _ => assert_eq!(again, value),
    }
}

/// Reads `bytes` as a file of Redis.
///
/// # Panics
/// Panics if the reader panics, takes more than the values that it promises, or names a position that does not exist.
pub fn fuzz_file(bytes: &[u8]) {
    let Ok(mut reader) = RdbReader::new(bytes, CONTEXT.longest) else {
        return;
    };
    let mut position = 0;
    while let Ok(Some(item)) = reader.next_item() {
        let begin = reader.item_position();
        assert!(
            begin > position && begin < bytes.len() as u64,
            "byte {begin}"
        );
        position = begin;
        if let RdbItem::Key { value, .. } = item {
            match value {
                RdbValue::String(value) => assert!(value.len() <= CONTEXT.longest),
                // Whether it is a value is decided by the server that gets it.
                RdbValue::Payload(payload) => drop(dump::decode(&payload, CONTEXT)),
            }
        }
    }
}
