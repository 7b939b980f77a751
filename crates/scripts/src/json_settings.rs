//! The settings of `cjson`, which begin anew in each run of a script.

/// What becomes of numbers that JSON has no text for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InvalidNumbers {
    Refused,
    Accepted,
    Null,
}

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonSettings {
    /// A sparse list becomes an object, and not an error.
    pub(crate) sparse_as_object: bool,
    /// A list is sparse if its largest index exceeds its length times this. 0: no list is.
    pub(crate) sparse_ratio: i32,
    /// A list whose largest index is not larger than this is never sparse.
    pub(crate) sparse_safe: i32,
    pub(crate) encode_max_depth: i32,
    pub(crate) decode_max_depth: i32,
    /// The significant digits of numbers.
    pub(crate) precision: i32,
    pub(crate) keep_buffer: bool,
    pub(crate) encode_invalid: InvalidNumbers,
    pub(crate) decode_invalid: InvalidNumbers,
}

impl Default for JsonSettings {
    fn default() -> JsonSettings {
        JsonSettings {
            sparse_as_object: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_max_depth: 1000,
            decode_max_depth: 1000,
            precision: 14,
            keep_buffer: true,
            encode_invalid: InvalidNumbers::Refused,
            decode_invalid: InvalidNumbers::Accepted,
        }
    }
}
