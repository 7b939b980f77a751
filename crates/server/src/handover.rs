//! Who waits until clients that wait for keys have had their turn: the connection whose command has changed
//! the keys.
//!
//! As in Redis the elements that a command adds go to the clients that wait for them before the command is
//! answered, and before the next one of its connection executes. A [`ReplyHandover`] is shared by all turns that
//! follow from a command, also from the turns of clients whose own commands change further keys (`BLMOVE`). When
//! the last turn has ended, the connection goes on.
//!
//! Commits note keys within the thread that executes the command, so that the handover is a variable of the
//! thread.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::runtime_signal::RuntimeSignal;

/// See the module's description. The runtime is woken when the last reference goes.
pub(crate) struct ReplyHandover {
    signals: Arc<[RuntimeSignal]>,
    /// The runtime of the connection.
    runtime: usize,
}

impl Drop for ReplyHandover {
    fn drop(&mut self) {
        self.signals[self.runtime].wake();
    }
}

/// The handovers that end when a turn has ended.
pub(crate) type Handovers = SmallVec<[Arc<ReplyHandover>; 1]>;

thread_local! {
    /// Those of the command that this thread executes.
    static CURRENT: RefCell<Handovers> = const { RefCell::new(SmallVec::new_const()) };
}

/// Begins a command of a connection of this thread's runtime.
pub(crate) fn begin_command(signals: &Arc<[RuntimeSignal]>, runtime: usize) {
    let handover = ReplyHandover {
        signals: Arc::clone(signals),
        runtime,
    };
    CURRENT.with_borrow_mut(|current| current.push(Arc::new(handover)));
}

/// Ends the command that was begun last. Returns its handover if turns have followed from it.
pub(crate) fn end_command() -> Option<Weak<ReplyHandover>> {
    let own = CURRENT.with_borrow_mut(SmallVec::pop)?;
    let follows = Arc::strong_count(&own) > 1;
    follows.then(|| Arc::downgrade(&own))
}

/// Executes the turn of a client, which follows from these handovers.
pub(crate) fn in_turn<R>(handovers: Handovers, execute: impl FnOnce() -> R) -> R {
    let before = CURRENT.replace(handovers);
    let result = execute();
    drop(CURRENT.replace(before));
    result
}

/// Returns the handovers of the command that this thread executes.
pub(crate) fn current() -> Handovers {
    CURRENT.with_borrow(SmallVec::clone)
}
