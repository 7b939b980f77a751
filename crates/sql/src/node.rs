//! Tables of a storage node.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use operators::placement::{Link, Side};
use operators::{Here, Placement, Site, There};
use pages::Table;
use pages::remote::{Condition, Far, FarOptions};
use parking_lot::Mutex;

use crate::catalogue::{Place, Store};
use crate::meter::{Metered, PageMeter, PageTime};
use crate::place::OPERATION_S;

/// Seconds that a page is supposed to take on its way before one has come.
const SUPPOSED_S: f64 = 60e-6;
/// The same for a node that reads one from its own devices.
const SUPPOSED_THERE_S: f64 = 30e-6;
/// Reads that a node has under way, about, while it is asked for many.
const UNDER_WAY: f64 = 32.0;
/// How long what a node has said of itself is believed.
const BELIEVED: Duration = Duration::from_millis(500);

/// A storage node. It is connected to when it is asked for something first; several sessions share its
/// connections, and its cache.
pub struct StorageNode {
    name: String,
    far: Far,
    time: Arc<PageTime>,
    /// What it has said of itself last, how long that took, and when it was.
    condition: Mutex<Option<(Condition, Duration, Instant)>>,
}

impl StorageNode {
    /// A node, which is called by its address.
    #[must_use]
    pub fn new(options: FarOptions) -> StorageNode {
        StorageNode {
            name: options.session.address.to_string(),
            far: Far::new(options),
            time: Arc::new(PageTime::supposed(SUPPOSED_S)),
            condition: Mutex::new(None),
        }
    }

    /// How busy it is, and how long it takes to answer; what it has said last where it does not answer.
    fn condition(&self) -> (Condition, Duration) {
        let mut last = self.condition.lock();
        if let Some((condition, took, asked)) = *last
            && asked.elapsed() < BELIEVED
        {
            return (condition, took);
        }
        let begun = Instant::now();
        match self.far.condition() {
            Ok(condition) => {
                let took = begun.elapsed();
                *last = Some((condition, took, Instant::now()));
                (condition, took)
            }
            Err(error) => {
                tracing::debug!("{} does not say how busy it is: {error}", self.name);
                last.map_or((Condition::default(), begun.elapsed()), |(c, took, _)| {
                    (c, took)
                })
            }
        }
    }
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
        let page_s = match condition.read.is_zero() {
            true => SUPPOSED_THERE_S,
            false => condition.read.as_secs_f64() / UNDER_WAY,
        };
        let link_s = self.time.seconds();
        Place::There(
            Side {
                page_s,
                operation_s: OPERATION_S,
                load: condition.tasks as f64 / threads,
                threads,
            },
            Link {
                round_trip_s: round_trip.as_secs_f64(),
                page_s: link_s,
                byte_s: link_s / table.page_size.bytes() as f64,
            },
        )
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn tables(&self) -> Result<Vec<String>, String> {
        let listed = self.far.tables().map_err(|error| error.to_string())?;
        Ok(listed.into_iter().map(|listed| listed.name).collect())
    }

    fn open(&self, name: &str) -> Result<Option<Arc<Table>>, String> {
        let listed = self.far.tables().map_err(|error| error.to_string())?;
        if !listed.iter().any(|listed| listed.name == name) {
            return Ok(None);
        }
        let table = self.far.open(name);
        table.map(Some).map_err(|error| error.to_string())
    }

    fn site(
        &self,
        _: &Arc<Table>,
        placement: Placement,
        meter: &Arc<PageMeter>,
    ) -> Option<Arc<dyn Site>> {
        match placement {
            Placement::RemoteLocal => {
                let source = Metered::new(Arc::new(self.far.clone()), meter).timed(&self.time);
                Some(Arc::new(Here::new(Arc::new(source))))
            }
            Placement::RemoteRemote => Some(Arc::new(There::new(self.far.clone()))),
            Placement::Auto | Placement::Local => None,
        }
    }
}
