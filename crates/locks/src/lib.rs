//! Locks with owners, leases and fencing tokens.
//!
//! A lock is a key that an *owner* holds until it is released or its *lease* has ended. Each grant
//! has a *token*; the tokens of a key grow, so that a resource that the lock guards can refuse a
//! former holder that comes late. Paper 3 decides locks in the proxy that all clients pass, without
//! any round between nodes; here that is [`authority`]. The paper leaves open what happens when the
//! proxy dies; [`shared`] answers that.
//!
//! | module | concept |
//! |---|---|
//! | `lock` | what is asked and answered: [`Request`], [`Answer`], [`LockLease`], [`FencingToken`], [`Change`] |
//! | `decision` | what a request does to a key, given what is there |
//! | [`authority`] | a table in the memory of one process: many threads, answers at once |
//! | [`shared`] | a table that a partition keeps, for one proxy (durable) or several (highly available) |
//! | `record` | a lock as a partition keeps it |
//! | `limits`, `error` | what clients may ask for; why a request was not carried out |
//! | `moment` | points on a monotonic clock |
//! | `simulation` | proxies, clients and a partition in virtual time, with faults (a cargo feature) |
//!
//! Both tables are machines without I/O, clocks or randomness: requests, results and the time go in,
//! commands come out. They make different promises:
//!
//! | | in memory | kept by a partition |
//! |---|---|---|
//! | an answer takes | less than a microsecond | one transaction, or two |
//! | after a restart | nothing is granted until the longest lease has passed | locks are still there; their leases begin anew |
//! | another proxy may | nothing | do everything |
//! | locks without a lease | refused | possible |
//!
//! Guarantees of both:
//!
//! 1. **One holder.** No two owners hold a key at once, if each counts the lease in its answer from
//!    when it sent the request that was granted, on a clock that goes on while the machine is
//!    suspended and runs at most a sixty-fourth too slow or too fast. Wall clocks do not matter.
//! 2. **Growing tokens.** A grant's token is greater than those of all grants of the key that any
//!    client had learnt of before the request was sent, over restarts and changes of proxies, too;
//!    and greater than those of another table, once the wall clock has passed the time at which that
//!    one granted.
//! 3. **Nothing acknowledged is lost.** A client that got the answer that it holds a key holds it
//!    until its lease ends or it releases it, whichever proxy dies meanwhile; in memory, as long as
//!    the process lives.
//! 4. **Order.** Clients that wait for a key at one proxy get it in the order of arrival.
//! 5. **Bounds.** Keys, values, leases, locks and waiters are limited ([`LockLimits`]), and every
//!    request is answered in bounded time, with [`LockError::Uncertain`] if its outcome is unknown.
//!
//! The crate does not depend on clients or protocols.

#![forbid(unsafe_code)]

pub mod authority;
mod decision;
mod error;
mod limits;
mod lock;
#[cfg(any(test, feature = "simulation"))]
mod model;
mod moment;
mod record;
pub mod shared;
#[cfg(feature = "simulation")]
pub mod simulation;

pub use authority::Authority;
pub use error::LockError;
pub use limits::LockLimits;
pub use lock::{
    Answer, Change, ChangeEffect, ChangeVerdict, FencingToken, Lock, LockLease, Request, Ticket,
};
pub use moment::MonotonicTime;
pub use shared::Shared;
