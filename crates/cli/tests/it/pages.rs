//! `kumiki pages` on the command line: over directories, with a storage node, and from a running
//! server.

mod directories;
mod export;
mod node;
mod storage_commands;

use std::process::{Command, Output};

use serde_json::Value;

use storage_commands::done;

/// Returns the message of a program that must fail.
fn refused(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.output().expect("the program starts");
    assert_eq!(status.code(), Some(1), "{command:?} is refused");
    String::from_utf8(stderr).expect("text")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}
