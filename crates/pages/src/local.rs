//! Pages of this machine's own disks, read as they are taken, some ahead at a time. Those that were
//! read at once share memory, which stays as long as one of them does.

use std::sync::Arc;

use bytes::Bytes;

use crate::page::{Page, PageError};
use crate::source::{PageStream, Source};
use crate::table::{Address, Table};
use crate::tables::{Location, SegmentFiles, Tables};

/// Pages that follow one another in a file are read at once, so many bytes at most.
const AHEAD: usize = 1 << 20;

/// Reads pages of tables on this machine, on the thread of whoever takes them.
#[derive(Clone)]
pub struct Local {
    tables: Tables,
}

impl Local {
    /// Of these tables.
    #[must_use]
    pub fn new(tables: Tables) -> Local {
        Local { tables }
    }
}

impl Source for Local {
    fn read(&self, table: &Arc<Table>, pages: Vec<Address>) -> PageStream {
        Box::new(Stream {
            tables: self.tables.clone(),
            table: table.clone(),
            pages,
            next: 0,
            files: None,
            read: None,
        })
    }
}

struct Stream {
    tables: Tables,
    table: Arc<Table>,
    pages: Vec<Address>,
    next: usize,
    /// Of the segment whose page was read last.
    files: Option<Arc<SegmentFiles>>,
    /// What was read ahead: of which pages, and their bytes.
    read: Option<(usize, Bytes)>,
}

impl Stream {
    fn page(&mut self) -> Result<Arc<Page>, PageError> {
        let address = self.pages[self.next];
        let size = self.table.page_size.bytes();
        let known = self.read.as_ref().filter(|(from, bytes)| {
            let at = self.next - from;
            (at + 1) * size <= bytes.len()
        });
        let (from, bytes) = match known {
            Some((from, bytes)) => (*from, bytes.clone()),
            None => {
                let bytes = self
                    .read_ahead()
                    .map_err(|what| PageError::Unreadable { address, what })?;
                self.read = Some((self.next, bytes.clone()));
                (self.next, bytes)
            }
        };
        let at = (self.next - from) * size;
        let page = bytes.slice(at..at + size);
        Page::of(&self.table, page, address).map(Arc::new)
    }

    /// Reads the next page, and those that follow it both here and in the file.
    fn read_ahead(&mut self) -> Result<Bytes, String> {
        let first = self.pages[self.next];
        if self
            .files
            .as_ref()
            .is_none_or(|files| files.id() != first.segment)
        {
            let files = self.tables.segment(first.segment);
            let gone = "its table was replaced or removed: ask again for the newest version";
            self.files = Some(files.ok_or(gone)?);
        }
        let files = self.files.as_ref().expect("they were just found");
        let size = self.table.page_size.bytes();
        let Location { stripe, offset } = files.location(first.page);
        let follows = |(i, address): &(usize, &Address)| {
            let expected = Location {
                stripe,
                offset: offset + (i * size) as u64,
            };
            address.segment == first.segment && files.location(address.page) == expected
        };
        let run = self.pages[self.next..].iter().enumerate();
        let count = run.take(AHEAD / size).take_while(follows).count();
        let mut bytes = vec![0; count * size];
        let read = files.read(first.page, &mut bytes);
        read.map_err(|error| format!("{}: {error}", files.paths()[stripe].display()))?;
        Ok(bytes.into())
    }
}

impl Iterator for Stream {
    type Item = Result<Arc<Page>, PageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.pages.len() {
            return None;
        }
        let page = self.page();
        self.next = if page.is_ok() {
            self.next + 1
        } else {
            self.pages.len()
        };
        Some(page)
    }
}
