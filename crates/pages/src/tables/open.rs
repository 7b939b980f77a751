//! Opens directories, and reads their tables.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Access, Disk};
use parking_lot::Mutex;

use super::files::{self, Location, Name, SegmentFiles};
use super::state::{OpenVersion, TableDirectories, TableState};
use crate::error::{At, Error};
use crate::format_error::FormatError;
use crate::manifest;
use crate::segment_directory::SegmentHead;
use crate::table::{SegmentId, Table};

/// How often the files are listed again when another process changes them meanwhile.
const LOOKS: usize = 5;

pub(super) fn open(
    disk: Arc<dyn Disk>,
    dirs: &[PathBuf],
    write: bool,
) -> Result<TableDirectories, Error> {
    assert!(!dirs.is_empty(), "tables lie in a directory");
    let mut locks = Vec::new();
    if write {
        for dir in dirs {
            disk.create_dir_all(dir).at("make the directory", dir)?;
            locks.push(disk.lock_dir(dir)?);
            // Files of a process that has died may exist and not be durable yet; all later changes
            // rely on them.
            disk.sync_dir(dir).at("sync", dir)?;
        }
    }
    join(&*disk, dirs, write)?;
    let mut look = 0;
    let state = loop {
        look += 1;
        let found = Found::list(&*disk, dirs)?;
        let state = found.read(&disk, &dirs[0])?;
        // A reader beside a writer may have listed files that are removed by now.
        if !write && !state.damaged.is_empty() && look < LOOKS {
            continue;
        }
        if write && state.damaged.is_empty() {
            found.tidy(&*disk, &state)?;
        }
        break state;
    };
    Ok(TableDirectories {
        disk,
        dirs: dirs.to_vec(),
        locks: write.then_some(locks),
        state: Mutex::new(state),
    })
}

/// Checks that the directories are of one set. Those without a set join that of the first one.
fn join(disk: &dyn Disk, dirs: &[PathBuf], write: bool) -> Result<(), Error> {
    let shown = |dir: &Path| dir.display().to_string();
    let set = match files::read_marker(disk, &dirs[0])? {
        Some((set, 0)) => set,
        Some((_, place)) => {
            return Err(Error::Directories(format!(
                "{} is directory {} of several: name the first one first",
                shown(&dirs[0]),
                place + 1
            )));
        }
        None if !write => {
            return Err(Error::Directories(format!(
                "there are no tables in {}: load one, or name another directory",
                shown(&dirs[0])
            )));
        }
        None => {
            let set = files::new_set();
            files::write_marker(disk, &dirs[0], set, 0)?;
            set
        }
    };
    for (place, dir) in dirs.iter().enumerate().skip(1) {
        match files::read_marker(disk, dir)? {
            Some((other, _)) if other == set => {}
            Some(_) => {
                return Err(Error::Directories(format!(
                    "{} belongs to other directories than {}: choose one that does, or that is \
                     empty",
                    shown(dir),
                    shown(&dirs[0])
                )));
            }
            None if write => files::write_marker(disk, dir, set, place as u32)?,
            None => {}
        }
    }
    Ok(())
}

/// Groups directories; see [`Tables::sets`](super::Tables::sets).
pub(super) fn sets(disk: &dyn Disk, dirs: &[PathBuf]) -> Result<Vec<Vec<PathBuf>>, Error> {
    let mut sets: Vec<(Option<u128>, BTreeMap<u32, PathBuf>)> = Vec::new();
    for dir in dirs {
        let (set, place) = files::read_marker(disk, dir)?.unzip();
        let place = place.unwrap_or(0);
        let mut known = sets.iter_mut();
        // A directory that is named twice is a set by itself.
        match known.find(|(id, dirs)| set.is_some() && *id == set && !dirs.contains_key(&place)) {
            Some((_, dirs)) => drop(dirs.insert(place, dir.clone())),
            None => sets.push((set, BTreeMap::from([(place, dir.clone())]))),
        }
    }
    let sets = sets
        .into_iter()
        .map(|(_, dirs)| dirs.into_values().collect());
    Ok(sets.collect())
}

/// The files that were listed.
struct Found {
    manifests: Vec<String>,
    directories: HashMap<SegmentId, PathBuf>,
    stripes: BTreeMap<(SegmentId, u16), PathBuf>,
    new: Vec<PathBuf>,
}

