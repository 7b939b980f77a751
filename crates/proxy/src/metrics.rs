//! The figures in Prometheus's text format, and health: the parts of the admin endpoint that describe a
//! proxy.
//!
//! `docs/metrics.md` lists every family; a test compares the two. Threads update their figures as they
//! run, with plain stores; reading the figures costs the threads nothing.

mod locks;
mod read_atomic;
mod snapshot;

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use admin::about;
use admin::exposition::{self, Family, Kind};
use admin::process::{self, Process};

use crate::nodes::NeededNodes;
use crate::runtime::query::NodeIndex;
use snapshot::{FIRST_CLASS, Figures, Fill, family, of};

pub(crate) use snapshot::ProxySubject;

/// How long a node without a connection may take to accept one when health is checked.
const REACH: Duration = Duration::from_secs(1);
/// Nodes to which connections are tried at once.
const TRIED: usize = 16;
impl admin::Subject for ProxySubject {
    fn metrics(&self) -> String {
        let figures = Figures::now(self);
        let own = exposition::text(families(), |family, samples| {
            (family.fill)(&figures, samples)
        });
        let started = SystemTime::now() - self.about.started.elapsed();
        own + &process::text(&Process::now(), started)
    }

    /// Returns the reason why the proxy is unhealthy, if it is: it has lost a thread, it stops, or a needed
    /// node is not connected and accepts no connection.
    fn trouble(&self) -> Option<String> {
        if self.stopping.lost.load(Relaxed) {
            return Some("a thread of the proxy is lost".to_owned());
        }
        if self.stopping.begun.load(Relaxed) {
            return Some("stopping".to_owned());
        }
        let (needed, one_is_enough) = match self.duties.needed() {
            NeededNodes::Each(nodes) => (nodes, false),
            NeededNodes::Any(nodes) => (nodes, true),
        };
        let count = needed.len();
        let doubtful = needed.into_iter().filter_map(|node| {
            let connected = self.about.nodes.figures(node).now().connections > 0;
            (!connected).then(|| (node, self.about.nodes.address(node)))
        });
        let doubtful: Vec<(NodeIndex, SocketAddr)> = doubtful.collect();
        if one_is_enough && doubtful.len() < count {
            return None;
        }
        let lost: Vec<_> = doubtful.chunks(TRIED).flat_map(unreachable).collect();
        if lost.is_empty() || (one_is_enough && lost.len() < count) {
            return None;
        }
        let lost = lost.into_iter().map(|(node, address)| {
            let slots = self.duties.slots(node);
            match slots {
                0 => address.to_string(),
                _ => format!("{address} ({slots} slots)"),
            }
        });
        let lost: Vec<String> = lost.collect();
        Some(format!("cannot be reached: {}", lost.join(", ")))
    }
}

/// Returns the nodes that accept no connection.
fn unreachable(nodes: &[(NodeIndex, SocketAddr)]) -> Vec<(NodeIndex, SocketAddr)> {
    std::thread::scope(|scope| {
        let tries = nodes.iter().map(|&(node, address)| {
            let attempt = scope.spawn(move || TcpStream::connect_timeout(&address, REACH).is_ok());
            (node, address, attempt)
        });
        let tries: Vec<_> = tries.collect();
        tries
            .into_iter()
            .filter_map(|(node, address, attempt)| {
                let reached = attempt.join().unwrap_or(false);
                (!reached).then_some((node, address))
            })
            .collect()
    })
}

