//! A checkpoint that is being made.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use disk::Disk;

use super::file_name::{CheckpointFile, directory};
use super::manifest::{LogStart, Manifest};
use super::origin::RunOrigin;
use super::part::{CheckpointPart, PartWriter};
use super::remove;
use super::view::CheckpointView;
use crate::error::{CheckpointError, lacks_descriptor};
use crate::file_pins::FilePins;

/// A checkpoint that is being made (the module describes the steps). If it is dropped before it was
/// published, its files are removed.
pub struct CheckpointDraft {
    disk: Arc<dyn Disk>,
    /// The journal's directory, and that of its checkpoints.
    dir: PathBuf,
    directory: PathBuf,
    run: u32,
    salt: u64,
    broken: Arc<OnceLock<String>>,
    pins: Arc<FilePins>,
    logs: Vec<LogStart>,
    view: CheckpointView,
    parts: u32,
    published: bool,
}

/// A checkpoint that was published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedCheckpoint {
    /// Entries in it.
    pub entries: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// The number of log segments that were removed.
    pub segments_removed: u64,
    /// The reason why not all were removed that could have been; the next checkpoint tries again.
    pub left_over: Option<String>,
}

impl CheckpointDraft {
    /// Returns the draft of a checkpoint of the journal in `dir`, whose logs are needed from `logs`
    /// on.
    pub(crate) fn new(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        origin: &RunOrigin,
        logs: Vec<LogStart>,
    ) -> Result<CheckpointDraft, CheckpointError> {
        let draft = CheckpointDraft {
            disk: Arc::clone(disk),
            dir: dir.to_owned(),
            directory: directory(dir),
            run: origin.run,
            salt: origin.salt,
            broken: Arc::clone(&origin.broken),
            pins: Arc::clone(&origin.pins),
            logs,
            view: CheckpointView::default(),
            parts: 0,
            published: false,
        };
        let made = disk.create_dir_all(&draft.directory);
        draft.believe(made, "create")?;
        Ok(draft)
    }

    /// Notes if an operation on the directory has failed: no later sync of it can be trusted. One for which
    /// there was no file descriptor has not touched it.
    fn believe(
        &self,
        result: std::io::Result<()>,
        action: &'static str,
    ) -> Result<(), CheckpointError> {
        result.map_err(|source| {
            let is_untouched = lacks_descriptor(&source);
            let error = CheckpointError::io(action, &self.directory)(source);
            if !is_untouched {
                // The first failure is the one that is reported.
                let _ = self.broken.set(error.to_string());
            }
            error
        })
    }

    /// Sets the moment that the checkpoint holds: one after it was begun. To be called before the
    /// parts.
    pub fn set_view(&mut self, view: CheckpointView) {
        assert_eq!(self.parts, 0, "the view comes before the parts");
        self.view = view;
    }

    /// Returns the moment that it holds.
    #[must_use]
    pub fn view(&self) -> CheckpointView {
        self.view
    }

    /// Begins a further part. Each key goes into one of them.
    ///
    /// # Errors
    /// Returns an error if the disk fails.
    pub fn part(&mut self) -> Result<PartWriter, CheckpointError> {
        let number = self.parts;
        let path = self.path(CheckpointFile::Part(self.view.epoch, number));
        // Counted first: a creation that fails may leave a file.
        self.parts += 1;
        let file = self
            .disk
            .create_new(&path)
            .map_err(CheckpointError::io("create", &path))?;
        let id = (self.salt, self.view.epoch, number);
        PartWriter::new(file, path, id)
    }

    /// Publishes the checkpoint; its epoch is durable, and every log has closed it. `parts` are all
    /// parts that were begun, in their order.
    pub(crate) fn publish(
        mut self,
        parts: Vec<CheckpointPart>,
        finished_ms: u64,
    ) -> Result<PublishedCheckpoint, CheckpointError> {
        assert_eq!(parts.len(), self.parts as usize, "all parts are finished");
        let manifest = Manifest {
            view: self.view,
            finished_ms,
            run: self.run,
            salt: self.salt,
            logs: std::mem::take(&mut self.logs),
            parts,
        };
        let bytes = manifest.encode();
        self.write_manifest(&bytes)?;
        self.published = true;
        let (segments_removed, failed) =
            remove::outdated(&*self.disk, &self.dir, &manifest, &self.pins);
        Ok(PublishedCheckpoint {
            entries: manifest.entries(),
            bytes: manifest.part_bytes() + bytes.len() as u64,
            segments_removed,
            left_over: failed.map(|error| error.to_string()),
        })
    }

    fn write_manifest(&self, bytes: &[u8]) -> Result<(), CheckpointError> {
        let disk = &*self.disk;
        let epoch = self.view.epoch;
        // The parts' names first: the manifest's must never be durable without them.
        self.believe(disk.sync_dir(&self.directory), "sync")?;
        let draft = self.path(CheckpointFile::Draft(epoch));
        let file = disk
            .create_new(&draft)
            .map_err(CheckpointError::io("create", &draft))?;
        file.write_all_at(&[IoSlice::new(bytes)], 0)
            .map_err(CheckpointError::io("write", &draft))?;
        file.sync_data()
            .map_err(CheckpointError::io("sync", &draft))?;
        disk.rename(&draft, &self.path(CheckpointFile::Manifest(epoch)))
            .map_err(CheckpointError::io("rename", &draft))?;
        self.believe(disk.sync_dir(&self.directory), "sync")
    }

    fn path(&self, name: CheckpointFile) -> PathBuf {
        self.directory.join(name.to_string())
    }
}

impl Drop for CheckpointDraft {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        let epoch = self.view.epoch;
        // The manifest first: if the removal stops halfway, no manifest is left without its parts.
        let names = [
            CheckpointFile::Manifest(epoch),
            CheckpointFile::Draft(epoch),
        ]
        .into_iter()
        .chain((0..self.parts).map(|part| CheckpointFile::Part(epoch, part)));
        let paths = names.map(|name| self.path(name));
        if let Err(error) = remove::remove_files(&*self.disk, paths) {
            tracing::warn!("files of an unfinished checkpoint stay behind: {error}");
        }
    }
}
