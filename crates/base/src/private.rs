//! Files with secrets: passwords, keys. Other users of the machine must not be able to read them.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The permission of users who are neither the file's owner nor of its group to read it.
const OTHERS_READ: u32 = 0o004;

/// Checks that not every user of the machine can read a file. Pipes, such as those of a shell's `<(…)`, pass.
///
/// # Errors
/// Returns an error if the file cannot be looked at, or if every user can read it; the error says how
/// to change that.
pub fn check(file: &Path) -> io::Result<()> {
    let about = file.metadata()?;
    if about.is_file() && about.permissions().mode() & OTHERS_READ != 0 {
        return Err(io::Error::other(format!(
            "every user of this machine can read it: chmod o-rwx {}",
            file.display()
        )));
    }
    Ok(())
}

/// Returns the text of a file that not every user of the machine can read.
///
/// # Errors
/// As [`check`], and when the file cannot be read.
pub fn read(file: &Path) -> io::Result<String> {
    check(file)?;
    std::fs::read_to_string(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    #[test]
    fn what_every_user_can_read_is_refused() {
        let dir = std::env::temp_dir().join(format!("kumiki-private-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let file = dir.join("secret");
        fs::write(&file, "secret\n").expect("a file");
        for (mode, is_private) in [(0o644, false), (0o604, false), (0o640, true), (0o600, true)] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).expect("its mode");
            match read(&file) {
                Ok(text) => assert!(is_private && text == "secret\n", "{mode:o}"),
                Err(error) => assert!(!is_private && error.to_string().contains("chmod o-rwx")),
            }
        }
        let none = check(&dir.join("none")).expect_err("there is none");
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(&dir).expect("it is ours");
    }
}
