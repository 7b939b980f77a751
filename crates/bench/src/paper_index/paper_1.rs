//! Paper 1.

use super::item::PaperItemState::{Followed, InPart};
use super::item::{Paper, figure, plots};

pub(super) const PAPER: Paper = Paper {
    number: 1,
    subject: "read-atomic transactions over RDMA",
    items: &[
        figure(
            "4",
            "throughput by the way in which messages travel",
            "TCP on InfiniBand 1.32, Send and Receive 2.39, RDMA 2.53 times TCP on Ethernet",
            Followed(
                &[plots(
                    "ramp-transport",
                    &["Throughput by transport, by that over TCP"],
                )],
                "All processes are on one machine, and a run lasts a time, not a million transactions. \
                 Without an InfiniBand device its columns are skipped, and shared memory stands beside TCP.",
            ),
        ),
        figure(
            "5",
            "throughput by the number of keys in a transaction",
            "4 keys: GET+/PUT+ 2.07 and GET*/PUT+ 2.78 times GET/PUT; all fall as transactions grow",
            Followed(
                &[plots("ramp-size", &["Throughput by size, in memory"])],
                "All processes are on one machine. GET/PUT and two-phase locking have TCP on loopback, \
                 where the paper has TCP on InfiniBand; GET+ and GET* have shared memory, and with a device \
                 also RDMA.",
            ),
        ),
        figure(
            "6",
            "throughput by the share of reads",
            "reads alone: GET+/PUT+ 1.94 and GET*/PUT+ 2.69 times GET/PUT; without reads the two are alike",
            Followed(
                &[plots(
                    "ramp-reads",
                    &["Throughput by the share of reads, in memory"],
                )],
                "As in figure 5.",
            ),
        ),
        figure(
            "7",
            "throughput by the share of reads, under YCSB",
            "reads alone: GET+/PUT+ 2.06 and GET*/PUT+ 2.67 times GET/PUT",
            InPart(
                &[plots(
                    "ramp-ycsb",
                    &["Throughput by the share of reads, in memory"],
                )],
                "The load is that of the paper's YCSB, a thousand keys of 1 KB drawn uniformly, and comes \
                 from our own generator, not from YCSB's program. Otherwise as in figure 5.",
            ),
        ),
    ],
};
