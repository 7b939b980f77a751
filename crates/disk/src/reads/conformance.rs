//! The common behaviour of every read method. A test of each calls [`check`] with an empty
//! directory of its own; a deviation panics with the expected behaviour.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::{
    AllocatedBuffer, BufferPool, CompletedRead, FileId, PageCache, ReadBuffer, ReadFile, ReadQueue,
    ReadRequest,
};

/// Memory of any kind whose bytes can be read.
pub trait ReadableBuffer: ReadBuffer + AsRef<[u8]> {}

impl<P: ReadBuffer + AsRef<[u8]>> ReadableBuffer for P {}

/// A read buffer, and the mark of its read.
pub type MarkedBuffer = (Box<dyn ReadableBuffer>, ReadMark);

/// A read that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadMark {
    /// The number of the suite's file: the seed of its bytes.
    file: u64,
    offset: u64,
    len: usize,
}

/// A function that returns a read queue of a depth.
pub type OpenReadQueue<'a> = &'a dyn Fn(usize) -> Box<dyn ReadQueue<MarkedBuffer>>;

/// A time longer than any read takes that is not lost.
const LONG: Duration = Duration::from_secs(20);
/// Multiples of this suit every device.
const SECTOR: u64 = 4096;

/// Runs the whole suite in `dir`, which exists and is empty.
///
/// # Panics
/// Panics if the queue that `make` returns deviates from the contract.
pub fn check(make: OpenReadQueue<'_>, dir: &Path) {
    let parts: [fn(OpenReadQueue<'_>, &Path); 11] = [
        reads_every_byte,
        reads_up_to_the_end,
        tells_errors,
        keeps_its_depth,
        waits_no_longer_than_it_should,
        has_many_files,
        lets_files_go,
        rings_the_bell,
        reads_into_registered_memory,
        gives_memory_back_when_dropped,
        moves_to_another_thread,
    ];
    for (i, part) in parts.iter().enumerate() {
        let dir = dir.join(format!("part{i}"));
        std::fs::create_dir(&dir).expect("makes a directory");
        part(make, &dir);
    }
}

/// Returns the byte at a place of a file.
fn byte(file: u64, at: u64) -> u8 {
    let word = (at / 8 + file.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x2545_f491_4f6c_dd1d);
    word.to_le_bytes()[(at % 8) as usize] ^ (word >> 56) as u8
}

fn make_file(dir: &Path, seed: u64, len: u64, page_cache: PageCache) -> Arc<ReadFile> {
    let path = dir.join(format!("f{seed}"));
    let bytes: Vec<u8> = (0..len).map(|at| byte(seed, at)).collect();
    std::fs::write(&path, bytes).expect("writes");
    Arc::new(ReadFile::open(&path, page_cache).expect("opens"))
}

fn submit(
    reads: &mut dyn ReadQueue<MarkedBuffer>,
    file: FileId,
    into: Box<dyn ReadableBuffer>,
    mark: ReadMark,
) {
    reads.submit(ReadRequest {
        file,
        offset: mark.offset,
        len: mark.len,
        into: (into, mark),
    });
}

fn own(len: usize) -> Box<dyn ReadableBuffer> {
    Box::new(AllocatedBuffer::new(len))
}

/// Submits, starts and waits for one read.
fn read(
    reads: &mut dyn ReadQueue<MarkedBuffer>,
    file: FileId,
    mark: ReadMark,
) -> CompletedRead<MarkedBuffer> {
    submit(reads, file, own(mark.len), mark);
    reads.start().expect("starts");
    let mut done = Vec::new();
    assert_eq!(reads.wait(&mut done, Some(LONG)), 1, "the only one");
    assert_eq!(reads.under_way(), 0);
    done.pop().expect("one is over")
}

/// Returns all reads that are under way, when none is left.
fn all(reads: &mut dyn ReadQueue<MarkedBuffer>) -> Vec<CompletedRead<MarkedBuffer>> {
    let mut done = Vec::new();
    reads.start().expect("starts");
    while reads.under_way() > 0 {
        let n = reads.wait(&mut done, Some(LONG));
        assert!(n > 0, "{} reads are lost", reads.under_way());
    }
    done
}

/// Checks the outcome of a read of a file that is `len` bytes long.
fn verify(done: &CompletedRead<MarkedBuffer>, len: u64) {
    let (piece, mark) = &done.into;
    let n = *done.result.as_ref().expect("reads");
    let there = len.saturating_sub(mark.offset).min(mark.len as u64);
    assert_eq!(n as u64, there, "bytes of {mark:?}");
    let right = |(i, &b): (usize, &u8)| b == byte(mark.file, mark.offset + i as u64);
    let bytes = &piece.as_ref().as_ref()[..n];
    assert!(
        bytes.iter().enumerate().all(right),
        "wrong bytes of {mark:?}"
    );
}

/// Reads random places and lengths in random order, with memory of all kinds and files of both
/// kinds.
fn reads_every_byte(make: OpenReadQueue<'_>, dir: &Path) {
    const LEN: u64 = 3 << 20;
    const DEPTH: usize = 48;
    let mut reads = make(DEPTH);
    let files: Vec<_> = (0..4)
        .map(|seed| {
            let kind = [PageCache::Past, PageCache::Through][seed as usize % 2];
            let file = make_file(dir, seed, LEN, kind);
            (reads.add(Arc::clone(&file)), file.alignment() as u64)
        })
        .collect();
    let pools = [
        BufferPool::new(16, 256 << 10).expect("memory"),
        BufferPool::new(16, 4096).expect("memory"),
    ];
    reads.register(pools[0].memory());
    let mut rng = fastrand::Rng::with_seed(7);
    let mut done = Vec::new();
    let mut count = 0;
    while count < 6000 {
        for _ in 0..rng.usize(0..=reads.room()) {
            let seed = rng.usize(0..files.len());
            let (id, unit) = files[seed];
            let into: Box<dyn ReadableBuffer> =
                match (rng.u8(0..4), pools[0].take(), pools[1].take()) {
                    (0..2, Some(buf), _) => Box::new(buf),
                    (2, _, Some(buf)) => Box::new(buf),
                    _ => own(rng.usize(1..=40) * 4096),
                };
            let most = into.memory().len() as u64 / unit;
            let mark = ReadMark {
                file: seed as u64,
                offset: rng.u64(0..LEN / unit) * unit,
                len: (rng.u64(1..=most) * unit) as usize,
            };
            submit(&mut *reads, id, into, mark);
        }
        match rng.u8(0..3) {
            0 => reads.start().expect("starts"),
            1 => drop(reads.wait(&mut done, Some(LONG))),
            _ => drop(reads.finish(&mut done)),
        }
        count += done.len();
        done.drain(..).for_each(|done| verify(&done, LEN));
    }
    all(&mut *reads).iter().for_each(|done| verify(done, LEN));
    drop(reads);
    assert_eq!((pools[0].free(), pools[1].free()), (16, 16));
}

fn reads_up_to_the_end(make: OpenReadQueue<'_>, dir: &Path) {
    let mut reads = make(4);
    let lens = [0, 1, 511, 512, 4095, 4096, 4097, 10_000, 100_001];
    for (seed, len) in lens.into_iter().enumerate() {
        for (n, page_cache) in [PageCache::Past, PageCache::Through]
            .into_iter()
            .enumerate()
        {
            let seed = (2 * seed + n) as u64;
            let id = reads.add(make_file(dir, seed, len, page_cache));
            let sectors = len.div_ceil(SECTOR);
            for first in [0, sectors.saturating_sub(1), sectors, sectors + 1, 1 << 30] {
                for count in [1, 3, 64] {
                    let mark = ReadMark {
                        file: seed,
                        offset: first * SECTOR,
                        len: count * SECTOR as usize,
                    };
                    verify(&read(&mut *reads, id, mark), len);
                }
            }
            let nothing = ReadMark {
                file: seed,
                offset: 0,
                len: 0,
            };
            verify(&read(&mut *reads, id, nothing), len);
        }
    }
}

fn tells_errors(make: OpenReadQueue<'_>, dir: &Path) {
    const LEN: u64 = 1 << 16;
    let mut reads = make(8);
    let file = make_file(dir, 0, LEN, PageCache::Past);
    let id = reads.add(Arc::clone(&file));
    let mark = |offset, len| ReadMark {
        file: 0,
        offset,
        len,
    };
    // File systems in memory read at any place; devices do not, and the error says which places
    // they accept.
    for (offset, len) in [(1, 4096), (0, 100), (4096 + 100, 512), (4000, 4096)] {
        let done = read(&mut *reads, id, mark(offset, len));
        match &done.result {
            Ok(_) => verify(&done, LEN),
            Err(error) => {
                let text = error.to_string();
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
                assert!(file.is_direct() && text.contains("multiples of"), "{text}");
                assert!(text.contains("f0"), "names the file: {text}");
            }
        }
    }
    for offset in [u64::MAX, u64::MAX - 4095, i64::MAX as u64 - 4095, 1 << 63] {
        let done = read(&mut *reads, id, mark(offset, 4096));
        let error = done.result.expect_err("no file is so long");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert_eq!(done.into.1, mark(offset, 4096), "its own memory comes back");
    }
    reads.remove(id);
    for id in [id, FileId(77), FileId(u32::MAX)] {
        let error = read(&mut *reads, id, mark(0, 4096)).result;
        let error = error.expect_err("there is no such file");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        reads.remove(id);
    }
    // Errors among reads that succeed.
    let id = reads.add(file);
    for n in 0..8 {
        let (id, offset) = match n % 2 {
            0 => (id, n * SECTOR),
            _ => (FileId(99), n),
        };
        submit(&mut *reads, id, own(4096), mark(offset, 4096));
    }
    for done in all(&mut *reads) {
        match done.into.1.offset % 2 {
            0 => verify(&done, LEN),
            _ => assert!(done.result.is_err()),
        }
    }
}

fn keeps_its_depth(make: OpenReadQueue<'_>, dir: &Path) {
    let file = make_file(dir, 0, 1 << 16, PageCache::Past);
    for depth in [1, 2, 3, 100] {
        let mut reads = make(depth);
        let id = reads.add(Arc::clone(&file));
        for round in 0..5 {
            assert_eq!((reads.room(), reads.under_way()), (depth, 0));
            for n in 0..depth {
                let mark = ReadMark {
                    file: 0,
                    offset: (n as u64 + round) % 16 * SECTOR,
                    len: 4096,
                };
                submit(&mut *reads, id, own(4096), mark);
                assert_eq!((reads.room(), reads.under_way()), (depth - n - 1, n + 1));
            }
            let mark = ReadMark {
                file: 0,
                offset: 0,
                len: 512,
            };
            let more = AssertUnwindSafe(|| submit(&mut *reads, id, own(512), mark));
            assert!(catch_unwind(more).is_err(), "there is no room");
            let done = all(&mut *reads);
            assert_eq!(done.len(), depth);
            done.iter().for_each(|done| verify(done, 1 << 16));
        }
        let mark = ReadMark {
            file: 0,
            offset: 0,
            len: 4097,
        };
        let small = AssertUnwindSafe(|| submit(&mut *reads, id, own(4096), mark));
        assert!(catch_unwind(small).is_err(), "the landing is too small");
        assert_eq!(reads.under_way(), 0, "and nothing was booked");
    }
}

fn waits_no_longer_than_it_should(make: OpenReadQueue<'_>, dir: &Path) {
    let mut reads = make(64);
    let mut done = Vec::new();
    let begin = Instant::now();
    assert_eq!(reads.wait(&mut done, None), 0, "nothing is under way");
    assert_eq!(reads.wait(&mut done, Some(LONG)), 0, "nothing is under way");
    let id = reads.add(make_file(dir, 0, 1 << 20, PageCache::Past));
    for n in 0..200_u64 {
        let mark = ReadMark {
            file: 0,
            offset: n % 256 * SECTOR,
            len: 4096,
        };
        submit(&mut *reads, id, own(4096), mark);
        // Also before it was started.
        reads.wait(&mut done, Some(Duration::from_micros(n % 3)));
        while reads.room() == 0 {
            reads.wait(&mut done, None);
        }
    }
    done.append(&mut all(&mut *reads));
    assert_eq!(done.len(), 200);
    done.iter().for_each(|done| verify(done, 1 << 20));
    assert!(begin.elapsed() < LONG);
}

/// Adds more files than any table has places for.
fn has_many_files(make: OpenReadQueue<'_>, dir: &Path) {
    const IDS: usize = 2500;
    let mut reads = make(32);
    let files: Vec<_> = (0..5)
        .map(|seed| make_file(dir, seed, 1 << 16, PageCache::Past))
        .collect();
    let mut ids: Vec<_> = (0..IDS)
        .map(|n| reads.add(Arc::clone(&files[n % 5])))
        .collect();
    let mut rng = fastrand::Rng::with_seed(3);
    let mut done = Vec::new();
    for round in 0..2000 {
        let n = rng.usize(0..IDS);
        if round % 3 == 0 {
            let before = ids[n];
            reads.remove(before);
            ids[n] = reads.add(Arc::clone(&files[n % 5]));
            assert_ne!(ids[n], before, "an id is not given out again at once");
        }
        while reads.room() == 0 {
            reads.wait(&mut done, None);
        }
        let mark = ReadMark {
            file: n as u64 % 5,
            offset: rng.u64(0..16) * SECTOR,
            len: 4096,
        };
        submit(&mut *reads, ids[n], own(4096), mark);
    }
    done.append(&mut all(&mut *reads));
    assert_eq!(done.len(), 2000);
    done.iter().for_each(|done| verify(done, 1 << 16));
}

fn lets_files_go(make: OpenReadQueue<'_>, dir: &Path) {
    let mut reads = make(64);
    for round in 0..40 {
        let file = make_file(dir, round, 1 << 18, PageCache::Past);
        let alive = Arc::downgrade(&file);
        let id = reads.add(file);
        for n in 0..64 {
            let mark = ReadMark {
                file: round,
                offset: n * SECTOR,
                len: 4096,
            };
            submit(&mut *reads, id, own(4096), mark);
            if n == round {
                reads.start().expect("starts");
            }
        }
        reads.remove(id);
        let mut done = Vec::new();
        while reads.under_way() > 0 {
            assert!(alive.strong_count() > 0, "it stays while it is read");
            assert!(reads.wait(&mut done, Some(LONG)) > 0, "reads are lost");
        }
        done.iter().for_each(|done| verify(done, 1 << 18));
        assert_eq!(done.len(), 64);
        assert_eq!(alive.strong_count(), 0, "no read uses it any more");
    }
    // Without reads, the file is closed at once.
    let file = make_file(dir, 99, 10, PageCache::Past);
    let alive = Arc::downgrade(&file);
    let id = reads.add(file);
    reads.remove(id);
    assert_eq!(alive.strong_count(), 0);
}

/// Checks the bell: the owner sleeps whenever it may, and is always woken.
fn rings_the_bell(make: OpenReadQueue<'_>, dir: &Path) {
    for depth in [1, 7] {
        let mut reads = make(depth);
        let id = reads.add(make_file(dir, 0, 1 << 18, PageCache::Past));
        let mut rng = fastrand::Rng::with_seed(5);
        let mut done = Vec::new();
        let mut count = 0;
        while count < 3000 {
            for _ in 0..rng.usize(0..=reads.room()) {
                let mark = ReadMark {
                    file: 0,
                    offset: rng.u64(0..64) * SECTOR,
                    len: 4096,
                };
                submit(&mut *reads, id, own(4096), mark);
            }
            reads.start().expect("starts");
            if rng.bool() {
                reads.finish(&mut done);
            }
            if reads.under_way() > 0 && reads.arm() {
                assert!(sleep(&*reads, LONG), "the bell has not rung");
                let mut looks = 0;
                while reads.finish(&mut done) == 0 {
                    // It may ring a little too often, but not for ever.
                    looks += 1;
                    assert!(looks < 100, "the bell rings for nothing");
                    if reads.arm() {
                        assert!(sleep(&*reads, LONG), "the bell has not rung");
                    }
                }
            }
            count += done.len();
            done.drain(..).for_each(|done| verify(&done, 1 << 18));
        }
        all(&mut *reads).iter().for_each(|d| verify(d, 1 << 18));
        reads.arm();
        assert!(!sleep(&*reads, Duration::ZERO), "nothing is under way");
    }
}

/// Sleeps until the bell is readable. Returns `false` if it was not.
fn sleep(reads: &dyn ReadQueue<MarkedBuffer>, at_most: Duration) -> bool {
    let bell = reads.bell();
    let at_most = rustix::time::Timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: at_most.subsec_nanos().into(),
    };
    loop {
        match poll(&mut [PollFd::new(&bell, PollFlags::IN)], Some(&at_most)) {
            Ok(n) => return n > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("cannot poll: {error}"),
        }
    }
}

