//! Backups in a directory.
//!
//! An object is a file. It is written under a name that begins with a dot, synced, and renamed. Files whose names begin
//! with a dot are what interrupted writes have left, and mean nothing.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::object_store::{ObjectStore, StoreError, StoredObject};

/// A directory with backups.
pub struct DirectoryStore {
    dir: PathBuf,
}

/// What happens to an object of the same name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    Replaced,
    Kept,
}

impl DirectoryStore {
    /// Returns the store in `dir`, which need not exist before the first object is written.
    #[must_use]
    pub fn new(dir: &Path) -> DirectoryStore {
        DirectoryStore {
            dir: dir.to_owned(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn write(&self, name: &str, bytes: &[u8], existing: Existing) -> io::Result<bool> {
        let path = self.path(name);
        let dir = path.parent().unwrap_or(&self.dir);
        create_directories(dir)?;
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let draft = dir.join(format!(".{file_name}.{}", std::process::id()));
        let written = write_draft(&draft, bytes).and_then(|()| match existing {
            Existing::Replaced => fs::rename(&draft, &path).map(|()| true),
            // A link, and not a new name: it replaces no file.
            Existing::Kept => match fs::hard_link(&draft, &path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
                linked => linked.map(|()| true),
            },
        });
        if !matches!((&written, existing), (Ok(_), Existing::Replaced)) {
            // The error that matters is the one that there is.
            let _ = fs::remove_file(&draft);
        }
        let is_new = written?;
        File::open(dir)?.sync_all()?;
        Ok(is_new)
    }

    fn list_into(
        &self,
        dir: &Path,
        prefix: &str,
        objects: &mut Vec<StoredObject>,
    ) -> io::Result<()> {
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let name = path.strip_prefix(&self.dir).unwrap_or(&path);
            let (Some(name), false) = (name.to_str(), is_draft(&path)) else {
                continue;
            };
            if entry.file_type()?.is_dir() {
                let inside = format!("{name}/");
                if inside.starts_with(prefix) || prefix.starts_with(&inside) {
                    self.list_into(&path, prefix, objects)?;
                }
            } else if name.starts_with(prefix) {
                objects.push(StoredObject {
                    name: name.to_owned(),
                    bytes: entry.metadata()?.len(),
                });
            }
        }
        Ok(())
    }
}

fn is_draft(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_none_or(|name| name.starts_with('.'))
}

/// Creates a directory and its parents, and makes their names durable.
fn create_directories(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir
        .ancestors()
        .take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists())
        .collect();
    for dir in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

fn write_draft(draft: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(draft)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => format!(
            "{error}; what is complete is kept, and the same command goes on from there when there is room"
        ),
        _ => error.to_string(),
    }
}

impl ObjectStore for DirectoryStore {
    fn place(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn list(&self, prefix: &str) -> Result<Vec<StoredObject>, StoreError> {
        let mut objects = Vec::new();
        let listed = self.list_into(&self.dir, prefix, &mut objects);
        listed.map_err(|error| StoreError::new("list", self.dir.display(), error))?;
        objects.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(objects)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match fs::read(self.path(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::new("read", self.place(name), error)),
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let written = self.write(name, bytes, Existing::Replaced);
        let written =
            written.map_err(|error| StoreError::new("write", self.place(name), reason(&error)));
        written.map(|_| ())
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        let written = self.write(name, bytes, Existing::Kept);
        written.map_err(|error| StoreError::new("write", self.place(name), reason(&error)))
    }

    fn free_bytes(&self) -> Option<u64> {
        free_bytes(&self.dir)
    }
}

/// Returns the bytes for which there is room at a path, or at the nearest directory above it that exists.
#[must_use]
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let existing = path.ancestors().find(|path| path.exists());
    let existing = existing.filter(|path| !path.as_os_str().is_empty());
    let about = rustix::fs::statvfs(existing.unwrap_or(Path::new("."))).ok()?;
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_whole_files() {
        let dir = tempfile::tempdir().unwrap();
        let store = DirectoryStore::new(&dir.path().join("a/b"));
        assert_eq!(store.list("").unwrap(), []);
        assert_eq!(store.get("x").unwrap(), None);
        store.put("one/two/x", b"1").unwrap();
        store.put("one/two/x", b"23").unwrap();
        store.put("one/y", b"").unwrap();
        assert!(store.put_new("z", b"4").unwrap());
        assert!(!store.put_new("z", b"56").unwrap());
        fs::write(store.path("one/.draft.7"), "?").unwrap();
        let names = |prefix: &str| -> Vec<(String, u64)> {
            let objects = store.list(prefix).unwrap().into_iter();
            objects.map(|object| (object.name, object.bytes)).collect()
        };
        let named = |name: &str, bytes| (name.to_owned(), bytes);
        let all = [named("one/two/x", 2), named("one/y", 0), named("z", 1)];
        assert_eq!(names(""), all);
        assert_eq!(names("one/"), all[..2]);
        assert_eq!(names("one/t"), all[..1]);
        assert_eq!(names("none"), []);
        assert_eq!(store.get("one/two/x").unwrap(), Some(b"23".to_vec()));
        assert_eq!(store.get("z").unwrap(), Some(b"4".to_vec()));
        assert!(store.free_bytes().unwrap() > 0);
        // Nothing but objects is left behind.
        let hidden = fs::read_dir(store.path("")).unwrap();
        let hidden = hidden.flatten().filter(|entry| is_draft(&entry.path()));
        assert_eq!(hidden.count(), 0);
    }

    #[test]
    fn errors_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let store = DirectoryStore::new(&dir.path().join("file"));
        for error in [
            store.put("x", b"1").unwrap_err(),
            store.get("x").unwrap_err(),
            store.list("").unwrap_err(),
        ] {
            assert!(error.to_string().contains("file"), "{error}");
        }
    }
}
