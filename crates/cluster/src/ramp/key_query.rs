//! The questions of a read's operations about their keys.

use base::eviction::KeyAccess;
use base::partition::OwnedReply;
use base::transaction::Kind;
use base::versions::OwnedContent;
use base::{Op, OpError};

/// The question of one of the operations of [`TransactionClass::Read`](super::TransactionClass::Read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyQuery {
    String,
    IfString,
    Len,
    Exists,
    Kind,
    Expiry,
}

impl KeyQuery {
    /// Returns the question of an operation.
    ///
    /// # Panics
    /// If it is not one of those of [`TransactionClass::Read`](super::TransactionClass::Read).
    pub(crate) fn of(op: &Op<'_>) -> KeyQuery {
        match op {
            Op::Get { .. } => KeyQuery::String,
            Op::GetIfString { .. } => KeyQuery::IfString,
            Op::Len { .. } => KeyQuery::Len,
            Op::Exists { .. }
            | Op::Access {
                access: KeyAccess::Touch,
                ..
            } => KeyQuery::Exists,
            Op::KindOf { .. } => KeyQuery::Kind,
            Op::ExpiryOf { .. } => KeyQuery::Expiry,
            other => unreachable!("{other:?} is not read atomically"),
        }
    }

    /// Returns the key of an operation that has a question.
    pub(crate) fn key_of<'k>(op: &Op<'k>) -> &'k [u8] {
        op.key().expect("it reads one")
    }

    /// Returns the reply if the key holds this; `None`: it is absent.
    pub(crate) fn reply(self, content: Option<OwnedContent>) -> OwnedReply {
        let Some(content) = content else {
            return match self {
                KeyQuery::Len | KeyQuery::Exists => OwnedReply::Int(0),
                _ => OwnedReply::Nil,
            };
        };
        let is_string = content.kind == Kind::String;
        match self {
            KeyQuery::String | KeyQuery::IfString if is_string => OwnedReply::Bytes(content.value),
            KeyQuery::Len if is_string => OwnedReply::Int(content.value.len() as i64),
            KeyQuery::String | KeyQuery::Len => OwnedReply::Error(OpError::WrongType),
            KeyQuery::IfString => OwnedReply::Nil,
            KeyQuery::Exists => OwnedReply::Int(1),
            KeyQuery::Kind => OwnedReply::Kind(content.kind),
            KeyQuery::Expiry => OwnedReply::Deadline(content.deadline),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_those_of_ordinary_reads() {
        let content = |kind| OwnedContent {
            value: b"four".to_vec(),
            kind,
            deadline: Some(9),
        };
        let (string, list) = (content(Kind::String), content(Kind::List));
        let key: &[u8] = b"k";
        let wrong = OwnedReply::Error(OpError::WrongType);
        let bytes = OwnedReply::Bytes(b"four".to_vec());
        for (op, absent, of_string, of_list) in [
            (
                Op::Get { key },
                OwnedReply::Nil,
                bytes.clone(),
                wrong.clone(),
            ),
            (
                Op::GetIfString { key },
                OwnedReply::Nil,
                bytes,
                OwnedReply::Nil,
            ),
            (
                Op::Len { key },
                OwnedReply::Int(0),
                OwnedReply::Int(4),
                wrong,
            ),
            (
                Op::Exists { key },
                OwnedReply::Int(0),
                OwnedReply::Int(1),
                OwnedReply::Int(1),
            ),
            (
                Op::KindOf { key },
                OwnedReply::Nil,
                OwnedReply::Kind(Kind::String),
                OwnedReply::Kind(Kind::List),
            ),
            (
                Op::ExpiryOf { key },
                OwnedReply::Nil,
                OwnedReply::Deadline(Some(9)),
                OwnedReply::Deadline(Some(9)),
            ),
        ] {
            assert_eq!(KeyQuery::of(&op).reply(None), absent, "{op:?}");
            assert_eq!(
                KeyQuery::of(&op).reply(Some(string.clone())),
                of_string,
                "{op:?}"
            );
            assert_eq!(
                KeyQuery::of(&op).reply(Some(list.clone())),
                of_list,
                "{op:?}"
            );
        }
    }
}
