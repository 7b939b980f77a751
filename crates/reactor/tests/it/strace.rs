//! Errors that system calls of this thread return because strace makes them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{PTracer, Pid, Signal, kill_process, set_ptracer};

/// A strace that traces the thread that started it, until it is ended or dropped.
pub(crate) struct Strace {
    child: Child,
    _messages: BufReader<ChildStderr>,
    log: PathBuf,
}

impl Strace {
    /// Attaches to this thread with these options.
    pub(crate) fn attach(strace: &Path, options: &[String]) -> Strace {
        // Some systems let a process trace its children only.
        let _ = set_ptracer(PTracer::Any);
        let thread = std::fs::read_link("/proc/thread-self").expect("this thread");
        let thread = thread.file_name().expect("its number").to_owned();
        let log = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let log = log.join(format!("strace-{}", thread.display()));
        let mut command = Command::new(strace);
        command.args(options).arg("-o").arg(&log).arg("-p");
        command.arg(thread).stderr(Stdio::piped());
        // Another thread starts it: calls of this thread must not fail before its scenario begins.
        let started = std::thread::spawn(move || {
            let mut child = command.spawn().expect("strace starts");
            let mut messages = BufReader::new(child.stderr.take().expect("a pipe"));
            let mut line = String::new();
            messages.read_line(&mut line).expect("a message");
            (child, messages, line)
        });
        let (child, messages, line) = started.join().expect("no panic");
        let strace = Strace {
            child,
            _messages: messages,
            log,
        };
        assert!(line.contains(" attached"), "{options:?}: {line}");
        strace
    }

    /// Detaches. Returns the lines of the calls that the thread has made.
    pub(crate) fn end(mut self) -> Vec<String> {
        self.detach();
        let log = std::fs::read_to_string(&self.log).expect("a log");
        // The thread's last call asked strace to end.
        let lines = log.lines().take_while(|line| !line.contains("SIGTERM"));
        lines.map(str::to_owned).collect()
    }

    fn detach(&mut self) {
        // A strace that is gone already needs no signal.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        self.detach();
        let _ = std::fs::remove_file(&self.log);
    }
}
