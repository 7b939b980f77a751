//! The owner of a data directory: the node, its cluster, and its partition.
//!
//! A node that served another one's data would answer that keys do not exist that its clients have
//! written, and accept their writes. So the data directory records its owner in the file [`FILE`],
//! as lines of TOML:
//!
//! | key | meaning |
//! |---|---|
//! | `cluster` | the cluster's name, if its file gives one |
//! | `secret` | without a name: the fingerprint of the nodes' secret, if there is one |
//! | `addresses` | without a name: the addresses of the nodes for each other |
//! | `node` | the node's number |
//! | `partition` | the number of its partition, if it has one |
//! | `slots` | the partition's slots, as the cluster's file writes them |
//!
//! A directory without the file belongs to the first node that opens it. A cluster is another one if its name is
//! another one; without a name, if it has neither the recorded secret nor a node at a recorded address: the secret may
//! change while the nodes run, and nodes may get other addresses, but not all of it between two starts. Records of
//! older releases have none of the three, and are completed.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use server::Membership;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The name of the record.
pub(crate) const FILE: &str = "OWNER";

/// The node that the data belongs to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Owner {
    cluster: Option<String>,
    /// The fingerprints of the cluster's secrets, the one to be recorded first.
    secrets: Vec<String>,
    addresses: Vec<String>,
    node: i64,
    partition: Option<i64>,
    slots: String,
}

impl Owner {
    fn of(membership: &Membership) -> Owner {
        let topology = &membership.topology;
        let partition = topology.partition_at(membership.node);
        let partition = partition.and_then(|partition| topology.partition(partition));
        let slots = partition.map_or_else(Vec::new, |partition| {
            let ranges = partition.slots.iter();
            let texts = ranges.map(|range| format!("{}-{}", range.start(), range.end()));
            texts.collect()
        });
        Owner {
            cluster: topology.name().map(str::to_owned),
            secrets: topology.secret_fingerprints(),
            addresses: {
                let nodes = topology.nodes().iter();
                nodes.map(|node| node.fabric.to_string()).collect()
            },
            node: membership.node.0.into(),
            partition: partition.map(|partition| partition.id.0.into()),
            slots: slots.join(", "),
        }
    }

    /// Returns `None` if the text is no record.
    fn read(text: &str) -> Option<Owner> {
        let table = DeTable::parse(text).ok()?;
        let value_of = |key: &str| table.get_ref().get(key).map(Spanned::get_ref);
        let text_of = |key: &str| match value_of(key) {
            None => Some(None),
            Some(value) => value.as_str().map(|text| Some(text.to_owned())),
        };
        let number_of = |key: &str| match value_of(key) {
            None => Some(None),
            Some(DeValue::Integer(number)) => number.as_str().parse().ok().map(Some),
            Some(_) => None,
        };
        let addresses = match value_of("addresses") {
            None => Some(Vec::new()),
            Some(value) => value.as_array().and_then(|values| {
                let texts = values.iter().map(|value| value.get_ref().as_str());
                texts.map(|text| text.map(str::to_owned)).collect()
            }),
        };
        Some(Owner {
            cluster: text_of("cluster")?,
            secrets: text_of("secret")?.into_iter().collect(),
            addresses: addresses?,
            node: number_of("node")??,
            partition: number_of("partition")?,
            slots: text_of("slots")?.unwrap_or_default(),
        })
    }

    fn text(&self) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut text = "# Whose data this is. No other node may serve it.\n".to_owned();
        if let Some(name) = &self.cluster {
            text += &format!("cluster = {}\n", quoted(name));
        } else {
            if let Some(secret) = self.secrets.first() {
                text += &format!("secret = {}\n", quoted(secret));
            }
            let addresses = self.addresses.iter().map(|address| quoted(address));
            let addresses: Vec<String> = addresses.collect();
            text += &format!("addresses = [{}]\n", addresses.join(", "));
        }
        text += &format!("node = {}\n", self.node);
        if let Some(partition) = self.partition {
            text += &format!("partition = {partition}\nslots = {}\n", quoted(&self.slots));
        }
        text
    }

    /// Returns `true` if this node may serve the data of the recorded one. A record without a partition was made when
    /// the node had none.
    fn may_serve(&self, recorded: &Owner) -> bool {
        let partition = (self.partition, &self.slots);
        let known = (recorded.partition, &recorded.slots);
        self.is_of_cluster_of(recorded)
            && self.node == recorded.node
            && (known.0.is_none() || partition == known)
    }

    /// Returns `true` if the record is of this node's cluster, as far as it says.
    fn is_of_cluster_of(&self, recorded: &Owner) -> bool {
        if recorded.cluster.is_some() {
            return self.cluster == recorded.cluster;
        }
        let (secrets, addresses) = (&recorded.secrets, &recorded.addresses);
        secrets.is_empty() && addresses.is_empty()
            || secrets.iter().any(|one| self.secrets.contains(one))
            || addresses.iter().any(|one| self.addresses.contains(one))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.node)?;
        match &self.cluster {
            Some(name) => write!(f, " of the cluster {name:?}")?,
            None => f.write_str(" of a cluster")?,
        }
        match self.partition {
            Some(partition) => write!(f, " (partition {partition}, slots {}", self.slots)?,
            None => f.write_str(" (without a partition")?,
        }
        if self.cluster.is_none() {
            if let Some(secret) = self.secrets.first() {
                write!(f, ", secret with the fingerprint {secret}")?;
            }
            if let Some(address) = self.addresses.first() {
                write!(f, ", a node at {address}")?;
            }
        }
        f.write_str(")")
    }
}

