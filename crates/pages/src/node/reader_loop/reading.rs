//! Begins reads, and passes on those that are complete.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use disk::reads::{CompletedRead, FileId, BufferPool, PooledBuffer, ReadRequest, ReadQueue, ReadMethod};
use fabric::window::RemoteWindow;

use super::ReaderLoop;
use crate::node::read_target::{self, Into, ReadTarget};
use crate::node::reader_connection::Handle;
use crate::node::shelf::Opened;
use crate::remote::wire::{INLINE, SLOT_UNIT, Wanted, begin_there};

/// Pages of one reader that are begun before the next reader has its turn.
const SHARE: usize = 32;
/// About how many bytes the buffers of one size take.
const BUFFERS: usize = 16 << 20;
/// The largest page that is read directly into a window. Larger pages are read into a buffer, which
/// is one piece for the device, and copied to the window: shared memory is in pieces of this size,
/// and for a device many pieces cost more than the copy.
const WHOLE: usize = 4 << 10;
/// One of so many reads is timed.
const TIMED: u64 = 64;

/// Returns the byte of a window from which on a page is to lie.
#[inline]
pub(super) fn slot_start(wanted: &Wanted) -> usize {
    wanted.slot as usize * SLOT_UNIT
}

/// Open files, shared by their users.
#[derive(Default)]
pub(super) struct Files(HashMap<usize, (ByExtent, usize)>);

/// The files of each extent.
pub(crate) type ByExtent = Arc<Vec<Vec<FileId>>>;

impl Files {
    /// Opens the files of a table, unless they are open.
    pub(super) fn open(
        &mut self,
        opened: &Arc<Opened>,
        reads: &mut dyn ReadQueue<ReadTarget>,
    ) -> ByExtent {
        let (files, users) = self.0.entry(key(opened)).or_insert_with(|| {
            let mut files = Vec::new();
            for extent in &opened.extents {
                let of_it = extent.files.iter();
                files.push(of_it.map(|file| reads.add(Arc::clone(file))).collect());
            }
            (Arc::new(files), 0)
        });
        *users += 1;
        Arc::clone(files)
    }

    /// Closes the files, unless another handle uses them.
    pub(super) fn close(&mut self, handle: &Handle, reads: &mut dyn ReadQueue<ReadTarget>) {
        let key = key(&handle.opened);
        let Some((files, users)) = self.0.get_mut(&key) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            for &file in files.iter().flatten() {
                reads.remove(file);
            }
            self.0.remove(&key);
        }
    }
}

/// Returns a key of an open version: its address, which is unique as long as it is in use.
fn key(opened: &Arc<Opened>) -> usize {
    Arc::as_ptr(opened).addr()
}

/// Memory for pages that are sent from here, by their size.
#[derive(Default)]
pub(super) struct Buffers(HashMap<usize, BufferPool>);

impl Buffers {
    fn take(
        &mut self,
        unit: usize,
        reads: &mut dyn ReadQueue<ReadTarget>,
    ) -> io::Result<Option<PooledBuffer>> {
        let pool = match self.0.entry(unit) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let slots = (BUFFERS / unit).clamp(16, 4096);
                let pool = entry.insert(BufferPool::new(slots as u32, unit)?);
                // If the registration fails, reads cost a little more.
                let _ = reads.register(pool.memory());
                pool
            }
        };
        Ok(pool.take())
    }
}

/// Counts that a thread has not added to the figures yet.
#[derive(Default)]
pub(super) struct Announcements {
    pages: u64,
    bytes: u64,
    unread: u64,
    waiting: u64,
    begun: u64,
    timed: Option<(usize, u64, u32, Instant)>,
}

/// The result of an attempt to begin a reader's next page.
enum Begun {
    Yes,
    /// There is no memory for it at present.
    NoBuffer,
}

