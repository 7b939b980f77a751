//! Proxies, clients and a partition in one thread and in virtual time, each run from one seed.
//!
//! A run has one to three proxies that share a table in a partition, or one that has it in memory.
//! Clients acquire, renew and release locks of few keys, wait for them, change them under
//! conditions and ask who holds them. Each process has a clock of its own, which runs up to a
//! hundredth too fast or too slow. Meanwhile proxies are killed, paused at any point (between a
//! decision and its message, too) and cut off, messages are lost or come seconds later, the
//! partition loses its leader, refuses, or cannot tell what it has done, and ledgers are not kept.
//! Then the faults stop.
//!
//! | clock | what depends on it | faults of it |
//! |---|---|---|
//! | one that counts while the machine is suspended | leases, waits and time-outs, each within one life of a proxy | it never stops: it goes on in pauses, and begins anew when the machine does |
//! | wall clocks of proxies | where the tokens of a table in memory begin, if no ledger says more | set by seconds and by years, forth and back |
//! | the wall clock of the partition's leader | the partition's time, which never goes back: tokens, eras, and the time that released records stay | the same |
//!
//! Every run is judged:
//! 1. No two clients believe at once, each by its own clock, that they hold a key: a client counts
//!    its lease from when it sent the request that was granted.
//! 2. A token is not below any that a client had got before the request was sent, and no two owners
//!    have the same one.
//! 3. While a client believes that it holds a key, no answer says otherwise: no lock is lost before
//!    its lease ends.
//! 4. Every request that reaches a proxy is answered in bounded time, and after the faults every
//!    client gets every key that it waits for.
//! 5. In the end nothing is left over, in proxies or in the partition.
//!
//! | module | contents |
//! |---|---|
//! | `plan` | the parameters that a seed determines |
//! | `client_request` | what clients ask for |
//! | `world`, `faults` | the events and the faults |
//! | `proxy`, `client` | the participants |
//! | `judge` | what clients believe |
//! | `reached` | the points that runs should reach |

mod client;
mod client_request;
mod faults;
mod judge;

mod plan;
mod proxy;
mod reached;
mod world;

use ::simulation::catch;

pub use reached::CoveragePoint;

/// How a run ended.
pub type Run = ::simulation::Run<CoveragePoint>;

/// Runs one seed; `keep_trace` keeps every event as text.
#[must_use]
pub fn run(seed: u64, keep_trace: bool) -> Run {
    let mut world = world::World::new(seed, keep_trace);
    if let Err(panic) = catch(|| world.run()) {
        world.fail(panic.to_string());
    }
    Run {
        seed,
        failure: world.failure,
        hash: world.trace.hash(),
        reached: world.reached,
        counts: (),
        trace: world.trace.take_lines(),
        history: String::new(),
    }
}
