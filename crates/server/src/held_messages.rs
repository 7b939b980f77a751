//! Messages of publish/subscribe that wait until what their publishers have done is durable.

use std::collections::VecDeque;
use std::sync::Arc;

use base::Epoch;
use reactor::budget::{Budget, Share};

use channels::ChannelMessage;

/// See the module's description.
pub(crate) struct HeldMessages {
    queue: VecDeque<HeldMessage>,
    bytes: usize,
    /// Their share of the memory that all connections have together.
    share: Share,
}

/// A message that waits.
pub(crate) struct HeldMessage {
    pub(crate) message: Arc<ChannelMessage>,
    /// The epoch that it waits for.
    pub(crate) epoch: Epoch,
    /// The epoch with which it is lost.
    pub(crate) lost_with: Option<Epoch>,
}

/// There is no room for messages that wait.
pub(crate) struct NoRoom {
    /// The bytes of all of them.
    pub(crate) bytes: usize,
}

impl HeldMessages {
    pub(crate) fn new(budget: &Arc<Budget>) -> HeldMessages {
        HeldMessages {
            queue: VecDeque::new(),
            bytes: 0,
            share: Share::new(budget),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the newest epoch that a message waits for.
    pub(crate) fn waits_for(&self) -> Option<Epoch> {
        self.queue.iter().map(|held| held.epoch).max()
    }

    /// Keeps a message.
    ///
    /// # Errors
    /// There is no room for it; it is dropped.
    pub(crate) fn hold(&mut self, held: HeldMessage) -> Result<(), NoRoom> {
        let bytes = self.bytes + held.message.bytes();
        self.share.set(bytes).map_err(|_| NoRoom { bytes })?;
        self.bytes = bytes;
        self.queue.push_back(held);
        Ok(())
    }

    /// Returns the messages whose time has come, in their order, and drops those that are lost. `outcome`
    /// returns `Some(true)` for an epoch that is durable, `Some(false)` for one that is lost, and `None` while
    /// neither is known.
    pub(crate) fn release(
        &mut self,
        outcome: impl Fn(Epoch) -> Option<bool>,
    ) -> Vec<Arc<ChannelMessage>> {
        let mut due = Vec::new();
        let mut freed = 0;
        self.queue.retain(|held| {
            let is_lost = held
                .lost_with
                .is_some_and(|own| outcome(own) == Some(false));
            let is_due = outcome(held.epoch).is_some();
            if is_due && !is_lost {
                due.push(Arc::clone(&held.message));
            }
            let ends = is_due || is_lost;
            freed += if ends { held.message.bytes() } else { 0 };
            !ends
        });
        self.free(freed);
        due
    }

    /// Drops all messages: what they wait for never becomes durable.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.free(self.bytes);
    }

    fn free(&mut self, bytes: usize) {
        self.bytes -= bytes;
        let smaller = self.share.set(self.bytes);
        debug_assert!(smaller.is_ok(), "a smaller share is always granted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(text: &str, epoch: u64, lost_with: Option<u64>) -> HeldMessage {
        HeldMessage {
            message: Arc::new(ChannelMessage {
                sharded: false,
                channel: b"c".as_slice().into(),
                payload: text.as_bytes().into(),
            }),
            epoch: Epoch(epoch),
            lost_with: lost_with.map(Epoch),
        }
    }

    fn texts(messages: &[Arc<ChannelMessage>]) -> Vec<String> {
        let payloads = messages.iter().map(|message| message.payload.to_vec());
        payloads
            .map(|text| String::from_utf8(text).unwrap())
            .collect()
    }

    #[test]
    fn messages_leave_in_order_when_what_they_wait_for_is_decided() {
        let mut messages = HeldMessages::new(&Budget::new(1 << 20));
        for (text, epoch, own) in [
            ("a", 3, Some(3)),
            ("b", 4, Some(4)),
            ("c", 4, None),
            ("d", 9, None),
        ] {
            assert!(messages.hold(held(text, epoch, own)).is_ok());
        }
        assert_eq!(messages.waits_for(), Some(Epoch(9)));
        assert!(messages.release(|_| None).is_empty());
        // The fourth epoch is lost: with it the message of its block, and not the one behind it.
        let outcome = |epoch: Epoch| (epoch < Epoch(5)).then_some(epoch != Epoch(4));
        assert_eq!(texts(&messages.release(outcome)), ["a", "c"]);
        assert!(messages.release(outcome).is_empty() && !messages.is_empty());
        messages.clear();
        assert_eq!(
            (messages.is_empty(), messages.bytes, messages.share.taken()),
            (true, 0, 0)
        );
    }

    #[test]
    fn messages_without_room_are_refused() {
        let budget = Budget::new(200 << 10);
        let mut messages = HeldMessages::new(&budget);
        let text = "x".repeat(150 << 10);
        assert!(messages.hold(held(&text, 3, None)).is_ok());
        assert!(messages.hold(held(&text, 3, None)).is_err());
        assert_eq!(messages.release(|_| Some(true)).len(), 1);
        assert!(messages.hold(held(&text, 4, None)).is_ok());
    }
}
