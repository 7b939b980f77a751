//! A cluster's file for nodes that share the slots evenly.

use std::fmt::Write;

use super::NodeInfo;
use crate::slot::SLOTS;

/// The text of a cluster's file in which each node holds one partition of its own number, and the
/// slots are divided evenly among them in the order of `nodes`.
///
/// # Panics
/// If there are no nodes, or more than slots.
#[must_use]
pub fn even(nodes: &[NodeInfo], secret: Option<&str>) -> String {
    let count = u32::try_from(nodes.len()).expect("a cluster has at most 16384 nodes");
    assert!(0 < count && count <= u32::from(SLOTS), "{count} nodes");
    let mut text = String::new();
    if let Some(secret) = secret {
        let quoted = secret.escape_default();
        writeln!(text, "secret = \"{quoted}\"\n").expect("a string grows");
    }
    for node in nodes {
        let NodeInfo { id, client, fabric } = node;
        write!(
            text,
            "[[node]]\nid = {id}\nclient = \"{client}\"\nfabric = \"{fabric}\"\n\n"
        )
        .expect("a string grows");
    }
    let begin = |index: u32| index * u32::from(SLOTS) / count;
    for (index, NodeInfo { id, .. }) in (0..).zip(nodes) {
        let (first, last) = (begin(index), begin(index + 1) - 1);
        write!(
            text,
            "[[partition]]\nid = {id}\nslots = [\"{first}-{last}\"]\nnodes = [{id}]\n\n"
        )
        .expect("a string grows");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
