//! The place of tables: in directories of this machine, or at a storage node.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use disk::{LockError, RealDisk};
use fabric::Secret;
use pages::remote::{RemoteNode, RemoteNodeOptions, Replicas, SessionOptions};
use pages::{Error, TableStore, Tables};

use crate::membership::{EncryptionChoice, TransportChoice};
use crate::rdma::NamedDevice;

/// The file in which a storage node writes its address for programs that find its directory in use.
pub(crate) const ADDRESS_FILE: &str = "node.address";

/// Where tables are.
#[derive(Args, Debug)]
pub(crate) struct TableLocation {
    /// A directory of pages; made if it is not there. Given several times, pages are spread over
    /// them in turn; the first one has what tells of the tables, and is to be named first always.
    #[arg(
        long = "dir",
        value_name = "DIR",
        default_value = "./kumiki-pages",
        conflicts_with = "nodes"
    )]
    pub(crate) dirs: Vec<PathBuf>,
    /// A storage node (`kumiki pages serve`), in the place of directories. Given several times, tables
    /// are loaded into all of them alike, as replicas, and removed from all.
    #[arg(long = "node", value_name = "HOST:PORT")]
    pub(crate) nodes: Vec<String>,
    #[command(flatten)]
    access: NodeAccess,
}

/// The credentials for a storage node, and how messages travel.
#[derive(Args, Clone, Debug)]
pub(crate) struct NodeAccess {
    /// A file with the secret of the storage node; without it the secret is empty. Further lines are secrets that
    /// are accepted, too, while the secret is exchanged.
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// How messages and pages travel.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) transport: TransportChoice,
    /// Which connections are encrypted, with keys that the secret proves. Messages and pages through RDMA
    /// devices cannot be encrypted.
    #[arg(long, value_name = "WHICH", default_value = "auto")]
    pub(crate) encrypt_links: EncryptionChoice,
    /// The RDMA device, as `ibv_devices` or `rdma link` names it; default: the first one with a port
    /// that carries.
    #[arg(long, value_name = "NAME")]
    pub(crate) rdma_device: Option<String>,
}

impl NodeAccess {
    /// Returns the secret.
    pub(crate) fn secret(&self) -> Result<Secret, String> {
        let Some(file) = &self.secret_file else {
            return Ok(Secret::new(""));
        };
        let text = base::private::read(file);
        let text = text.map_err(|error| format!("cannot use {}: {error}", file.display()))?;
        let texts: Vec<&str> = text.trim().lines().map(str::trim).collect();
        match texts.is_empty() || texts.contains(&"") {
            true => Err(format!(
                "{} has no secret in it, or none on one of its lines: write a secret on each line",
                file.display()
            )),
            false => Ok(Secret::of(texts)),
        }
    }

    /// Returns the options for the use of a node at this address.
    pub(crate) fn session(&self, address: SocketAddr) -> Result<SessionOptions, String> {
        let mut options = SessionOptions::new(address, self.secret()?);
        options.transport = self.transport.of_links();
        options.encryption = self.encrypt_links.of_links();
        options.verbs = NamedDevice::new(self.rdma_device.clone()).open(options.transport)?;
        Ok(options)
    }
}

/// Returns the address of a node that the command line names.
pub(crate) fn resolve(node: &str) -> Result<SocketAddr, String> {
    Ok(resolve_as("--node", "127.0.0.1:6395", node)?[0])
}

/// Returns the addresses of a name in an option of the command line: at least one.
pub(crate) fn resolve_as(
    option: &str,
    example: &str,
    text: &str,
) -> Result<Vec<SocketAddr>, String> {
    let wrong = |why: &dyn std::fmt::Display| {
        format!("{option} {text}: {why}; give host:port, for example {example}")
    };
    let found = text.to_socket_addrs().map_err(|error| wrong(&error))?;
    let found: Vec<SocketAddr> = found.collect();
    match found.is_empty() {
        true => Err(wrong(&"there is no such host")),
        false => Ok(found),
    }
}

impl TableLocation {
    /// Opens the tables. Finds the storage node that uses the directories, if one does and no other was
    /// named.
    pub(crate) fn open(&self) -> Result<Box<dyn TableStore>, String> {
        if !self.nodes.is_empty() {
            return self.open_nodes();
        }
        match Tables::open(Arc::new(RealDisk), &self.dirs) {
            Ok(tables) => {
                // A killed node has left it; no node runs while this process has the directories.
                drop(std::fs::remove_file(self.dirs[0].join(ADDRESS_FILE)));
                Ok(Box::new(tables))
            }
            Err(error @ Error::Lock(LockError::InUse { .. })) => {
                let Some(address) = address_of(&self.dirs[0]) else {
                    return Err(error.to_string());
                };
                eprintln!("kumiki: the directory is that of the storage node at {address}");
                Ok(Box::new(self.far(address)?))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn open_nodes(&self) -> Result<Box<dyn TableStore>, String> {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for node in &self.nodes {
            let address = resolve(node)?;
            if addresses.contains(&address) {
                return Err(format!("--node {node} is named twice: name each node once"));
            }
            addresses.push(address);
        }
        if let [address] = addresses[..] {
            return Ok(Box::new(self.far(address)?));
        }
        let nodes = addresses.into_iter().map(|address| self.far(address));
        Ok(Box::new(Replicas::new(nodes.collect::<Result<_, _>>()?)))
    }

    fn far(&self, address: SocketAddr) -> Result<RemoteNode, String> {
        Ok(RemoteNode::new(RemoteNodeOptions::new(
            self.access.session(address)?,
        )))
    }

    /// Opens them for reading only.
    pub(crate) fn open_read_only(&self) -> Result<Tables, String> {
        if !self.nodes.is_empty() {
            return Err(
                "this reads the files themselves: run it on the node's machine with --dir"
                    .to_owned(),
            );
        }
        let tables = Tables::open_read_only(Arc::new(RealDisk), &self.dirs);
        tables.map_err(|error| error.to_string())
    }
}

/// Returns the address of the storage node that uses a directory, if it has written it.
pub(crate) fn address_of(dir: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(dir.join(ADDRESS_FILE)).ok()?;
    text.trim().parse().ok()
}
