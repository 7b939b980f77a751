//! Operators over pages: filter, projection, partial aggregation, limit and top-k, by the same code
//! wherever they run (paper 4, section 3.3).
//!
//! | module | concept |
//! |---|---|
//! | [`scalar`] | a value and its type |
//! | [`expr`] | expressions over a row's columns |
//! | [`types`] | which types there are, and what becomes of them |
//! | [`fragment`] | the part of a query that runs beside the data |
//! | [`codec`] | fragments as bytes |
//! | [`chunk`] | rows that are worked on together |
//! | [`run`] | a fragment at work |
//! | `program` | expressions made ready |
//! | `stored`, `vector` | columns as they are stored, and as they are computed with |
//! | `compute` | evaluating expressions |
//! | `filter`, `prune` | which rows pass, and which cannot |
//! | `aggregate` | partial aggregates of groups |
//! | [`topk`] | the first rows by an order |
//! | `output` | from vectors to arrays |
//! | [`site`] | where fragments run |
//! | [`scan`] | from a table and rows to pages, and to chunks |
//! | [`estimate`] | how much work a fragment is |
//! | [`placement`] | where a scan runs |
//! | [`measure`] | what work takes of a thread |
//! | [`fuzz`] | entry points for fuzzing |
//! | [`here`] | the site that runs tasks where it is called |
//! | [`there`] | the site that has a storage node run them |
//!
//! It does not know SQL, nor how pages travel.
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0066-fragments-are-our-own.md`
//! - `docs/decisions/0067-bounds-decide-the-width-of-arithmetic.md`

#![forbid(unsafe_code)]

mod aggregate;
pub mod chunk;
pub mod codec;
mod compute;
pub mod estimate;
pub mod expr;
mod filter;
pub mod fragment;
pub mod fuzz;
pub mod here;
pub mod measure;
mod output;
pub mod placement;
mod program;
mod prune;
pub mod run;
pub mod scalar;
pub mod scan;
pub mod site;
mod stored;
pub mod there;
pub mod topk;
pub mod types;
mod vector;

pub use aggregate::GroupLimits;
pub use chunk::{Chunk, Column};
pub use estimate::Estimate;
pub use expr::{Expr, ExprError, Operator};
pub use fragment::{Aggregate, Fragment, FragmentError, Function, SortKey, Work};
pub use here::Here;
pub use measure::WorkCosts;
pub use pages::Cancellation;
pub use placement::Placement;
pub use run::Executor;
pub use scalar::{Scalar, Value};
pub use site::{Batches, Rows, Site, Task, TaskError};
pub use there::{Operators, There};
