//! Reads by io_uring: one thread has many reads under way, and the kernel reports those that are
//! over.
//!
//! Files lie in the ring's table, as far as that has room, and memory that was
//! [registered](super::ReadQueue::register) is mapped by the kernel once, so that a read looks up
//! neither. The kernel does its work for a completion when the owner enters it the next time, where
//! it supports that ("cooperative task work"); it does not interrupt the owner. The bell is an
//! eventfd which the kernel rings only while it is armed.
//!
//! A request's `user_data` is the read's key in the [list of pending reads](super::pending_reads).
//!
//! Safety contract:
//! 1. The kernel writes to a read buffer from the submission of a request until its completion was
//!    seen. All this time the read buffer is in the list, and is not given back.
//! 2. A request that was queued and not submitted when the ring failed is never submitted: from
//!    then on the kernel is entered without submissions.
//! 3. A ring that is dropped waits for all requests that were submitted. If the kernel end cannot be
//!    waited for, their read buffers are leaked.
//! 4. Files stay open while requests name them, by number or by place: the list ensures that.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring};
use rustix::event::{EventfdFlags, eventfd};

use super::pending_reads::PendingReads;
use super::read_job::{MAX_RETRIES, ReadOutcome};
use super::read_progress::ReadProgress;
use super::registration_table::RegistrationTable;
use super::{
    CompletedRead, FileId, ReadBuffer, ReadFile, ReadQueue, ReadRequest, RegistrableMemory,
    RegistrationId,
};

/// Places for files in the ring's table; further files are read nevertheless.
const FILES: u32 = 1024;
/// Places for buffers.
const BUFFERS: u16 = 256;
/// The time for which a ring that is dropped waits for completions if the kernel cannot be entered.
const ENDING: Duration = Duration::from_secs(2);

/// See the [module](self).
pub(super) struct UringReads<L: ReadBuffer> {
    ring: IoUring,
    pending: PendingReads<L>,
    /// The reads that were begun, by key.
    progress: Vec<ReadProgress>,
    /// Keys of the reads that are queued and not submitted, the oldest first.
    queued: Vec<u32>,
    /// For each place, `true` if the kernel's table has its file.
    fixed: Vec<bool>,
    memories: RegistrationTable,
    /// `true` if the kernel's tables exist.
    has_files: bool,
    has_buffers: bool,
    bell: OwnedFd,
    /// The bell may ring, or have rung.
    armed: bool,
    /// The kernel's error when it took no more requests.
    failed: Option<i32>,
}

