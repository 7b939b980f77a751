//! The binary under test as a server, a proxy, and a command that ends.

use std::ffi::OsStr;
use std::fs::{File, read_to_string};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::eventually;
use testkit::process::{Server, finished};

/// Returns the binary under test.
pub(crate) fn kumiki() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kumiki"))
}

/// Returns `kumiki serve --listen ADDRESS`.
pub(crate) fn serve(address: SocketAddr) -> Command {
    let mut command = kumiki();
    command.args(["serve", "--listen", &address.to_string()]);
    command
}

/// Starts `kumiki serve` in a directory and on a port of its own; `args` come after
/// `serve --listen ADDRESS`.
pub(crate) fn start_server<A: AsRef<OsStr>>(args: &[A]) -> Server {
    Server::start(|address, dir| {
        let mut command = serve(address);
        command.args(args).current_dir(dir);
        command
    })
}

/// Starts `kumiki proxy` with these arguments, on a port of its own.
pub(crate) fn proxy<A: AsRef<OsStr>>(args: &[A]) -> Server {
    Server::start(|address, dir| {
        let mut command = kumiki();
        command.current_dir(dir);
        command.args(["proxy", "--listen", &address.to_string()]);
        command.args(args);
        command
    })
}

/// Runs the binary, which is expected to end by itself. Returns its exit code, its output and its
/// errors.
pub(crate) fn run(args: &[&str]) -> (Option<i32>, String, String) {
    finished(kumiki().args(args))
}

/// A command that runs in the background. It is killed when this is dropped.
pub(crate) struct Background {
    child: Child,
    directory: TempDir,
}

impl Background {
    /// Starts the binary with these arguments, in a directory of its own.
    pub(crate) fn start(args: &[&str]) -> Background {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = |name| File::create(directory.path().join(name)).expect("a file");
        let child = kumiki()
            .args(args)
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(file("output.txt"))
            .stderr(file("errors.txt"))
            .spawn()
            .expect("it starts");
        Background { child, directory }
    }

    /// Returns what it has printed, errors included.
    pub(crate) fn said(&self) -> String {
        let text = |name| read_to_string(self.directory.path().join(name)).unwrap_or_default();
        text("output.txt") + &text("errors.txt")
    }

    /// Returns `true` if it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_some()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal");
    }

    /// Waits for its end. Returns its exit code, and what it has printed.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        eventually("the command ends", || self.has_ended());
        let status = self.child.wait().expect("its end");
        (status.code(), self.said())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
