//! All figures of a proxy at one moment, and how a family gets its samples of them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use admin::exposition::{Family, Kind, Samples};

use crate::figures::FrontendFigures;
use crate::info::ProxyInfo;
use crate::locks::lock_service::LockService;
use crate::node_figures::{NodeConnectionState, NodeFigures};
use crate::nodes::NodeRoles;
use crate::runtime::query::NodeIndex;
use crate::runtime::thread_waker::ThreadWaker;
use crate::stopper::Stopping;

/// The first class of a histogram ends here.
pub(super) const FIRST_CLASS: Duration = Duration::from_micros(1);

/// The proxy that the endpoint describes.
pub(crate) struct ProxySubject {
    pub(crate) about: Arc<ProxyInfo>,
    pub(crate) duties: Arc<dyn NodeRoles>,
    /// The wakers of all threads, those with clients first.
    pub(crate) wakers: Vec<Arc<ThreadWaker>>,
    pub(crate) stopping: Arc<Stopping>,
}

/// The state of a node at one moment.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) slots: usize,
    pub(super) now: NodeConnectionState,
    pub(super) figures: Arc<NodeFigures>,
}

/// All figures at one moment. Each is exact by itself; they are read one after another.
pub(super) struct Figures<'a> {
    pub(super) told: &'a ProxySubject,
    pub(super) nodes: Vec<Node>,
    pub(super) locks: Option<crate::locks::LockFigures>,
}

impl Figures<'_> {
    pub(super) fn now(told: &ProxySubject) -> Figures<'_> {
        let nodes = told.about.nodes.all().into_iter().enumerate();
        let nodes = nodes.map(|(index, (address, figures))| Node {
            name: address.to_string(),
            slots: told.duties.slots(NodeIndex(index as u32)),
            now: figures.now(),
            figures,
        });
        Figures {
            told,
            nodes: nodes.collect(),
            locks: told.about.locks.as_deref().map(LockService::figures),
        }
    }

    pub(super) fn of_nodes(&self, out: &mut Samples<'_>, value: impl Fn(&Node) -> u64) {
        for node in &self.nodes {
            out.labelled(&[("node", &node.name)], value(node));
        }
    }

    pub(super) fn of_threads(
        &self,
        out: &mut Samples<'_>,
        value: impl Fn(&FrontendFigures) -> u64,
    ) {
        for (index, front) in self.told.about.fronts.iter().enumerate() {
            out.labelled(&[("thread", &index.to_string())], value(front));
        }
    }
}

pub(super) fn of(figure: &AtomicU64) -> u64 {
    figure.load(Relaxed)
}

/// Adds the samples of a family.
pub(super) type Fill = fn(&Figures<'_>, &mut Samples<'_>);

pub(super) const fn family(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    fill: Fill,
) -> Family<Fill> {
    Family {
        name,
        kind,
        help,
        fill,
    }
}
