//! Workloads that verify themselves, experiments as data, figures.
//!
//! From the lowest layer up; a module knows those above its row in this table:
//!
//! | part | what | does not know |
//! |---|---|---|
//! | [`parameters`], [`sample`], [`error`], [`metric`], [`statistics`], [`latency`] | how much is measured, and the figures and checks of a run | what is measured |
//! | [`keys`], `even_slots`, [`stamp`], [`content`], [`workload`] | what transactions do, and how it is known that they did it right | what runs them |
//! | [`machine`], [`keep_awake`], [`disk_access`], [`sync_rate`], [`peers`] | this machine, its disks, and programs of others on it | experiments |
//! | [`driver`] | closed and open loops, and the time that things take | clients, but for a trait |
//! | [`run_context`], [`shared_state`], [`content_file`], [`replay`] | the surroundings of a run, and what runs share: files that tell right reads from wrong ones, a query's page accesses | targets |
//! | [`systems`], [`storage_node`], [`paper_proxy`] | the processes that are measured: servers, a storage node, the proxies that a paper describes | what is done with them |
//! | [`simulation`] | transactions over more partitions than there are machines, workers and loggers beyond the processors | how service times are measured |
//! | [`target`] | what is measured: a store, clusters of processes, a device | experiments |
//! | [`experiment`], [`plot`], `published`, [`experiments`] | what is measured at which points, drawn how, beside which values of a paper; all of it is data | how it is run |
//! | [`runner`], [`result`] | rounds, noise, checks, medians, the result file | any single experiment |
//! | [`table`], [`report`] | results for people | how they came about |
//!
//! An experiment that measures something new adds a target; one that sweeps something known is a
//! file of data in [`experiments`].
//!
//! Decisions that bind this crate:
//!
//! - `docs/decisions/0080-the-papers-proxies-are-programs-of-their-own.md`
//! - `docs/decisions/0104-more-workers-and-loggers-are-simulated.md`

#![forbid(unsafe_code)]

pub mod content;
pub mod content_file;
pub mod disk_access;
pub mod driver;
pub mod error;
mod even_slots;
pub mod experiment;
pub mod experiments;
pub mod keep_awake;
pub mod keys;
pub mod latency;
pub mod machine;
pub mod metric;
pub mod paper_proxy;
pub mod parameters;
pub mod peers;
pub mod plot;
mod published;
pub mod replay;
pub mod report;
pub mod result;
pub mod run_context;
pub mod runner;
pub mod sample;
pub mod shared_state;
pub mod simulation;
pub mod stamp;
pub mod statistics;
pub mod storage_node;
pub mod sync_rate;
pub mod systems;
pub mod table;
pub mod target;
pub mod workload;
