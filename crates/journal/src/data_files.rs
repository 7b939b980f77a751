//! The files of a running journal, for backups: which there are, how far they are written, and their
//! bytes.
//!
//! A list of files is passed on as text, one line for each:
//!
//! | line | meaning |
//! |---|---|
//! | `checkpoint` epoch stamp segments | a checkpoint, and for each log, separated by commas, the first segment that is needed beside it. `-`: none |
//! | `file` name bytes identity | a file of the checkpoint before it |
//! | `log` | a log, the next one from log 0 on |
//! | `segment` number name bytes identity | a segment of that log |
//!
//! Names are relative to the journal's directory. A file's *identity* is the salt of the run in which it was
//! made, 16 hexadecimal digits: files of one name and different identities have nothing in common.
//!
//! Invariants:
//! 1. Bytes of a listed file do not change as far as it is listed: those of a segment that is being written are
//!    synced up to there.
//! 2. The logs of a list end where they ended at one moment, as after a crash: no block of it says that an epoch is
//!    durable which another log of it lacks.

use std::fmt::{self, Write as _};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use base::Epoch;
use disk::{Access, Disk};

use crate::checkpoint::RunOrigin;
use crate::checkpoint::file_name::{CheckpointFile, directory};
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::read::find;
use crate::error::RecoverError;
use crate::file_pins::FilePin;
use crate::format::{LogSegmentHeader, SEGMENT_HEADER, log_name, segment_name, segment_number};

/// The name of the directory of checkpoints in the names of files.
const CHECKPOINT: &str = "checkpoint/";

/// The files of a journal; its text is described at the top of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataFiles {
    /// The checkpoints, the newest first.
    pub checkpoints: Vec<CheckpointFiles>,
    /// For each log: its segments, by number and without gaps.
    pub logs: Vec<Vec<DataSegment>>,
}

/// The files of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointFiles {
    /// It holds everything up to this epoch.
    pub epoch: Epoch,
    /// The time of that epoch, milliseconds since the Unix epoch.
    pub stamp_ms: u64,
    /// For each log that there was: the first segment that is needed beside it.
    pub first_segments: Vec<u32>,
    /// Its manifest and its parts.
    pub files: Vec<DataFile>,
}

/// A segment of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataSegment {
    /// Its number.
    pub number: u32,
    /// Its file.
    pub file: DataFile,
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataFile {
    /// Its name, relative to the journal's directory.
    pub name: String,
    /// The bytes that do not change any more.
    pub bytes: u64,
    /// The salt of the run in which it was made.
    pub identity: u64,
}

/// Lists the files of the journal in `dir`. `positions` are those of the logs that are being written: the
/// newest segment, and the bytes that are synced of it.
pub(crate) fn list(
    disk: &dyn Disk,
    dir: &Path,
    positions: &[(u32, u64)],
    origin: &RunOrigin,
) -> Result<DataFiles, RecoverError> {
    let mut files = DataFiles::default();
    for found in find(disk, dir)?.published {
        // One that is damaged is of no use for a backup; a recovery says so.
        if let Ok(manifest) = found.manifest {
            let file = disk
                .open(&found.path, Access::Read)
                .map_err(RecoverError::io("open", &found.path))?;
            let bytes = file.size().map_err(RecoverError::io("read", &found.path))?;
            files.checkpoints.push(checkpoint(&manifest, bytes));
        }
    }
    for log in 0..positions.len() + origin.idle_logs() {
        let end = positions.get(log).copied();
        files.logs.push(list_log(disk, dir, log, end)?);
    }
    Ok(files)
}

fn checkpoint(manifest: &Manifest, manifest_bytes: u64) -> CheckpointFiles {
    let epoch = manifest.view.epoch;
    let file = |name: CheckpointFile, bytes| DataFile {
        name: format!("{CHECKPOINT}{name}"),
        bytes,
        identity: manifest.salt,
    };
    let parts = manifest.parts.iter().zip(0..);
    let parts = parts.map(|(part, number)| file(CheckpointFile::Part(epoch, number), part.bytes));
    let manifest_file = file(CheckpointFile::Manifest(epoch), manifest_bytes);
    CheckpointFiles {
        epoch,
        stamp_ms: manifest.view.stamp_ms,
        first_segments: manifest.logs.iter().map(|start| start.segment).collect(),
        files: [manifest_file].into_iter().chain(parts).collect(),
    }
}

