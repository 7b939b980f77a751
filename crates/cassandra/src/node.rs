//! One node: its process, and what it says.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::process::Process;
use super::settings::Settings;
use super::{Error, Result};

/// How often it is looked whether a process has ended or stands still.
const LOOK: Duration = Duration::from_millis(10);
/// How long all threads may take to stand still.
const STILL: Duration = Duration::from_secs(10);
/// How many lines of a log are told.
const TAIL: usize = 25;

/// A node, running or not. Its process is killed when this goes.
#[derive(Debug)]
pub(super) struct Node {
    settings: Settings,
    log: PathBuf,
    process: Option<Process>,
}

impl Node {
    /// Writes the node's files. It does not run yet.
    pub(super) fn new(settings: Settings) -> Result<Node> {
        settings.write()?;
        let log = settings.home.with_extension("log");
        Ok(Node {
            settings,
            log,
            process: None,
        })
    }

    /// Where clients find it.
    pub(super) fn address(&self) -> SocketAddr {
        self.settings.address()
    }

    /// The file that takes what it says.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        self.process.as_ref().map(Process::pid)
    }

    /// Starts it without waiting for it. Ctrl-C does not reach it: whoever started it stops it.
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

    /// An error if it has ended by itself. It counts as one that does not run afterwards.
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

    /// That it is not ready.
    pub(super) fn not_ready(&self, after: Duration) -> Error {
        Error::NotReady {
            id: self.settings.id,
            after,
            tail: self.tail(),
        }
    }

    /// SIGKILL, and wait for the end.
    pub(super) fn kill(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        // An error means that it has ended already, which `wait` will tell.
        let _ = process.child.kill();
        process.child.wait().map_err(Error::file(&self.log))?;
        Ok(())
    }

    /// SIGTERM.
    pub(super) fn signal_end(&mut self) -> Result<()> {
        if !self.has_ended()? {
            // One that stands still would not hear it.
            self.signal(Signal::CONT)?;
            self.signal(Signal::TERM)?;
        }
        Ok(())
    }

    /// Waits for the end until `deadline`, and kills it then.
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

    /// SIGSTOP, and wait until every thread stands still: the signal takes effect when a thread gets
    /// round to it.
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

    /// SIGCONT.
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
            // Behind the name, which is in parentheses and may hold any. A thread that ends just now
            // has no file any more.
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

    /// The last lines that it said.
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
        // There is nobody to tell, and nothing to do about it.
        let _ = self.kill();
    }
}
