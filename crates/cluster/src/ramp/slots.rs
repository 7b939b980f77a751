//! Slots (paper 1, section 3.2; GET\*): the newest committed versions of read-atomic keys in registered
//! memory, which other processes read without their owner's processor.
//!
//! | module | what |
//! |---|---|
//! | `header` | the first words of a region: what holds for all slots |
//! | `image`, `state` | a slot's words |
//! | `gate` | counts the writers of keys, against publishing old versions |
//! | `slot_allocator`, `classes` | free memory, and which slots give way |
//! | `region_part` | a piece of the region with a lock of its own |
//! | `owner`, `options` | [`Slots`]: what the owner does |
//! | `address` | [`Address`] of a key's slot |
//! | `reader` | [`Reader`]: checks what it has read |
//! | `lease` | how long it is valid |
//!
//! **The guarantee of a read.** A version that [`Reader`] returns was the newest committed one of its
//! key at one moment between the beginning and the end of the read: reads of slots, and those that the
//! owner answers, are together linearizable, key by key. Proof:
//!
//! 1. State and checksum fit, otherwise no version is returned. So the words are those of one
//!    publication, and at the moment *t* at which the state was read the slot was valid with this
//!    publication, whose number is never used again. (Under another layout the word might not have been
//!    a state; the header, which is read later, would show the change.)
//! 2. As long as a slot is valid with a publication, that version is the newest one. It was when the
//!    slot was made valid, under the lock: no writer had begun since the version was read, or a writer
//!    had begun that waited for the lock to clear the slot (`gate`, 1 to 3). And every later writer
//!    clears it before its effect can be seen.
//! 3. So the version was the newest one at *t*, unless it had expired by then, or another owner had
//!    taken over. The header is read after *t*. Its time only grows, so the engine's had not reached the
//!    deadline. And its lease lasts beyond the end of the read: it had begun before the read did, since
//!    an owner that takes up a lease anew waits for the grace period first, and reads that take longer
//!    are given up; so no other owner had taken over at *t*.
//! 4. Nothing older than what was acknowledged is returned: its writer had cleared the slot before, and
//!    each later publication is that version or a newer one.
//!
//! **The owner's duties**, so that this holds:
//!
//! | when | what |
//! |---|---|
//! | a write, a delete or a commit gives a key another newest version | [`Slots::writing`], before it can be seen |
//! | it can be seen | [`Slots::written`], before it is acknowledged |
//! | all keys are flushed | [`Slots::writing_all`], [`Slots::written_all`] |
//! | a key is asked for, or was written and has a slot | [`Slots::ticket`]; read the newest version; wait until it is durable; [`Slots::publish`], unless it is [`Slots::current`] |
//! | the engine's time moves on | [`Slots::refresh_time`], before an answer depends on it; or it publishes nothing that expires |
//! | it lives on, and no other owner can have its keys | [`Slots::extend_lease`] |
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
mod reader;
mod region_part;
mod slot_allocator;
mod state;
mod sync;

pub use address::Address;
pub use lease::{DRIFT_PPM, OwnersClock, waits_until};
pub use options::{Options, Unsuited};
pub use owner::{Clock, Figures, Slots, Ticket};
pub use reader::{Ask, Fallback, Reader};
pub use region_part::Unpublished;
