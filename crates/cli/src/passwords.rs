//! Passwords of the command line: given as they are, or in a file that other users cannot read.

use std::path::Path;

/// Returns the password, from a text or from a file.
///
/// # Errors
/// The text says what is wrong with the file.
pub(crate) fn given(text: Option<&String>, file: Option<&Path>) -> Result<Option<String>, String> {
    match file {
        Some(file) => of_file(file).map(Some),
        None => Ok(text.cloned()),
    }
}

/// Returns the contents of the file, without the end of its line.
///
/// # Errors
/// The file cannot be read, other users can read it, or it is empty.
pub(crate) fn of_file(file: &Path) -> Result<String, String> {
    let read = base::private::read(file);
    let read = read.map_err(|error| format!("cannot use {}: {error}", file.display()))?;
    let password = read.trim_end_matches(['\n', '\r']);
    if password.is_empty() {
        return Err(format!("there is no password in {}", file.display()));
    }
    Ok(password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_line_of_its_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("password");
        testkit::files::write_private(&file, "secret\n");
        let read = given(Some(&"other".to_owned()), Some(&file));
        assert_eq!(read, Ok(Some("secret".to_owned())));
        testkit::files::write_private(&file, "\n");
        assert!(of_file(&file).expect_err("none").contains("no password"));
        let absent = of_file(&dir.path().join("absent"));
        assert!(absent.expect_err("none").contains("cannot use"));
        assert_eq!(given(None, None), Ok(None));
    }
}