fn list_log(
    disk: &dyn Disk,
    dir: &Path,
    log: usize,
    end: Option<(u32, u64)>,
) -> Result<Vec<DataSegment>, RecoverError> {
    let log_dir = dir.join(log_name(log));
    let entries = disk
        .list(&log_dir)
        .map_err(RecoverError::io("list", &log_dir))?;
    let numbers = entries.iter().filter(|entry| !entry.is_dir);
    let numbers = numbers.filter_map(|entry| segment_number(entry.name.to_str()?));
    // A segment behind the position was begun after that was taken.
    let numbers = numbers.filter(|&number| end.is_none_or(|(newest, _)| number <= newest));
    let segment = |number| {
        let path = log_dir.join(segment_name(number));
        let file = disk
            .open(&path, Access::Read)
            .map_err(RecoverError::io("open", &path))?;
        let bytes = match end {
            Some((newest, bytes)) if number == newest => bytes,
            _ => file.size().map_err(RecoverError::io("read", &path))?,
        };
        let mut header = [0; SEGMENT_HEADER];
        file.read_exact_at(&mut header, 0)
            .map_err(RecoverError::io("read", &path))?;
        let header = LogSegmentHeader::decode(&header)
            .map_err(|_| RecoverError::corrupt(&path, 0, "the segment's header is not valid"))?;
        Ok(DataSegment {
            number,
            file: DataFile {
                name: format!("{}/{}", log_name(log), segment_name(number)),
                bytes,
                identity: header.salt,
            },
        })
    };
    numbers.map(segment).collect()
}

/// Pins all files that are there now: the checkpoints that were published, and all segments. A pin of this
/// name that has not ended goes on and keeps what it had.
pub(crate) fn pin(
    disk: &dyn Disk,
    dir: &Path,
    logs: usize,
    origin: &RunOrigin,
    (name, time): (&str, Duration),
) -> Result<(), RecoverError> {
    let mut pins = origin.pins.lock();
    let checkpoints = find(disk, dir)?.published.into_iter();
    let checkpoints = checkpoints.map(|checkpoint| checkpoint.epoch).collect();
    let mut segments = Vec::new();
    for log in 0..logs + origin.idle_logs() {
        let log_dir = dir.join(log_name(log));
        let entries = disk
            .list(&log_dir)
            .map_err(RecoverError::io("list", &log_dir))?;
        let numbers = entries.iter().filter(|entry| !entry.is_dir);
        let numbers = numbers.filter_map(|entry| segment_number(entry.name.to_str()?));
        segments.push(numbers.min().unwrap_or_default());
    }
    let pin = FilePin {
        checkpoints,
        segments,
        until: Instant::now() + time,
    };
    pins.insert(name, pin);
    Ok(())
}

/// Reads up to `count` bytes of a listed file.
pub(crate) fn read(
    disk: &dyn Disk,
    dir: &Path,
    name: &str,
    offset: u64,
    count: usize,
) -> Result<Vec<u8>, RecoverError> {
    let path = path(dir, name).ok_or_else(|| RecoverError::Foreign {
        path: PathBuf::from(name),
        why: "it has not the name of one of its files".to_owned(),
    })?;
    let file = match disk.open(&path, Access::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let why = "it was removed, because no backup has pinned it any more".to_owned();
            return Err(RecoverError::Missing { path, why });
        }
        other => other.map_err(RecoverError::io("open", &path))?,
    };
    let mut bytes = vec![0; count];
    let read = file
        .read_at(&mut bytes, offset)
        .map_err(RecoverError::io("read", &path))?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Returns the path of a file, if it has the name of a checkpoint's file or of a segment.
fn path(dir: &Path, name: &str) -> Option<PathBuf> {
    if let Some(name) = name.strip_prefix(CHECKPOINT) {
        let file = CheckpointFile::parse(name)?;
        let is_published = !matches!(file, CheckpointFile::Draft(_));
        return is_published.then(|| directory(dir).join(name));
    }
    let (log, segment) = name.split_once('/')?;
    let number: usize = log.strip_prefix("log")?.parse().ok()?;
    segment_number(segment)?;
    (log_name(number) == log).then(|| dir.join(name))
}

