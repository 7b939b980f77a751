//! Writes cluster files.

use base::PartitionId;

use super::cluster_map::{NodeInfo, PartitionInfo, Topology};
use crate::slot::SLOTS;

/// Returns the text of a cluster's file in which every `replicas` nodes hold a partition, in the order
/// of `nodes`, and the partitions, numbered from 1 on, divide the slots evenly among them.
///
/// # Panics
/// If there are no nodes, or more than slots; if their number is no multiple of `replicas`; if
/// `replicas` is 2; or if it is more, and a node has no address for replicas.
#[must_use]
pub fn even(nodes: &[NodeInfo], replicas: usize, secret: Option<&str>) -> String {
    assert!(matches!(replicas, 1 | 3..), "{replicas} replicas");
    assert!(nodes.len().is_multiple_of(replicas), "partitions are whole");
    let count = u32::try_from(nodes.len() / replicas).expect("at most 16384 partitions");
    assert!(0 < count && count <= u32::from(SLOTS), "{count} partitions");
    let mut text = String::new();
    if let Some(secret) = secret {
        text += &format!("secret = {}\n\n", quoted(secret));
    }
    for node in nodes {
        assert!(
            replicas == 1 || node.replica.is_some(),
            "an address for replicas"
        );
        write_node(&mut text, node);
    }
    let begin = |index: u32| index * u32::from(SLOTS) / count;
    for (index, holders) in (0..).zip(nodes.chunks(replicas)) {
        let id = index + 1;
        let holders = holders.iter().map(|node| node.id).collect();
        let (first, last) = (begin(index), begin(index + 1) - 1);
        let partition = PartitionInfo {
            id: PartitionId(id as u16),
            slots: vec![first as u16..=last as u16],
            nodes: holders,
        };
        write_partition(&mut text, &partition);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

impl Topology {
    /// Returns the text of the cluster's file for clients: the nodes, what each of them holds, and the
    /// read-atomic keys; without secrets and comments.
    #[must_use]
    pub fn text_for_clients(&self) -> String {
        let mut text = String::new();
        if let Some(name) = &self.name {
            text += &format!("name = {}\n", quoted(name));
        }
        if self.secret.is_given() || self.client_secret.is_given() {
            // Without one, addresses that other machines reach would be a mistake.
            text += "secret-file = \"known-to-nodes\"\n";
        }
        let prefixes = self.read_atomic.prefixes().map(String::from_utf8_lossy);
        let prefixes: Vec<String> = prefixes.map(|prefix| quoted(&prefix)).collect();
        if !prefixes.is_empty() {
            text += &format!("read_atomic = [{}]\n", prefixes.join(", "));
        }
        text.push('\n');
        for node in &self.nodes {
            write_node(&mut text, node);
        }
        for partition in &self.partitions {
            write_partition(&mut text, partition);
        }
        text
    }
}

fn write_node(text: &mut String, node: &NodeInfo) {
    *text += &format!("[[node]]\nid = {}\n", node.id);
    let addresses = [
        ("client", Some(node.client)),
        ("tls", node.tls),
        ("fabric", Some(node.fabric)),
        ("replica", node.replica),
    ];
    for (name, address) in addresses {
        if let Some(address) = address {
            *text += &format!("{name} = \"{address}\"\n");
        }
    }
    text.push('\n');
}

fn write_partition(text: &mut String, partition: &PartitionInfo) {
    let slots = partition.slots.iter();
    let slots: Vec<_> = slots
        .map(|range| format!("{}-{}", range.start(), range.end()))
        .collect();
    let nodes: Vec<_> = partition.nodes.iter().map(|node| node.0).collect();
    let id = partition.id;
    *text += &format!("[[partition]]\nid = {id}\nslots = {slots:?}\nnodes = {nodes:?}\n\n");
}

/// Returns `text` as a string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if character.is_control() => quoted += &format!("\\u{:04X}", character as u32),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
