//! Slots and their readers: what they accept, and what they must reject.
//!
//! | module | contents |
//! |---|---|
//! | `support` | memory that is read in odd ways, and an owner with a clock of its own |
//! | `protocol` | one thing at a time: writers, tickets, room |
//! | `trust` | the header: leases, time, revocation, other owners |
//! | `torn` | a million reads of a slot that is being published |
//! | `processes` | a million reads of slots that another process publishes |
//! | `reuse` | slots that pass from key to key under readers that are slow, or stopped |
//! | `histories` | writers, publishers and readers at once: every key linearizable |

mod histories;
mod processes;
mod protocol;
mod reuse;
pub(crate) mod support;
mod torn;
mod trust;
