//! A file that is read past the page cache, where the file system has a way to.
//!
//! Direct reads begin at multiples of the file's [alignment](ReadFile::alignment), are as long as a
//! multiple of it, and land at such an address. The kernel reports its size (`statx`, since 6.1);
//! where it does not, it is found by trying. A file system that refuses direct reads, or takes none
//! at multiples of [`ALIGNMENT`], is read through the page cache; [`ReadFile::note`] says so.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, OFlags, StatxFlags};

use crate::buffers::{ALIGNMENT, AlignedBuffer};

/// The least sector of any device.
const SECTOR: usize = 512;

/// The use of the kernel's page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PageCache {
    /// Reads go past it, if the file system can.
    #[default]
    Past,
    /// Reads go through it.
    Through,
}

/// A file, open for reading. Closed when it is dropped.
#[derive(Debug)]
pub struct ReadFile {
    file: File,
    path: PathBuf,
    len: u64,
    alignment: usize,
    direct: bool,
    note: Option<String>,
}

impl ReadFile {
    /// Opens a file that exists.
    ///
    /// # Errors
    /// Returns `InvalidInput` if it is no ordinary file, or the operating system's error.
    pub fn open(path: &Path, page_cache: PageCache) -> io::Result<ReadFile> {
        ReadFile::open_at(path, path, page_cache)
    }

    /// Opens a file that is open already, also one that was removed since then. `path` is its
    /// present or former path.
    ///
    /// # Errors
    /// As [`ReadFile::open`].
    pub fn open_again(
        file: BorrowedFd<'_>,
        path: &Path,
        page_cache: PageCache,
    ) -> io::Result<ReadFile> {
        // A duplicated descriptor would share the direct-I/O flag with the one that is open.
        let held = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // Where there is no `/proc` only the name is left, and its error is the one to report.
        ReadFile::open_at(&held, path, page_cache).or_else(|_| ReadFile::open(path, page_cache))
    }

    /// Opens the file at `place`, and calls it `path`.
    fn open_at(place: &Path, path: &Path, page_cache: PageCache) -> io::Result<ReadFile> {
        if page_cache == PageCache::Through {
            return ReadFile::through(place, path, None);
        }
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            .open(place);
        let file = match direct {
            Ok(file) => file,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let why = "the file system has no direct reads";
                return ReadFile::through(place, path, Some(why));
            }
            Err(error) => return Err(error),
        };
        let len = length(&file, path)?;
        match reported_alignment(&file).or_else(|| probed_alignment(&file)) {
            Some(alignment) => Ok(ReadFile {
                file,
                path: path.to_owned(),
                len,
                alignment,
                direct: true,
                note: None,
            }),
            None => {
                let why = "the file system has no direct reads at multiples of 4 KiB";
                ReadFile::through(place, path, Some(why))
            }
        }
    }

    /// Opens it for reads through the page cache; `why` is the reason, if there is one.
    fn through(place: &Path, path: &Path, why: Option<&str>) -> io::Result<ReadFile> {
        let file = File::open(place)?;
        let len = length(&file, path)?;
        let note = |why| format!("{} is read through the page cache: {why}", path.display());
        Ok(ReadFile {
            file,
            path: path.to_owned(),
            len,
            alignment: 1,
            direct: false,
            note: why.map(note),
        })
    }

    /// Returns the number of bytes that the file had when it was opened.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns `true` if the file had no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the alignment: offsets, lengths and places in memory of reads are multiples of it, a
    /// power of two of at most 4096; 1 if reads go through the page cache. Other reads end with an
    /// error.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// Returns `true` if reads go past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Returns the reason why reads go through the page cache although they were not to, as text
    /// for the user.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        self.note.clone()
    }

    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Returns the error of a read that has failed, with file and place.
    pub(super) fn explain(&self, error: io::Error, offset: u64, len: usize) -> io::Error {
        let path = self.path.display();
        let aligned =
            offset.is_multiple_of(self.alignment as u64) && len.is_multiple_of(self.alignment);
        let why = match error.raw_os_error() {
            Some(libc::EINVAL) if self.direct && aligned => {
                format!(
                    "{error}; direct reads land at multiples of {}",
                    self.alignment
                )
            }
            Some(libc::EINVAL) if self.direct => {
                format!(
                    "{error}; direct reads lie at multiples of {}",
                    self.alignment
                )
            }
            _ => error.to_string(),
        };
        let what = format!("cannot read {len} bytes at {offset} of {path}: {why}");
        io::Error::new(error.kind(), what)
    }
}

