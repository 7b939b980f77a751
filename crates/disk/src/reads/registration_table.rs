//! The memory that a ring has registered, found by address.
//!
//! The kernel takes at most 1 GiB as one buffer, so that larger memory is several. A read buffer that
//! lies across two of them is in neither.

use std::sync::Arc;

use super::{RegistrableMemory, RegistrationId};

/// Most bytes of a buffer.
const MAX_BUFFER: usize = 1 << 30;

/// See the [module](self).
#[derive(Default)]
pub(super) struct RegistrationTable {
    /// In no order: there are only a few.
    buffers: Vec<RegisteredBuffer>,
    /// The place where the last one was found.
    last: usize,
    memories: Vec<(RegistrationId, Arc<dyn RegistrableMemory>)>,
    next: u32,
}

/// A part of memory that the kernel has as one buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RegisteredBuffer {
    pub(super) start: usize,
    pub(super) len: usize,
    /// Its place in the kernel's table.
    pub(super) index: u16,
    of: RegistrationId,
}

impl RegisteredBuffer {
    fn contains(&self, start: usize, len: usize) -> bool {
        start >= self.start
            && start - self.start <= self.len
            && len <= self.len - (start - self.start)
    }
}

impl RegistrationTable {
    /// Returns the buffers that a memory would be, at places that are free. `None` if there are not
    /// enough of `places`.
    pub(super) fn plan(
        &self,
        memory: &dyn RegistrableMemory,
        places: u16,
    ) -> Option<Vec<RegisteredBuffer>> {
        let range = memory.range();
        let mut free = (0..places).filter(|place| self.buffers.iter().all(|b| b.index != *place));
        let of = RegistrationId(self.next);
        let pieces = (0..range.len()).step_by(MAX_BUFFER);
        let buffer = |at: usize| {
            Some(RegisteredBuffer {
                start: range.as_ptr().cast::<u8>() as usize + at,
                len: (range.len() - at).min(MAX_BUFFER),
                index: free.next()?,
                of,
            })
        };
        pieces.map(buffer).collect()
    }

    /// Adds the buffers of a plan, which the kernel has taken.
    pub(super) fn add(
        &mut self,
        plan: Vec<RegisteredBuffer>,
        memory: Arc<dyn RegistrableMemory>,
    ) -> RegistrationId {
        let of = RegistrationId(self.next);
        self.next += 1;
        self.buffers.extend(plan);
        self.memories.push((of, memory));
        of
    }

    /// Removes a memory. Returns the buffers that it was.
    ///
    /// # Panics
    /// Panics if there is none of that name.
    pub(super) fn remove(
        &mut self,
        name: RegistrationId,
    ) -> (Vec<RegisteredBuffer>, Arc<dyn RegistrableMemory>) {
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
        if last.contains(start, len) {
            return Some(last.index);
        }
        self.last = self
            .buffers
            .iter()
            .position(|b| b.contains(start, len))
            .unwrap_or(0);
        let found = &self.buffers[self.last];
        found.contains(start, len).then_some(found.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::BufferPool;

    #[test]
    fn memory_is_found_by_address() {
        let pools = [
            BufferPool::new(4, 4096).unwrap(),
            BufferPool::new(2, 512).unwrap(),
        ];
        let mut memories = RegistrationTable::default();
        let names = pools.each_ref().map(|pool| {
            let plan = memories.plan(&*pool.memory(), 2).unwrap();
            memories.add(plan, pool.memory())
        });
        assert!(memories.plan(&*pools[0].memory(), 2).is_none(), "full");
        let start = |pool: &BufferPool| pool.memory().range().as_ptr().cast::<u8>() as usize;
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
