//! The files of a read queue, by their ids.
//!
//! An id is a place in a table, and in its upper bits the number of times that the place was used
//! before, so that the id of a file that was removed is not soon another one's:
//!
//! | bits | meaning |
//! |---|---|
//! | 0…19 | the place |
//! | 20…31 | how many files had it before, modulo 4096 |
//!
//! Invariant: a file stays at its place, and open, while reads of it are under way; each is counted
//! by [`FileTable::begin`] and [`FileTable::end`].

use std::os::fd::RawFd;
use std::sync::Arc;

use super::{FileId, ReadFile};

const PLACE_BITS: u32 = 20;
const PLACES: u32 = 1 << PLACE_BITS;

/// See the [module](self).
#[derive(Default)]
pub(super) struct FileTable {
    places: Vec<FileSlot>,
    free: Vec<u32>,
}

struct FileSlot {
    id: FileId,
    file: Option<Arc<ReadFile>>,
    under_way: u32,
    removed: bool,
}

fn place_of(id: FileId) -> u32 {
    id.0 % PLACES
}

impl FileTable {
    /// Adds a file. Returns its id and its place.
    ///
    /// # Panics
    /// Panics if there are a million already.
    pub(super) fn add(&mut self, file: Arc<ReadFile>) -> (FileId, u32) {
        let index = self.free.pop().unwrap_or_else(|| {
            let place = self.places.len() as u32;
            assert!(place < PLACES, "{PLACES} files are open");
            self.places.push(FileSlot {
                id: FileId(place),
                file: None,
                under_way: 0,
                removed: false,
            });
            place
        });
        let place = &mut self.places[index as usize];
        place.file = Some(file);
        place.removed = false;
        (place.id, index)
    }

    /// Removes a file, now or when no read of it is under way any more. Returns its place if it is
    /// free now.
    pub(super) fn remove(&mut self, id: FileId) -> Option<u32> {
        let index = place_of(id);
        let place = self.places.get_mut(index as usize)?;
        if place.id != id || place.file.is_none() {
            return None;
        }
        place.removed = true;
        self.tidy(index)
    }

    /// Counts a read that begins. Returns the place of the file; `None` if the file was removed.
    pub(super) fn begin(&mut self, id: FileId) -> Option<(u32, RawFd)> {
        let index = place_of(id);
        let place = self.places.get_mut(index as usize)?;
        let file = place.file.as_ref()?;
        if place.id != id || place.removed {
            return None;
        }
        place.under_way += 1;
        Some((index, file.fd()))
    }

    /// Returns `true` if the file was added, and not removed.
    pub(super) fn has(&self, id: FileId) -> bool {
        let place = self.places.get(place_of(id) as usize);
        place.is_some_and(|place| place.id == id && !place.removed && place.file.is_some())
    }

    /// Returns a file of which a read is under way.
    pub(super) fn at(&self, place: u32) -> &Arc<ReadFile> {
        let file = self.places[place as usize].file.as_ref();
        file.expect("it is there while reads are under way")
    }

    /// Counts the end of a read. Returns the place if it is free now, because it was the last read
    /// of a file that was removed.
    pub(super) fn end(&mut self, place: u32) -> Option<u32> {
        self.places[place as usize].under_way -= 1;
        self.tidy(place)
    }

    fn tidy(&mut self, index: u32) -> Option<u32> {
        let place = &mut self.places[index as usize];
        if !place.removed || place.under_way > 0 {
            return None;
        }
        place.file = None;
        place.removed = false;
        place.id = FileId(place.id.0.wrapping_add(PLACES));
        self.free.push(index);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::PageCache;

    #[test]
    fn a_removed_file_stays_until_its_reads_are_over() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let file = Arc::new(ReadFile::open(named.path(), PageCache::Through).unwrap());
        let mut files = FileTable::default();
        let (id, _) = files.add(Arc::clone(&file));
        let (place, _) = files.begin(id).unwrap();
        files.begin(id).unwrap();
        assert_eq!(files.remove(id), None);
        assert!(files.begin(id).is_none(), "no new reads");
        assert_eq!(files.end(place), None);
        assert_eq!(files.at(place).len(), 0);
        assert_eq!(Arc::strong_count(&file), 2);
        assert_eq!(files.end(place), Some(place));
        assert_eq!(Arc::strong_count(&file), 1, "let go");
        let (next, _) = files.add(Arc::clone(&file));
        assert_ne!(next, id);
        assert_eq!(files.remove(id), None, "it is not another one's id");
        assert!(files.begin(next).is_some());
    }
}
