//! The node of a cluster that `kumiki serve` is.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::NodeId;
use clap::{Args, ValueEnum};
use cluster::topology::LoadError;
use cluster::{Timeouts, Topology};
use server::Membership;

use crate::rdma::RdmaOptions;
use crate::signals::SecretReload;

/// The address on which a server listens that is in no cluster.
pub(crate) const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 6380);

/// How messages between nodes, and with Rust clients, travel.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum TransportChoice {
    /// For each peer the fastest way that both sides have: memory that they share on one machine,
    /// else RDMA devices, else TCP.
    Auto,
    /// TCP.
    Tcp,
    /// Memory that this machine's processes share: for clusters on one machine.
    Shm,
    /// RDMA devices: InfiniBand, or RoCE. Messages go into rings that the peer's device writes.
    Verbs,
    /// RDMA devices as well, and messages by Send and Receive: for comparisons with verbs.
    VerbsSend,
    /// Send and Receive emulated in memory that this machine's processes share: for tests and
    /// comparisons with shm.
    ShmSend,
}

impl TransportChoice {
    pub(crate) fn of_links(self) -> fabric::tcp::Transport {
        match self {
            TransportChoice::Auto => fabric::tcp::Transport::Auto,
            TransportChoice::Tcp => fabric::tcp::Transport::Tcp,
            TransportChoice::Shm => fabric::tcp::Transport::Shm,
            TransportChoice::Verbs => fabric::tcp::Transport::Verbs,
            TransportChoice::VerbsSend => fabric::tcp::Transport::VerbsSend,
            TransportChoice::ShmSend => fabric::tcp::Transport::ShmSend,
        }
    }
}

/// Which connections are encrypted, for the command line.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum EncryptionChoice {
    /// Those that leave this machine: all but those between loopback addresses.
    Auto,
    /// All.
    Yes,
    /// None, unless the other side asks for it: for networks that are trusted.
    No,
}

impl EncryptionChoice {
    pub(crate) fn of_links(self) -> fabric::tcp::Encryption {
        match self {
            EncryptionChoice::Auto => fabric::tcp::Encryption::Auto,
            EncryptionChoice::Yes => fabric::tcp::Encryption::Always,
            EncryptionChoice::No => fabric::tcp::Encryption::Never,
        }
    }
}

/// Options of a node of a cluster.
#[derive(Args, Debug)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct MembershipOptions {
    /// Serve as a node of the cluster that this file describes; docs/cluster.md says how.
    #[arg(long = "cluster", value_name = "FILE", requires = "node")]
    pub(crate) file: Option<PathBuf>,
    /// Which node of the cluster this is: its id in the file.
    #[arg(
        long,
        value_name = "ID",
        requires = "file",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub(crate) node: Option<u16>,
    /// Where to listen for other nodes and Rust clients, if not on the address of the cluster's file: for
    /// machines whose addresses are translated, 0.0.0.0:PORT for example.
    #[arg(long, value_name = "HOST:PORT", requires = "file")]
    pub(crate) fabric_listen: Option<SocketAddr>,
    /// Where to listen for other replicas of the partition, if not on the address of the cluster's file.
    #[arg(long, value_name = "HOST:PORT", requires = "file")]
    pub(crate) replica_listen: Option<SocketAddr>,
    /// How messages between nodes, and with Rust clients, travel.
    #[arg(long, value_name = "HOW", default_value = "auto", requires = "file")]
    pub(crate) transport: TransportChoice,
    /// Which connections between nodes, and with Rust clients, are encrypted; the keys are made anew for each
    /// connection, and proved by the cluster's secret. Messages through RDMA devices cannot be encrypted.
    #[arg(long, value_name = "WHICH", default_value = "auto", requires = "file")]
    pub(crate) encrypt_links: EncryptionChoice,
    #[command(flatten)]
    pub(crate) rdma: RdmaOptions,
}

impl MembershipOptions {
    /// Reads the cluster's file, if there is one, and opens the RDMA device, if one is used.
    pub(crate) fn join(&self) -> Result<Option<Membership>, String> {
        let (Some(file), Some(node)) = (&self.file, self.node) else {
            return Ok(None);
        };
        let topology = load(file)?;
        let membership = Membership {
            secrets: topology.link_secrets(),
            topology: Arc::new(topology),
            node: NodeId(node),
            listen: self.fabric_listen,
            timeouts: Timeouts::default(),
            transport: self.transport.of_links(),
            encryption: self.encrypt_links.of_links(),
            verbs: self.rdma.open(self.transport.of_links())?,
        };
        let known = membership.info();
        known.map_err(|error| format!("{}: {error}; choose one by --node", file.display()))?;
        Ok(Some(membership))
    }
}