impl fmt::Display for DataFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = |f: &mut fmt::Formatter<'_>, file: &DataFile| {
            writeln!(f, "{} {} {:016x}", file.name, file.bytes, file.identity)
        };
        for checkpoint in &self.checkpoints {
            let CheckpointFiles {
                epoch, stamp_ms, ..
            } = checkpoint;
            write!(f, "checkpoint {} {stamp_ms} ", epoch.0)?;
            let mut segments = String::new();
            for segment in &checkpoint.first_segments {
                let comma = if segments.is_empty() { "" } else { "," };
                write!(segments, "{comma}{segment}")?;
            }
            writeln!(f, "{}", if segments.is_empty() { "-" } else { &segments })?;
            for one in &checkpoint.files {
                f.write_str("file ")?;
                file(f, one)?;
            }
        }
        for log in &self.logs {
            writeln!(f, "log")?;
            for segment in log {
                write!(f, "segment {} ", segment.number)?;
                file(f, &segment.file)?;
            }
        }
        Ok(())
    }
}

/// A text is no list of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no list of files")]
pub struct NoFileList;

impl FromStr for DataFiles {
    type Err = NoFileList;

    fn from_str(text: &str) -> Result<DataFiles, NoFileList> {
        let mut files = DataFiles::default();
        for line in text.lines() {
            read_line(&mut files, line).ok_or(NoFileList)?;
        }
        Ok(files)
    }
}

/// Adds what a line says; returns `None` if it says nothing.
fn read_line(files: &mut DataFiles, line: &str) -> Option<()> {
    let words: Vec<&str> = line.split(' ').collect();
    let file = |words: &[&str]| {
        let [name, bytes, identity] = words else {
            return None;
        };
        // The receiver joins names to directories.
        path(Path::new(""), name)?;
        Some(DataFile {
            name: (*name).to_owned(),
            bytes: bytes.parse().ok()?,
            identity: u64::from_str_radix(identity, 16).ok()?,
        })
    };
    match &*words {
        ["checkpoint", epoch, stamp_ms, segments] => {
            let segments = segments.split(',').filter(|segment| *segment != "-");
            let first_segments = segments.map(|segment| segment.parse().ok());
            files.checkpoints.push(CheckpointFiles {
                epoch: Epoch(epoch.parse().ok()?),
                stamp_ms: stamp_ms.parse().ok()?,
                first_segments: first_segments.collect::<Option<_>>()?,
                files: Vec::new(),
            });
        }
        ["file", words @ ..] => files.checkpoints.last_mut()?.files.push(file(words)?),
        ["log"] => files.logs.push(Vec::new()),
        ["segment", number, words @ ..] => files.logs.last_mut()?.push(DataSegment {
            number: number.parse().ok()?,
            file: file(words)?,
        }),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_from_its_text() {
        let file = |name: &str, bytes| DataFile {
            name: name.to_owned(),
            bytes,
            identity: u64::MAX - bytes,
        };
        let manifest = file("checkpoint/00000000000000000007.manifest", 90);
        let part = file("checkpoint/00000000000000000007-000.part", 1 << 40);
        let segment = |number: u32| DataSegment {
            number,
            file: file(&format!("log1/{number:08}.log"), 4096),
        };
        let files = DataFiles {
            checkpoints: vec![
                CheckpointFiles {
                    epoch: Epoch(7),
                    stamp_ms: 1234,
                    first_segments: vec![3, 0],
                    files: vec![manifest, part],
                },
                CheckpointFiles::default(),
            ],
            logs: vec![Vec::new(), vec![segment(3), segment(4)]],
        };
        assert_eq!(files.to_string().parse(), Ok(files));
        assert_eq!("".parse(), Ok(DataFiles::default()));
        for text in [
            "x",
            "file a 1 0",
            "segment 1 log0/00000001.log 1 0",
            "log\nsegment 1 log0/00000001.log 1",
            "log\nsegment 1 ../log0/00000001.log 1 0",
            "log\nsegment 1 /etc/passwd 1 0",
        ] {
            assert_eq!(text.parse::<DataFiles>(), Err(NoFileList), "{text}");
        }
    }

    #[test]
    fn only_files_of_a_journal_have_a_path() {
        let dir = Path::new("/data");
        for name in [
            "log0/00000001.log",
            "checkpoint/00000000000000000007.manifest",
            "checkpoint/00000000000000000007-000.part",
        ] {
            assert_eq!(path(dir, name), Some(dir.join(name)));
        }
        for name in [
            "",
            "OWNER",
            "log0/spare",
            "log00/00000001.log",
            "log0/../log0/00000001.log",
            "checkpoint/../OWNER",
            "checkpoint/00000000000000000007.manifest.new",
            "/log0/00000001.log",
        ] {
            assert_eq!(path(dir, name), None, "{name}");
        }
    }
}