impl<L: ReadBuffer> UringReads<L> {
    /// Returns a ring for at most `depth` reads.
    pub(super) fn new(depth: usize) -> io::Result<UringReads<L>> {
        let pending = PendingReads::new(depth);
        let ring = build(depth as u32).map_err(|error| refused(&error))?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(refused(&io::ErrorKind::Unsupported.into()));
        }
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let submitter = ring.submitter();
        submitter.register_eventfd(bell.as_raw_fd())?;
        let has_files = submitter.register_files_sparse(FILES).is_ok();
        let has_buffers = submitter.register_buffers_sparse(BUFFERS.into()).is_ok();
        let mut ring = UringReads {
            ring,
            pending,
            progress: Vec::with_capacity(depth),
            queued: Vec::with_capacity(depth),
            fixed: Vec::new(),
            memories: RegistrationTable::default(),
            has_files,
            has_buffers,
            bell,
            armed: false,
            failed: None,
        };
        ring.ring.completion().disable_eventfd();
        Ok(ring)
    }

    /// Queues the rest of a read.
    fn queue(&mut self, key: u32) {
        let entry = self.progress[key as usize].entry().user_data(key.into());
        // SAFETY: the read buffer stays where it is, and the file open, until the completion was seen
        // (rules 1 and 4).
        unsafe { self.ring.submission().push(&entry) }
            .expect("the queue has an entry for each read");
        self.queued.push(key);
    }

    /// Submits the queued requests, and waits for so many completions.
    fn enter(&mut self, want: usize, until: Option<Instant>) -> io::Result<()> {
        let mut refused = 0;
        loop {
            let result = self.enter_once(want, until);
            let left = self.ring.submission().len();
            self.queued.drain(..self.queued.len() - left);
            match result.map_err(|error| (error.raw_os_error(), error)) {
                Err((Some(libc::EINTR | libc::ETIME), _)) | Ok(()) if left == 0 => return Ok(()),
                Err((Some(libc::EINTR | libc::ETIME), _)) | Ok(()) => {}
                Err((Some(libc::EAGAIN | libc::EBUSY), _)) if refused < MAX_RETRIES => {
                    refused += 1;
                    std::thread::yield_now();
                }
                Err((_, error)) => return Err(error),
            }
        }
    }

    fn enter_once(&self, want: usize, until: Option<Instant>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        match until {
            Some(until) if want > 0 => {
                let left = until.saturating_duration_since(Instant::now());
                let time = Timespec::from(left);
                submitter.submit_with_args(want, &SubmitArgs::new().timespec(&time))
            }
            _ => submitter.submit_and_wait(want),
        }
        .map(|_| ())
    }

    /// Enters the kernel for completions without submitting anything, and waits for so many.
    fn wait_for_completions(&self, want: u32, at_most: Duration) -> io::Result<()> {
        let time = Timespec::from(at_most);
        let args = SubmitArgs::new().timespec(&time);
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: the argument is of the type that the flag says, and lives for the call. Nothing
        // is submitted.
        let result = unsafe {
            self.ring
                .submitter()
                .enter(0, want, flags.bits(), Some(&args))
        };
        match result.map_err(|error| (error.raw_os_error(), error)) {
            Err((Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY), _)) | Ok(_) => {
                Ok(())
            }
            Err((_, error)) => Err(error),
        }
    }

    /// Marks the ring as failed: it takes no more requests, and those that were not submitted end
    /// (rule 2).
    fn fail(&mut self, error: &io::Error) {
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        self.failed = Some(code);
        for key in std::mem::take(&mut self.queued) {
            let result = -(code as isize);
            let freed = self.pending.end_unbegun(ReadOutcome { key, result });
            self.release(freed);
        }
    }

    /// Takes the reads that are over, and queues those that are not. Does not enter the kernel.
    fn collect(&mut self, done: &mut Vec<CompletedRead<L>>) {
        loop {
            // One at a time: the handling of a completion may need the ring.
            let Some(completion) = self.ring.completion().next() else {
                return;
            };
            let key = completion.user_data() as u32;
            match self.progress[key as usize].advance(completion.result()) {
                Some(result) => {
                    let (over, freed) = self.pending.end(ReadOutcome { key, result });
                    done.push(over);
                    self.release(freed);
                }
                None if self.failed.is_some() => {
                    let result = -(self.failed.unwrap_or(libc::EIO) as isize);
                    let (over, freed) = self.pending.end(ReadOutcome { key, result });
                    done.push(over);
                    self.release(freed);
                }
                None => self.queue(key),
            }
        }
    }

    /// Frees the place of a file.
    fn release(&mut self, place: Option<u32>) {
        let Some(place) = place else { return };
        if std::mem::take(&mut self.fixed[place as usize]) {
            // Otherwise the kernel's table would keep the file open; if this fails, nothing can be
            // done.
            let _ = self.ring.submitter().register_files_update(place, &[-1]);
        }
    }

    /// Returns `true` if the kernel has completions that it makes when the owner enters it.
    fn has_deferred(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    fn silence(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.ring.completion().disable_eventfd();
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }

    /// Returns the number of requests that the kernel has.
    fn submitted(&self) -> usize {
        self.pending.begun() - self.queued.len()
    }
}

/// Returns a ring whose completions do not interrupt the owner, where the kernel supports that.
///
/// The kernel could also keep completions until the one owner comes (deferred task work). Then
/// only that thread could wait for the reads under way, and a ring that another one drops would
/// leak; and it gains nothing measurable.
fn build(depth: u32) -> io::Result<IoUring> {
    let entries = depth.next_power_of_two();
    IoUring::builder()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .build(entries)
        .or_else(|_| IoUring::new(entries))
}

fn refused(error: &io::Error) -> io::Error {
    let why = format!("the kernel refuses io_uring ({error}); read by static threads");
    io::Error::new(error.kind(), why)
}

impl<L: ReadBuffer> ReadQueue<L> for UringReads<L> {
    fn add(&mut self, file: Arc<ReadFile>) -> FileId {
        let fd = file.as_fd().as_raw_fd();
        let (id, place) = self.pending.add(file);
        if self.fixed.len() <= place as usize {
            self.fixed.resize(place as usize + 1, false);
        }
        if self.has_files && place < FILES {
            let updated = self.ring.submitter().register_files_update(place, &[fd]);
            self.fixed[place as usize] = updated.is_ok();
        }
        id
    }

