//! Clients whose commands wait until a key has something for them (`BLPOP` and its like).
//!
//! A client that waits is in the queue of each of its keys. When a key changes, the first client of its queue
//! gets the *turn*: its runtime executes its command again, on this key alone. If that has answered the
//! client, the next one gets the turn, because more may be there; if nothing was there, so do those that wait
//! for something else.
//!
//! Invariants:
//! 1. At most one client has the turn of a key. Clients get it in the order in which they began to wait.
//! 2. A client is in the queues before it looks at its keys for the last time without a turn, and a commit
//!    looks into the queues after its change can be read: none waits for a change that has happened.
//! 3. A change during a turn is not lost: the turn begins again at the head of the queue.
//! 4. A client that leaves a queue passes its turn on. Without a change meanwhile it goes to those behind: the
//!    key has nothing for the clients before.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base::database;
use base::key_event::KeyEvent;
use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::handover::{self, Handovers, ReplyHandover};
use crate::runtime_signal::{ClientTurn, RuntimeNews, RuntimeSignal};

/// Changes of keys are reported for so long after the last client has ended its wait.
const LISTENS_ON_MS: u64 = 10_000;

/// What a client waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AwaitedKind {
    /// Elements of a list.
    List,
    /// Members of a sorted set.
    SortedSet,
    /// Entries of a stream behind an id of the client's own, which all clients can get.
    Entries,
    /// Entries of a stream that the consumer group with this name has not delivered.
    GroupEntries(Arc<[u8]>),
}

impl AwaitedKind {
    /// Returns `true` if a key that has nothing for a client that waits for this has nothing for one that waits
    /// for `other`.
    fn implies(&self, other: &AwaitedKind) -> bool {
        self == other && *self != AwaitedKind::Entries
    }
}

/// A client that waits.
#[derive(Clone, Debug)]
pub(crate) struct WaitingClient {
    pub(crate) runtime: usize,
    /// The number of its connection in its runtime.
    pub(crate) connection: usize,
    pub(crate) kind: AwaitedKind,
}

/// The clients that wait for a key.
#[derive(Default)]
struct KeyQueue {
    /// By the numbers of their waits, which only grow.
    clients: BTreeMap<u64, WaitingClient>,
    turn: Option<KeyTurn>,
}

/// What a key has nothing of.
type AbsentKinds = SmallVec<[AwaitedKind; 2]>;

/// The turn of a key.
struct KeyTurn {
    /// The wait that has it.
    ticket: u64,
    /// `true` if the key has changed since.
    is_stale: bool,
    /// What the key has nothing of.
    without: AbsentKinds,
    handovers: Handovers,
}

impl KeyQueue {
    /// Gives the turn to the first client behind `ticket` that waits for something which the key may have.
    fn give(
        &mut self,
        key: &[u8],
        ticket: u64,
        (without, handovers): (AbsentKinds, Handovers),
        signals: &[RuntimeSignal],
    ) {
        let mut behind = self.clients.range(ticket + 1..);
        let next = behind.find(|(_, client)| !implied(&without, &client.kind));
        self.turn = next.map(|(&ticket, client)| {
            let turn = ClientTurn {
                connection: client.connection,
                ticket,
                key: key.into(),
            };
            signals[client.runtime].send(RuntimeNews::Turn(turn));
            KeyTurn {
                ticket,
                is_stale: false,
                without,
                handovers,
            }
        });
    }

    /// Gives the turn of a client that has looked, or has left, to the next one.
    fn give_on(&mut self, key: &[u8], turn: KeyTurn, signals: &[RuntimeSignal]) {
        let (ticket, without) = match turn.is_stale {
            true => (0, AbsentKinds::new()),
            false => (turn.ticket, turn.without),
        };
        self.give(key, ticket, (without, turn.handovers), signals);
    }

    /// Has a client that has just begun to wait look at the key.
    fn look_first(&mut self, key: &[u8], ticket: u64, signals: &[RuntimeSignal]) {
        let kind = self.clients.get(&ticket).map(|client| &client.kind);
        match (&mut self.turn, kind) {
            // Otherwise the turn comes to it.
            (Some(turn), Some(kind)) => turn.is_stale |= implied(&turn.without, kind),
            _ => {
                let nothing_known = (AbsentKinds::new(), Handovers::new());
                self.give(key, ticket - 1, nothing_known, signals);
            }
        }
    }

