//! How a long transaction continues after its operations were refused.

use base::Abort;

use super::LongTransaction;
use crate::function_libraries::LibraryCache;

/// The number of runs that meet conflicts before the transaction is refused.
const RUNS: u32 = 1000;

/// How a long transaction continues that did not commit.
pub(crate) enum Continuation {
    /// It runs again, from the beginning.
    RunAgain,
    /// Its client gets this answer.
    Answer(Abort),
}

impl LongTransaction {
    /// Decides how it continues after its commit did not take effect. Libraries that it has used and that are
    /// not the newest ones leave the cache.
    pub(crate) fn revise(&mut self, abort: Abort, cache: &LibraryCache) -> Continuation {
        match abort {
            Abort::Precondition { op } if op >= self.watches.len() => {
                if op == self.watches.len() {
                    self.forget_libraries(cache);
                }
                self.note_conflict()
            }
            abort => Continuation::Answer(abort),
        }
    }

    /// As [`LongTransaction::revise`], after operations that read.
    pub(crate) fn revise_read(&mut self, abort: Abort, cache: &LibraryCache) -> Continuation {
        match abort {
            // Nothing else of a read is checked.
            Abort::Precondition { .. } => {
                self.forget_libraries(cache);
                self.note_conflict()
            }
            abort => Continuation::Answer(abort),
        }
    }

    fn forget_libraries(&self, cache: &LibraryCache) {
        if let Some(generation) = self.run.set.libraries.generation() {
            cache.forget(generation);
        }
    }

    fn note_conflict(&mut self) -> Continuation {
        self.conflicts += 1;
        match self.conflicts {
            RUNS.. => Continuation::Answer(Abort::Conflict {
                attempts: self.conflicts,
            }),
            _ => Continuation::RunAgain,
        }
    }
}
