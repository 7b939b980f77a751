//! The files of a journal, and checks that they can belong together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Access, Disk, DiskFile};

use super::base_checkpoint::BaseCheckpoint;
use crate::checkpoint::manifest::LogStart;
use crate::error::RecoverError;
use crate::format::{
    InvalidLogHeader, LogSegmentHeader, SEGMENT_HEADER, SPARE_NAME, VERSION, log_name,
    segment_name, segment_number,
};
use crate::newest_segment;

/// A log's directory.
pub(super) struct LogDirectory {
    pub(super) dir: PathBuf,
    /// By number, without gaps: from 0 on, or from the first that is needed beside a checkpoint.
    pub(super) segments: Vec<SegmentFile>,
    /// A last segment whose creation was not finished.
    pub(super) unstarted: Option<UnstartedSegment>,
    /// Files that are not needed: segments before the checkpoint, a spare.
    pub(super) outdated: Vec<PathBuf>,
}

impl LogDirectory {
    /// Returns the number of the segment that comes next.
    pub(super) fn next_segment(&self) -> u32 {
        let last = self.segments.last();
        last.map_or(0, |last| last.header.segment + 1)
    }
}

/// A segment whose header is sound.
pub(super) struct SegmentFile {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) size: u64,
    pub(super) header: LogSegmentHeader,
    /// `true` if nothing of its log was created after it: it may end in an unfinished write.
    pub(super) is_last: bool,
}

pub(super) struct UnstartedSegment {
    pub(super) path: PathBuf,
    pub(super) size: u64,
}

/// Finds the logs in `dir`, as far as they are needed beside the checkpoint `base`. Entries other
/// than `log<n>` are ignored.
pub(super) fn discover(
    disk: &dyn Disk,
    dir: &Path,
    base: Option<&BaseCheckpoint>,
) -> Result<Vec<LogDirectory>, RecoverError> {
    let entries = match disk.list(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        other => other.map_err(RecoverError::io("list", dir))?,
    };
    let (mut numbers, mut recorded) = (Vec::new(), None);
    for entry in entries {
        let name = entry.name.to_str().unwrap_or_default();
        recorded = recorded.max(newest_segment::log_number(name));
        let number = name
            .strip_prefix("log")
            .and_then(|digits| digits.parse::<usize>().ok());
        let Some(number) = number.filter(|&number| log_name(number) == name) else {
            continue;
        };
        if !entry.is_dir {
            let why = "it is no directory, but has the name of one of the log's".to_owned();
            return Err(RecoverError::Foreign {
                path: dir.join(name),
                why,
            });
        }
        numbers.push(number);
    }
    numbers.sort_unstable();
    no_gap(&numbers, 0, |number| dir.join(log_name(number)))?;
    if let Some(base) = base.filter(|base| base.manifest.logs.len() > numbers.len()) {
        return Err(base.needs(dir.join(log_name(numbers.len()))));
    }
    if let Some(log) = recorded.filter(|log| *log >= numbers.len()) {
        let why = format!("there is a {}", newest_segment::path(dir, log).display());
        let path = dir.join(log_name(numbers.len()));
        return Err(RecoverError::Missing { path, why });
    }
    numbers
        .into_iter()
        .map(|number| discover_log(disk, dir, number, base))
        .collect()
}

/// Compares numbers, which are sorted, with `first`, `first` + 1, …
fn no_gap(
    numbers: &[usize],
    first: usize,
    path: impl Fn(usize) -> PathBuf,
) -> Result<(), RecoverError> {
    for (expected, &number) in (first..).zip(numbers) {
        if number != expected {
            let why = format!("there is a {}", path(number).display());
            return Err(RecoverError::Missing {
                path: path(expected),
                why,
            });
        }
    }
    Ok(())
}

