//! From a draft to a topology: how values must fit together.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use base::versions::ReadAtomic;
use base::{NodeId, PartitionId};

use super::cluster_map::{NodeInfo, PartitionInfo, SHORTEST_SECRET, SecretPlace, Topology};
use super::errors::Mistake;
use super::parse::{At, NodeDraft, PartitionDraft, SecretDraft, TopologyDraft};
use crate::slot::SLOTS;

/// Notes all mistakes of `draft`. Returns the topology if there are none.
pub(super) fn validate(
    draft: TopologyDraft,
    text: &str,
    found: &mut Vec<Mistake>,
) -> Option<Topology> {
    let is_read_whole = found.is_empty();
    let mut validator = TopologyValidator { found };
    let counts = [
        ("node", draft.nodes.len()),
        ("partition", draft.partitions.len()),
    ];
    for (of, count) in counts {
        if count == 0 && is_read_whole {
            validator.note(1, format!("there is no {of}: add one with [[{of}]]"));
        }
    }
    validator.secret(&draft.secret, "secret");
    validator.secret(&draft.client_secret, "client-secret");
    validator.open_to_strangers(&draft);
    validator.prefixes(&draft.read_atomic);
    validator.ids(draft.nodes.iter().map(|node| &node.value.id), "node");
    validator.ids(
        draft.partitions.iter().map(|one| &one.value.id),
        "partition",
    );
    validator.addresses(&draft.nodes);
    validator.placement(&draft);
    validator.replicas(&draft);
    let owners = validator.owners(&draft);
    if !validator.found.is_empty() {
        return None;
    }
    let mut nodes: Vec<NodeInfo> = draft.nodes.iter().filter_map(node).collect();
    nodes.sort_by_key(|node| node.id);
    let mut partitions: Vec<PartitionInfo> =
        draft.partitions.into_iter().filter_map(partition).collect();
    partitions.sort_by_key(|partition| partition.id);
    let topology = Topology {
        fingerprint: 0,
        text: text.to_owned(),
        name: draft.name.map(|name| name.value),
        secret: place(draft.secret),
        client_secret: place(draft.client_secret),
        nodes,
        partitions,
        read_atomic: ReadAtomic::new(
            draft
                .read_atomic
                .into_iter()
                .map(|prefix| prefix.value.into_bytes()),
        ),
        owners: owners?,
    };
    let fingerprint = topology.computed_fingerprint();
    Some(Topology {
        fingerprint,
        ..topology
    })
}

fn place(draft: SecretDraft) -> SecretPlace {
    SecretPlace {
        texts: draft.texts.map_or_else(Vec::new, |texts| texts.value),
        file: draft.file.map(|file| file.value),
    }
}

fn node(draft: &At<NodeDraft>) -> Option<NodeInfo> {
    let NodeDraft {
        id,
        client,
        tls,
        fabric,
        replica,
        ..
    } = &draft.value;
    Some(NodeInfo {
        id: NodeId(id.as_ref()?.value),
        client: client.as_ref()?.value,
        tls: tls.as_ref().map(|address| address.value),
        fabric: fabric.as_ref()?.value,
        replica: replica.as_ref().map(|address| address.value),
    })
}

fn partition(draft: At<PartitionDraft>) -> Option<PartitionInfo> {
    let PartitionDraft {
        id, slots, nodes, ..
    } = draft.value;
    let nodes = nodes?.value.into_iter().map(|node| NodeId(node.value));
    let mut nodes: Vec<NodeId> = nodes.collect();
    nodes.sort_unstable();
    Some(PartitionInfo {
        id: PartitionId(id?.value),
        slots: join(slots.into_iter().map(|slots| slots.value).collect()),
        nodes,
    })
}

/// Sorts ranges, and joins those that touch.
fn join(mut ranges: Vec<RangeInclusive<u16>>) -> Vec<RangeInclusive<u16>> {
    ranges.sort_by_key(|range| *range.start());
    let mut joined: Vec<RangeInclusive<u16>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end() + 1 == *range.start() => *last = *last.start()..=*range.end(),
            _ => joined.push(range),
        }
    }
    joined
}

/// Returns the place of the first text that can be guessed, and the message about it.
pub(super) fn short_secret<T: AsRef<str>>(texts: &[T]) -> Option<(usize, String)> {
    let mut lengths = texts.iter().map(|text| text.as_ref().len());
    let at = lengths.position(|bytes| bytes < SHORTEST_SECRET);
    // An empty file has no text at all.
    let at = at.or(texts.is_empty().then_some(0))?;
    let bytes = texts.get(at).map_or(0, |text| text.as_ref().len());
    let what = format!(
        "the secret has {bytes} bytes, which can be guessed: take at least {SHORTEST_SECRET}, such \
         as the output of \"openssl rand -hex 32\""
    );
    Some((at, what))
}