/// Returns how a node reads the secrets of its cluster's file again.
pub(crate) fn secret_reload(
    file: Option<&Path>,
    membership: Option<&Membership>,
) -> Option<SecretReload> {
    let (file, membership) = (file?.to_owned(), membership?);
    let (secrets, fingerprint) = (
        membership.secrets.clone(),
        membership.topology.fingerprint(),
    );
    let has_secret = membership.topology.secret().is_some();
    let read = move || {
        let topology = load(&file)?;
        if topology.fingerprint() != fingerprint {
            return Err(format!(
                "{} gives slots, partitions or read-atomic keys to others than at the start; that needs a \
                 restart of all nodes",
                file.display()
            ));
        }
        if has_secret && topology.secret().is_none() {
            return Err(format!(
                "{} has no secret any more; put one back, or restart the node to serve without one",
                file.display()
            ));
        }
        secrets.replace(&topology.link_secrets());
        Ok(())
    };
    Some(SecretReload {
        read: Box::new(read),
    })
}

/// Reads a cluster's file. Warns if every user of the machine can read a secret in it.
pub(crate) fn load(file: &Path) -> Result<Topology, String> {
    let topology = Topology::load(file).map_err(|error| match error {
        LoadError::Mistakes(mistakes) => {
            format!("the cluster's file cannot be used:\n{mistakes}")
        }
        unreadable => unreadable.to_string(),
    })?;
    if topology.secret().is_some()
        && topology.secret_file().is_none()
        && let Err(error) = base::private::check(file)
    {
        tracing::warn!("the cluster's file has the secret: {error}");
    }
    Ok(topology)
}

/// Returns the address to listen on: the one that others know, or the given one, which may be all addresses of
/// the machine.
pub(crate) fn listen(
    given: Option<SocketAddr>,
    membership: Option<&Membership>,
) -> Result<SocketAddr, String> {
    let Some(membership) = membership else {
        return Ok(given.unwrap_or(LISTEN));
    };
    let known = membership.info().map_err(|error| error.to_string())?.client;
    match given {
        Some(given) if given.ip().is_unspecified() => Ok(given),
        Some(given) if given != known => Err(format!(
            "--listen {given} contradicts the cluster's file, which sends clients of node {} to \
             {known}: leave out --listen, or change the file on all nodes",
            membership.node
        )),
        _ => Ok(known),
    }
}

/// Returns the address to listen on for clients that speak TLS, if there is one: the one that others know, or
/// `port` on the address of `listen`, if that is all addresses of the machine or the cluster's file has no
/// address for TLS.
///
/// # Errors
/// Returns an error if the options contradict the cluster's file, or if that has an address for TLS and there is
/// no certificate.
pub(crate) fn listen_for_tls(
    port: Option<u16>,
    has_certificate: bool,
    listen: SocketAddr,
    membership: Option<&Membership>,
) -> Result<Option<SocketAddr>, String> {
    let info = membership.map(Membership::info).transpose();
    let info = info.map_err(|error| error.to_string())?;
    let known = info.and_then(|info| Some((info.id, info.tls?)));
    let on = |port| SocketAddr::new(listen.ip(), port);
    match (port, known) {
        (_, Some((node, known))) if !has_certificate => Err(format!(
            "the cluster's file sends clients of node {node} that speak TLS to {known}, and there is no \
             certificate: give --tls-cert FILE and --tls-key FILE, or take tls = \"{known}\" out of the file"
        )),
        (_, Some((_, known))) if listen.ip().is_unspecified() => {
            Ok(Some(on(port.unwrap_or(known.port()))))
        }
        (Some(port), Some((node, known))) if port != known.port() => Err(format!(
            "--tls-port {port} contradicts the cluster's file, which sends clients of node {node} that speak TLS \
             to {known}: leave out --tls-port, or change the file on all nodes"
        )),
        (_, Some((_, known))) => Ok(Some(known)),
        (port, None) => Ok(port.map(on)),
    }
}

