//! Files of tables, and their names.
//!
//! A storage node's directories are a *set*; the first of them has the manifests.
//!
//! | name | where | what it is |
//! |---|---|---|
//! | `kumiki-pages` | in each | tells the set, and the directory's place in it |
//! | *table*`.table` | in the first | the manifest of the table's newest version |
//! | *segment*`.pages` | in the first | the directory of the segment's pages |
//! | *segment*`.0`, *segment*`.1`, … | `.0` in the first, others in any | pages: page *n* of a segment of *s* stripes is in the file *n* mod *s*, at *n* ÷ *s* pages |
//! | …`.new` | in any | what is being written: of no use after a crash |
//!
//! A segment's name is its id, in 32 hexadecimal digits.
//!
//! `kumiki-pages`, 36 bytes:
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `KUMIKIPS` |
//! | 8 | 4 | format | version of this format: 1 |
//! | 12 | 4 | checksum | CRC-32C of everything behind it |
//! | 16 | 16 | set | which set, at random |
//! | 32 | 4 | place | of the directory in the set, from 0 |

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::reads::{PageCache, ReadFile};
use disk::{Access, Disk, DiskFile};
use parking_lot::Mutex;

use base::codec::{put_at, u32_at, u128_at};

use crate::error::{At, Error};
use crate::table::{PageAddress, PageNo, PageSize, SegmentId, TableId};

pub(crate) const MARKER: &str = "kumiki-pages";
const MARKER_BYTES: usize = 36;
const MAGIC: &[u8; 8] = b"KUMIKIPS";
const FORMAT: u32 = 1;

/// The meaning of a file's name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    Manifest(String),
    Directory(SegmentId),
    Stripe(SegmentId, u16),
    New,
}

impl Name {
    /// Parses a name; `None` for the names of other files.
    pub(crate) fn parse(name: &str) -> Option<Name> {
        let (stem, end) = name.rsplit_once('.')?;
        if end == "new" {
            let ours = stem == MARKER || Name::parse(stem).is_some();
            return ours.then_some(Name::New);
        }
        if end == "table" {
            return crate::table::is_name(stem).then(|| Name::Manifest(stem.to_owned()));
        }
        let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let id = (stem.len() == 32 && stem.bytes().all(lower)).then_some(stem)?;
        let id = SegmentId(u128::from_str_radix(id, 16).ok()?);
        match end {
            "pages" => Some(Name::Directory(id)),
            stripe => Some(Name::Stripe(id, stripe.parse().ok()?)),
        }
    }
}

pub(crate) fn manifest_name(table: &str) -> String {
    format!("{table}.table")
}

pub(crate) fn directory_name(id: SegmentId) -> String {
    format!("{id:?}.pages")
}

pub(crate) fn stripe_name(id: SegmentId, stripe: u16) -> String {
    format!("{id:?}.{stripe}")
}

/// Returns the set of a directory, and its place there; `None` if it is in no set yet.
pub(crate) fn read_marker(disk: &dyn Disk, dir: &Path) -> Result<Option<(u128, u32)>, Error> {
    let path = dir.join(MARKER);
    let bytes = match read_file(disk, &path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).at("read", &path),
    };
    let right = bytes.len() == MARKER_BYTES
        && &bytes[..8] == MAGIC
        && u32_at(&bytes, 8) == FORMAT
        && u32_at(&bytes, 12) == crc32c::crc32c(&bytes[16..]);
    let wrong = || Error::Damaged {
        name: path.display().to_string(),
        what: "it is none of this program's, or damaged".to_owned(),
    };
    right
        .then(|| Some((u128_at(&bytes, 16), u32_at(&bytes, 32))))
        .ok_or_else(wrong)
}

pub(crate) fn write_marker(
    disk: &dyn Disk,
    dir: &Path,
    set: u128,
    place: u32,
) -> Result<(), Error> {
    let mut bytes = [0; MARKER_BYTES];
    put_at(&mut bytes, 0, MAGIC);
    put_at(&mut bytes, 8, &FORMAT.to_le_bytes());
    put_at(&mut bytes, 16, &set.to_le_bytes());
    put_at(&mut bytes, 32, &place.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[16..]);
    put_at(&mut bytes, 12, &checksum.to_le_bytes());
    let path = dir.join(MARKER);
    let new = write_new(disk, &path, &bytes)?;
    disk.rename(&new, &path).at("rename", &new)?;
    disk.sync_dir(dir).at("sync", dir)
}

/// Returns the number of a new set.
pub(crate) fn new_set() -> u128 {
    TableId::new().0
}

/// Writes a file beside the one of this path, synced, which is then renamed.
pub(crate) fn write_new(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<PathBuf, Error> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    match disk.remove(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).at("remove", &new);
        }
        _ => {}
    }
    let file = disk.create_new(&new).at("create", &new)?;
    let written = file.write_and_sync(&[IoSlice::new(bytes)], 0);
    written.at("write", &new)?;
    Ok(new)
}

pub(crate) fn read_file(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Access::Read)?;
    let mut bytes = vec![0; usize::try_from(file.size()?).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The place of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// The place among the segment's files.
    pub stripe: usize,
    /// The byte at which it begins.
    pub offset: u64,
}

impl Location {
    /// Returns the place of a page of a segment that is spread over so many files.
    #[must_use]
    pub fn of(page: PageNo, stripes: u16, size: PageSize) -> Location {
        let (page, stripes) = (u64::from(page.0), u64::from(stripes));
        Location {
            stripe: (page % stripes) as usize,
            offset: page / stripes * size.bytes() as u64,
        }
    }

