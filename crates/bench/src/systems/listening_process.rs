//! A process that listens.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::RunError;
use crate::machine;

/// How long it may take to listen.
const READY: Duration = Duration::from_secs(30);
/// How often another port is tried when another process has taken it.
const TRIES: usize = 5;

/// The process. It is killed when this is dropped.
pub(crate) struct ListeningProcess {
    child: Mutex<Child>,
    process: u32,
    name: String,
    address: SocketAddr,
    output: PathBuf,
}

impl ListeningProcess {
    /// Starts `program` with the arguments that `arguments` makes for an address and another free
    /// port, and waits until it listens. Its output goes to a file in `dir`.
    pub(crate) fn start(
        program: &Path,
        dir: &Path,
        name: &str,
        arguments: impl Fn(SocketAddr, u16) -> Result<Vec<String>, RunError>,
    ) -> Result<ListeningProcess, RunError> {
        let listens = |at| TcpStream::connect(at).is_ok();
        ListeningProcess::start_when(program, dir, name, arguments, listens)
    }

    /// Like [`ListeningProcess::start`], for a process that is ready when `is_ready` returns `true`
    /// for its address.
    pub(crate) fn start_when(
        program: &Path,
        dir: &Path,
        name: &str,
        arguments: impl Fn(SocketAddr, u16) -> Result<Vec<String>, RunError>,
        is_ready: impl Fn(SocketAddr) -> bool,
    ) -> Result<ListeningProcess, RunError> {
        let mut last = String::new();
        for _ in 0..TRIES {
            let addresses = testkit::free_addresses(2);
            let addresses =
                addresses.map_err(|error| RunError::failed("looking for ports")(&error))?;
            let arguments = arguments(addresses[0], addresses[1].port())?;
            let process = ListeningProcess::spawn(program, dir, name, addresses[0], &arguments)?;
            if process.becomes_ready(&is_ready) {
                return Ok(process);
            }
            last = process.last_line();
        }
        let what = format!("{name} does not listen; the last that it said: {last}");
        Err(RunError::Failed(what))
    }

    fn spawn(
        program: &Path,
        dir: &Path,
        name: &str,
        address: SocketAddr,
        arguments: &[String],
    ) -> Result<ListeningProcess, RunError> {
        let failed = |error: std::io::Error| {
            RunError::failed(&format!("starting {}", program.display()))(&error)
        };
        let path = dir.join(format!("{name}.log"));
        let out = File::create(&path).map_err(failed)?;
        let err = out.try_clone().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(dir);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().map_err(failed)?;
        Ok(ListeningProcess {
            process: child.id(),
            child: Mutex::new(child),
            name: name.to_owned(),
            address,
            output: path,
        })
    }

    /// Waits until it listens. Returns `false` if it has ended, or takes too long.
    fn becomes_ready(&self, is_ready: impl Fn(SocketAddr) -> bool) -> bool {
        let deadline = Instant::now() + READY;
        while !is_ready(self.address) {
            let ended = self.child.lock().try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    fn last_line(&self) -> String {
        let output = std::fs::read_to_string(&self.output).unwrap_or_default();
        output.lines().last().unwrap_or("nothing").to_owned()
    }

    /// Checks that the process still runs.
    ///
    /// # Errors
    /// It has ended; the text says how, and what it wrote last.
    pub(crate) fn check_alive(&self) -> Result<(), RunError> {
        match self.child.lock().try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(RunError::Failed(format!(
                "the process '{}' has ended ({status}); the last that it said: {}",
                self.name,
                self.last_line()
            ))),
            Err(error) => Err(RunError::failed("asking for the state of a process")(
                &error,
            )),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the processor time that it has used, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        machine::cpu_of(self.process)
    }
}

impl Drop for ListeningProcess {
    fn drop(&mut self) {
        // An error means that it has ended already, which `wait` reports.
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}
