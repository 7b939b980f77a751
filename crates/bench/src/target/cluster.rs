//! Transactions of many keys on a cluster of server processes, by one client process (paper 1,
//! section 5).
//!
//! A run starts the processes, loads the keys, drives the client's threads, checks the keys, and
//! (with a log) kills the processes and starts them again to see that everything acknowledged came
//! back. A transaction as a whole reads its keys or writes all of them; `book` checks that it was
//! atomic, `way` has the ways to make it so.

mod book;
mod servers;
mod transport;
mod way;

use std::net::SocketAddr;
use std::time::Duration;

use client::Client;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::awake::Awake;
use crate::driver::{Completions, DONE, Driven, Moment, Pace, Plan};
use crate::keys::Distribution;
use crate::machine;
use crate::sample::{Check, RunError, Sample};
use crate::stamp::{self, Stamp};
use crate::target::{Context, Place};

use book::{Book, Keys, LOADER, Put, Reads};
pub(super) use servers::{Servers, Shape};
pub use transport::Transport;
pub(super) use way::READ_ATOMIC;
pub use way::Way;

/// Keys that are checked at once.
const BATCH: usize = 100;
/// Threads that load keys.
const LOADERS: usize = 4;
/// Up to so many keys are all checked in the end; of more keys about as many are.
const CHECKED: u64 = 16_384;

/// Transactions on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterJob {
    /// Server processes, each with one partition.
    pub nodes: usize,
    /// Threads of each server that serve clients; `None`: its share of the processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_threads: Option<usize>,
    /// Threads of the client.
    pub threads: usize,
    /// The way by which transactions are atomic.
    pub way: Way,
    /// Keys in all.
    pub keys: u64,
    /// How they are drawn.
    pub draws: Distribution,
    /// Keys in a transaction.
    pub width: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Share of transactions that read, from 0 to 1.
    pub reads: f64,
    /// Where the servers' logs lie; `None`: everything is in memory only.
    pub log: Option<Place>,
    /// How messages travel.
    #[serde(default)]
    pub transport: Transport,
}

pub(super) fn run(job: &ClusterJob, context: &Context<'_>) -> Result<Sample, RunError> {
    run_with(job, job.way.reads(), context)
}

/// As [`run`]; `reads` says where RAMP's reads run.
pub(super) fn run_with(
    job: &ClusterJob,
    reads: client::Reads,
    context: &Context<'_>,
) -> Result<Sample, RunError> {
    let binary = program(context)?;
    assert!(job.value >= stamp::WHOLE, "values have room for a stamp");
    let (address, note) = job.transport.prepare().map_err(RunError::Skipped)?;
    let dir = context.directory(job.log.unwrap_or(Place::Memory))?;
    let shape = Shape {
        threads: job.server_threads,
        logged: job.log.is_some(),
        transport: job.transport,
        address,
        ..Shape::partitions(job.nodes)
    };
    let mut servers = Servers::new(binary, dir.path(), shape)?;
    servers.start()?;
    let client = connect(&servers, reads, job.transport)?;
    let load = Load {
        job,
        context,
        keys: Keys::new(context.seed, job.keys, job.width, job.draws),
    };
    let filled = load.fill(&client).and_then(|()| load.learn(&client));
    filled.map_err(|error| RunError::failed("loading")(&error))?;
    let mut sample = Sample {
        note,
        ..Sample::default()
    };
    let Some(book) = load.drive(&client, &servers, &mut sample)? else {
        return Ok(sample);
    };
    let held = load.check(&client, &book);
    let outcome = held.clone().map(drop);
    sample
        .checks
        .push(Check::new("every key is right", outcome));
    if let (Ok(held), true, true) = (held, job.log.is_some(), context.reopen) {
        let what = "what was acknowledged is recovered";
        servers.kill();
        servers.start()?;
        let again = connect(&servers, reads, job.transport).map_err(|error| error.to_string());
        let again = again.and_then(|client| load.check(&client, &book));
        let same = again.and_then(|again| match again == held {
            true => Ok(()),
            false => Err("the servers hold other values than before they were killed".to_owned()),
        });
        sample.checks.push(Check::new(what, same));
    }
    Ok(sample)
}