/// A directory that this server may use.
#[must_use]
pub(crate) struct Claim {
    data: PathBuf,
    /// The record to be written there.
    record: Option<String>,
}

/// Checks that the directory `data` is empty or holds this node's data.
///
/// # Errors
/// The text says whose data it holds, and what to do.
pub(crate) fn check(data: &Path, membership: Option<&Membership>) -> Result<Claim, String> {
    let path = data.join(FILE);
    let own = membership.map(Owner::of);
    let claim = |record| Claim {
        data: data.to_owned(),
        record,
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(claim(own.map(|own| own.text())));
        }
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let recorded = Owner::read(&text).ok_or_else(|| {
        format!(
            "{} does not say whose data it is: restore it, or remove it if this node's data is in that directory",
            path.display()
        )
    })?;
    match own {
        Some(own) if own.may_serve(&recorded) => {
            let record = own.text();
            Ok(claim((record != text).then_some(record)))
        }
        Some(own) => Err(format!(
            "{} holds the data of {recorded}, and this is {own}: name this node's directory by --data. If this node \
             is to have that data from now on, remove {}",
            data.display(),
            path.display()
        )),
        None => Err(format!(
            "{} holds the data of {recorded}, and this server is of no cluster: start it with --cluster and --node, \
             or name another directory by --data. If this server is to have that data from now on, remove {}",
            data.display(),
            path.display()
        )),
    }
}

