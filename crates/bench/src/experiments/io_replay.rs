//! `io-replay`: the page accesses of a query, here and of a storage node (paper 4, section 4.4.5).

use crate::experiment::{Effort, Experiment, Param, Point, Scale};
use crate::plot::{Aim, Compare, Measure, Plot, Shape};
use crate::storage::{Carrier, Reading};
use crate::target::{Far, Job, Order, Place, Reader, ReadsJob};

/// Sizes of reads.
const SIZES: [usize; 4] = [512, 4 << 10, 16 << 10, 64 << 10];
/// The size in which accesses were recorded.
const RECORDED: usize = 16 << 10;
/// Reads under way of a connection.
const DEPTH: usize = 256;
/// Threads of who reads here.
const THREADS: usize = 100;
/// The caches that are measured, as parts of what the trace touches.
const PARTS: [f64; 2] = [0.5, 1.0];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "io-replay",
    title: "The page accesses of TPC-H's third query, here and of a storage node",
    paper: Some("paper 4, figures 4.19 to 4.31"),
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
    plots,
    compare,
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

/// What a point does, and where.
#[derive(Clone, Copy)]
struct Spot {
    order: Order,
    place: Place,
    size: usize,
    /// None: here.
    carrier: Option<Carrier>,
    /// Threads here, or the node's.
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
                // Who reads by itself needs as many threads as processors.
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
            // What is compared with local reads through the same cache.
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

/// On the fast device, in the size of the record.
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

/// Threads and connections (figures 4.20 to 4.31).
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

fn plots() -> Vec<Plot> {
    let only = |pairs: &[(&'static str, &[Param])]| {
        let pairs = pairs.iter().map(|(name, values)| (*name, values.to_vec()));
        pairs.collect::<Vec<_>>()
    };
    let disk: (&'static str, &[Param]) = ("device", &["disk".into()]);
    let recorded: (&'static str, &[Param]) = ("size", &[RECORDED.into()]);
    let (usual, one): (&[Param], &[Param]) =
        (&[THREADS.into(), 0.0.into()], &[0.0.into(), 1.0.into()]);
    let bars = |title, caption, only, x, y, series| Plot {
        title,
        caption,
        shape: Shape::Bars {
            x,
            y,
            series,
            relative: false,
        },
        only,
        paper: Vec::new(),
    };
    let lines = |title, caption, only, x, series| Plot {
        title,
        caption,
        shape: Shape::Lines {
            x,
            y: "iops",
            series,
            doubling: true,
        },
        only,
        paper: Vec::new(),
    };
    vec![
        bars(
            "How long a replay takes, here and of a storage node",
            "Reads of 16 KiB on the disk. Repeats figure 4.19, where remote reads, which have no \
             cache, take more than twice as long as local ones, which have some.",
            only(&[
                disk,
                recorded,
                ("order", &["replay".into()]),
                ("threads", usual),
                ("links", one),
            ]),
            "order",
            "replay-time",
            "who",
        ),
        bars(
            "Replays and random reads, here",
            "On the disk, by size, without a cache and with caches. Repeats figures 4.20 to 4.23, \
             where replays are faster by far.",
            only(&[disk, ("mode", &["local".into()]), ("threads", usual)]),
            "size",
            "iops",
            "who",
        ),
        bars(
            "Replays of a storage node",
            "On the disk, over shared memory, by size. Repeats figures 4.24 to 4.31, where replays \
             are no faster than random reads, for want of a cache.",
            only(&[
                disk,
                ("carrier", &["shm".into()]),
                ("order", &["replay".into()]),
                ("threads", usual),
                ("links", one),
            ]),
            "size",
            "iops",
            "who",
        ),
        lines(
            "Replays by threads",
            "Reads of 16 KiB on the disk. Repeats figures 4.22 and 4.26.",
            only(&[
                disk,
                recorded,
                ("links", one),
                ("carrier", &["–".into(), "shm".into()]),
            ]),
            "threads",
            &["order", "who"],
        ),
        lines(
            "Replays by connections",
            "Reads of 16 KiB on the disk over shared memory, by io_uring. Repeats figure 4.30.",
            only(&[
                disk,
                recorded,
                ("carrier", &["shm".into()]),
                ("threads", &[0.0.into()]),
            ]),
            "links",
            &["order", "who"],
        ),
    ]
}

fn at(mode: &'static str, device: &'static str, cache: f64) -> Vec<(&'static str, Param)> {
    vec![
        ("order", "replay".into()),
        ("mode", mode.into()),
        ("device", device.into()),
        ("size", RECORDED.into()),
        ("cache", cache.into()),
    ]
}

fn compare() -> Vec<Compare> {
    let carried = |device, cache, carrier: &'static str| {
        let mut at = at("remote", device, cache);
        let links = if device == "memory" { 2.0 } else { 1.0 };
        at.extend([
            ("carrier", carrier.into()),
            ("links", links.into()),
            ("threads", 0.0.into()),
        ]);
        at
    };
    let near = |what, device, cache, carrier, aim| Compare {
        what,
        paper: None,
        ours: Measure::Share {
            metric: "iops",
            at: carried(device, cache, carrier),
        },
        aim,
    };
    let times = |what, device, cache, carrier, aim| Compare {
        what,
        paper: Some("1, no remote cache"),
        ours: Measure::Ratio {
            metric: "iops",
            of: carried(device, cache, carrier),
            to: carried(device, 0.0, carrier),
        },
        aim,
    };
    let hits = |what, cache| Compare {
        what,
        paper: None,
        ours: Measure::Value {
            metric: "hit-rate",
            at: carried("disk", cache, "shm"),
        },
        aim: None,
    };
    let (same, thrice) = (Some(Aim::AtLeast(0.8)), Some(Aim::AtLeast(3.0)));
    vec![
        Compare {
            what: "disk, no cache: remote over shm, by local",
            paper: Some("less than 0.5, local with a cache"),
            ours: Measure::Share {
                metric: "iops",
                at: carried("disk", 0.0, "shm"),
            },
            aim: None,
        },
        near(
            "disk, cache of half: remote over shm, by local with it",
            "disk",
            0.5,
            "shm",
            same,
        ),
        near(
            "disk, cache of half: remote over tcp, by local with it",
            "disk",
            0.5,
            "tcp",
            same,
        ),
        near(
            "disk, cache of all: remote over shm, by local with it",
            "disk",
            1.0,
            "shm",
            same,
        ),
        near(
            "disk, cache of all: remote over tcp, by local with it",
            "disk",
            1.0,
            "tcp",
            same,
        ),
        times(
            "disk, cache of half: remote over shm, by none",
            "disk",
            0.5,
            "shm",
            None,
        ),
        times(
            "disk, cache of all: remote over shm, by none",
            "disk",
            1.0,
            "shm",
            thrice,
        ),
        times(
            "disk, cache of all: remote over tcp, by none",
            "disk",
            1.0,
            "tcp",
            thrice,
        ),
        hits("disk: found in a cache of half", 0.5),
        hits("disk: found in a cache of all", 1.0),
        near(
            "memory, cache of all: remote over shm, by local with it",
            "memory",
            1.0,
            "shm",
            same,
        ),
        times(
            "memory, cache of all: remote over tcp, by none",
            "memory",
            1.0,
            "tcp",
            None,
        ),
    ]
}
