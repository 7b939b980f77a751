//! Changes options in a configuration file (`CONFIG REWRITE`). The rest of the file stays as it is, with its
//! comments.
//!
//! Invariant: at any time, also after a crash, the file is as it was before or as it is afterwards.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use toml::de::DeTable;

/// Sets options in the file to these values, which are numbers.
///
/// # Errors
/// Returns the reason why the file stays as it was.
pub(crate) fn rewrite(path: &Path, options: &[(&str, String)]) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let changed = changed(&text, options)?;
    replace(path, &changed).map_err(|error| error.to_string())
}

/// Returns the text with the options changed, or added at its end.
fn changed(text: &str, options: &[(&str, String)]) -> Result<String, String> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if let Some(error) = errors.first() {
        return Err(format!("the file is not TOML: {}", error.message()));
    }
    let (mut changes, mut added) = (Vec::new(), String::new());
    for (name, value) in options {
        match table.get_ref().get(*name) {
            Some(old) => changes.push((old.span(), value)),
            None => added += &format!("{name} = {value}\n"),
        }
    }
    changes.sort_by_key(|(span, _)| span.start);
    let mut changed = text.to_owned();
    for (span, value) in changes.into_iter().rev() {
        changed.replace_range(span, value);
    }
    if !added.is_empty() && !changed.is_empty() && !changed.ends_with('\n') {
        changed.push('\n');
    }
    Ok(changed + &added)
}

/// Puts a file with this text in the place of another one, with the same permissions.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let path = fs::canonicalize(path)?;
    let mut name = path.clone().into_os_string();
    name.push(".new");
    let mut file = File::create(&name)?;
    file.set_permissions(fs::metadata(&path)?.permissions())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&name, &path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn values_change_in_their_place() {
        let options = |of: &[(&'static str, &str)]| {
            let options = of.iter().map(|(name, value)| (*name, (*value).to_owned()));
            options.collect::<Vec<_>>()
        };
        let text = "# Mine.\nmaxmemory = \"1gb\" # enough\ntimeout=5\nthreads = 2";
        let new = options(&[
            ("timeout", "60"),
            ("slowlog-max-len", "9"),
            ("maxmemory", "0"),
        ]);
        assert_eq!(
            changed(text, &new).unwrap(),
            "# Mine.\nmaxmemory = 0 # enough\ntimeout=60\nthreads = 2\nslowlog-max-len = 9\n"
        );
        assert_eq!(changed(text, &[]).unwrap(), text);
        assert_eq!(changed("", &options(&[("a", "-1")])).unwrap(), "a = -1\n");
        assert!(changed("a = ", &new).unwrap_err().contains("TOML"));
    }

    #[test]
    fn a_private_file_stays_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kumiki.toml");
        fs::write(&path, "requirepass = \"secret\"\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        rewrite(&path, &[("timeout", "7".to_owned())]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "requirepass = \"secret\"\ntimeout = 7\n");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let missing = dir.path().join("missing");
        assert!(rewrite(&missing, &[]).is_err());
    }
}
