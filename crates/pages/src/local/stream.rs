//! A stream of pages from this machine's disks.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use disk::reads::FileId;

use super::reader::{Begun, Reader, Readers, Turn};
use crate::page::{Page, PageError};
use crate::read_ahead::ReadAhead;
use crate::table::{PageAddress, SegmentId, Table};
use crate::tables::{Location, SegmentFiles};

/// See the [module](self).
pub(super) struct Stream {
    readers: Arc<Readers>,
    table: Arc<Table>,
    ahead: ReadAhead,
    /// The reader, after a page was needed that the cache does not have.
    reader: Option<Reader>,
    segments: HashMap<SegmentId, Open>,
    /// A page that could not be begun when it was requested.
    due: Option<(usize, PageAddress)>,
}

/// A segment that is open for reading.
struct Open {
    /// The files, which are not removed as long as this exists.
    files: Arc<SegmentFiles>,
    ids: Vec<FileId>,
    pages: u32,
}

impl Stream {
    pub(super) fn new(
        readers: &Arc<Readers>,
        table: &Arc<Table>,
        pages: Vec<PageAddress>,
    ) -> Stream {
        let limit = readers.ahead(table.page_size.bytes());
        let cache = readers.options().cache.clone();
        Stream {
            readers: Arc::clone(readers),
            table: Arc::clone(table),
            ahead: ReadAhead::new(table, pages, limit, cache),
            reader: None,
            segments: HashMap::new(),
            due: None,
        }
    }

    /// Begins to read pages, as far as there is room.
    fn request_pages(&mut self) {
        while let Some((place, address)) = self.due.take().or_else(|| self.ahead.next_request()) {
            match self.begin(place, address) {
                Ok(Begun::Yes) => {}
                Ok(Begun::Full) => {
                    self.due = Some((place, address));
                    return;
                }
                Err(error) => self.ahead.deliver(place, Err(error)),
            }
        }
    }

    fn begin(&mut self, place: usize, address: PageAddress) -> Result<Begun, PageError> {
        let unit = self.table.page_size.bytes();
        if self.reader.is_none() {
            let taken = self.readers.take(unit);
            self.reader = Some(taken.map_err(|error| unreadable(address, error))?);
        }
        if !self.segments.contains_key(&address.segment) {
            let open = self.open(address)?;
            self.segments.insert(address.segment, open);
        }
        let open = &self.segments[&address.segment];
        if address.page.0 >= open.pages {
            let what = format!("its segment has {} pages", open.pages);
            return Err(unreadable(address, what));
        }
        let Location { stripe, offset } = open.files.location(address.page);
        let reader = self.reader.as_mut().expect("it was taken");
        let begun = reader.begin(place, (open.ids[stripe], offset), unit);
        begun.map_err(|error| {
            let what = format!("there is no memory for it: {error}");
            unreadable(address, what)
        })
    }

    fn open(&mut self, address: PageAddress) -> Result<Open, PageError> {
        let id = address.segment;
        let segment = self.table.segments.iter().find(|segment| segment.id == id);
        let absent = "its segment is not in the table's version";
        let segment = segment.ok_or_else(|| unreadable(address, absent))?;
        let gone = "its table was replaced or removed: ask again for the newest version";
        let files = self.readers.tables.segment(id);
        let files = files.ok_or_else(|| unreadable(address, gone))?;
        let opened = files.read_files(self.readers.options().page_cache);
        let opened = opened.map_err(|error| unreadable(address, error))?;
        let reader = self.reader.as_mut().expect("it was taken");
        Ok(Open {
            ids: opened.iter().map(|file| reader.add(file)).collect(),
            pages: segment.pages,
            files,
        })
    }

    /// Begins reads of requested pages, and takes those that are complete.
    fn turn(&mut self, turn: Turn) {
        let Some(reader) = &mut self.reader else {
            return;
        };
        let (ahead, cache) = (&mut self.ahead, &self.readers.options().cache);
        // A cache has memory of its own.
        let stay = cache.is_none();
        reader.turn(turn, self.table.page_size.bytes(), stay, |place, bytes| {
            let address = ahead.at(place);
            let bytes = bytes.map_err(|error| unreadable(address, error));
            ahead.deliver(place, bytes);
        });
    }

    fn give_back(&mut self) {
        if let Some(reader) = self.reader.take() {
            let files = self.segments.drain().flat_map(|(_, open)| open.ids);
            self.readers.give_back(reader, files);
        }
    }
}

fn unreadable(address: PageAddress, why: impl Display) -> PageError {
    let what = why.to_string();
    PageError::Unreadable { address, what }
}

impl Iterator for Stream {
    type Item = Result<Arc<Page>, PageError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ahead.is_over() {
            self.request_pages();
            if self.ahead.is_due() {
                self.turn(Turn::Look);
            }
            if let Some(page) = self.ahead.take() {
                return Some(page);
            }
            self.turn(Turn::Wait);
        }
        self.give_back();
        None
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.give_back();
    }
}
