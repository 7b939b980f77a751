//! A replicated partition in a process: a member with its thread, its links and its janitor.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::clock::Clock;
use base::limits::Limits;
use base::participant::State;
use base::{Epoch, NodeId};
use disk::Disk;
use engine::{Engine, Janitor, NoLog};
use fabric::tcp::{Encryption, Tcp, TcpOptions};
use fabric::{Peer, Secret};
use parking_lot::{Condvar, Mutex};
use reactor::budget::Budget;
use reactor::{Io, Network, Sockets, Uring};

use crate::driver::{DriverCommand, DriverMailbox, FIRST_LINK, MemberDriver};
use crate::failure::MemberFailure;
use crate::log::LogOptions;
use crate::member::{Member, MemberStorage, SpawnWork};
use crate::membership::{ChangeAnswer, ChangeError, MembershipChange};
use crate::options::MemberOptions;
use crate::shared::MemberShared;
use crate::status::{Role, Status};
use crate::time::{SystemTime, Time};
use crate::worker::Worker;

/// Options of a partition.
pub struct Options {
    /// The member.
    pub member: MemberOptions,
    /// The disk of its log and snapshots.
    pub disk: Arc<dyn Disk>,
    /// The directory of log and snapshots. `None` keeps the end of the log in memory alone, and
    /// makes no snapshots: a member that falls far behind may never catch up. This is for
    /// experiments.
    pub dir: Option<PathBuf>,
    /// Options of the log.
    pub log: LogOptions,
    /// The listener for other members, as [`fabric::tcp::listen`] returns it.
    pub listener: TcpListener,
    /// The addresses of the other members.
    pub peers: HashMap<NodeId, SocketAddr>,
    /// The secret by which members prove their identity.
    pub secret: Secret,
    /// Which connections between members are encrypted.
    pub encryption: Encryption,
    /// The cluster's fingerprint.
    pub cluster: u64,
    /// The greatest number of workers at a time.
    pub workers: usize,
    /// Limits on sizes that clients control.
    pub limits: Limits,
    /// The clocks.
    pub time: Arc<dyn Time>,
    /// Bytes of messages of other members and for them that may wait in memory. The link that needs more is
    /// closed.
    pub link_memory: u64,
    /// How the member's thread waits for the network; [`Io::Auto`] is epoll.
    pub io: Io,
}

impl Options {
    /// Returns the defaults for a member that listens at `listener`, and keeps everything in
    /// memory.
    #[must_use]
    pub fn new(member: MemberOptions, listener: TcpListener) -> Options {
        Options {
            member,
            disk: Arc::new(disk::RealDisk),
            dir: None,
            log: LogOptions::default(),
            listener,
            peers: HashMap::new(),
            secret: Secret::new(""),
            encryption: Encryption::default(),
            cluster: 0,
            workers: 8,
            limits: Limits::default(),
            time: Arc::new(SystemTime::default()),
            link_memory: 1 << 30,
            io: Io::Epoll,
        }
    }
}

/// The reason why a partition cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The member's data cannot be read.
    #[error(transparent)]
    Data(#[from] MemberFailure),
    /// The operating system returns an error.
    #[error("cannot start the member: {0}")]
    System(#[from] io::Error),
}

/// The budget of the janitor's slices, and its pauses.
const SLICE_BUDGET: usize = 10_000;
const BUSY_PAUSE: Duration = Duration::from_millis(1);
const IDLE_PAUSE: Duration = Duration::from_millis(50);
/// Spare places for snapshots that are being made, and for scans beside the workers.
const SPARE_WORKERS: usize = 4;

/// The signal that stops the janitor's thread.
#[derive(Default)]
struct JanitorStop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// See the module's description.
pub struct ReplicatedPartition {
    shared: Arc<MemberShared>,
    mailbox: Arc<DriverMailbox>,
    stop: Arc<JanitorStop>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The worker that counts prepared transactions now and then.
    undecided_counter: Mutex<Option<engine::Worker<NoLog>>>,
}

impl fmt::Debug for ReplicatedPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition").finish_non_exhaustive()
    }
}

/// The member's clock for the engine; a driven engine does not ask for the time by itself.
struct WallClock(Arc<dyn Time>);

impl Clock for WallClock {
    fn now_ms(&self) -> u64 {
        self.0.now().wall_ms
    }

    fn not_before(&self, now_ms: u64) {
        self.0.not_before(now_ms);
    }

    fn steps(&self) -> u64 {
        self.0.steps()
    }
}

pub(crate) fn engine(workers: usize, limits: Limits, time: &Arc<dyn Time>) -> Arc<Engine> {
    Engine::driven(&engine::Options {
        workers: workers + SPARE_WORKERS,
        clock: Arc::new(WallClock(Arc::clone(time))),
        limits,
    })
}

