//! SQL over tables of pages, by Apache DataFusion (paper 4).
//!
//! DataFusion parses, plans and runs queries. The operators next to the tables run beside the data,
//! in the executor of crate `operators`: filters, projections, partial aggregates, limits.
//!
//! | module | concept |
//! |---|---|
//! | [`catalogue`] | which tables there are, and on which nodes |
//! | [`directory`] | tables of this machine's own directories |
//! | [`node`] | tables of a storage node |
//! | [`session`] | a session: a catalogue, DataFusion with our rules, and limits |
//! | [`options`] | what a session may set |
//! | [`table`] | tables and schemas as DataFusion wants them |
//! | [`scan`] | a scan of a table, with all that it does to rows beside the data |
//! | `fragment` | fragments made of the work of a scan |
//! | `strips` | how a table's rows are divided among a scan's partitions |
//! | `fetch` | a task's batches as a stream |
//! | [`pushdown`] | rules that move aggregates and the first rows of an order into scans |
//! | `groups` | whether an aggregate makes few groups of many rows |
//! | `statistics` | statistics of tables for DataFusion's optimiser |
//! | [`load`] | CSV and Parquet files into tables of pages |
//! | [`meter`] | how many pages a scan has read |
//! | `newest` | tables as they are now, in plans that were made earlier |
//! | [`place`] | where a query's fragments run |
//! | [`translate`] | DataFusion's expressions as those of the executor beside the data |
//! | `numbers` | PostgreSQL's rules for numbers |
//! | `sizes` | bounds on the sizes of values |
//! | `statement` | what happens to a statement between parsing and planning |
//! | [`scalar`] | DataFusion's values as ours, and back |
//! | `zones` | `AT TIME ZONE` |
//! | `display` | fragments as `EXPLAIN` shows them |
//! | `explain` | errors in words |
//! | [`serve`] | `kumiki sql serve`: PostgreSQL's protocol |
//! | [`shell`] | `kumiki sql`: statements from the command line, from files and from a terminal |
//!
//! It does not know how pages travel, nor what is in them.
//!
//! Decision that binds this crate: `docs/decisions/0066-fragments-are-our-own.md`.

#![forbid(unsafe_code)]

pub mod catalogue;
pub mod directory;
mod display;
mod explain;
mod fetch;
mod fragment;
mod groups;
pub mod load;
pub mod meter;
mod newest;
pub mod node;
mod numbers;
pub mod options;
pub mod place;
pub mod pushdown;
pub mod scalar;
pub mod scan;
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
pub use explain::explain;
pub use node::StorageNode;
pub use operators::Placement;
pub use session::{Rights, Session, Settings, Shared};
