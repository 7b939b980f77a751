//! Finds and reads checkpoints.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Epoch;
use disk::{Access, Disk, DiskFile};

use super::file_name::{CheckpointFile, directory};
use super::manifest::{BadManifest, LARGEST, Manifest, VERSION};
use super::part::{BLOCK_HEADER, CheckpointPart, HEADER, PartBlockHeader, decode_header, seed};
use super::view::CheckpointView;
use crate::entry::{self, Entry};
use crate::error::RecoverError;

/// The contents of the directory of checkpoints.
#[derive(Default)]
pub(crate) struct CheckpointListing {
    /// Checkpoints that were published, the newest first.
    pub(crate) published: Vec<CheckpointCandidate>,
    /// The files that are there.
    pub(crate) names: Vec<CheckpointFile>,
}

/// A checkpoint that may be the one to use.
pub(crate) struct CheckpointCandidate {
    pub(crate) path: PathBuf,
    pub(crate) epoch: Epoch,
    /// The manifest, or the reason why it cannot be used.
    pub(crate) manifest: Result<Manifest, RecoverError>,
}

/// Finds the checkpoints of the journal in `dir`.
pub(crate) fn find(disk: &dyn Disk, dir: &Path) -> Result<CheckpointListing, RecoverError> {
    let directory = directory(dir);
    let entries = match disk.list(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(CheckpointListing::default());
        }
        other => other.map_err(RecoverError::io("list", &directory))?,
    };
    let files = entries.iter().filter(|entry| !entry.is_dir);
    let mut found = CheckpointListing {
        names: files
            .filter_map(|entry| CheckpointFile::parse(entry.name.to_str()?))
            .collect(),
        ..CheckpointListing::default()
    };
    for &name in found.names.iter().rev() {
        if let CheckpointFile::Manifest(epoch) = name {
            let path = directory.join(name.to_string());
            let manifest = match read_manifest(disk, &path, epoch) {
                Err(error @ (RecoverError::Io { .. } | RecoverError::Newer { .. })) => {
                    return Err(error);
                }
                other => other,
            };
            found.published.push(CheckpointCandidate {
                path,
                epoch,
                manifest,
            });
        }
    }
    Ok(found)
}

fn read_manifest(disk: &dyn Disk, path: &Path, epoch: Epoch) -> Result<Manifest, RecoverError> {
    let file = disk
        .open(path, Access::Read)
        .map_err(RecoverError::io("open", path))?;
    let size = file.size().map_err(RecoverError::io("read", path))?;
    let mut bytes = vec![0; size.min(LARGEST + 1) as usize];
    file.read_exact_at(&mut bytes, 0)
        .map_err(RecoverError::io("read", path))?;
    let manifest = Manifest::decode(&bytes).map_err(|bad| match bad {
        BadManifest::Damaged(at, what) => RecoverError::corrupt(path, at, what),
        BadManifest::Newer(version) => RecoverError::Newer {
            path: path.to_owned(),
            version,
            supported: VERSION,
        },
    })?;
    if manifest.view.epoch != epoch {
        let what = format!("it is of epoch {}, not of its name's", manifest.view.epoch);
        return Err(RecoverError::corrupt(path, 16, what));
    }
    Ok(manifest)
}

/// A part that exists, as long as the manifest says, with a sound header.
pub(crate) struct PartFile {
    pub(crate) path: PathBuf,
    file: Arc<dyn DiskFile>,
    part: CheckpointPart,
    seed: u32,
    first: u64,
}

