//! Servers as child processes: ours and Redis's.
//!
//! Redis's programs are a peer that a machine may lack. Without them a test says so in one line
//! and passes; with `KUMIKI_REQUIRE_PEERS=1` it fails.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a test goes on that has not seen enough of what it is about.
const LONGEST: Duration = Duration::from_secs(60);
/// Files for what a server prints.
const OUTPUT: &str = "output.txt";
const ERRORS: &str = "errors.txt";

/// A running server. It is killed when this is dropped.
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    child: Child,
    /// Where its output is written, and its data unless that lies elsewhere.
    dir: TempDir,
}

impl Server {
    /// Starts `redis-server` with nothing persisted.
    pub(crate) fn redis(program: &Path, options: &[String]) -> Server {
        Server::start(|address, dir| {
            let mut command = Command::new(program);
            command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.args(["--port", &address.port().to_string()]);
            command.arg("--dir").arg(dir).args(options);
            command
        })
    }

    /// Starts the binary under test in a directory of its own; `args` come after
    /// `serve --listen ADDRESS`.
    pub(crate) fn kumiki<A: AsRef<OsStr>>(args: &[A]) -> Server {
        Server::start(|address, dir| {
            let mut command = serve(address);
            command.args(args).current_dir(dir);
            command
        })
    }

    /// Starts what `command` builds, and waits until it accepts connections. Another process may
    /// take the port that was found free; then another port is tried.
    fn start(command: impl Fn(SocketAddr, &Path) -> Command) -> Server {
        let mut said = String::new();
        for _ in 0..5 {
            match Server::start_at(free_address(), &command) {
                Ok(server) => return server,
                Err(text) => said = text,
            }
        }
        panic!("the server does not start: {said}");
    }

    /// Starts what `command` builds and waits until it accepts connections at `address`. If it
    /// does not start, what it said.
    pub(crate) fn start_at(
        address: SocketAddr,
        command: impl Fn(SocketAddr, &Path) -> Command,
    ) -> Result<Server, String> {
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
            false => Err(server.output() + &server.errors()),
        }
    }

    /// As [`Server::start_at`], again where somebody has one of its addresses: as the near end of a
    /// connection, most often, and not for long.
    pub(crate) fn insist_at(
        address: SocketAddr,
        command: impl Fn(SocketAddr, &Path) -> Command,
    ) -> Result<Server, String> {
        for _ in 0..5 {
            match Server::start_at(address, &command) {
                Err(said) if said.contains("Address already in use") => {
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
                // Whoever answered could be another process that took the port first.
                std::thread::sleep(Duration::from_millis(20));
                return self.child.try_wait().expect("child").is_none();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// What it has printed so far.
    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(self.dir.path().join(OUTPUT)).unwrap_or_default()
    }

    /// What it has printed to standard error so far.
    pub(crate) fn errors(&self) -> String {
        std::fs::read_to_string(self.dir.path().join(ERRORS)).unwrap_or_default()
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills it as a crash would.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Asks it to stop.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Has it stand still, as a machine that is overloaded. Returns when all of its threads do: a
    /// signal takes effect when a thread gets round to it, and the others go on until then.
    pub(crate) fn pause(&self) {
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
            // Behind the name, which is in parentheses and may hold any.
            let state = stat.rsplit(')').next().unwrap_or_default();
            state.trim_start().starts_with('T')
        })
    }

    /// Has it go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal");
    }

    fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // What a test that fails cannot say itself: whether its server was still there.
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

/// Starts `kumiki proxy` with these arguments, on a port of its own.
pub(crate) fn proxy<A: AsRef<OsStr>>(args: &[A]) -> Server {
    Server::start(|address, dir| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kumiki"));
        command.current_dir(dir);
        command.args(["proxy", "--listen", &address.to_string()]);
        command.args(args);
        command
    })
}

/// `kumiki serve --listen ADDRESS`.
pub(crate) fn serve(address: SocketAddr) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kumiki"));
    command.args(["serve", "--listen", &address.to_string()]);
    command
}

/// An address of this machine on which nobody listens.
pub(crate) fn free_address() -> SocketAddr {
    loopback::free_address().expect("a free port")
}

/// Waits while a test has not seen enough of what it is about: how fast that comes is the scheduler's to
/// say. Whether it was enough in the end, the test has to ask again.
pub(crate) fn go_on_until(mut is_enough: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_enough() && begin.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `child` has ended; kills it when that takes too long.
///
/// # Panics
/// When it had to be killed.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
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

/// Where a program of Redis's lies, or `None` after saying that this test is skipped.
///
/// # Panics
/// When it is absent and `KUMIKI_REQUIRE_PEERS=1`.
pub(crate) fn peer(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|p| p.is_file());
    found.or_else(|| absent(program))
}

/// A library of another language, which `cargo xtask peers` installs, or `None` after saying that
/// this test is skipped.
///
/// # Panics
/// When it is absent and `KUMIKI_REQUIRE_PEERS=1`.
pub(crate) fn peer_library(path: &str) -> Option<PathBuf> {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    let found = peers.join(path);
    match found.is_dir() {
        true => Some(found),
        false => absent(&format!("{path} (see cargo xtask peers)")),
    }
}

/// Says that a peer is absent, and that the test is skipped.
pub(super) fn absent(peer: &str) -> Option<PathBuf> {
    let required = std::env::var("KUMIKI_REQUIRE_PEERS").is_ok_and(|value| value == "1");
    assert!(
        !required,
        "{peer} is not installed, and KUMIKI_REQUIRE_PEERS=1 asks for it"
    );
    // Written directly: what a test prints is hidden when it passes.
    let line = format!("skipped: {peer} is not installed\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    None
}
