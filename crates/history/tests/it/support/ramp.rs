//! RAMP-Fast in one thread, a message at a time: clients of a few keys, each on a partition of its
//! own, whose steps interleave as the seed determines.

use std::collections::BTreeMap;
use std::fmt::Write;

use fastrand::Rng;
use kumiki_history::{History, json};

/// The fault of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// There is none.
    None,
    /// Readers take the results of the first round.
    OneRound,
    /// A write is acknowledged once it is prepared; and some are never committed.
    ForgetsCommits,
    /// Prepared versions are visible, and some of them are given up.
    ShowsPrepared,
    /// Some reads of one key are answered with an old state.
    OldReads,
    /// An update of one key does not notice writes since it read.
    BlindUpdates,
}

#[derive(Clone, Debug)]
pub(crate) struct Simulation {
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    pub(crate) keys: usize,
    pub(crate) transactions: usize,
    /// `true` if some writes are deletes.
    pub(crate) deletes: bool,
    /// The share of writes whose client goes away in the middle: they commit later or never.
    pub(crate) lose: f64,
    /// `true` if versions are recorded.
    pub(crate) versions: bool,
    pub(crate) fault: Fault,
}

impl Default for Simulation {
    fn default() -> Simulation {
        Simulation {
            seed: 1,
            clients: 6,
            keys: 4,
            transactions: 400,
            deletes: false,
            lose: 0.0,
            versions: false,
            fault: Fault::None,
        }
    }
}

/// A version: its writer, the keys of the transaction, and its value.
#[derive(Clone)]
struct Version {
    id: u64,
    siblings: Vec<usize>,
    value: Option<i64>,
}

/// One key at its partition.
#[derive(Clone, Default)]
struct KeyVersions {
    versions: BTreeMap<u64, Version>,
    newest: u64,
    /// The versions that were the newest, one after the other.
    past: Vec<u64>,
}

impl KeyVersions {
    fn commit(&mut self, id: u64) {
        if id > self.newest {
            self.past.push(self.newest);
            self.newest = id;
        }
    }

    fn value(&self, id: u64) -> Option<i64> {
        self.versions.get(&id).and_then(|version| version.value)
    }
}

/// The job of a client, and its progress.
enum Job {
    /// Writes keys: prepares each, then commits each.
    Put {
        id: u64,
        keys: Vec<usize>,
        value: Option<i64>,
        at: usize,
    },
    /// Reads keys: the first round, then the second.
    Get {
        keys: Vec<usize>,
        seen: Vec<u64>,
        wanted: Vec<u64>,
        at: usize,
    },
    /// Reads one key and writes it; holds the version that the first step read.
    Update {
        key: usize,
        value: i64,
        saw: Option<u64>,
    },
}

struct Client {
    job: Job,
    start: u64,
}

struct World<'s> {
    options: &'s Simulation,
    rng: Rng,
    now: u64,
    places: Vec<KeyVersions>,
    next_value: i64,
    /// Writes whose clients went away.
    orphans: Vec<(u64, Vec<usize>)>,
    lines: String,
    ended: usize,
}

impl Simulation {
    pub(crate) fn run(&self) -> History {
        let mut world = World {
            options: self,
            rng: Rng::with_seed(self.seed),
            now: 1,
            places: vec![KeyVersions::default(); self.keys],
            next_value: 1,
            orphans: Vec::new(),
            lines: String::new(),
            ended: 0,
        };
        let mut clients: Vec<Client> = (0..self.clients).map(|_| world.client()).collect();
        while world.ended < self.transactions {
            world.now += 1;
            let process = world.rng.usize(..clients.len());
            if world.step(process, &mut clients[process]) {
                clients[process] = world.client();
            }
            if world.rng.u8(..20) == 0 && !world.orphans.is_empty() {
                let at = world.rng.usize(..world.orphans.len());
                let (id, keys) = world.orphans.swap_remove(at);
                keys.iter().for_each(|&key| world.places[key].commit(id));
            }
        }
        for (process, client) in clients.iter().enumerate() {
            if let Job::Put {
                id, keys, value, ..
            } = &client.job
            {
                world.write(process, client.start, *id, keys, *value, "unknown");
            }
        }
        json::read(world.lines.as_bytes()).expect("the simulation writes the format")
    }
}

