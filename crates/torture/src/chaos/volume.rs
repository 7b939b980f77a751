//! A small disk for each node, in memory, which a ballast file can fill.
//!
//! | in the directory of a run | what |
//! |---|---|
//! | `cluster.toml` | the configuration of all nodes |
//! | `node<n>/` | a volume: `data` is the node's, `ballast` takes its room |
//! | `node<n>.log` | what the node has printed |

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::network;
use xtask::process;

/// Its size: some snapshots and segments of a small partition.
const MIB: u32 = 48;

/// A mounted volume. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct Volume {
    mount: PathBuf,
}

impl Volume {
    /// Mounts an empty one at `mount`, which is created.
    ///
    /// # Errors
    /// Returns an error if the system does not permit it.
    pub fn mount(mount: PathBuf) -> Result<Volume> {
        fs::create_dir_all(&mount).with_context(|| format!("cannot make {}", mount.display()))?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={MIB}m"), "kumiki-chaos"]);
        process::output("mount", command.arg(&mount)).context(
            "a small file system in memory cannot be mounted, and chaos runs need one for each \
             node: run it as root",
        )?;
        let volume = Volume { mount };
        fs::create_dir_all(volume.data())?;
        Ok(volume)
    }

    /// Returns the node's own directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.mount.join("data")
    }

    /// Takes all remaining room.
    ///
    /// # Errors
    /// Returns an error if the ballast file cannot be opened.
    pub fn fill(&self) -> Result<()> {
        let path = self.ballast();
        let mut file = File::options().append(true).create(true).open(path)?;
        for size in [1 << 20, 1 << 12] {
            let piece = vec![0xA5; size];
            // The first error says that the next piece does not fit any more.
            while file.write_all(&piece).is_ok() {}
        }
        Ok(())
    }

    /// Gives the room back.
    pub fn free(&self) {
        // Often there is none.
        let _ = fs::remove_file(self.ballast());
    }

    /// Loses the node's data.
    ///
    /// # Errors
    /// Returns an error if it cannot be removed.
    pub fn wipe(&self) -> Result<()> {
        let data = self.data();
        fs::remove_dir_all(&data)
            .and_then(|()| fs::create_dir_all(&data))
            .with_context(|| format!("cannot empty {}", data.display()))
    }

    fn ballast(&self) -> PathBuf {
        self.mount.join("ballast")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        unmount(&self.mount);
    }
}

/// Unmounts at once, even if processes still have files open there.
fn unmount(mount: &Path) {
    let mut command = Command::new("umount");
    // Nothing can be done about a failure; the next run tries again.
    let _ = process::output("umount", command.arg("--lazy").arg(mount));
}

/// Returns the directory of this run, after removing those of earlier runs that were killed.
///
/// # Errors
/// Returns an error if it cannot be made.
pub fn directory() -> Result<PathBuf> {
    let parent = std::env::temp_dir();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for entry in fs::read_dir(&parent)? {
        let entry = entry?;
        if !network::is_stale(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let stale = entry.path();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        points
            .map(Path::new)
            .filter(|point| point.starts_with(&stale))
            .for_each(unmount);
        fs::remove_dir_all(&stale)
            .with_context(|| format!("cannot remove {}, of an earlier run", stale.display()))?;
    }
    let dir = parent.join(format!("{}{}", network::PREFIX, std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}
