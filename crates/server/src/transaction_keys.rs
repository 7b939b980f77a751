//! The keys of a transaction, as a command gets them that executes operations of which later ones depend on the
//! replies to earlier ones.
//!
//! | keys | where they are |
//! |---|---|
//! | [`TransactionKeys::Copied`] | in the working set of a transaction in several steps |
//! | [`TransactionKeys::InPlace`] | in the partition, within a transaction of it: no value is copied |

use base::Op;
use base::key_event::KeyEvent;
use base::nested::{NestedItem, NestedReply};
use base::partition::OwnedReply;
use base::transaction::{Kind, ValueCall};
use smallvec::SmallVec;
use store::Txn;

use crate::compound_stop::CompoundStop;
use crate::refusal::Refusal;
use crate::working_set::WorkingSet;

/// See the module's description.
pub(crate) enum TransactionKeys<'a, 'w> {
    Copied(&'a mut WorkingSet),
    /// With the number of databases.
    InPlace(&'a mut Txn<'w>, u16),
}

impl TransactionKeys<'_, '_> {
    /// Executes a command on the collection of a key.
    ///
    /// # Errors
    /// [`Refusal::Failed`]: the command has failed, and has changed nothing. [`CompoundStop::End`]: the partition's
    /// transaction must end.
    pub(crate) fn call(
        &mut self,
        key: &[u8],
        call: ValueCall<'_>,
    ) -> Result<OwnedReply, CompoundStop> {
        let reply = self.execute(&Op::Call { key, call })?;
        let element = match &reply {
            OwnedReply::Nested(nested) => lone_element(nested),
            _ => None,
        };
        Ok(element.map_or(reply, OwnedReply::Bytes))
    }

    /// Returns the type of a key's value; `None`: the key is absent.
    ///
    /// # Errors
    /// [`CompoundStop::End`]: the partition's transaction must end.
    pub(crate) fn kind(&mut self, key: &[u8]) -> Result<Option<Kind>, CompoundStop> {
        Ok(match self.execute(&Op::KindOf { key })? {
            OwnedReply::Kind(kind) => Some(kind),
            _ => None,
        })
    }

    /// Gives the value and the deadline of a key to another one, and deletes it if it `moves`; then both have an event.
    /// Returns `false` if the key is absent.
    ///
    /// # Errors
    /// As [`TransactionKeys::call`].
    pub(crate) fn copy(
        &mut self,
        from: &[u8],
        to: &[u8],
        moves: bool,
    ) -> Result<bool, CompoundStop> {
        let events: &[_] = match moves {
            true => &[(from, KeyEvent::RenameFrom), (to, KeyEvent::RenameTo)],
            false => &[(to, KeyEvent::CopyTo)],
        };
        match self {
            TransactionKeys::Copied(set) => {
                set.require([from, to].into_iter())?;
                let Some(value) = set.value(from).cloned() else {
                    return Ok(false);
                };
                set.set(to, Some(value)).map_err(Refusal::Failed)?;
                if moves {
                    set.set(from, None).map_err(Refusal::Failed)?;
                }
                events.iter().for_each(|(key, event)| set.note(key, *event));
            }
            TransactionKeys::InPlace(txn, _) => {
                if !txn.copy(from, to).map_err(CompoundStop::End)? {
                    return Ok(false);
                }
                if moves {
                    txn.delete(from).map_err(CompoundStop::End)?;
                }
                let events = events.iter();
                let events = events.map(|&(key, event)| Op::Announce { key, event });
                let events: SmallVec<[Op<'_>; 2]> = events.collect();
                txn.execute(&events).map_err(CompoundStop::End)?;
            }
        }
        Ok(true)
    }

    /// Returns the number of databases.
    pub(crate) fn databases(&self) -> u16 {
        match self {
            TransactionKeys::Copied(set) => set.databases(),
            TransactionKeys::InPlace(_, databases) => *databases,
        }
    }

    fn execute(&mut self, op: &Op<'_>) -> Result<OwnedReply, CompoundStop> {
        let reply = match self {
            TransactionKeys::Copied(set) => match set.execute(op) {
                Ok(reply) => reply,
                Err(_) => unreachable!("the operation has no precondition"),
            },
            TransactionKeys::InPlace(txn, _) => {
                let replies = txn.execute(std::slice::from_ref(op));
                OwnedReply::from(&replies.map_err(CompoundStop::End)?[0])
            }
        };
        match reply {
            OwnedReply::Error(error) => Err(Refusal::Failed(error).into()),
            reply => Ok(reply),
        }
    }
}

/// Returns the string of a reply that is one string: a partition answers so where it could not lend its own.
fn lone_element(nested: &NestedReply) -> Option<Vec<u8>> {
    match nested.items().next()? {
        NestedItem::Bytes(element) => Some(element.to_vec()),
        _ => None,
    }
}
