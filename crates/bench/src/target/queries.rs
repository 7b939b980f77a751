//! Tiny queries of many clients to a few nodes: by clients that know the nodes, or through a proxy.
//!
//! | way | who routes | connections of a client |
//! |---|---|---|
//! | `direct` | the client | one to each node |
//! | `proxy` | Kumiki's proxy | one |
//! | `sockets` | the same, over sockets where the default is io_uring | one |
//! | `older` | the same, in the paper's older design | one |
//! | `twemproxy` | twemproxy | one |
//!
//! Nodes are processes of `redis-server`, or of Kumiki where that is not installed; the proxy is a
//! process of its own; clients live in this one. Of ten queries nine write a key of 5 bytes with a
//! value of 5 bytes, and one reads the key that was written last. Each client has keys of its own
//! and one query under way, so that it knows every reply to the byte.

mod book;
mod clients;
mod nodes;
mod packets;
mod slices;

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::driver::{Driven, Moment, Pace, Plan, drive_tasks};
use crate::machine;
use crate::sample::{Check, RunError, Sample};
use crate::target::{Context, Place};
use book::Book;
use clients::Asker;
use nodes::{Nodes, Proxy};
use packets::Packets;
pub(in crate::target) use slices::slice;

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Road {
    /// Clients ask the nodes.
    Direct,
    /// Through the proxy.
    Proxy,
    /// Through the proxy, which uses sockets and no io_uring.
    Sockets,
    /// Through the proxy in its older design.
    Older,
    /// Through twemproxy.
    Twemproxy,
}

impl Road {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Road::Direct => "direct",
            Road::Proxy => "proxy",
            Road::Sockets => "sockets",
            Road::Older => "older",
            Road::Twemproxy => "twemproxy",
        }
    }
}

/// Tiny queries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueriesJob {
    /// Their way.
    pub road: Road,
    /// Processes that hold keys.
    pub nodes: usize,
    /// `true` if all of them share one processor.
    pub pinned: bool,
    /// Clients, each with one query under way.
    pub clients: usize,
    /// Threads of the proxy that have clients.
    pub threads: usize,
    /// Threads of the proxy that have nodes; 0: those with clients have them, too.
    pub aggregation: usize,
    /// Queries a second of all clients together; `None`: as many as possible.
    pub rate: Option<f64>,
}

pub(super) fn run(job: &QueriesJob, context: &Context<'_>) -> Result<Sample, RunError> {
    if context.recorder.is_some() || context.affinity.is_some() {
        let what = "servers in processes of their own are neither recorded nor placed";
        return Err(RunError::Skipped(what.to_owned()));
    }
    let dir = context.directory(Place::Memory)?;
    let nodes = Nodes::start(job, context, dir.path())?;
    let proxy = match job.road {
        Road::Direct => None,
        _ => Some(Proxy::start(job, context, &nodes, dir.path())?),
    };
    let setting = Setting {
        job,
        context,
        nodes: &nodes,
        proxy: proxy.as_ref(),
    };
    let mut sample = Sample {
        note: nodes.note(),
        ..Sample::default()
    };
    let ended = match job.rate {
        None => setting.loaded(&mut sample),
        Some(rate) => slices::measure(&setting, rate, &mut sample),
    };
    let (outcome, books) = match ended {
        Ok(books) => (Ok(()), books),
        Err(RunError::Failed(what)) => (Err(what), Vec::new()),
        Err(other) => return Err(other),
    };
    let check = Check::new("every reply is right", outcome);
    sample.checks.push(check);
    let held = clients::read_back(nodes.addresses(), &books);
    let check = Check::new("every key holds its last write", held);
    sample.checks.push(check);
    Ok(sample)
}

/// The surroundings of a run.
struct Setting<'r> {
    job: &'r QueriesJob,
    context: &'r Context<'r>,
    nodes: &'r Nodes,
    proxy: Option<&'r Proxy>,
}

impl Setting<'_> {
    /// Returns the addresses to which each client connects.
    fn targets(&self) -> Vec<std::net::SocketAddr> {
        match self.proxy {
            Some(proxy) => vec![proxy.address()],
            None => self.nodes.addresses().to_vec(),
        }
    }

    /// Returns a client's book of its queries. Clients of one run have different numbers.
    fn book(&self, number: usize) -> Book {
        let planted = self.context.plant && number == 0;
        Book::new(number as u64, self.nodes.addresses().len(), planted)
    }

    /// Returns the processor time in seconds: of the clients, the nodes, the proxy.
    fn used(&self) -> [f64; 3] {
        let proxy = self.proxy.map_or(0.0, Proxy::cpu);
        [machine::own_cpu(), self.nodes.cpu(), proxy]
    }

    /// Runs all clients at full speed.
    fn loaded(&self, sample: &mut Sample) -> Result<Vec<Book>, RunError> {
        let runtime = super::runtime()?;
        let askers = self.askers(&runtime);
        let askers = askers.map_err(|error| RunError::failed("connecting")(&error))?;
        let scale = self.context.scale;
        let plan = Plan {
            pace: Pace::Closed,
            warm_up: scale.warm_up,
            time: scale.time,
        };
        let mut used = [[0.0; 3]; 2];
        let at = |moment| used[usize::from(moment == Moment::End)] = self.used();
        let before = Packets::at(self.nodes.addresses());
        let (driven, askers) = drive_tasks(&runtime, askers, plan, self.context.stop, at)?;
        let after = Packets::at(self.nodes.addresses());
        self.tell(&driven, used, sample);
        let books: Vec<Book> = askers.into_iter().map(Asker::into_book).collect();
        let asked: u64 = books.iter().map(Book::asked).sum();
        if let (Some(before), Some(after)) = (before, after) {
            let [all, requests] = after.since(before).map(|count| count as f64);
            sample.values.set("packets", all / asked as f64);
            sample.values.set("per-packet", asked as f64 / requests);
        }
        Ok(books)
    }

    fn tell(&self, driven: &Driven, used: [[f64; 3]; 2], sample: &mut Sample) {
        let values = &mut sample.values;
        driven.tell(values);
        values.set("latency-min", driven.latency.quantile_ms(0.0));
        let each = |who: usize| (used[1][who] - used[0][who]) * 1e6 / driven.transactions as f64;
        let [client, nodes, proxy] = [0, 1, 2].map(each);
        values.set("cpu", client + nodes + proxy);
        values.set("server-cpu", nodes);
        if self.proxy.is_some() {
            values.set("proxy-cpu", proxy);
            values.set("per-core", 1e6 / proxy);
        }
    }

    fn askers(&self, runtime: &Runtime) -> Result<Vec<Asker>, String> {
        let targets = self.targets();
        let asker = |number| runtime.block_on(Asker::connect(self.book(number), &targets));
        (0..self.job.clients).map(asker).collect()
    }
}
