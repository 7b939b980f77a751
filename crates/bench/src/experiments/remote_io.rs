//! `remote-io`: reads of a storage node compared with local reads and with the fabric alone (paper
//! 4, sections 4.4.1 to 4.4.4).

mod shown;

use crate::experiment::{Effort, Experiment, Param, Point, Scale};
use crate::storage::{Carrier, Reading};
use crate::target::{Far, Job, Order, Place, Reader, ReadsJob};

/// Sizes of reads.
const SIZES: [usize; 4] = [512, 4 << 10, 16 << 10, 64 << 10];
/// Reads under way of a reader with few connections.
const DEPTH: usize = 256;
/// The most bytes under way of such a reader: as many as readers of pages prefetch.
const AHEAD: usize = 4 << 20;
/// Threads of the paper's local I/O from which on its devices are busy.
const BUSY: usize = 100;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "remote-io",
    title: "Reads of a storage node, beside reads here and the fabric alone",
    paper: Some("paper 4, table 4.2, and single points of figures 4.2 to 4.18"),
    about: &[
        "Random reads of a file, as many under way as there may be. 'fabric': the storage node has \
         the pages in memory and answers at once. 'local': this process reads the file, past the \
         page cache, by threads that do nothing else ('plain', the paper's local I/O) or in one of \
         the node's ways. 'remote': another process, the storage node, reads the file, and the \
         pages come over. Every page is checked where it arrives, in the same manner.",
        "'pinned': the node runs on the machine's first processor and its readers on the last one, \
         as if they were two machines with a core each; who reads locally has the node's \
         processor. Otherwise all threads may run anywhere, so that node and readers share what \
         a local reader has for itself.",
        "The paper has two servers of 44 cores, ten NVMe SSDs and InfiniBand of 56 Gb/s. Compare \
         ratios. Its devices are this machine's disk, and /dev/shm as the fast one.",
    ],
    points,
    plots: shown::plots,
    compare: shown::compare,
    columns: &[
        "mode",
        "device",
        "size",
        "carrier",
        "way",
        "threads",
        "links",
        "pinned",
        "iops",
        "read-rate",
        "read-cpu",
        "reader-cores",
        "node-cores",
    ],
};

/// A point, derived from the parameters that are the same for all.
struct Spot {
    mode: &'static str,
    place: Option<Place>,
    size: usize,
    carrier: Option<Carrier>,
    way: &'static str,
    threads: usize,
    links: usize,
    pinned: bool,
    reader: Reader,
}

impl Spot {
    fn point(self) -> Point {
        let place = self.place.unwrap_or(Place::Memory);
        let job = ReadsJob {
            place,
            unit: self.size,
            reader: self.reader,
            order: Order::Random,
            pinned: self.pinned,
        };
        let reader = match self.carrier {
            Some(carrier) => format!("{} {}", carrier.name(), self.way),
            None => self.way.to_owned(),
        };
        let pairs: [(&str, Param); 9] = [
            ("mode", self.mode.into()),
            ("reader", Param::Text(reader)),
            ("device", self.place.map_or("–", Place::name).into()),
            ("size", self.size.into()),
            ("carrier", self.carrier.map_or("–", Carrier::name).into()),
            ("way", self.way.into()),
            ("threads", self.threads.into()),
            ("links", self.links.into()),
            ("pinned", if self.pinned { "yes" } else { "no" }.into()),
        ];
        Point::new(pairs, Job::Reads(job))
    }
}

fn fabric(carrier: Carrier, size: usize, links: usize, pinned: bool) -> Point {
    let far = Far {
        carrier,
        reading: None,
        desks: if pinned { 1 } else { links.min(2) },
        connections: links,
        depth: DEPTH,
    };
    Spot {
        mode: "fabric",
        place: None,
        size,
        carrier: Some(carrier),
        way: "–",
        threads: 0,
        links,
        pinned,
        reader: Reader::Node(far),
    }
    .point()
}

fn plain(place: Place, size: usize, threads: usize, pinned: bool) -> Point {
    Spot {
        mode: "local",
        place: Some(place),
        size,
        carrier: None,
        way: "plain",
        threads,
        links: 0,
        pinned,
        reader: Reader::Plain { threads },
    }
    .point()
}

fn own(place: Place, size: usize, reading: Reading, pinned: bool) -> Point {
    let depth = match reading {
        // The paper's way has no limit; more threads at once than this bring nothing here.
        Reading::Dynamic => 128,
        _ => DEPTH,
    };
    Spot {
        mode: "local",
        place: Some(place),
        size,
        carrier: None,
        way: reading.name(),
        threads: threads(reading),
        links: 0,
        pinned,
        reader: Reader::Own { reading, depth },
    }
    .point()
}

fn threads(reading: Reading) -> usize {
    match reading {
        Reading::Static(threads) => threads,
        Reading::Dynamic | Reading::Ring | Reading::Here => 0,
    }
}

