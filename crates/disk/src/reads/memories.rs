//! The memory that a ring has registered, found by address.
//!
//! The kernel takes at most 1 GiB as one buffer, so that larger memory is several. A landing that
//! lies across two of them is in neither.

use std::sync::Arc;

use super::{Memory, Registered};

/// Most bytes of a buffer.
const PIECE: usize = 1 << 30;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Memories {
    /// In no order: there are only a few.
    buffers: Vec<Buffer>,
    /// The place where the last one was found.
    last: usize,
    memories: Vec<(Registered, Arc<dyn Memory>)>,
    next: u32,
}

/// A part of memory that the kernel has as one buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Buffer {
    pub(super) start: usize,
    pub(super) len: usize,
    /// Its place in the kernel's table.
    pub(super) index: u16,
    of: Registered,
}

impl Buffer {
    fn has(&self, start: usize, len: usize) -> bool {
        start >= self.start
            && start - self.start <= self.len
            && len <= self.len - (start - self.start)
    }
}

impl Memories {
    /// Returns the buffers that a memory would be, at places that are free. `None` if there are not
    /// enough of `places`.
    pub(super) fn plan(&self, memory: &dyn Memory, places: u16) -> Option<Vec<Buffer>> {
        let range = memory.range();
        let mut free = (0..places).filter(|place| self.buffers.iter().all(|b| b.index != *place));
        let of = Registered(self.next);
        let pieces = (0..range.len()).step_by(PIECE);
        let buffer = |at: usize| {
            Some(Buffer {
                start: range.as_ptr().cast::<u8>() as usize + at,
                len: (range.len() - at).min(PIECE),
                index: free.next()?,
                of,
            })
        };
        pieces.map(buffer).collect()
    }

    /// Adds the buffers of a plan, which the kernel has taken.
    pub(super) fn add(&mut self, plan: Vec<Buffer>, memory: Arc<dyn Memory>) -> Registered {
        let of = Registered(self.next);
        self.next += 1;
        self.buffers.extend(plan);
        self.memories.push((of, memory));
        of
    }

    /// Removes a memory. Returns the buffers that it was.
    ///
    /// # Panics
    /// Panics if there is none of that name.
    pub(super) fn remove(&mut self, name: Registered) -> (Vec<Buffer>, Arc<dyn Memory>) {
        let place = self.memories.iter().position(|(of, _)| *of == name);
        let place = place.unwrap_or_else(|| panic!("{name:?} is not registered"));
        let removed = self.buffers.extract_if(.., |buffer| buffer.of == name);
        let removed = removed.collect();
        self.last = 0;
        (removed, self.memories.swap_remove(place).1)
    }

    /// Returns the place of the buffer in which a part of memory lies.
    pub(super) fn find(&mut self, start: usize, len: usize) -> Option<u16> {
        let last = self.buffers.get(self.last)?;
        if last.has(start, len) {
            return Some(last.index);
        }
        self.last = self
            .buffers
            .iter()
            .position(|b| b.has(start, len))
            .unwrap_or(0);
        let found = &self.buffers[self.last];
        found.has(start, len).then_some(found.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::Pool;

    #[test]
    fn memory_is_found_by_address() {
        let pools = [Pool::new(4, 4096).unwrap(), Pool::new(2, 512).unwrap()];
        let mut memories = Memories::default();
        let names = pools.each_ref().map(|pool| {
            let plan = memories.plan(&*pool.memory(), 2).unwrap();
            memories.add(plan, pool.memory())
        });
        assert!(memories.plan(&*pools[0].memory(), 2).is_none(), "full");
        let start = |pool: &Pool| pool.memory().range().as_ptr().cast::<u8>() as usize;
        let [first, second] = pools.each_ref().map(start);
        assert_eq!(memories.find(first, 4096), Some(0));
        assert_eq!(memories.find(first + 4 * 4096 - 1, 1), Some(0));
        assert_eq!(memories.find(first + 4 * 4096 - 1, 2), None);
        assert_eq!(memories.find(second, 1024), Some(1));
        assert_eq!(memories.find(second, 1025), None);
        assert_eq!(memories.find(8, 8), None);
        let (removed, _) = memories.remove(names[0]);
        assert_eq!(removed.len(), 1);
        assert_eq!(memories.find(first, 4096), None);
        assert_eq!(memories.find(second, 512), Some(1));
        let plan = memories.plan(&*pools[0].memory(), 2).unwrap();
        assert_eq!(plan[0].index, 0, "the place is free again");
    }
}
