//! Hashes, lists, sets, sorted sets and streams beside redis-server: speed by redis-benchmark, memory, and
//! the figures that depend on the size of a collection; and the memory of strings.
//!
//! One core is the servers', another the client's. Both servers hold the same collections and take turns. Of
//! a command the medians of rate and of the server's processor time are compared, so that a machine that is not
//! quiet disturbs both alike.

mod aim;
mod content;
mod figures;
pub mod options;
mod popular_list;
mod speed;
mod strings;

use std::path::Path;

use anyhow::Result;

use self::options::{Measurement, Options};
use super::cell::BenchMode;

/// Measures the server `binary` and redis-server, and prints the tables.
///
/// # Errors
/// Returns an error if a server or redis-benchmark fails, or a store has wrong contents. A missed aim is no
/// error: it is reported.
pub fn run(binary: &Path, options: &Options) -> Result<()> {
    let has = |part| options.parts.is_empty() || options.parts.contains(&part);
    if has(Measurement::Memory) {
        figures::memory(binary, options)?;
    }
    if has(Measurement::Strings) {
        strings::memory(binary, options)?;
    }
    if has(Measurement::Speed) {
        speed::run(binary, BenchMode::Ephemeral, options)?;
    }
    if has(Measurement::Durable) {
        speed::run(binary, BenchMode::Durable, options)?;
    }
    if has(Measurement::Size) {
        figures::log(binary, options)?;
        figures::ranks(binary, options)?;
        figures::deletion(binary, options)?;
    }
    if has(Measurement::Recovery) {
        figures::recovery(binary, options)?;
    }
    if has(Measurement::Replicas) {
        popular_list::on_replicas(binary, options)?;
    }
    if has(Measurement::Waits) {
        popular_list::on_one_node(binary, options)?;
    }
    Ok(())
}
