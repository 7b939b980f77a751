//! Tables whose pages lie in memory: for small ones, and for tests.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use parking_lot::RwLock;

use crate::page::{Page, PageError};
use crate::segment::{RowsError, SegmentBuilder, Shape};
use crate::source::{PageStream, Source};
use crate::table::{PageAddress, PageNo, SegmentId, Table, TableId, Version};

/// Pages in memory.
#[derive(Default)]
pub struct Memory {
    segments: RwLock<HashMap<SegmentId, Vec<Bytes>>>,
}

impl Memory {
    /// Makes a memory without pages.
    #[must_use]
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Makes a table of rows. Each list of batches is a segment; there may be none.
    ///
    /// # Errors
    /// Returns an error where a row does not fit into a page.
    pub fn table<'a>(
        &self,
        name: &str,
        shape: &Shape,
        segments: impl IntoIterator<Item = &'a [RecordBatch]>,
    ) -> Result<Arc<Table>, RowsError> {
        let mut table = Table {
            id: TableId::new(),
            name: name.to_owned(),
            version: Version(1),
            schema: shape.schema.clone(),
            page_size: shape.page_size,
            layout: shape.layout(),
            groups: shape.groups.clone(),
            segments: Vec::new(),
        };
        for batches in segments {
            let mut builder = SegmentBuilder::new(shape.clone(), SegmentId::new());
            let mut pages = Vec::new();
            for batch in batches {
                builder.push(batch, &mut pages)?;
            }
            let segment = builder.finish(&mut pages)?;
            let pages = pages.into_iter().map(|(_, bytes)| Bytes::from(bytes));
            let pages = pages.collect();
            self.segments.write().insert(segment.id, pages);
            table.segments.push(Arc::new(segment));
        }
        Ok(Arc::new(table))
    }

    /// Returns the bytes of a page, if it exists.
    #[must_use]
    pub fn bytes(&self, address: PageAddress) -> Option<Bytes> {
        let PageNo(page) = address.page;
        let segments = self.segments.read();
        segments.get(&address.segment)?.get(page as usize).cloned()
    }
}

impl Source for Memory {
    fn read(&self, table: &Arc<Table>, pages: Vec<PageAddress>) -> PageStream {
        let table = table.clone();
        let pages = pages
            .into_iter()
            .map(|address| (address, self.bytes(address)));
        let pages: Vec<_> = pages.collect();
        let mut failed = false;
        Box::new(pages.into_iter().map_while(move |(address, bytes)| {
            if failed {
                return None;
            }
            let page = match bytes {
                Some(bytes) => Page::of(&table, bytes, address).map(Arc::new),
                None => Err(PageError::Unreadable {
                    address,
                    what: "there is no such page".to_owned(),
                }),
            };
            failed = page.is_err();
            Some(page)
        }))
    }
}