    /// Returns the length of a stripe's file, with all of the segment's pages.
    pub(crate) fn length(stripe: u16, pages: u32, stripes: u16, size: PageSize) -> u64 {
        let behind = u64::from(pages).saturating_sub(stripe.into());
        behind.div_ceil(stripes.into()) * size.bytes() as u64
    }
}

/// A segment's open files. They are removed when the segment is part of no version any more, and the
/// last user drops them.
pub struct SegmentFiles {
    id: SegmentId,
    page_size: PageSize,
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    paths: Vec<PathBuf>,
    files: Vec<Box<dyn DiskFile>>,
    doomed: AtomicBool,
    /// The files for many reads at once, past the page cache and through it.
    read_files: [Mutex<Option<ReadFiles>>; 2],
}

/// A segment's files, stripe by stripe, open for many reads at once.
pub type ReadFiles = Arc<[Arc<ReadFile>]>;

impl SegmentFiles {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        id: SegmentId,
        page_size: PageSize,
        directory: PathBuf,
        stripes: Vec<(PathBuf, Box<dyn DiskFile>)>,
    ) -> SegmentFiles {
        let (paths, files) = stripes.into_iter().unzip();
        SegmentFiles {
            id,
            page_size,
            disk,
            directory,
            paths,
            files,
            doomed: AtomicBool::new(false),
            read_files: Default::default(),
        }
    }

    /// Returns the segment's id.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// Returns the size of a page.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Returns the paths of the files, stripe by stripe, which exist as long as this is not dropped.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns the place of one of its pages.
    #[must_use]
    pub fn location(&self, page: PageNo) -> Location {
        Location::of(page, self.files.len() as u16, self.page_size)
    }

    /// Returns the files, open for many reads at once. They are opened on the first call, and kept.
    /// Another process may have removed their names by then, as those of a version that it has
    /// replaced: so they are opened by the open files of this process. On a disk without files of the
    /// operating system, they are opened by their names.
    ///
    /// # Errors
    /// Returns the error of the operating system; it names the file.
    pub fn read_files(&self, page_cache: PageCache) -> Result<ReadFiles, Error> {
        let place = match page_cache {
            PageCache::Past => 0,
            PageCache::Through => 1,
        };
        let mut kept = self.read_files[place].lock();
        if let Some(files) = &*kept {
            return Ok(Arc::clone(files));
        }
        let open = |(stripe, path): (usize, &PathBuf)| {
            let file = match self.file(stripe).fd() {
                Some(held) => ReadFile::open_again(held, path, page_cache),
                None => ReadFile::open(path, page_cache),
            };
            let file = file.at("open", path)?;
            if let Some(note) = file.note() {
                tracing::debug!(note, "reading pages");
            }
            Ok(Arc::new(file))
        };
        let stripes = self.paths.iter().enumerate();
        let files: ReadFiles = stripes.map(open).collect::<Result<_, Error>>()?;
        *kept = Some(Arc::clone(&files));
        Ok(files)
    }

    /// Reads pages that follow one another in a file: `into` has room for them.
    ///
    /// # Errors
    /// Returns the error of the operating system; `UnexpectedEof` if the pages do not exist.
    pub fn read(&self, first: PageNo, into: &mut [u8]) -> io::Result<()> {
        let Location { stripe, offset } = self.location(first);
        self.files[stripe].read_exact_at(into, offset)
    }

    pub(crate) fn file(&self, stripe: usize) -> &dyn DiskFile {
        &*self.files[stripe]
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Marks the files for removal: no version has the segment any more, and none will.
    pub(crate) fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
    }

    /// Returns the address of one of its pages.
    #[must_use]
    pub fn address(&self, page: PageNo) -> PageAddress {
        PageAddress {
            segment: self.id,
            page,
        }
    }
}

impl Drop for SegmentFiles {
    fn drop(&mut self) {
        if !self.doomed.load(Ordering::Acquire) {
            return;
        }
        for path in self.paths.iter().chain([&self.directory]) {
            match self.disk.remove(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    // The next start removes it.
                    tracing::warn!("cannot remove {}: {error}", path.display());
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let id = SegmentId(0xabc);
        let cases = [
            (directory_name(id), Some(Name::Directory(id))),
            (stripe_name(id, 3), Some(Name::Stripe(id, 3))),
            (manifest_name("t_1"), Some(Name::Manifest("t_1".to_owned()))),
            ("t.table.new".to_owned(), Some(Name::New)),
            ("kumiki-pages.new".to_owned(), Some(Name::New)),
            ("others.new".to_owned(), None),
            ("a b.table".to_owned(), None),
            ("abc.pages".to_owned(), None),
            (MARKER.to_owned(), None),
            ("+".repeat(32) + ".0", None),
        ];
        for (name, expected) in cases {
            assert_eq!(Name::parse(&name), expected, "{name}");
        }
    }

    #[test]
    fn pages_have_places_of_their_own() {
        let size = PageSize::ALL[0];
        for stripes in 1..5 {
            for pages in 0..20_u32 {
                let mut lengths = vec![0; stripes.into()];
                for page in 0..pages {
                    let Location { stripe, offset } = Location::of(PageNo(page), stripes, size);
                    assert_eq!(offset, lengths[stripe], "without gaps");
                    lengths[stripe] += 4096;
                }
                for (stripe, length) in lengths.into_iter().enumerate() {
                    let stripe = stripe as u16;
                    assert_eq!(Location::length(stripe, pages, stripes, size), length);
                }
            }
        }
    }
}
