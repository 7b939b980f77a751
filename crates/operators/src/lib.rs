//! Operators over pages: filter, projection, partial aggregation, limit and top-k, by the same code
//! wherever they run (paper 4, section 3.3).
//!
//! | module | concept |
//! |---|---|
//! | `operator`, [`scalar`] | operators; a value and its type |
//! | [`types`] | which types there are, and what becomes of them |
//! | [`expr`] | expressions over a row's columns |
//! | [`fragment`] | the part of a query that runs beside the data |
//! | [`task`] | a fragment, and the rows over which it runs |
//! | [`codec`] | fragments and tasks as bytes |
//! | `vector` | values of rows, in the form in which they are computed |
//! | [`chunk`], `stored_column` | rows that are worked on together; their columns as they are stored |
//! | `compute` | operations on vectors |
//! | `program` | compiled expressions |
//! | `evaluate` | evaluating compiled expressions over a chunk |
//! | `prune`, `filter` | which rows cannot pass, and which do |
//! | `output` | from vectors to arrays |
//! | `projection`, `topk`, `aggregate` | the values of rows; the first rows by an order; partial aggregates of groups |
//! | [`executor`] | a running fragment: chunks go in, batches come out |
//! | [`scan`] | from a table and rows to pages, and to chunks |
//! | [`estimate`] | how much work a fragment is |
//! | [`work_costs`] | what work takes of a thread |
//! | [`placement`] | where a scan runs |
//! | [`site`] | where fragments run |
//! | [`local_site`] | the site that runs tasks on the caller's thread |
//! | [`remote_site`] | the site that has another node run tasks |
//! | [`fragment_worker`] | the operators of a storage node |
//! | [`fuzz`] | entry points for fuzzing |
//!
//! Each module uses those above it alone.
//!
//! It does not know SQL, nor how pages and tasks travel: nodes are [sources](pages::Source) of pages, and
//! [take tasks](pages::task::TaskNode).
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
mod evaluate;
pub mod executor;
pub mod expr;
mod filter;
pub mod fragment;
pub mod fragment_worker;
pub mod fuzz;
pub mod local_site;
mod operator;
mod output;
pub mod placement;
mod program;
mod projection;
mod prune;
pub mod remote_site;
pub mod scalar;
pub mod scan;
pub mod site;
mod stored_column;
pub mod task;
mod topk;
pub mod types;
mod vector;
pub mod work_costs;

pub use aggregate::GroupLimits;
pub use chunk::{Chunk, ChunkColumn};
pub use estimate::Estimate;
pub use executor::FragmentExecutor;
pub use expr::{Expr, ExprError};
pub use fragment::{Aggregate, Fragment, FragmentError, FragmentWork, Function, SortKey};
pub use fragment_worker::FragmentWorker;
pub use local_site::LocalSite;
pub use operator::Operator;
pub use pages::Cancellation;
pub use pages::task::TaskError;
pub use placement::Placement;
pub use remote_site::RemoteSite;
pub use scalar::{Scalar, Value};
pub use site::{ResultBatches, Site};
pub use task::{FragmentTask, RowRange};
pub use work_costs::WorkCosts;
