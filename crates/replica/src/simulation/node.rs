//! A node: a real member over a real engine, driven as its thread drives it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::limits::Limits;
use base::{Epoch, NodeId};
use disk::{Crash, Disk};
use engine::Janitor;
use fastrand::Rng;
use parking_lot::Mutex;

use super::call::{NodeLife, WaitingCall};
use super::clock::NodeClock;
use super::plan::RunPlan;
use super::volume::SimulatedDisk;
use crate::failure::MemberFailure;
use crate::log::LogOptions;
use crate::member::{Member, MemberStorage, SpawnWork};
use crate::options::MemberOptions;
use crate::shared::MemberShared;
use crate::time::Time;
use crate::worker::Worker;

const DIR: &str = "/member";

type Work = Box<dyn FnOnce() + Send>;

/// The parts of a node that runs.
pub(super) struct RunningNode {
    pub(super) member: Member,
    pub(super) shared: Arc<MemberShared>,
    /// The workers, which take calls by turns.
    pub(super) workers: Vec<Worker>,
    pub(super) janitor: Janitor,
    pub(super) woken: Arc<AtomicBool>,
    /// Background work that has not begun.
    pub(super) jobs: Arc<Mutex<Vec<Work>>>,
    /// `true` if its end is scheduled.
    pub(super) job_planned: bool,
    pub(super) inbox: VecDeque<(NodeId, Vec<u8>)>,
    /// Callers that wait for a ticket.
    pub(super) waiters: Vec<WaitingCall>,
    /// An operation failed for a reason that may pass: nothing happens until then.
    pub(super) blocked_until: Duration,
    pub(super) applied: Epoch,
    pub(super) leads: bool,
    /// The index of its newest snapshot, and the number of comparisons of states that it has led.
    pub(super) snapshot: u64,
    pub(super) compared: u64,
    /// The counts of staged versions, see [`engine::Engine::staged_counts`].
    pub(super) staged: (u64, u64),
}

/// See the module's description.
pub(super) struct SimulatedNode {
    pub(super) id: NodeId,
    pub(super) clock: Arc<NodeClock>,
    pub(super) volume: SimulatedDisk,
    pub(super) life: NodeLife,
    pub(super) running: Option<RunningNode>,
    /// The nodes of the partition according to its file.
    pub(super) nodes: Vec<NodeId>,
    /// The time of the next scheduled turn.
    pub(super) turn_at: Option<Duration>,
    /// The node does nothing until then, and no other node can see why.
    pub(super) paused_until: Duration,
    /// Its thread waits for the disk.
    pub(super) busy_until: Duration,
    /// The factor by which syncs take longer than they should.
    pub(super) slowness: u32,
    /// `true` if the power will fail, or has failed.
    pub(super) power_fails: bool,
    /// `true` if its disk is empty, though it was a member.
    pub(super) lost_disk: bool,
}

impl SimulatedNode {
    pub(super) fn new(id: NodeId, clock: NodeClock, nodes: Vec<NodeId>) -> SimulatedNode {
        SimulatedNode {
            id,
            clock: Arc::new(clock),
            volume: SimulatedDisk::default(),
            life: 0,
            running: None,
            nodes,
            turn_at: None,
            paused_until: Duration::ZERO,
            busy_until: Duration::ZERO,
            slowness: 1,
            power_fails: false,
            lost_disk: false,
        }
    }

    /// Starts with the data on its disk.
    pub(super) fn start(&mut self, plan: &RunPlan, seed: u64) -> Result<(), MemberFailure> {
        let options = MemberOptions {
            grouping: plan.grouping,
            election: plan.election,
            leases: plan.leases,
            session: plan.session,
            sessions: plan.sessions,
            snapshot_bytes: plan.snapshot_bytes,
            kept_entries: plan.kept_entries,
            compare: plan.compare,
            chunk: plan.chunk,
            message: plan.message,
            seed,
            ..MemberOptions::new(self.id, self.nodes.clone())
        };
        let time: Arc<dyn Time> = Arc::<NodeClock>::clone(&self.clock);
        let engine = crate::partition::engine(plan.workers, Limits::default(), &time);
        let janitor = engine.janitor();
        let shared = Arc::new(MemberShared::new(engine, &options, time));
        let woken = Arc::new(AtomicBool::new(false));
        let wake = Arc::clone(&woken);
        shared.set_waker(Box::new(move || wake.store(true, Ordering::SeqCst)));
        let jobs: Arc<Mutex<Vec<Work>>> = Arc::default();
        let later = Arc::clone(&jobs);
        let spawn: SpawnWork = Box::new(move |work| later.lock().push(work));
        let disk: Arc<dyn Disk> = Arc::new(self.volume.clone());
        disk.create_dir_all(&PathBuf::from(DIR))
            .map_err(|error| MemberFailure::Raft(error.to_string()))?;
        let storage = MemberStorage {
            disk,
            dir: Some(DIR.into()),
            log: LogOptions {
                segment_bytes: plan.segment_bytes,
                salt: seed,
            },
        };
        let member = Member::open(options, Arc::clone(&shared), storage, spawn, &mut |_, _| {})?;
        let worker = |_| Worker::new(&shared).expect("the engine has places for all of them");
        let workers = (0..plan.workers).map(worker).collect();
        self.running = Some(RunningNode {
            applied: shared.engine.applied(),
            member,
            shared,
            workers,
            janitor,
            woken,
            jobs,
            job_planned: false,
            inbox: VecDeque::new(),
            waiters: Vec::new(),
            blocked_until: Duration::ZERO,
            leads: false,
            snapshot: 0,
            compared: 0,
            staged: (0, 0),
        });
        self.turn_at = None;
        Ok(())
    }

    /// Ends at once; most of the data that was not synced is lost. Returns the waiting callers.
    pub(super) fn crash(&mut self, random: &mut Rng) -> Vec<WaitingCall> {
        self.life += 1;
        let crash = [
            Crash::DropAll,
            Crash::KeepPrefix,
            Crash::KeepSectors,
            Crash::KillProcess,
        ];
        let crash = crash[random.usize(..crash.len())];
        let running = self.running.take();
        let volume = self.volume.crash(crash, random.u64(..));
        let waiters = running.map(|running| running.waiters);
        self.volume = volume;
        self.power_fails = false;
        self.busy_until = Duration::ZERO;
        self.paused_until = Duration::ZERO;
        waiters.unwrap_or_default()
    }

    pub(super) fn leads(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|one| one.shared.tickets.is_serving())
    }
}
