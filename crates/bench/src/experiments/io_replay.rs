//! `io-replay`: the page accesses of a query, here and of a storage node (paper 4, section 4.4.5).

mod figures;

use crate::parameters::{Effort, Param, Scale};

use figures::{RECORDED, THREADS};

use crate::experiment::{Experiment, SweepPoint};
use crate::run_context::StorageMedium;
use crate::storage_node::{PageTransport, ReadMethodOption};
use crate::target::{AccessPattern, FileReader, ReadsJob, RemoteReaders, TargetJob};

/// Sizes of reads.
const SIZES: [usize; 4] = [512, 4 << 10, 16 << 10, 64 << 10];
/// Reads under way of a connection.
const DEPTH: usize = 256;
/// The caches that are measured, as parts of what the trace touches.
const PARTS: [f64; 2] = [0.5, 1.0];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "io-replay",
    title: "The page accesses of TPC-H's third query, here and of a storage node",
    paper: Some("paper 4, single points of figures 4.19 to 4.31"),
    about: &[
        "The query is executed once as a classic row store does it, by index-nested-loop joins over \
         pages of 16 KiB, its answer is compared with a plain computation, and each page that it \
         asks for is recorded. A replay reads at each recorded place as many bytes as its size says, \
         and does nothing else. 'random' reads as often at random places.",
        "'cache' is our page cache on the side that reads, as a part of what the replay touches; it \
         is empty at the beginning. Without it nothing is cached anywhere, as files are read past \
         the page cache. The paper's local reads had a cache of which it does not say more, its \
         remote ones had none.",
        "'shared': threads share connections, and each waits for one page at a time.",
    ],
    points,
    plots: figures::plots,
    compare: figures::compare,
    columns: &[
        "order",
        "mode",
        "device",
        "size",
        "carrier",
        "cache",
        "threads",
        "links",
        "connections",
        "threads-per-connection",
        "replay-time",
        "iops",
        "hit-rate",
        "read-cpu",
        "reader-cores",
        "node-cores",
    ],
};

/// The kind and place of a point's reads.
#[derive(Clone, Copy)]
struct ReadPoint {
    order: AccessPattern,
    place: StorageMedium,
    size: usize,
    /// `None`: on this machine.
    transport: Option<PageTransport>,
    /// Threads of this machine, or of the node.
    threads: usize,
    links: usize,
    /// Threads that share a link, if links are shared.
    threads_per_connection: Option<usize>,
}

impl ReadPoint {
    fn point(self) -> SweepPoint {
        let reader = match self.transport {
            None => FileReader::Plain {
                threads: self.threads,
            },
            Some(transport) => FileReader::Node(RemoteReaders {
                transport,
                read_method: Some(match self.threads {
                    0 if self.place == StorageMedium::Memory => ReadMethodOption::Here,
                    0 => ReadMethodOption::Ring,
                    threads => ReadMethodOption::Static(threads),
                }),
                // A node whose threads read by themselves needs as many threads as processors.
                node_threads: if self.place == StorageMedium::Memory {
                    self.links
                } else {
                    1
                },
                connections: self.links,
                threads_per_connection: self.threads_per_connection,
                // Each of several threads waits for one page at a time.
                depth: self.threads_per_connection.unwrap_or(DEPTH),
            }),
        };
        let cache = match self.order {
            AccessPattern::Replay { cache } => cache,
            AccessPattern::Random | AccessPattern::Counted => 0.0,
        };
        let is_replay = matches!(self.order, AccessPattern::Replay { .. });
        let mode = match (self.transport, self.threads_per_connection) {
            (None, _) => "local",
            (Some(_), None) => "remote",
            (Some(_), Some(_)) => "shared",
        };
        let pairs: [(&str, Param); 8] = [
            ("order", if is_replay { "replay" } else { "random" }.into()),
            ("mode", mode.into()),
            ("device", self.place.name().into()),
            ("size", self.size.into()),
            (
                "carrier",
                self.transport.map_or("–", PageTransport::name).into(),
            ),
            ("cache", cache.into()),
            ("threads", self.threads.into()),
            ("links", self.links.into()),
        ];
        let job = ReadsJob {
            place: self.place,
            unit: self.size,
            reader,
            order: self.order,
            pinned: false,
        };
        let mut point = SweepPoint::new(pairs, TargetJob::Reads(job));
        if let Some(threads) = self.threads_per_connection {
            point = point.with("connections", self.links);
            point = point.with("threads-per-connection", threads);
        }
        let who = match (self.transport, self.threads_per_connection) {
            (None, _) => mode.to_owned(),
            (Some(transport), None) => format!("{mode} {}", transport.name()),
            (Some(transport), Some(threads)) => {
                format!("{mode} {}, {threads} threads each", transport.name())
            }
        };
        let who = if cache > 0.0 {
            format!("{who}, cache {cache}")
        } else {
            who
        };
        point.params.insert("who".to_owned(), Param::Text(who));
        point
    }