/// Refuses a password that covers the address of Redis clients alone: without a secret every user
/// of this machine may read and write everything at the addresses of nodes and Rust clients.
pub(crate) fn check_secret(
    password: Option<&str>,
    membership: Option<&Membership>,
    insecure: bool,
) -> Result<(), String> {
    let Some(membership) = membership else {
        return Ok(());
    };
    let topology = &membership.topology;
    if topology.secret().is_none() && topology.client_secret().is_some() {
        return Err(
            "the cluster's file has the secret of clients, and not that of nodes: it is for clients; \
             start nodes with a file that has secret or secret-file"
                .to_owned(),
        );
    }
    if password.is_none() || membership.topology.secret().is_some() || insecure {
        return Ok(());
    }
    Err(
        "--requirepass protects the address of Redis clients alone, and the cluster's file has no secret: \
         every user of this machine could read and write all keys at the addresses of nodes and Rust \
         clients (fabric, replica). Put secret-file = \"PATH\" into the cluster's file of all nodes, and a \
         long random text into that file (openssl rand -hex 32 prints one), which only the user of the \
         nodes may read; or give --insecure if all users of this machine are trusted"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [[node]]
        id = 3
        client = "127.0.0.1:7003"
        fabric = "127.0.0.1:17003"
        [[partition]]
        id = 1
        slots = ["0-16383"]
        nodes = [3]
    "#;

    #[test]
    fn options_that_do_not_suit_a_partition_are_explained() {
        let nodes = (3..6).map(|id| {
            format!(
                "[[node]]\nid = {id}\nclient = \"127.0.0.1:700{id}\"\n\
                 fabric = \"127.0.0.1:1700{id}\"\nreplica = \"127.0.0.1:2700{id}\"\n"
            )
        });
        let partition = "[[partition]]\nid = 1\nslots = \"0-16383\"\nnodes = [3, 4, 5]\n";
        let replicated = nodes.collect::<String>() + partition;
        for (text, args, words) in [
            (
                FILE,
                &["--group", "8"][..],
                ["--group", "three nodes or more"],
            ),
            (FILE, &["--lease-reads"], ["--lease-reads", "leave it out"]),
            (
                &replicated,
                &["--ephemeral"],
                ["--ephemeral", "partition 1"],
            ),
            (
                &replicated,
                &["--durability", "async"],
                ["--durability async", "most of its nodes"],
            ),
            (
                &replicated,
                &["--loggers", "2"],
                ["--loggers", "leave it out"],
            ),
            (
                &replicated,
                &["--epoch-time", "1ms"],
                ["--epoch-time", "Raft"],
            ),
        ] {
            let said = checked(text, args).unwrap_err();
            assert!(
                words.iter().all(|word| said.contains(word)),
                "{args:?}: {said}"
            );
        }
        assert_eq!(
            checked(&replicated, &["--group", "8", "--lease-reads"]),
            Ok(())
        );
        assert_eq!(checked(FILE, &["--ephemeral"]), Ok(()));
    }

    /// Checks these options of node 3.
    fn checked(text: &str, args: &[&str]) -> Result<(), String> {
        let (dir, cluster) = options(text, 3);
        let membership = cluster.join()?;
        let file = dir.path().join("cluster.toml").display().to_string();
        let node = ["kumiki", "serve", "--cluster", &file, "--node", "3"];
        let cli = <crate::cli::Cli as clap::Parser>::try_parse_from(node.iter().chain(args));
        let crate::cli::CliCommand::Serve(serve) = cli.expect("it can be read").command else {
            panic!("another command")
        };
        crate::node_replica::check(&serve, membership.as_ref())
    }

    fn options(text: &str, node: u16) -> (tempfile::TempDir, MembershipOptions) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cluster.toml");
        std::fs::write(&file, text).unwrap();
        let cluster = MembershipOptions {
            file: Some(file),
            node: Some(node),
            fabric_listen: None,
            replica_listen: None,
            transport: TransportChoice::Auto,
            encrypt_links: EncryptionChoice::Auto,
            rdma: RdmaOptions::default(),
        };
        (dir, cluster)
    }

    /// A file without the secret that it had would open the node to all users of the machine.
    #[test]
    fn a_secret_is_read_again_and_does_not_vanish() {
        let with = |secret: &str| format!("secret = \"{secret}\"\n{FILE}");
        let (dir, cluster) = options(&with("the first secret"), 3);
        let membership = cluster.join().unwrap();
        let file = dir.path().join("cluster.toml");
        let reload = secret_reload(Some(&file), membership.as_ref()).unwrap();
        std::fs::write(&file, with("the second secret")).unwrap();
        assert_eq!((reload.read)(), Ok(()));
        std::fs::write(&file, FILE).unwrap();
        let said = (reload.read)().unwrap_err();
        assert!(said.contains("no secret any more"), "{said}");
    }

    #[test]
    fn a_node_listens_where_the_file_says() {
        let (_dir, cluster) = options(FILE, 3);
        let membership = cluster.join().unwrap();
        let at = |given: Option<&str>| {
            listen(given.map(|text| text.parse().unwrap()), membership.as_ref())
        };
        let known = "127.0.0.1:7003".parse().unwrap();
        assert_eq!(at(None), Ok(known));
        assert_eq!(at(Some("127.0.0.1:7003")), Ok(known));
        let all = "0.0.0.0:7103".parse().unwrap();
        assert_eq!(at(Some("0.0.0.0:7103")), Ok(all));
        let said = at(Some("127.0.0.1:7004")).unwrap_err();
        for word in ["127.0.0.1:7004", "127.0.0.1:7003", "node 3", "--listen"] {
            assert!(said.contains(word), "{said}");
        }
        assert_eq!(listen(None, None), Ok(LISTEN));
    }

    #[test]
    fn a_node_listens_for_tls_where_the_file_says() {
        let text = FILE.replace("fabric =", "tls = \"127.0.0.1:8003\"\nfabric =");
        let (_dir, cluster) = options(&text, 3);
        let membership = cluster.join().unwrap();
        let of = |port, has_certificate, listen: &str, membership| {
            listen_for_tls(port, has_certificate, listen.parse().unwrap(), membership)
        };
        let at = |address: &str| Ok(Some(address.parse().unwrap()));
        let (own, all) = ("127.0.0.1:7003", "0.0.0.0:7103");
        let node = membership.as_ref();
        assert_eq!(of(None, true, own, node), at("127.0.0.1:8003"));
        assert_eq!(of(Some(8003), true, own, node), at("127.0.0.1:8003"));
        assert_eq!(of(None, true, all, node), at("0.0.0.0:8003"));
        assert_eq!(of(Some(8103), true, all, node), at("0.0.0.0:8103"));
        let refused = |port, has_certificate, words: &[&str]| {
            let said = of(port, has_certificate, own, node).unwrap_err();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        };
        refused(
            Some(8004),
            true,
            &["--tls-port 8004", "127.0.0.1:8003", "node 3"],
        );
        refused(
            None,
            false,
            &["127.0.0.1:8003", "node 3", "--tls-cert", "--tls-key"],
        );
        // Without such an address in the file, the option gives the port.
        let (_dir, cluster) = options(FILE, 3);
        let membership = cluster.join().unwrap();
        for node in [membership.as_ref(), None] {
            assert_eq!(of(Some(8003), true, own, node), at("127.0.0.1:8003"));
            assert_eq!(of(None, false, own, node), Ok(None));
            assert_eq!(of(None, true, own, node), Ok(None));
        }
    }

    #[test]
    fn a_password_needs_a_secret_beside_it() {
        let with_secret = format!("secret = \"0123456789abcdef\"\n{FILE}");
        for (text, password, insecure, is_fine) in [
            (FILE, None, false, true),
            (FILE, Some("pw"), false, false),
            (FILE, Some("pw"), true, true),
            (&with_secret, Some("pw"), false, true),
        ] {
            let (_dir, cluster) = options(text, 3);
            let membership = cluster.join().unwrap();
            let checked = check_secret(password, membership.as_ref(), insecure);
            assert_eq!(checked.is_ok(), is_fine, "{password:?} {insecure}");
            if let Err(said) = checked {
                for word in ["secret-file", "--requirepass", "--insecure"] {
                    assert!(said.contains(word), "{said}");
                }
            }
        }
        let (_dir, cluster) = options(&format!("client-secret = \"0123456789abcdef\"\n{FILE}"), 3);
        let membership = cluster.join().unwrap();
        let said = check_secret(None, membership.as_ref(), true).unwrap_err();
        assert!(said.contains("it is for clients"), "{said}");
        // A server that is in no cluster has no other address.
        assert_eq!(check_secret(Some("pw"), None, false), Ok(()));
    }

    #[test]
    fn an_unknown_node_and_mistakes_are_told() {
        let (_dir, cluster) = options(FILE, 7);
        let said = cluster.join().unwrap_err();
        assert!(
            said.contains("no node 7") && said.contains("it has: 3"),
            "{said}"
        );
        let (_dir, cluster) = options(&FILE.replace("16383", "100").replace("= [3]", "= [4]"), 3);
        let said = cluster.join().unwrap_err();
        let lines: Vec<&str> = said.lines().skip(1).collect();
        assert!(lines.len() >= 2, "{said}");
        assert!(
            lines.iter().all(|line| line.contains("cluster.toml:")),
            "{said}"
        );
    }
}