impl Claim {
    /// Records the owner in the directory, which must exist, if it is not recorded yet.
    ///
    /// # Errors
    /// The text says which file cannot be written.
    pub(crate) fn record(self) -> Result<(), String> {
        let Some(text) = self.record else {
            return Ok(());
        };
        let (path, new) = (self.data.join(FILE), self.data.join("OWNER.new"));
        let written = || {
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.data)?.sync_all()
        };
        written()
            .map_err(|error: std::io::Error| format!("cannot write {}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::NodeId;
    use cluster::{Timeouts, Topology};

    use super::*;

    fn node(top: &str, id: u16, slots: [&str; 2]) -> Membership {
        let mut text = top.to_owned();
        for (id, slots) in (1..).zip(slots) {
            text.push_str(&format!(
                "[[node]]\nid = {id}\nclient = \"127.0.0.1:700{id}\"\nfabric = \"127.0.0.1:1700{id}\"\n\
                 [[partition]]\nid = {id}\nslots = {slots}\nnodes = [{id}]\n"
            ));
        }
        let topology = Topology::parse(&text, "c.toml").expect("a cluster's file");
        Membership {
            secrets: topology.link_secrets(),
            topology: Arc::new(topology),
            node: NodeId(id),
            listen: None,
            timeouts: Timeouts::default(),
            transport: fabric::tcp::Transport::Tcp,
            encryption: fabric::tcp::Encryption::Auto,
            verbs: None,
        }
    }

    const HALVES: [&str; 2] = ["\"0-8191\"", "\"8192-16383\""];

    #[test]
    fn a_directory_serves_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let said = |membership: &Membership| check(dir.path(), Some(membership)).err();
        let (first, second) = (node("", 1, HALVES), node("", 2, HALVES));
        // Before it is recorded, it may belong to either.
        assert_eq!((said(&first), said(&second)), (None, None));
        check(dir.path(), Some(&first)).unwrap().record().unwrap();
        assert_eq!(said(&first), None);
        let foreign = said(&second).expect("it is the first one's");
        for word in [
            "node 1",
            "node 2",
            "partition 1, slots 0-8191",
            "--data",
            "remove ",
        ] {
            assert!(foreign.contains(word), "{foreign}");
        }
        let alone = check(dir.path(), None).err().expect("it is a node's");
        assert!(alone.contains("--cluster and --node"), "{alone}");
        // The same node with other slots would not find its keys.
        let moved = node("", 1, ["\"0-8000\"", "\"8001-16383\""]);
        assert!(said(&moved).expect("other slots").contains("slots 0-8000"));
        // A name is recorded as soon as there is one.
        let shop = node("name = \"shop\"\n", 1, HALVES);
        check(dir.path(), Some(&shop)).unwrap().record().unwrap();
        let other = node("name = \"staging\"\n", 1, HALVES);
        let foreign = said(&other).expect("another cluster");
        assert!(
            foreign.contains("\"shop\"") && foreign.contains("\"staging\""),
            "{foreign}"
        );
        assert_eq!(said(&shop), None);
        fs::remove_file(dir.path().join(FILE)).unwrap();
        assert_eq!(said(&other), None);
    }

    /// A node of a cluster without a name, with these secrets, and nodes at these ports.
    fn nameless(secrets: &[&str], ports: [u16; 2]) -> Membership {
        let secrets: Vec<String> = secrets.iter().map(|text| format!("{text:?}")).collect();
        let mut membership = node(&format!("secret = [{}]\n", secrets.join(", ")), 1, HALVES);
        let mut text = membership.topology.text().to_owned();
        for (old, new) in [17001, 17002].into_iter().zip(ports) {
            text = text.replace(&format!(":{old}"), &format!(":{new}"));
        }
        membership.topology = Arc::new(Topology::parse(&text, "c.toml").unwrap());
        membership
    }

    const SECRET: &str = "the first secret";
    const NEW: &str = "the other secret";

    #[test]
    fn a_cluster_without_a_name_is_told_by_its_secret_and_its_addresses() {
        let dir = tempfile::tempdir().unwrap();
        let said = |membership: &Membership| check(dir.path(), Some(membership)).err();
        let record = |membership: &Membership| {
            let claim = check(dir.path(), Some(membership)).unwrap();
            claim.record().unwrap();
        };
        let (here, there) = ([17001, 17002], [17003, 17004]);
        record(&nameless(&[SECRET], here));
        let foreign = said(&nameless(&[NEW], there)).expect("another cluster");
        for word in ["fingerprint", "127.0.0.1:17001", "127.0.0.1:17003"] {
            assert!(foreign.contains(word), "{foreign}");
        }
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(!text.contains(SECRET), "{text}");
        // All addresses change, and then the secret.
        record(&nameless(&[SECRET], there));
        assert!(said(&nameless(&[NEW], here)).is_some());
        record(&nameless(&[NEW], there));
        assert!(said(&nameless(&[SECRET], here)).is_some());
        // Both change, while the nodes accept both secrets.
        record(&nameless(&[SECRET, NEW], here));
        record(&nameless(&[SECRET], there));
        // One node after the other gets another address, and a secret that was changed before.
        record(&nameless(&[NEW], [17003, 17002]));
        record(&nameless(&[SECRET], here));
        // With a name, the secret and the addresses may be any.
        let named = |secret| {
            let top = format!("name = \"shop\"\nsecret = {secret:?}\n");
            node(&top, 1, HALVES)
        };
        record(&named(SECRET));
        record(&named(NEW));
        assert!(
            said(&nameless(&[NEW], here)).is_some(),
            "it has lost its name"
        );
    }

    #[test]
    fn a_cluster_without_name_and_secret_is_told_by_its_addresses() {
        let dir = tempfile::tempdir().unwrap();
        let said = |membership: &Membership| check(dir.path(), Some(membership)).err();
        let without = node("", 1, HALVES);
        let claim = check(dir.path(), Some(&without)).unwrap();
        claim.record().unwrap();
        assert_eq!(said(&without), None);
        assert_eq!(said(&nameless(&[SECRET], [17001, 17002])), None);
        assert!(said(&nameless(&[SECRET], [17003, 17004])).is_some());
    }

    #[test]
    fn a_record_of_an_older_release_is_completed() {
        let dir = tempfile::tempdir().unwrap();
        let text = "node = 1\npartition = 1\nslots = \"0-8191\"\n";
        fs::write(dir.path().join(FILE), text).unwrap();
        let own = nameless(&[SECRET], [17001, 17002]);
        check(dir.path(), Some(&own)).unwrap().record().unwrap();
        let other = nameless(&[NEW], [17003, 17004]);
        assert!(check(dir.path(), Some(&other)).is_err());
    }

    #[test]
    fn a_record_that_cannot_be_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for text in [
            "",
            "node = \"x\"",
            "node = 1\nslots = 7",
            "node = 1\naddresses = [7]",
            "no TOML",
        ] {
            fs::write(dir.path().join(FILE), text).unwrap();
            let said = check(dir.path(), Some(&node("", 1, HALVES))).err();
            assert!(
                said.is_some_and(|said| said.contains("does not say whose")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_server_of_no_cluster_records_nothing() {
        let dir = tempfile::tempdir().unwrap();
        check(dir.path(), None).unwrap().record().unwrap();
        assert!(!dir.path().join(FILE).exists());
    }
}
