//! One reader's pages over several connections, each in turn.

use std::sync::Arc;

use pages::remote::RemoteNode;
use pages::{PageAddress, PageStream, Source, Table};

/// A storage node whose pages come over so many connections to each reader.
pub(super) struct StripedSource {
    pub(super) node: RemoteNode,
    pub(super) connections: usize,
}

impl Source for StripedSource {
    fn read(&self, table: &Arc<Table>, pages: Vec<PageAddress>) -> PageStream {
        let connections = self.connections.clamp(1, pages.len().max(1));
        if connections == 1 {
            return self.node.read(table, pages);
        }
        let mut streams: Vec<PageStream> = (0..connections)
            .map(|first| {
                let some = pages.iter().skip(first).step_by(connections);
                self.node.read(table, some.copied().collect())
            })
            .collect();
        let mut turns = 0..pages.len();
        Box::new(std::iter::from_fn(move || {
            let page = streams[turns.next()? % connections].next()?;
            if page.is_err() {
                turns = 0..0;
            }
            Some(page)
        }))
    }
}
