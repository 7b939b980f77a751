//! Servers as child processes: the binary under test, and Redis beside it.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::error::TestkitError;

/// The time that a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// Files for the output of a server.
const OUTPUT: &str = "output.txt";
const ERRORS: &str = "errors.txt";

/// A running server. It is killed when this is dropped.
#[derive(Debug)]
pub struct Server {
    /// The address on which it listens.
    pub address: SocketAddr,
    child: Child,
    /// The directory of its output, and of its data unless that lies elsewhere.
    dir: TempDir,
}

impl Server {
    /// Starts the command that `command` builds, and waits until it accepts connections. Another
    /// process may take the port that was found free; then another port is tried. The command is
    /// built for the address and for a directory of its own, which is removed when the server is
    /// dropped.
    ///
    /// # Panics
    /// Panics if it does not start.
    #[track_caller]
    pub fn start(command: impl Fn(SocketAddr, &Path) -> Command) -> Server {
        let mut said = String::new();
        for _ in 0..5 {
            match Server::start_at(crate::free_address().expect("a free port"), &command) {
                Ok(server) => return server,
                Err(error) => said = error.to_string(),
            }
        }
        panic!("the server does not start: {said}");
    }

    /// Starts the command that `command` builds and waits until it accepts connections at
    /// `address`.
    ///
    /// # Errors
    /// Returns the output of the server if it ends or does not listen in time.
    ///
    /// # Panics
    /// Panics if the system cannot start it.
    pub fn start_at(
        address: SocketAddr,
        command: impl Fn(SocketAddr, &Path) -> Command,
    ) -> Result<Server, TestkitError> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = |name| File::create(dir.path().join(name)).expect("a file in it");
        let child = command(address, dir.path())
            .stdin(Stdio::null())
            .stdout(file(OUTPUT))
            .stderr(file(ERRORS))
            .spawn()
            .expect("start a server");
        let mut server = Server {
            address,
            child,
            dir,
        };
        match server.wait_until_listening() {
            true => Ok(server),
            false => Err(TestkitError::environment(
                server.output() + &server.errors(),
            )),
        }
    }

    /// Does the same as [`Server::start_at`], and tries again if one of its addresses is in use:
    /// usually as the near end of a connection, and not for long.
    ///
    /// # Errors
    /// Returns the errors of [`Server::start_at`].
    ///
    /// # Panics
    /// Panics in the same cases as [`Server::start_at`].
    pub fn insist_at(
        address: SocketAddr,
        command: impl Fn(SocketAddr, &Path) -> Command,
    ) -> Result<Server, TestkitError> {
        for _ in 0..5 {
            match Server::start_at(address, &command) {
                Err(error) if error.to_string().contains("Address already in use") => {
                    std::thread::sleep(Duration::from_millis(300));
                }
                started => return started,
            }
        }
        Server::start_at(address, command)
    }

    fn wait_until_listening(&mut self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if self.child.try_wait().expect("child").is_some() {
                return false;
            }
            if TcpStream::connect(self.address).is_ok() {
                // Another process that took the port first may have answered.
                std::thread::sleep(Duration::from_millis(20));
                return self.child.try_wait().expect("child").is_none();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Returns the line that it prints once it listens, which may be after it has accepted the
    /// first connection.
    ///
    /// # Panics
    /// Panics if it prints no line, or prints more than one.
    #[must_use]
    #[track_caller]
    pub fn only_line(&self) -> String {
        crate::eventually("the server prints a line", || self.output().ends_with('\n'));
        let output = self.output();
        assert_eq!(output.lines().count(), 1, "{output}");
        output
    }

    /// Returns its output so far.
    #[must_use]
    pub fn output(&self) -> String {
        std::fs::read_to_string(self.dir.path().join(OUTPUT)).unwrap_or_default()
    }

    /// Returns its output to standard error so far.
    #[must_use]
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.dir.path().join(ERRORS)).unwrap_or_default()
    }

    /// Returns the number of its process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills it as a crash would.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        self.end();
    }

    /// Asks it to stop, and returns its exit status.
    ///
    /// # Panics
    /// Panics if it does not end.
    #[must_use]
    pub fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.end()
    }

    /// Stops it without ending it, like an overloaded machine. Returns when all of its threads have
    /// stopped: a signal takes effect when a thread handles it, and the others go on until then.
    ///
    /// # Panics
    /// Panics if they have not stopped within ten seconds.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.stands_still() {
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stands_still(&self) -> bool {
        let tasks = format!("/proc/{}/task", self.child.id());
        let mut tasks = std::fs::read_dir(tasks).expect("it is there");
        tasks.all(|task| {
            let stat = task.expect("a thread").path().join("stat");
            let stat = std::fs::read_to_string(stat).unwrap_or_default();
            // The state is behind the name, which is in parentheses and may contain parentheses.
            let state = stat.rsplit(')').next().unwrap_or_default();
            state.trim_start().starts_with('T')
        })
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// Panics if its end has been waited for.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal");
    }

    /// Waits until it has ended, and returns its exit status.
    ///
    /// # Panics
    /// Panics if it does not end.
    pub fn end(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failing test cannot report this itself: the state of its server.
        if std::thread::panicking() {
            let state = match self.child.try_wait() {
                Ok(None) => "runs".to_owned(),
                Ok(Some(status)) => format!("has ended ({status})"),
                Err(error) => format!("cannot be asked ({error})"),
            };
            let said = self.errors();
            eprintln!("the server at {} {state}; it said: {said}", self.address);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A `redis-server` that persists nothing by itself, and that can be started again at its address. It
/// is killed when this is dropped.
#[derive(Debug)]
pub struct Redis {
    /// The address on which it listens.
    pub address: SocketAddr,
    program: PathBuf,
    options: Vec<String>,
    server: Option<Server>,
    /// The data that it keeps from one start to the next: its place in a Redis Cluster.
    dir: TempDir,
}

impl Redis {
    /// Starts it with further options.
    ///
    /// # Panics
    /// Panics if it does not start.
    #[must_use]
    #[track_caller]
    pub fn start(program: &Path, options: &[&str]) -> Redis {
        let options = options.iter().map(|option| (*option).to_owned());
        let mut redis = Redis {
            address: crate::free_address().expect("a free port"),
            program: program.to_owned(),
            options: options.collect(),
            server: None,
            dir: tempfile::tempdir().expect("a temporary directory"),
        };
        let mut said = String::new();
        // Another process may take a port that was found free.
        for _ in 0..5 {
            match redis.try_start() {
                Ok(()) => return redis,
                Err(error) => said = error.to_string(),
            }
            redis.address = crate::free_address().expect("a free port");
        }
        panic!("redis-server does not start: {said}");
    }

    fn try_start(&mut self) -> Result<(), TestkitError> {
        let command = |address: SocketAddr, _: &Path| {
            let mut command = Command::new(&self.program);
            command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.args(["--port", &address.port().to_string(), "--dir"]);
            command.arg(self.dir.path()).args(&self.options);
            command
        };
        self.server = Some(Server::start_at(self.address, command)?);
        Ok(())
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Starts it anew, empty.
    ///
    /// # Panics
    /// Panics if it does not start.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        crate::eventually("redis-server starts again", || self.try_start().is_ok());
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// Panics if it does not run.
    pub fn signal(&self, signal: Signal) {
        self.server.as_ref().expect("it runs").signal(signal);
    }
}

/// Runs a command to its end, and returns its exit code, its output and its errors. The command is
/// started in a directory of its own.
///
/// # Panics
/// Panics if it does not end in time, or if its output is not text.
pub fn finished(command: &mut Command) -> (Option<i32>, String, String) {
    // No other process sees the files that it writes in its directory.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut child = command
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    wait(&mut child);
    let output = child.wait_with_output().expect("its output");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Waits until `child` has ended; kills it when that takes too long.
///
/// # Panics
/// Panics when it had to be killed.
pub fn wait(child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("child") {
            return status;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    panic!("the process did not end within {PATIENCE:?}");
}
