//! Communication with other nodes.

use std::time::Duration;

use base::Epoch;
use reactor::{Network, SocketEvent};

use super::Runtime;
use super::setup::FIRST_TOKEN;

/// How long links may take to be closed.
const CLOSING: Duration = Duration::from_secs(1);

impl<N: Network> Runtime<N> {
    pub(super) fn note_fabric_event(&mut self, event: SocketEvent) {
        if let Some(links) = &mut self.links {
            links.note_event(event);
        }
    }

    /// Takes the messages of other nodes. Returns `true` if there were any.
    pub(super) fn hear_nodes(&mut self) -> bool {
        let (Some(cluster), Some(links)) = (&mut self.executor.cluster, &mut self.links) else {
            return false;
        };
        let (worker, now) = (&mut self.executor.worker, self.executor.context.now);
        worker.refresh();
        let received = cluster.receive(links, &mut self.network, worker, now);
        self.more_from_nodes = received.more;
        for message in cluster.publications() {
            self.dispatch(&message);
        }
        received.any
    }

    /// Closes the links to other nodes and clients, and sends what waited on them, for a limited
    /// time: a peer that is stopped or cut off does not take it.
    pub(super) fn close_links(&mut self) {
        let Some(links) = &mut self.links else {
            return;
        };
        let clock = self.executor.context.shared.started;
        let until = clock.elapsed() + CLOSING;
        let mut events = Vec::new();
        links.close_all();
        loop {
            let now = clock.elapsed();
            let Some(pause) = links.continue_closing(&mut self.network, now) else {
                return;
            };
            let left = until.saturating_sub(now);
            let waited = self.network.wait(&mut events, Some(pause.min(left)));
            if left.is_zero() || waited.is_err() {
                tracing::debug!("stopped without waiting longer for nodes to take messages");
                return;
            }
            for event in events.drain(..) {
                if event.token >= FIRST_TOKEN {
                    links.note_event(event);
                }
            }
        }
    }

    /// Lets the node make progress, tells connections the outcomes of their transactions, and sends
    /// the messages for other nodes: in this order, because clients wait for the outcomes, and no
    /// client for what follows from them.
    pub(super) fn turn_node(&mut self) {
        let Some(cluster) = &mut self.executor.cluster else {
            return;
        };
        let mut finished = std::mem::take(&mut self.finished);
        let (worker, now) = (&mut self.executor.worker, self.executor.context.now);
        // Transactions that waited for holds belong to no client here.
        worker.serve(0);
        if std::mem::take(&mut self.executor.context.wants_leaders) {
            cluster.look_for_leaders(worker, now);
        }
        cluster.progress(worker, now, &mut finished);
        let told = !finished.is_empty();
        while !finished.is_empty() {
            for finished in finished.drain(..) {
                let key = finished.caller.key;
                let Some(connection) = self.connections.get_mut(key) else {
                    continue;
                };
                self.executor.answer_finished(connection, finished);
                self.lists.touched(key, connection);
            }
            // A transaction that continues may be refused here at once.
            if let Some(cluster) = &mut self.executor.cluster {
                cluster.progress(&mut self.executor.worker, now, &mut finished);
            }
        }
        self.finished = finished;
        if told {
            self.settle_touched();
        }
        if let (Some(cluster), Some(links)) = (&mut self.executor.cluster, &mut self.links) {
            cluster.send(links, &mut self.network);
        }
    }

    /// Returns the epoch that an answer to another node waits for. Once the log has failed, none
    /// will come.
    pub(super) fn node_wants(&self) -> Option<Epoch> {
        let cluster = self.executor.cluster.as_ref()?;
        let failed = self.executor.context.failed.is_some();
        cluster.wants().epoch.filter(|_| !failed)
    }
}
