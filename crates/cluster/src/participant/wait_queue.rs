//! The requests that wait for holds.
//!
//! Invariant: a prepare waits only if its transaction is older than the holder of what it needs, and
//! than every other prepare that waits for one of the same keys: the others have to give way.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::participant::Sequenced;
use base::transaction::Holder;
use base::{Op, TransactionId};
use fabric::Link;

use crate::codec;
use crate::requester::Requester;

/// A request that waits for holds.
pub(super) struct BlockedRequest {
    pub(super) requester: Requester,
    /// The operations, encoded.
    pub(super) ops: Vec<u8>,
    /// When it is answered that the keys are held.
    pub(super) until: Duration,
    pub(super) kind: BlockedKind,
    /// The holder of what it needs.
    pub(super) by: Holder,
}

/// What a blocked request asks for.
pub(super) enum BlockedKind {
    Execute,
    Once(Sequenced),
    Read,
    Prepare(BlockedPrepare),
    Commit { id: TransactionId, awaited: bool },
}

/// A serializable attempt that waits to be prepared.
pub(super) struct BlockedPrepare {
    pub(super) holder: Holder,
    pub(super) siblings: Vec<u8>,
    pub(super) note: Vec<u8>,
}

impl BlockedRequest {
    /// Returns the holder of the prepare, if it waits to be prepared.
    pub(super) fn prepare_holder(&self) -> Option<Holder> {
        match &self.kind {
            BlockedKind::Prepare(prepare) => Some(prepare.holder),
            BlockedKind::Execute
            | BlockedKind::Once(_)
            | BlockedKind::Read
            | BlockedKind::Commit { .. } => None,
        }
    }
}

/// The attempts that wait to be prepared, at all threads of a process: shared by its
/// [`Node`](crate::Node)s.
#[derive(Clone, Debug, Default)]
pub struct WaitingPrepares(Arc<Mutex<HashSet<TransactionId>>>);

impl WaitingPrepares {
    fn ids(&self) -> MutexGuard<'_, HashSet<TransactionId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, requests: &[BlockedRequest]) {
        let mut holders = requests
            .iter()
            .filter_map(BlockedRequest::prepare_holder)
            .peekable();
        if holders.peek().is_some() {
            let mut ids = self.ids();
            for holder in holders {
                ids.remove(&holder.id);
            }
        }
    }
}

/// The requests that wait for holds at one [`Node`](crate::Node).
pub(super) struct HoldWaitQueue {
    requests: Vec<BlockedRequest>,
    prepares: WaitingPrepares,
}

impl HoldWaitQueue {
    pub(super) fn new(prepares: WaitingPrepares) -> HoldWaitQueue {
        HoldWaitQueue {
            requests: Vec::new(),
            prepares,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns `true` if an attempt waits to be prepared at any thread of the process.
    pub(super) fn has_prepare(&self, id: TransactionId) -> bool {
        self.prepares.ids().contains(&id)
    }

    pub(super) fn push(&mut self, request: BlockedRequest) {
        if let BlockedKind::Prepare(prepare) = &request.kind {
            self.prepares.ids().insert(prepare.holder.id);
        }
        self.requests.push(request);
    }

    /// Returns an older prepare that waits for a key which this one needs, too.
    pub(super) fn older_conflict(&self, holder: Holder, ops: &[Op<'_>]) -> Option<Holder> {
        let older = self.requests.iter().filter_map(|request| {
            let other = request.prepare_holder()?;
            ((other.age, other.id) < (holder.age, holder.id)).then_some((other, request))
        });
        let flushes = |ops: &[Op<'_>]| {
            ops.iter().any(|op| {
                matches!(
                    op,
                    Op::Flush | Op::FlushDatabase { .. } | Op::SwapDatabases { .. }
                )
            })
        };
        for (other, request) in older {
            let theirs = codec::decode_ops(&request.ops).expect("it was encoded here");
            let needed = |key| ops.iter().any(|op| op.key() == Some(key));
            let conflict = theirs.iter().filter_map(Op::key).any(needed);
            if conflict || flushes(&theirs) || flushes(ops) {
                return Some(other);
            }
        }
        None
    }

    /// Takes all requests: first those that are no prepares, then the prepares, the oldest first.
    pub(super) fn take_all(&mut self) -> Vec<BlockedRequest> {
        let mut requests = std::mem::take(&mut self.requests);
        self.prepares.remove(&requests);
        requests.sort_by_key(|one| one.prepare_holder().map(|holder| (holder.age, holder.id)));
        requests
    }

    /// Returns the request at an index, in the order in which requests came.
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut BlockedRequest> {
        self.requests.get_mut(index)
    }

    /// Takes the requests that have waited for too long.
    pub(super) fn take_expired(&mut self, now: Duration) -> Vec<BlockedRequest> {
        self.take(|request| request.until <= now)
    }

    /// Drops the requests that came on a link that is down.
    pub(super) fn drop_link(&mut self, link: Link) {
        self.take(|one| matches!(one.requester, Requester::Remote { link: on, .. } if on == link));
    }

    /// Takes the prepare of an attempt.
    pub(super) fn take_prepare(&mut self, id: TransactionId) -> Vec<BlockedRequest> {
        self.take(|one| one.prepare_holder().is_some_and(|holder| holder.id == id))
    }

    fn take(&mut self, is_over: impl Fn(&BlockedRequest) -> bool) -> Vec<BlockedRequest> {
        let over = |request: &mut BlockedRequest| is_over(request);
        let over: Vec<BlockedRequest> = self.requests.extract_if(.., over).collect();
        self.prepares.remove(&over);
        over
    }
}
