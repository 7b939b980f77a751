//! `query-placement`: queries over pages, with operators here or on the storage node (paper 4, section
//! 4.5).

mod figures;
mod query_params;

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::{Effort, Scale};
use crate::run_context::StorageMedium;
use crate::target::{
    OperatorPlacement, PlacementJob, QueryJob, QueryTable, QueryVariant, ResultTransport,
    TargetJob, TpchQuery,
};
use figures::PLACED;
use query_params::{USUAL_KIB, at, job};

/// A large page.
const LARGE_KIB: usize = 128;

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
    plots: figures::plots,
    compare: figures::compare,
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

fn point(sweep: &str, readers: usize, job: QueryJob) -> SweepPoint {
    let params = at(sweep, readers, &job);
    SweepPoint::new(params, TargetJob::Placement(PlacementJob::Query(job)))
}

/// Returns a query in all placements.
fn cell(
    query: TpchQuery,
    data: QueryTable,
    threads: usize,
    roads: &[ResultTransport],
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
    roads: &'static [ResultTransport],
}

fn grids(scale: &Scale) -> Vec<Grid> {
    let both: &[ResultTransport] = &[ResultTransport::Shm, ResultTransport::Tcp];
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
    let pinned = |query| cell(query, data, 1, &[ResultTransport::Shm], true);
    points.extend(TpchQuery::ALL.into_iter().flat_map(pinned));
    points
}

fn all_placed() -> impl Iterator<Item = (TpchQuery, OperatorPlacement)> {
    let of = |query: TpchQuery| PLACED.map(|placement| (query, placement));
    TpchQuery::ALL.into_iter().flat_map(of)
}