fn reads_into_registered_memory(make: OpenReadQueue<'_>, dir: &Path) {
    const LEN: u64 = 1 << 20;
    let mut reads = make(32);
    let id = reads.add(make_file(dir, 0, LEN, PageCache::Past));
    let mut rng = fastrand::Rng::with_seed(9);
    for round in 0..30 {
        let pools = [4096, 8192, 65536].map(|size| BufferPool::new(10, size).expect("memory"));
        let registered = pools.each_ref().map(|pool| reads.register(pool.memory()));
        for n in 0..30 {
            let into = pools[n % 3].take().expect("slots enough");
            let most = into.as_ref().len() as u64 / SECTOR;
            let mark = ReadMark {
                file: 0,
                offset: rng.u64(0..LEN / SECTOR) * SECTOR,
                len: (rng.u64(1..=most) * SECTOR) as usize,
            };
            submit(&mut *reads, id, Box::new(into), mark);
        }
        if round % 2 == 0 {
            reads.start().expect("starts");
        }
        // The memory is unregistered while reads land in it.
        for registered in registered.into_iter().flatten() {
            reads.unregister(registered);
        }
        let done = all(&mut *reads);
        assert_eq!(done.len(), 30);
        done.iter().for_each(|done| verify(done, LEN));
    }
}