struct TopologyValidator<'m> {
    found: &'m mut Vec<Mistake>,
}

impl TopologyValidator<'_> {
    fn note(&mut self, line: usize, what: String) {
        self.found.push(Mistake { line, what });
    }

    fn secret(&mut self, draft: &SecretDraft, name: &str) {
        match (&draft.texts, &draft.file) {
            (Some(secret), Some(file)) => self.note(
                secret.line.max(file.line),
                format!("there are both a {name} and a {name}-file: take one of them out"),
            ),
            (Some(secret), None) => {
                if let Some((_, what)) = short_secret(&secret.value) {
                    self.note(secret.line, what);
                }
            }
            _ => {}
        }
    }

    /// Without a secret, notes the first address that other machines can reach.
    fn open_to_strangers(&mut self, draft: &TopologyDraft) {
        if draft.secret.is_given() || draft.client_secret.is_given() {
            return;
        }
        let addresses = draft.nodes.iter().flat_map(addresses);
        let public = |(_, address): &(_, &At<SocketAddr>)| !address.value.ip().is_loopback();
        if let Some((_, address)) = addresses.into_iter().find(public) {
            let what = format!(
                "{} can be reached from other machines, and there is no secret: put secret = \
                 \"...\" or secret-file = \"...\" at the top of the file",
                address.value
            );
            self.note(address.line, what);
        }
    }

    fn prefixes(&mut self, prefixes: &[At<String>]) {
        let mut lines = BTreeMap::new();
        for At { line, value } in prefixes {
            let what = if value.is_empty() {
                "read_atomic has an empty text, with which every key begins: write the beginnings of \
                 the keys that are meant, such as \"feed:\""
                    .to_owned()
            } else if let Some(first) = lines.insert(value, line) {
                format!("{value:?} is in read_atomic on line {first} already: take one of them out")
            } else {
                continue;
            };
            self.note(*line, what);
        }
    }

    fn ids<'d>(&mut self, ids: impl Iterator<Item = &'d Option<At<u16>>>, of: &str) {
        let mut lines = BTreeMap::new();
        for id in ids.flatten() {
            if let Some(first) = lines.insert(id.value, id.line) {
                let number = id.value;
                let what = format!(
                    "{of} {number} is on line {first} already: choose another number, or take one \
                     of the two out"
                );
                self.note(id.line, what);
            }
        }
    }

    fn addresses(&mut self, nodes: &[At<NodeDraft>]) {
        let mut lines = BTreeMap::new();
        for (name, address) in nodes.iter().flat_map(addresses) {
            let here = (name, address.line);
            if let Some((other, first)) = lines.insert(address.value, here) {
                let address_text = address.value;
                let what = format!(
                    "{name} is {address_text}, which is the {other} address on line {first} \
                     already: give each its own"
                );
                self.note(address.line, what);
            }
        }
    }

    fn placement(&mut self, draft: &TopologyDraft) {
        let ids = draft.nodes.iter().flat_map(|node| &node.value.id);
        let known: Vec<u16> = ids.map(|id| id.value).collect();
        let are_all_known = known.len() == draft.nodes.len() && !known.is_empty();
        // For each node the partition that it holds, by its place in the file, and the line.
        let mut holds: BTreeMap<u16, (usize, usize)> = BTreeMap::new();
        let lists = draft.partitions.iter().flat_map(|one| &one.value.nodes);
        for (at, list) in lists.enumerate() {
            if let Some(what) = wrong_count(list.value.len()) {
                self.note(list.line, what);
            }
            for node in &list.value {
                let number = node.value;
                if !known.contains(&number) && are_all_known {
                    let what = format!(
                        "there is no node {number}: add it with [[node]], or name another; there \
                         are {known:?}"
                    );
                    self.note(node.line, what);
                }
                let what = match holds.insert(number, (at, node.line)) {
                    None => continue,
                    Some((other, _)) if other == at => {
                        format!("node {number} is named twice: name it once, and others beside it")
                    }
                    Some((_, first)) => format!(
                        "node {number} holds the partition on line {first} already: a node holds \
                         one partition, so give this one to another node"
                    ),
                };
                self.note(node.line, what);
            }
        }
    }

    /// Checks that nodes of replicated partitions have an address for each other.
    fn replicas(&mut self, draft: &TopologyDraft) {
        let lists = draft.partitions.iter().flat_map(|one| &one.value.nodes);
        let replicated = lists.filter(|list| list.value.len() > 2);
        let lines: BTreeMap<u16, usize> = replicated
            .flat_map(|list| list.value.iter().map(|node| (node.value, list.line)))
            .collect();
        for node in &draft.nodes {
            let Some(id) = &node.value.id else { continue };
            if let (Some(line), true) = (lines.get(&id.value), node.value.has_no_replica) {
                let what = format!(
                    "node {} has no replica address, and the partition on line {line} is replicated: \
                     add replica = \"address:port\", where the others can connect that hold it",
                    id.value
                );
                self.note(node.line, what);
            }
        }
    }

    /// Returns the owner of each slot; notes overlaps and gaps.
    fn owners(&mut self, draft: &TopologyDraft) -> Option<Box<[PartitionId]>> {
        // For each slot the partition's id and the line; filled in the order of the file.
        let mut owners: Vec<Option<(u16, usize)>> = vec![None; SLOTS.into()];
        for partition in &draft.partitions {
            let id = partition.value.id.as_ref().map_or(0, |id| id.value);
            for range in &partition.value.slots {
                self.claim(&mut owners, range, id);
            }
        }
        // A range that could not be read may fill a gap.
        let are_all_known = draft.partitions.iter().all(|one| one.value.has_all_slots);
        if are_all_known && !draft.partitions.is_empty() {
            self.gaps(&owners, draft);
        }
        let all = owners.into_iter();
        all.map(|owner| Some(PartitionId(owner?.0))).collect()
    }

    fn claim(
        &mut self,
        owners: &mut [Option<(u16, usize)>],
        range: &At<RangeInclusive<u16>>,
        id: u16,
    ) {
        let slots = range.value.clone().map(usize::from);
        let others = slots.clone().map(|slot| owners[slot].map(|(_, line)| line));
        for (slots, line) in runs(others, *range.value.start()) {
            let Some(line) = line else { continue };
            let what = format!(
                "{} on line {line} already: each slot belongs to one partition",
                said(&slots, "is", "are")
            );
            self.note(range.line, what);
        }
        for slot in slots {
            owners[slot].get_or_insert((id, range.line));
        }
    }

    fn gaps(&mut self, owners: &[Option<(u16, usize)>], draft: &TopologyDraft) {
        let first_line = draft.partitions[0].line;
        let lines = owners.iter().map(|owner| owner.map(|(_, line)| line));
        let mut before = None;
        for (slots, line) in runs(lines, 0) {
            if line.is_none() {
                let what = format!(
                    "{} to no partition: add {} to the slots of one",
                    said(&slots, "belongs", "belong"),
                    if slots.start() == slots.end() {
                        "it"
                    } else {
                        "them"
                    }
                );
                self.note(before.unwrap_or(first_line), what);
            }
            before = line;
        }
    }
}

