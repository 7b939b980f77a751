//! Entry points for fuzzing: each takes arbitrary bytes and panics if a promise is broken.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, StringArray};
use arrow_schema::{DataType, Field, Schema};
use pages::Range;

use crate::chunk::{Chunk, ChunkColumn};
use crate::codec;
use crate::executor::FragmentExecutor;

/// Decodes a fragment. A fragment that is decoded is encoded to the same bytes; and if it can be
/// executed over a small table, its execution ends.
///
/// # Panics
/// Panics if this does not hold.
pub fn fuzz_fragments(bytes: &[u8]) {
    let Ok(fragment) = codec::decode(bytes) else {
        return;
    };
    assert_eq!(
        codec::encode(&fragment).as_deref(),
        Ok(bytes),
        "there is one form"
    );
    let columns = [DataType::Int64, DataType::Utf8, DataType::Int64];
    let field = |data_type: &DataType| Field::new("c", data_type.clone(), true);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    if fragment.check(&schema).is_err() {
        return;
    }
    let types = fragment.column_types(&schema).expect("they were checked");
    let mut executor = FragmentExecutor::new(&fragment, &types).expect("it was checked");
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(i64::MIN)]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some(""), None]));
    let column = |data_type: &DataType| ChunkColumn {
        array: Arc::clone(if *data_type == DataType::Utf8 {
            &texts
        } else {
            &numbers
        }),
        range: Range::Unknown,
    };
    let chunk = Chunk {
        rows: 3,
        columns: types.iter().map(column).collect(),
    };
    if executor.feed(&chunk).is_ok() && executor.finish().is_ok() {
        while let Some(batch) = executor.take() {
            assert_eq!(batch.schema(), fragment.output);
        }
    }
}

/// Decodes rows. Rows that are decoded are encoded to the same bytes.
///
/// # Panics
/// Panics if this does not hold.
pub fn fuzz_rows(bytes: &[u8]) {
    if let Ok(rows) = codec::decode_rows(bytes) {
        assert_eq!(codec::encode_rows(&rows), bytes);
    }
}
