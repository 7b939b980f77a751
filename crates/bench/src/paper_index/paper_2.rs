//! Paper 2.

use super::item::PaperItemState::{Followed, InPart};
use super::item::{IndexedPlots, Paper, PaperItemState, figure, plots};

/// What differs in figures 12 to 17.
const FEW_REAL_WORKERS: &str = "Real runs have one logger, and up to twice as many workers as this machine has \
                                processors; 4 to 52 workers and 4 loggers are simulated, and drawn apart. The \
                                panels (a) to (d) are the lines of one plot.";

const fn by_workers(plots: &'static [IndexedPlots]) -> PaperItemState {
    Followed(plots, FEW_REAL_WORKERS)
}

pub(super) const PAPER: Paper = Paper {
    number: 2,
    subject: "logging by epochs, and bounded durability latency",
    items: &[
        figure(
            "5",
            "the parts of the durability latency",
            "",
            InPart(
                &[plots(
                    "silo-latency",
                    &[
                        "Where the time goes, one slow log",
                        "Where the time goes, all logs alike",
                    ],
                )],
                "One number of workers, and one logger or two, one of which is slow on purpose.",
            ),
        ),
        figure(
            "8",
            "rate of a device by bytes from sync to sync: SSD, persistent memory, and that warmed up",
            "one thread, 32 MiB: SSD 285 MB/s, persistent memory 842 MB/s; warmed up about twice that",
            Followed(
                &[plots(
                    "log-device",
                    &[
                        "Figure 8(a): disk, by bytes from sync to sync and threads",
                        "Figure 8(b), write: memory without warm-up",
                        "Figure 8(b), mapped: memory without warm-up",
                        "Figure 8(c), write: memory after warm-up",
                        "Figure 8(c), mapped: memory after warm-up",
                    ],
                )],
                "This machine's disk instead of the SSD, and /dev/shm instead of persistent memory.",
            ),
        ),
        figure(
            "9",
            "half writes on one socket, by workers: throughput, bytes logged, latency",
            "the authors' points are drawn; at most 4.2 M transactions a second on the SSD, 9.2 M on \
             persistent memory; latency 60 ms to 1 s, and 45 to 81 ms",
            Followed(
                &[plots(
                    "silo-threads",
                    &[
                        "Figure 9(a), log in memory: throughput by workers",
                        "Figure 9(b), log in memory: bytes logged by workers",
                        "Figure 9(c), log in memory: mean durability latency by workers",
                        "Figure 9(a), log on the disk: throughput by workers",
                        "Figure 9(b), log on the disk: bytes logged by workers",
                        "Figure 9(c), log on the disk: mean durability latency by workers",
                    ],
                )],
                "Real runs have up to twice as many workers as this machine has processors, and loggers that have \
                 a worker each; the paper's numbers are simulated, and drawn apart. This machine's disk instead \
                 of the SSD, and /dev/shm instead of persistent memory.",
            ),
        ),
        figure(
            "10",
            "all writes on four sockets, by workers: throughput, bytes logged, latency",
            "the authors' points are drawn; 8 loggers 30 M, 16 loggers 37.5 M, 24 loggers 36.5 M transactions \
             a second; 5.6 GB/s; 50 to 70 ms",
            Followed(
                &[plots(
                    "silo-threads",
                    &[
                        "Figure 10(a): throughput by workers",
                        "Figure 10(b): bytes logged by workers",
                        "Figure 10(c): mean durability latency by workers",
                    ],
                )],
                "As in figure 9, and one place in memory, where the paper has eight modules.",
            ),
        ),
        figure(
            "11",
            "log buffers of a worker: throughput and latency, by workers",
            "the authors' points are drawn; two are slower than four; 16 and 32 lose throughput from 208 and \
             176 workers on",
            InPart(
                &[plots(
                    "silo-buffers",
                    &[
                        "Figure 11(a): throughput by workers",
                        "Figure 11(b): mean durability latency by workers",
                    ],
                )],
                "Real runs have one logger and few workers; the paper's 16 loggers and its workers are simulated, and \
                 drawn apart.",
            ),
        ),
        figure(
            "12",
            "latency by workers, epochs of 1 ms",
            "off: up to 10 ms; max-epoch-diff 2: below 2.7 ms; 3: at most 3.3 ms",
            by_workers(&[plots(
                "silo-latency",
                &["Figure 12: mean durability latency by workers, epochs of 1 ms"],
            )]),
        ),
        figure(
            "13",
            "throughput by workers, epochs of 1 ms",
            "",
            by_workers(&[plots(
                "silo-latency",
                &["Figure 13: throughput by workers, epochs of 1 ms"],
            )]),
        ),
        figure(
            "14",
            "latency by workers, epochs of 0.5 ms",
            "max-epoch-diff 2 and 3: at most 2.7 ms",
            by_workers(&[plots(
                "silo-latency",
                &["Figure 14: mean durability latency by workers, epochs of 0.5 ms"],
            )]),
        ),
        figure(
            "15",
            "throughput by workers, epochs of 0.5 ms",
            "",
            by_workers(&[plots(
                "silo-latency",
                &["Figure 15: throughput by workers, epochs of 0.5 ms"],
            )]),
        ),
        figure(
            "16",
            "latency by workers, epochs of 2 ms",
            "max-epoch-diff 3 and 4: about twice those of 1 ms",
            by_workers(&[plots(
                "silo-latency",
                &["Figure 16: mean durability latency by workers, epochs of 2 ms"],
            )]),
        ),
        figure(
            "17",
            "throughput by workers, epochs of 2 ms",
            "",
            by_workers(&[plots(
                "silo-latency",
                &["Figure 17: throughput by workers, epochs of 2 ms"],
            )]),
        ),
        figure(
            "18",
            "throughput and latency of 52 workers and four loggers, by epoch time and max-epoch-diff",
            "1 ms: off 9.1 ms; 3: 3.3 ms for 17 % of the throughput; 2: 75 % of the throughput lost",
            InPart(
                &[plots(
                    "silo-latency",
                    &[
                        "Figure 18, throughput: 52 workers and 4 loggers, simulated, as a share of that without a log",
                        "Figure 18, latency: 52 workers and 4 loggers, simulated",
                        "Figure 18, throughput: two workers, as a share of that without a log",
                        "Figure 18, latency: two workers",
                    ],
                )],
                "The paper's numbers are simulated; real runs have two workers and one logger.",
            ),
        ),
    ],
};
