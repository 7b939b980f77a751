//! A cluster's file for nodes that share the slots evenly.

use std::fmt::Write;

use super::NodeInfo;
use crate::slot::SLOTS;

/// The text of a cluster's file in which every `replicas` nodes hold a partition, in the order of
/// `nodes`, and the partitions, numbered from 1 on, have the slots divided evenly among them.
///
/// # Panics
/// If there are no nodes, or more than slots; if their number is no multiple of `replicas`; if that
/// is two; or if there are several, and a node has no address for them.
#[must_use]
pub fn even(nodes: &[NodeInfo], replicas: usize, secret: Option<&str>) -> String {
    assert!(matches!(replicas, 1 | 3..), "{replicas} replicas");
    assert!(nodes.len().is_multiple_of(replicas), "partitions are whole");
    let count = u32::try_from(nodes.len() / replicas).expect("at most 16384 partitions");
    assert!(0 < count && count <= u32::from(SLOTS), "{count} partitions");
    let mut text = String::new();
    if let Some(secret) = secret {
        let quoted = secret.escape_default();
        writeln!(text, "secret = \"{quoted}\"\n").expect("a string grows");
    }
    for node in nodes {
        let NodeInfo {
            id, client, fabric, ..
        } = node;
        write!(
            text,
            "[[node]]\nid = {id}\nclient = \"{client}\"\nfabric = \"{fabric}\"\n"
        )
        .expect("a string grows");
        if replicas > 1 {
            let replica = node.replica.expect("an address for replicas");
            writeln!(text, "replica = \"{replica}\"").expect("a string grows");
        }
        text.push('\n');
    }
    let begin = |index: u32| index * u32::from(SLOTS) / count;
    for (index, holders) in (0..).zip(nodes.chunks(replicas)) {
        let id = index + 1;
        let holders: Vec<_> = holders.iter().map(|node| node.id.0).collect();
        let (first, last) = (begin(index), begin(index + 1) - 1);
        write!(
            text,
            "[[partition]]\nid = {id}\nslots = [\"{first}-{last}\"]\nnodes = {holders:?}\n\n"
        )
        .expect("a string grows");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
