//! Paper 2.

use super::PaperItemState::{InPart, NotReproduced};
use super::{Paper, figure, plots};

const WORKERS_NOT_SWEPT: &str = "no experiment sweeps workers at this epoch time with one \
                                 max-epoch-diff after the other; silo-latency takes one number of workers";

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
            InPart(
                &[plots(
                    "log-device",
                    &[
                        "Disk: rate by bytes from sync to sync",
                        "Memory: rate by bytes from sync to sync",
                        "Disk: rate by threads",
                    ],
                )],
                "This machine's disk, and /dev/shm instead of persistent memory. The curves are of one thread; \
                 more threads are measured with syncs every 4 MiB alone.",
            ),
        ),
        figure(
            "9",
            "half writes on one socket, by workers: throughput, bytes logged, latency",
            "at most 4.2 M transactions a second on the SSD, 9.2 M on persistent memory; latency 60 ms to \
             1 s, and 45 to 81 ms",
            InPart(
                &[plots(
                    "silo-threads",
                    &[
                        "Half writes: throughput by workers",
                        "Half writes: mean durability latency by workers",
                    ],
                )],
                "As many workers as this machine has processors, fewer loggers, and epochs that end when the \
                 loggers are idle, where the paper has 40 ms. The bytes logged (b) are not drawn.",
            ),
        ),
        figure(
            "10",
            "all writes on four sockets, by workers: throughput, bytes logged, latency",
            "8 loggers 30 M, 16 loggers 37.5 M, 24 loggers 36.5 M transactions a second; 5.6 GB/s; 50 to 70 ms",
            InPart(
                &[plots(
                    "silo-threads",
                    &[
                        "All writes: throughput by workers",
                        "All writes: log by workers",
                    ],
                )],
                "As in figure 9. The latency (c) is not drawn.",
            ),
        ),
        figure(
            "11",
            "log buffers of a worker: throughput and latency, by workers",
            "two are slower than four; 16 and 32 lose throughput from 208 and 176 workers on",
            InPart(
                &[plots(
                    "silo-buffers",
                    &[
                        "Throughput by buffers of a worker",
                        "Mean durability latency by buffers of a worker",
                    ],
                )],
                "Buffers are on the x axis, where the paper has workers, and there is one logger, where it has 16.",
            ),
        ),
        figure(
            "12",
            "latency by workers, epochs of 1 ms",
            "off: up to 10 ms; max-epoch-diff 2: below 2.7 ms; 3: at most 3.3 ms",
            NotReproduced(WORKERS_NOT_SWEPT),
        ),
        figure(
            "13",
            "throughput by workers, epochs of 1 ms",
            "",
            NotReproduced(WORKERS_NOT_SWEPT),
        ),
        figure(
            "14",
            "latency by workers, epochs of 0.5 ms",
            "max-epoch-diff 2 and 3: at most 2.7 ms",
            NotReproduced(WORKERS_NOT_SWEPT),
        ),
        figure(
            "15",
            "throughput by workers, epochs of 0.5 ms",
            "",
            NotReproduced(WORKERS_NOT_SWEPT),
        ),
        figure(
            "16",
            "latency by workers, epochs of 2 ms",
            "max-epoch-diff 3 and 4: about twice those of 1 ms",
            NotReproduced(WORKERS_NOT_SWEPT),
        ),
        figure(
            "17",
            "throughput by workers, epochs of 2 ms",
            "",
            NotReproduced(WORKERS_NOT_SWEPT),
        ),
        figure(
            "18",
            "throughput and latency of 52 workers and four loggers, by epoch time and max-epoch-diff",
            "1 ms: off 9.1 ms; 3: 3.3 ms for 17 % of the throughput; 2: 75 % of the throughput lost",
            NotReproduced(
                "it is at 52 workers and four loggers; silo-latency has the same bars for the few workers of \
                 this machine",
            ),
        ),
    ],
};
