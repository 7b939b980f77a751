//! Memory of a reader loop for pages.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;

use disk::reads::{BufferPool, PooledBuffer, ReadQueue};

use super::read_target::ReadTarget;

/// About how many bytes the buffers of one size take.
const BUFFERS: usize = 16 << 20;
/// Memory for pages that are sent from here, by their size.
#[derive(Default)]
pub(super) struct PageBuffers(HashMap<usize, BufferPool>);

impl PageBuffers {
    pub(super) fn take(
        &mut self,
        unit: usize,
        reads: &mut dyn ReadQueue<ReadTarget>,
    ) -> io::Result<Option<PooledBuffer>> {
        let pool = match self.0.entry(unit) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
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