impl ReplicatedPartition {
    /// Reads the data, and starts to take part. `progress` is called with the number of bytes of
    /// the log that have been read and with their total.
    ///
    /// # Errors
    /// Returns an [`OpenError`] that says what is wrong, and what to do.
    pub fn open(
        options: Options,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<ReplicatedPartition>, OpenError> {
        match options.io {
            Io::Uring => ReplicatedPartition::open_over(Uring::open()?, options, progress),
            Io::Epoll | Io::Auto => {
                ReplicatedPartition::open_over(Sockets::open()?, options, progress)
            }
        }
    }

    fn open_over<N: Network>(
        mut network: N,
        options: Options,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<ReplicatedPartition>, OpenError> {
        let engine = engine(options.workers, options.limits, &options.time);
        engine.declare_read_atomic(options.member.read_atomic.clone());
        let janitor = engine.janitor();
        let shared = Arc::new(MemberShared::new(engine, &options.member, options.time));
        let me = Peer::Node(options.member.me);
        let fabric = TcpOptions {
            listener: Some(options.listener),
            peers: options.peers,
            encryption: options.encryption,
            budget: Budget::new(options.link_memory),
            ..TcpOptions::new(me, options.secret, options.cluster)
        };
        let fabric = Tcp::new(fabric, &mut network, FIRST_LINK)?;
        let mailbox = Arc::new(DriverMailbox::new(&mut network)?);
        if let Some(dir) = &options.dir {
            options.disk.create_dir_all(dir)?;
        }
        let storage = MemberStorage {
            disk: options.disk,
            dir: options.dir,
            log: options.log,
        };
        let member = Member::open(
            options.member,
            Arc::clone(&shared),
            storage,
            spawner(),
            progress,
        )?;
        let wake = Arc::clone(&mailbox);
        shared.set_waker(Box::new(move || wake.wake()));
        let partition = ReplicatedPartition {
            shared: Arc::clone(&shared),
            mailbox: Arc::clone(&mailbox),
            stop: Arc::default(),
            threads: Mutex::default(),
            undecided_counter: Mutex::default(),
        };
        let driver = MemberDriver::new(network, fabric, member, shared, mailbox);
        partition.start(driver, janitor)?;
        Ok(Arc::new(partition))
    }

    fn start<N: Network>(&self, driver: MemberDriver<N>, janitor: Janitor) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("kumiki-replica".to_owned());
        let driver = thread.spawn(move || driver.run())?;
        let (shared, stop) = (Arc::clone(&self.shared), Arc::clone(&self.stop));
        let thread = std::thread::Builder::new().name("kumiki-janitor".to_owned());
        let janitor = thread.spawn(move || run_janitor(&shared, &stop, janitor))?;
        self.threads.lock().extend([driver, janitor]);
        Ok(())
    }

    /// Makes a worker for a thread. Returns `None` if the greatest number of workers exists.
    #[must_use]
    pub fn worker(&self) -> Option<Worker> {
        Worker::new(&self.shared)
    }

    /// Returns the engine, for snapshots and figures.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    /// Returns the ticket up to which all have resolved or are lost: ask [`ReplicatedPartition::is_lost`]
    /// first.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        self.shared.tickets.resolved()
    }

    /// Returns `true` if the outcome of what waits for a ticket will never be known.
    #[must_use]
    pub fn is_lost(&self, ticket: Epoch) -> bool {
        self.shared.tickets.is_lost(ticket) || ticket > self.durable() && self.failed().is_some()
    }

    /// Returns the number of times that holds have been given back.
    #[must_use]
    pub fn releases(&self) -> u64 {
        self.shared.engine.releases()
    }