    fn here(order: AccessPattern, place: StorageMedium, size: usize) -> ReadPoint {
        ReadPoint {
            order,
            place,
            size,
            transport: None,
            threads: if place == StorageMedium::Memory {
                2
            } else {
                THREADS
            },
            links: 0,
            threads_per_connection: None,
        }
    }

    fn from_node(
        order: AccessPattern,
        place: StorageMedium,
        size: usize,
        transport: PageTransport,
    ) -> ReadPoint {
        ReadPoint {
            order,
            place,
            size,
            transport: Some(transport),
            threads: 0,
            links: if place == StorageMedium::Memory { 2 } else { 1 },
            threads_per_connection: None,
        }
    }
}

const fn replay(cache: f64) -> AccessPattern {
    AccessPattern::Replay { cache }
}

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let sizes = scale.pick(&[RECORDED], &SIZES, &SIZES);
    let parts = scale.pick(&[1.0], &PARTS, &PARTS);
    let carriers = [PageTransport::Shm, PageTransport::Tcp];
    let mut points = Vec::new();
    for &size in sizes {
        for &part in parts {
            // The point is compared with local reads through the same cache.
            let here = ReadPoint::here(replay(part), StorageMedium::Disk, size).point();
            points.push(here.clone());
            for transport in carriers {
                let readers =
                    ReadPoint::from_node(replay(part), StorageMedium::Disk, size, transport);
                points.push(readers.point().against(&here));
            }
        }
        let here = ReadPoint::here(replay(0.0), StorageMedium::Disk, size).point();
        points.push(here.clone());
        points.push(
            ReadPoint::here(AccessPattern::Counted, StorageMedium::Disk, size)
                .point()
                .against(&here),
        );
        for transport in carriers {
            for order in [replay(0.0), AccessPattern::Counted] {
                let readers = ReadPoint::from_node(order, StorageMedium::Disk, size, transport);
                points.push(readers.point().against(&here));
            }
        }
    }
    in_memory(scale, &mut points);
    sweeps(scale, sizes, &mut points);
    sharing(scale, &mut points);
    if scale.effort == Effort::Quick {
        // The other sizes once: replays without a cache take seconds.
        let other = |job: &TargetJob| matches!(job, TargetJob::Reads(job) if job.unit != RECORDED);
        let once = |point: SweepPoint| {
            if other(&point.job) {
                point.at_most(1)
            } else {
                point
            }
        };
        points = points.into_iter().map(once).collect();
    }
    points
}

/// Adds the points on the fast device, in the size of the record.
fn in_memory(scale: &Scale, points: &mut Vec<SweepPoint>) {
    let parts = scale.pick(&[1.0], &[0.0, 1.0], &[0.0, 0.5, 1.0]);
    for &part in parts {
        let here = ReadPoint::here(replay(part), StorageMedium::Memory, RECORDED).point();
        points.push(here.clone());
        for transport in [PageTransport::Shm, PageTransport::Tcp] {
            let readers =
                ReadPoint::from_node(replay(part), StorageMedium::Memory, RECORDED, transport);
            points.push(readers.point().against(&here));
        }
    }
}

/// Adds the points that sweep threads and connections (figures 4.20 to 4.31).
fn sweeps(scale: &Scale, sizes: &[usize], points: &mut Vec<SweepPoint>) {
    let (threads, links): (&[usize], &[usize]) = match scale.effort {
        Effort::Tiny => (&[], &[]),
        Effort::Quick => (&[16], &[2]),
        Effort::Full => (&[1, 4, 16, 32], &[2, 4]),
    };
    let sizes = match scale.effort {
        Effort::Full => sizes,
        Effort::Tiny | Effort::Quick => &[RECORDED][..],
    };
    for &size in sizes {
        for order in [replay(0.0), replay(0.5), AccessPattern::Counted] {
            let here = ReadPoint::here(order, StorageMedium::Disk, size);
            let readers =
                ReadPoint::from_node(order, StorageMedium::Disk, size, PageTransport::Shm);
            points.extend(
                threads
                    .iter()
                    .map(|&threads| ReadPoint { threads, ..here }.point()),
            );
            points.extend(
                threads
                    .iter()
                    .map(|&threads| ReadPoint { threads, ..readers }.point()),
            );
            points.extend(
                links
                    .iter()
                    .map(|&links| ReadPoint { links, ..readers }.point()),
            );
        }
    }
}

/// Adds the points whose connections are shared, up to the 10,000 threads of figure 4.19.
fn sharing(scale: &Scale, points: &mut Vec<SweepPoint>) {
    let splits: &[(usize, usize)] = match scale.effort {
        Effort::Tiny => &[(2, 4)],
        Effort::Quick => &[(10, 10)],
        Effort::Full => &[(10, 10), (10, 100), (100, 10), (100, 100)],
    };
    let shm = PageTransport::Shm;
    for order in [replay(0.0), AccessPattern::Counted] {
        let readers = ReadPoint::from_node(order, StorageMedium::Disk, RECORDED, shm);
        points.extend(splits.iter().map(|&(links, threads)| {
            let threads_per_connection = Some(threads);
            let readers = ReadPoint {
                links,
                threads_per_connection,
                ..readers
            };
            readers.point()
        }));
    }
}
