//! A query that is measured: over which table, where its operators run, and how pages travel.

use serde::{Deserialize, Serialize};

use super::tpch_query::{QueryVariant, TpchQuery};
use crate::run_context::StorageMedium;

/// Where operators run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperatorPlacement {
    /// Here, over pages of this machine's own.
    Local,
    /// Here, over the storage node's pages.
    RemoteLocal,
    /// On the storage node.
    RemoteRemote,
    /// Where the planner chooses, among all placements.
    Auto,
    /// Where the planner chooses, if this machine has no pages of its own.
    AutoAway,
}

impl OperatorPlacement {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            OperatorPlacement::Local => "local",
            OperatorPlacement::RemoteLocal => "remote-local",
            OperatorPlacement::RemoteRemote => "remote-remote",
            OperatorPlacement::Auto => "auto",
            OperatorPlacement::AutoAway => "auto-away",
        }
    }
}

/// How pages and results travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultTransport {
    /// They do not.
    None,
    /// Memory that processes share.
    Shm,
    /// TCP on loopback.
    Tcp,
}

impl ResultTransport {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ResultTransport::None => "none",
            ResultTransport::Shm => "shm",
            ResultTransport::Tcp => "tcp",
        }
    }
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueryTable {
    /// The place of the table.
    pub place: StorageMedium,
    /// The variant of queries on it, which determines its layout.
    pub variant: QueryVariant,
    /// KiB of a page.
    pub page_kib: usize,
}

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueryJob {
    /// The query.
    pub query: TpchQuery,
    /// Its table.
    pub data: QueryTable,
    /// Where operators run.
    #[serde(rename = "way")]
    pub placement: OperatorPlacement,
    /// How pages and results travel.
    #[serde(rename = "road")]
    pub transport: ResultTransport,
    /// Threads that work: here, or with [`OperatorPlacement::RemoteRemote`] on the node.
    pub threads: usize,
    /// Connections to the node, at least one for each thread. With [`OperatorPlacement::RemoteRemote`] each has a
    /// part of the query.
    pub connections: usize,
    /// Threads that read pages, wherever that is done; none: pages are read in the way that suits the
    /// device.
    pub io_threads: Option<usize>,
    /// `true` if the node runs on the first processor, and the threads of this process on the last
    /// one.
    pub pinned: bool,
}
