//! The programs with real drivers of Cassandra, which lie in `clients/cassandra/`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ::cassandra::Installed;
use testkit::peers::{self, Group};

/// The language of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Language {
    Python,
    Java,
    Rust,
}

impl Language {
    pub(crate) const ALL: [Language; 3] = [Language::Python, Language::Java, Language::Rust];

    /// Returns the versions of the protocol that its driver speaks.
    pub(crate) fn protocols(self) -> &'static [&'static str] {
        match self {
            Language::Python | Language::Java => &["4", "5"],
            Language::Rust => &["4"],
        }
    }
}

/// The drivers, and a Cassandra to try them with.
pub(crate) struct Drivers {
    pub(crate) installed: Installed,
    pub(crate) python: PathBuf,
    /// The folder with libraries for Python.
    pub(crate) libraries: PathBuf,
    /// The Java driver's jars.
    jars: PathBuf,
    /// The program in Rust.
    rust: PathBuf,
}

impl Drivers {
    /// Returns all of them; `None`, with a message, if something is not installed.
    pub(crate) fn find() -> Option<Drivers> {
        peers::installed(Group::Cassandra, "cassandra/lib")?;
        let drivers = Drivers {
            python: peers::program(Group::Cassandra, "python3")?,
            libraries: peers::installed(Group::Cassandra, "python/cassandra")?
                .parent()?
                .to_owned(),
            jars: peers::installed(Group::Cassandra, "java-driver/lib")?,
            rust: rust_program()?,
            installed: Installed::find(&peers::root()).expect("its jars are there"),
        };
        Some(drivers)
    }

    /// Runs a program in Python; it ends in any case.
    pub(crate) fn python(&self, program: &str) -> Command {
        let mut command = bounded(&self.python);
        command.arg(programs().join(program));
        command.env("PYTHONPATH", &self.libraries);
        command
    }

    /// Runs a program in Java, from its source.
    pub(crate) fn java(&self, program: &str) -> Command {
        let mut command = bounded(&self.installed.java);
        // It ends before it would pay to compile much of it, or to use many threads.
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        command.arg("-cp").arg(self.jars.join("*"));
        command.arg(programs().join(program));
        command
    }

    /// Runs the program in Rust; `what` selects its work.
    pub(crate) fn rust(&self, what: &str) -> Command {
        let mut command = bounded(&self.rust);
        command.arg(what);
        command
    }

    /// Runs the driver program of this language on the node at `address`, in a keyspace that is named
    /// after language and version: so several run at a time.
    pub(crate) fn program(
        &self,
        language: Language,
        protocol: &str,
        address: SocketAddr,
    ) -> Command {
        let mut command = match language {
            Language::Python => self.python("driver_program.py"),
            Language::Java => self.java("DriverProgram.java"),
            Language::Rust => self.rust("driver"),
        };
        command.args([address.ip().to_string(), address.port().to_string()]);
        command.arg(format!("{language:?}{protocol}").to_lowercase());
        command.arg(protocol);
        // The other programs compress nothing.
        if language == Language::Java {
            let compression = if protocol == "4" { "snappy" } else { "lz4" };
            command.env("COMPRESSION", compression);
        }
        command
    }
}

/// Returns the lines that a command prints, which must succeed.
pub(crate) fn lines(command: &mut Command) -> Vec<String> {
    let output = command.stdin(Stdio::null()).output().expect("timeout");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out.lines().map(str::to_owned).collect()
}

/// Returns a command that ends after a quarter of an hour at the latest.
fn bounded(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("900").arg(program);
    command
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/cassandra")
}

/// Returns the program in Rust, if it was built from the current sources.
fn rust_program() -> Option<PathBuf> {
    let (source, place) = (
        programs().join("rust"),
        peers::root().join("target/peers/rust-driver"),
    );
    let code = std::fs::read_dir(source.join("src")).expect("its code");
    let code = code.map(|file| Path::new("src").join(file.expect("a file").file_name()));
    let mut files = code.chain(["Cargo.toml", "Cargo.lock"].map(PathBuf::from));
    let is_built = |file: PathBuf| {
        let copy = std::fs::read(place.join("source").join(&file));
        copy.is_ok_and(|copy| copy == std::fs::read(source.join(&file)).expect("a file"))
    };
    let program = place.join("rust-driver");
    peers::find(Group::Cassandra, "the program with the Rust driver", || {
        (program.is_file() && files.all(is_built)).then_some(program)
    })
}
