//! `remote-io`: reads of a storage node compared with local reads and with the fabric alone (paper
//! 4, sections 4.4.1 to 4.4.4).

mod figures;

use crate::parameters::{Effort, Param, Scale};

use figures::{BUSY, SIZES};

use crate::experiment::{Experiment, SweepPoint};
use crate::run_context::StorageMedium;
use crate::storage_node::{PageTransport, ReadMethodOption};
use crate::target::{AccessPattern, FileReader, ReadsJob, RemoteReaders, TargetJob};

/// Reads under way of a reader with few connections.
const DEPTH: usize = 256;
/// The most bytes under way of such a reader: as many as readers of pages prefetch.
const AHEAD: usize = 4 << 20;

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
        "'shared': threads of this process share connections, and each waits for one page at a time, as \
         an I/O thread of the paper does; so 'connections' times 'threads-per-connection' reads are under \
         way. In all other modes a connection has a thread, which has many reads under way.",
        "The paper has two servers of 44 cores, ten NVMe SSDs and InfiniBand of 56 Gb/s. Compare \
         ratios. Its devices are this machine's disk, and /dev/shm as the fast one.",
    ],
    points,
    plots: figures::plots,
    compare: figures::compare,
    columns: &[
        "mode",
        "device",
        "size",
        "carrier",
        "way",
        "threads",
        "links",
        "connections",
        "threads-per-connection",
        "pinned",
        "iops",
        "read-rate",
        "read-cpu",
        "reader-cores",
        "node-cores",
    ],
};

/// A point, derived from the parameters that are the same for all.
struct ReadPoint {
    mode: &'static str,
    place: Option<StorageMedium>,
    size: usize,
    transport: Option<PageTransport>,
    way: &'static str,
    threads: usize,
    links: usize,
    /// Threads that share a link, if links are shared.
    threads_per_connection: Option<usize>,
    pinned: bool,
    reader: FileReader,
}

impl ReadPoint {
    fn point(self) -> SweepPoint {
        let place = self.place.unwrap_or(StorageMedium::Memory);
        let job = ReadsJob {
            place,
            unit: self.size,
            reader: self.reader,
            order: AccessPattern::Random,
            pinned: self.pinned,
        };
        let reader = match self.transport {
            Some(transport) => format!("{} {}", transport.name(), self.way),
            None => self.way.to_owned(),
        };
        let pairs: [(&str, Param); 9] = [
            ("mode", self.mode.into()),
            ("reader", Param::Text(reader)),
            ("device", self.place.map_or("–", StorageMedium::name).into()),
            ("size", self.size.into()),
            (
                "carrier",
                self.transport.map_or("–", PageTransport::name).into(),
            ),
            ("way", self.way.into()),
            ("threads", self.threads.into()),
            ("links", self.links.into()),
            ("pinned", if self.pinned { "yes" } else { "no" }.into()),
        ];
        let point = SweepPoint::new(pairs, TargetJob::Reads(job));
        let Some(threads) = self.threads_per_connection else {
            return point;
        };
        let point = point.with("connections", self.links);
        let mut point = point.with("threads-per-connection", threads);
        let readers = Param::from(self.links * threads);
        point.params.insert("readers".to_owned(), readers);
        point
    }
}

fn fabric(transport: PageTransport, size: usize, links: usize, pinned: bool) -> SweepPoint {
    let readers = RemoteReaders {
        transport,
        read_method: None,
        node_threads: if pinned { 1 } else { links.min(2) },
        connections: links,
        threads_per_connection: None,
        depth: DEPTH,
    };
    ReadPoint {
        mode: "fabric",
        place: None,
        size,
        transport: Some(transport),
        way: "–",
        threads: 0,
        links,
        threads_per_connection: None,
        pinned,
        reader: FileReader::Node(readers),
    }
    .point()
}

fn plain(place: StorageMedium, size: usize, threads: usize, pinned: bool) -> SweepPoint {
    ReadPoint {
        mode: "local",
        place: Some(place),
        size,
        transport: None,
        way: "plain",
        threads,
        links: 0,
        threads_per_connection: None,
        pinned,
        reader: FileReader::Plain { threads },
    }
    .point()
}

fn own(
    place: StorageMedium,
    size: usize,
    read_method: ReadMethodOption,
    pinned: bool,
) -> SweepPoint {
    let depth = match read_method {
        // The paper's way has no limit; more threads at once than this bring nothing here.
        ReadMethodOption::Dynamic => 128,
        _ => DEPTH,
    };
    ReadPoint {
        mode: "local",
        place: Some(place),
        size,
        transport: None,
        way: read_method.name(),
        threads: threads_of(read_method),
        links: 0,
        threads_per_connection: None,
        pinned,
        reader: FileReader::Own { read_method, depth },
    }
    .point()
}

