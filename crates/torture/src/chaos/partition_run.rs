//! A partition through several rounds, with its data and its books.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use history::{History, Recorder, Value, check};
use parking_lot::Mutex;
use testkit::workload::Workload;

use super::convergence::{self, ComparedKeys, Convergence, NodeValues};
use super::fault::{self, PlannedFault, Terms};
use super::fault_injection::FaultInjector;
use super::load::{Books, ChaosWorker, Done, REGISTERS, register};
use super::network::ChaosNetwork;
use super::nodes::PartitionNodes;
use super::session::World;
use super::sticky_reader::StickyReader;
use crate::server::Program;
use testkit::SetOnDrop;
use xtask::interrupt;

/// Load without faults, before them and after.
const CALM: Duration = Duration::from_millis(300);
/// How long a node may take to answer without faults.
const PATIENCE: Duration = Duration::from_secs(1);
/// Loyal readers of each node.
const LOYAL: usize = 2;
/// How long a node that has lost its disk may take to be a member again, in seconds.
const ADDING_S: u64 = 30;

/// A partition.
#[derive(Debug)]
pub struct Life {
    dir: PathBuf,
    nodes: PartitionNodes,
    books: Books,
    /// The values of registers of earlier rounds.
    earlier: BTreeMap<String, Option<Value>>,
    /// The values that they may still get.
    unknown: HashSet<Value>,
}

/// The parameters of a round.
#[derive(Debug)]
pub struct ChaosRound<'a> {
    /// Its number, which is in the names of its registers.
    pub number: u64,
    /// The conditions of the draw.
    pub terms: Terms,
    /// Clients that do all kinds of operations.
    pub workers: usize,
    /// The file for the history.
    pub history: Option<&'a Path>,
}

/// The kind of promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromiseKind {
    /// The observations of clients or nodes are inconsistent.
    Inconsistent,
    /// No client is served, or too late.
    Unavailable,
    /// A node has ended, or has given an answer that no node should give.
    Failed,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Complaint {
    /// Its kind.
    pub kind: PromiseKind,
    /// The observation.
    pub text: String,
}

/// The results of a round.
#[derive(Debug, Default)]
pub struct ChaosReport {
    /// The broken promises.
    pub complaints: Vec<Complaint>,
    /// The faults and other actions, with their times.
    pub events: Vec<String>,
    /// Requests that were served, refused, and of unknown outcome.
    pub served: [u64; 3],
    /// Transactions in the history.
    pub transactions: usize,
    /// Faults.
    pub faults: usize,
    /// From the end of the faults until all nodes answered.
    pub restarting: Duration,
    /// From the end of the faults until a write was acknowledged.
    pub serving: Duration,
    /// From then on until all nodes had the same state.
    pub catching_up: Duration,
    /// Nodes that had lost their disks and were added.
    pub added: usize,
    /// How long the judgement took.
    pub judging: Duration,
}

impl ChaosReport {
    /// Adds broken promises.
    pub fn complain(&mut self, kind: PromiseKind, texts: impl IntoIterator<Item = String>) {
        let complaints = texts.into_iter().map(|text| Complaint { kind, text });
        self.complaints.extend(complaints);
    }
}

impl Life {
    /// Makes a partition of `count` nodes in `dir`, and waits until it serves.
    ///
    /// # Errors
    /// Returns an error if it cannot be made, or does not begin to serve.
    pub fn begin(
        network: &ChaosNetwork,
        program: &Program,
        dir: PathBuf,
        count: u16,
    ) -> Result<Life> {
        let life = Life {
            nodes: PartitionNodes::new(program, &dir, count)?,
            dir,
            books: Books::new(),
            earlier: BTreeMap::new(),
            unknown: HashSet::new(),
        };
        life.nodes
            .ids()
            .try_for_each(|id| life.nodes.start(network, id))?;
        life.serve()?;
        let world = World::new(life.nodes.addresses());
        let Books {
            counters,
            transfers,
            collections,
        } = &life.books;
        for plan in [counters.setup(), transfers.setup(), collections.setup()] {
            convergence::set_up(&world, PATIENCE, &plan)?;
        }
        Ok(life)
    }

