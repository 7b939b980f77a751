//! Tables of a storage node.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use operators::placement::{LinkCosts, SideCosts};
use operators::{LocalSite, Placement, RemoteSite, Site, WorkCosts};
use pages::remote::{NodeStatus, RemoteNode, RemoteNodeOptions};
use pages::{PageAddress, Table};
use parking_lot::Mutex;

use crate::catalogue::{MeasuredCosts, OPERATION_S, Store, StoreLocation};
use crate::error::Error;
use crate::meter::PageMeter;

/// The assumed seconds of a page on its way before enough pages have come.
const SUPPOSED_S: f64 = 60e-6;
/// The same for a node that reads a page from its own devices, before it reports its times.
const SUPPOSED_THERE_S: f64 = 30e-6;
/// The assumed number of reads that a node has under way while it is asked for many, as long as it only
/// reports the time of one read.
const UNDER_WAY: f64 = 32.0;
/// How long a node's report of its status is used.
const BELIEVED: Duration = Duration::from_millis(500);

/// A storage node. The connection is made at the first request; several sessions share its connections, and
/// its cache.
pub struct StorageNode {
    name: String,
    remote: RemoteNode,
    /// The costs of work here on its pages.
    costs: Arc<WorkCosts>,
    /// The last report of its status, how long it took, and when it came.
    status: Mutex<Option<(NodeStatus, Duration, Instant)>>,
    /// Held by the thread that asks: one request is enough.
    asking: Mutex<()>,
}

impl StorageNode {
    /// Makes a store of a node, whose name is its address.
    #[must_use]
    pub fn new(options: RemoteNodeOptions) -> StorageNode {
        StorageNode {
            name: options.session.address.to_string(),
            remote: RemoteNode::new(options),
            costs: Arc::default(),
            status: Mutex::new(None),
            asking: Mutex::new(()),
        }
    }

    /// Asks how busy the node is, if the last report is too old. This may take as long as a node may take to
    /// answer.
    fn ask(&self) {
        let _asking = self.asking.lock();
        let last = *self.status.lock();
        if last.is_some_and(|(.., asked)| asked.elapsed() < BELIEVED) {
            return;
        }
        let begun = Instant::now();
        match self.remote.status() {
            Ok(status) => {
                let now = Instant::now();
                *self.status.lock() = Some((status, now - begun, now));
            }
            Err(error) => tracing::debug!("{} does not say how busy it is: {error}", self.name),
        }
    }

    /// Returns the node's last status, and how long it took to answer.
    fn status(&self) -> (NodeStatus, Duration) {
        let last = self.status.lock();
        last.map_or_else(Default::default, |(status, took, _)| (status, took))
    }
}

/// Returns a time that a node has reported, in seconds; `None` if it was not measured.
fn seconds(picoseconds: u64) -> Option<f64> {
    (picoseconds > 0).then_some(picoseconds as f64 * 1e-12)
}

impl fmt::Debug for StorageNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Store for StorageNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn location(&self, table: &Table) -> StoreLocation {
        let (status, round_trip) = self.status();
        let threads = status.task_threads.max(1) as f64;
        let page_s = seconds(status.work.wait_ps).or_else(|| {
            let read = status.read.as_secs_f64();
            (read > 0.0).then_some(read / UNDER_WAY)
        });
        let link_s = self.remote.page_s(table.page_size).unwrap_or(SUPPOSED_S);
        let byte_s = self.remote.byte_s();
        StoreLocation::Remote(
            SideCosts {
                page_s: page_s.unwrap_or(SUPPOSED_THERE_S),
                operation_s: seconds(status.work.operation_ps).unwrap_or(OPERATION_S),
                load: status.tasks as f64 / threads,
                threads,
            },
            LinkCosts {
                round_trip_s: round_trip.as_secs_f64(),
                page_s: link_s,
                byte_s: byte_s.unwrap_or(link_s / table.page_size.bytes() as f64),
            },
        )
    }

    fn measured(&self) -> MeasuredCosts {
        let work = self.status().0.work;
        MeasuredCosts {
            pages: work.wait_ps > 0,
            link: self.remote.byte_s().is_some(),
            operation_s: self.costs.operation_s(),
            page_s: self.costs.page_s(),
            operation_there_s: seconds(work.operation_ps),
            page_there_s: seconds(work.page_ps),
        }
    }

    fn cached(&self, pages: &[PageAddress]) -> f64 {
        let Some(cache) = &self.remote.options().cache else {
            return 0.0;
        };
        let there = pages.iter().filter(|page| cache.has(**page)).count();
        there as f64 / pages.len().max(1) as f64
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn tables(&self) -> Result<Vec<String>, Error> {
        let listed = self.remote.tables()?;
        // The columns of a damaged table are unknown, so it is not listed; a statement that names it gets the
        // reason.
        let sound = listed.into_iter().filter(|listed| listed.found.is_ok());
        Ok(sound.map(|listed| listed.name).collect())
    }

    fn open(&self, name: &str) -> Result<Option<Arc<Table>>, Error> {
        let listed = self.remote.tables()?;
        if !listed.iter().any(|listed| listed.name == name) {
            return Ok(None);
        }
        let table = self.remote.open(name)?;
        // A plan will be made, which does not wait for nodes itself.
        self.ask();
        Ok(Some(table))
    }

    fn site(
        &self,
        _: &Arc<Table>,
        placement: Placement,
        meter: &Arc<PageMeter>,
    ) -> Option<Arc<dyn Site>> {
        match placement {
            Placement::RemoteLocal => {
                // The node counts pages by itself, as it knows which were in the cache.
                let source = self.remote.tallied(meter.tally());
                Some(Arc::new(
                    LocalSite::new(Arc::new(source)).measured(&self.costs),
                ))
            }
            Placement::RemoteRemote => Some(Arc::new(RemoteSite::new(self.remote.clone()))),
            Placement::Auto | Placement::Local => None,
        }
    }
}