fn threads_of(read_method: ReadMethodOption) -> usize {
    match read_method {
        ReadMethodOption::Static(threads) => threads,
        ReadMethodOption::Dynamic | ReadMethodOption::Ring | ReadMethodOption::Here => 0,
    }
}

fn remote(
    place: StorageMedium,
    size: usize,
    transport: PageTransport,
    read_method: ReadMethodOption,
    links: usize,
    pinned: bool,
) -> SweepPoint {
    let readers = RemoteReaders {
        transport,
        read_method: Some(read_method),
        // A node whose threads read by themselves needs as many threads as processors.
        node_threads: if read_method == ReadMethodOption::Here && !pinned {
            links
        } else {
            1
        },
        connections: links,
        threads_per_connection: None,
        depth: match place {
            StorageMedium::Memory => DEPTH.min(AHEAD / size),
            // Some are on their way while the disk has as many as it takes.
            StorageMedium::Disk => 2 * DEPTH / links.min(4),
        },
    };
    ReadPoint {
        mode: "remote",
        place: Some(place),
        size,
        transport: Some(transport),
        way: read_method.name(),
        threads: threads_of(read_method),
        links,
        threads_per_connection: None,
        pinned,
        reader: FileReader::Node(readers),
    }
    .point()
}

/// Threads that share connections, each of which waits for one page at a time. With `None` the node
/// has the pages in memory.
fn shared(
    size: usize,
    transport: PageTransport,
    read_method: Option<ReadMethodOption>,
    (connections, threads): (usize, usize),
) -> SweepPoint {
    let readers = RemoteReaders {
        transport,
        read_method,
        node_threads: 1,
        connections,
        threads_per_connection: Some(threads),
        depth: threads,
    };
    ReadPoint {
        mode: "shared",
        place: read_method.map(|_| StorageMedium::Disk),
        size,
        transport: Some(transport),
        way: read_method.map_or("–", ReadMethodOption::name),
        threads: read_method.map_or(0, threads_of),
        links: connections,
        threads_per_connection: Some(threads),
        pinned: false,
        reader: FileReader::Node(readers),
    }
    .point()
}

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let sizes = scale.pick(&[512, 64 << 10], &SIZES, &SIZES);
    let is_full = scale.effort == Effort::Full;
    let mut points = Vec::new();
    for &size in sizes {
        on_disk(scale, size, &mut points);
        in_memory(scale, size, &mut points);
        fabrics(scale, size, &mut points);
    }
    for &size in sizes {
        sharing(scale, size, &mut points);
    }
    if scale.effort != Effort::Tiny {
        dynamic(is_full, &mut points);
    }
    points
}

const CARRIERS: [PageTransport; 2] = [PageTransport::Shm, PageTransport::Tcp];

/// Adds the points of figures 4.2 to 4.5.
fn fabrics(scale: &Scale, size: usize, points: &mut Vec<SweepPoint>) {
    let links = scale.pick(&[1], &[1], &[1, 2, 4, 8]);
    for transport in CARRIERS {
        points.extend(links.iter().map(|&n| fabric(transport, size, n, false)));
        points.push(fabric(transport, size, 1, true));
    }
    if scale.effort == Effort::Full {
        points.push(fabric(PageTransport::Verbs, size, 1, false));
    }
}

/// Adds the points of figures 4.6 to 4.9 and 4.12 to 4.17, on the disk. All are compared with plain
/// threads.
fn on_disk(scale: &Scale, size: usize, points: &mut Vec<SweepPoint>) {
    let base = plain(StorageMedium::Disk, size, BUSY, false);
    let more: &[usize] = match size {
        512 => scale.pick(&[], &[16], &[1, 4, 16, 32, 64, 200]),
        _ => scale.pick(&[], &[], &[1, 4, 16, 32, 64, 200]),
    };
    points.push(base.clone());
    let mut add = |point: SweepPoint| points.push(point.against(&base));
    for &threads in more {
        add(plain(StorageMedium::Disk, size, threads, false));
    }
    add(own(
        StorageMedium::Disk,
        size,
        ReadMethodOption::Ring,
        false,
    ));
    if size == 512 || scale.effort == Effort::Full {
        add(own(
            StorageMedium::Disk,
            size,
            ReadMethodOption::Static(BUSY),
            false,
        ));
        add(own(
            StorageMedium::Disk,
            size,
            ReadMethodOption::Dynamic,
            false,
        ));
    }
    for transport in CARRIERS {
        add(remote(
            StorageMedium::Disk,
            size,
            transport,
            ReadMethodOption::Ring,
            1,
            false,
        ));
        add(remote(
            StorageMedium::Disk,
            size,
            transport,
            ReadMethodOption::Static(BUSY),
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
            StorageMedium::Disk,
            size,
            PageTransport::Shm,
            ReadMethodOption::Static(threads),
            links,
            false,
        ));
    }
}

