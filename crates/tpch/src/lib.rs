//! The tables of TPC-H, at any scale factor.
//!
//! | module | contents |
//! |---|---|
//! | `table` | the tables: their names, columns and sizes |
//! | `columns` | from generated rows to arrays |
//! | `generation` | the generation of rows, by threads |
//!
//! Rows are generated in parts, by threads of their own, and come in their order. Their types are
//! those of the generator's own arrays: keys `Int64`, other integers `Int32`, decimals
//! `Decimal128(15, 2)`, dates `Date32`, texts `Utf8`.

#![forbid(unsafe_code)]

mod columns;
mod generation;
mod table;

pub use generation::TpchBatches;
pub use table::TpchTable;
