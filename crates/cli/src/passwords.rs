//! Passwords of the command line: as they are given, or in a file that is nobody else's.

use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The password, of a text or of a file.
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn given(text: Option<&String>, file: Option<&Path>) -> Result<Option<String>, String> {
    match file {
        Some(file) => of_file(file).map(Some),
        None => Ok(text.cloned()),
    }
}

/// Returns what is in the file, but for the end of its line.
///
/// # Errors
/// It cannot be read, other users can read it, or it is empty.
pub(crate) fn of_file(file: &Path) -> Result<String, String> {
    let failed = |error| format!("cannot read {}: {error}", file.display());
    let about = file.metadata().map_err(failed)?;
    if is_readable_by_others(&about) {
        return Err(format!(
            "every user of this machine can read the password in {}: chmod o-rwx {}",
            file.display(),
            file.display()
        ));
    }
    let read = std::fs::read_to_string(file).map_err(failed)?;
    let password = read.trim_end_matches(['\n', '\r']);
    if password.is_empty() {
        return Err(format!("there is no password in {}", file.display()));
    }
    Ok(password.to_owned())
}

/// Pipes, such as those of a shell's `<(…)`, are read by whoever has them.
fn is_readable_by_others(about: &Metadata) -> bool {
    about.is_file() && about.permissions().mode() & 0o004 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    #[test]
    fn files_of_passwords_are_private() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("password");
        fs::write(&file, "secret\n").expect("a file");
        for (mode, password) in [
            (0o644, None),
            (0o604, None),
            (0o640, Some("secret")),
            (0o600, Some("secret")),
        ] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).expect("its mode");
            let read = given(Some(&"other".to_owned()), Some(&file));
            assert_eq!(read.is_ok(), password.is_some(), "{read:?}");
            match (read, password) {
                (Ok(read), expected) => assert_eq!(read.as_deref(), expected),
                (Err(error), _) => assert!(error.contains("chmod o-rwx"), "{error}"),
            }
        }
        fs::write(&file, "\n").expect("a file");
        assert!(of_file(&file).expect_err("none").contains("no password"));
        assert!(
            of_file(&dir.path().join("none"))
                .expect_err("none")
                .contains("cannot read")
        );
        assert_eq!(given(None, None), Ok(None));
    }
}