impl Found {
    fn list(disk: &dyn Disk, dirs: &[PathBuf]) -> Result<Found, Error> {
        let mut found = Found {
            manifests: Vec::new(),
            directories: HashMap::new(),
            stripes: BTreeMap::new(),
            new: Vec::new(),
        };
        for (place, dir) in dirs.iter().enumerate() {
            for entry in disk.list(dir).at("list", dir)? {
                let Some(name) = entry.name.to_str().and_then(Name::parse) else {
                    continue;
                };
                let path = dir.join(&entry.name);
                match name {
                    Name::Manifest(table) if place == 0 => found.manifests.push(table),
                    Name::Manifest(_) => {}
                    Name::Directory(id) => {
                        found.directories.insert(id, path);
                    }
                    Name::Stripe(id, stripe) => {
                        found.stripes.insert((id, stripe), path);
                    }
                    Name::New => found.new.push(path),
                }
            }
        }
        Ok(found)
    }

    fn read(&self, disk: &Arc<dyn Disk>, main: &Path) -> Result<TableState, Error> {
        let mut state = TableState::default();
        for name in &self.manifests {
            match self.table(disk, main, name) {
                Ok(opened) => state.put(name, Some(opened)),
                Err(OpenError::Damaged(what)) => {
                    state.damaged.insert(name.clone(), what);
                }
                Err(OpenError::System(error)) => return Err(error),
            }
        }
        Ok(state)
    }

    fn table(
        &self,
        disk: &Arc<dyn Disk>,
        main: &Path,
        name: &str,
    ) -> Result<OpenVersion, OpenError> {
        let bytes = read(&**disk, &main.join(files::manifest_name(name)))?;
        let (mut table, heads) = manifest::decode(&bytes)?;
        if table.name != name {
            return Err(format!("the manifest is that of table {}", table.name).into());
        }
        let mut opened = Vec::new();
        for head in heads {
            let path = self.directories.get(&head.id);
            let path = path.ok_or_else(|| format!("{} is gone", files::directory_name(head.id)))?;
            let directory = read(&**disk, path)?;
            let segment = head.segment(&table, &directory)?;
            opened.push(Arc::new(self.segment(disk, &table, &head, path)?));
            table.segments.push(Arc::new(segment));
        }
        Ok(OpenVersion {
            table: Arc::new(table),
            files: opened,
        })
    }

    fn segment(
        &self,
        disk: &Arc<dyn Disk>,
        table: &Table,
        head: &SegmentHead,
        directory: &Path,
    ) -> Result<SegmentFiles, OpenError> {
        let mut stripes = Vec::new();
        for stripe in 0..head.stripes {
            let path = self.stripes.get(&(head.id, stripe)).ok_or_else(|| {
                let name = files::stripe_name(head.id, stripe);
                format!("{name} is in none of the directories that were named")
            })?;
            let file = gone(disk.open(path, Access::Read), "open", path)?;
            let size = file.size().at("look at", path)?;
            let wanted = Location::length(stripe, head.pages, head.stripes, table.page_size);
            if size < wanted {
                let path = path.display();
                return Err(format!("{path} has {size} bytes, not {wanted}").into());
            }
            stripes.push((path.clone(), file));
        }
        let directory = directory.to_owned();
        let disk = disk.clone();
        Ok(SegmentFiles::new(
            disk,
            head.id,
            table.page_size,
            directory,
            stripes,
        ))
    }

    /// Removes files that no table has.
    fn tidy(&self, disk: &dyn Disk, state: &TableState) -> Result<(), Error> {
        let used: HashSet<&Path> = state
            .tables
            .values()
            .flat_map(|opened| &opened.files)
            .flat_map(|files| {
                files
                    .paths()
                    .iter()
                    .map(|path| &**path)
                    .chain([files.directory()])
            })
            .collect();
        let known = self.directories.values().chain(self.stripes.values());
        for path in known.chain(&self.new) {
            if !used.contains(&**path) {
                tracing::info!("removing {}, which no table has", path.display());
                disk.remove(path).at("remove", path)?;
            }
        }
        Ok(())
    }
}

/// Why a table cannot be opened.
enum OpenError {
    Damaged(String),
    System(Error),
}

impl From<String> for OpenError {
    fn from(what: String) -> OpenError {
        OpenError::Damaged(what)
    }
}

impl From<FormatError> for OpenError {
    fn from(FormatError(what): FormatError) -> OpenError {
        OpenError::Damaged(what)
    }
}

impl From<Error> for OpenError {
    fn from(error: Error) -> OpenError {
        OpenError::System(error)
    }
}

/// Converts the error of a missing file to damage of the table; it is no failure of the system.
fn gone<T>(result: io::Result<T>, what: &'static str, path: &Path) -> Result<T, OpenError> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("{} is gone", path.display()).into())
        }
        other => Ok(other.at(what, path)?),
    }
}

fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, OpenError> {
    gone(files::read_file(disk, path), "read", path)
}
