//! Shared by the experiments of paper 1: four server processes, one client process of eight
//! threads, transactions that as a whole read or write, and several ways to make them atomic.

use crate::experiment::SweepPoint;
use crate::keys::Distribution;
use crate::parameters::Param;
use crate::plot::{Aim, Compare, Measure};
use crate::run_context::StorageMedium;
use crate::systems::{AtomicityProtocol, ClusterTransport};
use crate::target::{ClusterJob, TargetJob};

/// Server processes.
pub(super) const NODES: usize = 4;
/// The paper's thousand keys.
pub(super) const KEYS: u64 = 1000;
/// The names of the columns that all of them have.
pub(super) const COLUMNS: [&str; 6] = [
    "throughput",
    "latency",
    "latency-p99",
    "server-cpu",
    "cpu",
    "one-round",
];
/// The description of the columns.
pub(super) const ABOUT: &str = "The columns are ways to make such transactions atomic. 's2pl' is \
    strict two-phase locking with two-phase commit: a read holds everything that it has read until \
    it is decided. 'ramp-f', 'ramp-s' and 'ramp-h' are RAMP-Fast, RAMP-Small and RAMP-Hybrid on keys \
    that are declared read atomic: nothing is held. In all of these a server coordinates, over TCP. In \
    the paper's three, 'GET/PUT', 'GET+/PUT+' and 'GET*/PUT+', the client runs the reads and the \
    writes of RAMP-Fast by itself: over TCP; through rings in shared memory; through rings, and reading in shared memory \
    what servers have published, without asking them. 'Send/Recv' is the same with messages by Send and \
    Receive, emulated in shared memory. Those with 'verbs' use an RDMA device, if there is one. All of \
    these are compared with 'GET/PUT', the others with 's2pl'. 'memory' keeps nothing, as the paper's servers do; 'disk' answers a write \
    when all of its parts are durable.";
/// RAMP-Fast with reads and writes by the client: the paper's names, and the transports. The first one is the
/// baseline of the others.
pub(super) const PAPERS: [(&str, ClusterTransport); 4] = [
    (GET, ClusterTransport::Tcp),
    (SEND, ClusterTransport::ShmSend),
    (GET_PLUS, ClusterTransport::ShmRing),
    (GET_STAR, ClusterTransport::ShmOneSided),
];
/// The same over an RDMA device; measured in memory alone.
const DEVICE: [(&str, ClusterTransport); 3] = [
    ("Send/Recv-verbs", ClusterTransport::VerbsSend),
    ("GET+/PUT+-verbs", ClusterTransport::VerbsRing),
    ("GET*/PUT+-verbs", ClusterTransport::VerbsOneSided),
];
/// Messages by Send and Receive, emulated in shared memory.
pub(super) const SEND: &str = "Send/Recv";
/// Messages over TCP.
pub(super) const GET: &str = "GET/PUT";
/// Messages through rings.
pub(super) const GET_PLUS: &str = "GET+/PUT+";
/// As [`GET_PLUS`], and reads of the versions that servers have published.
pub(super) const GET_STAR: &str = "GET*/PUT+";

/// The logs of the servers, by name.
pub(super) const LOGS: [(&str, Option<StorageMedium>); 2] =
    [("memory", None), ("disk", Some(StorageMedium::Disk))];

/// Returns a job whose transactions have `width` of the thousand keys, uniformly drawn.
pub(super) fn job(width: usize, reads: usize) -> ClusterJob {
    ClusterJob {
        nodes: NODES,
        server_threads: None,
        threads: 8,
        protocol: AtomicityProtocol::S2pl,
        keys: KEYS,
        draws: Distribution::Uniform,
        width,
        value: 1024,
        reads: reads as f64 / 100.0,
        log: None,
        transport: ClusterTransport::Tcp,
    }
}

