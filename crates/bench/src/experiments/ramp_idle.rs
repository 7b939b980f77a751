//! `ramp-idle`: the cost of rings and published versions where they bring no gain.

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::{Param, Scale};
use crate::plot::{Aim, Compare, Measure, Plot};
use crate::systems::{AtomicityProtocol, ClusterTransport};
use crate::target::{ClusterJob, IdleJob, PairsJob, TargetJob};

use super::ramp;

/// Keys in a transaction.
const WIDTH: usize = 8;
/// The work that is done.
const NOTHING: &str = "nothing";
const WRITES: &str = "writes";

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ramp-idle",
    title: "Shared memory where it brings nothing",
    paper: None,
    about: &[
        "'nothing': four server processes and a client that is connected to all of them, and no client \
         asks anything, for five seconds or more: the processor time of all of them. The client has \
         written and read a thousand keys before.",
        "'writes': transactions that write eight of a thousand keys of 1 KB, and no reads, over four \
         servers, in pairs of short runs: one through rings in shared memory (the paper's GET+/PUT+), \
         one with a client that could read by itself what servers have published (GET*/PUT+). The \
         figures are quotients of the two, the latter by the former: the median of all pairs, and \
         between which bounds the true median is with 95 % (sign test).",
    ],
    points,
    plots,
    compare,
    columns: &[
        "work",
        "transport",
        "idle",
        "idle-servers",
        "ratio",
        "ratio-low",
        "ratio-high",
        "cpu-ratio",
        "cpu-ratio-low",
        "cpu-ratio-high",
    ],
};

fn params(work: &str, transport: ClusterTransport) -> [(&'static str, Param); 2] {
    [
        ("work", work.into()),
        ("transport", transport.name().into()),
    ]
}

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let one_sided = ClusterTransport::ShmOneSided;
    let both = [one_sided, ClusterTransport::Tcp];
    let idle = |&transport: &ClusterTransport| {
        let job = IdleJob {
            nodes: ramp::NODES,
            transport,
        };
        SweepPoint::new(params(NOTHING, transport), TargetJob::Idle(job))
    };
    let writes = |transport| ClusterJob {
        protocol: AtomicityProtocol::RampFDirect,
        transport,
        ..ramp::job(WIDTH, 0)
    };
    let pairs = PairsJob {
        first: writes(ClusterTransport::ShmRing),
        second: writes(one_sided),
        pairs: scale.pick(&[6], &[6], &[24])[0],
    };
    let transports = scale.pick(&both[..1], &both[..1], &both);
    let mut points: Vec<SweepPoint> = transports.iter().map(idle).collect();
    points.push(SweepPoint::new(
        params(WRITES, one_sided),
        TargetJob::Pairs(pairs),
    ));
    points
}

fn plots() -> Vec<Plot> {
    Vec::new()
}

fn compare() -> Vec<Compare> {
    let row = |what, paper, metric, work, aim| Compare {
        what,
        paper,
        ours: Measure::Value {
            metric,
            at: params(work, ClusterTransport::ShmOneSided).into(),
        },
        aim,
    };
    let (least, most) = (Some(Aim::AtLeast(1.0)), Some(Aim::AtMost(1.0)));
    let (low, high) = ("ratio-low", "ratio-high");
    let (cpu_low, cpu_high) = ("cpu-ratio-low", "cpu-ratio-high");
    let same = Some("the same");
    vec![
        row(
            "idle in shared memory: processor time, of a core",
            None,
            "idle",
            NOTHING,
            Some(Aim::AtMost(0.01)),
        ),
        row(
            "GET*/PUT+ by GET+/PUT+, 0 % reads",
            same,
            "ratio",
            WRITES,
            None,
        ),
        row("… at least", None, low, WRITES, most),
        row("… at most", None, high, WRITES, least),
        row("… processor time", None, "cpu-ratio", WRITES, None),
        row("… at least, processor time", None, cpu_low, WRITES, most),
        row("… at most, processor time", None, cpu_high, WRITES, least),
    ]
}
