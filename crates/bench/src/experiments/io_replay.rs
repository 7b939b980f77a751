//! `io-replay`: the page accesses of a query, here and of a storage node (paper 4, section 4.4.5).

mod shown;

use crate::experiment::{Effort, Experiment, Param, Point, Scale};
use crate::storage::{Carrier, Reading};
use crate::target::{Far, Job, Order, Place, Reader, ReadsJob};

/// Sizes of reads.
const SIZES: [usize; 4] = [512, 4 << 10, 16 << 10, 64 << 10];
/// The size in which accesses were recorded.
const RECORDED: usize = 16 << 10;
/// Reads under way of a connection.
const DEPTH: usize = 256;
/// Threads that read on this machine.
const THREADS: usize = 100;
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
    ],
    points,
    plots: shown::plots,
    compare: shown::compare,
    columns: &[
        "order",
        "mode",
        "device",
        "size",
        "carrier",
        "cache",
        "threads",
        "links",
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
struct Spot {
    order: Order,
    place: Place,
    size: usize,
    /// `None`: on this machine.
    carrier: Option<Carrier>,
    /// Threads of this machine, or of the node.
    threads: usize,
    links: usize,
}

impl Spot {
    fn point(self) -> Point {
        let reader = match self.carrier {
            None => Reader::Plain {
                threads: self.threads,
            },
            Some(carrier) => Reader::Node(Far {
                carrier,
                reading: Some(match self.threads {
                    0 if self.place == Place::Memory => Reading::Here,
                    0 => Reading::Ring,
                    threads => Reading::Static(threads),
                }),
                // A node whose threads read by themselves needs as many threads as processors.
                desks: if self.place == Place::Memory {
                    self.links
                } else {
                    1
                },
                connections: self.links,
                depth: DEPTH,
            }),
        };
        let cache = match self.order {
            Order::Replay { cache } => cache,
            Order::Random | Order::Counted => 0.0,
        };
        let is_replay = matches!(self.order, Order::Replay { .. });
        let mode = if self.carrier.is_some() {
            "remote"
        } else {
            "local"
        };
        let pairs: [(&str, Param); 8] = [
            ("order", if is_replay { "replay" } else { "random" }.into()),
            ("mode", mode.into()),
            ("device", self.place.name().into()),
            ("size", self.size.into()),
            ("carrier", self.carrier.map_or("–", Carrier::name).into()),
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
        let mut point = Point::new(pairs, Job::Reads(job));
        let who = match self.carrier {
            None => mode.to_owned(),
            Some(carrier) => format!("{mode} {}", carrier.name()),
        };
        let who = if cache > 0.0 {
            format!("{who}, cache {cache}")
        } else {
            who
        };
        point.params.insert("who".to_owned(), Param::Text(who));
        point
    }

    fn here(order: Order, place: Place, size: usize) -> Spot {
        Spot {
            order,
            place,
            size,
            carrier: None,
            threads: if place == Place::Memory { 2 } else { THREADS },
            links: 0,
        }
    }

    fn from_node(order: Order, place: Place, size: usize, carrier: Carrier) -> Spot {
        Spot {
            order,
            place,
            size,
            carrier: Some(carrier),
            threads: 0,
            links: if place == Place::Memory { 2 } else { 1 },
        }
    }
}

const fn replay(cache: f64) -> Order {
    Order::Replay { cache }
}

fn points(scale: &Scale) -> Vec<Point> {
    let sizes = scale.pick(&[RECORDED], &SIZES, &SIZES);
    let parts = scale.pick(&[1.0], &PARTS, &PARTS);
    let carriers = [Carrier::Shm, Carrier::Tcp];
    let mut points = Vec::new();
    for &size in sizes {
        for &part in parts {
            // The point is compared with local reads through the same cache.
            let here = Spot::here(replay(part), Place::Disk, size).point();
            points.push(here.clone());
            for carrier in carriers {
                let far = Spot::from_node(replay(part), Place::Disk, size, carrier);
                points.push(far.point().against(&here));
            }
        }
        let here = Spot::here(replay(0.0), Place::Disk, size).point();
        points.push(here.clone());
        points.push(
            Spot::here(Order::Counted, Place::Disk, size)
                .point()
                .against(&here),
        );
        for carrier in carriers {
            for order in [replay(0.0), Order::Counted] {
                let far = Spot::from_node(order, Place::Disk, size, carrier);
                points.push(far.point().against(&here));
            }
        }
    }
    in_memory(scale, &mut points);
    sweeps(scale, sizes, &mut points);
    if scale.effort == Effort::Quick {
        // The other sizes once: replays without a cache take seconds.
        let other = |job: &Job| matches!(job, Job::Reads(job) if job.unit != RECORDED);
        let once = |point: Point| {
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
fn in_memory(scale: &Scale, points: &mut Vec<Point>) {
    let parts = scale.pick(&[1.0], &[0.0, 1.0], &[0.0, 0.5, 1.0]);
    for &part in parts {
        let here = Spot::here(replay(part), Place::Memory, RECORDED).point();
        points.push(here.clone());
        for carrier in [Carrier::Shm, Carrier::Tcp] {
            let far = Spot::from_node(replay(part), Place::Memory, RECORDED, carrier);
            points.push(far.point().against(&here));
        }
    }
}

/// Adds the points that sweep threads and connections (figures 4.20 to 4.31).
fn sweeps(scale: &Scale, sizes: &[usize], points: &mut Vec<Point>) {
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
        for order in [replay(0.0), replay(0.5), Order::Counted] {
            let here = Spot::here(order, Place::Disk, size);
            let far = Spot::from_node(order, Place::Disk, size, Carrier::Shm);
            points.extend(
                threads
                    .iter()
                    .map(|&threads| Spot { threads, ..here }.point()),
            );
            points.extend(
                threads
                    .iter()
                    .map(|&threads| Spot { threads, ..far }.point()),
            );
            points.extend(links.iter().map(|&links| Spot { links, ..far }.point()));
        }
    }
}