    fn remove(&mut self, file: FileId) {
        let freed = self.pending.remove(file);
        self.release(freed);
    }

    fn register(&mut self, memory: Arc<dyn RegistrableMemory>) -> Option<RegistrationId> {
        if !self.has_buffers {
            return None;
        }
        let plan = self.memories.plan(&*memory, BUFFERS)?;
        for (n, buffer) in plan.iter().enumerate() {
            let range = libc::iovec {
                iov_base: buffer.start as *mut libc::c_void,
                iov_len: buffer.len,
            };
            let submitter = self.ring.submitter();
            // SAFETY: the memory exists while it is registered, and the kernel writes to it only
            // where read buffers of reads are.
            let updated =
                unsafe { submitter.register_buffers_update(buffer.index.into(), &[range], None) };
            if updated.is_err() {
                plan[..n].iter().for_each(|b| self.forget_buffer(b.index));
                return None;
            }
        }
        Some(self.memories.add(plan, memory))
    }

    fn unregister(&mut self, memory: RegistrationId) {
        // Reads that the kernel has already still land in the memory; the others must not name it.
        let _ = self.start();
        let (buffers, _memory) = self.memories.remove(memory);
        for buffer in buffers {
            self.forget_buffer(buffer.index);
            for part in &mut self.progress {
                part.buffer = part.buffer.filter(|&index| index != buffer.index);
            }
        }
    }

    fn room(&self) -> usize {
        self.pending.room()
    }

    fn submit(&mut self, read: ReadRequest<L>) {
        if let Some(code) = self.failed {
            self.pending
                .refuse(read, io::Error::from_raw_os_error(code));
            return;
        }
        let Some((job, place)) = self.pending.submit(read) else {
            return;
        };
        let key = job.key as usize;
        let part = ReadProgress {
            file: self.fixed[place as usize].then_some(place),
            buffer: self.memories.find(job.start.as_ptr() as usize, job.len),
            job,
            done: 0,
            refused: 0,
        };
        // Keys are assigned from 0 on, and reused.
        if key == self.progress.len() {
            self.progress.push(part);
        } else {
            self.progress[key] = part;
        }
        self.queue(key as u32);
    }

    fn start(&mut self) -> io::Result<()> {
        if let Some(code) = self.failed {
            return Err(io::Error::from_raw_os_error(code));
        }
        if self.queued.is_empty() {
            return Ok(());
        }
        self.enter(0, None).inspect_err(|error| self.fail(error))
    }

    fn finish(&mut self, done: &mut Vec<CompletedRead<L>>) -> usize {
        let before = done.len();
        self.collect(done);
        if done.len() == before && self.has_deferred() {
            if let Err(error) = self.wait_for_completions(0, Duration::ZERO) {
                self.fail(&error);
            }
            self.collect(done);
        }
        // Reads that continue must not wait for the next start. If it fails they have ended.
        let _ = self.start();
        self.pending.take_ended(done);
        if done.len() > before {
            self.silence();
        }
        done.len() - before
    }

    fn wait(&mut self, done: &mut Vec<CompletedRead<L>>, at_most: Option<Duration>) -> usize {
        let until = at_most.and_then(|time| Instant::now().checked_add(time));
        loop {
            let n = self.finish(done);
            let late = until.is_some_and(|until| Instant::now() >= until);
            if n > 0 || self.pending.begun() == 0 || late {
                return n;
            }
            let entered = match self.failed {
                None => self.enter(1, until),
                Some(_) => self.wait_for_completions(1, ENDING),
            };
            if let Err(error) = entered {
                self.fail(&error);
                return self.finish(done);
            }
        }
    }

    fn under_way(&self) -> usize {
        self.pending.under_way()
    }