fn discover_log(
    disk: &dyn Disk,
    dir: &Path,
    log: usize,
    base: Option<&BaseCheckpoint>,
) -> Result<LogDirectory, RecoverError> {
    let start = base.and_then(|base| base.manifest.logs.get(log));
    let first = start.map_or(0, |start| start.segment);
    let recorded = newest_segment::read(disk, dir, log)?;
    let record = newest_segment::path(dir, log);
    let dir = dir.join(log_name(log));
    let (mut numbers, mut outdated) = (Vec::new(), Vec::new());
    for entry in disk.list(&dir).map_err(RecoverError::io("list", &dir))? {
        let name = entry.name.to_str().unwrap_or_default();
        // The directory may be the root of a file system of its own.
        if entry.is_dir && name == "lost+found" {
            continue;
        }
        if name == SPARE_NAME && !entry.is_dir {
            outdated.push(dir.join(name));
            continue;
        }
        match segment_number(name).filter(|_| !entry.is_dir) {
            Some(number) if number < first => outdated.push(dir.join(name)),
            Some(number) => numbers.push(number as usize),
            None => {
                let why = "it is no log segment".to_owned();
                return Err(RecoverError::Foreign {
                    path: dir.join(entry.name),
                    why,
                });
            }
        }
    }
    numbers.sort_unstable();
    let path = |number| dir.join(segment_name(number as u32));
    no_gap(&numbers, first as usize, path)?;
    if let Some(base) = base.filter(|_| start.is_some() && numbers.is_empty()) {
        return Err(base.needs(path(first as usize)));
    }
    let last = numbers.last().copied();
    if let Some(recorded) =
        recorded.filter(|&newest| last.is_none_or(|last| last < newest as usize))
    {
        let why = format!("{} names it as the newest segment", record.display());
        let path = path(recorded as usize);
        return Err(RecoverError::Missing { path, why });
    }
    let mut found = LogDirectory {
        dir,
        segments: Vec::new(),
        unstarted: None,
        outdated,
    };
    for &number in &numbers {
        let is_last = Some(number) == last;
        discover_segment(disk, &mut found, log as u32, number as u32, is_last)?;
    }
    let unstarted = found.unstarted.as_ref().zip(recorded);
    if let Some((unstarted, _)) = unstarted.filter(|(_, newest)| last <= Some(*newest as usize)) {
        let record = record.display();
        let what = format!("its header is not valid, and {record} names it as the newest segment");
        return Err(RecoverError::corrupt(&unstarted.path, 0, what));
    }
    if let Some((base, start)) = base.zip(start) {
        check_start(&found, base, *start)?;
    }
    Ok(found)
}

fn discover_segment(
    disk: &dyn Disk,
    to: &mut LogDirectory,
    log: u32,
    number: u32,
    is_last: bool,
) -> Result<(), RecoverError> {
    let path = to.dir.join(segment_name(number));
    let file = disk
        .open(&path, Access::Read)
        .map_err(RecoverError::io("open", &path))?;
    let file: Arc<dyn DiskFile> = Arc::from(file);
    let size = file.size().map_err(RecoverError::io("read", &path))?;
    let mut bytes = [0; SEGMENT_HEADER];
    file.read_at(&mut bytes, 0)
        .map_err(RecoverError::io("read", &path))?;
    let header = match LogSegmentHeader::decode(&bytes) {
        Ok(header) => header,
        Err(InvalidLogHeader::Newer(version)) => {
            return Err(RecoverError::Newer {
                path,
                version,
                supported: VERSION,
            });
        }
        Err(InvalidLogHeader::Damaged) => {
            // No block is written before the header is durable: if nothing is behind it, it may
            // never have been.
            let end = super::walk::data_end(file.as_ref(), SEGMENT_HEADER as u64, size)
                .map_err(RecoverError::io("read", &path))?;
            if is_last && end <= SEGMENT_HEADER as u64 {
                to.unstarted = Some(UnstartedSegment { path, size });
                return Ok(());
            }
            return Err(RecoverError::corrupt(
                &path,
                0,
                "the segment's header is not valid",
            ));
        }
    };
    if (header.log, header.segment) != (log, number) {
        let why = format!("it is segment {} of log {}", header.segment, header.log);
        return Err(RecoverError::Foreign { path, why });
    }
    to.segments.push(SegmentFile {
        path,
        file,
        size,
        header,
        is_last,
    });
    Ok(())
}

/// Checks that the log begins where the manifest says.
fn check_start(
    log: &LogDirectory,
    base: &BaseCheckpoint,
    start: LogStart,
) -> Result<(), RecoverError> {
    let Some(first) = log.segments.first() else {
        // The header was durable before the checkpoint was begun.
        let path = log.dir.join(segment_name(start.segment));
        let what = "the segment's header is not valid";
        return Err(RecoverError::corrupt(&path, 0, what));
    };
    let header = &first.header;
    if (header.run, header.sequence) == (base.manifest.run, start.sequence) {
        return Ok(());
    }
    let what = format!(
        "it begins with block {} of run {}, but the checkpoint {} needs it to begin with block \
         {} of run {}",
        header.sequence,
        header.run,
        base.path.display(),
        start.sequence,
        base.manifest.run
    );
    Err(RecoverError::corrupt(&first.path, 0, what))
}
