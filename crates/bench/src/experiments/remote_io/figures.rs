//! The figures of `remote-io`, and the comparisons with the paper's values.

use crate::parameters::Param;
use crate::plot::{Aim, Compare, Measure, PaperMark, Plot, PlotKind};

/// Threads of the paper's local I/O from which on its devices are busy.
pub(super) const BUSY: usize = 100;
/// Sizes of reads.
pub(super) const SIZES: [usize; 4] = [512, 4 << 10, 16 << 10, 64 << 10];

type At = Vec<(&'static str, Param)>;

fn at(mode: &'static str, device: &'static str, size: usize) -> At {
    vec![
        ("mode", mode.into()),
        ("device", device.into()),
        ("size", size.into()),
    ]
}

fn with(mut at: At, more: &[(&'static str, Param)]) -> At {
    at.extend_from_slice(more);
    at
}

pub(super) fn plots() -> Vec<Plot> {
    let only = |at: At| {
        at.into_iter()
            .map(|(k, v)| (k, vec![v]))
            .collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    let remote_512 = with(
        at("remote", "disk", 512),
        &[("way", "static".into()), ("carrier", "shm".into())],
    );
    all.push(Plot {
        title: "Reads of 512 bytes by connections and I/O threads",
        caption: "The node reads the disk by so many threads in all. After figures 4.12 to 4.14, \
                  where 4.3 M reads a second are reached with 100 connections.",
        shape: PlotKind::Lines {
            x: "threads",
            y: "iops",
            series: &["links"],
            doubling: true,
        },
        only: only(remote_512),
        paper: Vec::new(),
    });
    all.push(Plot {
        title: "Reads by connections, a new thread for each read",
        caption: "Of 512 bytes, on the disk. After figure 4.10: at most 70 k, fewer with more \
                  connections, some hundreds with threads pinned.",
        shape: PlotKind::Lines {
            x: "links",
            y: "iops",
            series: &["pinned"],
            doubling: true,
        },
        only: only(with(
            at("remote", "disk", 512),
            &[("way", "dynamic".into())],
        )),
        paper: vec![PaperMark::Line {
            value: 70e3,
            label: "paper",
        }],
    });
    all.push(Plot {
        title: "Processors over time, a new thread for each read",
        caption: "Reads of 512 bytes, on the disk. After figure 4.11 for both processes: the paper \
                  sees few cores busy beside those that poll.",
        shape: PlotKind::Timeline,
        only: only(with(
            at("remote", "disk", 512),
            &[
                ("way", "dynamic".into()),
                ("links", 1.0.into()),
                ("pinned", "no".into()),
            ],
        )),
        paper: Vec::new(),
    });
    all.push(Plot {
        title: "Processors over time, io_uring",
        caption: "The same reads over shared memory, in our way.",
        shape: PlotKind::Timeline,
        only: only(with(
            at("remote", "disk", 512),
            &[("way", "ring".into()), ("carrier", "shm".into())],
        )),
        paper: Vec::new(),
    });
    let shared = |way: &'static str| {
        only(with(
            at("shared", "disk", 512),
            &[("way", way.into()), ("carrier", "shm".into())],
        ))
    };
    for (title, caption, way) in [
        (
            "Reads of 512 bytes by threads that share connections, io_uring",
            "On the disk; each thread waits for one page at a time. After figure 4.14: connections \
             times threads of each.",
            "ring",
        ),
        (
            "Reads of 512 bytes by threads that share connections, a thread of the node for each",
            "The same reads by the paper's static threads. After figures 4.12 to 4.14.",
            "static",
        ),
    ] {
        all.push(Plot {
            title,
            caption,
            shape: PlotKind::Lines {
                x: "readers",
                y: "iops",
                series: &["connections"],
                doubling: true,
            },
            only: shared(way),
            paper: Vec::new(),
        });
    }
    all.extend(tops());
    all
}

/// Returns figure 4.18, as MB/s by size.
fn tops() -> Vec<Plot> {
    let bars = |title, caption, only: Vec<(&'static str, Vec<Param>)>, series, y| Plot {
        title,
        caption,
        shape: PlotKind::Bars {
            x: "size",
            y,
            series,
            relative: false,
        },
        only,
        paper: Vec::new(),
    };
    vec![
        bars(
            "The fabric alone",
            "Bytes a second of pages that need no read. After figures 4.2 to 4.5, where there are \
             up to 6 M reads of 512 bytes.",
            vec![
                ("mode", vec!["fabric".into()]),
                ("links", vec![1.0.into()]),
                ("pinned", vec!["no".into()]),
            ],
            "carrier",
            "read-rate",
        ),
        bars(
            "On the disk, by size",
            "Bytes a second: plain threads here, and a storage node with io_uring. After figure \
             4.18.",
            vec![
                ("device", vec!["disk".into()]),
                ("threads", vec![(BUSY as f64).into(), 0.0.into()]),
                ("way", vec!["plain".into(), "ring".into()]),
                ("mode", vec!["local".into(), "remote".into()]),
            ],
            "reader",
            "read-rate",
        ),
        bars(
            "In memory, a processor for each process",
            "Bytes a second: one plain thread here, and a storage node whose thread reads itself.",
            vec![
                ("device", vec!["memory".into()]),
                ("pinned", vec!["yes".into()]),
                ("way", vec!["plain".into(), "here".into()]),
                ("mode", vec!["local".into(), "remote".into()]),
            ],
            "reader",
            "read-rate",
        ),
    ]
}

/// The comparison, by size.
type Rows = [(&'static str, &'static str); 4];

const DISK_SHM: Rows = [
    ("disk, 512 B: remote over shm, by local", "0.85"),
    ("disk, 4 KiB: remote over shm, by local", "0.55"),
    ("disk, 16 KiB: remote over shm, by local", "0.55"),
    ("disk, 64 KiB: remote over shm, by local", "0.62"),
];
const DISK_TCP: Rows = [
    ("disk, 512 B: remote over tcp, by local", "0.85"),
    ("disk, 4 KiB: remote over tcp, by local", "0.55"),
    ("disk, 16 KiB: remote over tcp, by local", "0.55"),
    ("disk, 64 KiB: remote over tcp, by local", "0.62"),
];
const MEMORY_SHM: Rows = [
    (
        "memory, a core each, 512 B: remote over shm, by local",
        "0.85",
    ),
    (
        "memory, a core each, 4 KiB: remote over shm, by local",
        "0.55",
    ),
    (
        "memory, a core each, 16 KiB: remote over shm, by local",
        "0.55",
    ),
    (
        "memory, a core each, 64 KiB: remote over shm, by local",
        "0.62",
    ),
];
const MEMORY_TCP: Rows = [
    (
        "memory, a core each, 512 B: remote over tcp, by local",
        "0.85",
    ),
    (
        "memory, a core each, 4 KiB: remote over tcp, by local",
        "0.55",
    ),
    (
        "memory, a core each, 16 KiB: remote over tcp, by local",
        "0.55",
    ),
    (
        "memory, a core each, 64 KiB: remote over tcp, by local",
        "0.62",
    ),
];
const MEMORY_SHARED: Rows = [
    (
        "memory, cores shared, 512 B: remote over shm, by local",
        "0.85",
    ),
    (
        "memory, cores shared, 4 KiB: remote over shm, by local",
        "0.55",
    ),
    (
        "memory, cores shared, 16 KiB: remote over shm, by local",
        "0.55",
    ),
    (
        "memory, cores shared, 64 KiB: remote over shm, by local",
        "0.62",
    ),
];

pub(super) fn compare() -> Vec<Compare> {
    let rows = |rows: Rows, device, more: &[(&'static str, Param)], aims: [Option<f64>; 4]| {
        let row = |i: usize| {
            let (what, paper) = rows[i];
            Compare {
                what,
                paper: Some(paper),
                ours: Measure::Share {
                    metric: "iops",
                    at: with(at("remote", device, SIZES[i]), more),
                },
                aim: aims[i].map(Aim::AtLeast),
            }
        };
        (0..SIZES.len()).map(row).collect::<Vec<_>>()
    };
    let carrier = |name: &'static str| ("carrier", Param::from(name));
    let pinned = |how: &'static str| ("pinned", Param::from(how));
    let ring = ("way", Param::from("ring"));
    let memory = [Some(0.85), Some(0.9), Some(0.9), Some(0.9)];
    let mut all = rows(
        DISK_SHM,
        "disk",
        &[carrier("shm"), ring.clone()],
        [Some(0.95); 4],
    );
    all.extend(rows(
        DISK_TCP,
        "disk",
        &[carrier("tcp"), ring.clone()],
        [Some(0.95); 4],
    ));
    all.extend(rows(
        MEMORY_SHM,
        "memory",
        &[carrier("shm"), pinned("yes")],
        memory,
    ));
    all.extend(rows(
        MEMORY_TCP,
        "memory",
        &[carrier("tcp"), pinned("yes")],
        [None; 4],
    ));
    all.extend(rows(
        MEMORY_SHARED,
        "memory",
        &[carrier("shm"), pinned("no")],
        [None; 4],
    ));
    let way = |name: &'static str| with(at("local", "disk", 512), &[("way", name.into())]);
    let ratio = |what, metric, of: &'static str, to: &'static str, aim| Compare {
        what,
        paper: None,
        ours: Measure::Ratio {
            metric,
            of: way(of),
            to: way(to),
        },
        aim: Some(aim),
    };
    all.push(ratio(
        "disk, 512 B: reads by io_uring, by static threads",
        "iops",
        "ring",
        "static",
        Aim::AtLeast(1.0),
    ));
    all.push(ratio(
        "disk, 512 B: processor time of a read by io_uring, by static threads",
        "read-cpu",
        "ring",
        "static",
        Aim::AtMost(1.0),
    ));
    all.push(ratio(
        "disk, 512 B: processor time of a read by dynamic threads, by static ones",
        "read-cpu",
        "dynamic",
        "static",
        Aim::AtLeast(10.0),
    ));
    all
}
