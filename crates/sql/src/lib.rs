//! SQL over tables of pages, by Apache DataFusion (paper 4).
//!
//! DataFusion parses, plans and runs queries. The operators next to the tables run beside the data,
//! in the executor of crate `operators`: filters, projections, partial aggregates, limits.
//!
//! From the lowest module up:
//!
//! | module | concept |
//! |---|---|
//! | [`error`], `explain` | the error of this crate; DataFusion's errors in words |
//! | [`meter`] | how many pages a scan has read |
//! | [`catalogue`] | which tables there are, and on which stores |
//! | [`directory`] | tables of this machine's own directories |
//! | [`node`] | tables of a storage node |
//! | [`load`] | CSV and Parquet files into tables of pages |
//! | [`options`] | what a session may set |
//! | [`scalar`] | DataFusion's values as ours, and back |
//! | [`translate`] | DataFusion's expressions as those of the executor beside the data |
//! | `fragment`, `display` | fragments made of the work of a scan, and as `EXPLAIN` shows them |
//! | `strips` | how a table's rows are divided among a scan's partitions |
//! | `statistics` | statistics of tables for DataFusion's optimiser |
//! | `query_resources` | what a query keeps until all its parts have ended |
//! | `fetch` | a task's batches as a stream |
//! | [`scan_placement`] | where a scan runs, and why |
//! | [`scan`] | a scan of a table, with all that it does to rows beside the data |
//! | `group_estimate` | estimates whether an aggregate makes few groups of many rows |
//! | [`place_scans`] | the rule that chooses where a query's fragments run |
//! | [`pushdown`] | rules that move aggregates and the first rows of an order into scans |
//! | `blocking` | work that blocks, outside the runtime's threads |
//! | [`table`] | tables and schemas in DataFusion's form |
//! | `plan_refresh` | the newest versions of tables, in plans that were made earlier |
//! | `numbers`, `sizes`, `zones` | PostgreSQL's rules for numbers; bounds on sizes of values; `AT TIME ZONE` |
//! | `statement` | what happens to a statement between parsing and planning |
//! | [`session`] | a session: a catalogue, DataFusion with our rules, and limits |
//! | [`serve`] | `kumiki sql serve`: PostgreSQL's protocol |
//! | [`shell`] | `kumiki sql`: statements from the command line, from files and from a terminal |
//!
//! Modules form layers. Two use each other: `serve::array` and `serve::encode`, because an array's elements are
//! encoded as columns are, and a column may have arrays.
//!
//! It does not know how pages travel, nor what is in them.
//!
//! Decision that binds this crate: `docs/decisions/0066-fragments-are-our-own.md`.

#![forbid(unsafe_code)]

mod blocking;
pub mod catalogue;
pub mod directory;
mod display;
pub mod error;
mod explain;
mod fetch;
mod fragment;
mod group_estimate;
pub mod load;
pub mod meter;
pub mod node;
mod numbers;
pub mod options;
pub mod place_scans;
mod plan_refresh;
pub mod pushdown;
mod query_resources;
pub mod scalar;
pub mod scan;
pub mod scan_placement;
pub mod serve;
pub mod session;
pub mod shell;
mod sizes;
mod statement;
mod statistics;
mod strips;
pub mod table;
#[cfg(test)]
mod test_support;
pub mod translate;
mod zones;

pub use catalogue::{Catalogue, Store};
pub use directory::Directory;
pub use error::{CatalogueError, Error};
pub use explain::explain;
pub use node::StorageNode;
pub use operators::Placement;
pub use session::{Rights, Session, Settings, Shared};
