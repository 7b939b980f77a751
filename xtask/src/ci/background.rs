//! Builds in the background, in CI: while harnesses wait, for servers, disks and time, what later steps need is built.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::build;
use crate::interrupt;
use crate::process::Guarded;

/// How often a build is asked whether it has ended.
const PAUSE: Duration = Duration::from_millis(50);
/// Harnesses have a higher priority.
const NICE: i32 = 10;

/// Builds that run one after the other. They are stopped when this is dropped.
pub(super) struct BackgroundBuilds {
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl BackgroundBuilds {
    pub(super) fn start(commands: Vec<Command>) -> BackgroundBuilds {
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopped);
        let run = move || commands.into_iter().try_for_each(|one| build(one, &seen));
        BackgroundBuilds {
            stopped,
            thread: Some(thread::spawn(run)),
        }
    }

    /// Waits for all of them.
    ///
    /// # Errors
    /// With the first one that failed.
    pub(super) fn finish(mut self) -> Result<()> {
        let thread = self.thread.take().expect("it is joined only once");
        let built = thread.join();
        built.unwrap_or_else(|_| bail!("the thread of the builds has panicked"))
    }
}

impl Drop for BackgroundBuilds {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Another error has been met, and is reported.
            let _ = thread.join();
        }
    }
}

fn build(mut command: Command, stopped: &AtomicBool) -> Result<()> {
    command.arg("--quiet");
    let name = format!("{command:?}");
    let mut child = Guarded::spawn(&name, command.current_dir(build::root()))?;
    // Without it, the harnesses are only slower.
    let _ = rustix::process::setpriority_process(Some(child.pid()), NICE);
    loop {
        if let Some(status) = child.exited()? {
            if !status.success() {
                bail!("{name} failed ({status})");
            }
            return Ok(());
        }
        interrupt::check()?;
        if stopped.load(Ordering::Relaxed) {
            bail!("the builds were stopped");
        }
        thread::sleep(PAUSE);
    }
}
