//! Paper 5.

use super::item::PaperItemState::Followed;
use super::item::{Paper, figure, plots};

pub(super) const PAPER: Paper = Paper {
    number: 5,
    subject: "externally consistent transactions with grouped log transfer",
    items: &[
        figure(
            "3",
            "throughput by clients, without grouping",
            "grows up to four clients",
            Followed(
                &[
                    plots("raft-links", &["0.1 ms: throughput by clients"]),
                    plots("raft-grouping", &["Log in memory: throughput by clients"]),
                ],
                "Five members share one machine. raft-links has clients over TCP and delayed links, as between \
                 machines; raft-grouping has clients in the leader's process and no delay. The paper does not \
                 say which keys its transactions have.",
            ),
        ),
        figure(
            "4",
            "throughput by clients, with grouping",
            "grows up to 64 clients, where it is 31.7 times that without",
            Followed(
                &[
                    plots("raft-links", &["0.1 ms: throughput by clients"]),
                    plots("raft-grouping", &["Log in memory: throughput by clients"]),
                ],
                "As in figure 3.",
            ),
        ),
        figure(
            "5",
            "throughput by servers",
            "falls from 3 to 11 servers",
            Followed(
                &[plots(
                    "raft-servers",
                    &["Log in memory: throughput by servers"],
                )],
                "All members share one machine, and clients are in the leader's process.",
            ),
        ),
        figure(
            "6",
            "throughput by clients, with bulks of a hundred transactions",
            "at most 283 times that without grouping (2 clients), 201 times that of grouping alone (1 client)",
            Followed(
                &[
                    plots("raft-links", &["0.1 ms: throughput by clients"]),
                    plots("raft-bulk", &["Log in memory: throughput by clients"]),
                ],
                "As in figure 3.",
            ),
        ),
    ],
};