/// Returns the program whose processes are measured; the error says why they are not.
pub(super) fn program<'c>(context: &Context<'c>) -> Result<&'c std::path::Path, RunError> {
    if context.recorder.is_some() || context.affinity.is_some() {
        let why = "servers in processes of their own are neither recorded nor placed";
        return Err(RunError::Skipped(why.to_owned()));
    }
    context.server()
}

pub(super) fn connect(
    servers: &Servers,
    reads: client::Reads,
    transport: Transport,
) -> Result<Client, RunError> {
    let mut options = client::Options::new(servers.secret());
    options.reads = reads;
    options.transport = transport.of_client();
    options.one_sided = transport.is_one_sided();
    options.timeout = Duration::from_secs(60);
    let addresses: Vec<SocketAddr> = servers.addresses().collect();
    let client = Client::connect(addresses, options);
    client.map_err(|error| RunError::failed("connecting")(&error))
}

/// The work of transactions.
struct Load<'r> {
    job: &'r ClusterJob,
    context: &'r Context<'r>,
    keys: Keys,
}

impl Load<'_> {
    /// Writes all keys.
    fn fill(&self, client: &Client) -> Result<(), String> {
        let all: Vec<u64> = (0..self.job.keys).collect();
        fill(client, self.job.way, &all, self.job.value)
    }

    /// Makes a client that reads by itself learn where the keys are. It would also learn that by
    /// reading for a while: longer than short runs last, if there are many keys.
    fn learn(&self, client: &Client) -> Result<(), String> {
        if !self.job.transport.is_one_sided() {
            return Ok(());
        }
        let all: Vec<u64> = (0..self.job.keys).collect();
        let mut batches = all.chunks(BATCH);
        batches.try_for_each(|some| {
            let read = self.job.way.read(client, some, self.job.value);
            read.map(drop)
        })
    }

    /// Drives the threads. `None` if an answer was wrong, which the sample says.
    fn drive(
        &self,
        client: &Client,
        servers: &Servers,
        sample: &mut Sample,
    ) -> Result<Option<Book>, RunError> {
        let completions = Completions::default();
        let threads = (1..=self.job.threads as u32).map(|writer| Thread {
            client,
            job: *self.job,
            keys: self.keys.clone(),
            rng: Rng::with_seed(self.context.seed.wrapping_add(u64::from(writer) << 32)),
            writer,
            clock: completions.origin(),
            puts: Vec::new(),
            reads: Reads::default(),
            plant: self.context.plant && writer == 1,
        });
        let plan = Plan {
            pace: Pace::Closed,
            warm_up: self.context.scale.warm_up,
            time: self.context.scale.time,
        };
        let awake = self.job.log.map(|_| Awake::default());
        let mut use_of = Use::default();
        let at = |moment| use_of.note(moment, servers, client, awake.as_ref());
        let threads = threads.collect();
        let driven = crate::driver::drive(threads, &completions, plan, self.context.stop, at);
        drop(awake);
        let (driven, threads) = match driven {
            Ok(driven) => driven,
            Err(RunError::Failed(what)) => {
                let outcome = Err(what);
                sample
                    .checks
                    .push(Check::new("every answer is right", outcome));
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        driven.tell(&mut sample.values);
        use_of.tell(&driven, sample);
        let served = match driven.transactions {
            0 => Err("no transaction began within the window".to_owned()),
            _ => Ok(()),
        };
        sample.checks.push(Check::new("the servers serve", served));
        sample
            .checks
            .push(Check::new("every answer is right", Ok(())));
        let puts: Vec<Vec<Put>> = threads.iter().map(|thread| thread.puts.clone()).collect();
        let book = Book::new(&self.keys, &puts);
        let mut reads = threads.iter().map(|thread| &thread.reads);
        let whole = reads.try_for_each(|reads| book.judge(reads));
        sample
            .checks
            .push(Check::new("no read is fractured", whole));
        Ok(Some(book))
    }

    /// Reads all keys, or a sample if there are many: each holds a last write. Returns their
    /// stamps.
    fn check(&self, client: &Client, book: &Book) -> Result<Vec<(u64, Stamp)>, String> {
        let step = self.job.keys.div_ceil(CHECKED) as usize;
        let some: Vec<u64> = (0..self.job.keys).step_by(step).collect();
        let mut held = Vec::new();
        for some in some.chunks(BATCH) {
            let stamps = self.job.way.read(client, some, self.job.value)?;
            held.extend(some.iter().copied().zip(stamps));
        }
        book.settle(&held)?;
        Ok(held)
    }
}

/// Writes these keys, by several threads.
pub(super) fn fill(client: &Client, way: Way, keys: &[u64], length: usize) -> Result<(), String> {
    let stamp = Stamp {
        writer: LOADER,
        sequence: 0,
    };
    std::thread::scope(|scope| {
        let parts = keys.chunks(keys.len().div_ceil(LOADERS).max(1));
        let load = |some| scope.spawn(move || way.load(client, some, stamp, length));
        let threads: Vec<_> = parts.map(load).collect();
        threads.into_iter().try_for_each(|thread| {
            let panicked = |_| Err("a thread that loads has panicked".to_owned());
            thread.join().unwrap_or_else(panicked)
        })
    })
}

/// The use of resources at the window's beginning and end.
#[derive(Default)]
struct Use {
    client: [f64; 2],
    servers: [f64; 2],
    /// RAMP's reads, and those of several rounds: the client's own and the servers' together.
    reads: [[u64; 2]; 2],
}

impl Use {
    fn note(&mut self, moment: Moment, servers: &Servers, client: &Client, awake: Option<&Awake>) {
        let place = usize::from(moment == Moment::End);
        self.client[place] = machine::own_cpu() - awake.map_or(0.0, Awake::cpu);
        self.servers[place] = servers.cpu();
        let own = client.read_counts();
        let [reads, several] = servers.ramp_reads();
        self.reads[place] = [own.reads + reads, own.several_rounds + several];
    }

    fn tell(&self, driven: &Driven, sample: &mut Sample) {
        let spent = |used: [f64; 2]| (used[1] - used[0]) * 1e6 / driven.transactions as f64;
        let (client, servers) = (spent(self.client), spent(self.servers));
        sample.values.set("cpu", client + servers);
        sample.values.set("server-cpu", servers);
        let [before, after] = self.reads;
        let reads = after[0].saturating_sub(before[0]);
        if reads > 0 {
            let several = after[1].saturating_sub(before[1]) as f64;
            let one = (1.0 - several / reads as f64).max(0.0);
            sample.values.set("one-round", one);
        }
    }
}

/// One thread of the client.
struct Thread<'r> {
    client: &'r Client,
    job: ClusterJob,
    keys: Keys,
    rng: Rng,
    writer: u32,
    clock: std::time::Instant,
    /// Its writes: the sequence is the place, from 1 on.
    puts: Vec<Put>,
    reads: Reads,
    /// Leaves a key out of a write, to see that it is found.
    plant: bool,
}

impl Thread<'_> {
    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn get(&mut self) -> Result<(), String> {
        let keys = self.keys.draw(&mut self.rng);
        let stamps = self.job.way.read(self.client, &keys, self.job.value)?;
        self.reads.push(&keys, &stamps);
        Ok(())
    }

    fn put(&mut self) -> Result<(), String> {
        let stamp = Stamp {
            writer: self.writer,
            sequence: self.puts.len() as u64 + 1,
        };
        let mut keys = self.keys.of(stamp);
        if self.plant && self.puts.len().is_multiple_of(2) {
            keys.pop();
        }
        let begin = self.now();
        let way = self.job.way;
        way.write(self.client, &keys, stamp, self.job.value)?;
        let end = self.now();
        self.puts.push(Put { begin, end });
        Ok(())
    }
}

impl crate::driver::Client for Thread<'_> {
    fn run(&mut self) -> Result<u64, String> {
        if self.rng.f64() < self.job.reads {
            self.get()?;
        } else {
            self.put()?;
        }
        Ok(DONE)
    }

    fn settle(&mut self, _: u64) -> Result<(), String> {
        Ok(())
    }
}
