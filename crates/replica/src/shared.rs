//! State that a member shares with its users.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use base::partition::OwnedReply;
use base::planted::{self, Bug};
use base::{Abort, Epoch, NodeId};
use engine::Engine;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use crate::options::{Grouping, MemberOptions};
use crate::sessions::{ClientSessions, SequenceState};
use crate::status::{Role, Status};
use crate::tickets::Tickets;
use crate::time::Time;

/// The outcome of operations.
type ExecutionOutcome = Result<Vec<OwnedReply>, Abort>;

/// Outcomes by their numbers, until they are fetched.
#[derive(Debug)]
pub(crate) struct OutcomeTable<T>(Mutex<BTreeMap<u64, T>>);

/// The greatest number of outcomes that are kept: a caller that has gone does not fetch its
/// outcome.
const MOST_OUTCOMES: usize = 1 << 16;

impl<T> OutcomeTable<T> {
    fn new() -> OutcomeTable<T> {
        OutcomeTable(Mutex::new(BTreeMap::new()))
    }

    pub(crate) fn insert(&self, number: u64, outcome: T) {
        let mut kept = self.0.lock();
        kept.insert(number, outcome);
        if kept.len() > MOST_OUTCOMES {
            kept.pop_first();
        }
    }

    pub(crate) fn take(&self, number: u64) -> Option<T> {
        self.0.lock().remove(&number)
    }

    fn forget(&self) {
        self.0.lock().clear();
    }
}

/// A function that is called when something has changed.
type ChangeListener = Box<dyn Fn() + Send + Sync>;
/// A function that is called with the end of the lease when the lease has changed.
type LeaseListener = Box<dyn Fn(u64) + Send + Sync>;

/// The value in the place of a transaction's number if the session is about to end.
const ENDS: u64 = 0;

/// See the module's description.
pub(crate) struct MemberShared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) tickets: Tickets,
    pub(crate) grouping: Grouping,
    pub(crate) time: Arc<dyn Time>,
    leases: bool,
    /// The greatest number of sessions.
    pub(crate) most_sessions: u64,
    /// The number of the leader's node, plus one; 0 if no leader is known.
    leader: AtomicU32,
    /// The end of the lease, in nanoseconds of [`crate::time::Now::since`]; 0 if there is none.
    lease_until: AtomicU64,
    /// The earliest deadline of a key that the log has not yet said to have passed.
    pub(crate) limit_ms: AtomicU64,
    /// This member hands the leadership over, and does not know the next leader yet.
    pub(crate) handing_over: AtomicBool,
    /// The log is about to state that some deadlines have passed.
    pub(crate) ticking: AtomicBool,
    /// The time, as above, up to which this member has applied all that it knew to be committed.
    fresh_at: AtomicU64,
    /// The number of times that loading a snapshot has begun or ended: while it is odd, no state
    /// can be read.
    pub(crate) loads: AtomicU64,
    pub(crate) sessions: Mutex<ClientSessions>,
    /// Sessions that have a transaction in progress, with its number; and those that are about to
    /// end, with 0. This is locked before the table of sessions.
    pub(crate) under_way: Mutex<HashMap<u64, u64>>,
    /// The outcomes of operations that were executed after consensus.
    pub(crate) outcomes: OutcomeTable<ExecutionOutcome>,
    /// The ids of sessions that were to be opened.
    pub(crate) opened: OutcomeTable<Result<u64, Abort>>,
    /// The next number for holders of staged transactions, and for outcomes that are kept.
    next_number: AtomicU64,
    /// `true` until the partition is closed: a snapshot is published only while this is locked and `true`, so
    /// that a closed partition's directory does not change any more.
    pub(crate) may_publish: Mutex<bool>,
    failed: Mutex<Option<String>>,
    pub(crate) has_failed: AtomicBool,
    pub(crate) status: Mutex<Status>,
    waker: RwLock<Option<ChangeListener>>,
    /// The listener for changes of the lease.
    lease_listener: RwLock<Option<LeaseListener>>,
    listeners: RwLock<Vec<ChangeListener>>,
}