    fn serve(&self) -> Result<()> {
        self.nodes.wait_answering()?;
        let world = World::new(self.nodes.addresses());
        let tails = || self.nodes.ids().map(|id| self.nodes.tail(id));
        convergence::first_write(&world, PATIENCE, fastrand::Rng::new())
            .map(drop)
            .with_context(|| tails().collect::<Vec<_>>().join("\n"))
    }

    /// Returns the directory of its files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Kills all nodes at once and starts them as other ones.
    ///
    /// # Errors
    /// Returns an error if they do not serve again.
    pub fn turn_into(&mut self, network: &ChaosNetwork, program: Program) -> Result<()> {
        self.nodes.kill_all()?;
        self.nodes.set_program(program);
        self.nodes
            .ids()
            .try_for_each(|id| self.nodes.start(network, id))?;
        self.serve()
    }

    /// Stops all nodes in good order.
    ///
    /// # Errors
    /// Returns an error if one does not end well.
    pub fn end(&self) -> Result<()> {
        self.nodes.ids().try_for_each(|id| self.nodes.stop(id))
    }

    /// Runs a round: load, faults, recovery, and judgement.
    ///
    /// # Errors
    /// Returns an error if the round cannot be run; a broken promise is no error here.
    pub fn round(
        &mut self,
        network: &ChaosNetwork,
        round: &ChaosRound<'_>,
        rng: &mut fastrand::Rng,
    ) -> Result<ChaosReport> {
        let plan = fault::plan(rng, &round.terms);
        let world = World::new(self.nodes.addresses());
        let recorder = Recorder::new();
        let events = Mutex::new(Vec::new());
        let field = FaultInjector {
            network,
            nodes: &self.nodes,
            world: &world,
            events: &events,
        };
        let mut report = ChaosReport {
            faults: plan.len(),
            ..ChaosReport::default()
        };
        let done = play(
            &field,
            &self.books,
            &recorder,
            round,
            rng,
            &plan,
            &mut report,
        )?;
        let found = match report.complaints[..] {
            [] => self.settle(&world, &recorder, round, &mut report)?,
            _ => None,
        };
        report.events = events.into_inner();
        report.served = [0, 1, 2].map(|kind| world.served[kind].load(Ordering::Relaxed));
        report.complain(PromiseKind::Failed, world.wrong.lock().drain(..));
        self.judge(recorder.finish(), done, found.as_ref(), round, &mut report)?;
        Ok(report)
    }

    /// Waits until all nodes take part and have the same state. Returns that state, if so.
    fn settle(
        &self,
        world: &World,
        recorder: &Recorder,
        round: &ChaosRound<'_>,
        report: &mut ChaosReport,
    ) -> Result<Option<NodeValues>> {
        let begun = Instant::now();
        match self.nodes.add_wiped(ADDING_S) {
            Ok(added) => report.added = added,
            Err(error) => report.complain(PromiseKind::Unavailable, [error.to_string()]),
        }
        let keys = ComparedKeys::of(round.number, &self.books, self.earlier.keys().cloned());
        let mut log = recorder.process();
        let equal = convergence::equal(&self.nodes, world, &keys, round.number, &mut log)?;
        report.catching_up = begun.elapsed();
        report.complain(PromiseKind::Failed, self.nodes.crashed()?);
        match equal {
            Convergence::Equal(found) => Ok(Some(found)),
            Convergence::Different(text) => {
                report.complain(PromiseKind::Inconsistent, [text]);
                Ok(None)
            }
        }
    }

