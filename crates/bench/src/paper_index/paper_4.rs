//! Paper 4.

use super::item::PaperItemState::{Followed, InPart};
use super::item::{IndexedPlots, Paper, PaperItemState, figure, plots, table};

const fn reads(titles: &'static [&'static str]) -> IndexedPlots {
    plots("remote-io", titles)
}

const fn replays(titles: &'static [&'static str]) -> IndexedPlots {
    plots("io-replay", titles)
}

const fn queries(titles: &'static [&'static str]) -> IndexedPlots {
    plots("query-placement", titles)
}

/// Figures 4.2 to 4.5.
const FABRIC: PaperItemState = InPart(
    &[reads(&["The fabric alone"])],
    "Bars of one connection; 1 to 8 connections, at 512 bytes also up to 100 that threads share, are in the \
     table of points. TCP and shared memory on one machine; with an RDMA device one point of it.",
);

/// Figures 4.6 to 4.9.
const LOCAL: PaperItemState = InPart(
    &[reads(&["On the disk, by size"])],
    "Bars of 100 threads; 1 to 200 threads are in the table of points. This machine's disk, where the \
     paper has ten NVMe devices.",
);

/// Figures 4.15 to 4.17.
const STATIC_LARGER: PaperItemState = InPart(
    &[reads(&["On the disk, by size"])],
    "Bars of a storage node with io_uring; connections (1 to 8) and static threads (4 to 200) are in the \
     table of points, as are up to 100 that threads share; curves are drawn of 512 bytes alone.",
);

/// Figures 4.20, 4.21 and 4.23.
const REPLAY_HERE: PaperItemState = InPart(
    &[replays(&["Replays and random reads, here"])],
    "Bars of 100 threads; 1 to 32 threads are in the table of points. Without a cache and with caches of \
     our own, since the paper does not say which cache its reads had.",
);

/// Figures 4.24, 4.25 and 4.27.
const REPLAY_BY_THREADS: PaperItemState = InPart(
    &[replays(&["Replays of a storage node"])],
    "Bars of one connection with io_uring; 1 to 32 threads are in the table of points.",
);

/// Figures 4.28, 4.29 and 4.31.
const REPLAY_BY_CONNECTIONS: PaperItemState = InPart(
    &[replays(&["Replays of a storage node"])],
    "Bars of one connection; 2 and 4 connections are in the table of points.",
);

const FEW_READERS: &str =
    "1 to 64 threads that read, with one connection. On one machine, over shared memory.";
const FEW_CONNECTIONS: &str = "1 to 16 connections. On one machine, over shared memory.";
const BEST_OF_TWO: &str = "One thread and as many as processors, where the paper has the best of all \
                           numbers of threads and connections. On one machine, over shared memory.";

