//! `query-placement`: queries over pages, with operators here or on the storage node (paper 4, section
//! 4.5).

use crate::parameters::{Effort, Param, Scale};

use crate::experiment::{Experiment, SweepPoint};
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};
use crate::run_context::StorageMedium;
use crate::target::{
    OperatorPlacement, PlacementJob, QueryJob, QueryTable, QueryVariant, ResultTransport as Road,
    TargetJob, TpchQuery,
};

/// The page size of the paper's table 4.6, at which other parameters are swept, too.
const USUAL_KIB: usize = 16;
const LARGE_KIB: usize = 128;
/// Paper 4, table 4.5.
const PAPER_SELECTIVITY: [(TpchQuery, &str); 3] = [
    (TpchQuery::Q1, "0.97"),
    (TpchQuery::Q6, "0.013"),
    (TpchQuery::Q15, "0.15"),
];
const PLACED: [OperatorPlacement; 3] = [
    OperatorPlacement::Local,
    OperatorPlacement::RemoteLocal,
    OperatorPlacement::RemoteRemote,
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "query-placement",
    title: "Where operators run: by the pages, or by who asks",
    paper: Some("paper 4, figures 4.32 to 4.40, tables 4.5 and 4.6"),
    about: &[
        "Three queries over TPC-H's lineitem (scale factor 1, quick 0.1): Q1, Q6, and the sub-query of \
         Q15. 'where' is the paper's: records in pages, of which those come out that fulfil the \
         condition. 'full' has filter and partial aggregates over columns. Each run's answer is \
         compared with that of a plain loop over the generated rows.",
        "'local': this process has the pages and works on them. 'remote-local': they come over from a \
         storage node, which is another process on this machine. 'remote-remote': the node works on \
         them, and what comes out comes over. 'auto': the planner chooses, by costs that it has \
         measured before with other queries; 'auto-away' is the same where this process has no pages \
         of its own.",
        "Both sides read past the operating system's page cache: the disk by io_uring, or by so many \
         threads (the paper's I/O threads); files in memory by the thread that needs them. Processors \
         are shared: what the node uses is missing here. 'threads' work: here, or on the node. A \
         connection of remote-remote has a part of the query.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "sweep",
        "place",
        "variant",
        "query",
        "page-size",
        "threads",
        "connections",
        "io-threads",
        "pinned",
        "road",
        "way",
        "query-time",
        "scan-rate",
        "page-rate",
        "query-cpu-here",
        "query-cpu-there",
        "busy-here",
        "busy-there",
        "of-best",
        "selectivity",
        "near-best",
        "well-chosen",
        "spread",
        "spread-most",
    ],
};

/// Returns a query in one of the sweeps.
fn job(query: TpchQuery, variant: QueryVariant, placement: OperatorPlacement) -> QueryJob {
    QueryJob {
        query,
        data: QueryTable {
            place: StorageMedium::Disk,
            variant,
            page_kib: USUAL_KIB,
        },
        placement,
        transport: match placement {
            OperatorPlacement::Local => Road::None,
            _ => Road::Shm,
        },
        threads: 1,
        connections: 1,
        io_threads: None,
        pinned: false,
    }
}

