//! Entry points for fuzzing the readers of other processes' bytes. They panic when a promise is broken.

use crate::codec;
use crate::slot::SLOTS;
use crate::topology::Topology;

/// Reads `bytes` as a message, as operations and as a participant list.
///
/// # Panics
/// If a decoder panics, or what it accepts has another encoding.
pub fn fuzz_messages(bytes: &[u8]) {
    let mut again = Vec::new();
    if let Ok(message) = codec::decode(bytes) {
        codec::encode(&message, &mut again);
        assert_eq!(again, bytes, "{message:?}");
    }
    again.clear();
    if let Ok(ops) = codec::decode_ops(bytes) {
        codec::encode_ops(&ops, &mut again);
        assert_eq!(again, bytes, "{ops:?}");
    }
    again.clear();
    if let Ok(participant_list) = codec::decode_participant_list(bytes) {
        codec::encode_participant_list(&participant_list, &mut again);
        assert_eq!(again, bytes, "{participant_list:?}");
    }
}

/// Reads `bytes` as a cluster's file.
///
/// # Panics
/// If the parser panics, names lines that are not there, or accepts what breaks an invariant.
pub fn fuzz_topology(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let topology = match Topology::parse(&text, "fuzzed") {
        Ok(topology) => topology,
        Err(mistakes) => {
            let last = text.matches('\n').count() + 1;
            let all = mistakes.all();
            assert!(!all.is_empty() && all.iter().all(|one| (1..=last).contains(&one.line)));
            return;
        }
    };
    for slot in 0..SLOTS {
        let owner = topology.partition_of_slot(slot);
        let holds = topology.partition(owner).expect("an owner is in the file");
        assert!(holds.slots.iter().any(|range| range.contains(&slot)));
    }
    for partition in topology.partitions() {
        let nodes = topology.nodes_of(partition.id);
        assert!(matches!(nodes.len(), 1 | 3..) && nodes.is_sorted());
        for node in nodes {
            let info = topology.node(*node).expect("a node of the file");
            assert!(info.replica.is_some() || nodes.len() == 1);
            assert_eq!(topology.partition_at(*node), Some(partition.id));
        }
    }
    let again = Topology::parse(topology.text(), "again").expect("it was accepted before");
    assert_eq!(again.fingerprint(), topology.fingerprint());
}
