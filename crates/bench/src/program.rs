//! The programs of a measurement: the one that measures, and the one that is measured.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes that are hashed at a time.
const PIECE: usize = 1 << 20;

/// A program that took part in a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// Its file.
    pub path: String,
    /// The SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// What it says about its version: name, version, commit and profile.
    pub version: String,
}

impl ProgramInfo {
    /// Describes a program whose version is known.
    ///
    /// # Errors
    /// Returns an error if its file cannot be read.
    pub fn with_version(path: &Path, version: &str) -> io::Result<ProgramInfo> {
        Ok(ProgramInfo {
            path: path.display().to_string(),
            sha256: sha256(path)?,
            version: version.to_owned(),
        })
    }

    /// Describes a program that prints its version for `--version`.
    ///
    /// # Errors
    /// Returns an error if its file cannot be read, or the program cannot be started.
    pub fn of(path: &Path) -> io::Result<ProgramInfo> {
        let mut command = Command::new(path);
        let output = command
            .arg("--version")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ProgramInfo::with_version(path, text.lines().next().unwrap_or_default().trim())
    }
}

/// Returns the SHA-256 of a file, in hexadecimal digits.
fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece)? {
            0 => break,
            n => hash.update(&piece[..n]),
        }
    }
    let digits = hash.finalize();
    Ok(digits.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "abc").unwrap();
        let program = ProgramInfo::with_version(&path, "x 1").unwrap();
        // The first example of the standard, FIPS 180-4.
        assert_eq!(
            program.sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(program.version, "x 1");
        assert!(ProgramInfo::of(&dir.path().join("y")).is_err());
    }
}
