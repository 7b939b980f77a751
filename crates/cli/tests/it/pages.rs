//! `kumiki pages` on the command line: over directories, with a storage node, and from a running
//! server.

mod directories;
mod export;
pub(crate) mod node;

use std::borrow::BorrowMut;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::process::kumiki;

/// Returns a command that begins with `kumiki pages`.
pub(crate) fn pages(args: &[&str]) -> Command {
    let mut command = kumiki();
    command.arg("pages").args(args);
    command
}

/// Returns the output of a program that must succeed.
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

/// Returns the message of a program that must fail.
fn refused(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.output().expect("the program starts");
    assert_eq!(status.code(), Some(1), "{command:?} is refused");
    String::from_utf8(stderr).expect("text")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}