impl World<'_> {
    fn client(&mut self) -> Client {
        let count = self.rng.usize(1..=self.options.keys);
        let keys = self.rng.choose_multiple(0..self.options.keys, count);
        let value = self.next_value;
        let job = match self.rng.u8(..10) {
            0..4 => {
                self.next_value += 1;
                let deleted = self.options.deletes && self.rng.u8(..4) == 0;
                let value = (!deleted).then_some(value);
                Job::Put {
                    id: self.draw(),
                    keys,
                    value,
                    at: 0,
                }
            }
            4 => {
                self.next_value += 1;
                Job::Update {
                    key: keys[0],
                    value,
                    saw: None,
                }
            }
            _ => Job::Get {
                keys,
                seen: Vec::new(),
                wanted: Vec::new(),
                at: 0,
            },
        };
        self.now += 1;
        Client {
            job,
            start: self.now,
        }
    }

    /// Draws an id by a clock that may be late or early. Each is drawn once.
    fn draw(&mut self) -> u64 {
        let skew = self.rng.u64(..60);
        (1000 + self.now + skew) * 1_000_000 + self.rng.u64(..1_000_000)
    }

    /// Takes one step; returns `true` if the client has ended.
    fn step(&mut self, process: usize, client: &mut Client) -> bool {
        let start = client.start;
        match &mut client.job {
            Job::Put {
                id,
                keys,
                value,
                at,
            } => self.put(process, start, id, keys, *value, at),
            Job::Get {
                keys,
                seen,
                wanted,
                at,
            } => self.get(process, start, keys, seen, wanted, at),
            Job::Update { key, value, saw } => self.update(process, start, *key, *value, saw),
        }
    }

    fn put(
        &mut self,
        process: usize,
        start: u64,
        id: &mut u64,
        keys: &[usize],
        value: Option<i64>,
        at: &mut usize,
    ) -> bool {
        let fault = self.options.fault;
        if *at < keys.len() {
            let place = &mut self.places[keys[*at]];
            if place.newest >= *id {
                // It is overtaken: it begins again, with a newer id.
                if fault != Fault::ShowsPrepared {
                    keys[..*at].iter().for_each(|&key| {
                        self.places[key].versions.remove(id);
                    });
                }
                // The id is far from the ids of updates, which are those that follow.
                let above = self.places[keys[*at]].newest + 1000 + self.rng.u64(..1000);
                *id = self.draw().max(above);
                *at = 0;
                return false;
            }
            let siblings = keys.to_vec();
            let version = Version {
                id: *id,
                siblings,
                value,
            };
            place.versions.insert(*id, version);
            if fault == Fault::ShowsPrepared {
                place.commit(*id);
            }
            *at += 1;
            return false;
        }
        let gives_up = fault == Fault::ShowsPrepared && *at == keys.len() && self.rng.u8(..8) == 0;
        if gives_up {
            self.write(process, start, *id, keys, value, "aborted");
            return true;
        }
        if *at == keys.len() && self.rng.f64() < self.options.lose {
            self.orphans.push((*id, keys.to_vec()));
            self.write(process, start, *id, keys, value, "unknown");
            return true;
        }
        if fault == Fault::ForgetsCommits && self.rng.u8(..20) == 0 {
            self.write(process, start, *id, keys, value, "committed");
            return true;
        }
        self.places[keys[*at - keys.len()]].commit(*id);
        *at += 1;
        if *at == 2 * keys.len() {
            self.write(process, start, *id, keys, value, "committed");
            return true;
        }
        false
    }

    fn get(
        &mut self,
        process: usize,
        start: u64,
        keys: &[usize],
        seen: &mut Vec<u64>,
        wanted: &mut Vec<u64>,
        at: &mut usize,
    ) -> bool {
        if *at < keys.len() {
            let place = &self.places[keys[*at]];
            let is_old = self.options.fault == Fault::OldReads && keys.len() == 1;
            let newest = match place.past.iter().rev().nth(3) {
                Some(&old) if is_old => old,
                _ => place.newest,
            };
            seen.push(newest);
            *at += 1;
            if *at == keys.len() {
                *wanted = self.wanted(keys, seen);
            }
        }
        if *at < keys.len() {
            return false;
        }
        if self.options.fault != Fault::OneRound {
            // The second round, a key at a time.
            let late = (0..keys.len()).find(|&i| wanted[i] > seen[i]);
            if let Some(i) = late {
                let is_there = self.places[keys[i]].versions.contains_key(&wanted[i]);
                if self.options.fault == Fault::ShowsPrepared && !is_there {
                    wanted[i] = seen[i];
                    return false;
                }
                assert!(is_there, "what has committed is prepared everywhere");
                seen[i] = wanted[i];
                return false;
            }
        }
        let ops = keys.iter().zip(&*seen).map(|(&key, &id)| {
            let value = self.places[key].value(id);
            let value = value.map_or("null".to_owned(), |value| value.to_string());
            let version = self.version(id);
            format!(r#"{{"read":"k{key}","value":{value}{version}}}"#)
        });
        let ops: Vec<String> = ops.collect();
        self.line(process, start, "committed", &ops);
        true
    }

    /// Returns, for each key, the newest version that was written together with one that was seen.
    fn wanted(&self, keys: &[usize], seen: &[u64]) -> Vec<u64> {
        let of = |key: usize| {
            let pairs = keys.iter().zip(seen);
            let versions = pairs.filter_map(|(&other, id)| self.places[other].versions.get(id));
            let with = versions.filter(|version| version.siblings.contains(&key));
            with.map(|version| version.id).max().unwrap_or(0)
        };
        keys.iter().map(|&key| of(key)).collect()
    }

    fn update(
        &mut self,
        process: usize,
        start: u64,
        key: usize,
        value: i64,
        saw: &mut Option<u64>,
    ) -> bool {
        let newest = self.places[key].newest;
        let blind = self.options.fault == Fault::BlindUpdates;
        let Some(read) = saw.filter(|&read| read == newest || blind) else {
            *saw = Some(newest);
            return false;
        };
        // The lowest id that is free, so that prepared versions come after it.
        let id = newest + 1;
        let version = Version {
            id,
            siblings: Vec::new(),
            value: Some(value),
        };
        let place = &mut self.places[key];
        let old = place.value(read);
        place.versions.insert(id, version);
        place.commit(id);
        let old = old.map_or("null".to_owned(), |value| value.to_string());
        let (before, after) = (self.version(read), self.version(id));
        let ops = [
            format!(r#"{{"read":"k{key}","value":{old}{before}}}"#),
            format!(r#"{{"write":"k{key}","value":{value}{after}}}"#),
        ];
        self.line(process, start, "committed", &ops);
        true
    }

    fn write(
        &mut self,
        process: usize,
        start: u64,
        id: u64,
        keys: &[usize],
        value: Option<i64>,
        outcome: &str,
    ) {
        let version = self.version(id);
        let ops = keys.iter().map(|key| match value {
            Some(value) => format!(r#"{{"write":"k{key}","value":{value}{version}}}"#),
            None => format!(r#"{{"delete":"k{key}"{version}}}"#),
        });
        let ops: Vec<String> = ops.collect();
        self.line(process, start, outcome, &ops);
    }

    fn version(&self, id: u64) -> String {
        match self.options.versions {
            true => format!(r#","version":{id}"#),
            false => String::new(),
        }
    }

    fn line(&mut self, process: usize, start: u64, outcome: &str, ops: &[String]) {
        let (id, end, ops) = (self.ended, self.now, ops.join(","));
        self.ended += 1;
        writeln!(
            self.lines,
            r#"{{"process":{process},"id":{id},"start":{start},"end":{end},"outcome":"{outcome}","ops":[{ops}]}}"#
        )
        .expect("a string grows");
    }
}
