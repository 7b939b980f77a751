//! `kumiki check` on good, torn, damaged and foreign directories.
//!
//! A program of its own: these tests have directories open in this process, and a process that another
//! test starts has this one's descriptors, locks of directories included, until it has become its
//! program. Here every process is started by [`check`], which starts one at a time.

mod replica;
mod store;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Runs the command. Returns its exit code and its output.
fn check(dir: &Path) -> (Option<i32>, String) {
    static STARTING: Mutex<()> = Mutex::new(());
    let starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let running = Command::new(env!("CARGO_BIN_EXE_kumiki"))
        .arg("check")
        .arg(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(starting);
    let output = running.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).expect("text"))
}

#[track_caller]
fn assert_says((code, said): &(Option<i32>, String), expected: i32, words: &[&str]) {
    assert_eq!(*code, Some(expected), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing: {said}");
    }
}