impl fmt::Debug for MemberShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl MemberShared {
    pub(crate) fn new(
        engine: Arc<Engine>,
        options: &MemberOptions,
        time: Arc<dyn Time>,
    ) -> MemberShared {
        let group = match options.grouping {
            Grouping::Group(count) => count,
            Grouping::Naive => 1,
        };
        MemberShared {
            engine,
            tickets: Tickets::new(group),
            grouping: options.grouping,
            time,
            leases: options.leases,
            most_sessions: options.sessions as u64,
            leader: AtomicU32::new(0),
            lease_until: AtomicU64::new(0),
            limit_ms: AtomicU64::new(u64::MAX),
            handing_over: AtomicBool::new(false),
            ticking: AtomicBool::new(false),
            fresh_at: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            sessions: Mutex::default(),
            under_way: Mutex::default(),
            outcomes: OutcomeTable::new(),
            opened: OutcomeTable::new(),
            next_number: AtomicU64::new(1),
            may_publish: Mutex::new(true),
            failed: Mutex::default(),
            has_failed: AtomicBool::new(false),
            status: Mutex::new(Status::new(options.me)),
            waker: RwLock::default(),
            lease_listener: RwLock::default(),
            listeners: RwLock::default(),
        }
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        let leader = self.leader.load(Ordering::SeqCst);
        leader.checked_sub(1).map(|node| NodeId(node as u16))
    }

    pub(crate) fn set_leader(&self, leader: Option<NodeId>) {
        let leader = leader.map_or(0, |node| u32::from(node.0) + 1);
        self.leader.store(leader, Ordering::SeqCst);
    }

    pub(crate) fn elsewhere(&self) -> Abort {
        let leader = self.leader();
        let me = self.status.lock().node;
        // A leader that may not serve yet is not named: clients must not be sent to it.
        Abort::Elsewhere {
            leader: leader.filter(|node| *node != me),
        }
    }

    pub(crate) fn role(&self) -> Role {
        self.status.lock().role
    }

    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Updates the time of the operations that are executed next. While an entry that states the time is
    /// under way, which lasts as long as the group stalls, the time may pass a deadline that no entry
    /// covers yet: then another such entry is in front of those operations.
    pub(crate) fn refresh(&self) {
        if !self.tickets.is_serving() {
            return;
        }
        let limit = self.limit_ms.load(Ordering::SeqCst);
        let wall = self.time.now().wall_ms;
        if wall < limit {
            self.engine.set_time_ms(wall);
        } else if self.ticking.load(Ordering::SeqCst) {
            // The order matters: a thread that executes a transaction at this time submits it
            // behind the entry.
            self.tickets.tick(wall);
            self.engine.set_time_ms(wall);
        } else {
            self.engine.set_time_ms(limit.saturating_sub(1));
        }
    }

    pub(crate) fn set_lease(&self, until: Duration) {
        let until = if self.leases {
            until.as_nanos() as u64
        } else {
            0
        };
        self.lease_until.store(until, Ordering::SeqCst);
        if let Some(listener) = &*self.lease_listener.read() {
            listener(if self.tickets.is_serving() { until } else { 0 });
        }
    }

    pub(crate) fn has_leases(&self) -> bool {
        self.leases
    }

    pub(crate) fn on_lease(&self, listener: LeaseListener) {
        *self.lease_listener.write() = Some(listener);
    }

    /// Returns `true` if results that were executed before this call at `time_ms` may be shown at
    /// once, because no other member could lead.
    pub(crate) fn may_show(&self, time_ms: u64) -> bool {
        let until = self.lease_until.load(Ordering::SeqCst);
        if until == 0 {
            return false;
        }
        let now = self.time.now().since.as_nanos() as u64;
        let holds = now < until || planted::is(Bug::StaleLease);
        holds
            && self.tickets.is_serving()
            && !self.ticking.load(Ordering::SeqCst)
            && time_ms < self.limit_ms.load(Ordering::SeqCst)
    }

