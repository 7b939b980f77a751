//! YCSB's core with bindings of our own, which are in `ycsb/` of this crate.
//!
//! | in `target/peers/ycsb` | what |
//! |---|---|
//! | `lib/` | YCSB's core and the clients, which `cargo xtask peers` installs |
//! | `classes/` | the bindings, compiled when they are first used |
//! | `classes/sources.txt` | what they were compiled from, written once they are there |
//!
//! YCSB's bindings and workload files are not published with its core, so results must be labelled
//! *YCSB core with own binding*. The core checks the records that it reads if the property
//! `dataintegrity` is set.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installation;

/// The directory of jars and classes, below the repository.
const PLACE: &str = "target/peers/ycsb";
/// The bindings' sources.
const SOURCES: [(&str, &str); 2] = [
    (
        "CassandraBinding.java",
        include_str!("../ycsb/CassandraBinding.java"),
    ),
    (
        "RedisBinding.java",
        include_str!("../ycsb/RedisBinding.java"),
    ),
];

/// The reason why YCSB cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its jars are missing.
    #[error("YCSB is not installed (no {}); `cargo xtask peers` installs it", jars.display())]
    NotInstalled {
        /// The directory in which they were looked for.
        jars: PathBuf,
    },
    /// There is no Java.
    #[error(transparent)]
    Java(#[from] crate::error::Error),
    /// The bindings are not for these jars.
    #[error("javac does not compile the bindings for YCSB:\n{said}")]
    Compile {
        /// The output of the compiler.
        said: String,
    },
    /// A file or a program cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The database of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Cassandra, or another server with its protocol.
    Cassandra,
    /// Redis, or another server with its protocol.
    Redis,
}

impl Binding {
    fn class(self) -> &'static str {
        match self {
            Binding::Cassandra => "kumiki.ycsb.CassandraBinding",
            Binding::Redis => "kumiki.ycsb.RedisBinding",
        }
    }
}

/// The work of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It inserts the records.
    Load,
    /// It executes the workload.
    Transactions,
}

/// YCSB, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ycsb {
    java: PathBuf,
    class_path: String,
}

impl Ycsb {
    /// Returns the YCSB of the repository `root`; compiles the bindings unless that was done.
    ///
    /// # Errors
    /// Returns an error if it is not installed, or the bindings cannot be compiled.
    pub fn find(root: &Path) -> Result<Ycsb, Error> {
        let place = root.join(PLACE);
        let jars = place.join("lib");
        if !jars.is_dir() {
            return Err(Error::NotInstalled { jars });
        }
        let java = installation::java()?;
        let classes = place.join("classes");
        let jars = jars.join("*").display().to_string();
        let mark = classes.join("sources.txt");
        let sources = SOURCES.map(|(_, text)| text).concat();
        if fs::read_to_string(&mark).unwrap_or_default() != sources {
            compile(&java.with_file_name("javac"), &jars, &classes)?;
            fs::write(&mark, sources).map_err(file(&mark))?;
        }
        let class_path = format!("{}:{jars}", classes.display());
        Ok(Ycsb { java, class_path })
    }

    /// Returns the command that runs `phase` with so many threads. Properties are YCSB's, such as
    /// `recordcount`, and the binding's, which its source lists.
    #[must_use]
    pub fn command(
        &self,
        phase: Phase,
        binding: Binding,
        threads: usize,
        properties: &[(&str, &str)],
    ) -> Command {
        let mut command = Command::new(&self.java);
        command.args(["-cp", &self.class_path, "site.ycsb.Client"]);
        command.arg(match phase {
            Phase::Load => "-load",
            Phase::Transactions => "-t",
        });
        command.args(["-db", binding.class()]);
        command.args(["-threads", &threads.to_string()]);
        command.args(["-p", "workload=site.ycsb.workloads.CoreWorkload"]);
        for (name, value) in properties {
            command.args(["-p", &format!("{name}={value}")]);
        }
        command
    }
}

/// Compiles the bindings into `classes`.
fn compile(compiler: &Path, jars: &str, classes: &Path) -> Result<(), Error> {
    let sources = classes.join("sources");
    fs::create_dir_all(&sources).map_err(file(&sources))?;
    let mut command = Command::new(compiler);
    command
        .args(["-Xlint:all", "-Werror", "-cp", jars, "-d"])
        .arg(classes);
    for (name, text) in SOURCES {
        let path = sources.join(name);
        fs::write(&path, text).map_err(file(&path))?;
        command.arg(path);
    }
    let output = command.output().map_err(file(compiler))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Compile {
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
        }),
    }
}

/// Returns a function that makes an error about the file `path`.
fn file(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_one_command() {
        let ycsb = Ycsb {
            java: "java".into(),
            class_path: "classes:lib/*".to_owned(),
        };
        let properties = [("recordcount", "10"), ("redis.port", "7")];
        let command = ycsb.command(Phase::Load, Binding::Redis, 96, &properties);
        let arguments: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        let line = arguments.join(" ");
        assert!(
            line.starts_with("-cp classes:lib/* site.ycsb.Client -load"),
            "{line}"
        );
        assert!(
            line.contains("-db kumiki.ycsb.RedisBinding -threads 96"),
            "{line}"
        );
        assert!(
            line.ends_with("-p recordcount=10 -p redis.port=7"),
            "{line}"
        );
    }

    #[test]
    fn what_is_not_installed_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let refused = Ycsb::find(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("cargo xtask peers"), "{refused}");
    }
}
