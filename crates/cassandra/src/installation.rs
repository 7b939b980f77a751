//! The programs of Cassandra on this machine: its jars, and Java.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

/// The directory into which `cargo xtask peers` puts the jars, below the repository.
const JARS: &str = "target/peers/cassandra/lib";

/// A Cassandra that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The program `java` of a Java 17.
    pub java: PathBuf,
    /// The directory with its jars.
    pub jars: PathBuf,
}

impl Installed {
    /// Returns the Cassandra that `cargo xtask peers` has installed in the repository `root`.
    ///
    /// # Errors
    /// Returns an error if the jars or Java 17 are missing.
    pub fn find(root: &Path) -> Result<Installed> {
        let jars = root.join(JARS);
        if !jars.is_dir() {
            return Err(Error::NotInstalled { jars });
        }
        let jars = jars.canonicalize().map_err(Error::file(&jars))?;
        let java = java()?;
        Ok(Installed { java, jars })
    }
}

/// Returns the program `java` of Java 17: on the path, of `JAVA_HOME`, or Debian's. Cassandra 5
/// does not start with a newer one.
///
/// # Errors
/// Returns an error if there is none.
pub fn java() -> Result<PathBuf> {
    let homes = env::var_os("JAVA_HOME").map(PathBuf::from);
    let debian = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let homes = homes.into_iter().chain(debian.map(|entry| entry.path()));
    let programs = homes.map(|home| home.join("bin/java"));
    let mut seen = Vec::new();
    for program in std::iter::once(PathBuf::from("java")).chain(programs) {
        let Ok(output) = Command::new(&program).arg("--version").output() else {
            continue;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().next().unwrap_or_default().to_owned();
        if is_17(&line) {
            return Ok(program);
        }
        seen.push(format!("{}: {line}", program.display()));
    }
    Err(Error::NoJava { seen })
}

/// Returns `true` if Java's first line, such as `openjdk 17.0.15 2025-04-15`, is of version 17.
fn is_17(line: &str) -> bool {
    let version = line.split_whitespace().nth(1).unwrap_or_default();
    version.split(['.', '-', '+']).next() == Some("17")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_tells_its_version() {
        assert!(is_17("openjdk 17.0.15 2025-04-15"));
        assert!(is_17("openjdk 17 2021-09-14"));
        assert!(is_17("java 17-ea 2021-09-14"));
        for line in [
            "openjdk 21.0.2 2024-01-16",
            "openjdk 11.0.17 2022",
            "17",
            "",
        ] {
            assert!(!is_17(line), "{line}");
        }
    }

    #[test]
    fn what_is_not_installed_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let refused = Installed::find(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("cargo xtask peers"), "{refused}");
    }
}
