//! The servers that harnesses start: Kumiki, and redis-server beside it.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;

use testkit::{Client, Reply};
use xtask::build::PLANTED;
use xtask::interrupt;
use xtask::process::Guarded;

/// How long a server may take to recover and to listen.
const READY: Duration = Duration::from_secs(60);
/// How long a server may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program of a server.
#[derive(Clone, Debug)]
pub enum Program {
    /// `kumiki serve` with these arguments added.
    Kumiki {
        /// The binary.
        binary: PathBuf,
        /// Further arguments.
        args: Vec<String>,
        /// The planted bug of its processes; the binary must be one in which bugs can be planted.
        bug: Option<&'static str>,
    },
    /// Debian's `redis-server` with these arguments added.
    Redis {
        /// Further arguments.
        args: Vec<String>,
    },
    /// The server of this program that sends back what it receives.
    Echo {
        /// How it waits for connections, as `--io` of `kumiki serve`.
        io: String,
    },
}

/// The words before the program on its command line, such as `taskset` with its arguments. They
/// must end by executing the rest in their own process.
pub type Wrapper = Vec<String>;

/// A running server. It is killed when the guard is dropped.
#[derive(Debug)]
pub struct ServerUnderTest {
    process: Guarded,
    addr: SocketAddr,
    log: PathBuf,
}

impl Program {
    /// Creates Kumiki without a bug, with these arguments added.
    #[must_use]
    pub fn kumiki(binary: PathBuf, args: Vec<String>) -> Program {
        let bug = None;
        Program::Kumiki { binary, args, bug }
    }

    /// Returns a name for tables and messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Program::Kumiki { .. } => "kumiki",
            Program::Redis { .. } => "redis",
            Program::Echo { .. } => "echo",
        }
    }

    /// Returns the same program with further arguments, if it is Kumiki.
    #[must_use]
    pub fn with(&self, extra: &[&str]) -> Program {
        let mut program = self.clone();
        if let Program::Kumiki { args, .. } = &mut program {
            args.extend(extra.iter().map(|arg| (*arg).to_owned()));
        }
        program
    }

    /// Starts the server over `data` (a directory, created if absent) without waiting for it. Its
    /// output goes to the file `server.log` beside the directory.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn start(&self, data: &Path, wrapper: &Wrapper) -> Result<ServerUnderTest> {
        let log = log_of(data)?;
        let addr = testkit::free_address()?;
        let mut command = self.command(addr, data, wrapper);
        let process = spawn_logged(self.name(), &mut command, &log)?;
        Ok(ServerUnderTest { process, addr, log })
    }

    /// Starts node `id` of the cluster that `file` describes, whose clients connect at `addr`, over
    /// `data`; as [`Program::start`] otherwise. Ctrl-C does not reach it: the process that started
    /// the nodes stops them.
    ///
    /// # Errors
    /// Returns an error if it cannot be started, or is no Kumiki.
    pub fn start_node(
        &self,
        file: &Path,
        id: u16,
        addr: SocketAddr,
        data: &Path,
    ) -> Result<ServerUnderTest> {
        let log = log_of(data)?;
        let line = self.node_line(file, id, data)?;
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).process_group(0);
        let process = spawn_logged(&format!("node {id}"), &mut command, &log)?;
        Ok(ServerUnderTest { process, addr, log })
    }

    /// Returns the command line of a node.
    ///
    /// # Errors
    /// Returns an error if it is no Kumiki.
    pub fn node_line(&self, file: &Path, id: u16, data: &Path) -> Result<Vec<String>> {
        let Program::Kumiki { binary, args, bug } = self else {
            bail!("only Kumiki has clusters that 'cluster.toml' describes");
        };
        let mut line = serve(binary, *bug);
        line.extend(["--cluster".into(), file.display().to_string()]);
        line.extend(["--node".into(), id.to_string()]);
        if !args.iter().any(|arg| arg == "--ephemeral") {
            line.extend(["--data".into(), data.display().to_string()]);
        }
        line.extend(args.iter().cloned());
        Ok(line)
    }

    fn command(&self, addr: SocketAddr, data: &Path, wrapper: &Wrapper) -> Command {
        let mut line: Vec<String> = wrapper.clone();
        let data = data.display().to_string();
        let port = addr.port().to_string();
        match self {
            Program::Kumiki { binary, args, bug } => {
                line.extend(serve(binary, *bug));
                line.extend(["--listen".into(), addr.to_string()]);
                if !args.iter().any(|arg| arg == "--ephemeral") {
                    line.extend(["--data".into(), data]);
                }
                line.extend(args.iter().cloned());
            }
            Program::Redis { args } => {
                line.extend(
                    ["redis-server", "--bind", "127.0.0.1", "--save", ""].map(String::from),
                );
                line.extend(["--port".into(), port, "--dir".into(), data]);
                line.extend(args.iter().cloned());
            }
            Program::Echo { io } => {
                let program = std::env::current_exe().unwrap_or_else(|_| "torture".into());
                line.extend([program.display().to_string(), "echo".into()]);
                line.extend([addr.to_string(), "--io".into(), io.clone()]);
            }
        }
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]);
        command
    }
}

