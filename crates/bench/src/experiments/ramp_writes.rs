//! `ramp-writes`: the same writes, coordinated by servers and by the client (paper 1, algorithm 1).

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::{Param, Scale};
use crate::plot::{Compare, Measure, Plot, PlotKind};
use crate::systems::{AtomicityProtocol, ClusterTransport};
use crate::target::{ClusterJob, TargetJob};

use super::ramp;

/// Keys in a transaction, as in the paper.
const WIDTH: usize = 8;
/// The shares of reads, in percent.
const READS: [usize; 2] = [0, 95];
/// How messages travel: over TCP, and through rings.
const TRANSPORTS: [ClusterTransport; 2] = [ClusterTransport::Tcp, ClusterTransport::ShmRing];
/// The same by an RDMA device, through rings and by Send and Receive; in memory alone.
const DEVICE: [ClusterTransport; 2] = [ClusterTransport::VerbsRing, ClusterTransport::VerbsSend];
/// Who coordinates writes.
const SERVER: &str = "server";
const CLIENT: &str = "client";

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ramp-writes",
    title: "Writes over four servers, by their coordinator",
    paper: None,
    about: &[
        "Four server processes hold a thousand keys of 1 KB. One client process with eight threads \
         runs transactions of eight random keys by RAMP-Fast, of which none or 95 % read; the client \
         runs the reads. Writes are coordinated ('writer') by a server, to which the client hands \
         them, or by the client, which has each server prepare and commit itself, as PUT+ of paper 1 \
         does. Messages travel over TCP, through rings in shared memory, and, where there is an RDMA \
         device, through rings that it writes or by its Sends. 'memory' keeps nothing; 'disk' answers \
         a write when all of its parts are durable.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "reads",
        "log",
        "transport",
        "writer",
        ramp::COLUMNS[0],
        ramp::COLUMNS[1],
        ramp::COLUMNS[2],
        ramp::COLUMNS[3],
        ramp::COLUMNS[4],
        ramp::COLUMNS[5],
    ],
};

fn params(
    (reads, log): (usize, &str),
    transport: ClusterTransport,
    writer: &str,
) -> [(&'static str, Param); 4] {
    [
        ("reads", reads.into()),
        ("log", log.into()),
        ("transport", transport.name().into()),
        ("writer", writer.into()),
    ]
}

fn points(_: &Scale) -> Vec<SweepPoint> {
    let mut points = Vec::new();
    for (name, log) in ramp::LOGS {
        for reads in READS {
            let device: &[_] = if log.is_none() { &DEVICE } else { &[] };
            for &transport in TRANSPORTS.iter().chain(device) {
                let point = |writer, protocol| {
                    let job = ClusterJob {
                        protocol,
                        transport,
                        log,
                        ..ramp::job(WIDTH, reads)
                    };
                    let params = params((reads, name), transport, writer);
                    SweepPoint::new(params, TargetJob::Cluster(job))
                };
                points.extend(ramp::compared(vec![
                    point(SERVER, AtomicityProtocol::RampFDirect),
                    point(CLIENT, AtomicityProtocol::RampFClient),
                ]));
            }
        }
    }
    points
}

fn plots() -> Vec<Plot> {
    let bars = |title, caption, log: &str| Plot {
        title,
        caption,
        shape: PlotKind::Bars {
            x: "transport",
            y: "throughput",
            series: "writer",
            relative: true,
        },
        only: vec![("log", vec![log.into()]), ("reads", vec![0.into()])],
        paper: Vec::new(),
    };
    vec![
        bars(
            "Throughput of writes by their coordinator, in memory",
            "Transactions that write eight keys, by those that a server coordinates.",
            "memory",
        ),
        bars(
            "Throughput of writes by their coordinator, on disk",
            "The same with logs.",
            "disk",
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let row = |what, at: (usize, &str), transport| Compare {
        what,
        paper: None,
        ours: Measure::Share {
            metric: "throughput",
            at: params(at, transport, CLIENT).into(),
        },
        aim: None,
    };
    let [tcp, rings] = TRANSPORTS;
    let [device_rings, device_send] = DEVICE;
    vec![
        row(
            "writes by the client by writes by a server, TCP, in memory",
            (0, "memory"),
            tcp,
        ),
        row("the same through rings", (0, "memory"), rings),
        row(
            "the same through rings, by RDMA",
            (0, "memory"),
            device_rings,
        ),
        row(
            "the same by Send and Receive of RDMA",
            (0, "memory"),
            device_send,
        ),
        row("the same over TCP, on disk", (0, "disk"), tcp),
        row(
            "the same over TCP, in memory, 95 % reads",
            (95, "memory"),
            tcp,
        ),
        row("the same through rings, 95 % reads", (95, "memory"), rings),
    ]
}