const FAMILIES: &[Family<Fill>] = &[
    family(
        "kumiki_proxy_build_info",
        Kind::Gauge,
        "What runs, in labels; the value is always 1.",
        |f, out| about::describe(f.told.about.build, out),
    ),
    family(
        "kumiki_proxy_info",
        Kind::Gauge,
        "What the proxy stands before, as a label; the value is always 1.",
        |f, out| out.labelled(&[("before", f.told.about.before())], 1),
    ),
    family(
        "kumiki_proxy_uptime_seconds",
        Kind::Gauge,
        "Time since the proxy began to serve.",
        |f, out| out.seconds(f.told.about.started.elapsed().as_secs_f64()),
    ),
    // Clients.
    family(
        "kumiki_proxy_clients",
        Kind::Gauge,
        "Connections of clients.",
        |f, out| out.add(f.told.about.clients.now.load(Relaxed) as u64),
    ),
    family(
        "kumiki_proxy_clients_limit",
        Kind::Gauge,
        "Connections of clients that there may be at once.",
        |f, out| out.add(f.told.about.clients_limit as u64),
    ),
    family(
        "kumiki_proxy_clients_accepted_total",
        Kind::Counter,
        "Connections of clients that were accepted.",
        |f, out| out.add(of(&f.told.about.clients.ever)),
    ),
    family(
        "kumiki_proxy_clients_refused_total",
        Kind::Counter,
        "Connections closed at once because there were too many.",
        |f, out| out.add(of(&f.told.about.clients.refused)),
    ),
    family(
        "kumiki_proxy_clients_turned_out_total",
        Kind::Counter,
        "Connections closed because their clients did not say in time who they are, or stopped in the \
         middle of a request.",
        |f, out| out.add(of(&f.told.about.clients.turned_out)),
    ),
    family(
        "kumiki_proxy_auth_failures_total",
        Kind::Counter,
        "Attempts of Redis clients to authenticate that were refused.",
        |f, out| out.add(of(&f.told.about.clients.auth_failures)),
    ),
    // Threads.
    family(
        "kumiki_proxy_thread_clients",
        Kind::Gauge,
        "Connections of clients, by thread.",
        |f, out| f.of_threads(out, |front| front.clients.load(Relaxed) as u64),
    ),
    family(
        "kumiki_proxy_thread_queries_total",
        Kind::Counter,
        "Queries that a thread has handed on to nodes.",
        |f, out| f.of_threads(out, |front| of(&front.queries)),
    ),
    family(
        "kumiki_proxy_thread_replies_total",
        Kind::Counter,
        "Queries that have got a reply from their node.",
        |f, out| f.of_threads(out, |front| of(&front.replies)),
    ),
    family(
        "kumiki_proxy_thread_failures_total",
        Kind::Counter,
        "Queries that came back without a reply: their node could not be reached, or was lost.",
        |f, out| f.of_threads(out, |front| of(&front.failures)),
    ),
    family(
        "kumiki_proxy_thread_received_bytes_total",
        Kind::Counter,
        "Bytes received from clients.",
        |f, out| f.of_threads(out, |front| of(&front.bytes_in)),
    ),
    family(
        "kumiki_proxy_thread_sent_bytes_total",
        Kind::Counter,
        "Bytes sent to clients.",
        |f, out| f.of_threads(out, |front| of(&front.bytes_out)),
    ),
    family(
        "kumiki_proxy_query_seconds",
        Kind::Histogram,
        "From when a query was handed on until its reply was back.",
        |f, out| {
            for (index, front) in f.told.about.fronts.iter().enumerate() {
                let (classes, sum_us) = front.latency.read();
                let sum = Duration::from_micros(sum_us);
                let labels = [("thread", &*index.to_string())];
                out.histogram(&labels, FIRST_CLASS, &classes, sum);
            }
        },
    ),
    family(
        "kumiki_proxy_thread_wakeups_total",
        Kind::Counter,
        "Times that a sleeping thread was woken by another one; threads with clients come first.",
        |f, out| {
            for (index, waker) in f.told.wakers.iter().enumerate() {
                out.labelled(&[("thread", &index.to_string())], waker.rung() as u64);
            }
        },
    ),
    // Nodes.
    family(
        "kumiki_proxy_node_slots",
        Kind::Gauge,
        "Slots of a node, as the proxy knows it.",
        |f, out| f.of_nodes(out, |node| node.slots as u64),
    ),
    family(
        "kumiki_proxy_node_queries_total",
        Kind::Counter,
        "Queries sent to a node.",
        |f, out| f.of_nodes(out, |node| of(&node.figures.queries)),
    ),
    family(
        "kumiki_proxy_node_packets_total",
        Kind::Counter,
        "Packets in which they were sent.",
        |f, out| f.of_nodes(out, |node| of(&node.figures.packets)),
    ),
    family(
        "kumiki_proxy_node_queries_per_packet",
        Kind::Gauge,
        "Queries in a packet, the mean since the start; absent before the first.",
        |f, out| {
            for node in &f.nodes {
                let packets = of(&node.figures.packets);
                if packets > 0 {
                    let each = of(&node.figures.queries) as f64 / packets as f64;
                    out.labelled_seconds(&[("node", &node.name)], each);
                }
            }
        },
    ),
    family(
        "kumiki_proxy_node_sent_bytes_total",
        Kind::Counter,
        "Bytes sent to a node.",
        |f, out| f.of_nodes(out, |node| of(&node.figures.bytes_out)),
    ),
    family(
        "kumiki_proxy_node_received_bytes_total",
        Kind::Counter,
        "Bytes received from a node.",
        |f, out| f.of_nodes(out, |node| of(&node.figures.bytes_in)),
    ),
    family(
        "kumiki_proxy_node_reads_total",
        Kind::Counter,
        "Reads in which they were received.",
        |f, out| f.of_nodes(out, |node| of(&node.figures.reads)),
    ),
    family(
        "kumiki_proxy_node_waiting",
        Kind::Gauge,
        "Queries that wait to be sent to a node.",
        |f, out| f.of_nodes(out, |node| node.now.waiting as u64),
    ),
    family(
        "kumiki_proxy_node_under_way",
        Kind::Gauge,
        "Queries that were sent to a node and have no reply yet.",
        |f, out| f.of_nodes(out, |node| node.now.under_way as u64),
    ),
    family(
        "kumiki_proxy_node_queue_limit",
        Kind::Gauge,
        "Queries that may wait for a node or be under way to it.",
        |f, out| out.add(f.told.about.queue as u64),
    ),
    family(
        "kumiki_proxy_node_connections",
        Kind::Gauge,
        "Connections to a node that are up, over all threads.",
        |f, out| f.of_nodes(out, |node| node.now.connections as u64),
    ),
    family(
        "kumiki_proxy_node_connects_total",
        Kind::Counter,
        "Connections made to a node, the first ones included.",
        |f, out| f.of_nodes(out, |node| of(&node.figures.connects)),
    ),
    family(
        "kumiki_proxy_node_failures_total",
        Kind::Counter,
        "Connections to a node that could not be made, or have broken.",
        |f, out| f.of_nodes(out, |node| of(&node.figures.failures)),
    ),
];

fn families() -> impl Iterator<Item = &'static Family<Fill>> {
    FAMILIES
        .iter()
        .chain(locks::FAMILIES)
        .chain(read_atomic::FAMILIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_once_and_says_its_kind() {
        exposition::check(families());
    }
}
