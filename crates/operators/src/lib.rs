//! Operators over pages: filter, projection, partial aggregation, limit and top-k, by the same code
//! wherever they run (paper 4, section 3.3).
//!
//! | module | concept |
//! |---|---|
//! | [`scalar`] | a value and its type |
//! | [`expr`] | expressions over a row's columns |
//! | [`fragment`] | the part of a query that runs beside the data |
//! | [`chunk`] | rows that are worked on together |
//! | [`site`] | where fragments run |
//!
//! It does not know SQL, nor how pages travel.

#![forbid(unsafe_code)]

pub mod chunk;
pub mod expr;
pub mod fragment;
pub mod scalar;
pub mod site;

pub use chunk::{Chunk, Column};
pub use expr::{Expr, Operator};
pub use fragment::{Aggregate, Fragment, Function, SortKey, Work};
pub use scalar::{Scalar, Value};
pub use site::{Batches, Rows, Site, Task, TaskError};
