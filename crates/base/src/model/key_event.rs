//! Changes of keys as events: what an operation has done to a key, in Redis's words, and the listener
//! that gets them.

use super::ids::Tid;

/// Defines the events: of each its name in Redis, the letter of its class in
/// `notify-keyspace-events`, and its description. Their order gives their numbers in messages.
macro_rules! key_events {
    ($($variant:ident $name:literal $class:literal $description:literal;)*) => {
        /// What has happened to a key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum KeyEvent {
            $(#[doc = $description] $variant,)*
        }

        impl KeyEvent {
            /// All events, in the order of their numbers.
            pub const ALL: &[KeyEvent] = &[$(KeyEvent::$variant),*];

            /// Returns the name under which Redis announces the event.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(KeyEvent::$variant => $name,)*
                }
            }

            /// Returns the letter of its class in Redis's `notify-keyspace-events`.
            #[must_use]
            pub fn class(self) -> char {
                match self {
                    $(KeyEvent::$variant => $class,)*
                }
            }
        }
    };
}

key_events! {
    Set "set" '$' "Its value was set.";
    Append "append" '$' "Bytes were appended to its value.";
    SetRange "setrange" '$' "A range of its value was overwritten.";
    SetBit "setbit" '$' "Bits of its value were set.";
    IncrBy "incrby" '$' "An integer was added to its value.";
    IncrByFloat "incrbyfloat" '$' "A fraction was added to its value.";
    Del "del" 'g' "It was deleted.";
    Expire "expire" 'g' "It got a deadline.";
    Persist "persist" 'g' "It lost its deadline.";
    RenameFrom "rename_from" 'g' "It was renamed, and is gone.";
    RenameTo "rename_to" 'g' "Another key was renamed to it.";
    CopyTo "copy_to" 'g' "Another key was copied to it.";
    Restore "restore" 'g' "It was restored from a dump.";
    MoveFrom "move_from" 'g' "It was moved to another database.";
    MoveTo "move_to" 'g' "It came from another database.";
    Expired "expired" 'x' "Its deadline has passed.";
    New "new" 'n' "It did not exist before.";
    HashSet "hset" 'h' "Fields of its hash were set.";
    HashIncrBy "hincrby" 'h' "An integer was added to a field.";
    HashIncrByFloat "hincrbyfloat" 'h' "A fraction was added to a field.";
    HashDelete "hdel" 'h' "Fields were deleted.";
    HashExpire "hexpire" 'h' "Fields got a deadline.";
    HashPersist "hpersist" 'h' "Fields lost their deadlines.";
    HashExpired "hexpired" 'h' "The deadlines of fields have passed.";
    ListPushLeft "lpush" 'l' "Elements were added at the head of its list.";
    ListPushRight "rpush" 'l' "Elements were added at the tail.";
    ListPopLeft "lpop" 'l' "Elements were taken from the head.";
    ListPopRight "rpop" 'l' "Elements were taken from the tail.";
    ListInsert "linsert" 'l' "An element was inserted.";
    ListSet "lset" 'l' "An element was replaced.";
    ListRemove "lrem" 'l' "Elements were removed.";
    ListTrim "ltrim" 'l' "Elements outside of a range were removed.";
    SetAdd "sadd" 's' "Members were added to its set.";
    SetRemove "srem" 's' "Members were removed.";
    SetPop "spop" 's' "Random members were removed.";
    SetInterStore "sinterstore" 's' "An intersection was stored.";
    SetUnionStore "sunionstore" 's' "A union was stored.";
    SetDiffStore "sdiffstore" 's' "A difference was stored.";
    SortedAdd "zadd" 'z' "Members of its sorted set were added or got another score.";
    SortedIncr "zincr" 'z' "A number was added to a score.";
    SortedRemove "zrem" 'z' "Members were removed.";
    SortedRemoveByScore "zremrangebyscore" 'z' "Members with scores in a range were removed.";
    SortedRemoveByRank "zremrangebyrank" 'z' "Members with ranks in a range were removed.";
    SortedRemoveByLex "zremrangebylex" 'z' "Members in a range of bytes were removed.";
    SortedPopMin "zpopmin" 'z' "Members with the least scores were removed.";
    SortedPopMax "zpopmax" 'z' "Members with the greatest scores were removed.";
    SortedInterStore "zinterstore" 'z' "An intersection was stored.";
    SortedUnionStore "zunionstore" 'z' "A union was stored.";
    SortedDiffStore "zdiffstore" 'z' "A difference was stored.";
    SortedRangeStore "zrangestore" 'z' "A range was stored.";
    GeoSearchStore "geosearchstore" 'z' "The result of a search for places was stored.";
    GeoRadiusStore "georadiusstore" 'z' "The result of a search within a radius was stored.";
    StreamAdd "xadd" 't' "An entry was added to its stream.";
    StreamDelete "xdel" 't' "Entries were deleted.";
    StreamTrim "xtrim" 't' "The oldest entries were removed.";
    StreamSetId "xsetid" 't' "Its last id was set.";
    GroupCreate "xgroup-create" 't' "A consumer group was made.";
    GroupDestroy "xgroup-destroy" 't' "A consumer group was removed.";
    GroupSetId "xgroup-setid" 't' "The position of a consumer group was set.";
    ConsumerCreate "xgroup-createconsumer" 't' "A consumer was made.";
    ConsumerDelete "xgroup-delconsumer" 't' "A consumer was removed.";
    PfAdd "pfadd" '$' "Elements were added to its HyperLogLog.";
    SortStore "sortstore" 'l' "The result of a sort was stored.";
    Unannounced "" ' ' "Its value has changed in a way that Redis announces to none.";
    Evicted "evicted" 'e' "It was deleted because memory was full.";
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
