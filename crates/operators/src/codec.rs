//! Fragments as bytes, to be sent to where they run.
//!
//! A *number* is an unsigned one in base 128, the lowest digits first; all bytes but the last have
//! their highest bit set. Numbers with signs are folded first: 0, -1, 1, -2… become 0, 1, 2, 3….
//! A *list* is a number of items, and the items. An *option* is a byte, 0 or 1, and the value if it is 1.
//! A *text* is a number of bytes, and the bytes.
//!
//! | field | form |
//! |---|---|
//! | magic and version | `KFRG`, and a byte: 1 |
//! | columns | list of numbers |
//! | filter | option of an expression |
//! | work | byte: 0 rows, 1 aggregates |
//! | – rows: project | list of expressions |
//! | – rows: order | list of: expression, byte (1: descending, 2: nulls first, or both) |
//! | – rows: limit | option of a number |
//! | – aggregates: by | list of expressions |
//! | – aggregates | list of: byte (count, sum, min, max, avg), option of an expression, option of a filter |
//! | output | list of: text, type, byte (1: may be null) |
//!
//! | expression | code | what follows |
//! |---|---|---|
//! | column | 0 | number |
//! | literal | 1 | scalar |
//! | binary | 2 | byte, in the order of [`Operator`](crate::Operator); expression, expression |
//! | not, is null, is not null, negative, year | 3…7 | expression |
//! | like | 8 | expression, text, byte (1: negated) |
//! | in list | 9 | expression, list of scalars, byte (1: negated) |
//! | case | 10 | list of: expression, expression; option of an expression |
//! | cast | 11 | expression, type |
//! | substring | 12 | expression, signed number, signed number |
//!
//! | scalar | what follows the type |
//! |---|---|
//! | null | 0 |
//! | bool | 1, byte |
//! | integer | 2, signed number |
//! | float | 3, 8 bytes, little-endian |
//! | text | 4, text |
//! | bytes | 5, text |
//!
//! A type is a byte, see `data_type`; decimals have two more, precision and scale, and timestamps
//! an option of a text, the zone. Metadata of fields and schemas is not encoded.
//!
//! Invariants:
//!
//! 1. Bytes that may be anything are decoded in time and memory proportional to their number.
//!    Expressions that are nested deeper than [`DEPTH`](crate::expr::DEPTH) or have more nodes than [`NODES`](crate::expr::NODES) are
//!    refused, and so are bytes after a fragment.
//! 2. A decoded fragment is not yet [checked](crate::Fragment::check): columns may not exist, and types may not
//!    fit.

mod bytes;
mod data_type;
mod error;
mod expression;
mod fragment;
mod task;

pub use error::CodecError;
pub use fragment::{BYTES, decode, encode};
pub use task::{decode_rows, decode_task, encode_rows, encode_task};
