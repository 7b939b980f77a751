//! The limit on bytes that wait to be sent on a link.
//!
//! Invariants:
//! 1. A message is taken if the waiting bytes then stay within the bound, or if none wait: a single
//!    message may be longer than the bound.
//! 2. After a refusal, the link is informed once that it takes messages again: when at most half
//!    the bound waits and the longest message that was refused would be taken.

use crate::link::SendError;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendLimit {
    bound: usize,
    /// The longest message that was refused since the last such information.
    refused: Option<usize>,
}

impl SendLimit {
    pub(crate) fn new(bound: usize) -> SendLimit {
        SendLimit {
            bound,
            refused: None,
        }
    }

    /// Decides if a message of `len` bytes is taken while `waiting` bytes wait.
    #[inline]
    pub(crate) fn admit(&mut self, waiting: usize, len: usize) -> Result<(), SendError> {
        if waiting == 0 || waiting.saturating_add(len) <= self.bound {
            return Ok(());
        }
        self.refused = Some(self.refused.unwrap_or(0).max(len));
        Err(SendError::Full)
    }

    /// Returns `true` if the link must be informed now that it takes messages again.
    #[inline]
    pub(crate) fn drained(&mut self, waiting: usize) -> bool {
        let Some(refused) = self.refused else {
            return false;
        };
        let fits = waiting.saturating_add(refused) <= self.bound && waiting <= self.bound / 2;
        let drained = waiting == 0 || fits;
        if drained {
            self.refused = None;
        }
        drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_passes_alone() {
        let mut room = SendLimit::new(100);
        assert_eq!(room.admit(0, 1000), Ok(()));
        assert_eq!(room.admit(1, 1000), Err(SendError::Full));
        assert!(!room.drained(1), "it would be refused again");
        assert!(room.drained(0));
        assert!(!room.drained(0), "it is told once");
    }

    #[test]
    fn room_is_told_of_when_half_is_free() {
        let mut room = SendLimit::new(100);
        assert_eq!(room.admit(60, 40), Ok(()));
        assert!(!room.drained(0), "nothing was refused");
        assert_eq!(room.admit(100, 10), Err(SendError::Full));
        assert!(!room.drained(51));
        assert!(room.drained(50));
    }
}
