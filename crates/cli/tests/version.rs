//! `kumiki --version`: the sources that the program was built from.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::tempdir;

fn run(program: &Path, args: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir);
    command.output().expect("the program runs")
}

/// Returns the commit that is checked out, if these sources lie in a checkout of their own.
fn checked_out() -> Option<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        let output = command.args(args).current_dir(&sources).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim_end().to_owned())
    };
    let top = Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize();
    let own = sources.canonicalize();
    if top.ok()? != own.ok()? {
        return None;
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// A copy that lies and runs outside of the checkout says the same as the program itself.
#[test]
fn a_copied_program_names_its_commit_and_profile() {
    let dir = tempdir().expect("a temporary directory");
    let built = Path::new(env!("CARGO_BIN_EXE_kumiki"));
    let copy = dir.path().join("copy");
    // Another process writes the copy: a child of another test's thread cannot hold it open then.
    let paths = [built.as_os_str(), copy.as_os_str()];
    let copied = Command::new("cp").args(paths).status();
    assert!(copied.expect("cp runs").success());
    let printed = run(&copy, &["--version"], dir.path());
    assert!(printed.status.success(), "{printed:?}");
    let text = String::from_utf8(printed.stdout).expect("text");
    let named = text
        .strip_prefix(concat!("kumiki ", env!("CARGO_PKG_VERSION"), " ("))
        .and_then(|rest| rest.strip_suffix(")\n"));
    let (commit, profile) = named
        .and_then(|named| named.split_once(", "))
        .unwrap_or_else(|| panic!("'{text}' names no commit and profile"));
    // The program lies in a directory that has its profile's name.
    let folder = built.parent().and_then(Path::file_name);
    assert_eq!(folder.and_then(|name| name.to_str()), Some(profile));
    let expected = std::env::var("KUMIKI_COMMIT").ok().or_else(checked_out);
    let expected = expected.unwrap_or_else(|| "unknown".to_owned());
    let clean = commit.strip_suffix("-dirty").unwrap_or(commit);
    assert_eq!(clean, expected, "{text}");
}
