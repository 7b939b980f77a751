//! Where pages come from: a directory of this machine, a storage node, a cache before either.

use std::sync::Arc;

use crate::page::{Page, PageError};
use crate::table::{Address, Table};

/// Pages as they come, verified.
pub type PageStream = Box<dyn Iterator<Item = Result<Arc<Page>, PageError>> + Send>;

/// Where pages come from.
pub trait Source: Send + Sync {
    /// Reads pages of a table, ahead of who takes them, and yields them in the order in which they
    /// were asked for. After an error the stream ends.
    fn read(&self, table: &Arc<Table>, pages: Vec<Address>) -> PageStream;
}
