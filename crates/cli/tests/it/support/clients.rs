//! Clients of others, as programs.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs a program on an input, and returns its output and its end.
pub(crate) fn output(command: &Command, input: &str) -> Output {
    // It ends in any case.
    let mut limited = Command::new("timeout");
    limited.arg("120").arg(command.get_program());
    limited.args(command.get_args());
    for (name, value) in command.get_envs() {
        limited.env(name, value.unwrap_or(OsStr::new("")));
    }
    let mut child = limited
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the client");
    let mut to = child.stdin.take().expect("it is piped");
    // A client that has failed does not read it.
    drop(to.write_all(input.as_bytes()));
    drop(to);
    child.wait_with_output().expect("the client's end")
}

/// Runs a program on an input, and returns what it prints.
///
/// # Panics
/// Panics if it fails.
pub(crate) fn run(command: &Command, input: &str) -> String {
    let output = output(command, input);
    let text = said(&output);
    assert!(output.status.success(), "{command:?}: {text}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns everything that a program has printed.
pub(crate) fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Returns the path of one of the programs that use clients of others.
pub(crate) fn script(name: &str) -> PathBuf {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    clients.join(name)
}
