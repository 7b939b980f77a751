//! `ramp-transport`: the same transactions over several transports (paper 1, section 5.2).

use crate::experiment::{Experiment, Param, Point, Scale};
use crate::plot::{Compare, Measure, Plot, Shape};
use crate::target::{ClusterJob, Job, Transport, Way};

use super::ramp;

/// Keys in a transaction, and the share of reads in percent, as in the paper.
const WIDTH: usize = 8;
const READS: usize = 95;
/// Who runs the reads.
const WAYS: [Way; 2] = [Way::RampFDirect, Way::RampF];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ramp-transport",
    title: "Transactions over four servers, by transport",
    paper: Some("paper 1, figure 4"),
    about: &[
        "Four server processes hold a thousand keys of 1 KB in memory. One client process with eight \
         threads runs transactions of eight random keys, 95 % of which read. Messages between the \
         client and the servers, and among these, travel over TCP on loopback or through rings in \
         shared memory, in the paper's format; on rings, threads look for messages for a while \
         before they sleep. In 'ramp-f-direct' the client runs reads by itself, as the paper's does; in \
         'ramp-f' a server runs them. The paper compares machines on a network: its TCP is that of \
         Ethernet and InfiniBand, its rings are written by RDMA.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "system",
        "transport",
        ramp::COLUMNS[0],
        ramp::COLUMNS[1],
        ramp::COLUMNS[2],
        ramp::COLUMNS[3],
        ramp::COLUMNS[4],
        ramp::COLUMNS[5],
    ],
};

fn params(way: Way, transport: Transport) -> [(&'static str, Param); 2] {
    [
        ("system", way.name().into()),
        ("transport", transport.name().into()),
    ]
}

fn points(_: &Scale) -> Vec<Point> {
    let of = |way: Way| {
        let point = |transport: Transport| {
            let base = ramp::job(WIDTH, READS);
            let job = ClusterJob {
                way,
                transport,
                ..base
            };
            Point::new(params(way, transport), Job::Cluster(job))
        };
        let [tcp, others @ ..] = Transport::ALL;
        // A server reads its own keys as ever, and asks others for theirs.
        let is_one = |one: &Transport| way == Way::RampFDirect || *one != Transport::ShmOneSided;
        let tcp = point(tcp);
        let others = others.into_iter().filter(is_one);
        let others: Vec<Point> = others.map(|one| point(one).against(&tcp)).collect();
        std::iter::once(tcp).chain(others)
    };
    WAYS.into_iter().flat_map(of).collect()
}

fn plots() -> Vec<Plot> {
    let bars = |title, caption, y| Plot {
        title,
        caption,
        shape: Shape::Bars {
            x: "system",
            y,
            series: "transport",
            relative: false,
        },
        only: Vec::new(),
        paper: Vec::new(),
    };
    vec![
        bars(
            "Throughput by transport",
            "In the paper (figure 4), of TCP on Ethernet: TCP on InfiniBand 1.32 times, Send and Receive \
             2.39 times, rings written by RDMA 2.53 times.",
            "throughput",
        ),
        bars(
            "Processor time of the servers by transport",
            "Of all four servers, for each transaction.",
            "server-cpu",
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let share = |what, paper, way: Way, transport: Transport| Compare {
        what,
        paper,
        ours: Measure::Share {
            metric: "throughput",
            at: params(way, transport).into(),
        },
        aim: None,
    };
    vec![
        share(
            "reads by the client: rings by TCP",
            Some("2.53 of Ethernet, 1.92 of InfiniBand"),
            Way::RampFDirect,
            Transport::ShmRing,
        ),
        share(
            "reads by the client: one-sided reads by TCP",
            None,
            Way::RampFDirect,
            Transport::ShmOneSided,
        ),
        share(
            "reads by a server: rings by TCP",
            None,
            Way::RampF,
            Transport::ShmRing,
        ),
    ]
}
