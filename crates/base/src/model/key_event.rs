//! Changes of keys as events: what an operation has done to a key, in Redis's words, and the listener
//! that gets them.

use super::ids::Tid;

/// What has happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum KeyEvent {
    /// Its value was set.
    Set,
    /// Bytes were appended to its value.
    Append,
    /// A range of its value was overwritten.
    SetRange,
    /// Bits of its value were set.
    SetBit,
    /// An integer was added to its value.
    IncrBy,
    /// A fraction was added to its value.
    IncrByFloat,
    /// It was deleted.
    Del,
    /// It got a deadline.
    Expire,
    /// It lost its deadline.
    Persist,
    /// It was renamed, and is gone.
    RenameFrom,
    /// Another key was renamed to it.
    RenameTo,
    /// Another key was copied to it.
    CopyTo,
    /// It was restored from a dump.
    Restore,
    /// It was moved to another database.
    MoveFrom,
    /// It came from another database.
    MoveTo,
    /// Its deadline has passed.
    Expired,
    /// It did not exist before.
    New,
}

impl KeyEvent {
    /// All events, in the order of their numbers.
    pub const ALL: [KeyEvent; 17] = [
        KeyEvent::Set,
        KeyEvent::Append,
        KeyEvent::SetRange,
        KeyEvent::SetBit,
        KeyEvent::IncrBy,
        KeyEvent::IncrByFloat,
        KeyEvent::Del,
        KeyEvent::Expire,
        KeyEvent::Persist,
        KeyEvent::RenameFrom,
        KeyEvent::RenameTo,
        KeyEvent::CopyTo,
        KeyEvent::Restore,
        KeyEvent::MoveFrom,
        KeyEvent::MoveTo,
        KeyEvent::Expired,
        KeyEvent::New,
    ];

    /// Returns the name under which Redis announces the event.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KeyEvent::Set => "set",
            KeyEvent::Append => "append",
            KeyEvent::SetRange => "setrange",
            KeyEvent::SetBit => "setbit",
            KeyEvent::IncrBy => "incrby",
            KeyEvent::IncrByFloat => "incrbyfloat",
            KeyEvent::Del => "del",
            KeyEvent::Expire => "expire",
            KeyEvent::Persist => "persist",
            KeyEvent::RenameFrom => "rename_from",
            KeyEvent::RenameTo => "rename_to",
            KeyEvent::CopyTo => "copy_to",
            KeyEvent::Restore => "restore",
            KeyEvent::MoveFrom => "move_from",
            KeyEvent::MoveTo => "move_to",
            KeyEvent::Expired => "expired",
            KeyEvent::New => "new",
        }
    }
}

/// A listener for changes of keys that transactions have committed.
///
/// The calls come from many threads at once, and from within commits: they must be short. A call comes
/// after the change can be read, and within the epoch of `tid`: once that epoch is durable, no more calls
/// of it come.
pub trait KeyListener: Send + Sync {
    /// Notes an event of a key of a database, by transaction `tid`; of [`KeyEvent::Expired`] that is the transaction that
    /// wrote the version whose deadline has passed.
    fn changed(&self, key: (u16, &[u8]), event: KeyEvent, tid: Tid);
    /// Notes that transaction `tid` has removed all keys.
    fn flushed(&self, tid: Tid);
}
