//! Tables of a storage node.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use operators::placement::{Link, Side};
use operators::{Here, Placement, Site, There, WorkCosts};
use pages::remote::{Condition, Far, FarOptions};
use pages::{Address, Table};
use parking_lot::Mutex;

use crate::catalogue::{Measured, Place, Store};
use crate::meter::PageMeter;
use crate::place::OPERATION_S;

/// Seconds that a page is supposed to take on its way before enough have come.
const SUPPOSED_S: f64 = 60e-6;
/// The same for a node that reads one from its own devices, before it says more of it.
const SUPPOSED_THERE_S: f64 = 30e-6;
/// Reads that a node is supposed to have under way while it is asked for many, as long as it can tell no more
/// than how long one of them takes.
const UNDER_WAY: f64 = 32.0;
/// How long what a node has said of itself is believed.
const BELIEVED: Duration = Duration::from_millis(500);

/// A storage node. It is connected to when it is asked for something first; several sessions share its
/// connections, and its cache.
pub struct StorageNode {
    name: String,
    far: Far,
    /// What work here on its pages takes.
    costs: Arc<WorkCosts>,
    /// What it has said of itself last, how long that took, and when it was.
    condition: Mutex<Option<(Condition, Duration, Instant)>>,
    /// Held by whoever asks: one of them is enough.
    asking: Mutex<()>,
}

impl StorageNode {
    /// Returns a node, which is called by its address.
    #[must_use]
    pub fn new(options: FarOptions) -> StorageNode {
        StorageNode {
            name: options.session.address.to_string(),
            far: Far::new(options),
            costs: Arc::default(),
            condition: Mutex::new(None),
            asking: Mutex::new(()),
        }
    }

    /// Asks how busy it is, if it has not said so lately. It may take as long as a node may take to answer.
    fn ask(&self) {
        let _asking = self.asking.lock();
        let last = *self.condition.lock();
        if last.is_some_and(|(.., asked)| asked.elapsed() < BELIEVED) {
            return;
        }
        let begun = Instant::now();
        match self.far.condition() {
            Ok(condition) => {
                let now = Instant::now();
                *self.condition.lock() = Some((condition, now - begun, now));
            }
            Err(error) => tracing::debug!("{} does not say how busy it is: {error}", self.name),
        }
    }

    /// How busy it was when it said so last, and how long it took to answer.
    fn condition(&self) -> (Condition, Duration) {
        let last = self.condition.lock();
        last.map_or_else(Default::default, |(condition, took, _)| (condition, took))
    }
}

/// Returns what a node tells, in seconds; `None` if it has not measured it.
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

    fn place(&self, table: &Table) -> Place {
        let (condition, round_trip) = self.condition();
        let threads = condition.task_threads.max(1) as f64;
        let page_s = seconds(condition.work.wait_ps).or_else(|| {
            let read = condition.read.as_secs_f64();
            (read > 0.0).then_some(read / UNDER_WAY)
        });
        let link_s = self.far.page_s(table.page_size).unwrap_or(SUPPOSED_S);
        let byte_s = self.far.byte_s();
        Place::There(
            Side {
                page_s: page_s.unwrap_or(SUPPOSED_THERE_S),
                operation_s: seconds(condition.work.operation_ps).unwrap_or(OPERATION_S),
                load: condition.tasks as f64 / threads,
                threads,
            },
            Link {
                round_trip_s: round_trip.as_secs_f64(),
                page_s: link_s,
                byte_s: byte_s.unwrap_or(link_s / table.page_size.bytes() as f64),
            },
        )
    }

    fn measured(&self) -> Measured {
        let work = self.condition().0.work;
        Measured {
            pages: work.wait_ps > 0,
            link: self.far.byte_s().is_some(),
            operation_s: self.costs.operation_s(),
            page_s: self.costs.page_s(),
            operation_there_s: seconds(work.operation_ps),
            page_there_s: seconds(work.page_ps),
        }
    }

    fn cached(&self, pages: &[Address]) -> f64 {
        let Some(cache) = &self.far.options().cache else {
            return 0.0;
        };
        let there = pages.iter().filter(|page| cache.has(**page)).count();
        there as f64 / pages.len().max(1) as f64
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn tables(&self) -> Result<Vec<String>, String> {
        let listed = self.far.tables().map_err(|error| error.to_string())?;
        // One that is damaged has no columns that could be told of; who asks for it hears why.
        let sound = listed.into_iter().filter(|listed| listed.found.is_ok());
        Ok(sound.map(|listed| listed.name).collect())
    }

    fn open(&self, name: &str) -> Result<Option<Arc<Table>>, String> {
        let listed = self.far.tables().map_err(|error| error.to_string())?;
        if !listed.iter().any(|listed| listed.name == name) {
            return Ok(None);
        }
        let table = self.far.open(name).map_err(|error| error.to_string())?;
        // A plan is going to be made. Whoever makes it does not wait for nodes.
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
                // It counts by itself, as it knows what the cache had.
                let source = self.far.tallied(meter.tally());
                Some(Arc::new(Here::new(Arc::new(source)).measured(&self.costs)))
            }
            Placement::RemoteRemote => Some(Arc::new(There::new(self.far.clone()))),
            Placement::Auto | Placement::Local => None,
        }
    }
}
