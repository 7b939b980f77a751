//! The figures of `io-replay`, and the comparisons with the paper's values.

use crate::parameters::Param;
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};

/// The size in which accesses were recorded.
pub(super) const RECORDED: usize = 16 << 10;
/// Threads that read on this machine.
pub(super) const THREADS: usize = 100;

pub(super) fn plots() -> Vec<Plot> {
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
        shape: PlotKind::Bars {
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
        shape: PlotKind::Lines {
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
            "Reads of 16 KiB on the disk. After figure 4.19, where remote reads, which have no \
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
            "On the disk, by size, without a cache and with caches. After figures 4.20 to 4.23, \
             where replays are faster by far.",
            only(&[disk, ("mode", &["local".into()]), ("threads", usual)]),
            "size",
            "iops",
            "who",
        ),
        bars(
            "Replays of a storage node",
            "On the disk, over shared memory, by size. After figures 4.24 to 4.31, where replays \
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
            "Reads of 16 KiB on the disk. After figures 4.22 and 4.26.",
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
            "Reads of 16 KiB on the disk over shared memory, by io_uring. After figure 4.30.",
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

pub(super) fn compare() -> Vec<Compare> {
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
