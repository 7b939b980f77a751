//! `ramp-transport`: the same transactions over several transports (paper 1, section 5.2).

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::{Param, Scale};
use crate::plot::{Aim, Compare, Measure, PaperMark, Plot, PlotKind};
use crate::systems::{AtomicityProtocol, ClusterTransport};
use crate::target::{ClusterJob, CopyJob, TargetJob};

use super::ramp;

/// Keys in a transaction, as in the paper.
const WIDTH: usize = 8;
/// The share of reads in percent: the paper's here, and that of its greatest gains elsewhere.
const MOST: usize = 95;
const ALL: usize = 100;
/// The name of copies in memory, without any transport.
const COPY: &str = "memcpy";

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ramp-transport",
    title: "Transactions over four servers, by transport",
    paper: Some("paper 1, figure 4"),
    about: &[
        "Four server processes hold a thousand keys of 1 KB in memory. One client process with eight \
         threads runs transactions of eight random keys, 95 or 100 % of which read. Messages between \
         the client and the servers, and among these, travel over TCP on loopback ('tcp'), by Send and \
         Receive of RDMA devices ('verbs-send'), or through rings in the paper's format, in shared \
         memory ('shm-ring') or written by RDMA ('verbs-ring'); threads look for such messages for a \
         while before they sleep. 'shm-send' emulates Send and Receive in shared memory, for the \
         comparison with 'shm-ring': it has the costs of pieces and credit, and not those of a device. \
         'one-sided' has rings, too, and the client reads by itself what servers have published. \
         Who runs transactions ('reader') is the client, as in the paper, or a server. What needs devices \
         that are not here is skipped.",
        "The paper compares machines on a network: its TCP is that of Ethernet and of InfiniBand. \
         'memcpy' is the limit of reads that a client runs by itself: as many threads copy as many \
         values from memory of the same size, and do nothing else.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "reader",
        "reads",
        "transport",
        ramp::COLUMNS[0],
        ramp::COLUMNS[1],
        ramp::COLUMNS[2],
        ramp::COLUMNS[3],
        ramp::COLUMNS[4],
        ramp::COLUMNS[5],
    ],
};

fn params(reader: &str, reads: usize, transport: &str) -> [(&'static str, Param); 3] {
    [
        ("reader", reader.into()),
        ("reads", reads.into()),
        ("transport", transport.into()),
    ]
}

fn points(_: &Scale) -> Vec<SweepPoint> {
    let by = |reader: &'static str, protocol: AtomicityProtocol, reads: usize| {
        move |transport: ClusterTransport| {
            let job = ClusterJob {
                protocol,
                transport,
                ..ramp::job(WIDTH, reads)
            };
            SweepPoint::new(
                params(reader, reads, transport.name()),
                TargetJob::Cluster(job),
            )
        }
    };
    let copies = CopyJob {
        threads: ramp::job(WIDTH, ALL).threads,
        keys: ramp::KEYS,
        width: WIDTH,
        value: ramp::job(WIDTH, ALL).value,
    };
    let copies = SweepPoint::new(params("client", ALL, COPY), TargetJob::Copy(copies));
    let most = ClusterTransport::ALL.map(by("client", AtomicityProtocol::RampFClient, MOST));
    let mut all = ClusterTransport::ALL
        .map(by("client", AtomicityProtocol::RampFClient, ALL))
        .to_vec();
    all.push(copies);
    // A server reads its own keys as usual, and asks other servers for theirs.
    let server = [ClusterTransport::Tcp, ClusterTransport::ShmRing].map(by(
        "server",
        AtomicityProtocol::RampF,
        MOST,
    ));
    let groups = [most.to_vec(), all, server.to_vec()];
    groups.into_iter().flat_map(ramp::compared).collect()
}

