//! The table of commands on collections, and their execution.

use base::key_event::KeyEvent;
use base::transaction::{CallError, Kind, OpError, Reply, ValueCall};
use smallvec::SmallVec;

use crate::collection::CollectionView;
use crate::collection_editor::CollectionEditor;

/// A value of a key.
#[derive(Debug)]
pub struct StoredValue<'v> {
    /// Its type.
    pub kind: Kind,
    /// Its bytes, or its trees.
    pub data: StoredData<'v>,
}

/// A value of a key as bytes.
#[derive(Clone, Copy, Debug)]
pub struct StoredBlock<'v> {
    /// Its type.
    pub kind: Kind,
    /// Its bytes.
    pub bytes: &'v [u8],
}

impl<'v> From<StoredBlock<'v>> for StoredValue<'v> {
    fn from(block: StoredBlock<'v>) -> StoredValue<'v> {
        StoredValue::new(block.kind, block.bytes)
    }
}

/// The data of a value.
#[derive(Debug)]
pub enum StoredData<'v> {
    /// A string, or a collection as one packed block.
    Bytes(&'v [u8]),
    /// A large collection, of which a command reads.
    Tree(CollectionView<'v>),
    /// A large collection, which a command may change.
    Editor(&'v mut CollectionEditor),
}

impl<'v> StoredValue<'v> {
    /// Returns a value with these bytes.
    #[must_use]
    pub fn new(kind: Kind, bytes: &'v [u8]) -> StoredValue<'v> {
        let data = StoredData::Bytes(bytes);
        StoredValue { kind, data }
    }
}

/// The change of a value by a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueChange {
    /// The value is as before.
    None,
    /// The value has this type and these bytes now. The key's deadline stays.
    Set(Kind, Vec<u8>),
    /// The editor that the command was given has changed.
    Edited,
    /// The key is deleted: its last element is gone.
    Delete,
}

/// What a command has answered and changed.
#[derive(Debug)]
pub struct CallOutcome<'v> {
    /// The reply; its bytes are those of the value before the command.
    pub reply: Reply<'v>,
    /// The change of the value.
    pub change: ValueChange,
    /// The events of the key, in their order; none without a change.
    pub events: SmallVec<[KeyEvent; 2]>,
}

impl<'v> CallOutcome<'v> {
    /// Returns the outcome of a command that has changed nothing.
    pub(crate) fn unchanged(reply: Reply<'v>) -> CallOutcome<'v> {
        CallOutcome {
            reply,
            change: ValueChange::None,
            events: SmallVec::new(),
        }
    }

    /// Returns the outcome of a command after which the value has these bytes; `None`: those that it had.
    /// The key is deleted if the value has no elements, which `is_empty` says.
    pub(crate) fn changed(
        reply: Reply<'v>,
        event: KeyEvent,
        (kind, changed, is_empty): (Kind, Option<ChangedData>, bool),
    ) -> CallOutcome<'v> {
        let Some(changed) = changed else {
            return CallOutcome::unchanged(reply);
        };
        let mut events: SmallVec<[KeyEvent; 2]> = SmallVec::new();
        events.push(event);
        let change = match is_empty {
            true => {
                events.push(KeyEvent::Del);
                ValueChange::Delete
            }
            false => match changed {
                ChangedData::Bytes(bytes) => ValueChange::Set(kind, bytes),
                ChangedData::Edited => ValueChange::Edited,
            },
        };
        CallOutcome {
            reply,
            change,
            events,
        }
    }
}

/// The data of a value that was changed.
pub(crate) enum ChangedData {
    /// The bytes now.
    Bytes(Vec<u8>),
    /// The editor was used.
    Edited,
}

impl ChangedData {
    /// Returns the bytes, if they were changed.
    pub(crate) fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            ChangedData::Bytes(bytes) => Some(bytes),
            ChangedData::Edited => None,
        }
    }
}

/// The arguments of a command behind its key, and what else it depends on.
#[derive(Clone, Copy)]
pub(crate) struct CallArguments<'c> {
    pub(crate) args: &'c [&'c [u8]],
    pub(crate) time_ms: u64,
    pub(crate) seed: u64,
}

/// Executes a command. `None`: the key is absent.
pub(crate) type Execute =
    for<'v> fn(CallArguments<'_>, Option<StoredValue<'v>>) -> Result<CallOutcome<'v>, OpError>;

/// Defines the commands of a module: of each its constant, the number, and its function. The numbers are part
/// of the format of messages.
macro_rules! calls {
    ($($name:ident = $number:expr => $execute:ident;)*) => {
        $(
            #[doc = concat!("The number of `", stringify!($name), "`.")]
            pub const $name: u16 = $number;
        )*

        /// Returns the function of a command.
        #[inline]
        pub(crate) fn function_of(command: u16) -> Option<$crate::call::Execute> {
            match command {
                $($name => Some($execute),)*
                _ => None,
            }
        }
    };
}
pub(crate) use calls;

/// The bit of the numbers of commands that may write.
pub(crate) const W: u16 = ValueCall::WRITES;
/// The bit of the numbers of commands that choose at random.
pub(crate) const RANDOM: u16 = ValueCall::RANDOM;

/// Returns the data of a value, which must have this type; no bytes for an absent key.
#[inline]
pub(crate) fn data_of(
    value: Option<StoredValue<'_>>,
    kind: Kind,
) -> Result<StoredData<'_>, OpError> {
    match value {
        None => Ok(StoredData::Bytes(b"")),
        Some(value) if value.kind == kind => Ok(value.data),
        Some(_) => Err(OpError::WrongType),
    }
}

/// Returns the bytes of a value of a type whose values have no trees; no bytes for an absent key.
#[inline]
pub(crate) fn bytes_of(value: Option<StoredValue<'_>>, kind: Kind) -> Result<&[u8], OpError> {
    match data_of(value, kind)? {
        StoredData::Bytes(bytes) => Ok(bytes),
        _ => Err(OpError::Call(CallError::Corrupt)),
    }
}