fn gives_memory_back_when_dropped(make: OpenReadQueue<'_>, dir: &Path) {
    let file = make_file(dir, 0, 1 << 20, PageCache::Past);
    let pool = BufferPool::new(64, 16384).expect("memory");
    for round in 0..20 {
        let mut reads = make(64);
        reads.register(pool.memory());
        let id = reads.add(Arc::clone(&file));
        for n in 0..64 {
            let mark = ReadMark {
                file: 0,
                offset: n * 16384,
                len: 16384,
            };
            let into = pool.take().expect("all are free");
            submit(&mut *reads, id, Box::new(into), mark);
            if n == 40 && round % 4 > 0 {
                reads.start().expect("starts");
            }
        }
        if round % 4 > 1 {
            reads.start().expect("starts");
        }
        if round % 4 > 2 {
            // Another thread drops it, while its owner goes on.
            let dropped = std::thread::spawn(move || drop(reads));
            dropped.join().expect("drops");
        } else {
            drop(reads);
        }
        assert_eq!(pool.free(), 64, "round {round}: all of it comes back");
        let mut marked: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        marked.iter_mut().for_each(|buf| buf.as_mut().fill(0xab));
        std::thread::sleep(Duration::from_millis(1));
        let untouched = |buf: &super::PooledBuffer| buf.as_ref().iter().all(|&byte| byte == 0xab);
        assert!(marked.iter().all(untouched), "no writer is active to it");
    }
    assert_eq!(Arc::strong_count(&file), 1, "and files are let go");
}

fn moves_to_another_thread(make: OpenReadQueue<'_>, dir: &Path) {
    let mut reads = make(8);
    let id = reads.add(make_file(dir, 0, 1 << 16, PageCache::Past));
    let mark = ReadMark {
        file: 0,
        offset: 4096,
        len: 4096,
    };
    submit(&mut *reads, id, own(4096), mark);
    let thread = std::thread::spawn(move || {
        verify(&all(&mut *reads)[0], 1 << 16);
        verify(&read(&mut *reads, id, mark), 1 << 16);
        submit(&mut *reads, id, own(4096), mark);
        reads.start().expect("starts");
        reads
    });
    // Its owner is gone, and it has reads under way.
    drop(thread.join().expect("reads"));
}
