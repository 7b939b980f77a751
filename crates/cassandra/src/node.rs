//! One node: its process, and its output.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result};
use crate::node_settings::NodeSettings;
use crate::process::Process;

/// The interval at which it is checked if a process has ended or is paused.
const LOOK: Duration = Duration::from_millis(10);
/// How long it may take until all threads are paused.
const STILL: Duration = Duration::from_secs(10);
/// The number of lines of a log in an error.
const TAIL: usize = 25;

/// A node, running or not. Its process is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Node {
    settings: NodeSettings,
    log: PathBuf,
    process: Option<Process>,
}

impl Node {
    /// Writes the node's files. It does not run yet.
    pub(super) fn new(settings: NodeSettings) -> Result<Node> {
        settings.write()?;
        let log = settings.home.with_extension("log");
        Ok(Node {
            settings,
            log,
            process: None,
        })
    }

    /// Returns its address for clients.
    pub(super) fn address(&self) -> SocketAddr {
        self.settings.address()
    }

    /// Returns the file with its output.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        self.process.as_ref().map(Process::pid)
    }

    /// Starts it without waiting for it. Ctrl-C does not reach it: the process that started it
    /// stops it.
    pub(super) fn start(&mut self) -> Result<()> {
        let mut command = self.settings.command()?;
        let log = File::create(&self.log).map_err(Error::file(&self.log))?;
        let errors = log.try_clone().map_err(Error::file(&self.log))?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        command.process_group(0);
        let program = PathBuf::from(command.get_program());
        let process = Process::start(command).map_err(Error::file(&program))?;
        self.process = Some(process);
        Ok(())
    }

    /// Returns an error if it has ended by itself. It counts as one that does not run afterwards.
    pub(super) fn check_running(&mut self) -> Result<()> {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        let Some(status) = process.child.try_wait().map_err(Error::file(&self.log))? else {
            return Ok(());
        };
        self.process = None;
        Err(Error::Ended {
            id: self.settings.id,
            status,
            tail: self.tail(),
        })
    }

    /// Returns the error that it is not ready.
    pub(super) fn not_ready(&self, after: Duration) -> Error {
        Error::NotReady {
            id: self.settings.id,
            after,
            tail: self.tail(),
        }
    }

    /// Sends SIGKILL, and waits for the end.
    pub(super) fn kill(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        // An error means that it has ended already, which `wait` will report.
        let _ = process.child.kill();
        process.child.wait().map_err(Error::file(&self.log))?;
        Ok(())
    }

    /// Sends SIGTERM.
    pub(super) fn signal_end(&mut self) -> Result<()> {
        if !self.has_ended()? {
            // A paused process would not receive it.
            self.signal(Signal::CONT)?;
            self.signal(Signal::TERM)?;
        }
        Ok(())
    }

    /// Waits for the end until `deadline`, and then kills it.
    pub(super) fn wait_end(&mut self, deadline: Instant) -> Result<()> {
        while !self.has_ended()? {
            if Instant::now() > deadline {
                self.kill()?;
                return Err(Error::Stays {
                    id: self.settings.id,
                    tail: self.tail(),
                });
            }
            thread::sleep(LOOK);
        }
        self.process = None;
        Ok(())
    }

    fn has_ended(&mut self) -> Result<bool> {
        let Some(process) = &mut self.process else {
            return Ok(true);
        };
        let status = process.child.try_wait().map_err(Error::file(&self.log))?;
        Ok(status.is_some())
    }

    /// Sends SIGSTOP, and waits until every thread is paused: the signal takes effect when a thread
    /// next runs.
    pub(super) fn pause(&mut self) -> Result<()> {
        self.signal(Signal::STOP)?;
        let deadline = Instant::now() + STILL;
        while !self.stands_still() {
            if Instant::now() > deadline {
                return Err(self.not_ready(STILL));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Sends SIGCONT.
    pub(super) fn resume(&mut self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn stands_still(&self) -> bool {
        let Some(pid) = self.pid() else { return true };
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else {
            return true;
        };
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The name before it is in parentheses and may contain some. A thread that has just
            // ended has no file any more.
            let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
            state.is_empty() || state.starts_with('T')
        })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let dead = || Error::Dead {
            id: self.settings.id,
        };
        let pid = self.pid().ok_or_else(dead)?;
        kill_process(pid, signal).map_err(|_| dead())
    }

    /// Returns the last lines of its output.
    fn tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(TAIL)..];
        let log = self.log.display();
        format!("the end of {log}:\n  {}", tail.join("\n  "))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // There is no caller to report an error to, and nothing to do about it.
        let _ = self.kill();
    }
}