    /// Has the first client look at the key, and then the others, but those that wait for what it has nothing of.
    fn changed(
        &mut self,
        key: &[u8],
        (without, handovers): (AbsentKinds, Handovers),
        signals: &[RuntimeSignal],
    ) {
        match &mut self.turn {
            Some(turn) => {
                turn.is_stale = true;
                // What a client takes in its turn may count as a change, too.
                let is_new = |own: &Arc<ReplyHandover>| {
                    let mut known = turn.handovers.iter();
                    !known.any(|other| Arc::ptr_eq(own, other))
                };
                let new: Handovers = handovers.into_iter().filter(is_new).collect();
                turn.handovers.extend(new);
            }
            None => self.give(key, 0, (without, handovers), signals),
        }
    }

    /// Takes the turn from a wait, if it has it.
    fn take(&mut self, ticket: u64) -> Option<KeyTurn> {
        self.turn.take_if(|turn| turn.ticket == ticket)
    }
}

/// Returns `true` if a key without these has nothing for a client that waits for `kind`.
fn implied(without: &[AwaitedKind], kind: &AwaitedKind) -> bool {
    without.iter().any(|own| own.implies(kind))
}

/// The queues of all keys.
#[derive(Default)]
struct BlockedTable {
    last_ticket: u64,
    /// By the key, as it is stored.
    queues: HashMap<Box<[u8]>, KeyQueue>,
}

/// See the module's description.
#[derive(Default)]
pub(crate) struct BlockedClients {
    count: AtomicUsize,
    table: Mutex<BlockedTable>,
    /// `true` if changes of keys are reported for clients that wait.
    listens: AtomicBool,
    /// When the last wait ended, in milliseconds since the server's start.
    ended_ms: AtomicU64,
}

impl BlockedClients {
    /// Returns the number of clients that wait.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns those of these keys for which no client waits that waits for the same.
    pub(crate) fn unawaited(&self, keys: &[Box<[u8]>], kind: &AwaitedKind) -> Vec<Box<[u8]>> {
        let table = self.table.lock();
        let is_awaited = |key: &[u8]| {
            let queue = table.queues.get(key);
            let mut others = queue.into_iter().flat_map(|queue| queue.clients.values());
            others.any(|other| other.kind.implies(kind))
        };
        let keys = keys.iter().filter(|key| !is_awaited(key));
        keys.cloned().collect()
    }

    /// Adds a client to the queues of keys. It gets the turn of each, unless others wait for the same before it.
    /// Returns the number of its wait. The caller ensures that changes of keys are reported.
    pub(crate) fn begin(
        &self,
        client: WaitingClient,
        keys: &[Box<[u8]>],
        signals: &[RuntimeSignal],
    ) -> u64 {
        let mut table = self.table.lock();
        self.count.fetch_add(1, Ordering::SeqCst);
        table.last_ticket += 1;
        let ticket = table.last_ticket;
        for key in keys {
            let queue = table.queues.entry(key.clone()).or_default();
            let mut others = queue.clients.values();
            let has_others = others.any(|other| other.kind.implies(&client.kind));
            queue.clients.insert(ticket, client.clone());
            if !has_others {
                queue.look_first(key, ticket, signals);
            }
        }
        ticket
    }

    /// Removes a client from the queues of its keys.
    pub(crate) fn end(
        &self,
        ticket: u64,
        keys: &[Box<[u8]>],
        (signals, now): (&[RuntimeSignal], Duration),
    ) {
        let mut table = self.table.lock();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.ended_ms.store(now_ms, Ordering::Relaxed);
        // Before the end of the turns, which others wait for: they do not see the client wait.
        self.count.fetch_sub(1, Ordering::SeqCst);
        for key in keys {
            let Some(queue) = table.queues.get_mut(key) else {
                continue;
            };
            queue.clients.remove(&ticket);
            if let Some(turn) = queue.take(ticket) {
                queue.give_on(key, turn, signals);
            }
            if queue.clients.is_empty() {
                table.queues.remove(key);
            }
        }
    }

    /// Ends the turns of a client that has found nothing at these keys.
    pub(crate) fn pass(&self, ticket: u64, keys: &[Box<[u8]>], signals: &[RuntimeSignal]) {
        let mut table = self.table.lock();
        for key in keys {
            let Some(queue) = table.queues.get_mut(key) else {
                continue;
            };
            let Some(mut turn) = queue.take(ticket) else {
                continue;
            };
            let own = queue.clients.get(&ticket).map(|client| &client.kind);
            turn.without
                .extend(own.filter(|kind| kind.implies(kind)).cloned());
            queue.give_on(key, turn, signals);
        }
    }

