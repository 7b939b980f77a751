//! The events that the rounds met, read from the files and the logs that killed servers left:
//! rounds that never met a checkpoint show nothing about checkpoints.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

/// Counts over many rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrashCoverage {
    /// Checkpoints that were published.
    pub published: u64,
    /// Kills in the middle of a checkpoint.
    pub interrupted: u64,
    /// The number of times that segments of a log had been removed since the last look.
    pub removed: u64,
    /// The newest published checkpoint and the first segment of each log at the last look.
    last: Look,
}

/// The contents of a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Look {
    newest: Option<String>,
    /// The first segment of each log.
    first: Vec<(String, String)>,
}

impl CrashCoverage {
    /// Looks at the data of a server that was killed, and at its output (at the level debug).
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub fn look(&mut self, data: &Path) -> Result<()> {
        let now = Look::at(data)?;
        let said = fs::read_to_string(data.with_extension("log")).unwrap_or_default();
        let count = |what: &str| said.matches(what).count();
        let unfinished =
            count("checkpoint begun") > count("checkpoint made") + count("no checkpoint");
        self.published += u64::from(now.newest.is_some() && now.newest != self.last.newest);
        self.interrupted += u64::from(unfinished);
        let gone =
            |log: &(String, String)| log.1 != "00000000.log" && !self.last.first.contains(log);
        self.removed += now.first.iter().filter(|log| gone(log)).count() as u64;
        self.last = now;
        Ok(())
    }

    /// Forgets the files: a new directory was begun.
    pub fn forget_files(&mut self) {
        self.last = Look::default();
    }

    /// Checks that the rounds have met checkpoints.
    ///
    /// # Errors
    /// Returns an error if they have not.
    pub fn require(&self) -> Result<()> {
        if self.published == 0 || self.interrupted == 0 || self.removed == 0 {
            bail!("the rounds say nothing about checkpoints: {self}; run more of them");
        }
        Ok(())
    }
}

impl fmt::Display for CrashCoverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "checkpoints published: {}, interrupted: {}, removals of segments: {}",
            self.published, self.interrupted, self.removed
        )
    }
}

impl Look {
    fn at(data: &Path) -> Result<Look> {
        let mut look = Look::default();
        let checkpoints = names(&data.join("checkpoint"))?;
        let mut newest_first = checkpoints.into_iter().rev();
        look.newest = newest_first.find(|name| name.ends_with(".manifest"));
        for log in names(data)? {
            if log.starts_with("log") {
                let segments = names(&data.join(&log))?;
                let first = segments.into_iter().find(|name| name.ends_with(".log"));
                look.first.extend(first.map(|first| (log, first)));
            }
        }
        Ok(look)
    }
}

/// Returns the names in a directory, sorted; none if it is not there.
fn names(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    if dir.is_dir() {
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_tell_what_the_rounds_met() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let make = |name: &str| {
            let path = data.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        };
        let say = |text: &str| fs::write(data.with_extension("log"), text).unwrap();
        let mut coverage = CrashCoverage::default();
        make("log0/00000000.log");
        make("LOCK");
        coverage.look(&data).unwrap();
        assert_eq!(coverage.to_string(), CrashCoverage::default().to_string());
        assert!(coverage.require().is_err());
        say("DEBUG checkpoint begun\nINFO checkpoint made\nDEBUG checkpoint begun\n");
        coverage.look(&data).unwrap();
        assert_eq!((coverage.published, coverage.interrupted), (0, 1));
        say("DEBUG checkpoint begun\nINFO checkpoint made\n");
        make("checkpoint/00000000000000000009-000.part");
        make("checkpoint/00000000000000000009.manifest");
        make("log0/00000001.log");
        fs::remove_file(data.join("log0/00000000.log")).unwrap();
        for _ in 0..2 {
            coverage.look(&data).unwrap();
            assert_eq!((coverage.published, coverage.interrupted), (1, 1));
            assert_eq!(coverage.removed, 1);
        }
        coverage.require().unwrap();
    }
}
