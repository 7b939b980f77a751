//! Finds the commit and the profile.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that names the commit of sources that do not lie in a repository.
const COMMIT: &str = "KUMIKI_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let given = env::var(COMMIT).ok().filter(|commit| is_plain(commit));
    let commit = given.or_else(from_git);
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=KUMIKI_BUILD_COMMIT={commit}");
    println!("cargo::rustc-env=KUMIKI_BUILD_PROFILE={}", profile());
}

/// Returns `true` if the text needs no quoting anywhere.
fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.+".contains(&b))
}

/// Returns the name of the profile's directory: this script's is
/// `target/[TRIPLE/]PROFILE/build/…/out`.
fn profile() -> String {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let build = out.ancestors().find(|dir| dir.ends_with("build"));
    let profile = build.and_then(Path::parent).and_then(Path::file_name);
    let name = profile.map(|name| name.to_string_lossy().into_owned());
    name.filter(|name| is_plain(name))
        .unwrap_or_else(|| "unknown".to_owned())
}

/// Returns the workspace's root.
fn root() -> PathBuf {
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    own.join("../..")
}

/// Returns the output of git; `None` if it fails, or is missing.
fn git(args: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.arg("--no-optional-locks").args(args);
    command.current_dir(root());
    // A build that a hook of git starts has variables that name the hook's repository.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"] {
        command.env_remove(name);
    }
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}

/// Returns the commit that is checked out, and makes cargo run this script again when it or a
/// source changes.
fn from_git() -> Option<String> {
    // Sources that were unpacked within another repository have none.
    let top = fs::canonicalize(git(&["rev-parse", "--show-toplevel"])?).ok()?;
    if top != fs::canonicalize(root()).ok()? {
        return None;
    }
    // The places of these files differ between a checkout and a further working tree of it. The log
    // of HEAD grows with each commit and checkout, also while the branch is only in packed-refs.
    let mut watched = vec![
        "HEAD".to_owned(),
        "logs/HEAD".to_owned(),
        "packed-refs".to_owned(),
    ];
    watched.extend(git(&["symbolic-ref", "--quiet", "HEAD"]));
    for name in watched {
        if let Some(path) = git(&["rev-parse", "--git-path", &name]) {
            watch(&root().join(path));
        }
    }
    let sources = sources();
    sources.iter().for_each(|path| watch(path));
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let mut status = vec!["status", "--porcelain", "--"];
    status.extend(sources.iter().filter_map(|path| path.to_str()));
    // If the state is not known, the sources are not called clean.
    let is_dirty = git(&status).is_none_or(|changes| !changes.is_empty());
    Some(commit + if is_dirty { "-dirty" } else { "" })
}

/// Makes cargo run this script again when the file changes. A missing file would make it run
/// always.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// Returns the files of which programs are made: manifests, and the crates' sources.
fn sources() -> Vec<PathBuf> {
    let root = fs::canonicalize(root()).unwrap_or_default();
    let mut sources = vec![root.join("Cargo.toml"), root.join("Cargo.lock")];
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten();
    for one in crates.flatten() {
        for part in ["Cargo.toml", "build.rs", "src"] {
            sources.push(one.path().join(part));
        }
    }
    sources.retain(|path| path.exists());
    sources
}