impl ServerUnderTest {
    /// Returns the address that it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Waits until it answers PING without an error.
    ///
    /// # Errors
    /// Returns an error if it ends or takes more than a minute; the message has the end of its log.
    pub fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY;
        while Instant::now() < deadline {
            interrupt::check()?;
            if let Some(status) = self.process.exited()? {
                bail!(
                    "the server ended ({status}) instead of listening\n{}",
                    self.log_tail()
                );
            }
            // Refused connections and LOADING errors both mean: not yet.
            if let Ok(mut client) = Client::try_connect(self.addr)
                && client
                    .try_call(&["PING"])
                    .is_ok_and(|reply| !matches!(reply, Reply::Error(_)))
            {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(2));
        }
        bail!(
            "the server does not answer at {}\n{}",
            self.addr,
            self.log_tail()
        )
    }

    /// Connects.
    ///
    /// # Errors
    /// Returns an error if the server refuses.
    pub fn connect(&self) -> Result<Client> {
        Client::try_connect(self.addr).with_context(|| format!("cannot connect to {}", self.addr))
    }

    /// Sends SIGKILL, and waits for the end.
    ///
    /// # Errors
    /// Returns an error if it cannot be waited for.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.process.kill()
    }

    /// Sends SIGTERM, which must lead to a clean exit.
    ///
    /// # Errors
    /// Returns an error if it does not end, or ends with another status than zero.
    pub fn stop(&mut self) -> Result<()> {
        let status = self.process.terminate(PATIENCE)?;
        if !status.success() {
            bail!(
                "the server ended with {status} after SIGTERM\n{}",
                self.log_tail()
            );
        }
        Ok(())
    }

    /// Returns the exit status, if it has ended.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.process.exited()
    }

    /// Returns the last lines of its output.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(20)..];
        format!(
            "the end of {}:\n  {}",
            self.log.display(),
            tail.join("\n  ")
        )
    }
}

/// Returns settings by which the nodes of a harness differ: how they wait for connections (`auto` is io_uring
/// where the system has it), and for which links they ask for encryption.
#[must_use]
pub fn settings_of_node(number: usize) -> &'static [&'static str] {
    match number % 2 {
        0 => &["--io", "auto"],
        _ => &["--io", "epoll", "--encrypt-links", "yes"],
    }
}

/// Returns the command line of `kumiki serve`, in an environment that chooses the planted bug, if
/// there is one. `env` executes the binary in its own process, so that signals reach it.
fn serve(binary: &Path, bug: Option<&str>) -> Vec<String> {
    let mut line = Vec::new();
    if let Some(bug) = bug {
        line.extend(["env".to_owned(), format!("{PLANTED}={bug}")]);
    }
    line.extend([binary.display().to_string(), "serve".to_owned()]);
    line
}

/// Returns the file for a server's output, beside the directory `data`, which is created.
fn log_of(data: &Path) -> Result<PathBuf> {
    fs::create_dir_all(data).with_context(|| format!("cannot make {}", data.display()))?;
    Ok(data.with_extension("log"))
}

/// Starts a command whose output goes to a new file `log`.
fn spawn_logged(name: &str, command: &mut Command, log: &Path) -> Result<Guarded> {
    File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
    // Both append, so that neither overwrites the output of the other.
    let append = || File::options().append(true).open(log);
    command.stdout(append()?).stderr(append()?);
    Guarded::spawn(name, command)
}