pub(super) const PAPER: Paper = Paper {
    number: 4,
    subject: "queries on disaggregated storage",
    items: &[
        figure(
            "4.2",
            "the fabric alone by connections, 512 bytes",
            "just below 6 M reads a second at ten connections",
            FABRIC,
        ),
        figure(
            "4.3",
            "the fabric alone by connections, 4 KiB",
            "level",
            FABRIC,
        ),
        figure(
            "4.4",
            "the fabric alone by connections, 16 KiB",
            "level",
            FABRIC,
        ),
        figure(
            "4.5",
            "the fabric alone by connections, 64 KiB",
            "level",
            FABRIC,
        ),
        figure(
            "4.6",
            "local reads by threads, 512 bytes",
            "5.1 M reads a second, from about 100 threads on",
            LOCAL,
        ),
        figure(
            "4.7",
            "local reads by threads, 4 KiB",
            "2.5 M reads a second, from about 100 threads on",
            LOCAL,
        ),
        figure(
            "4.8",
            "local reads by threads, 16 KiB",
            "0.64 M reads a second, from about 100 threads on",
            LOCAL,
        ),
        figure(
            "4.9",
            "local reads by threads, 64 KiB",
            "0.15 M reads a second, from about 100 threads on",
            LOCAL,
        ),
        figure(
            "4.10",
            "remote reads by connections, a new thread for each read",
            "70 k reads a second with one connection, fewer with more; some hundreds with threads pinned",
            InPart(
                &[reads(&["Reads by connections, a new thread for each read"])],
                "1 to 8 connections, on this machine's disk.",
            ),
        ),
        figure(
            "4.11",
            "processors over time, a new thread for each read",
            "two processors poll, few others are busy",
            InPart(
                &[reads(&["Processors over time, a new thread for each read"])],
                "By process, where the paper has a curve for each processor.",
            ),
        ),
        figure(
            "4.12",
            "remote reads of 512 bytes by static threads, ten connections",
            "most at about 100 threads",
            InPart(
                &[reads(&[
                    "Reads of 512 bytes by threads that share connections, a thread of the node for each",
                    "Reads of 512 bytes by connections and I/O threads",
                ])],
                "Ten connections have 1 to 100 threads each, at full effort; on this machine's disk.",
            ),
        ),
        figure(
            "4.13",
            "remote reads of 512 bytes by connections, 100 static threads each",
            "nearly as many as local reads at 100 connections",
            InPart(
                &[reads(&[
                    "Reads of 512 bytes by threads that share connections, a thread of the node for each",
                ])],
                "1 to 100 connections, at full effort; on this machine's disk.",
            ),
        ),
        figure(
            "4.14",
            "remote reads of 512 bytes by all threads",
            "4.3 M reads a second, at about 1000 threads",
            InPart(
                &[reads(&[
                    "Reads of 512 bytes by threads that share connections, io_uring",
                    "Reads of 512 bytes by threads that share connections, a thread of the node for each",
                    "Reads of 512 bytes by connections and I/O threads",
                ])],
                "Fewer combinations of connections and threads; on this machine's disk.",
            ),
        ),
        figure(
            "4.15",
            "remote reads of 4 KiB by all threads",
            "1.4 M reads a second",
            STATIC_LARGER,
        ),
        figure(
            "4.16",
            "remote reads of 16 KiB by all threads",
            "0.35 M reads a second",
            STATIC_LARGER,
        ),
        figure(
            "4.17",
            "remote reads of 64 KiB by all threads",
            "62 % of local reads",
            STATIC_LARGER,
        ),
        table(
            "4.2",
            "remote reads by local ones, by size",
            "512 bytes 85 %, 4 KiB 55 %, 16 KiB 55 %, 64 KiB 62 %",
            Followed(
                &[reads(&[])],
                "On one machine, over shared memory and TCP; on this machine's disk and in memory.",
            ),
        ),
        figure(
            "4.18",
            "the most bytes a second by size: fabric, local and remote reads",
            "remote reads are as fast as the fabric from 4 KiB on",
            InPart(
                &[reads(&["The fabric alone", "On the disk, by size"])],
                "One setting of each way, where the paper has the best of its sweeps.",
            ),
        ),
        figure(
            "4.19",
            "time of a replay of a query's page accesses, local and remote",
            "remote takes more than twice as long",
            InPart(
                &[replays(&[
                    "How long a replay takes, here and of a storage node",
                ])],
                "100 threads here and one connection to the node, where the paper has 10,000 threads; up to \
                 10,000 that share connections are in the table of points, at full effort.",
            ),
        ),
        figure(
            "4.20",
            "local replay and random reads by threads, 512 bytes",
            "the replay is faster by far",
            REPLAY_HERE,
        ),
        figure(
            "4.21",
            "local replay and random reads by threads, 4 KiB",
            "the replay is faster by far",
            REPLAY_HERE,
        ),
        figure(
            "4.22",
            "local replay and random reads by threads, 16 KiB",
            "the replay is faster by far",
            InPart(
                &[replays(&[
                    "Replays by threads",
                    "Replays and random reads, here",
                ])],
                "1 to 32 and 100 threads. Without a cache and with caches of our own, since the paper does not \
                 say which cache its reads had.",
            ),
        ),
        figure(
            "4.23",
            "local replay and random reads by threads, 64 KiB",
            "the replay is faster by far",
            REPLAY_HERE,
        ),
        figure(
            "4.24",
            "remote replay by all threads, 512 bytes",
            "",
            REPLAY_BY_THREADS,
        ),
        figure(
            "4.25",
            "remote replay by all threads, 4 KiB",
            "",
            REPLAY_BY_THREADS,
        ),
        figure(
            "4.26",
            "remote replay by all threads, 16 KiB",
            "",
            InPart(
                &[replays(&["Replays by threads"])],
                "1 to 32 threads of the node, with one connection.",
            ),
        ),
        figure(
            "4.27",
            "remote replay by all threads, 64 KiB",
            "",
            REPLAY_BY_THREADS,
        ),
        figure(
            "4.28",
            "remote replay and random reads by connections, 512 bytes",
            "the replay is about half as fast",
            REPLAY_BY_CONNECTIONS,
        ),
        figure(
            "4.29",
            "remote replay and random reads by connections, 4 KiB",
            "both are alike",
            REPLAY_BY_CONNECTIONS,
        ),
        figure(
            "4.30",
            "remote replay and random reads by connections, 16 KiB",
            "both are alike",
            InPart(
                &[replays(&["Replays by connections"])],
                "1, 2 and 4 connections, by io_uring.",
            ),
        ),
        figure(
            "4.31",
            "remote replay and random reads by connections, 64 KiB",
            "both are alike",
            REPLAY_BY_CONNECTIONS,
        ),
        table(
            "4.5",
            "selectivity of the three queries",
            "Q1 0.97, Q6 0.013, Q15 0.15",
            Followed(
                &[queries(&[])],
                "TPC-H's table at scale factor 1, with --quick 0.1.",
            ),
        ),
        figure(
            "4.32",
            "time of Q1's condition by I/O threads, by placement",
            "",
            InPart(
                &[queries(&["Q1, condition: by threads that read"])],
                FEW_READERS,
            ),
        ),
        figure(
            "4.33",
            "time of Q1's condition by connections",
            "",
            InPart(
                &[queries(&["Q1, condition: by connections"])],
                FEW_CONNECTIONS,
            ),
        ),
        figure(
            "4.34",
            "least time of Q1's condition by page size",
            "16 KiB: local 24.8 s, remote-local 15.8 s, remote-remote 14.5 s; alike at 128 KiB",
            InPart(&[queries(&["Q1, condition: by page size"])], BEST_OF_TWO),
        ),
        table(
            "4.6",
            "settings and figures of Q1's least times, pages of 16 KiB",
            "1, 1 × 1 and 75 × 100 threads; 2206, 3442 and 4268 reads a second",
            InPart(
                &[queries(&[])],
                "Times and busy processors are compared; reads a second, bytes a second and the best settings \
                 are not.",
            ),
        ),
        figure(
            "4.35",
            "time of Q6's condition by I/O threads, by placement",
            "",
            InPart(
                &[queries(&["Q6, condition: by threads that read"])],
                FEW_READERS,
            ),
        ),
        figure(
            "4.36",
            "time of Q6's condition by connections",
            "",
            InPart(
                &[queries(&["Q6, condition: by connections"])],
                FEW_CONNECTIONS,
            ),
        ),
        figure(
            "4.37",
            "least time of Q6's condition by page size",
            "",
            InPart(&[queries(&["Q6, condition: by page size"])], BEST_OF_TWO),
        ),
        figure(
            "4.38",
            "time of Q15's condition by I/O threads, by placement",
            "",
            InPart(
                &[queries(&["Q15, condition: by threads that read"])],
                FEW_READERS,
            ),
        ),
        figure(
            "4.39",
            "time of Q15's condition by connections",
            "",
            InPart(
                &[queries(&["Q15, condition: by connections"])],
                FEW_CONNECTIONS,
            ),
        ),
        figure(
            "4.40",
            "least time of Q15's condition by page size",
            "",
            InPart(&[queries(&["Q15, condition: by page size"])], BEST_OF_TWO),
        ),
    ],
};
