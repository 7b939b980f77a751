//! Processes that end with the one that has started them, however that ends.
//!
//! The system can send a process a signal when the *thread* that started it ends
//! (`PR_SET_PDEATHSIG`). So each process is started by a thread of its own, its keeper, which stays
//! until the process is not needed any more: the thread that asks for a process may end, and hand
//! it on.
//!
//! The process itself has to request the signal, after the fork. `setpriv` of util-linux does that,
//! and then becomes the program, under the same number; in this process it would take unsafe code.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rustix::process::Pid;

/// Returns a command for a program that must end with this process. Arguments are the program's.
pub(super) fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A process that ends with this one. It must have been waited for before this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) child: Child,
    /// The keeper ends when this is dropped.
    _keeper: Sender<Infallible>,
}

impl Process {
    /// Starts a process from a command that [`command`] has made.
    pub(super) fn start(mut command: Command) -> io::Result<Process> {
        let (tell, told) = channel();
        let (keeper, not_wanted) = channel();
        let keep = move || {
            let started = command.spawn();
            // It has files open that belong to the process.
            drop(command);
            if tell.send(started).is_ok() {
                let _ = not_wanted.recv();
            }
        };
        let name = "keeper".to_owned();
        thread::Builder::new().name(name).spawn(keep)?;
        let child = told.recv().expect("a keeper tells what it has started")?;
        Ok(Process {
            child,
            _keeper: keeper,
        })
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs;
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use testkit::own_process::test_as_process;

    use super::*;

    /// A process with this variable plays the parent.
    const ROLE: &str = "KUMIKI_TEST_IS_PARENT";
    const LONG: Duration = Duration::from_secs(600);

    fn sleeps() -> Process {
        let mut command = command(Path::new("sleep"));
        command.arg(LONG.as_secs().to_string()).stdin(Stdio::null());
        Process::start(command).expect("setpriv")
    }

    /// Returns `true` if a process runs: its number exists, and not only until its parent waits for
    /// it.
    fn runs(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
        !state.is_empty() && !state.starts_with('Z')
    }

    /// Starts a process and waits to be killed, in a process of its own; otherwise it does nothing.
    #[test]
    fn plays_the_parent() {
        if env::var_os(ROLE).is_none() {
            return;
        }
        let process = sleeps();
        println!("\nstarted {}", process.pid().as_raw_nonzero());
        std::io::stdout().flush().expect("a pipe");
        thread::sleep(LONG);
    }

    #[test]
    fn a_process_ends_when_the_one_that_started_it_is_killed() {
        let mut parent = test_as_process(module_path!(), "plays_the_parent")
            .env(ROLE, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program");
        let said = BufReader::new(parent.stdout.take().expect("a pipe")).lines();
        let pid = said
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("started ").map(str::to_owned))
            .expect("it starts a process");
        // `setpriv` has done its work when it has become the other program.
        let begun = Instant::now();
        let name = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        while name().trim() != "sleep" {
            assert!(begun.elapsed() < LONG / 10, "it is {}", name());
            thread::sleep(Duration::from_millis(1));
        }
        assert!(runs(&pid));
        parent.kill().expect("it runs");
        parent.wait().expect("it was started");
        while runs(&pid) {
            assert!(begun.elapsed() < LONG / 10, "it outlives its parent");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_process_outlives_the_thread_that_wanted_it() {
        let mut process = thread::spawn(sleeps).join().expect("it starts one");
        thread::sleep(Duration::from_millis(200));
        let ended = process.child.try_wait().expect("it was started");
        assert_eq!(ended, None);
        process.child.kill().expect("it runs");
        process.child.wait().expect("it was started");
    }
}