fn at(sweep: &str, readers: usize, job: &QueryJob) -> [(&'static str, Param); 11] {
    [
        ("sweep", sweep.into()),
        ("place", job.data.place.name().into()),
        ("variant", job.data.variant.name().into()),
        ("query", job.query.name().into()),
        ("page-size", job.data.page_kib.into()),
        ("threads", job.threads.into()),
        ("connections", job.connections.into()),
        ("io-threads", readers.into()),
        ("pinned", if job.pinned { "yes" } else { "no" }.into()),
        ("road", job.transport.name().into()),
        ("way", job.placement.name().into()),
    ]
}

fn point(sweep: &str, readers: usize, job: QueryJob) -> SweepPoint {
    let params = at(sweep, readers, &job);
    SweepPoint::new(params, TargetJob::Placement(PlacementJob::Query(job)))
}

/// Returns a query in all placements.
fn cell(
    query: TpchQuery,
    data: QueryTable,
    threads: usize,
    roads: &[Road],
    pinned: bool,
) -> Vec<SweepPoint> {
    let job = |placement| QueryJob {
        data,
        threads,
        connections: threads,
        pinned,
        ..job(query, data.variant, placement)
    };
    let sweep = if pinned { "pinned" } else { "pages" };
    let local = point(sweep, threads, job(OperatorPlacement::Local));
    let ways = [
        OperatorPlacement::RemoteLocal,
        OperatorPlacement::RemoteRemote,
        OperatorPlacement::Auto,
        OperatorPlacement::AutoAway,
    ];
    // The planner does not know about pinned threads.
    let ways = if pinned { &ways[..2] } else { &ways[..] };
    let mut all = vec![local.clone()];
    for &transport in roads {
        let jobs = ways.iter().map(|&placement| QueryJob {
            transport,
            ..job(placement)
        });
        all.extend(jobs.map(|job| point(sweep, threads, job).against(&local)));
    }
    all
}

/// The page sizes, threads and roads of a place.
struct Grid {
    place: StorageMedium,
    sizes: &'static [usize],
    threads: Vec<usize>,
    roads: &'static [Road],
}

fn grids(scale: &Scale) -> Vec<Grid> {
    let both: &[Road] = &[Road::Shm, Road::Tcp];
    let grid = |place, sizes, threads: &[usize], roads| Grid {
        place,
        sizes,
        threads: threads.to_vec(),
        roads,
    };
    let all = [1, scale.cores.max(2)];
    match scale.effort {
        Effort::Tiny => vec![grid(StorageMedium::Disk, &[USUAL_KIB], &all[1..], both)],
        Effort::Quick => vec![
            grid(StorageMedium::Disk, &[4, LARGE_KIB], &all[..1], &both[..1]),
            grid(StorageMedium::Disk, &[USUAL_KIB], &all[..1], both),
            grid(StorageMedium::Memory, &[USUAL_KIB], &all[..1], &both[..1]),
        ],
        Effort::Full => vec![
            grid(
                StorageMedium::Disk,
                &[4, 8, 16, 32, 64, LARGE_KIB],
                &all,
                both,
            ),
            grid(
                StorageMedium::Memory,
                &[4, USUAL_KIB, LARGE_KIB],
                &all[..1],
                &both[..1],
            ),
        ],
    }
}

/// Returns the points; those that ask the same table are adjacent.
fn points(scale: &Scale) -> Vec<SweepPoint> {
    let mut points = Vec::new();
    for grid in grids(scale) {
        for variant in [QueryVariant::Where, QueryVariant::Full] {
            for &page_kib in grid.sizes {
                let data = QueryTable {
                    place: grid.place,
                    variant,
                    page_kib,
                };
                for &threads in &grid.threads {
                    let cell = |query| cell(query, data, threads, grid.roads, false);
                    points.extend(TpchQuery::ALL.into_iter().flat_map(cell));
                }
                if data == job(TpchQuery::Q1, QueryVariant::Where, OperatorPlacement::Local).data {
                    points.extend(sweeps(scale, data));
                }
            }
        }
    }
    let tally = TargetJob::Placement(PlacementJob::Tally);
    points.push(SweepPoint::new([("sweep", "tally".into())], tally));
    points
}

/// Returns the sweeps of readers, connections, and pinned threads, at the usual page size.
fn sweeps(scale: &Scale, data: QueryTable) -> Vec<SweepPoint> {
    let mut points = Vec::new();
    for &readers in scale.pick(&[2], &[1, 2, 4, 16], &[1, 2, 4, 8, 16, 64]) {
        for (query, placement) in all_placed() {
            let job = job(query, data.variant, placement);
            let job = QueryJob {
                io_threads: Some(readers),
                ..job
            };
            points.push(point("io-threads", readers, job));
        }
    }
    for &connections in scale.pick(&[2], &[1, 2, 4, 8], &[1, 2, 4, 8, 16]) {
        for (query, placement) in all_placed() {
            let threads = match placement {
                OperatorPlacement::Local => continue,
                OperatorPlacement::RemoteRemote => scale.cores.max(1),
                _ => 1,
            };
            let job = QueryJob {
                threads,
                connections,
                ..job(query, data.variant, placement)
            };
            points.push(point("connections", threads, job));
        }
    }
    let pinned = |query| cell(query, data, 1, &[Road::Shm], true);
    points.extend(TpchQuery::ALL.into_iter().flat_map(pinned));
    points
}

fn all_placed() -> impl Iterator<Item = (TpchQuery, OperatorPlacement)> {
    let of = |query: TpchQuery| PLACED.map(|placement| (query, placement));
    TpchQuery::ALL.into_iter().flat_map(of)
}

/// The figures of each query in the paper, and here.
type Sweep = [(TpchQuery, &'static str, &'static str); 3];

fn plots() -> Vec<Plot> {
    let names = PLACED.map(|placement| Param::from(placement.name()));
    let lines = |x, series| PlotKind::Lines {
        x,
        y: "query-time",
        series,
        doubling: true,
    };
    let plot = |title, caption, shape, sweep: &str, variant: QueryVariant, query: TpchQuery| Plot {
        title,
        caption,
        shape,
        only: vec![
            ("sweep", vec![sweep.into()]),
            ("place", vec![StorageMedium::Disk.name().into()]),
            ("variant", vec![variant.name().into()]),
            ("query", vec![query.name().into()]),
            (
                "road",
                vec![Road::None.name().into(), Road::Shm.name().into()],
            ),
            ("way", names.to_vec()),
        ],
        paper: Vec::new(),
    };
    let mut plots = Vec::new();
    let sweeps: [(&str, Sweep); 2] = [
        (
            "io-threads",
            [
                (
                    TpchQuery::Q1,
                    "Q1, condition: by threads that read",
                    "After figure 4.32.",
                ),
                (
                    TpchQuery::Q6,
                    "Q6, condition: by threads that read",
                    "After figure 4.35.",
                ),
                (
                    TpchQuery::Q15,
                    "Q15, condition: by threads that read",
                    "After figure 4.38.",
                ),
            ],
        ),
        (
            "connections",
            [
                (
                    TpchQuery::Q1,
                    "Q1, condition: by connections",
                    "After figure 4.33.",
                ),
                (
                    TpchQuery::Q6,
                    "Q6, condition: by connections",
                    "After figure 4.36.",
                ),
                (
                    TpchQuery::Q15,
                    "Q15, condition: by connections",
                    "After figure 4.39.",
                ),
            ],
        ),
    ];
    for (sweep, of) in sweeps {
        for (query, title, caption) in of {
            let shape = lines(sweep, &["way"]);
            plots.push(plot(
                title,
                caption,
                shape,
                sweep,
                QueryVariant::Where,
                query,
            ));
        }
    }
    let sizes: [(QueryVariant, TpchQuery, &'static str, &'static str); 6] = [
        (
            QueryVariant::Where,
            TpchQuery::Q1,
            "Q1, condition: by page size",
            "After figure 4.34.",
        ),
        (
            QueryVariant::Where,
            TpchQuery::Q6,
            "Q6, condition: by page size",
            "After figure 4.37.",
        ),
        (
            QueryVariant::Where,
            TpchQuery::Q15,
            "Q15, condition: by page size",
            "After figure 4.40.",
        ),
        (
            QueryVariant::Full,
            TpchQuery::Q1,
            "Q1 with aggregates, columns: by page size",
            "Ours.",
        ),
        (
            QueryVariant::Full,
            TpchQuery::Q6,
            "Q6 with aggregates, columns: by page size",
            "Ours.",
        ),
        (
            QueryVariant::Full,
            TpchQuery::Q15,
            "Q15 with aggregates, columns: by page size",
            "Ours.",
        ),
    ];
    for (variant, query, title, caption) in sizes {
        let shape = lines("page-size", &["way", "threads"]);
        plots.push(plot(title, caption, shape, "pages", variant, query));
    }
    plots
}

fn compare() -> Vec<Compare> {
    let usual =
        |query, placement| at("pages", 1, &job(query, QueryVariant::Where, placement)).to_vec();
    let value = |what, paper, metric, placement| Compare {
        what,
        paper,
        ours: Measure::Value {
            metric,
            at: usual(TpchQuery::Q1, placement),
        },
        aim: None,
    };
    let [local, far, there] = PLACED;
    let mut rows = vec![
        value(
            "Q1, condition, 16 KiB: local, s",
            Some("24.8"),
            "query-time",
            local,
        ),
        value("… remote-local, s", Some("15.8"), "query-time", far),
        value("… remote-remote, s", Some("14.5"), "query-time", there),
    ];
    for (placement, what, paper) in [
        (far, "… remote-local, by local", "0.64"),
        (there, "… remote-remote, by local", "0.58"),
    ] {
        rows.push(Compare {
            what,
            paper: Some(paper),
            ours: Measure::Ratio {
                metric: "query-time",
                of: usual(TpchQuery::Q1, placement),
                to: usual(TpchQuery::Q1, local),
            },
            aim: None,
        });
    }
    rows.extend([
        value(
            "… local: cores busy here",
            Some("0.6 % of all"),
            "busy-here",
            local,
        ),
        value(
            "… remote-local: here",
            Some("50 % of all"),
            "busy-here",
            far,
        ),
        value("… on the node", Some("6 % of all"), "busy-there", far),
        value(
            "… remote-remote: here",
            Some("100 % of all"),
            "busy-here",
            there,
        ),
        value("… on the node", Some("100 % of all"), "busy-there", there),
    ]);
    for (query, paper) in PAPER_SELECTIVITY {
        rows.push(Compare {
            what: match query {
                TpchQuery::Q1 => "selectivity of Q1",
                TpchQuery::Q6 => "selectivity of Q6",
                TpchQuery::Q15 => "selectivity of Q15's sub-query",
            },
            paper: Some(paper),
            ours: Measure::Value {
                metric: "selectivity",
                at: usual(query, local),
            },
            aim: None,
        });
    }
    let tally = |what, paper, metric, aim| Compare {
        what,
        paper,
        ours: Measure::Value {
            metric,
            at: vec![("sweep", "tally".into())],
        },
        aim,
    };
    let alike = Some("about the same");
    rows.extend([
        tally(
            "128 KiB: slowest placement by quickest, median",
            alike,
            "spread",
            Some(Aim::AtMost(1.15)),
        ),
        tally("… at most", alike, "spread-most", Some(Aim::AtMost(1.15))),
        tally(
            "auto within 10 % of the best placement: part of the grid",
            None,
            "near-best",
            Some(Aim::AtLeast(0.9)),
        ),
        tally(
            "… the placement that it chose",
            None,
            "well-chosen",
            Some(Aim::AtLeast(0.9)),
        ),
    ]);
    rows
}
