//! Accounts, between which threads transfer money; the total amount must not change.

use base::transaction::ScanContents;
use base::{Abort, Op, Reply};
use kumiki_engine::{Changes, LogFailure, RedoLog, Worker};

use super::replica::Entry;
use super::{Logged, number, owned};

/// Keeps the last entry that its worker has staged.
#[derive(Default)]
pub(crate) struct Last {
    pub(crate) entry: Option<Entry>,
    /// `true` if staged transactions pass their holds on.
    pub(crate) passes: bool,
}

impl RedoLog for Last {
    fn ready(&mut self) -> Result<(), LogFailure> {
        self.entry = None;
        Ok(())
    }

    fn append(
        &mut self,
        _: base::Tid,
        stamp_ms: u64,
        changes: Changes<'_>,
    ) -> Result<(), LogFailure> {
        let changes = changes.iter().map(|change| owned(&change)).collect();
        self.entry = Some(Entry { stamp_ms, changes });
        Ok(())
    }

    fn passes_holds(&self) -> bool {
        self.passes
    }
}

pub(crate) const ACCOUNTS: u8 = 12;
pub(crate) const START: i64 = 100;
/// The sum of all accounts.
pub(crate) const TOTAL: i64 = START * ACCOUNTS as i64;

pub(crate) fn account(number: u8) -> [u8; 2] {
    [b'a', number]
}

/// Returns the sum of all accounts, in a reader's own transaction.
pub(crate) fn total<L: RedoLog>(w: &mut Worker<L>) -> Option<i64> {
    let scan = Op::Scan {
        from: b"a",
        to: Some(b"b"),
        limit: usize::MAX,
        contents: ScanContents::Values,
    };
    let done = match w.execute(&[scan]) {
        Ok(done) => done,
        Err(Abort::Held { .. } | Abort::Conflict { .. }) => return None,
        Err(other) => panic!("{other}"),
    };
    let Reply::Pairs(pairs) = &done.replies()[0] else {
        panic!("{:?}", done.replies());
    };
    Some(
        pairs
            .iter()
            .map(|(_, value)| number(&Reply::Bytes(value)))
            .sum(),
    )
}

/// Returns the entry that opens the accounts.
pub(crate) fn opening() -> Entry {
    let open = |number| Logged::Put {
        key: account(number).to_vec(),
        value: START.to_string().into_bytes(),
        kind: base::transaction::Kind::String,
        generation: 0,
        deadline: None,
        origin: None,
    };
    Entry {
        stamp_ms: 0,
        changes: (0..ACCOUNTS).map(open).collect(),
    }
}