fn addresses(node: &At<NodeDraft>) -> impl Iterator<Item = (&'static str, &At<SocketAddr>)> {
    let NodeDraft {
        client,
        tls,
        fabric,
        replica,
        ..
    } = &node.value;
    let all = [
        ("client", client),
        ("tls", tls),
        ("fabric", fabric),
        ("replica", replica),
    ];
    let given = all.into_iter();
    given.filter_map(|(name, address)| Some((name, address.as_ref()?)))
}

fn wrong_count(nodes: usize) -> Option<String> {
    let what = match nodes {
        1 | 3.. => return None,
        0 => "nodes is empty: name the node that holds the partition".to_owned(),
        2 => "two nodes cannot hold a partition, because neither could go on without the other: \
              name one, or three"
            .to_owned(),
    };
    Some(what)
}

/// Returns the ranges of equal neighbours; the first item has the number `from`.
fn runs<T: PartialEq>(
    items: impl Iterator<Item = T>,
    from: u16,
) -> impl Iterator<Item = (RangeInclusive<u16>, T)> {
    let mut items = (from..).zip(items).peekable();
    std::iter::from_fn(move || {
        let (first, item) = items.next()?;
        let mut last = first;
        while let Some((slot, _)) = items.next_if(|(_, other)| *other == item) {
            last = slot;
        }
        Some((first..=last, item))
    })
}

fn said(slots: &RangeInclusive<u16>, of_one: &str, of_many: &str) -> String {
    let (first, last) = (slots.start(), slots.end());
    if first == last {
        format!("slot {first} {of_one}")
    } else {
        format!("slots {first}-{last} {of_many}")
    }
}
