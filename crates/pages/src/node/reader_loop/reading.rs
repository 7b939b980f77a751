//! Begins reads, and passes on those that are complete.

use std::io;
use std::time::Instant;

use disk::reads::{CompletedRead, ReadMethod, ReadRequest};
use fabric::window::RemoteWindow;

use super::ReaderLoop;
use crate::node::read_target::{self, ReadMemory, ReadTarget};
use crate::protocol::{INLINE, PageRequest, SLOT_UNIT, begin_written};

/// Pages of one reader that are begun before the next reader has its turn.
const SHARE: usize = 32;
/// The largest page that is read directly into a window. Larger pages are read into a buffer, which
/// is one piece for the device, and copied to the window: shared memory is in pieces of this size,
/// and for a device many pieces cost more than the copy.
const WHOLE: usize = 4 << 10;
/// One of so many reads is timed.
const TIMED: u64 = 64;

/// Returns the byte of a window from which on a page is to lie.
#[inline]
pub(super) fn slot_start(wanted: &PageRequest) -> usize {
    wanted.slot as usize * SLOT_UNIT
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

    fn begin(&mut self, reader: usize, handle: u32, wanted: PageRequest) -> io::Result<Begun> {
        let connection = &mut self.readers[reader];
        let Some(open) = connection.handles.get(&handle) else {
            self.fail_page(reader, wanted.tag, "the table was closed");
            return Ok(Begun::Yes);
        };
        let (unit, segment) = (open.opened.unit, usize::from(wanted.segment));
        let extent = &open.opened.extents[segment];
        if let Some(page) = extent.in_memory(wanted.page, unit) {
            self.counted.pages += 1;
            self.counted.bytes += unit as u64;
            let to = slot_start(&wanted);
            self.give(reader, (wanted.window, to, wanted.tag), &page);
            return Ok(Begun::Yes);
        }
        let Some((file, offset)) = extent.find(wanted.page, unit) else {
            let text = format!("there is no page {}", wanted.page);
            self.fail_page(reader, wanted.tag, &text);
            return Ok(Begun::Yes);
        };
        let file = open.files[segment][file];
        let to = slot_start(&wanted);
        let window = connection.windows.get(&wanted.window);
        let is_copied = unit > WHOLE && self.options.way != ReadMethod::Inline;
        let place = window.filter(|_| !is_copied);
        let into = match place.and_then(|far| far.place(to, unit)) {
            Some(place) => ReadMemory::Place(place),
            None => match self.buffers.take(unit, &mut *self.reads)? {
                Some(buffer) => ReadMemory::Buffer(buffer),
                None => return Ok(Begun::NoBuffer),
            },
        };
        connection.under_way += 1;
        self.counted.begun += 1;
        if self.counted.timed.is_none() && self.counted.begun.is_multiple_of(TIMED) {
            self.counted.timed = Some((reader, connection.generation, wanted.tag, Instant::now()));
        }
        let read_target = ReadTarget {
            into,
            reader,
            generation: connection.generation,
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
                self.page_written(reader, tag);
            }
            None if window == INLINE => self.send_page(reader, tag, page),
            None => self.write_page(reader, (window, to, tag), page),
        }
    }

    /// Notes that a page is in the place that its reader has chosen.
    fn page_written(&mut self, reader: usize, tag: u32) {
        let connection = &mut self.readers[reader];
        if connection.there.is_empty() {
            begin_written(&mut connection.there);
        }
        connection.there.extend_from_slice(&tag.to_le_bytes());
        self.mark_for_reply(reader);
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
        let Some(connection) = there.filter(|found| found.generation == into.generation) else {
            return;
        };
        connection.under_way -= 1;
        if let Some((timed, generation, tag, begun)) = self.counted.timed
            && (timed, generation, tag) == (reader, into.generation, into.tag)
        {
            self.counted.timed = None;
            self.state.figures.add_read_time(begun.elapsed());
        }
        let error = match result {
            Ok(n) if n == into.len => None,
            Ok(n) => Some(format!("the file ends after {n} bytes of it")),
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = error {
            self.fail_page(reader, into.tag, &error);
            return;
        }
        self.counted.pages += 1;
        self.counted.bytes += into.len as u64;
        match into.into {
            ReadMemory::Place(_) => self.page_written(reader, into.tag),
            ReadMemory::Buffer(buffer) => {
                let page = &buffer.as_ref()[..into.len];
                self.give(reader, (into.window, into.to, into.tag), page);
            }
        }
    }

    /// Writes a page to a window that is not mapped here.
    fn write_page(&mut self, reader: usize, (window, to, tag): (u16, usize, u32), page: &[u8]) {
        let connection = &mut self.readers[reader];
        let window = connection.windows.get_mut(&window);
        let written = match window {
            Some(far) => far.write(to, page).map_err(|error| error.to_string()),
            None => Err("the window is gone".to_owned()),
        };
        match written {
            Ok(()) => connection.written.push(tag),
            Err(error) => self.fail_page(reader, tag, &error),
        }
    }

    /// Tells readers which pages have arrived in windows that are not mapped here.
    fn settle_windows(&mut self) {
        let settling = self.readers.iter().filter(|(_, g)| !g.written.is_empty());
        let settling: Vec<usize> = settling.map(|(reader, _)| reader).collect();
        for reader in settling {
            let connection = &mut self.readers[reader];
            let settled: Result<Vec<bool>, _> = connection
                .windows
                .values_mut()
                .map(RemoteWindow::settle)
                .collect();
            match settled {
                Ok(all) if all.iter().all(|&settled| settled) => {
                    if connection.there.is_empty() {
                        begin_written(&mut connection.there);
                    }
                    for tag in connection.written.drain(..) {
                        connection.there.extend_from_slice(&tag.to_le_bytes());
                    }
                    self.mark_for_reply(reader);
                }
                Ok(_) => {}
                Err(error) => {
                    let text = error.to_string();
                    for tag in std::mem::take(&mut connection.written) {
                        self.fail_page(reader, tag, &text);
                    }
                }
            }
        }
    }

    /// Adds what this thread has counted to the node's figures.
    pub(super) fn publish_figures(&mut self) {
        let waiting = self
            .readers
            .iter()
            .map(|(_, reader)| reader.requested() as u64);
        let waiting = waiting.sum::<u64>();
        self.counted.publish(waiting, &self.state.figures);
    }

    /// Counts a page that cannot be read.
    pub(super) fn count_failed_page(&mut self) {
        self.counted.failed += 1;
    }
}
