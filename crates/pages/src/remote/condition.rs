//! The tables that a node has, and how busy it is.
//!
//! A table in a list, in bytes: name (a count and bytes); then 1, id (16), version (8), rows (8), pages (8),
//! bytes of a page (4), or 0 and what is wrong with it (a count and bytes). A condition: eight numbers of 8
//! bytes in the order of its fields; the costs of tasks are in picoseconds. All numbers are little-endian;
//! see [`base::codec`] for counts.

use std::sync::atomic::Ordering;
use std::time::Duration;

use base::codec::{Malformed, MalformedKind, Reader, put_bytes, put_count, put_u64};

use crate::node::Figures;
use crate::table::{Table, TableId, Version};
use crate::task::WorkTimes;

/// A table that a node has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its newest version; for a damaged table, the damage.
    pub found: Result<Newest, String>,
}

/// The newest version of a table that a node has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Newest {
    /// The table.
    pub id: TableId,
    /// The version.
    pub version: Version,
    /// The number of rows.
    pub rows: u64,
    /// The number of pages.
    pub pages: u64,
    /// Bytes of a page.
    pub page_size: u32,
}

impl Newest {
    /// Returns the newest version of a table.
    #[must_use]
    pub fn of(table: &Table) -> Newest {
        Newest {
            id: table.id,
            version: table.version,
            rows: table.rows(),
            pages: table.pages(),
            page_size: table.page_size.bytes() as u32,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.id.0.to_le_bytes());
        for number in [self.version.0, self.rows, self.pages] {
            put_u64(out, number);
        }
        out.extend(self.page_size.to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Newest, Malformed> {
        Ok(Newest {
            id: TableId(u128::from_le_bytes(reader.array()?)),
            version: Version(reader.u64()?),
            rows: reader.u64()?,
            pages: reader.u64()?,
            page_size: reader.u32()?,
        })
    }
}

impl Listed {
    /// Returns a list as bytes.
    #[must_use]
    pub fn encode(all: &[Listed]) -> Vec<u8> {
        let mut out = Vec::new();
        put_count(&mut out, all.len() as u64);
        for listed in all {
            put_bytes(&mut out, listed.name.as_bytes());
            out.push(u8::from(listed.found.is_ok()));
            match &listed.found {
                Ok(newest) => newest.encode(&mut out),
                Err(damage) => put_bytes(&mut out, damage.as_bytes()),
            }
        }
        out
    }

    /// Decodes a list.
    ///
    /// # Errors
    /// Returns an error if the bytes are no list.
    pub fn decode(bytes: &[u8]) -> Result<Vec<Listed>, Malformed> {
        let mut reader = Reader::new(bytes);
        let count = reader.count()?;
        let mut all = Vec::new();
        for _ in 0..count {
            let name = reader.text()?.to_owned();
            let found = match reader.u8()? {
                0 => Err(reader.text()?.to_owned()),
                1 => Ok(Newest::decode(&mut reader)?),
                other => return Err(reader.malformed(MalformedKind::Kind(other, "table"))),
            };
            all.push(Listed { name, found });
        }
        reader.end()?;
        Ok(all)
    }
}

/// How busy a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Condition {
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

impl Condition {
    pub(crate) fn of(figures: &Figures, task_threads: usize, work: WorkTimes) -> Condition {
        let load = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
        Condition {
            waiting: load(&figures.waiting),
            read: Duration::from_nanos(load(&figures.read_ns)),
            tasks: load(&figures.tasks_under_way),
            task_threads: task_threads as u64,
            readers: load(&figures.readers),
            work,
        }
    }

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

    pub(crate) fn decode(bytes: &[u8]) -> Result<Condition, Malformed> {
        let mut reader = Reader::new(bytes);
        let condition = Condition {
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
        Ok(condition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_conditions_travel() {
        let newest = Newest {
            id: TableId(7 << 100),
            version: Version(3),
            rows: 6_001_215,
            pages: 99,
            page_size: 131_072,
        };
        let listed = |name: &str, found| Listed {
            name: name.to_owned(),
            found,
        };
        let damage = "a file of it is gone".to_owned();
        let two = vec![
            listed("lineitem", Ok(newest)),
            listed("orders", Err(damage)),
        ];
        for all in [vec![], two] {
            let bytes = Listed::encode(&all);
            assert_eq!(Listed::decode(&bytes), Ok(all));
            assert!(Listed::decode(&bytes[..bytes.len() - 1]).is_err());
        }
        let condition = Condition {
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
        assert_eq!(Condition::decode(&condition.encode()), Ok(condition));
        assert!(Condition::decode(&[1; 63]).is_err());
    }
}
