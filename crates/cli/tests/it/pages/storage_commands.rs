//! Commands of `kumiki pages`, and what they leave in a directory.

use std::borrow::BorrowMut;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

/// Returns the binary under test.
pub(crate) fn kumiki() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kumiki"))
}

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

/// Returns the command that serves a directory; without a secret unless the options name one.
pub(crate) fn serve(address: SocketAddr, dir: &Path, options: &[&str]) -> Command {
    let mut command = pages(&["serve", "--listen", &address.to_string()]);
    command.arg("--dir").arg(dir).args(options);
    let is_said = |option: &&str| ["--secret-file", "--insecure"].contains(option);
    if !options.iter().any(is_said) {
        command.arg("--insecure");
    }
    command
}

/// Returns the names of the files in a directory, without those that are there always.
pub(crate) fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let ours = ["kumiki-pages", "node.address", "LOCK"];
    names
        .filter(|name| !ours.contains(&name.as_str()))
        .collect()
}
