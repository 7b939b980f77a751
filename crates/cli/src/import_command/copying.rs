//! Sends the items of a file, or of a copy in the form of a file.

use std::io::Read;
use std::time::Instant;

use pages::Progress as _;
use values::dump::{RdbError, RdbItem, RdbReader, RdbValue};

use super::deadlines::{now_ms, shifted};
use super::position;
use super::sending::{Batch, Entry, Sender};
use crate::output::say_line;
use crate::progress::ProgressLine;
use crate::signals::StopRequest;

/// What happens with deadlines.
#[derive(Clone, Copy)]
pub(super) enum DeadlineTreatment {
    /// Keys keep them, and a key whose deadline has passed is left out.
    Kept,
    /// Keys get other ones: see [`super::deadlines`].
    Shifted,
}

/// What is copied.
pub(super) struct CopyPlan {
    pub(super) deadlines: DeadlineTreatment,
    /// Items that begin before this position are left out.
    pub(super) continue_at: u64,
    /// The number of keys, if it is known.
    pub(super) keys: Option<u64>,
}

/// What was sent.
#[derive(Debug, Default)]
pub(super) struct Counts {
    keys: u64,
    expired: u64,
    libraries: u64,
}

impl Counts {
    /// Prints them.
    pub(super) fn tell(&self, verb: &str, begun: Instant) {
        let Counts {
            keys,
            expired,
            libraries,
        } = self;
        let mut text = format!("{keys} keys");
        if *libraries > 0 {
            text += &format!(", {libraries} libraries of functions");
        }
        if *expired > 0 {
            text += &format!("; {expired} keys had expired and were left out");
        }
        say_line!("{verb} {text}, in {:.1} s", begun.elapsed().as_secs_f64());
    }
}

/// Sends the items. `unsent` becomes the position of an item before which every item was given to the sender.
///
/// # Errors
/// The text says why it has ended early; `told` makes the text of an error of the reader.
pub(super) fn copy<R: Read>(
    reader: &mut RdbReader<R>,
    plan: &CopyPlan,
    sender: &Sender,
    (stop, progress): (&StopRequest, &mut ProgressLine),
    counts: &mut Counts,
    unsent: &mut u64,
    told: impl Fn(&RdbError) -> String,
) -> Result<(), String> {
    let now_ms = now_ms();
    let mut passed = 0;
    let mut batch = Batch::new(0);
    loop {
        let item = reader.next_item().map_err(|error| told(&error))?;
        let Some(item) = item else { break };
        let position = reader.item_position();
        let first = batch.first_position().unwrap_or(position);
        *unsent = first.max(plan.continue_at);
        let is_wanted = position >= plan.continue_at;
        match item {
            RdbItem::Property { .. } => {}
            RdbItem::Database(number) => {
                sender.send(std::mem::replace(&mut batch, Batch::new(number)))?;
            }
            RdbItem::Library(source) if is_wanted => {
                counts.libraries += 1;
                batch.push(Entry::library(position, &source));
            }
            RdbItem::Key {
                key,
                deadline,
                value,
            } => {
                passed += 1;
                let (is_expired, deadline) = match plan.deadlines {
                    DeadlineTreatment::Kept => {
                        let is_expired = deadline.is_some_and(|deadline| deadline <= now_ms);
                        (is_expired, deadline)
                    }
                    DeadlineTreatment::Shifted if key == position::KEY => {
                        return Err(format!(
                            "the source has the key '{}', under which an import keeps its position in the target: \
                             rename it",
                            String::from_utf8_lossy(&key)
                        ));
                    }
                    DeadlineTreatment::Shifted => (false, deadline.map(shifted)),
                };
                if is_expired {
                    counts.expired += u64::from(is_wanted);
                } else if is_wanted {
                    counts.keys += 1;
                    batch.push(match value {
                        RdbValue::String(value) => Entry::string(position, &key, &value, deadline),
                        RdbValue::Payload(payload) => {
                            Entry::restore(position, &key, &payload, deadline)
                        }
                    });
                }
                progress.done(passed, plan.keys);
            }
            RdbItem::Library(_) => {}
        }
        if batch.is_full() {
            let next = Batch::new(batch.database());
            sender.send(std::mem::replace(&mut batch, next))?;
            if stop.is_wanted() {
                return Err("stopped".to_owned());
            }
        }
    }
    sender.send(batch)
}