/// Adds the same points in memory: with a processor for each process, and without.
fn in_memory(scale: &Scale, size: usize, points: &mut Vec<SweepPoint>) {
    let alone = plain(StorageMedium::Memory, size, 1, true);
    points.push(alone.clone());
    points.push(own(StorageMedium::Memory, size, ReadMethodOption::Here, true).against(&alone));
    for transport in CARRIERS {
        let readers = remote(
            StorageMedium::Memory,
            size,
            transport,
            ReadMethodOption::Here,
            1,
            true,
        );
        points.push(readers.against(&alone));
    }
    let both = plain(StorageMedium::Memory, size, 2, false);
    points.push(both.clone());
    if scale.effort == Effort::Tiny {
        return;
    }
    let mut add = |point: SweepPoint| points.push(point.against(&both));
    add(own(
        StorageMedium::Memory,
        size,
        ReadMethodOption::Static(2),
        false,
    ));
    for transport in CARRIERS {
        add(remote(
            StorageMedium::Memory,
            size,
            transport,
            ReadMethodOption::Here,
            2,
            false,
        ));
    }
    if scale.effort == Effort::Full {
        add(plain(StorageMedium::Memory, size, 1, false));
        add(own(
            StorageMedium::Memory,
            size,
            ReadMethodOption::Ring,
            false,
        ));
        for links in [1, 4] {
            let read_method = ReadMethodOption::Static(2);
            add(remote(
                StorageMedium::Memory,
                size,
                PageTransport::Shm,
                read_method,
                links,
                false,
            ));
        }
    }
}

/// Connections, and threads of each: all combinations, and ten thousand threads on fewer connections.
const SHARED: [(usize, usize); 13] = [
    (1, 1),
    (1, 10),
    (1, 100),
    (10, 1),
    (10, 10),
    (10, 100),
    (100, 1),
    (100, 10),
    (100, 100),
    (30, 100),
    (1, 1_000),
    (10, 1_000),
    (1, 10_000),
];
/// Those of figures 4.12 and 4.13: ten connections, and a hundred threads for each connection.
const PAPER_SHARED: [(usize, usize); 8] = [
    (10, 1),
    (10, 4),
    (10, 10),
    (10, 40),
    (10, 100),
    (1, 100),
    (30, 100),
    (100, 100),
];

/// Adds the points whose connections are shared: figures 4.2 and 4.12 to 4.17.
fn sharing(scale: &Scale, size: usize, points: &mut Vec<SweepPoint>) {
    type Splits = &'static [(usize, usize)];
    let is_smallest = size == SIZES[0];
    let (some, disk): (Splits, Splits) = match scale.effort {
        Effort::Tiny if is_smallest => (&[(2, 4)], &[(2, 4)]),
        Effort::Tiny => (&[], &[(2, 4)]),
        Effort::Quick if is_smallest => (
            &[(1, 1), (1, 16), (10, 10)],
            &[(1, 16), (10, 10), (10, 100)],
        ),
        Effort::Quick => (&[], &[]),
        Effort::Full if is_smallest => (&SHARED, &SHARED),
        Effort::Full => (&[], &SHARED),
    };
    for transport in CARRIERS {
        let answered = some
            .iter()
            .map(|&split| shared(size, transport, None, split));
        points.extend(answered);
    }
    let mut add = |read_method, split| {
        points.push(shared(size, PageTransport::Shm, Some(read_method), split));
    };
    for &split in disk {
        add(ReadMethodOption::Ring, split);
    }
    if scale.effort == Effort::Full && is_smallest {
        for split in PAPER_SHARED {
            // The paper's I/O threads are the node's: as many as threads that wait here.
            add(ReadMethodOption::Static(split.0 * split.1), split);
        }
    }
}

/// Adds the points of figures 4.10 and 4.11.
fn dynamic(is_full: bool, points: &mut Vec<SweepPoint>) {
    let links: &[usize] = if is_full { &[1, 2, 4, 8] } else { &[1, 4] };
    for pinned in [false, true] {
        points.extend(links.iter().map(|&n| {
            remote(
                StorageMedium::Disk,
                512,
                PageTransport::Shm,
                ReadMethodOption::Dynamic,
                n,
                pinned,
            )
        }));
    }
}