    fn judge(
        &mut self,
        history: History,
        done: Vec<Done>,
        found: Option<&NodeValues>,
        round: &ChaosRound<'_>,
        report: &mut ChaosReport,
    ) -> Result<()> {
        let begun = Instant::now();
        if let Some(path) = round.history {
            let file = std::fs::File::create(path);
            let file = file.with_context(|| format!("cannot make {}", path.display()))?;
            history::json::write(&history, std::io::BufWriter::new(file))?;
        }
        report.transactions = history.transactions.len();
        let verdict = check::strictly_serializable(&history);
        if !verdict.is_accepted() {
            let text = format!("the history is not strictly serializable: {verdict}");
            report.complain(PromiseKind::Inconsistent, [text]);
        }
        let found_in_books = found.map(NodeValues::books);
        report.complain(
            PromiseKind::Inconsistent,
            self.books.check(done, found_in_books.as_ref()),
        );
        self.unknown.extend(convergence::unknown_values(&history));
        if let Some(found) = found {
            report.complain(PromiseKind::Inconsistent, self.compare_earlier(found));
            let values = found.registers().iter().copied();
            let names = (0..REGISTERS).map(|index| register(round.number, index));
            self.earlier.extend(names.zip(values));
        }
        report.judging = begun.elapsed();
        Ok(())
    }

    /// Checks that registers of earlier rounds have not changed, except for values that were
    /// unknown then.
    fn compare_earlier(&mut self, found: &NodeValues) -> Vec<String> {
        let mut complaints = Vec::new();
        for ((name, was), is) in self.earlier.iter_mut().zip(found.earlier()) {
            let may = is.is_some_and(|value| self.unknown.contains(&value));
            if was != is && !may {
                complaints.push(format!(
                    "{name}, of an earlier round, was {was:?} and is {is:?}"
                ));
            }
            *was = *is;
        }
        complaints
    }
}

/// Drives load while faults come and go, and until the partition has served again for a while.
fn play(
    field: &FaultInjector<'_>,
    books: &Books,
    recorder: &Recorder,
    round: &ChaosRound<'_>,
    rng: &mut fastrand::Rng,
    plan: &[PlannedFault],
    report: &mut ChaosReport,
) -> Result<Vec<Done>> {
    let world = field.world;
    thread::scope(|scope| {
        let _ended = SetOnDrop(&world.over);
        let workers: Vec<_> = (0..round.workers)
            .map(|_| {
                let worker = ChaosWorker::new(world, recorder, books, round.number, rng.fork());
                scope.spawn(move || worker.run())
            })
            .collect();
        for at in 0..world.addresses.len() {
            for _ in 0..LOYAL {
                let reader = StickyReader::new(world, recorder, at, round.number, rng.fork());
                scope.spawn(move || reader.run());
            }
        }
        let played = suffer(field, round, rng, plan, report);
        world.over.store(true, Ordering::SeqCst);
        let done = workers.into_iter().map(|worker| worker.join());
        let done = done
            .map(|done| done.expect("a worker does not panic"))
            .collect();
        played.map(|()| done)
    })
}

fn suffer(
    field: &FaultInjector<'_>,
    round: &ChaosRound<'_>,
    rng: &mut fastrand::Rng,
    plan: &[PlannedFault],
    report: &mut ChaosReport,
) -> Result<()> {
    thread::sleep(CALM);
    let suffered = field.suffer(plan);
    // Also after a failure: no process may be left asleep or cut off.
    field.heal()?;
    let begun = Instant::now();
    let (rng, patience) = (rng.fork(), round.terms.election);
    let (answering, serving) = thread::scope(|scope| {
        let probe = scope.spawn(move || convergence::first_write(field.world, patience, rng));
        let answering = field.nodes.wait_answering();
        report.restarting = begun.elapsed();
        (answering, probe.join().expect("it does not panic"))
    });
    interrupt::check()?;
    report.serving = *serving.as_ref().unwrap_or(&Duration::ZERO);
    // The end of a node, a missing end, and a lack of service are complaints about the nodes.
    let told = |error: anyhow::Error| format!("{error:#}");
    let failures = [suffered.err(), answering.err()];
    report.complain(
        PromiseKind::Failed,
        failures.into_iter().flatten().map(told),
    );
    report.complain(PromiseKind::Unavailable, serving.err().map(told));
    thread::sleep(CALM);
    Ok(())
}