impl AsFd for ReadFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn length(file: &File, path: &Path) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.is_file() {
        return Ok(metadata.len());
    }
    let what = format!("{} is no ordinary file", path.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Returns the alignment that the kernel reports; `None` if it reports none, or one that is too
/// large.
fn reported_alignment(file: &File) -> Option<usize> {
    let wanted = StatxFlags::from_bits_retain(libc::STATX_DIOALIGN);
    let about = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted).ok()?;
    if about.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    let sector = about.stx_dio_offset_align.max(about.stx_dio_mem_align) as usize;
    (sector.is_power_of_two() && sector <= ALIGNMENT).then_some(sector.max(SECTOR))
}

/// Returns the least alignment at which a read works.
fn probed_alignment(file: &File) -> Option<usize> {
    let mut buffer = AlignedBuffer::new(2 * ALIGNMENT);
    let sectors = [SECTOR, 2 * SECTOR, 4 * SECTOR, ALIGNMENT];
    sectors.into_iter().find(|&sector| {
        let part = &mut buffer[sector..2 * sector];
        file.read_at(part, sector as u64).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(dir: &Path, len: usize) -> PathBuf {
        let path = dir.join("f");
        std::fs::write(&path, vec![7; len]).unwrap();
        path
    }

    #[test]
    fn says_how_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = filled(dir.path(), 10_000);
        let file = ReadFile::open(&path, PageCache::Past).unwrap();
        assert_eq!(file.len(), 10_000);
        assert!(!file.is_empty());
        assert_eq!(file.is_direct(), file.note().is_none());
        assert!(file.alignment().is_power_of_two() && file.alignment() <= ALIGNMENT);
        let through = ReadFile::open(&path, PageCache::Through).unwrap();
        assert_eq!((through.alignment(), through.is_direct()), (1, false));
        assert_eq!(through.note(), None, "it was asked for");
    }

    #[test]
    fn what_is_open_is_opened_again_after_it_was_removed() {
        for dir in [std::env::temp_dir(), "/dev/shm".into()] {
            let dir = tempfile::tempdir_in(dir).unwrap();
            let path = filled(dir.path(), 10_000);
            let held = File::open(&path).unwrap();
            let before = ReadFile::open(&path, PageCache::Past).unwrap();
            std::fs::remove_file(&path).unwrap();
            for way in [PageCache::Past, PageCache::Through] {
                let file = ReadFile::open_again(held.as_fd(), &path, way).unwrap();
                assert_eq!((file.len(), &file.path), (10_000, &path));
                let is_direct = way == PageCache::Past && before.is_direct();
                assert_eq!(file.is_direct(), is_direct, "as one that has its name");
                let mut buffer = AlignedBuffer::new(ALIGNMENT);
                assert_eq!(file.file.read_at(&mut buffer, 0).unwrap(), ALIGNMENT);
                assert!(buffer.iter().all(|&byte| byte == 7));
            }
        }
    }

    #[test]
    fn what_it_says_of_its_alignment_is_true() {
        for dir in [std::env::temp_dir(), "/dev/shm".into()] {
            let dir = tempfile::tempdir_in(dir).unwrap();
            let path = filled(dir.path(), 100_000);
            let file = ReadFile::open(&path, PageCache::Past).unwrap();
            let alignment = file.alignment().max(SECTOR);
            let mut buffer = AlignedBuffer::new(2 * ALIGNMENT);
            let part = &mut buffer[alignment..2 * alignment];
            let n = file.file.read_at(part, 3 * alignment as u64).unwrap();
            assert_eq!(n, alignment);
            assert!(part.iter().all(|&byte| byte == 7));
            let probed_alignment = probed_alignment(&file.file).expect("the file can be read");
            assert!(
                probed_alignment <= alignment,
                "{probed_alignment} works, {alignment} was reported"
            );
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for way in [PageCache::Past, PageCache::Through] {
            let missing = ReadFile::open(&dir.path().join("no"), way).unwrap_err();
            assert_eq!(missing.kind(), io::ErrorKind::NotFound);
            let refused = ReadFile::open(dir.path(), way).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
        }
    }
}
