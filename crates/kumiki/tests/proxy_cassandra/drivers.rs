//! The programs with real drivers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The driver programs.
pub(crate) struct Drivers {
    pub(crate) python: PathBuf,
    /// The folder with libraries for Python.
    pub(crate) libraries: PathBuf,
    pub(crate) java: PathBuf,
    /// The Java driver's jars.
    pub(crate) jars: PathBuf,
}

impl Drivers {
    /// What the programs print that find Cassandra at `address`, all at the same time: each has a
    /// keyspace of its own.
    /// They are given `user`, a name and a password, if there is one.
    pub(crate) fn run(&self, address: SocketAddr, user: Option<[&str; 2]>) -> Vec<Vec<String>> {
        std::thread::scope(|scope| {
            let runs = ["4", "5"].map(|protocol| {
                [self.python(), self.java()].map(|(language, mut command)| {
                    command.args([address.ip().to_string(), address.port().to_string()]);
                    command.args([&format!("{language}{protocol}"), protocol]);
                    command.args(user.into_iter().flatten());
                    scope.spawn(move || lines(&mut command))
                })
            });
            let runs = runs.into_iter().flatten();
            runs.map(|run| run.join().expect("it ends well")).collect()
        })
    }

    fn python(&self) -> (&'static str, Command) {
        let mut command = Command::new("timeout");
        command.arg("900").arg(&self.python);
        command.arg(programs().join("driver_program.py"));
        command.env("PYTHONPATH", &self.libraries);
        ("python", command)
    }

    /// The program that goes to several proxies.
    pub(crate) fn several(&self) -> Command {
        let mut command = Command::new("timeout");
        command.arg("900").arg(&self.python);
        command.arg(programs().join("several.py"));
        command.env("PYTHONPATH", &self.libraries);
        command
    }

    fn java(&self) -> (&'static str, Command) {
        let mut command = Command::new("timeout");
        command.arg("900").arg(&self.java).arg("-cp");
        command.arg(self.jars.join("*"));
        command.arg(programs().join("DriverProgram.java"));
        ("java", command)
    }
}

/// What a command prints that ends well.
fn lines(command: &mut Command) -> Vec<String> {
    let output = command.stdin(Stdio::null()).output().expect("timeout");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out.lines().map(str::to_owned).collect()
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/cassandra")
}