fn plots() -> Vec<Plot> {
    let paper = |value, transport: ClusterTransport| PaperMark::Bar {
        value,
        series: transport.name(),
    };
    let transports = || ClusterTransport::ALL.map(|one| one.name().into()).to_vec();
    let bars = |title, caption, y, paper| Plot {
        title,
        caption,
        shape: PlotKind::Bars {
            x: "reads",
            y,
            series: "transport",
            relative: y == "throughput",
        },
        only: vec![
            ("reader", vec!["client".into()]),
            ("transport", transports()),
        ],
        paper,
    };
    vec![
        bars(
            "Throughput by transport, by that over TCP",
            "Groups are shares of reads, in percent. The paper's (figure 4) are at 95 %, by TCP on \
             Ethernet.",
            "throughput",
            vec![
                paper(1.32, ClusterTransport::TcpIpoib),
                paper(2.39, ClusterTransport::VerbsSend),
                paper(2.53, ClusterTransport::VerbsRing),
            ],
        ),
        bars(
            "Processor time of the servers by transport",
            "Of all four servers, for each transaction.",
            "server-cpu",
            Vec::new(),
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let row =
        |what, paper, aim: Option<f64>, (reader, reads, transport): (&str, _, ClusterTransport)| {
            let at = params(reader, reads, transport.name()).into();
            Compare {
                what,
                paper,
                ours: Measure::Share {
                    metric: "throughput",
                    at,
                },
                aim: aim.map(Aim::AtLeast),
            }
        };
    let between = |what, metric, to: &str, paper, aim| Compare {
        what,
        paper,
        ours: Measure::Ratio {
            metric,
            of: params("client", ALL, ClusterTransport::ShmOneSided.name()).into(),
            to: params("client", ALL, to).into(),
        },
        aim,
    };
    let rings_by_send = |what, rings: ClusterTransport, send: ClusterTransport| Compare {
        what,
        paper: Some("1.06, of 2.53 and 2.39"),
        ours: Measure::Ratio {
            metric: "throughput",
            of: params("client", MOST, rings.name()).into(),
            to: params("client", MOST, send.name()).into(),
        },
        aim: None,
    };
    let (ring, one_sided) = (ClusterTransport::ShmRing, ClusterTransport::ShmOneSided);
    let rings_of_paper = Some("2.53 of Ethernet, 1.92 of IPoIB");
    let most = |transport| ("client", MOST, transport);
    let all = |transport| ("client", ALL, transport);
    vec![
        row(
            "shm-ring by tcp, 95 % reads",
            rings_of_paper,
            None,
            most(ring),
        ),
        row(
            "shm-one-sided by tcp, 95 % reads",
            None,
            None,
            most(one_sided),
        ),
        row(
            "shm-ring by tcp, 95 % reads, run by a server",
            None,
            None,
            ("server", MOST, ring),
        ),
        row(
            "tcp-ipoib by tcp, 95 % reads",
            Some("1.32"),
            None,
            most(ClusterTransport::TcpIpoib),
        ),
        row(
            "verbs-send by tcp, 95 % reads",
            Some("2.39"),
            None,
            most(ClusterTransport::VerbsSend),
        ),
        row(
            "shm-send by tcp, 95 % reads: emulated",
            None,
            None,
            most(ClusterTransport::ShmSend),
        ),
        row(
            "verbs-ring by tcp, 95 % reads",
            rings_of_paper,
            None,
            most(ClusterTransport::VerbsRing),
        ),
        row(
            "GET+/PUT+ by GET/PUT (shm-ring by tcp), 100 % reads",
            Some("1.94 of IPoIB"),
            Some(1.94),
            all(ring),
        ),
        row(
            "GET*/PUT+ by GET/PUT (shm-one-sided by tcp), 100 % reads",
            Some("2.69 of IPoIB"),
            Some(2.69),
            all(one_sided),
        ),
        rings_by_send(
            "shm-ring by shm-send, 95 % reads: emulated",
            ring,
            ClusterTransport::ShmSend,
        ),
        rings_by_send(
            "verbs-ring by verbs-send, 95 % reads",
            ClusterTransport::VerbsRing,
            ClusterTransport::VerbsSend,
        ),
        between(
            "GET*/PUT+ by GET+/PUT+ in shared memory, 100 % reads",
            "throughput",
            ring.name(),
            Some("1.38"),
            Some(Aim::AtLeast(1.38)),
        ),
        between(
            "GET*/PUT+ by GET+/PUT+, 100 % reads: processor time of the servers",
            "server-cpu",
            ring.name(),
            None,
            Some(Aim::AtMost(0.05)),
        ),
        between(
            "GET*/PUT+ by memcpy, the limit, 100 % reads",
            "throughput",
            COPY,
            None,
            None,
        ),
    ]
}