impl ReaderLoop {
    /// Begins the reads that readers wait for, of each in turn, as far as there is room.
    pub(super) fn begin_reads(&mut self) -> io::Result<()> {
        let mut stuck = 0;
        while self.reads.room() > 0 && stuck < self.waiting.len() {
            let Some(reader) = self.waiting.pop_front() else {
                break;
            };
            if self.begin_share(reader)? {
                stuck += 1;
            } else {
                stuck = 0;
            }
            if !self.readers[reader].queue.is_empty() {
                self.waiting.push_back(reader);
            }
        }
        self.reads.start()
    }

    /// Begins some of a reader's pages. Returns `true` if it cannot go on.
    fn begin_share(&mut self, reader: usize) -> io::Result<bool> {
        for _ in 0..SHARE {
            if self.reads.room() == 0 {
                return Ok(false);
            }
            if !self.readers[reader].overflow.is_empty() {
                return Ok(true);
            }
            let Some((handle, wanted)) = self.readers[reader].queue.pop_front() else {
                return Ok(false);
            };
            match self.begin(reader, handle, wanted)? {
                Begun::Yes => {}
                Begun::NoBuffer => {
                    self.readers[reader].queue.push_front((handle, wanted));
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn begin(&mut self, reader: usize, handle: u32, wanted: Wanted) -> io::Result<Begun> {
        let visitor = &mut self.readers[reader];
        let Some(open) = visitor.handles.get(&handle) else {
            self.unread(reader, wanted.tag, "the table was closed");
            return Ok(Begun::Yes);
        };
        let (unit, segment) = (open.opened.unit, usize::from(wanted.segment));
        let extent = &open.opened.extents[segment];
        if let Some(page) = extent.in_memory(wanted.page, unit) {
            self.told.pages += 1;
            self.told.bytes += unit as u64;
            let to = slot_start(&wanted);
            self.give(reader, (wanted.window, to, wanted.tag), &page);
            return Ok(Begun::Yes);
        }
        let Some((file, offset)) = extent.find(wanted.page, unit) else {
            let text = format!("there is no page {}", wanted.page);
            self.unread(reader, wanted.tag, &text);
            return Ok(Begun::Yes);
        };
        let file = open.files[segment][file];
        let to = slot_start(&wanted);
        let window = visitor.windows.get(&wanted.window);
        let is_copied = unit > WHOLE && self.options.way != ReadMethod::Inline;
        let place = window.filter(|_| !is_copied);
        let into = match place.and_then(|far| far.place(to, unit)) {
            Some(place) => Into::Place(place),
            None => match self.buffers.take(unit, &mut *self.reads)? {
                Some(buffer) => Into::Buffer(buffer),
                None => return Ok(Begun::NoBuffer),
            },
        };
        visitor.under_way += 1;
        self.told.begun += 1;
        if self.told.timed.is_none() && self.told.begun.is_multiple_of(TIMED) {
            self.told.timed = Some((reader, visitor.visit, wanted.tag, Instant::now()));
        }
        let read_target = ReadTarget {
            into,
            reader,
            visit: visitor.visit,
            tag: wanted.tag,
            window: wanted.window,
            to,
            len: unit,
        };
        self.reads.submit(ReadRequest {
            file,
            offset,
            len: unit,
            into: read_target,
        });
        Ok(Begun::Yes)
    }

    /// Gives a reader a page that is in memory of this side.
    fn give(&mut self, reader: usize, (window, to, tag): (u16, usize, u32), page: &[u8]) {
        let far = self.readers[reader].windows.get(&window);
        match far.and_then(|far| far.place(to, page.len())) {
            Some(place) => {
                read_target::put(&place, page);
                self.page_is_there(reader, tag);
            }
            None if window == INLINE => self.send_page(reader, tag, page),
            None => self.write_page(reader, (window, to, tag), page),
        }
    }

    /// Notes that a page is in the place that its reader has chosen.
    fn page_is_there(&mut self, reader: usize, tag: u32) {
        let visitor = &mut self.readers[reader];
        if visitor.there.is_empty() {
            begin_there(&mut visitor.there);
        }
        visitor.there.extend_from_slice(&tag.to_le_bytes());
        self.touch(reader);
    }

    /// Tells readers of completed reads.
    pub(super) fn finish_reads(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.reads.finish(&mut done);
        for over in done.drain(..) {
            self.finish_read(over);
        }
        self.done = done;
        self.settle_windows();
    }

    fn finish_read(&mut self, CompletedRead { into, result }: CompletedRead<ReadTarget>) {
        let reader = into.reader;
        let there = self.readers.get_mut(reader);
        let Some(visitor) = there.filter(|found| found.visit == into.visit) else {
            return;
        };
        visitor.under_way -= 1;
        if let Some((timed, visit, tag, begun)) = self.told.timed
            && (timed, visit, tag) == (reader, into.visit, into.tag)
        {
            self.told.timed = None;
            self.shared.figures.add_read_time(begun.elapsed());
        }
        let error = match result {
            Ok(n) if n == into.len => None,
            Ok(n) => Some(format!("the file ends after {n} bytes of it")),
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = error {
            self.unread(reader, into.tag, &error);
            return;
        }
        self.told.pages += 1;
        self.told.bytes += into.len as u64;
        match into.into {
            Into::Place(_) => self.page_is_there(reader, into.tag),
            Into::Buffer(buffer) => {
                let page = &buffer.as_ref()[..into.len];
                self.give(reader, (into.window, into.to, into.tag), page);
            }
        }
    }

    /// Writes a page to a window that is not mapped here.
    fn write_page(&mut self, reader: usize, (window, to, tag): (u16, usize, u32), page: &[u8]) {
        let visitor = &mut self.readers[reader];
        let window = visitor.windows.get_mut(&window);
        let written = match window {
            Some(far) => far.write(to, page).map_err(|error| error.to_string()),
            None => Err("the window is gone".to_owned()),
        };
        match written {
            Ok(()) => visitor.written.push(tag),
            Err(error) => self.unread(reader, tag, &error),
        }
    }

    /// Tells readers which pages have arrived in windows that are not mapped here.
    fn settle_windows(&mut self) {
        let settling = self.readers.iter().filter(|(_, g)| !g.written.is_empty());
        let settling: Vec<usize> = settling.map(|(reader, _)| reader).collect();
        for reader in settling {
            let visitor = &mut self.readers[reader];
            let settled: Result<Vec<bool>, _> =
                visitor.windows.values_mut().map(RemoteWindow::settle).collect();
            match settled {
                Ok(all) if all.iter().all(|&settled| settled) => {
                    if visitor.there.is_empty() {
                        begin_there(&mut visitor.there);
                    }
                    for tag in visitor.written.drain(..) {
                        visitor.there.extend_from_slice(&tag.to_le_bytes());
                    }
                    self.touch(reader);
                }
                Ok(_) => {}
                Err(error) => {
                    let text = error.to_string();
                    for tag in std::mem::take(&mut visitor.written) {
                        self.unread(reader, tag, &text);
                    }
                }
            }
        }
    }

    /// Adds what this thread has counted to the node's figures.
    pub(super) fn tell_figures(&mut self) {
        let waiting = self.readers.iter().map(|(_, reader)| reader.owed() as u64);
        let waiting = waiting.sum::<u64>();
        let figures = &self.shared.figures;
        let before = std::mem::replace(&mut self.told.waiting, waiting);
        if before != waiting {
            let change = waiting.wrapping_sub(before);
            figures.waiting.fetch_add(change, Ordering::Relaxed);
        }
        for (counted, figure) in [
            (&mut self.told.pages, &figures.pages),
            (&mut self.told.bytes, &figures.bytes),
            (&mut self.told.unread, &figures.unread),
        ] {
            if *counted > 0 {
                figure.fetch_add(std::mem::take(counted), Ordering::Relaxed);
            }
        }
    }

    /// Counts a page that cannot be read.
    pub(super) fn count_unread(&mut self) {
        self.told.unread += 1;
    }
}