    /// Returns the handovers that wait for the turns of a client.
    pub(crate) fn handovers(&self, ticket: u64, keys: &[Box<[u8]>]) -> Handovers {
        let table = self.table.lock();
        let queues = keys.iter().filter_map(|key| table.queues.get(key));
        let turns = queues.filter_map(|queue| queue.turn.as_ref());
        let own = turns.filter(|turn| turn.ticket == ticket);
        own.flat_map(|turn| turn.handovers.iter().cloned())
            .collect()
    }

    /// Has none wait any more for the turns of a client, which will last.
    pub(crate) fn end_handovers(&self, ticket: u64, keys: &[Box<[u8]>]) {
        let mut table = self.table.lock();
        for key in keys {
            if let Some(queue) = table.queues.get_mut(key)
                && let Some(turn) = &mut queue.turn
                && turn.ticket == ticket
            {
                turn.handovers.clear();
            }
        }
    }

    /// Takes an event of a key, from the commit that causes it.
    pub(crate) fn changed(
        &self,
        (database, key): (u16, &[u8]),
        event: KeyEvent,
        signals: &[RuntimeSignal],
    ) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let Some(without) = absent_after(event) else {
            return;
        };
        let stored = match database {
            0 => Cow::Borrowed(key),
            _ => Cow::Owned(database::qualified(database, key)),
        };
        if let Some(queue) = self.table.lock().queues.get_mut(&*stored) {
            queue.changed(&stored, (without, handover::current()), signals);
        }
    }

    /// Has clients look at these keys.
    pub(crate) fn look_again(&self, keys: &[Box<[u8]>], signals: &[RuntimeSignal]) {
        let mut table = self.table.lock();
        for key in keys {
            if let Some(queue) = table.queues.get_mut(key) {
                queue.changed(key, (AbsentKinds::new(), Handovers::new()), signals);
            }
        }
    }

    /// Has clients look at all keys: each may have changed, or cannot be waited for here any more.
    pub(crate) fn changed_all(&self, signals: &[RuntimeSignal]) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        for (key, queue) in &mut self.table.lock().queues {
            queue.changed(key, (AbsentKinds::new(), handover::current()), signals);
        }
    }

    /// Returns `true` if changes of keys are to be reported for clients that wait.
    pub(crate) fn listens(&self) -> bool {
        self.listens.load(Ordering::SeqCst)
    }

    /// Has changes of keys reported from the next [`ServerState::update_listening`](crate::server_state::ServerState::update_listening)
    /// on. Returns `true` if they were not reported before.
    pub(crate) fn begin_listening(&self) -> bool {
        !self.listens.swap(true, Ordering::SeqCst)
    }

    /// Ends that changes of keys are reported, when no client has waited for some time. Returns `true` if it did.
    pub(crate) fn ends_listening(&self, now: Duration) -> bool {
        let ended_ms = self.ended_ms.load(Ordering::Relaxed);
        if self.count() > 0
            || !self.listens()
            || now.as_millis() < u128::from(ended_ms + LISTENS_ON_MS)
        {
            return false;
        }
        self.listens.store(false, Ordering::SeqCst);
        // One that begins to wait counts itself, and then looks whether changes are reported.
        if self.count.load(Ordering::SeqCst) > 0 {
            self.listens.store(true, Ordering::SeqCst);
        }
        !self.listens()
    }
}

/// Returns the kinds for which there is nothing that a client could find because of an event; `None`: it concerns
/// no client. A client that waits as a consumer of a group learns that the group or its stream has gone.
fn absent_after(event: KeyEvent) -> Option<AbsentKinds> {
    match event {
        KeyEvent::Set
        | KeyEvent::RenameTo
        | KeyEvent::CopyTo
        | KeyEvent::Restore
        | KeyEvent::MoveTo
        | KeyEvent::SortStore
        | KeyEvent::ListPushLeft
        | KeyEvent::ListPushRight
        | KeyEvent::ListInsert
        | KeyEvent::SortedAdd
        | KeyEvent::SortedIncr
        | KeyEvent::SortedInterStore
        | KeyEvent::SortedUnionStore
        | KeyEvent::SortedDiffStore
        | KeyEvent::SortedRangeStore
        | KeyEvent::GeoSearchStore
        | KeyEvent::GeoRadiusStore => Some(AbsentKinds::new()),
        KeyEvent::StreamAdd
        | KeyEvent::GroupDestroy
        | KeyEvent::GroupSetId
        | KeyEvent::Del
        | KeyEvent::Expired
        | KeyEvent::RenameFrom
        | KeyEvent::MoveFrom
        | KeyEvent::SetInterStore
        | KeyEvent::SetUnionStore
        | KeyEvent::SetDiffStore => {
            Some(SmallVec::from([AwaitedKind::List, AwaitedKind::SortedSet]))
        }
        _ => None,
    }
}
