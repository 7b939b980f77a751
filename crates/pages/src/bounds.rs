//! What is known of a column's values without reading them.
//!
//! Invariant: bounds may be wider than the values, never narrower. So whoever skips what lies
//! outside of them skips nothing that he wants.

/// The most bytes that are kept of a text.
pub const PREFIX: usize = 16;

/// What is known of a column's values in a page.
#[derive(Clone, PartialEq, Debug)]
pub struct Bounds {
    /// How many of them are null.
    pub nulls: u32,
    /// Between what the others lie.
    pub range: Range,
}

/// Between what values lie; both ends may be among them.
#[derive(Clone, PartialEq, Debug)]
pub enum Range {
    /// Nothing is known: values of a kind that has no order, or with a NaN among them.
    Unknown,
    /// There is no value: all are null.
    Empty,
    /// Integers, dates, timestamps and decimals, the latter unscaled; false and true as 0 and 1.
    Int {
        /// The least.
        min: i128,
        /// The greatest.
        max: i128,
    },
    /// Floating-point numbers.
    Float {
        /// The least.
        min: f64,
        /// The greatest.
        max: f64,
    },
    /// Texts and bytes, which are ordered by their bytes.
    Bytes {
        /// No value is less; at most [`PREFIX`] bytes.
        min: Vec<u8>,
        /// No value is greater; at most [`PREFIX`] bytes. None if there is no such text that
        /// is so short.
        max: Option<Vec<u8>>,
    },
}