/// Returns this job in all ways: first those that servers coordinate, with two-phase locking as the
/// baseline; then the paper's, and Send and Receive; in memory also those over an RDMA device.
pub(super) fn ways<const N: usize>(params: [(&str, Param); N], job: ClusterJob) -> Vec<SweepPoint> {
    let point = |system: &str, protocol: AtomicityProtocol, transport: ClusterTransport| {
        let job = ClusterJob {
            protocol,
            transport,
            ..job
        };
        let mut point = SweepPoint::new(params.clone(), TargetJob::Cluster(job));
        point.id = format!("system={system} {}", point.id);
        point.params.insert("system".to_owned(), system.into());
        point
    };
    let of_servers = AtomicityProtocol::ALL
        .map(|protocol| point(protocol.name(), protocol, ClusterTransport::Tcp));
    let device: &[_] = if job.log.is_none() { &DEVICE } else { &[] };
    let of_client = PAPERS.iter().chain(device);
    let of_client =
        of_client.map(|&(name, over)| point(name, AtomicityProtocol::RampFClient, over));
    let of_client = of_client.collect();
    let mut points = compared(of_servers.into());
    points.extend(compared(of_client));
    points
}

/// Returns these points; the first one is the baseline of the others.
pub(super) fn compared(mut points: Vec<SweepPoint>) -> Vec<SweepPoint> {
    let (baseline, others) = points.split_first_mut().expect("there is a baseline");
    for other in others {
        *other = other.clone().against(baseline);
    }
    points
}

/// Returns the place of a system in a sweep.
pub(super) fn at<const N: usize>(
    system: &str,
    log: &str,
    more: [(&'static str, Param); N],
) -> Vec<(&'static str, Param)> {
    let mut at = vec![("system", system.into()), ("log", log.into())];
    at.extend(more);
    at
}

/// Returns the quotient of RAMP-Fast's throughput and that of two-phase locking, at a place in the
/// sweep.
pub(super) fn beside_s2pl<const N: usize>(
    what: &'static str,
    log: &str,
    more: [(&'static str, Param); N],
    aim: f64,
) -> Compare {
    Compare {
        what,
        paper: Some("only drawn"),
        ours: Measure::Share {
            metric: "throughput",
            at: at(AtomicityProtocol::RampF.name(), log, more),
        },
        aim: Some(Aim::AtLeast(aim)),
    }
}

/// Returns the quotient of the throughput of reads that the client runs by itself, over TCP, and
/// that of two-phase locking.
pub(super) fn direct_beside_s2pl<const N: usize>(
    what: &'static str,
    more: [(&'static str, Param); N],
) -> Compare {
    let log = LOGS[0].0;
    Compare {
        what,
        paper: Some("only drawn"),
        ours: Measure::Ratio {
            metric: "throughput",
            of: at(GET, log, more.clone()),
            to: at(AtomicityProtocol::S2pl.name(), log, more),
        },
        aim: None,
    }
}

/// The paper's values for its three at a place in the sweep, compared with the same in memory here.
pub(super) struct Said<const N: usize> {
    pub(super) more: [(&'static str, Param); N],
    /// GET+/PUT+ by GET/PUT, GET\*/PUT+ by GET/PUT, GET\*/PUT+ by GET+/PUT+: the comparison, the
    /// paper's value, and the aim.
    pub(super) rows: [(&'static str, &'static str, Option<f64>); 3],
}

impl<const N: usize> Said<N> {
    /// Returns the rows of the comparison.
    pub(super) fn compare(self) -> [Compare; 3] {
        let [plus, star, both] = self.rows;
        let at = |system: &str| at(system, LOGS[0].0, self.more.clone());
        let metric = "throughput";
        let row = |(what, paper, aim): (_, _, Option<f64>), ours| Compare {
            what,
            paper: Some(paper),
            ours,
            aim: aim.map(Aim::AtLeast),
        };
        let share = |system: &str| Measure::Share {
            metric,
            at: at(system),
        };
        let (of, to) = (at(GET_STAR), at(GET_PLUS));
        [
            row(plus, share(GET_PLUS)),
            row(star, share(GET_STAR)),
            row(both, Measure::Ratio { metric, of, to }),
        ]
    }
}
