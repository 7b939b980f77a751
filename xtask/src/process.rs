//! Child processes that never outlive their parent's interest in them.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::interrupt;

/// A child that is killed and reaped when the guard goes.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    name: String,
}

impl Guarded {
    /// Starts `command` with no standard input.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Guarded> {
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {name} ({command:?})"))?;
        Ok(Guarded {
            child,
            name: name.to_owned(),
        })
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends SIGKILL, and waits for the end.
    ///
    /// # Errors
    /// If the child cannot be waited for.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        // An error means that it has ended already, which `wait` will tell.
        let _ = self.child.kill();
        self.child
            .wait()
            .with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Sends SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// If the child is still there after `patience`; it is killed then.
    pub fn terminate(&mut self, patience: Duration) -> Result<ExitStatus> {
        kill_process(self.pid(), Signal::TERM)
            .with_context(|| format!("cannot signal {}", self.name))?;
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(2));
        }
        self.kill()?;
        bail!(
            "{} did not end within {patience:?} after SIGTERM",
            self.name
        )
    }

    /// Returns the child's exit status if it has ended.
    ///
    /// # Errors
    /// If the system cannot say.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Waits for the end, listening for Ctrl-C.
    ///
    /// # Errors
    /// If the user asked to stop or the child cannot be waited for.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
            interrupt::check()?;
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long a command may take to stop after Ctrl-C, which reaches it as well, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// Runs a command to its end, its output passed through. After Ctrl-C it has time to stop what it has
/// started.
///
/// # Errors
/// If it cannot be started or fails, or the user asked to stop.
pub fn run(name: &str, command: &mut Command) -> Result<()> {
    let mut child = Guarded::spawn(name, command)?;
    let status = match child.wait() {
        Ok(status) => status,
        Err(error) => {
            let deadline = Instant::now() + GRACE;
            while Instant::now() < deadline {
                if child.exited()?.is_some() {
                    return Err(error);
                }
                thread::sleep(Duration::from_millis(5));
            }
            child.terminate(GRACE)?;
            return Err(error);
        }
    };
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    Ok(())
}

/// Runs a command to its end and returns its standard output.
///
/// # Errors
/// If it cannot be started or fails; the message ends with its standard error.
pub fn output(name: &str, command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {name} ({command:?})"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed ({}): {}", output.status, told.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
