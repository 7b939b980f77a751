//! Where the tables of queries are, and how queries run.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use base::size::Size;
use clap::Args;
use disk::RealDisk;
use pages::remote::RemoteNodeOptions;
use pages::{Cache, Tables};
use sql::{Catalogue, Directory, Placement, Rights, Settings, Shared, StorageNode, Store};

use crate::memory;
use crate::table_location::{NodeAccess, address_of, resolve};

/// Where tables are, and how queries run.
#[derive(Args, Debug)]
pub(crate) struct QueryOptions {
    /// A directory with tables; a storage node that serves it is asked, too. May be given several
    /// times, also for all directories over which tables are spread. Default, if no node is given
    /// either: ./kumiki-pages.
    #[arg(long, value_name = "DIR")]
    dir: Vec<PathBuf>,
    /// A storage node (`kumiki pages serve`). May be given several times; tables that several nodes
    /// have alike are replicas.
    #[arg(long, value_name = "HOST:PORT")]
    node: Vec<String>,
    #[command(flatten)]
    access: NodeAccess,
    /// Bytes of nodes' pages that are kept in memory; 0 keeps none.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = Size::from_str)]
    cache: Size,
    /// Where parts of queries run: auto, local, remote-local (pages come over) or remote-remote
    /// (operators go over).
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = Placement::from_str)]
    placement: Placement,
    /// Partitions of scans, joins and aggregates; default: as many as there are processors.
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Bytes that sorts, joins and aggregates may take, all together; beyond, they use temporary
    /// files or fail. Default: three quarters of the machine's memory.
    #[arg(long, value_name = "SIZE", value_parser = Size::from_str)]
    memory: Option<Size>,
    /// Have scans yield whole columns, and nothing run beside the data.
    #[arg(long)]
    no_push_down: bool,
}

impl QueryOptions {
    /// Returns the state that all sessions share.
    ///
    /// # Errors
    /// The text says which tables cannot be opened, and why.
    pub(super) fn shared(
        &self,
        rights: Rights,
        at_once: Option<NonZeroUsize>,
    ) -> Result<Shared, String> {
        let catalogue = Catalogue::new(self.stores()?);
        let bound = match self.memory {
            Some(size) => size.0,
            None => memory::default_bound(),
        };
        let defaults = Settings::default();
        let settings = Settings {
            partitions: self.threads.unwrap_or(defaults.partitions),
            at_once: at_once.unwrap_or(defaults.at_once),
            placement: self.placement,
            push_down: !self.no_push_down,
            memory: (bound > 0).then_some(bound),
            rights,
        };
        Shared::new(catalogue, settings).map_err(|error| error.to_string())
    }

    /// Opens the stores: the named nodes and directories, and the nodes that serve the directories.
    fn stores(&self) -> Result<Vec<Arc<dyn Store>>, String> {
        let (mut dirs, mut nodes) = (self.dir.clone(), Vec::new());
        for node in &self.node {
            nodes.push(resolve(node)?);
        }
        if dirs.is_empty() && nodes.is_empty() {
            dirs.push(PathBuf::from("./kumiki-pages"));
        }
        for found in dirs.iter().filter_map(|dir| address_of(dir)) {
            if !nodes.contains(&found) {
                nodes.push(found);
            }
        }
        let cache = (self.cache.0 > 0).then(|| Arc::new(Cache::new(self.cache.0)));
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        let sets = Tables::sets(&RealDisk, &dirs).map_err(|error| error.to_string())?;
        for dirs in sets {
            stores.push(Arc::new(
                Directory::open_all(&dirs).map_err(|error| error.to_string())?,
            ));
        }
        for node in nodes {
            let mut options = RemoteNodeOptions::new(self.access.session(node)?);
            options.cache.clone_from(&cache);
            stores.push(Arc::new(StorageNode::new(options)));
        }
        Ok(stores)
    }
}