/// Opens the parts of a checkpoint.
pub(crate) fn open_parts(
    disk: &dyn Disk,
    dir: &Path,
    manifest: &Manifest,
) -> Result<Vec<PartFile>, RecoverError> {
    let directory = directory(dir);
    let epoch = manifest.view.epoch;
    let open = |(number, &part): (usize, &CheckpointPart)| {
        let number = number as u32;
        let path = directory.join(CheckpointFile::Part(epoch, number).to_string());
        let file: Arc<dyn DiskFile> = match disk.open(&path, Access::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let why = format!("it belongs to {}", CheckpointFile::Manifest(epoch));
                return Err(RecoverError::Missing { path, why });
            }
            other => Arc::from(other.map_err(RecoverError::io("open", &path))?),
        };
        let size = file.size().map_err(RecoverError::io("read", &path))?;
        let mut bytes = [0; HEADER];
        file.read_at(&mut bytes, 0)
            .map_err(RecoverError::io("read", &path))?;
        let first = match decode_header(&bytes, epoch, number) {
            _ if size != part.bytes => {
                let what = format!("it has {size} bytes instead of {}", part.bytes);
                return Err(RecoverError::corrupt(&path, size.min(part.bytes), what));
            }
            None => {
                let what = "the header of a part is not valid";
                return Err(RecoverError::corrupt(&path, 0, what));
            }
            Some(first) => u64::from(first),
        };
        Ok(PartFile {
            path,
            file,
            part,
            seed: seed(manifest.salt, epoch, number),
            first,
        })
    };
    manifest.parts.iter().enumerate().map(open).collect()
}

/// Walks through a part from block to block.
#[derive(Default)]
pub(crate) struct PartWalker {
    /// The blocks seen so far, in the form of the manifest's description.
    seen: CheckpointPart,
}

/// A block of a part.
#[derive(Clone, Copy)]
pub(crate) struct PartBlock {
    at: u64,
    header: PartBlockHeader,
}

impl PartBlock {
    /// Returns the bytes of the block.
    pub(crate) fn size(&self) -> u64 {
        self.header.size()
    }
}

impl PartWalker {
    /// Returns the next block, or `None` at the end, where everything must be as the manifest says.
    pub(crate) fn next(&mut self, file: &PartFile) -> Result<Option<PartBlock>, RecoverError> {
        let at = self.seen.bytes.max(file.first);
        let corrupt = |what: &str| Err(RecoverError::corrupt(&file.path, at, what));
        if at >= file.part.bytes {
            self.seen.bytes = at;
            if self.seen != file.part {
                return corrupt("its blocks are not those that its manifest counts");
            }
            return Ok(None);
        }
        let mut bytes = [0; BLOCK_HEADER];
        file.file
            .read_at(&mut bytes, at)
            .map_err(RecoverError::io("read", &file.path))?;
        let Some(header) = PartBlockHeader::decode(&bytes, file.seed) else {
            return corrupt("the header of a block is not valid");
        };
        if header.number != self.seen.blocks {
            return corrupt("a block is not the one that follows");
        }
        if header.size() > file.part.bytes - at {
            return corrupt("a block is cut off");
        }
        self.seen = CheckpointPart {
            bytes: at + header.size(),
            entries: self.seen.entries + u64::from(header.entries),
            blocks: self.seen.blocks + 1,
            chain: crc32c::crc32c_append(self.seen.chain, &bytes),
        };
        Ok(Some(PartBlock { at, header }))
    }
}

impl PartFile {
    /// Passes the entries of `block` to `apply`, and returns their number.
    pub(crate) fn apply(
        &self,
        block: PartBlock,
        view: &CheckpointView,
        buf: &mut Vec<u8>,
        apply: &(dyn Fn(Entry<'_>) + Sync),
    ) -> Result<u64, RecoverError> {
        let at = block.at + BLOCK_HEADER as u64;
        let corrupt = |what: &str| RecoverError::corrupt(&self.path, block.at, what);
        buf.resize(block.header.length as usize, 0);
        self.file
            .read_exact_at(buf, at)
            .map_err(RecoverError::io("read", &self.path))?;
        if crc32c::crc32c_append(self.seed, buf) != block.header.payload_checksum {
            return Err(corrupt("a block's payload does not match its checksum"));
        }
        let entries = entry::decode_keys(buf, view, apply)
            .map_err(|(at, what)| corrupt(&format!("{what}, at byte {at} of a payload")))?;
        if entries != u64::from(block.header.entries) {
            return Err(corrupt("a block does not hold as many entries as it says"));
        }
        Ok(entries)
    }
}
