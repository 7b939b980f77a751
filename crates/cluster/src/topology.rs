//! The cluster's file: the nodes, and the slots that each of them holds.
//!
//! | key | where | type | meaning |
//! |---|---|---|---|
//! | `name` | top | text | the cluster's name; data directories record it, and serve no other cluster. Without it they record the secret's fingerprint and the addresses |
//! | `secret` | top | text or list of texts, each at least 16 bytes | what nodes prove to each other and to Rust clients that they know: the first one. All are accepted |
//! | `secret-file` | top | path, relative to the file | a file that holds the secret instead, or several, one on each line |
//! | `client-secret` | top | text or list of texts, each at least 16 bytes | what Rust clients prove to nodes; without it, a text that follows from `secret` |
//! | `client-secret-file` | top | path, relative to the file | a file that holds the secret of clients instead |
//! | `read_atomic` | top | list of texts | the keys that begin with one of them are read atomic; without it, none is |
//! | `[[node]]` | top | tables | the nodes |
//! | `id` | node | 1–65535 | its number |
//! | `client` | node | address and port | where Redis clients connect |
//! | `tls` | node | address and port | where Redis clients connect that speak TLS; may be left out |
//! | `fabric` | node | address and port | where nodes and Rust clients connect |
//! | `replica` | node | address and port | where the others connect that hold the same partition; needed where it is replicated |
//! | `[[partition]]` | top | tables | the partitions |
//! | `id` | partition | 1–65535 | its number |
//! | `slots` | partition | text or list of texts | slots and ranges of them: `"0-4095, 8000"` |
//! | `nodes` | partition | list of numbers | the nodes that hold it: one, or three and more, of which each has all of it |
//!
//! Invariants of a [`Topology`]:
//! 1. Each slot belongs to exactly one partition.
//! 2. Each partition is on one node of the file, or on three or more; a node holds at most one
//!    partition.
//! 3. No two addresses of the file are the same, of any kind.
//! 4. Without a secret, in the file or beside it, all addresses are loopback ones.
//! 5. A node of a replicated partition has an address for that.
//! 6. None of the texts of `read_atomic` is empty, or comes twice.

mod cluster_map;
mod errors;
mod parse;
mod render;
mod validate;

use std::fs;
use std::path::{Path, PathBuf};

use cluster_map::SecretPlace;

pub use cluster_map::{LinkSecrets, NodeInfo, PartitionInfo, SHORTEST_SECRET, Topology};
pub use errors::{Mistake, Mistakes};
pub use render::even;

/// Why a cluster's file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read, or every user of the machine can read the secret in it.
    #[error("cannot use {}: {error}; {advice}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        error: std::io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The file has mistakes.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
}

impl Topology {
    /// Parses the text of a cluster's file; messages name it `file_name`. Files that hold secrets are
    /// not opened; see [`Topology::load`].
    ///
    /// # Errors
    /// Returns all [`Mistakes`] of the text; only those of TOML's grammar if there are any.
    pub fn parse(text: &str, file_name: &str) -> Result<Topology, Mistakes> {
        let mut found = Vec::new();
        let draft = parse::parse(text, &mut found);
        let topology = draft.and_then(|draft| validate::validate(draft, text, &mut found));
        match topology {
            Some(topology) if found.is_empty() => Ok(topology),
            _ => Err(Mistakes::new(file_name, found)),
        }
    }

    /// Loads a cluster's file, and the files of the secrets if it names some.
    ///
    /// # Errors
    /// The [`LoadError`] says which file to change and how.
    pub fn load(path: &Path) -> Result<Topology, LoadError> {
        let text = read_file(
            path,
            "give the path of the cluster's file, which must be readable",
        )?;
        let mut topology = Topology::parse(&text, &path.display().to_string())?;
        let dir = path.parent().unwrap_or(Path::new(""));
        load_secret(&mut topology.secret, dir)?;
        load_secret(&mut topology.client_secret, dir)?;
        Ok(topology)
    }
}

/// Reads the secret's file, which lies in `dir`, if there is one.
fn load_secret(secret: &mut SecretPlace, dir: &Path) -> Result<(), LoadError> {
    let Some(file) = &secret.file else {
        return Ok(());
    };
    let file = dir.join(file);
    let advice = "put the secret there, readable for this process, or name another file";
    let text = base::private::read(&file).map_err(|error| LoadError::Unreadable {
        path: file.clone(),
        error,
        advice,
    })?;
    let texts: Vec<&str> = text.trim().lines().map(str::trim).collect();
    if let Some((at, what)) = validate::short_secret(&texts) {
        let name = file.display().to_string();
        let line = at + 1;
        return Err(Mistakes::new(&name, vec![Mistake { line, what }]).into());
    }
    secret.texts = texts.into_iter().map(str::to_owned).collect();
    Ok(())
}

fn read_file(path: &Path, advice: &'static str) -> Result<String, LoadError> {
    fs::read_to_string(path).map_err(|error| LoadError::Unreadable {
        path: path.to_owned(),
        error,
        advice,
    })
}