    /// Returns `true` if this member leads and may serve.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.shared.tickets.is_serving()
    }

    /// Returns `true` while this member hands the leadership over and does not know the next leader yet.
    #[must_use]
    pub fn hands_over(&self) -> bool {
        self.shared.handing_over.load(Ordering::SeqCst)
    }

    /// Returns the number of transactions over several partitions that are prepared and not decided
    /// in the state that is applied here. It reads all records of such transactions.
    #[must_use]
    pub fn prepared(&self) -> u64 {
        let mut undecided_counter = self.undecided_counter.lock();
        if undecided_counter.is_none() {
            *undecided_counter = self.shared.engine.worker(|_| NoLog);
        }
        let undecided = undecided_counter.as_mut().map(|worker| worker.undecided());
        let undecided = undecided.unwrap_or_default().into_iter();
        undecided
            .filter(|(_, state)| matches!(state, State::Prepared(_)))
            .count() as u64
    }

    /// Returns `true` if this member holds leases when it leads.
    #[must_use]
    pub fn has_leases(&self) -> bool {
        self.shared.has_leases()
    }

    /// Calls `listener` with the end of the lease whenever it changes: the time until which this
    /// member may show its applied state without asking other members, in nanoseconds of this
    /// machine's time since its start; 0 if it may not. The listener learns of an end before the
    /// member helps another one to lead; a lease whose end is not announced ends by time. Without
    /// [`MemberOptions::leases`](crate::MemberOptions::leases) it is always 0.
    pub fn on_lease(&self, listener: Box<dyn Fn(u64) + Send + Sync>) {
        self.shared.on_lease(listener);
    }

    /// Returns the role of the member as of about its last turn.
    #[must_use]
    pub fn role(&self) -> Role {
        self.shared.role()
    }

    /// Returns the leader, as far as this member knows.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        self.shared.leader()
    }

    /// Returns the greatest possible age of the state that this member shows. It may be up to an
    /// election time-out older if the leader does not know yet that it leads no longer. `None`
    /// means that the age is not known.
    #[must_use]
    pub fn staleness(&self) -> Option<Duration> {
        self.shared.staleness()
    }

    /// Returns the status of the member.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status.lock().clone()
    }

    /// Returns the reason why this member does not go on, if it has stopped; the other members go
    /// on.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        self.shared.failed()
    }

    /// Registers `listener`, which is called when tickets have resolved or are lost, or when the
    /// role has changed. It must not block.
    pub fn on_change(&self, listener: Box<dyn Fn() + Send + Sync>) {
        self.shared.listen(listener);
    }

    /// Begins to change the members. Returns the place of the outcome; [`ReplicatedPartition::on_change`]
    /// tells when to look.
    #[must_use]
    pub fn begin_change(&self, change: MembershipChange) -> PendingChange {
        let answer = ChangeAnswer::default();
        self.mailbox
            .command(DriverCommand::Change(change, Arc::clone(&answer)));
        PendingChange(answer)
    }

    /// Changes the members, and waits until that is done.
    ///
    /// # Errors
    /// Returns the reason why it was not done, and what to do.
    pub fn change(&self, change: MembershipChange, patience: Duration) -> Result<(), ChangeError> {
        let pending = self.begin_change(change);
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if let Some(outcome) = pending.outcome() {
                return outcome;
            }
            if let Some(reason) = self.failed() {
                return Err(ChangeError::Stopped { reason });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(ChangeError::StillInProgress)
    }

    /// Requests a snapshot soon; [`Status::snapshot`] shows when it exists.
    pub fn snapshot(&self) {
        self.mailbox.command(DriverCommand::Snapshot);
    }

    /// Stops taking part. A leader first hands over the leadership, which takes `patience` at most;
    /// it does not try if `patience` is zero.
    pub fn close(&self, patience: Duration) {
        if self.is_leader() && !patience.is_zero() {
            match self.change(MembershipChange::Transfer(None), patience) {
                Ok(()) => tracing::info!("another node leads the partition now"),
                Err(error) => tracing::warn!(%error, "the leadership was not handed over"),
            }
        }
        self.mailbox.command(DriverCommand::Stop);
        *self.stop.stopped.lock() = true;
        self.stop.changed.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("a thread of the partition has panicked");
            }
        }
        // A snapshot that is being made is given up, or is complete when this returns.
        *self.shared.may_publish.lock() = false;
    }
}

impl Drop for ReplicatedPartition {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}

/// A change that was begun.
#[derive(Debug)]
pub struct PendingChange(ChangeAnswer);

impl PendingChange {
    /// Returns the outcome, once there is one.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), ChangeError>> {
        self.0.lock().clone()
    }
}

/// Returns a function that runs each piece of work on a thread of its own.
fn spawner() -> SpawnWork {
    Box::new(|work| {
        let thread = std::thread::Builder::new().name("kumiki-snapshot".to_owned());
        if let Err(error) = thread.spawn(work) {
            tracing::error!(%error, "cannot start a thread for a snapshot");
        }
    })
}

fn run_janitor(shared: &MemberShared, stop: &JanitorStop, mut janitor: Janitor) {
    loop {
        let tidied = janitor.tidy(shared.engine.applied(), SLICE_BUDGET);
        let mut stopped = stop.stopped.lock();
        if !*stopped {
            let pause = if tidied.more { BUSY_PAUSE } else { IDLE_PAUSE };
            stop.changed.wait_for(&mut stopped, pause);
        }
        if *stopped {
            return;
        }
    }
}