    /// Returns the ticket of a read that was executed at `time_ms` under the leadership of this
    /// number. Returns [`Epoch::ZERO`] if the read need not wait, and `None` if that leadership has
    /// ended. If the read waits, the member must be woken.
    pub(crate) fn read_ticket(&self, time_ms: u64, leadership: u64) -> Option<Epoch> {
        if self.may_show(time_ms) && self.tickets.leaderships() == leadership {
            return Some(Epoch::ZERO);
        }
        self.tickets.read(leadership).map(Epoch)
    }

    pub(crate) fn set_fresh(&self, at: Duration) {
        self.fresh_at.store(at.as_nanos() as u64, Ordering::SeqCst);
    }

    /// Returns the greatest possible age of the state that this member shows; `None` if it is not
    /// known.
    pub(crate) fn staleness(&self) -> Option<Duration> {
        let fresh = self.fresh_at.load(Ordering::SeqCst);
        if fresh == 0 {
            return None;
        }
        let now = self.time.now().since;
        Some(now.saturating_sub(Duration::from_nanos(fresh)))
    }

    /// Checks that a client's transaction is to be executed, and notes that it is in progress.
    pub(crate) fn admit(&self, client: u64, sequence: u64) -> Result<(), SequenceState> {
        let mut under_way = self.under_way.lock();
        match self.sessions.lock().look_up(client, sequence) {
            SequenceState::New => {}
            state => return Err(state),
        }
        match under_way.get(&client) {
            Some(&ENDS) => Err(SequenceState::Ends),
            Some(_) => Err(SequenceState::UnderWay),
            None => {
                under_way.insert(client, sequence);
                Ok(())
            }
        }
    }

    /// Returns sessions that were not used since `before_ms`, and of which no transaction is in
    /// progress: an entry will end them. Their transactions are not admitted from now on.
    pub(crate) fn end_stale(&self, before_ms: u64) -> Vec<u64> {
        let mut under_way = self.under_way.lock();
        let mut stale = self.sessions.lock().stale(before_ms);
        stale.retain(|session| !under_way.contains_key(session));
        under_way.extend(stale.iter().map(|session| (*session, ENDS)));
        stale
    }

    /// Forgets sessions that have ended.
    pub(crate) fn forget_sessions(&self, ended: &[u64]) {
        let mut under_way = self.under_way.lock();
        let mut sessions = self.sessions.lock();
        for session in ended {
            sessions.forget(*session);
            under_way.remove(session);
        }
    }

    /// Ends the leadership, if there was one: waiting transactions fail, and no locks are held.
    pub(crate) fn drop_everything(&self) {
        let _guard = self.tickets.change();
        self.set_lease(Duration::ZERO);
        self.tickets.close();
        self.engine.drop_holds();
        self.under_way.lock().clear();
        self.outcomes.forget();
        self.opened.forget();
    }

    pub(crate) fn failed(&self) -> Option<String> {
        if !self.has_failed.load(Ordering::SeqCst) {
            return None;
        }
        self.failed.lock().clone()
    }

    pub(crate) fn fail(&self, reason: String) {
        *self.failed.lock() = Some(reason.clone());
        self.has_failed.store(true, Ordering::SeqCst);
        self.tickets.pause();
        self.set_leader(None);
        let mut status = self.status.lock();
        status.note = Some(reason);
        status.role = Role::Stopped;
        status.leader = None;
    }

    /// Wakes the member, so that it takes what was submitted.
    pub(crate) fn wake(&self) {
        if let Some(wake) = &*self.waker.read() {
            wake();
        }
    }

    pub(crate) fn set_waker(&self, waker: ChangeListener) {
        *self.waker.write() = Some(waker);
    }

    pub(crate) fn listen(&self, listener: ChangeListener) {
        self.listeners.write().push(listener);
    }

    /// Calls the listeners: tickets have resolved or are lost, or the status has changed.
    pub(crate) fn notify(&self) {
        self.listeners.read().iter().for_each(|listener| listener());
    }
}
