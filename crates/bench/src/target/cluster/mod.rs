//! Transactions of many keys on a cluster of server processes, by one client process (paper 1,
//! section 5).
//!
//! A run starts the processes, loads the keys, drives the client's threads, checks what is there,
//! and (with a log) kills the processes and starts them again to see that everything acknowledged
//! came back. A transaction is as a whole a read of its keys or a write of all of them; `book` says
//! how it is known that it was atomic.

mod book;
mod servers;

use std::net::SocketAddr;
use std::time::Duration;

use client::Client;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::driver::{Completions, DONE, Moment, Pace, Plan};
use crate::keys;
use crate::machine;
use crate::sample::{Check, RunError, Sample};
use crate::stamp::{self, Stamp};
use crate::target::{Context, Place};

use book::{Book, LOADER, Put, Seen};
pub(super) use servers::{Servers, free_address};

/// Keys that are loaded, or checked, at once.
const BATCH: usize = 100;

/// Transactions on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterJob {
    /// Server processes, each with one partition.
    pub nodes: usize,
    /// Threads of the client.
    pub threads: usize,
    /// Keys in all.
    pub keys: u64,
    /// Keys in a transaction.
    pub width: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Share of transactions that read, from 0 to 1.
    pub reads: f64,
    /// Where the servers' logs lie; `None`: everything is in memory only.
    pub log: Option<Place>,
}

pub(super) fn run(job: &ClusterJob, context: &Context<'_>) -> Result<Sample, RunError> {
    let skipped = |why: &str| Err(RunError::Skipped(why.to_owned()));
    let Some(binary) = context.server else {
        return skipped("there is no program to start servers with");
    };
    if context.recorder.is_some() || context.affinity.is_some() {
        return skipped("servers in processes of their own are neither recorded nor placed");
    }
    assert!(job.value >= stamp::WHOLE, "values have room for a stamp");
    let dir = context.directory(job.log.unwrap_or(Place::Memory))?;
    let mut servers = Servers::new(binary, dir.path(), job.nodes, job.log.is_some())?;
    servers.start()?;
    let client = connect(&servers)?;
    let load = Load { job, context };
    load.fill(&client)
        .map_err(|error| RunError::failed("loading")(&error))?;
    let mut sample = Sample::default();
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
        let again = connect(&servers).map_err(|error| error.to_string());
        let again = again.and_then(|client| load.check(&client, &book));
        let same = again.and_then(|again| match again == held {
            true => Ok(()),
            false => Err("the servers hold other values than before they were killed".to_owned()),
        });
        sample.checks.push(Check::new(what, same));
    }
    Ok(sample)
}

fn connect(servers: &Servers) -> Result<Client, RunError> {
    let mut options = client::Options::new("");
    options.timeout = Duration::from_secs(60);
    let addresses: Vec<SocketAddr> = servers.addresses().collect();
    let client = Client::connect(addresses, options);
    client.map_err(|error| RunError::failed("connecting")(&error))
}

/// What transactions do.
struct Load<'r> {
    job: &'r ClusterJob,
    context: &'r Context<'r>,
}