fn remote(
    place: Place,
    size: usize,
    carrier: Carrier,
    reading: Reading,
    links: usize,
    pinned: bool,
) -> Point {
    let far = Far {
        carrier,
        reading: Some(reading),
        // A node whose threads read by themselves needs as many threads as processors.
        desks: if reading == Reading::Here && !pinned {
            links
        } else {
            1
        },
        connections: links,
        depth: match place {
            Place::Memory => DEPTH.min(AHEAD / size),
            // Some are on their way while the disk has as many as it takes.
            Place::Disk => 2 * DEPTH / links.min(4),
        },
    };
    Spot {
        mode: "remote",
        place: Some(place),
        size,
        carrier: Some(carrier),
        way: reading.name(),
        threads: threads(reading),
        links,
        pinned,
        reader: Reader::Node(far),
    }
    .point()
}

fn points(scale: &Scale) -> Vec<Point> {
    let sizes = scale.pick(&[512, 64 << 10], &SIZES, &SIZES);
    let is_full = scale.effort == Effort::Full;
    let mut points = Vec::new();
    for &size in sizes {
        on_disk(scale, size, &mut points);
        in_memory(scale, size, &mut points);
        fabrics(scale, size, &mut points);
    }
    if scale.effort != Effort::Tiny {
        dynamic(is_full, &mut points);
    }
    points
}

const CARRIERS: [Carrier; 2] = [Carrier::Shm, Carrier::Tcp];

/// Adds the points of figures 4.2 to 4.5.
fn fabrics(scale: &Scale, size: usize, points: &mut Vec<Point>) {
    let links = scale.pick(&[1], &[1], &[1, 2, 4, 8]);
    for carrier in CARRIERS {
        points.extend(links.iter().map(|&n| fabric(carrier, size, n, false)));
        points.push(fabric(carrier, size, 1, true));
    }
    if scale.effort == Effort::Full {
        points.push(fabric(Carrier::Verbs, size, 1, false));
    }
}

/// Adds the points of figures 4.6 to 4.9 and 4.12 to 4.17, on the disk. All are compared with plain
/// threads.
fn on_disk(scale: &Scale, size: usize, points: &mut Vec<Point>) {
    let base = plain(Place::Disk, size, BUSY, false);
    let more: &[usize] = match size {
        512 => scale.pick(&[], &[16], &[1, 4, 16, 32, 64, 200]),
        _ => scale.pick(&[], &[], &[1, 4, 16, 32, 64, 200]),
    };
    points.push(base.clone());
    let mut add = |point: Point| points.push(point.against(&base));
    for &threads in more {
        add(plain(Place::Disk, size, threads, false));
    }
    add(own(Place::Disk, size, Reading::Ring, false));
    if size == 512 || scale.effort == Effort::Full {
        add(own(Place::Disk, size, Reading::Static(BUSY), false));
        add(own(Place::Disk, size, Reading::Dynamic, false));
    }
    for carrier in CARRIERS {
        add(remote(Place::Disk, size, carrier, Reading::Ring, 1, false));
        add(remote(
            Place::Disk,
            size,
            carrier,
            Reading::Static(BUSY),
            1,
            false,
        ));
    }
    let sweep: &[(usize, usize)] = match (size, scale.effort) {
        (_, Effort::Tiny) => &[],
        (512, Effort::Quick) => &[(1, 16), (4, 100)],
        (_, Effort::Quick) => &[],
        (_, Effort::Full) => &[
            (1, 4),
            (1, 16),
            (1, 32),
            (1, 200),
            (2, 4),
            (2, 16),
            (2, 32),
            (2, 100),
            (2, 200),
            (4, 16),
            (4, 32),
            (4, 100),
            (4, 200),
            (8, 16),
            (8, 100),
            (8, 200),
        ],
    };
    for &(links, threads) in sweep {
        add(remote(
            Place::Disk,
            size,
            Carrier::Shm,
            Reading::Static(threads),
            links,
            false,
        ));
    }
}

/// Adds the same points in memory: with a processor for each process, and without.
fn in_memory(scale: &Scale, size: usize, points: &mut Vec<Point>) {
    let alone = plain(Place::Memory, size, 1, true);
    points.push(alone.clone());
    points.push(own(Place::Memory, size, Reading::Here, true).against(&alone));
    for carrier in CARRIERS {
        let far = remote(Place::Memory, size, carrier, Reading::Here, 1, true);
        points.push(far.against(&alone));
    }
    let both = plain(Place::Memory, size, 2, false);
    points.push(both.clone());
    if scale.effort == Effort::Tiny {
        return;
    }
    let mut add = |point: Point| points.push(point.against(&both));
    add(own(Place::Memory, size, Reading::Static(2), false));
    for carrier in CARRIERS {
        add(remote(
            Place::Memory,
            size,
            carrier,
            Reading::Here,
            2,
            false,
        ));
    }
    if scale.effort == Effort::Full {
        add(plain(Place::Memory, size, 1, false));
        add(own(Place::Memory, size, Reading::Ring, false));
        for links in [1, 4] {
            let reading = Reading::Static(2);
            add(remote(
                Place::Memory,
                size,
                Carrier::Shm,
                reading,
                links,
                false,
            ));
        }
    }
}

/// Adds the points of figures 4.10 and 4.11.
fn dynamic(is_full: bool, points: &mut Vec<Point>) {
    let links: &[usize] = if is_full { &[1, 2, 4, 8] } else { &[1, 4] };
    for pinned in [false, true] {
        points.extend(
            links
                .iter()
                .map(|&n| remote(Place::Disk, 512, Carrier::Shm, Reading::Dynamic, n, pinned)),
        );
    }
}
