//! Programs of tests with clients that are written in Go.
//!
//! | where | what |
//! |---|---|
//! | `target/peers/NAME/modules` | the client and what it needs, as Go keeps modules |
//! | `target/peers/NAME/client` | the program |
//! | `target/peers/NAME.installed` | the program's source and the hashes of its modules, written once it is there |

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{build, process};

/// A program, and the library that it uses.
pub(super) struct GoProgram {
    /// The name of the folder under `target/peers`.
    pub(super) name: &'static str,
    /// The folder of its source in the repository.
    pub(super) source: &'static str,
    /// The library, as lines of `go.sum` begin.
    pub(super) library: &'static str,
}

/// The Redis client.
pub(super) const GO_REDIS: GoProgram = GoProgram {
    name: "go-redis",
    source: "crates/cli/tests/clients/go",
    library: "github.com/redis/go-redis/v9 ",
};

/// Locks, and scripts of the Redis client.
pub(super) const REDSYNC: GoProgram = GoProgram {
    name: "go-frameworks",
    source: "crates/cli/tests/clients/go-frameworks",
    library: "github.com/go-redsync/redsync/v4 ",
};

impl GoProgram {
    /// Builds the program unless it is there, and prints the version of its library.
    ///
    /// # Errors
    /// Returns an error if Go or a module cannot be had.
    pub(super) fn install(&self) -> Result<()> {
        let peers = build::root().join("target/peers");
        let (source, folder) = (build::root().join(self.source), peers.join(self.name));
        let (modules, program) = (folder.join("modules"), folder.join("client"));
        let mark = peers.join(format!("{}.installed", self.name));
        let hashes = fs::read_to_string(source.join("go.sum"))?;
        let wanted = fs::read_to_string(source.join("main.go"))? + &hashes;
        let there = fs::read_to_string(&mark).is_ok_and(|text| text == wanted);
        if !there || !program.is_file() {
            println!("peers: installing {}", self.name);
            fs::create_dir_all(&modules)?;
            let mut go = Command::new("go");
            // Of the modules it fetches those that the program needs.
            go.args(["build", "-mod=readonly", "-modcacherw", "-o"]);
            go.arg(&program).arg(".");
            go.env("GOMODCACHE", &modules).current_dir(&source);
            process::run("go", &mut go)
                .with_context(|| format!("cannot fetch {}; Go must be installed", self.name))?;
            fs::write(&mark, &wanted)?;
        }
        let version = hashes.lines().find_map(|line| {
            let version = line.strip_prefix(self.library)?;
            version.split_whitespace().next()
        });
        println!("peers: {:<16} {}", self.name, version.unwrap_or("?"));
        Ok(())
    }
}
