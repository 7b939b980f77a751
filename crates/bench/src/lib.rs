//! Workloads that verify themselves, experiments as data, figures.
//!
//! | part | what | knows |
//! |---|---|---|
//! | [`keys`], [`stamp`], [`workload`] | what transactions do, and how it is known that they did it right | nothing of what runs them |
//! | [`driver`], [`latency`] | closed and open loops, and the time that things take | clients, by a trait |
//! | [`content`], [`fixture`], [`replay`], [`storage`] | files that tell right reads from wrong ones, a query's page accesses, the storage node that is measured | pages, by their public interfaces |
//! | [`older_proxy`] | a design of a paper that the product has no more | the proxy, by its public traits |
//! | [`target`] | what is measured: a store, clusters of processes, a device | the crates that it measures, by their public interfaces |
//! | [`simulation`] | transactions over more partitions than there are machines | service times that were measured, the protocols, our codec |
//! | [`experiment`], [`plot`], [`experiments`] | what is measured at which points, drawn how, beside which values of a paper | that all of it is data |
//! | [`runner`], [`machine`], [`awake`], [`peers`], [`sample`], [`result`] | rounds, noise, checks, medians, the result file | nothing of any experiment |
//! | [`table`], [`report`] | results for people | results alone |
//!
//! An experiment that measures something new adds a target; one that sweeps something known is a
//! file of data in [`experiments`].

#![forbid(unsafe_code)]

pub mod awake;
pub mod content;
pub mod driver;
pub mod experiment;
pub mod experiments;
pub mod fixture;
pub mod keys;
pub mod latency;
pub mod machine;
pub mod metric;
pub mod older_proxy;
pub mod peers;
pub mod plot;
pub mod replay;
pub mod report;
pub mod result;
pub mod runner;
pub mod sample;
pub mod simulation;
pub mod stamp;
pub mod storage;
pub mod table;
pub mod target;
pub mod workload;
