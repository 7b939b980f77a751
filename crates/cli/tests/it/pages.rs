//! `kumiki pages`, as it is typed: over directories, with a storage node, and from a running server.

mod directories;
mod export;
pub(crate) mod node;

use std::borrow::BorrowMut;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::process::kumiki;

/// What follows `kumiki pages` on the command line.
pub(crate) fn pages(args: &[&str]) -> Command {
    let mut command = kumiki();
    command.arg("pages").args(args);
    command
}

/// What a program that was to succeed has written.
pub(crate) fn done(mut command: impl BorrowMut<Command>) -> String {
    let command = command.borrow_mut();
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {stderr}");
    String::from_utf8(stdout).expect("text")
}

/// What a program that was to fail has said of it.
fn refused(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.output().expect("the program starts");
    assert_eq!(status.code(), Some(1), "{command:?} is refused");
    String::from_utf8(stderr).expect("text")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}
