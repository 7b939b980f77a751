//! The libraries of functions within a long transaction.
//!
//! A server keeps the newest libraries that it has read, and a transaction uses these. Its reads and its commit
//! check in each partition that there are no later ones. If there are, the server reads them, and the
//! transaction runs again.

use std::sync::Arc;

use base::partition::OwnedReply;
use resp::Writer;

use super::call::{Call, CallContext, Results};
use crate::command::LibraryCommand;
use crate::function_libraries::{FunctionLibraries, MalformedLibraries, StoredLibraries};
use crate::refusal::Refusal;
use crate::working_set::Need;

/// The libraries that a transaction uses, or the text of the error why they cannot be used.
pub(super) type UsedLibraries = Result<Arc<FunctionLibraries>, &'static str>;

/// The number of conflicts after which libraries are read from other partitions, one after the other: this
/// node's partition may have lost the newest ones.
const OWN_READS: u32 = 2;

impl CallContext<'_> {
    /// Returns the libraries that the transaction uses.
    ///
    /// # Errors
    /// They must be read first.
    pub(super) fn libraries(&self, to: &mut Results<'_, '_>) -> Result<UsedLibraries, Need> {
        let answer = to.set.take_answer();
        if let Some(used) = to.set.libraries.used() {
            return Ok(Ok(Arc::clone(used)));
        }
        let cache = &self.context.shared.libraries;
        let stored = match answer.map(stored_of) {
            Some(Ok(stored)) => {
                cache.note(&stored);
                stored
            }
            Some(Err(MalformedLibraries)) => {
                let text =
                    "ERR the libraries of functions are damaged, or were stored by a later release";
                return Ok(Err(text));
            }
            None => match cache.newest() {
                Some(stored) => stored,
                None => return Err(Need::Libraries(self.place(to.conflicts))),
            },
        };
        let libraries = Arc::clone(&stored.libraries);
        to.set.libraries.begin_use(stored);
        Ok(Ok(libraries))
    }

    /// Returns a key of the partition from which libraries are read.
    fn place(&self, conflicts: u32) -> Option<Box<[u8]>> {
        let places = &self.context.shared.routes.as_ref()?.places;
        let at = conflicts.saturating_sub(OWN_READS) as usize;
        let place = places.get(at.checked_rem(places.len())?)?;
        Some(place.as_slice().into())
    }

    /// Executes a command on the libraries.
    ///
    /// # Errors
    /// It needs reads first; nothing has happened.
    pub(super) fn execute_on_libraries(
        &self,
        call: &Call<'_>,
        to: &mut Results<'_, '_>,
        command: LibraryCommand,
    ) -> Result<(), Need> {
        let used = self.libraries(to)?;
        let mut writer = Writer::new(to.output, call.protocol);
        let done = used.map_err(Refusal::Text).and_then(|used| {
            let mut own = Arc::clone(&used);
            command(self.context, call.args, &mut own, &mut writer)?;
            if !Arc::ptr_eq(&own, &used) {
                to.set.libraries.change(own);
            }
            Ok(())
        });
        if let Err(refusal) = done {
            refusal.write(call.command.name, &mut writer);
        }
        Ok(())
    }
}

fn stored_of(answer: OwnedReply) -> Result<StoredLibraries, MalformedLibraries> {
    match answer {
        OwnedReply::Bytes(stored) => StoredLibraries::decode(&stored),
        _ => Ok(StoredLibraries::default()),
    }
}
