//! Keyspace notifications: the events of keys, from the commits that cause them to the subscribers of their
//! channels.
//!
//! A commit queues its events here while its worker is in the epoch. The first runtime sends those of
//! durable epochs as messages, to `__keyspace@DATABASE__:` and the key, and to `__keyevent@DATABASE__:` and the event.
//!
//! Invariants:
//! 1. An event leaves when what it tells of is durable. All events of an epoch are here before it is.
//! 2. The events of a key leave in the order of its versions: those that leave together are in the order
//!    of their transactions, and an epoch's leave together.
//! 3. While no class of events is wanted, nothing is queued.

use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use base::key_event::KeyEvent;
use base::{Epoch, Tid};
use channels::ChannelMessage;

use crate::durable_queue::DurableQueue;

/// The classes of events that clients can ask for, as bits, by their letters in `notify-keyspace-events`.
const LETTERS: [(char, u32); 13] = [
    ('g', 1 << 0),
    ('$', 1 << 1),
    ('l', 1 << 2),
    ('s', 1 << 3),
    ('h', 1 << 4),
    ('z', 1 << 5),
    ('x', 1 << 6),
    ('e', 1 << 7),
    ('t', 1 << 8),
    ('d', 1 << 9),
    ('K', KEYSPACE),
    ('E', KEYEVENT),
    ('n', NEW),
];
/// `A`: the first ten.
const ALL: u32 = (1 << 10) - 1;
const KEYSPACE: u32 = 1 << 10;
const KEYEVENT: u32 = 1 << 11;
const NEW: u32 = 1 << 12;

/// The classes of events of keys that clients want, with the letters of Redis's
/// `notify-keyspace-events`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventClasses(u32);

/// A letter stands for no class of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Invalid event class character. Use 'Ag$lshzxeKEtdn'.")]
pub struct UnknownEventClass;

impl FromStr for EventClasses {
    type Err = UnknownEventClass;

    fn from_str(text: &str) -> Result<EventClasses, UnknownEventClass> {
        let mut bits = 0;
        for letter in text.chars() {
            let known = LETTERS.iter().find(|(known, _)| *known == letter);
            bits |= match letter {
                'A' => ALL,
                _ => known.ok_or(UnknownEventClass)?.1,
            };
        }
        Ok(EventClasses(bits))
    }
}

impl EventClasses {
    /// Returns `true` if a message can follow from an event.
    fn wants_any(self) -> bool {
        self.0 & (KEYSPACE | KEYEVENT) != 0 && self.0 & (ALL | NEW) != 0
    }

    fn has(self, event: KeyEvent) -> bool {
        let class = LETTERS.iter().find(|(letter, _)| *letter == event.class());
        class.is_some_and(|(_, bit)| self.0 & bit != 0)
    }
}

impl std::fmt::Display for EventClasses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::fmt::Write as _;

        let all = self.0 & ALL == ALL;
        if all {
            f.write_char('A')?;
        }
        // As in Redis, `n` does not stand behind `A`.
        let shown = |bit: u32| self.0 & bit != 0 && !(all && bit & (ALL | NEW) != 0);
        let letters = LETTERS.iter().filter(|(_, bit)| shown(*bit));
        letters
            .into_iter()
            .try_for_each(|(letter, _)| f.write_char(*letter))
    }
}

/// An event that waits until it is durable.
pub(crate) struct QueuedEvent {
    database: u16,
    key: Box<[u8]>,
    event: KeyEvent,
}

/// See the module's description.
#[derive(Default)]
pub(crate) struct KeyEvents {
    classes: AtomicU32,
    pub(crate) queue: DurableQueue<QueuedEvent>,
}

impl KeyEvents {
    /// Returns the classes of events that clients want.
    pub(crate) fn classes(&self) -> EventClasses {
        EventClasses(self.classes.load(Ordering::Relaxed))
    }

    /// Sets the classes of events that clients want.
    pub(crate) fn set_classes(&self, classes: EventClasses) {
        self.classes.store(classes.0, Ordering::SeqCst);
    }

    /// Returns `true` if any events are wanted.
    #[inline]
    pub(crate) fn wants_any(&self) -> bool {
        self.classes().wants_any()
    }

    /// Queues an event if its class is wanted. Returns `true` if the first runtime is to be woken.
    pub(crate) fn add(&self, (database, key): (u16, &[u8]), event: KeyEvent, tid: Tid) -> bool {
        let classes = self.classes();
        if !classes.wants_any() || !classes.has(event) {
            return false;
        }
        let key = key.into();
        let queued = QueuedEvent {
            database,
            key,
            event,
        };
        self.queue.push(tid, queued)
    }

    /// Removes the events of epochs up to `durable`. Returns their messages, in order.
    pub(crate) fn release(&self, durable: Epoch) -> Vec<ChannelMessage> {
        let classes = self.classes();
        let mut messages = Vec::new();
        for queued in self.queue.release(durable) {
            let (name, key) = (queued.event.name().as_bytes(), &queued.key[..]);
            let kinds = [
                (KEYSPACE, "keyspace", key, name),
                (KEYEVENT, "keyevent", name, key),
            ];
            for (bit, prefix, channel, payload) in kinds {
                if classes.0 & bit != 0 {
                    let prefix = format!("__{prefix}@{}__:", queued.database);
                    messages.push(ChannelMessage {
                        sharded: false,
                        channel: [prefix.as_bytes(), channel].concat().into(),
                        payload: payload.into(),
                    });
                }
            }
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_shown_as_redis_shows_them() {
        for (given, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("xE", "xE"),
            ("E$gK", "g$KE"),
            ("g$lshzxetdKEn", "AKE"),
        ] {
            let classes = given.parse::<EventClasses>().unwrap();
            assert_eq!(classes.to_string(), shown, "{given}");
        }
        assert_eq!("KQ".parse::<EventClasses>(), Err(UnknownEventClass));
    }

    #[test]
    fn events_leave_when_they_are_durable_in_the_order_of_their_transactions() {
        let events = KeyEvents::default();
        let tid = |epoch, sequence| Tid::new(Epoch(epoch), sequence);
        assert!(!events.add((0, b"a"), KeyEvent::Set, tid(3, 1)));
        events.set_classes("A".parse().unwrap());
        assert!(
            !events.add((0, b"a"), KeyEvent::Set, tid(3, 1)),
            "it goes to no channel"
        );
        events.set_classes("E$x".parse().unwrap());
        assert!(events.add((0, b"b"), KeyEvent::Append, tid(3, 2)));
        assert!(!events.add((0, b"c"), KeyEvent::Set, tid(4, 0)));
        assert!(!events.add((0, b"a"), KeyEvent::Set, tid(3, 1)));
        assert!(
            !events.add((0, b"a"), KeyEvent::Del, tid(3, 1)),
            "its class is not wanted"
        );
        assert_eq!(events.queue.waits_for(), Some(Epoch(4)));
        assert!(events.release(Epoch(2)).is_empty());
        let texts = |messages: Vec<ChannelMessage>| -> Vec<String> {
            let text = |message: &ChannelMessage| {
                let of = String::from_utf8_lossy;
                format!("{} {}", of(&message.channel), of(&message.payload))
            };
            messages.iter().map(text).collect()
        };
        let due = texts(events.release(Epoch(3)));
        assert_eq!(due, ["__keyevent@0__:set a", "__keyevent@0__:append b"]);
        assert_eq!(events.queue.waits_for(), Some(Epoch(4)));
        assert_eq!(events.release(Epoch(4)).len(), 1);
        assert_eq!(events.queue.waits_for(), None);
    }
}
