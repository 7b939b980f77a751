//! `log-device`: the speed of the log's device by itself, by the bytes from sync to sync and the threads
//! (paper 2, figure 8).

use crate::disk_access::DeviceAccess;
use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::{Effort, Scale};
use crate::plot::{Compare, Measure, PaperMark, Plot, PlotKind};
use crate::run_context::StorageMedium;
use crate::target::{DeviceJob, TargetJob};

const PIECE: usize = 512 * 1024;
const KIB: usize = 1024;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "log-device",
    title: "The log's device by itself",
    paper: Some("paper 2, figure 8"),
    about: &[
        "A log is written sequentially and synced now and then. This shows how fast the device \
         takes that, without any store on top: each thread, one to four of \
         them, writes a file of its own in pieces of 512 KiB and syncs it after every so many bytes.",
        "Warmed-up files were written once before, so that the file system has nothing to allocate. \
         'file' is write and fdatasync, 'direct' is direct I/O through io_uring, and 'map' is \
         non-temporal stores to memory that the file is mapped to, libpmem's way: its space is set \
         aside before it counts, and on a disk a sync is fdatasync.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "place",
        "device",
        "warm-up",
        "threads",
        "sync-size",
        "rate",
        "sync-time",
    ],
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let all: Vec<usize> = (0..8).map(|i| 512 << i).collect();
    let sync_sizes = scale.pick(&[512, 1024], &[512, 4096, 32768], &all);
    let mut points = Vec::new();
    for place in [StorageMedium::Disk, StorageMedium::Memory] {
        for device in [DeviceAccess::File, DeviceAccess::Direct, DeviceAccess::Map] {
            for warm_up in [false, true] {
                for &threads in threads(scale, place, device) {
                    for &kib in sync_sizes {
                        let job = DeviceJob {
                            place,
                            device,
                            piece: PIECE,
                            sync_size: kib * KIB,
                            threads,
                            warm_up,
                        };
                        let params = [
                            ("place", place.name().into()),
                            ("device", device.name().into()),
                            ("warm-up", if warm_up { "yes" } else { "no" }.into()),
                            ("threads", threads.into()),
                            ("sync-size", kib.into()),
                        ];
                        points.push(SweepPoint::new(params, TargetJob::Device(job)));
                    }
                }
            }
        }
    }
    points
}

/// Returns the numbers of threads: the paper's one to four for what its figure has, in quick runs fewer
/// for the rest.
fn threads(scale: &Scale, place: StorageMedium, device: DeviceAccess) -> &'static [usize] {
    let is_in_figure = match device {
        DeviceAccess::File => true,
        DeviceAccess::Map => place == StorageMedium::Memory,
        DeviceAccess::Direct => false,
    };
    match scale.effort {
        Effort::Tiny => &[1],
        Effort::Quick if !is_in_figure => &[1],
        Effort::Quick | Effort::Full => &[1, 2, 3, 4],
    }
}

fn plots() -> Vec<Plot> {
    let plot = |title, caption, series, only: &[(&'static str, &str)], paper| Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "sync-size",
            y: "rate",
            series,
            doubling: true,
        },
        only: only
            .iter()
            .map(|&(name, value)| (name, vec![value.into()]))
            .collect(),
        paper,
    };
    let by_threads = |title, caption, place: &str, device: &str, warm_up: &str, paper| {
        let only = [("place", place), ("device", device), ("warm-up", warm_up)];
        plot(title, caption, &["threads"], &only, paper)
    };
    let by_device = |title, place: &str| {
        let mut plot = plot(
            title,
            "One thread, by the way of writing, with and without warm-up.",
            &["device", "warm-up"],
            &[("place", place)],
            Vec::new(),
        );
        plot.only.push(("threads", vec![1usize.into()]));
        plot
    };
    let mark = |value, label| vec![PaperMark::Line { value, label }];
    let module = || mark(842.0, "paper's module, one thread, 32 MiB");
    vec![
        by_threads(
            "Figure 8(a): disk, by bytes from sync to sync and threads",
            "In the paper a SATA SSD, which levels out at 300 to 400 MB/s from 4 MiB on with several threads; with one it has 285 MB/s at 32 MiB (the authors' published points).",
            "disk",
            "file",
            "no",
            mark(285.0, "paper's SSD, one thread, 32 MiB"),
        ),
        by_threads(
            "Figure 8(b), write: memory without warm-up",
            "/dev/shm. In the paper persistent memory: one thread has about 800 MB/s on one module (section 6.2.1, which prints \"800B/s\"; 842 at 32 MiB in the authors' published points); two or three threads are best.",
            "memory",
            "file",
            "no",
            module(),
        ),
        by_threads(
            "Figure 8(b), mapped: memory without warm-up",
            "The same by stores to mapped memory, libpmem's way; in the paper slower than write nearly everywhere.",
            "memory",
            "map",
            "no",
            Vec::new(),
        ),
        by_threads(
            "Figure 8(c), write: memory after warm-up",
            "In the paper about twice as fast as without warm-up.",
            "memory",
            "file",
            "yes",
            Vec::new(),
        ),
        by_threads(
            "Figure 8(c), mapped: memory after warm-up",
            "The same by stores to mapped memory.",
            "memory",
            "map",
            "yes",
            Vec::new(),
        ),
        by_device("Disk: ways of writing", "disk"),
        by_device("Memory: ways of writing", "memory"),
    ]
}

fn compare() -> Vec<Compare> {
    let at = |place: &str, device: &str, warm_up: &str| {
        vec![
            ("place", place.into()),
            ("device", device.into()),
            ("warm-up", warm_up.into()),
            ("threads", 1usize.into()),
            ("sync-size", 32768usize.into()),
        ]
    };
    let value = |place: &str| Measure::Value {
        metric: "rate",
        at: at(place, "file", "no"),
    };
    let ratio = |place: &str| Measure::Ratio {
        metric: "rate",
        of: at(place, "file", "yes"),
        to: at(place, "file", "no"),
    };
    let mapped_by_write = Measure::Ratio {
        metric: "rate",
        of: at("memory", "map", "yes"),
        to: at("memory", "file", "yes"),
    };
    let row = |what, paper, ours| Compare {
        what,
        paper: Some(paper),
        ours,
        aim: None,
    };
    vec![
        row(
            "disk, one thread, synced every 32 MiB, MB/s",
            "285 (SATA SSD; published points; 300–400 with several threads, text of section 5.2)",
            value("disk"),
        ),
        row(
            "memory, one thread, synced every 32 MiB, MB/s",
            "about 800 (one module of persistent memory; text of section 6.2.1; 842 in the published points)",
            value("memory"),
        ),
        row(
            "memory: warmed up, by not",
            "about 2 (text of section 5.2)",
            ratio("memory"),
        ),
        row("disk: warmed up, by not", "not said", ratio("disk")),
        row(
            "memory, warmed up: stores to mapped memory, by write",
            "below 1 (figure 8: write is the faster of the two nearly everywhere)",
            mapped_by_write,
        ),
    ]
}
