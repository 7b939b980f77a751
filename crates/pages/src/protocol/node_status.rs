//! How busy a node is.
//!
//! In bytes: eight numbers of 8 bytes in the order of the fields, little-endian; the costs of tasks are in
//! picoseconds.

use crate::task::WorkTimes;
use std::time::Duration;

use base::codec::{Malformed, Reader, put_u64};

/// How busy a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeStatus {
    /// Pages that all readers have requested and that are not read yet.
    pub waiting: u64,
    /// The time of a recent read; zero if none was timed.
    pub read: Duration,
    /// Tasks that run or wait.
    pub tasks: u64,
    /// Threads that run tasks.
    pub task_threads: u64,
    /// Readers that are connected.
    pub readers: u64,
    /// The recent costs of tasks for its threads.
    pub work: WorkTimes,
}

impl NodeStatus {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let read = u64::try_from(self.read.as_nanos()).unwrap_or(u64::MAX);
        let mut out = Vec::new();
        for number in [
            self.waiting,
            read,
            self.tasks,
            self.task_threads,
            self.readers,
            self.work.operation_ps,
            self.work.page_ps,
            self.work.wait_ps,
        ] {
            put_u64(&mut out, number);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<NodeStatus, Malformed> {
        let mut reader = Reader::new(bytes);
        let status = NodeStatus {
            waiting: reader.u64()?,
            read: Duration::from_nanos(reader.u64()?),
            tasks: reader.u64()?,
            task_threads: reader.u64()?,
            readers: reader.u64()?,
            work: WorkTimes {
                operation_ps: reader.u64()?,
                page_ps: reader.u64()?,
                wait_ps: reader.u64()?,
            },
        };
        reader.end()?;
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_decoded_as_it_was_encoded() {
        let status = NodeStatus {
            waiting: 1,
            read: Duration::from_micros(80),
            tasks: 2,
            task_threads: 3,
            readers: 4,
            work: WorkTimes {
                operation_ps: 800,
                page_ps: 7_000_000,
                wait_ps: 30_000_000,
            },
        };
        assert_eq!(NodeStatus::decode(&status.encode()), Ok(status));
        assert!(NodeStatus::decode(&[1; 63]).is_err());
    }
}