    fn arm(&mut self) -> bool {
        self.silence();
        if self.pending.has_ended() {
            return false;
        }
        self.armed = true;
        self.ring.completion().enable_eventfd();
        // The kernel first publishes a completion and then looks if the bell is on; here it is the
        // other way round.
        fence(Ordering::SeqCst);
        let none = self.ring.completion().is_empty() && !self.has_deferred();
        if !none {
            self.silence();
        }
        none
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl<L: ReadBuffer> UringReads<L> {
    fn forget_buffer(&self, index: u16) {
        let none = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let submitter = self.ring.submitter();
        // SAFETY: no memory at all. The kernel keeps the memory that requests under way use. If it
        // refuses, it keeps the memory, and no request names it any more.
        let _ = unsafe { submitter.register_buffers_update(index.into(), &[none], None) };
    }
}

impl<L: ReadBuffer> Drop for UringReads<L> {
    fn drop(&mut self) {
        let until = Instant::now() + ENDING;
        let mut done = Vec::new();
        let error = io::Error::from_raw_os_error(libc::ECANCELED);
        self.fail(&error);
        while self.submitted() > 0 {
            self.collect(&mut done);
            if self.submitted() == 0 {
                break;
            }
            if self.wait_for_completions(1, ENDING).is_err() {
                // Completions may come nevertheless.
                if Instant::now() > until {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // Nothing is submitted any more (rules 1 and 3).
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::{AllocatedBuffer, BufferPool, PageCache};

    fn file() -> Arc<ReadFile> {
        let named = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(named.path(), vec![7; 1 << 20]).unwrap();
        Arc::new(ReadFile::open(named.path(), PageCache::Past).unwrap())
    }

    fn read(file: FileId, offset: u64) -> ReadRequest<AllocatedBuffer> {
        ReadRequest {
            file,
            offset,
            len: 4096,
            into: AllocatedBuffer::new(4096),
        }
    }

    #[test]
    fn a_ring_that_has_failed_gives_all_memory_back() {
        let mut ring = UringReads::new(8).unwrap();
        let file = file();
        let id = ring.add(Arc::clone(&file));
        (0..3).for_each(|n| ring.submit(read(id, n * 4096)));
        ring.start().unwrap();
        (3..6).for_each(|n| ring.submit(read(id, n * 4096)));
        ring.fail(&io::Error::from_raw_os_error(libc::ENXIO));
        ring.submit(read(id, 6 * 4096));
        assert_eq!(ring.start().unwrap_err().raw_os_error(), Some(libc::ENXIO));
        assert_eq!(ring.under_way(), 7);
        let mut done = Vec::new();
        while ring.under_way() > 0 {
            assert!(ring.wait(&mut done, None) > 0);
        }
        let (read, failed): (Vec<_>, Vec<_>) = done.iter().partition(|d| d.result.is_ok());
        assert_eq!(
            (read.len(), failed.len()),
            (3, 4),
            "what was started goes on"
        );
        assert!(read.iter().all(|d| d.into.as_ref().iter().all(|&b| b == 7)));
        ring.remove(id);
        assert_eq!(Arc::strong_count(&file), 1);
    }

    /// The limit for locked memory is low, or the kernel is old.
    #[test]
    fn a_ring_without_tables_reads_all_the_same() {
        let mut ring = UringReads::new(4).unwrap();
        ring.has_files = false;
        ring.has_buffers = false;
        let pool = BufferPool::new(4, 4096).unwrap();
        assert_eq!(ring.register(pool.memory()), None);
        let id = ring.add(file());
        assert!(!ring.fixed[0]);
        for n in 0..4 {
            ring.submit(ReadRequest {
                file: id,
                offset: n * 4096,
                len: 4096,
                into: pool.take().unwrap(),
            });
        }
        let mut done = Vec::new();
        while ring.under_way() > 0 {
            ring.wait(&mut done, None);
        }
        assert!(done.iter().all(|d| d.into.as_ref().iter().all(|&b| b == 7)));
    }

    #[test]
    fn files_and_memory_lie_in_tables_where_the_kernel_lets_them() {
        let mut ring = UringReads::new(4).unwrap();
        let id = ring.add(file());
        let pool = BufferPool::new(4, 4096).unwrap();
        let registered = ring.register(pool.memory());
        ring.submit(ReadRequest {
            file: id,
            offset: 0,
            len: 512,
            into: pool.take().unwrap(),
        });
        assert_eq!(ring.progress[0].buffer.is_some(), registered.is_some());
        assert_eq!(ring.progress[0].file.is_some(), ring.has_files);
        let mut done = Vec::new();
        ring.wait(&mut done, None);
        assert_eq!(*done[0].result.as_ref().unwrap(), 512);
    }
}
