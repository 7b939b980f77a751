//! Rows that are worked on together: slices of pages' arrays.

use arrow_array::ArrayRef;
use pages::Range;

/// Rows that are worked on together.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The number of rows.
    pub rows: usize,
    /// The fragment's columns.
    pub columns: Vec<ChunkColumn>,
}

/// A column of a chunk.
#[derive(Clone, Debug)]
pub struct ChunkColumn {
    /// Its values: in the table's own type for the column or in a narrower one, as pages hold them
    /// (see [`pages::page`]).
    pub array: ArrayRef,
    /// The range in which they lie, as far as it is known.
    pub range: Range,
}