impl Load<'_> {
    /// Writes all keys.
    fn fill(&self, client: &Client) -> Result<(), String> {
        let all: Vec<u64> = (0..self.job.keys).collect();
        for some in all.chunks(BATCH) {
            let stamp = Stamp {
                writer: LOADER,
                sequence: 0,
            };
            write(client, some, stamp, self.job.value)?;
        }
        Ok(())
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
            seed: self.context.seed,
            rng: Rng::with_seed(self.context.seed.wrapping_add(u64::from(writer) << 32)),
            writer,
            clock: completions.origin(),
            puts: Vec::new(),
            seen: Vec::new(),
            plant: self.context.plant && writer == 1,
        });
        let plan = Plan {
            pace: Pace::Closed,
            warm_up: self.context.scale.warm_up,
            time: self.context.scale.time,
        };
        let mut used = [0.0; 2];
        let at = |moment| {
            let place = usize::from(moment == Moment::End);
            used[place] = machine::own_cpu() + servers.cpu();
        };
        let threads = threads.collect();
        let driven = crate::driver::drive(threads, &completions, plan, self.context.stop, at);
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
        let cpu = (used[1] - used[0]) * 1e6 / driven.transactions as f64;
        sample.values.set("cpu", cpu);
        let book = Book {
            seed: self.context.seed,
            keys: self.job.keys,
            width: self.job.width,
            puts: threads.iter().map(|thread| thread.puts.clone()).collect(),
        };
        sample
            .checks
            .push(Check::new("every answer is right", Ok(())));
        let seen = threads.iter().flat_map(|thread| &thread.seen);
        let whole = book.judge(seen);
        sample
            .checks
            .push(Check::new("no read is fractured", whole));
        Ok(Some(book))
    }

    /// Reads all keys: each holds a last write. Returns what they hold.
    fn check(&self, client: &Client, book: &Book) -> Result<Vec<Stamp>, String> {
        let all: Vec<u64> = (0..self.job.keys).collect();
        let mut held = Vec::new();
        for some in all.chunks(BATCH) {
            held.extend(read(client, some, self.job.value)?);
        }
        book.settle(&held)?;
        Ok(held)
    }
}

/// One thread of the client.
struct Thread<'r> {
    client: &'r Client,
    job: ClusterJob,
    seed: u64,
    rng: Rng,
    writer: u32,
    clock: std::time::Instant,
    /// What it wrote: the sequence is the place, from 1 on.
    puts: Vec<Put>,
    /// What it read of writes of several of its keys.
    seen: Vec<Seen>,
    /// Leaves a key out of a write, to see that it is found.
    plant: bool,
}

impl Thread<'_> {
    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn get(&mut self) -> Result<(), String> {
        let keys = book::draw(&mut self.rng, self.job.keys, self.job.width);
        let stamps = read(self.client, &keys, self.job.value)?;
        let (seed, all) = (self.seed, self.job.keys);
        let siblings = |stamp| book::keys_of(seed, stamp, all, keys.len());
        book::note(&keys, &stamps, siblings, &mut self.seen)
    }

    fn put(&mut self) -> Result<(), String> {
        let stamp = Stamp {
            writer: self.writer,
            sequence: self.puts.len() as u64 + 1,
        };
        let mut keys = book::keys_of(self.seed, stamp, self.job.keys, self.job.width);
        if self.plant && self.puts.len().is_multiple_of(2) {
            keys.pop();
        }
        let begin = self.now();
        write(self.client, &keys, stamp, self.job.value)?;
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

/// Sets keys, all at once.
fn write(client: &Client, keys: &[u64], stamp: Stamp, length: usize) -> Result<(), String> {
    let pairs = keys.iter().map(|&key| {
        let mut value = vec![0; length];
        stamp.write(key, &mut value);
        (keys::encode(key), value)
    });
    let pairs: Vec<_> = pairs.collect();
    let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(k, v)| (&k[..], &v[..])).collect();
    client.mset(&pairs).map_err(|error| error.to_string())
}

/// The stamps of keys, all of one moment.
fn read(client: &Client, keys: &[u64], length: usize) -> Result<Vec<Stamp>, String> {
    let names: Vec<[u8; 8]> = keys.iter().map(|&key| keys::encode(key)).collect();
    let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
    let values = client.mget(&names).map_err(|error| error.to_string())?;
    let stamp = |(&key, value): (&u64, &Option<Vec<u8>>)| {
        let value = value.as_ref().filter(|value| value.len() == length);
        let stamp = value.and_then(|value| Stamp::read(key, value));
        stamp.ok_or_else(|| format!("key {key} holds what nobody wrote"))
    };
    keys.iter().zip(&values).map(stamp).collect()
}
