//! `proxy-throughput`: tiny queries of many clients, with and without the proxy (paper 3, section
//! 6.3).

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::{Effort, Scale};
use crate::plot::{Aim, Compare, Measure, PaperMark, Plot, PlotKind};
use crate::target::QueryRoute;

use super::proxy::{CLIENTS, NODES, at, point};

/// Clients beside twemproxy.
const FIFTY: usize = 50;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "proxy-throughput",
    title: "Tiny queries of many clients, with and without the proxy",
    paper: Some("paper 3, figures 8 and 9"),
    about: &[
        "96 clients have one query under way each: nine of ten write a key of 5 bytes with a value of \
         5 bytes, one reads what was written last. 'direct' clients know the nodes, and have a \
         connection to each; the others have one connection, to a proxy with one thread; that of 'sockets' uses \
         no io_uring. 'paper' is \
         paper 3's proxy: 26 threads for clients and two for each node, and between them rings that \
         they share by compare-and-swap. 'older' is its earlier one: a thread for each client and one for \
         each node, queues behind mutexes, and the network in another process. All nodes (Redis \
         servers) share one processor, so that they are what is scarce; proxy and clients may use \
         all processors.",
        "Beside twemproxy: one node, 50 clients, and the queries that a core of the proxy carries.",
        "The paper has eight machines and a network of 10 Gb/s, which its proxy fills with the help of \
         a network stack that bypasses the kernel. Here everything runs on one machine over \
         loopback; compare ratios.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "nodes",
        "clients",
        "system",
        "throughput",
        "per-packet",
        "packets",
        "server-cpu",
        "proxy-cpu",
        "cpu",
        "per-core",
        "latency-p50",
        "latency-p99",
    ],
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let of = |&nodes: &usize| {
        let direct = point(QueryRoute::Direct, nodes, CLIENTS);
        let others = [
            QueryRoute::Proxy,
            QueryRoute::Sockets,
            QueryRoute::Paper,
            QueryRoute::Older,
        ];
        let mut all: Vec<SweepPoint> = vec![direct.clone()];
        all.extend(others.map(|route| point(route, nodes, CLIENTS).against(&direct)));
        all
    };
    let counts = scale.pick(&[2], &[1, NODES], &[1, 3, NODES]);
    let mut points: Vec<SweepPoint> = counts.iter().flat_map(of).collect();
    if scale.effort != Effort::Tiny {
        let twemproxy = point(QueryRoute::Twemproxy, 1, FIFTY);
        let ours = point(QueryRoute::Proxy, 1, FIFTY).against(&twemproxy);
        points.extend([twemproxy, ours]);
    }
    points
}

fn plots() -> Vec<Plot> {
    let bars = |title, caption, y, relative, paper| Plot {
        title,
        caption,
        shape: PlotKind::Bars {
            x: "nodes",
            y,
            series: "system",
            relative,
        },
        only: vec![("clients", vec![CLIENTS.into()])],
        paper,
    };
    let paper = |value| {
        vec![PaperMark::Bar {
            value,
            series: QueryRoute::Proxy.name(),
        }]
    };
    vec![
        bars(
            "Throughput by nodes, by that of clients that know the nodes",
            "After figure 8, where the proxy has 1.3 times the direct throughput.",
            "throughput",
            true,
            paper(1.3),
        ),
        bars(
            "Queries in a packet",
            "Queries by segments with data that the nodes received. After figure 9, whose mean is 2.9.",
            "per-packet",
            false,
            paper(2.9),
        ),
        bars(
            "Processor time of the nodes",
            "For each query, of all nodes.",
            "server-cpu",
            false,
            Vec::new(),
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let share = |what, paper, metric, nodes, clients, aim| Compare {
        what,
        paper,
        ours: Measure::Share {
            metric,
            at: at(QueryRoute::Proxy, nodes, clients).into(),
        },
        aim: Some(aim),
    };
    let (least, most) = (Aim::AtLeast(1.3), Aim::AtMost(0.7));
    let by_older = Compare {
        what: "five nodes: throughput of the proxy, by the paper's earlier one",
        paper: Some(
            "about 200 (derived: the earlier one had 1/200 of the line rate that the improved one reached)",
        ),
        ours: Measure::Ratio {
            metric: "throughput",
            of: at(QueryRoute::Proxy, NODES, CLIENTS).into(),
            to: at(QueryRoute::Older, NODES, CLIENTS).into(),
        },
        aim: None,
    };
    let by_paper = Compare {
        what: "five nodes: throughput of the proxy, by the paper's improved one",
        paper: None,
        ours: Measure::Ratio {
            metric: "throughput",
            of: at(QueryRoute::Proxy, NODES, CLIENTS).into(),
            to: at(QueryRoute::Paper, NODES, CLIENTS).into(),
        },
        aim: Some(Aim::AtLeast(1.0)),
    };
    let by_sockets = |what, nodes| Compare {
        what,
        paper: None,
        ours: Measure::Ratio {
            metric: "per-core",
            of: at(QueryRoute::Proxy, nodes, CLIENTS).into(),
            to: at(QueryRoute::Sockets, nodes, CLIENTS).into(),
        },
        aim: None,
    };
    let packed = Compare {
        what: "five nodes: queries in a packet",
        paper: Some("2.9"),
        ours: Measure::Value {
            metric: "per-packet",
            at: at(QueryRoute::Proxy, NODES, CLIENTS).into(),
        },
        aim: None,
    };
    vec![
        share(
            "five nodes on one core: throughput, by direct",
            Some("1.3"),
            "throughput",
            NODES,
            CLIENTS,
            least,
        ),
        share(
            "one node on one core: throughput, by direct",
            None,
            "throughput",
            1,
            CLIENTS,
            least,
        ),
        share(
            "five nodes: their processor time for a query, by direct",
            None,
            "server-cpu",
            NODES,
            CLIENTS,
            most,
        ),
        share(
            "one node: its processor time for a query, by direct",
            None,
            "server-cpu",
            1,
            CLIENTS,
            most,
        ),
        packed,
        by_older,
        by_paper,
        by_sockets(
            "five nodes: queries of a core of the proxy, by its own over sockets",
            NODES,
        ),
        by_sockets("one node: the same", 1),
        share(
            "one node, 50 clients: queries of a core of the proxy, by twemproxy's",
            None,
            "per-core",
            1,
            FIFTY,
            Aim::AtLeast(1.5),
        ),
    ]
}
