//! The owner of a data directory: the node, its cluster, and its partition.
//!
//! A node that served another one's data would answer that keys do not exist that its clients have
//! written, and accept their writes. So the data directory records its owner in the file [`FILE`],
//! as lines of TOML:
//!
//! | key | meaning |
//! |---|---|
//! | `cluster` | the cluster's name, if its file gives one |
//! | `node` | the node's number |
//! | `partition` | the number of its partition, if it has one |
//! | `slots` | the partition's slots, as the cluster's file writes them |
//!
//! A directory without the file belongs to the first node that opens it.

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
        Some(Owner {
            cluster: text_of("cluster")?,
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
        }
        text += &format!("node = {}\n", self.node);
        if let Some(partition) = self.partition {
            text += &format!("partition = {partition}\nslots = {}\n", quoted(&self.slots));
        }
        text
    }

    /// Returns `true` if this node may serve the data of the recorded one. A record without the
    /// cluster's name was made before the name was given, and one without a partition when the node
    /// had none.
    fn may_serve(&self, recorded: &Owner) -> bool {
        let recorded = recorded.clone();
        let (partition, slots) = match recorded.partition {
            None => (self.partition, self.slots.clone()),
            known => (known, recorded.slots),
        };
        *self
            == Owner {
                cluster: recorded.cluster.or_else(|| self.cluster.clone()),
                node: recorded.node,
                partition,
                slots,
            }
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
            Some(partition) => write!(f, " (partition {partition}, slots {})", self.slots),
            None => f.write_str(" (without a partition)"),
        }
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
            let record = (own != recorded).then(|| own.text());
            Ok(claim(record))
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

    #[test]
    fn a_record_that_cannot_be_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "node = \"x\"", "node = 1\nslots = 7", "no TOML"] {
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
