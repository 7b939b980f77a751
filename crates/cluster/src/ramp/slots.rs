//! Slots (paper 1, section 3.2; GET\*): the newest committed versions of read-atomic keys in
//! registered memory, which others read without their owner's processor.
//!
//! | module | what |
//! |---|---|
//! | `header` | the first words of a region: what holds for all slots |
//! | `image`, `state` | a slot's words |
//! | `gate` | who writes a key, and whether it was written |
//! | `room`, `classes` | which memory is free, and who gives way |
//! | `part` | a piece of the region with a lock of its own |
//! | `owner`, `options` | [`Slots`]: what the owner does |
//! | `address` | [`Address`]: where a key's slot is |
//! | `reader` | [`Reader`]: what is believed of what was read |
//! | `lease` | until when |
//!
//! **What a read promises.** A version that [`Reader`] hands out was the newest committed one of its
//! key at one moment between the beginning and the end of the read: reads of slots, and those that
//! the owner answers, are key by key linearizable together. Proof:
//!
//! 1. State and checksum fit, else nothing is handed out. So the words are those of one publication,
//!    and at the moment *t* at which the state was read the slot was valid with this publication,
//!    whose number is never used again. (Under another layout the word might not have been a state;
//!    the header, which is read later, would show the change.)
//! 2. As long as a slot is valid with a publication, that version is the newest one. It was when the
//!    slot was made valid, under the lock: no writer had begun since the version was read, or one had
//!    who waited for the lock to clear the slot (`gate`, 1 to 3). And every later writer clears it
//!    before its effect can be seen.
//! 3. So the version was the newest one at *t*, unless it had expired by then, or another owner had
//!    taken over. The header is read after *t*. The time that it says only grows, so the engine's had
//!    not reached the deadline. And its lease lasts beyond the end of the read: it had begun before
//!    the read did, for whoever takes up a lease anew waits for the grace period first, and reads that
//!    take longer are given up; so nobody else had taken over at *t*.
//! 4. Nothing older than what was acknowledged is handed out: its writer had cleared the slot before,
//!    and whatever was published afterwards is that or newer.
//!
//! **What the owner has to do** for this to hold:
//!
//! | when | what |
//! |---|---|
//! | a write, a delete or a commit gives a key another newest version | [`Slots::writing`], before it can be seen |
//! | it can be seen | [`Slots::written`], before it is acknowledged |
//! | all keys are flushed | [`Slots::writing_all`], [`Slots::written_all`] |
//! | a key is asked for, or was written and has a slot | [`Slots::ticket`]; read the newest version; wait until it is durable; [`Slots::publish`], unless it is [`Slots::current`] |
//! | the engine's time moves on | [`Slots::refresh_time`], before an answer depends on it; or it publishes nothing that expires |
//! | it lives on, and nobody else can have its keys | [`Slots::extend_lease`] |
//! | leadership was confirmed | [`Slots::set_lease`], but not before it has lasted for the grace period |
//! | it loses its leadership, or is about to | [`Slots::set_lease`] with 0 |
//! | it ends | [`Slots::revoke`] |
//! | it begins | acknowledge nothing before [`waits_until`] |

mod address;
mod classes;
mod gate;
mod header;
mod image;
mod lease;
mod options;
mod owner;
mod part;
mod reader;
mod room;
mod state;
mod sync;

pub use address::Address;
pub use lease::{DRIFT_PPM, OwnersClock, waits_until};
pub use options::{Options, Unsuited};
pub use owner::{Clock, Figures, Slots, Ticket};
pub use part::Unpublished;
pub use reader::{Ask, Fallback, Reader};
