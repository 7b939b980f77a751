//! Paper 3.

use super::item::PaperItemState::{Followed, InPart};
use super::item::{Paper, figure, plots, table};

pub(super) const PAPER: Paper = Paper {
    number: 3,
    subject: "a proxy that aggregates queries, and holds locks",
    items: &[
        figure(
            "2",
            "throughput of Cassandra through the earlier proxy, under YCSB",
            "at most 19 % more than without it",
            InPart(
                &[plots(
                    "proxy-cassandra",
                    &["Throughput through the proxy, by direct, under YCSB A"],
                )],
                "Through our proxy, not through the earlier one, on Cassandra 5 and few nodes.",
            ),
        ),
        figure(
            "8",
            "throughput over time at a high rate of queries",
            "7.45 M queries a second through the proxy, 1.3 times what clients reach without it",
            InPart(
                &[
                    plots(
                        "proxy-designs",
                        &[
                            "Throughput over time, at 160 kq/s sent",
                            "Throughput by the rate at which clients send",
                        ],
                    ),
                    plots(
                        "proxy-throughput",
                        &["Throughput by nodes, by that of clients that know the nodes"],
                    ),
                ],
                "The paper's load and both of its proxies, beside ours; clients, proxy and nodes share one \
                 machine, packets go through the kernel, and the paper does not state its rate.",
            ),
        ),
        figure(
            "9",
            "queries that travel in one packet, over time",
            "2.9 in the mean",
            InPart(
                &[
                    plots("proxy-designs", &["Queries in a packet"]),
                    plots("proxy-throughput", &["Queries in a packet"]),
                ],
                "Means of runs, not over time.",
            ),
        ),
        table(
            "3",
            "latency at the high rate: least, median, mean, greatest",
            "direct 0.035, 0.48, 1.6, 2328 ms; proxy 0.051, 217, 412, 9995 ms",
            InPart(
                &[
                    plots("proxy-designs", &["Median latency by that rate"]),
                    plots("proxy-latency", &["Median latency"]),
                ],
                "The paper does not state its rate: here rates are swept past saturation, and a closed loop of \
                 96 clients is measured beside. The four figures are in the tables of points.",
            ),
        ),
        table(
            "4",
            "latency at a thousand queries a second: least, median, mean, greatest",
            "direct 0.043, 0.067, 0.082, 0.63 ms; proxy 0.057, 0.081, 0.704, 351 ms",
            Followed(
                &[
                    plots("proxy-latency", &["Median latency"]),
                    plots(
                        "proxy-cassandra",
                        &[
                            "Median latency through the proxy, by direct, at a thousand requests a second",
                        ],
                    ),
                ],
                "On one machine, through the kernel. The four figures are in the tables of points; \
                 proxy-cassandra repeats it on Cassandra.",
            ),
        ),
        figure(
            "10",
            "throughput by client threads",
            "linear up to 4 threads, 1.5 times from 4 to 8, 1.4 times from 8 to 16",
            InPart(
                &[
                    plots("proxy-scale", &["Throughput by threads that have clients"]),
                    plots("proxy-designs", &["Client threads of the paper's proxy"]),
                ],
                "Our proxy, and the paper's with its 1 to 26 threads; clients and nodes share the processors.",
            ),
        ),
        figure(
            "11",
            "latency of taking a lock, by the proxy and by Cassandra",
            "the proxy takes about 1/35 of the time",
            InPart(
                &[plots(
                    "lock-latency",
                    &[
                        "Median latency of taking a lock",
                        "Distribution of the latency of taking a lock",
                        "A lock by lightweight transactions, by one of the proxy with its table in memory",
                    ],
                )],
                "Clusters of one, three and five nodes, and some thousand locks, where the paper has up to nine \
                 nodes and a million locks.",
            ),
        ),
    ],
};
